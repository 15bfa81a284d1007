"""Private nearest neighbours. Every unit pays for its own votes from a budget of its own, and records come and go.

Claim: all that `predict` and `wear` ever return is (epsilon, delta)-differentially private under addition or removal of
one unit (a row, or all rows of one person), against adversaries who choose every query, insertion and deletion by what
they have seen; and (`terms_.replaced_epsilon()`, delta) under replacement. PROOF.md says why.
"""

from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from quorate.checks import check_count, check_delta, check_positive
from quorate.errors import InvalidInput
from quorate.mechanisms.noisy_vector.mechanism import largest_whole_epsilon
from quorate.neighbours.answerer import Nearby
from quorate.neighbours.choice import NeighbourPlan, plan_neighbours
from quorate.neighbours.kernel import Kernel, Shape
from quorate.neighbours.points import Metric, Space
from quorate.neighbours.session import NeighbourSession, Wear
from quorate.neighbours.terms import Terms
from quorate.neighbours.unit_file import UnitFile
from quorate.neighbours.units import Units
from quorate.predictors.base import SessionClassifier, check_choice, check_matrix, class_codes, declared_classes
from quorate.privacy import Budget
from quorate.privacy.claims import added_or_removed

__all__ = ["NeighbourClassifier"]

_TOP = 32  # the largest weight: weights are whole numbers


