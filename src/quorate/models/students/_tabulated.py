"""From predictions to a hypothesis (Naor et al. 2023, appendix B): tabulate a predictor over a finite domain.

`ask_each_point` asks a predictor about every point of the domain once, in a random order: a hypothesis that is good
with constant probability. `TabulatedClassifier` does so with several predictors, each fitted on a sample of its own,
and takes the majority: good with high probability. So a predictor that learns nothing from its queries is no better
than a learner; and the answers of a predictor over a small domain can be published.

Claim: the fitted object has the guarantee of the predictor for one sample: every unit is in only one sample.
PROOF_CONCEPTS.md, steps 6 to 9, has the proof. The points of the domain are public.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from quorate.compute.ensemble import deal_units
from quorate.core.checks import check_count, check_rate
from quorate.core.errors import InvalidInput
from quorate.core.privacy.claims import LABELS_READ
from quorate.core.rows import take_rows
from quorate.models.predictors import PrivateClassifier
from quorate.models.predictors.base import QuorateClassifier
from quorate.models.predictors.labels import declared_classes
from quorate.models.predictors.records import check_matrix
from quorate.models.students.points import labels_of, random_points
from quorate.tables.containers import is_frame
from quorate.tables.persons import unit_numbers

NO_ANSWER = -1
_RUNS = 32  # times ln(1/beta); proof: step 8

Codes = NDArray[np.int64]


def ask_each_point(ask: Callable[[Any], Any], domain: Any, *, order: Codes | None = None) -> Codes:
    """Return what `ask`, which takes points and returns class numbers, says of each point, asked in a random order.

    The order matters: a predictor whose hypotheses change from query to query could otherwise be wrong on each just
    when it is asked. `order` may give another one.
    """
    if order is None:
        order = random_points(np.arange(len(domain)), len(domain))
    codes = np.empty(len(domain), dtype=np.int64)
    codes[order] = ask(take_rows(domain, order))  # proof: step 6
    return codes


def boosting_runs(*, beta: float) -> int:
    """Return how many runs on disjoint samples give a majority that is good with probability 1 - beta.

    If each run's predictor has error alpha with probability 7/8, the majority's is at most 40 alpha.
    """
    return max(1, math.ceil(_RUNS * math.log(1 / check_rate("beta", beta))))


def vote_table(answers: Codes, *, classes: int) -> Codes:
    """Return for each point the class that most runs gave it, the first of equals; runs that gave none do not count."""
    counts = (answers[:, :, np.newaxis] == np.arange(classes)).sum(axis=0)
    return np.asarray(counts.argmax(axis=1), dtype=np.int64)


@dataclass(eq=False, repr=False)
class TabulatedClassifier(QuorateClassifier):
    """A table of labels for a finite public domain, from private predictors on disjoint samples.

    Parameters
    ----------
    predictor
        Any private classifier of this package whose `predict` returns labels; a `PrivateClassifier` by default. Its
        number of queries is set.
    beta
        The probability that the table may be worse than it should be; it determines the number of runs.
    runs
        The number of runs, instead of `beta`.
    classes
        All possible labels.

    `table_` has one label for each row of `domain_`, `runs_` is the number of samples, and `claim_` the guarantee.
    `predict` looks points up and refuses those outside the domain.

    >>> X = np.random.default_rng(0).integers(0, 5, size=(4000, 1))
    >>> y = (X[:, 0] > 2).astype(int)
    >>> domain = np.arange(5).reshape(-1, 1)
    >>> predictor = PrivateClassifier(epsilon=2.0, teachers=50, aggregator="sharp_majority")
    >>> TabulatedClassifier(predictor, runs=3, classes=[0, 1]).fit(X, y, domain=domain).predict([[0], [4]])
    array([0, 1])
    """

    predictor: Any = None
    _: KW_ONLY
    beta: float = 0.05
    runs: int | None = None
    classes: Any = None

    def fit(self, X: Any, y: Any, groups: Any = None, domain: Any = None) -> "TabulatedClassifier":
        """Deal the units to samples, fit a predictor on each, ask each about the whole domain and take the majority."""
        if domain is None:
            raise InvalidInput("a finite domain is needed: fit(X, y, domain=...), all points there are")
        self._forget("table_", "domain_", "runs_", "claim_")
        X = check_matrix(self, X, reset=True, declared=is_frame(domain))
        points = np.unique(check_matrix(self, domain, reset=False), axis=0)
        self.classes_, labels = declared_classes(self.classes, y)
        runs = boosting_runs(beta=self.beta) if self.runs is None else check_count("runs", self.runs)
        check_consistent_length(X, labels)
        units, count = unit_numbers(len(X), groups)
        deal, _ = deal_units(units, count, teachers=runs)  # proof: step 9
        answers = np.empty((runs, len(points)), dtype=np.int64)
        for run, rows in enumerate(np.split(deal.rows, np.cumsum(deal.sizes)[:-1])):
            people = {} if groups is None else {"groups": labels_of(groups, rows)}
            predictor = self._predictor(queries=len(points)).fit(X[rows], labels_of(labels, rows), **people)
            if getattr(predictor, "budget_", predictor) is None:
                raise InvalidInput(
                    f"a table of answers needs a predictor with a budget for all of them, which "
                    f"{type(predictor).__name__} has not"
                )
            answers[run] = ask_each_point(partial(self._answers, predictor), points)
            self.claim_ = f"{predictor.claim_}; the points of the domain are public"
            if self.classes is None:
                self.claim_ += f"; {LABELS_READ}"
            del predictor
        self.table_ = self.classes_[vote_table(answers, classes=len(self.classes_))]
        self.domain_, self.runs_ = points, runs
        return self

    def _predictor(self, **settings: Any) -> Any:
        predictor = PrivateClassifier() if self.predictor is None else clone(self.predictor)
        if self.classes is not None or hasattr(self, "classes_"):
            settings["classes"] = getattr(self, "classes_", self.classes)
        return predictor.set_params(
            **{name: value for name, value in settings.items() if name in predictor.get_params()}
        )

    def _answers(self, predictor: Any, points: Any) -> Codes:
        number = {label: code for code, label in enumerate(self.classes_.tolist())}
        return np.array([number.get(label, NO_ANSWER) for label in predictor.predict(points).tolist()], dtype=np.int64)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the labels of these points, which must be in the domain. Nothing is spent."""
        check_is_fitted(self, "table_")
        rows = check_matrix(self, X, reset=False)
        positions = {point.tobytes(): position for position, point in enumerate(self.domain_ + 0.0)}
        row_places = [positions.get(row.tobytes()) for row in np.ascontiguousarray(rows) + 0.0]  # + 0.0: -0.0 is 0.0
        if any(position is None for position in row_places):
            raise InvalidInput("some points are not of the domain that was tabulated; fit with a domain that has them")
        labels: NDArray[Any] = self.table_[np.array(row_places, dtype=np.int64)]
        return labels
