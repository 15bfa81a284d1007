"""Reweighting: everything is measured once, then public records are weighted until they agree with it.

After the measurement only noisy and public numbers are used, so that nothing more is paid: which public records count
how much, whether the public data are any good, and what is missing from them.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import ndtri

from quorate.arrays import Floats
from quorate.errors import InvalidInput
from quorate.privacy import Budget
from quorate.release.engines.entropy import fit_entropy
from quorate.release.engines.released import (
    Engine,
    Public,
    Released,
    check_private,
    expected_largest,
    histogram_scale,
    simplex_marginals,
)
from quorate.release.engines.residual import MeasuredMarginals, measure_marginals
from quorate.release.engines.strategy import plan_marginals
from quorate.release.queries import Marginals, Queries, Rows

__all__ = ["ReweightingEngine", "Verdict", "missing_mass", "posterior_errors", "repair_support", "reweight"]

_LADDER = 16  # halvings of the trust in the public data
_LARGE = 5.0  # deviations above which a cell is large: its noisy answer is more signal than noise
_HALF_STEP = math.sqrt(2.0)  # of the ladder: a mean square above it is nearer to the next strength than to this one
_STANDS_OUT = 1e-3  # of the test whether a single cell stands out: it repairs, or refutes, so that it may err less
_USELESS = 0.1  # share of the records outside the public support above which public data are not repaired
_DONORS = 24  # public records that lend their other columns to a missing cell
_MOST_CELLS = 300  # missing cells that are filled


@dataclass(frozen=True)
class Verdict:
    """What became of the public data: weights on the support, or a refutation where `weights` is None."""

    support: Rows | None
    weights: Floats | None
    strength: float
    repaired: int
    missing: float
    note: str


class ReweightingEngine(Engine):
    """Marginals measured as the residual engine does, and public records weighted to agree with them."""

    name = "reweighting"

    def _expected(self, queries: Queries, records: int, epsilon: float, delta: float, public: Public) -> float:
        """Return the expected largest error if public and private records come from one population."""
        if not isinstance(queries, Marginals) or not isinstance(public, Rows) or not public.weights.sum() > 0:
            return math.inf
        deviations = histogram_scale(epsilon, delta) * np.sqrt(plan_marginals(queries).variances) / records
        errors = np.repeat(deviations, np.diff(queries.offsets))
        amount = float(public.weights.sum())
        after = posterior_errors(queries.answers(public) / amount, errors, _trust(records, amount), amount)
        ordered = np.sort(after)[::-1]
        ranks = np.unique(np.geomspace(1, ordered.size, 60).astype(int))
        return max(expected_largest(float(ordered[rank - 1]), int(rank)) for rank in ranks)

    def _run(self, queries: Queries, data: Any, public: Public, budget: Budget, noise: Any) -> Released:
        if not isinstance(queries, Marginals):
            raise InvalidInput(f"reweighting answers Marginals, not {type(queries).__name__}")
        if not isinstance(public, Rows) or public.sizes != queries.sizes or not public.weights.sum() > 0:
            raise InvalidInput("reweighting takes public Rows over the columns of the marginals; use engine='residual'")
        private = check_private(queries, data)
        measured = measure_marginals(queries, private, budget, noise)
        return self._finish(queries, measured, reweight(queries, measured, public, private.records), public)

    def _finish(self, queries: Marginals, measured: MeasuredMarginals, verdict: Verdict, public: Rows) -> Released:
        if verdict.weights is None or verdict.support is None:
            answers, errors = simplex_marginals(queries, measured.answers), measured.errors
        else:
            answers = queries.answers(verdict.support.weighted(verdict.weights))
            errors = posterior_errors(answers, measured.errors, verdict.strength, float(public.weights.sum()))
        details = {
            "refuted": float(verdict.weights is None),
            "strength": verdict.strength,
            "repaired": float(verdict.repaired),
            "missing": verdict.missing,
        }
        support = verdict.support if verdict.weights is not None else None
        return Released(answers, errors, verdict.weights, support, measured.spent, self.name, (verdict.note,), details)


def posterior_errors(answers: Floats, errors: Floats, strength: float, amount: float) -> Floats:
    """Return one standard deviation where noise and a prior of this strength are weighed against each other."""
    share = np.clip(answers, 1.0 / (amount + 1), 1.0 - 1.0 / (amount + 1))
    prior = share * (1.0 - share) / strength
    return np.asarray(errors * np.sqrt(prior / (errors**2 + prior)))


def _trust(records: int, amount: float) -> float:
    """Return the strength that is right for a public sample of the private population.

    A share p differs between samples of n and of m records by a variance of p (1 - p) (1/n + 1/m), and the strength of
    the prior is p (1 - p) over that variance.
    """
    return records * amount / (records + amount)


def reweight(queries: Marginals, measured: MeasuredMarginals, public: Rows, records: int) -> Verdict:
    """Return weights on the public records that agree with what was measured, or refute the public data.

    The trust in the public data is halved until large cells lie as near to them as it foresees, and then until no large
    cell of the fit stands out from its noisy answer. Where cells stand out that no public record has, the support is
    repaired first.
    """
    amount = float(public.weights.sum())
    support = Rows(public.codes, public.sizes, public.weights / amount).merged()
    support = Rows(support.codes[support.weights > 0], support.sizes, support.weights[support.weights > 0])
    missing = missing_mass(queries, support, measured.answers, measured.errors)
    if missing > _USELESS:
        note = f"public data refuted: at least {missing:.0%} of the records lie outside of its support"
        return Verdict(None, None, 0.0, 0, missing, note)
    limit = _limit(queries.count)
    repaired_support, repaired = repair_support(queries, support, measured.answers, measured.errors, deviations=limit)
    if repaired:
        support = repaired_support
    strength, weights = _ladder(queries, measured, support, _trust(records, amount))
    if weights is None:
        note = "public data refuted: no weights on its records agree with the noisy answers"
        return Verdict(None, None, 0.0, repaired, missing, note)
    cells = "1 missing cell" if repaired == 1 else f"{repaired} missing cells"
    note = f"public data used with a strength of {strength:,.0f} records; {cells} repaired"
    return Verdict(support, weights, strength, repaired, missing, note)


def _ladder(
    queries: Marginals, measured: MeasuredMarginals, support: Rows, trust: float
) -> tuple[float, Floats | None]:
    """Return the largest strength whose fit agrees with the noisy answers, and the weights; None where none does."""
    design = _design(queries.sizes, measured, support)
    across = design.T.tocsr()
    sizes = [table.size for table in measured.tables]
    targets = np.concatenate(measured.tables)
    precisions = np.repeat(1.0 / np.array(measured.deviations) ** 2, sizes)
    # what is known exactly (a marginal of one cell) has no noise to be compared with
    large = (measured.errors > 0) & (measured.answers > _LARGE * measured.errors)
    shares = queries.answers(support)
    start: Floats | None = None
    for step in range(_LADDER):
        strength = trust / 2.0**step
        if not _foreseen(shares[large], measured.answers[large], measured.errors[large], strength):
            continue
        weights, start = fit_entropy(
            lambda values: design @ values,
            lambda values: across @ values,
            targets=targets,
            precisions=precisions,
            prior=support.weights,
            strength=strength,
            start=start,
        )
        differences = measured.answers - queries.answers(support.weighted(weights))
        residuals = differences[large] / measured.errors[large]
        if not residuals.size or bool(np.abs(residuals).max() <= _limit(residuals.size)):
            return strength, weights
    return 0.0, None


def _foreseen(shares: Floats, answers: Floats, errors: Floats, strength: float) -> bool:
    """Return whether noisy answers lie as near to the public shares as a prior of this strength foresees.

    A share p of the public records differs from the private one by a variance of p (1 - p) over the strength, and from
    the noisy one by that of the noise more.
    """
    if not shares.size:
        return True
    bounded = np.clip(shares, 1e-9, 1.0 - 1e-9)
    foreseen = errors**2 + bounded * (1.0 - bounded) / strength
    spread = 3.0 * math.sqrt(2.0 / shares.size)
    return bool(np.mean((answers - shares) ** 2 / foreseen) <= _HALF_STEP + spread)


def _limit(count: int) -> float:
    """Return what the largest of so many standardised errors hardly ever exceeds."""
    return -float(ndtri(_STANDS_OUT / (2 * count)))


def _design(sizes: tuple[int, ...], measured: MeasuredMarginals, support: Rows) -> sparse.csr_array:
    """Return the sparse matrix from weights on the support to the measured marginals."""
    starts = np.cumsum([0, *(table.size for table in measured.tables)])
    cells = [support.cell(clique) + start for clique, start in zip(measured.cliques, starts[:-1], strict=True)]
    columns = np.tile(np.arange(support.records), len(cells))
    return sparse.csr_array(
        (np.ones(columns.size), (np.concatenate(cells), columns)), shape=(int(starts[-1]), support.records)
    )


def missing_mass(queries: Marginals, support: Rows, answers: Floats, errors: Floats) -> float:
    """Return a lower bound (three deviations) on the largest share of records, over marginals, outside the support."""
    empty = queries.answers(support.weighted(np.ones(support.records))) == 0
    largest = 0.0
    for start, end in zip(queries.offsets[:-1], queries.offsets[1:], strict=True):
        outside = empty[start:end]
        deviation = float(np.sqrt((errors[start:end][outside] ** 2).sum()))
        largest = max(largest, float(answers[start:end][outside].sum()) - 3 * deviation)
    return largest


def repair_support(
    queries: Marginals, support: Rows, answers: Floats, errors: Floats, *, deviations: float
) -> tuple[Rows, int]:
    """Return the support with records added for missing cells whose answers stand out, and how many cells were filled.

    A missing cell's records are the public ones that agree with it in most columns, with the others overwritten. Their
    weight is what the noisy answer says and the records added before do not yet explain.
    """
    empty = queries.answers(support.weighted(np.ones(support.records))) == 0
    wanted = np.flatnonzero(empty & (answers > deviations * errors))
    wanted = wanted[np.argsort(-answers[wanted], kind="stable")][:_MOST_CELLS]
    codes, weights = support.codes, support.weights / support.weights.sum()
    added = np.zeros(len(codes), dtype=bool)
    filled = 0
    for query in wanted:
        clique, values = queries.find(int(query))
        columns = list(queries.cliques[clique])
        agreeing = (codes[:, columns] == values).sum(axis=1)
        gap = float(answers[query]) - float(weights[added & (agreeing == len(columns))].sum())
        if gap <= deviations * float(errors[query]):
            continue  # what was added for larger cells explains this one
        donors = np.lexsort((-weights, -(agreeing * (agreeing < len(columns)))))[:_DONORS]
        fresh = codes[donors].copy()
        fresh[:, columns] = values
        share = gap * weights[donors] / weights[donors].sum()
        codes, weights = np.concatenate([codes, fresh]), np.concatenate([weights, share])
        added = np.concatenate([added, np.ones(len(fresh), dtype=bool)])
        filled += 1
    extra = float(weights[added].sum())
    kept = max(1.0 - extra, 0.1)  # the public records keep at least a tenth of the weight
    whole = np.where(added, weights * (1 - kept) / max(extra, 1e-300), weights * kept)
    return Rows(codes, support.sizes, whole).merged(), filled
