"""Private nearest neighbours. Every unit pays for its own votes from a budget of its own, and records come and go.

Claim: all outputs of a model and of `wear` together are (epsilon, delta)-differentially private under addition or
removal of one unit (a row, or all rows of one person), against adversaries that choose every query, insertion and
deletion adaptively; and (`terms_.replaced_epsilon()`, delta) under replacement. The proof is in PROOF.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from quorate.compute.learners import DeviceName
from quorate.compute.learners.backends import choose_backend
from quorate.core.arrays import Floats
from quorate.core.checks import check_bounds, check_choice, check_count, check_delta, check_positive, check_rate
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms.noisy_vector import LARGEST_WHOLE_EPSILON
from quorate.core.privacy import Budget
from quorate.core.privacy.claims import Node, added_or_removed, neighbours_node
from quorate.models.knn._ballots import Ballot, Labels, Levels, Shares, Terms
from quorate.models.knn._choice import MOST, TOP, anchors_of, plan_for, rank_of
from quorate.models.knn._kernel import Kernel, Metric, Shape, Space
from quorate.models.knn._session import Nearby, NeighbourSession, Wear
from quorate.models.knn._unit_file import UnitFile
from quorate.models.knn._units import Units
from quorate.models.predictors.base import ScoredClassifier, Scoring, SessionModel
from quorate.models.predictors.labels import declared_classes, target_numbers
from quorate.models.predictors.records import check_matrix, unless_auto
from quorate.models.saving.contract import Outputs, Spending, State
from quorate.planner import Plan
from quorate.tables.containers import is_frame


@dataclass(eq=False, repr=False, kw_only=True)
class NeighbourModel(SessionModel, ABC):
    """A model in which the records near a query vote, each unit while its own budget pays for its own votes."""

    spending = Spending(one_process=True, hides_entries=True)
    own_files = ("units.sqlite",)
    saved_types = (Terms,)

    epsilon: float = 1.0
    delta: float = 1e-6
    queries: int = 1000
    records: int | None = None
    radius: float | None = None
    share: float | Literal["auto"] = "auto"
    votes: float | Literal["auto"] = "auto"
    kernel: Shape = "linear"
    metric: Metric = "cosine"
    device: DeviceName = "auto"

    def _fit_units(self, X: Any, y: Any, ballot: Ballot, *, groups: Any, public: Any, public_labels: Any) -> Self:
        """Plan by public rows and their labels, take in the records, and open the budget."""
        rows = check_matrix(self, X, reset=True, declared=is_frame(public))
        self.form_ = None
        public = None if public is None else check_matrix(self, public, reset=False, role="public")
        self.space_ = Space.of_public(self.metric, public, features=rows.shape[1])
        share, votes, self.plan_ = self._choose(public, public_labels, ballot)
        self.terms_ = Terms.calibrate(
            epsilon=float(self.epsilon), delta=float(self.delta), votes=votes, top=TOP, ballot=ballot
        )
        if self.radius is not None:
            self.kernel_ = Kernel.within(float(self.radius), self.space_, shape=self.kernel, top=TOP)
        else:
            assert public is not None
            anchors = anchors_of(public, self.space_)
            self.kernel_ = Kernel(shape=self.kernel, top=TOP, anchors=anchors, rank=rank_of(share, len(anchors)))
        self.unit_ = "row" if groups is None else "person"
        self.open(Budget(epsilon=self.terms_.epsilon, delta=self.terms_.delta, slack=0.0))
        try:
            self.session_.insert(rows, y, groups)
        except BaseException:
            del self.session_  # a model without records would answer, with noise alone
            raise
        return self

    def to_state(self) -> State:
        """Return settings, terms and kernel, and the public points; the session's own file has the units."""
        kernel, space = self.kernel_, self.space_
        values = {
            "metric": space.metric,
            "reach": space.reach,
            "kernel": {name: getattr(kernel, name) for name in ("shape", "top", "squared_radius", "rank")},
            "plan": None if self.plan_ is None else self.plan_.as_dict(),
        }
        anchors = np.empty((0, 0)) if kernel.anchors is None else kernel.anchors
        state = State({**self.fitted_values(), **values})
        state.put_arrays("space", centre=space.centre, anchors=anchors.astype(np.int16))
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the model of a state, with its units as they were. One process at a time may have it."""
        assert state.home is not None
        values, arrays = state.values, state.arrays("space")
        model = cls.from_fitted_values(values)
        model.space_ = Space(values["metric"], arrays["centre"], reach=values["reach"])
        anchors = arrays["anchors"].astype(np.float32) if len(arrays["anchors"]) else None
        model.kernel_ = Kernel(**values["kernel"], anchors=anchors)
        model.plan_ = None if values["plan"] is None else Plan.from_dict(values["plan"])
        ledger = state.home.ledger
        model.open(ledger.budget(lease=state.home.lease), ledger=ledger, path=state.home.path / cls.own_files[0])
        return model

    def keep_files(self, session: Any, path: Path) -> None:
        """Write the units and what each has spent, in a file that the session keeps up to date."""
        session.keep_in(path / self.own_files[0])

    @abstractmethod
    def ballot(self) -> Ballot:
        """Return the kind of vote of the fitted model, and how answers are read."""

    def open(self, budget: Budget, *, ledger: Any = None, path: Any = None) -> None:
        """Open the session, with no units, or with those in the file at this path."""
        ballot, self.epsilon_, self.delta_ = self.ballot(), self.terms_.epsilon, self.terms_.delta
        units = Units(
            self.kernel_,
            capacity=self.terms_.capacity,
            features=self.n_features_in_,
            table=ballot.counting_table,
            persons=self.unit_ == "person",
            device=self.device,
        )
        answerer = Nearby(self.space_, units, self.terms_, ballot)
        if path is not None:
            answerer.file = UnitFile(path, ledger)
            answerer.reports = answerer.file.read(units, features=self.n_features_in_)
        self.session_: NeighbourSession = NeighbourSession(answerer, budget, ledger=ledger)

    def insert(self, X: Any, y: Any, ids: Any = None) -> list[str]:
        """Insert more units, with immediate effect, and return their names.

        `ids` names the unit of each row, as `groups` does: it is needed if the unit is a person. A unit that is already
        there is not changed: all others are inserted, and then `InvalidInput` is raised. A unit that was forgotten
        continues with what it had spent: a record is a new unit only if it belongs to another person, who then has
        another name. 7, 7.0, "7.0" and " 007 " are one name. Rows without `ids` are named by new numbers.
        """
        check_is_fitted(self)
        return self.session_.insert(check_matrix(self, X, reset=False, role="private"), y, ids)

    def forget(self, ids: Any) -> int:
        """Remove the records of these units, with immediate effect, and return the number of units.

        What their votes revealed cannot be undone, and no budget is refunded.

        If some are not there, all others are forgotten, and then `InvalidInput` is raised. A query that was answered
        before keeps its answer, as it does after an insertion: an answer is drawn once.
        """
        check_is_fitted(self)
        listed = isinstance(ids, list | tuple)  # as it is: a pair in it is no two names
        names = ids if listed else np.asarray(ids, dtype=None if hasattr(ids, "dtype") else object)
        if not listed and names.ndim > 1 and names.size > len(names):
            raise InvalidInput("ids is one list of names, and not a table of several columns")
        return self.session_.forget(list(names if listed else names.ravel()))

    def forgotten(self) -> list[tuple[str, float]]:
        """Return which units were forgotten and when, only for the owner."""
        check_is_fitted(self)
        return self.session_.deletions()

    def wear(self) -> Wear:
        """Release a noisy estimate of how many units are worn out. The fit has paid for a few estimates.

        It shows when to add records.
        """
        check_is_fitted(self)
        return self.session_.wear()

    @property
    def claim_(self) -> str:
        """The guarantee, in one sentence."""
        claim = self._claim(self.epsilon_, self.delta_)
        return str(added_or_removed(claim, replaced_epsilon=self.terms_.replaced_epsilon()))

    def claim_part(self) -> Node:
        """Return the noise on all votes, and what each unit may spend on its own, all of which the ledger charged."""
        terms = self.terms_
        budget = Budget(epsilon=terms.epsilon, delta=terms.delta, slack=0.0)
        return neighbours_node(terms.epsilon, terms.delta, terms, capacity=budget.quanta())

    def other_claims(self) -> Mapping[str, Node]:
        """Return the claim for a unit that is replaced."""
        replaced = neighbours_node(self.terms_.replaced_epsilon(), self.terms_.delta, self.terms_, capacity=None)
        return {f"{self.unit_} that is replaced": replaced}

    def check_settings(self) -> None:
        """Refuse invalid settings."""
        if check_positive("epsilon", self.epsilon) > LARGEST_WHOLE_EPSILON:
            raise InvalidInput(f"epsilon must be at most {LARGEST_WHOLE_EPSILON:g}, not {self.epsilon:g}")
        check_delta(self.delta, zero=False)
        check_count("queries", self.queries, most=MOST)
        check_choice("kernel", self.kernel, ("flat", "linear"))
        check_choice("metric", self.metric, ("cosine", "euclidean"))
        choose_backend(self.device)
        if self.radius is not None:
            check_positive("radius", self.radius)
        if self.share != "auto":
            check_rate("share", self.share)
        if self.votes != "auto":
            check_positive("votes", self.votes)
        if self.records is not None:
            check_count("records", self.records, most=MOST)

    def check_queries(self, X: Any) -> Any:
        """Return queries in the form of the records, or say what is wrong with them. Nothing is asked."""
        check_is_fitted(self)
        return check_matrix(self, X, reset=False)

    def _choose(self, public: Any, labels: Any, ballot: Ballot) -> tuple[float, float, Plan | None]:
        """Return share, votes and the plan that they follow, if there is one."""
        share, votes = unless_auto(self.share), unless_auto(self.votes)
        if votes is not None and (self.radius is not None or (share is not None and public is not None)):
            return share or 0.0, votes, None
        if public is None or self.records is None:
            raise InvalidInput(
                "share and votes are chosen on public rows for a public number of records: pass public= (--public) to "
                "fit and set records= (--records), about how many there will be (not counted, if their number is "
                "secret); or set radius= and votes= (--radius, --votes)"
            )
        planned = plan_for(
            ballot,
            public,
            labels,
            space=self.space_,
            numbers={name: getattr(self, name) for name in ("records", "queries", "epsilon", "delta")},
            kernel=self.kernel,
            radius=self.radius,
            share=share,
            votes=votes,
        )
        return planned.share or 0.0, planned.votes, planned


@dataclass(eq=False, repr=False, kw_only=True)
class NeighbourClassifier(NeighbourModel, ScoredClassifier):
    """A classifier by noisy votes of the records near a query, weighted by their distance.

    A unit votes while its own budget pays for its own votes; then it stops, and nobody is told. So the number of
    queries is not limited.

    Parameters
    ----------
    epsilon, delta
        The privacy loss allowed, if one unit is added or removed.
    queries
        The number of queries to plan for. More can be asked: accuracy then suffers, not privacy.
    records
        About how many records (or people) there will be: a public number. It sets share and votes.
    radius
        How near a record must be to vote; by default set by the share of the public rows.
    share
        A query reaches as far as this share of the public rows.
    votes
        How many votes of full weight a unit may cast in total.
    kernel
        Whether weights fall with the squared distance, or are all equal within the radius.
    metric
        Whether distances are between directions ("cosine", for embeddings) or between rows ("euclidean"). The second
        needs public rows.
    scores
        Also give the noisy share of votes for each class: free for three classes and more, and for two with an eighth
        more noise.
    classes
        All labels that may occur. If not declared, the labels of `y` are used and become public.
    device
        Where votes are counted: "cpu", "cuda" for a GPU, or "auto", a GPU if there is one. They are the same on every
        device. The device is not saved.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, size=20_000)
    >>> X = rng.normal(size=(20_000, 8)) + np.where(y, 2.0, -2.0)[:, np.newaxis]
    >>> model = NeighbourClassifier(epsilon=1.0, records=20_000, queries=100, classes=[0, 1])
    >>> model.fit(X[2000:], y[2000:], public=X[:2000]).score(X[:100], y[:100]) > 0.9
    True
    >>> model.forget(["17", "18"])
    2
    >>> model.insert(X[:1], y[:1])
    ['18000']
    >>> model.claim_
    '(1, 1e-06)-differentially private under addition or removal of one row; (2.123, 1e-06) if it is replaced'
    """

    kind = "neighbours"
    saved_attributes = ("terms_", "scores_")

    classes: Any = None
    scores: bool = False

    def fit(
        self, X: Any, y: Any, groups: Any = None, public: Any = None, *, public_labels: Any = None
    ) -> "NeighbourClassifier":
        """Plan on public rows, insert the records, and open the budget, all of which is charged at once.

        `groups` names the person of each row and makes the person the unit: it votes with its nearest record. Without
        it, each row is a unit, named by its number. `public` rows are not private; their labels, if any, guide the
        choice of the share. Neither is needed if `radius` and `votes` are set, for cosines.
        """
        self.check_settings()
        self._forget()
        self.classes_, labels = declared_classes(self.classes, y)
        self.declared_, self.scores_ = self.classes is not None, bool(self.scores)
        return self._fit_units(X, labels, self.ballot(), groups=groups, public=public, public_labels=public_labels)

    @property
    def outputs(self) -> Outputs:
        """What an answer is: a label, with noisy shares of the vote if the model was fitted for them."""
        return "vote shares" if self.scores_ else "labels"

    def ballot(self) -> Labels:
        """Return the kind of vote: for a class, perhaps with shares."""
        return Shares(self.classes_) if self.scores_ else Labels(self.classes_)

    def gives_scores(self) -> bool:
        """Return whether noisy shares of the votes are returned beside labels."""
        return bool(self.scores)

    def scoring(self) -> Scoring:
        """Return how shares become labels."""
        check_is_fitted(self)
        ballot = self.session_.answerer.ballot
        if not isinstance(ballot, Shares):
            raise InvalidInput("this model was fitted for labels; set scores=True and fit it again")
        return Scoring(ballot)


@dataclass(eq=False, repr=False, kw_only=True)
class NeighbourRegressor(RegressorMixin, NeighbourModel):
    """A regressor by the noisy mean target of the records near a query, weighted by their distance.

    The mean comes from two noisy sums. A target far from the centre moves the answer more, and its unit pays more. The
    centre is the mean of public targets, or the middle of the bounds; if few records are near, the answer is close to
    it. The other parameters are those of `NeighbourClassifier`.

    Parameters
    ----------
    bounds
        The lowest and the highest target: values beyond them are clipped. Declare them; they must not be read from the
        private records.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 2))
    >>> y = 100 * np.sin(3 * X[:, 0]) + rng.normal(size=20_000)
    >>> model = NeighbourRegressor(epsilon=1.0, records=19_000, queries=100, metric="euclidean", bounds=(-110, 110))
    >>> model.fit(X[1000:], y[1000:], public=X[:1000], public_targets=y[:1000]).score(X[:100], y[:100]) > 0.9
    True
    """

    kind = "neighbours"
    outputs = "noisy values"
    saved_attributes = ("terms_", "bounds_", "centre_", "declared_")

    bounds: tuple[float, float] = (0.0, 1.0)

    def fit(
        self, X: Any, y: Any, groups: Any = None, public: Any = None, *, public_targets: Any = None
    ) -> "NeighbourRegressor":
        """Plan on public rows, insert the records, and open the budget, all of which is charged at once.

        The arguments are those of `NeighbourClassifier`; targets of public rows determine the centre and guide the
        choice of the share.
        """
        self.check_settings()
        self._forget()
        self.bounds_ = low, high = check_bounds(self.bounds)
        targets = None if public_targets is None else np.clip(np.nan_to_num(target_numbers(public_targets)), low, high)
        self.centre_ = (low + high) / 2 if targets is None else float(targets.mean())
        self.declared_ = True
        return self._fit_units(X, y, self.ballot(), groups=groups, public=public, public_labels=targets)

    def ballot(self) -> Levels:
        """Return the kind of vote: for the level of a target."""
        low, high = self.bounds_  # of the fit: what is set later does not change what levels stand for
        return Levels(low=low, high=high, centre=self.centre_)

    def predict(self, X: Any, caller: str = "") -> Floats:
        """Return the noisy mean of targets near each query, within the bounds.

        A query that this `caller` asked before gets the same answer again.
        """
        return self.read(self._ask_session(X, caller)[1].labels)

    def read(self, answers: Any) -> Floats:
        """Return the values that answers of the session stand for."""
        ballot = self.session_.answerer.ballot
        assert isinstance(ballot, Levels)
        return ballot.values(answers)
