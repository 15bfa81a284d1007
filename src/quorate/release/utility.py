"""Estimate the utility of a release before it is published, by simulation and never from the true answers.

The release is taken as the truth: records are drawn from it and released again with the same settings. The distance of
the second release from the first is then known, and not private. It is an estimate: what the release did not capture of
the private records is missing from the simulated ones, too.
"""

import math
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import sparse, stats

from quorate.core.arrays import Floats, Integers
from quorate.core.ballots import release_counts
from quorate.core.checks import check_count, check_positive
from quorate.core.errors import InvalidInput
from quorate.core.privacy import Budget
from quorate.core.privacy.claims import budget_node
from quorate.release._release import QueryRelease
from quorate.release.domain import Domain
from quorate.release.engines import ENGINES
from quorate.release.people import RECORD
from quorate.release.queries import MOST_LISTED, Marginals
from quorate.release.synthetic import encode_one_hot
from quorate.release.workloads.marginals import MarginalWorkload, weigh_queries
from quorate.tables.cells import NumberCells
from quorate.tables.containers import is_arrow, take_arrow_rows

_MOST_ROWS = 100_000  # simulated records of one release
_MOST_LEARNED = 20_000  # of those, what a classifier learns from and is tested on
_STEPS = 200  # of the fit of a classifier


@dataclass(frozen=True)
class Utility:
    """Errors of a simulated release, averaged over the simulations.

    `mean_error` is the mean total variation of a marginal, or the mean error of other queries; `largest_error` is the
    largest of all answers; the same two exist for synthetic records. `correlation_error` is the largest error of a rank
    correlation of two columns of numbers among synthetic records, for marginals of two or more. With a target, `auc` is
    the area under the curve of a classifier that learns from the simulated records themselves, and `synthetic_auc` that
    of one that learns from synthetic ones; both are measured on other simulated records.
    """

    simulations: int
    records: int
    mean_error: float
    largest_error: float
    synthetic_mean_error: float
    synthetic_largest_error: float
    correlation_error: float | None = None
    target: str | None = None
    auc: float | None = None
    synthetic_auc: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the available figures."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def summary(self) -> str:
        """Return the figures in words."""
        times = "once" if self.simulations == 1 else f"{self.simulations} times"
        lines = [
            f"Simulated {times}, with {self.records:,} records like those that were released: an estimate.",
            f"Answers are off by {self.mean_error:.4f} in the mean (a marginal by its total variation), and a single "
            f"one by {self.largest_error:.4f} at most.",
            f"Those of synthetic records by {self.synthetic_mean_error:.4f}, and a single one by "
            f"{self.synthetic_largest_error:.4f} at most.",
        ]
        if self.correlation_error is not None:
            lines.append(f"Rank correlations of two numbers are off by {self.correlation_error:.3f} at most.")
        if self.auc is not None and self.synthetic_auc is not None:
            lines.append(
                f"A classifier of {self.target!r} has an area under the curve of {self.synthetic_auc:.3f} from "
                f"synthetic records, and of {self.auc:.3f} from the simulated ones themselves."
            )
        return "\n".join(lines)