class NeighbourClassifier(SessionClassifier):
    """Answers by the votes of records near a query, weighed by how near they are, with noise on every class.

    A unit votes while its own budget pays for its own votes; then it no longer does, and nobody is told. So there is no
    limit to the number of `queries`: they are planned for, and accuracy, not privacy, suffers from more. `records` says
    about how many there will be, a public number. `radius` and `votes` (how many of full weight a unit may cast) are
    chosen on public rows where they are "auto". The metric is "cosine", for embeddings, or "euclidean".

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, size=20_000)
    >>> X = rng.normal(size=(20_000, 8)) + np.where(y, 2.0, -2.0)[:, np.newaxis]
    >>> model = NeighbourClassifier(epsilon=1.0, records=20_000, queries=100, classes=[0, 1])
    >>> model.fit(X[2000:], y[2000:], public=X[:2000]).score(X[:100], y[:100]) > 0.9
    True
    >>> model.forget(["17", "18"])
    >>> model.insert(X[:1], y[:1])
    ['18000']
    >>> model.claim_
    '(1, 1e-06)-differentially private under addition or removal of one row; (2.123, 1e-06) if it is replaced'
    """

    space_: Space
    terms_: Terms
    plan_: NeighbourPlan | None
    session_: NeighbourSession

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        queries: int = 1000,
        records: int | None = None,
        radius: float | Literal["auto"] = "auto",
        votes: float | Literal["auto"] = "auto",
        kernel: Shape = "linear",
        metric: Metric = "cosine",
        classes: Any = None,
    ) -> None:
        self.epsilon, self.delta, self.queries, self.records = epsilon, delta, queries, records
        self.radius, self.votes, self.kernel, self.metric, self.classes = radius, votes, kernel, metric, classes

    def fit(
        self, X: Any, y: Any, groups: Any = None, public: Any = None, *, public_labels: Any = None
    ) -> "NeighbourClassifier":
        """Plan by public rows, take in the records, and open the budget, all of which is charged at once.

        `groups` names the person of each row and makes the person the unit: it votes with its nearest record. Without,
        each row is a unit, named by its number. `public` rows are not private; their labels, if there are any, guide
        the choice of the radius. Neither is needed where `radius` and `votes` are set, for cosines.
        """
        return self._fit(X, y, self.classes, groups=groups, public=public, public_labels=public_labels)

    def _fit(
        self, X: Any, y: Any, classes: Any, *, groups: Any, public: Any, public_labels: Any
    ) -> "NeighbourClassifier":
        self.check_settings()
        self._forget("session_", "plan_")
        self.classes_, labels = declared_classes(classes, y)
        X = check_matrix(self, X, reset=True)
        check_consistent_length(X, labels)
        self.form_ = None
        known = None if public is None else check_matrix(self, public, reset=False)
        self.space_ = Space.of_public(self.metric, known, features=X.shape[1])
        radius, votes, self.plan_ = self._planned(known, public_labels)
        self.terms_ = Terms.calibrate(
            epsilon=float(self.epsilon), delta=float(self.delta), votes=votes, top=_TOP, classes=len(self.classes_)
        )
        self.kernel_ = Kernel.within(radius, self.space_, shape=self.kernel, top=_TOP)
        self.unit_ = "row" if groups is None else "person"
        self.epsilon_, self.delta_, self.declared_ = self.terms_.epsilon, self.terms_.delta, classes is not None
        self.open(Budget(epsilon=self.epsilon_, delta=self.delta_, slack=0.0))
        try:
            self.session_.insert(X, class_codes(self.classes_, labels), groups)
        except BaseException:
            del self.session_  # a model without records would answer, with noise alone
            raise
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, groups: Any = None, public: Any = None, *, public_labels: Any = None
    ) -> "NeighbourClassifier":
        """Insert records, and fit first where nothing was fitted before; `classes` declares all that may come."""
        if not hasattr(self, "session_"):
            declared = self.classes if classes is None else classes
            return self._fit(X, y, declared, groups=groups, public=public, public_labels=public_labels)
        self.insert(X, y, ids=groups)
        return self

    def insert(self, X: Any, y: Any, ids: Any = None) -> list[str]:
        """Take in more units at once, and return their names.

        `ids` names the unit of each row, as `groups` does: it is needed where the unit is a person. A unit that is
        there is not added to. One that was forgotten goes on with what it had spent: a record is a new unit only if it
        is of another person, and then has another name. Names are texts: 7, 7.0 and " 7 " are one.
        """
        check_is_fitted(self)
        rows = check_matrix(self, X, reset=False)
        labels = declared_classes(self.classes_, y)[1]
        check_consistent_length(rows, labels)
        return self.session_.insert(rows, class_codes(self.classes_, labels), ids)

    def forget(self, ids: Any) -> None:
        """Remove the records of these units at once. What they have told stays told, and nobody's budget comes back.

        A query that was answered before is answered as it was, now as after an insertion: an answer is drawn once.
        """
        check_is_fitted(self)
        self.session_.forget(np.asarray(ids, dtype=object).ravel().tolist())

    def forgotten(self) -> list[tuple[str, float]]:
        """Return which units were forgotten and when: for the owner alone."""
        check_is_fitted(self)
        return self.session_.forgotten()

    def wear(self) -> Wear:
        """Release an estimate of how many units are worn out: when to add records. The fit has paid for a few."""
        check_is_fitted(self)
        return self.session_.wear()

    @property
    def claim_(self) -> str:
        """The guarantee, in one sentence."""
        claim = self._claim(self.epsilon_, self.delta_)
        return str(added_or_removed(claim, replaced_epsilon=self.terms_.replaced_epsilon()))

    def check_settings(self) -> None:
        """Refuse settings that cannot be."""
        if check_positive("epsilon", self.epsilon) > largest_whole_epsilon():
            raise InvalidInput(f"epsilon must be at most {largest_whole_epsilon():g}, not {self.epsilon:g}")
        check_delta(self.delta, zero=False)
        check_count("queries", self.queries)
        check_choice("kernel", self.kernel, ("flat", "linear"))
        check_choice("metric", self.metric, ("cosine", "euclidean"))
        for name in ("radius", "votes"):
            if getattr(self, name) != "auto":
                check_positive(name, getattr(self, name))
        if self.records is not None:
            check_count("records", self.records)

    def checked(self, X: Any) -> Any:
        """Return queries as the records are, or say what is wrong with them. Nothing is asked."""
        check_is_fitted(self)
        return check_matrix(self, X, reset=False)

    def open(self, budget: Budget, *, ledger: Any = None, path: Any = None) -> None:
        """Open the session, with no units, or with those in the file at this path."""
        units = Units(
            self.kernel_,
            capacity=self.terms_.capacity,
            features=self.n_features_in_,
            classes=len(self.classes_),
            persons=self.unit_ == "person",
        )
        answerer = Nearby(self.space_, units, self.terms_)
        if path is not None:
            answerer.file = UnitFile(path, ledger)
            answerer.reports = answerer.file.read(units, features=self.n_features_in_)
        self.session_ = NeighbourSession(answerer, budget, ledger=ledger)

    def _planned(self, public: Any, labels: Any) -> tuple[float, float, NeighbourPlan | None]:
        """Return radius, votes and the plan that they follow, if there is one."""
        radius = None if self.radius == "auto" else float(self.radius)
        votes = None if self.votes == "auto" else float(self.votes)
        if radius is not None and votes is not None:
            return radius, votes, None
        if public is None or self.records is None:
            raise InvalidInput(
                "radius and votes are chosen on public rows for a public number of records: pass public= to fit and "
                "set records=, about how many there will be (not counted, if their number is secret); or set both"
            )
        planned = plan_neighbours(
            public,
            labels,
            records=self.records,
            queries=self.queries,
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            metric=self.metric,
            kernel=self.kernel,
            radius=radius,
            votes=votes,
            classes=len(self.classes_),
            top=_TOP,
        )
        return planned.radius, planned.votes, planned