def simulate_utility(
    release: QueryRelease, *, target: str | None = None, simulations: int = 3, seconds: float = 60.0
) -> Utility:
    """Estimate the errors of a fitted release and of its synthetic records, at no privacy cost.

    `target` is a column of a workload of marginals that a classifier will predict; by default that of the release. No
    simulation begins after this many `seconds`.

    >>> from quorate.release import Workload
    >>> census = {"sex": ["f", "m"] * 3000, "job": ["yes", "yes", "no"] * 2000}
    >>> columns = {"sex": ["f", "m"], "job": ["yes", "no"]}
    >>> release = QueryRelease(Workload.marginals(2), columns=columns).fit(census)
    >>> simulate_utility(release, simulations=1).mean_error < 0.02
    True
    """
    target = release.target if target is None else target
    domain, index = release.domain_, None if target is None else _target_index(release.domain_, target)
    queries, rows = domain.queries, min(release.records_, _MOST_ROWS)
    if queries.count > MOST_LISTED:
        raise InvalidInput(f"{queries.count} queries are more than the {MOST_LISTED} whose errors are simulated")
    check_positive("seconds", seconds)
    began, simulated = time.perf_counter(), list[tuple[float, ...]]()
    synthetic_pool = release.synthetic(2 * rows)
    for number in range(check_count("simulations", simulations)):
        if simulated and time.perf_counter() - began > seconds:
            break
        order = np.random.default_rng(number).permutation(2 * rows)
        records, test_records = _take_rows(synthetic_pool, order[:rows]), _take_rows(synthetic_pool, order[rows:])
        again = release_again(release, records)
        synthetic, truth = again.synthetic(rows), _shares(domain, records)
        answers = again.released_.some(queries, np.arange(queries.count))
        figures = [*_errors(domain, truth, answers), *_errors(domain, truth, _shares(domain, synthetic))]
        figures.append(_correlation_error(domain, records, synthetic))
        if index is not None:
            figures += [
                _auc(SyntheticClassifier(domain, index, learned), test_records) for learned in (records, synthetic)
            ]
        simulated.append(tuple(figures))
    mean, largest, synthetic_mean, synthetic_largest, *rest = np.mean(simulated, axis=0).tolist()
    correlation, *areas = rest
    auc, synthetic_auc = areas or (None, None)
    return Utility(
        len(simulated),
        rows,
        mean,
        largest,
        synthetic_mean,
        synthetic_largest,
        correlation_error=None if math.isnan(correlation) else correlation,
        target=target,
        auc=auc,
        synthetic_auc=synthetic_auc,
    )


def release_again(release: QueryRelease, records: Any, *, epsilon: float | None = None) -> QueryRelease:
    """Release other records with the settings of this release. No account is charged."""
    if release.update_ is not None:
        raise InvalidInput("an update of a growing release is not simulated: its noise is that of all updates")
    began, domain = time.perf_counter(), release.domain_
    loss: dict[str, Any] = {
        "epsilon": release.budget_.epsilon if epsilon is None else epsilon,
        "delta": release.budget_.delta,
    }
    alone = {"account": None, "records_per_person": 1, "engine": release.engine_}
    again = QueryRelease(**release.get_params(deep=False) | alone | loss)
    queries = weigh_queries(domain, again.error, again.error_weights, again.target)
    engine, public, budget = ENGINES[release.engine_], domain.public(), Budget(**loss, slack=0.0)
    sealed, count = domain.seal(records)
    expected = engine.expected_error(queries, records=count, public=public, **loss)
    released = release_counts(sealed, lambda counted: engine.run(queries, counted, public=public, budget=budget))
    again.keep_release(domain, released, count, expected, unit=RECORD)
    again.claim_part_, again.budget_ = budget_node(budget), budget
    again.seconds_ = time.perf_counter() - began
    return again


def _take_rows(records: Any, rows: Integers) -> Any:
    return take_arrow_rows(records, rows) if is_arrow(records) else records[rows]


def _target_index(domain: Domain, target: str) -> int:
    if not isinstance(domain, MarginalWorkload) or target not in domain.columns.names:
        raise InvalidInput(f"target must be a column of marginals that were released, not {target!r}")
    if len(domain.columns.names) == 1:
        raise InvalidInput(f"{target!r} is the only column that was released: there is none to predict it from")
    return domain.columns.names.index(target)


def _shares(domain: Domain, records: Any) -> Floats:
    """Return the true shares of simulated records, which are not private."""
    sealed, count = domain.seal(records)
    return sealed.put_to(lambda counted: np.asarray(domain.queries.answers(counted), dtype=np.float64)) / count


def _errors(domain: Domain, truth: Floats, answers: Floats) -> tuple[float, float]:
    """Return the mean error and the largest one."""
    off, queries = np.abs(answers - truth), domain.queries
    if not isinstance(queries, Marginals):
        return float(off.mean()), float(off.max())
    return float(off.sum()) / (2 * len(queries.cliques)), float(off.max())


def _correlation_error(domain: Domain, records: Any, synthetic: Any) -> float:
    """Return the largest difference of a rank correlation of two numbers, NaN where there are no two."""
    if not isinstance(domain, MarginalWorkload) or domain.order < 2:
        return math.nan
    numbers = [index for index, cells in enumerate(domain.columns.cells.values()) if isinstance(cells, NumberCells)]
    if len(numbers) < 2:
        return math.nan
    real, made_up = (_rank_correlations(domain.encode(table).codes[:, numbers]) for table in (records, synthetic))
    return float(np.abs(real - made_up).max())


def _rank_correlations(codes: Integers) -> Floats:
    """Return the rank correlations of columns of codes, 0 for a column of one code."""
    ranks = stats.rankdata(codes, axis=0) - (len(codes) + 1) / 2.0
    ranks /= np.maximum(np.linalg.norm(ranks, axis=0), 1e-9)
    return np.asarray(ranks.T @ ranks)


class SyntheticClassifier:
    """A logistic regression of one column of marginals that learns from synthetic records alone.

    Its classes are all cells of that column, also those missing from the records. Rows are cells of the other columns,
    as `encode` returns them.
    """

    def __init__(self, domain: Domain, target: int, records: Any) -> None:
        from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  only where there is a target

        assert isinstance(domain, MarginalWorkload)
        self._columns, self._target = domain.columns, target
        cells = list(self._columns.cells.values())[target]
        self._names = np.array([cells.name(code) for code in range(cells.size)])
        self.classes_, self.n_features_in_ = np.unique(self._names), len(self._columns.names) - 1
        rows, labels = self.encode(records.slice(0, _MOST_LEARNED))
        self._alone = labels[0] if len(set(labels.tolist())) == 1 else None  # nothing to learn
        if self._alone is None:
            self._model = LogisticRegression(max_iter=_STEPS).fit(self._one_hot(rows), labels)

    def encode(self, table: Any) -> tuple[Floats, Any]:
        """Return the rows and the labels of a table. No value raises."""
        codes = self._columns.encode(table).codes
        return np.delete(codes, self._target, axis=1).astype(np.float64), self._names[codes[:, self._target]]

    def predict_proba(self, rows: Any) -> Floats:
        """Return the probability of each class, 0 for a class missing from the records."""
        classes = np.array([self._alone]) if self._alone is not None else self._model.classes_
        shares = np.zeros((len(rows), len(self.classes_)))
        probabilities = (
            np.ones((len(rows), 1)) if self._alone is not None else self._model.predict_proba(self._one_hot(rows))
        )
        shares[:, np.searchsorted(self.classes_, classes)] = probabilities
        return shares

    def predict(self, rows: Any) -> Any:
        """Return the class of each row."""
        return self.classes_[self.predict_proba(rows).argmax(axis=1)]

    def _one_hot(self, rows: Any) -> sparse.csr_array:
        return encode_one_hot(np.asarray(rows).astype(np.int64), np.delete(self._columns.sizes, self._target))


def learn_from(release: QueryRelease, target: str) -> SyntheticClassifier:
    """Fit a classifier of a column on synthetic records, for a private test of their utility."""
    rows = min(release.records_, _MOST_LEARNED)
    return SyntheticClassifier(release.domain_, _target_index(release.domain_, target), release.synthetic(rows))


def _auc(learned: SyntheticClassifier, test_records: Any) -> float:
    """Return the area under the curve on other records: of each class against the rest, weighted by its share."""
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415

    rows, labels = learned.encode(test_records.slice(0, _MOST_LEARNED))
    scores, areas, weights = learned.predict_proba(rows), list[float](), list[float]()
    for index, label in enumerate(learned.classes_):
        is_class = labels == label
        if is_class.any() and not is_class.all():
            areas.append(float(roc_auc_score(is_class, scores[:, index])))
            weights.append(float(is_class.mean()))
    return float(np.average(areas, weights=weights)) if areas else 0.5
