"""Everlasting prediction: an endless stream of answers that protects the records and every query.

Claim: all outputs of `predict` and `stream` together are differentially private under replacement of one training unit,
with `terms_.training`; and all outputs except the answer to one query are differentially private under replacement of
that query, with `terms_.queries`. Both hold against adversaries that choose every query adaptively. The proof is in
PROOF.md. Naor, Nissim, Stemmer and Yan (2023) showed that this is possible.
"""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from quorate.compute.ensemble import deal_units, secret_subset
from quorate.compute.learners import DeviceName
from quorate.compute.learners.backends import choose_backend
from quorate.core.arrays import Integers
from quorate.core.checks import check_choice, check_count, check_delta, check_positive, check_rate
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms import NO_QUORUM, NoisyCutoff, Quorum
from quorate.core.privacy.claims import (
    LABELS_READ,
    Claim,
    Node,
    account_node,
    boost_node,
    cutoff_node,
    replaced,
    restate_claim,
    sum_node,
)
from quorate.core.requests import REFUSED
from quorate.models.concepts import Concept
from quorate.models.everlasting._arrivals import Arrivals
from quorate.models.everlasting._phase_folder import EverlastingSession, PhaseFolder
from quorate.models.everlasting._teaching import TRUSTED, check_chunks, ensemble_files
from quorate.models.everlasting._terms import Boost, Guarantee, Refresh, Terms, boost_terms, votes_terms
from quorate.models.predictors.base import AnsweringClassifier
from quorate.models.predictors.labels import class_codes, declared_classes
from quorate.models.predictors.records import (
    Predictions,
    allows_missing,
    check_auto_counts,
    check_jobs,
    check_records,
    fill_missing,
)
from quorate.models.saving.contract import Spending, State
from quorate.models.saving.folder import PrivateFolder
from quorate.tables.persons import unit_numbers

_NO_QUORUM_RATE = 0.02  # the share of a phase's arrivals that may find no quorum, unless given


@dataclass(eq=False, repr=False)
class EverlastingClassifier(AnsweringClassifier):
    """A classifier that answers without end: protected queries train the teachers of later queries.

    Parameters
    ----------
    estimator
        Any scikit-learn classifier, or a class of `quorate.models.concepts` (two classes; "labelboost" needs one).
        `LogisticRegression()` by default. Thresholds, stumps and linear models are fitted and counted in batches.
    epsilon, delta
        The guarantee for one training unit: a row, or a person if `groups` are given.
    query_epsilon, query_delta
        The guarantee for one query or, with a pool, for one point of it; by default that of a training unit.
    chunk
        The number of units, or later of seats, of each teacher. Many small teachers are often best.
    no_quorums
        How many arrivals of a phase may find no quorum, the cutoff's headroom not counted; 2% of them by default.
    phase_size
        The number of arrivals in the first phase; by default `growth` times the number of units.
    growth, max_phase_size
        The ratio of the number of arrivals of each phase to that of the one before, and the largest number ("votes"
        only). The number of teachers stays the same, and each gets more rows: later phases err less, and the decision
        boundary settles.
    relabel
        "votes": a point teaches with the label that was released for it, or not at all. "labelboost": all points teach
        with the labels of a hypothesis that the earlier labelled set chooses (Beimel, Nissim and Stemmer).
    refresh
        "queries": queries teach. "pool": only points given to `feed`, which the owner trusts, teach.
    cutoff_epsilon
        The part of a query's epsilon that hides the query's own outcome; chosen by default.
    classes
        All labels that may occur. If not declared, the labels of `y` are used and become public.
    kappa, labelled
        For "labelboost": the parameter of the choice, and the share of the labelled set that makes it.
    n_jobs, backend
        As for `PrivateClassifier`.
    device
        As for `PrivateClassifier`: "auto", "cpu" or "cuda".

    >>> from quorate.models.concepts import Thresholds
    >>> X = np.random.default_rng(0).normal(size=(20_000, 1))
    >>> classifier = EverlastingClassifier(Thresholds(), epsilon=8.0, delta=1e-5, chunk=5, no_quorums=60)
    >>> answers = classifier.fit(X, (X[:, 0] > 0).astype(int)).predict([[2.0], [-2.0]])
    >>> answers.labels, classifier.phase_, classifier.seats_taken_
    (array([1, 0]), 1, 2)
    """

    estimator: Any = None
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-6
    query_epsilon: float | None = None
    query_delta: float | None = None
    chunk: int = 10
    no_quorums: int | Literal["auto"] = "auto"
    phase_size: int | Literal["auto"] = "auto"
    growth: float = 1.0
    max_phase_size: int | None = None
    relabel: Literal["votes", "labelboost"] = "votes"
    refresh: Refresh = "queries"
    cutoff_epsilon: float | None = None
    classes: Any = None
    kappa: float = 1.0
    labelled: float = 0.05
    n_jobs: int | None = None
    backend: str | None = None
    device: DeviceName = "auto"

    kind = "everlasting"
    spending = Spending(one_process=True)
    own_files = ("phase", "probe.npz")
    safe_types = TRUSTED
    saved_attributes = ("teachers_", "terms_")
    saved_types = (Terms, Guarantee, Boost, NoisyCutoff, Quorum)

    def fit(self, X: Any, y: Any, groups: Any = None, probe: Any = None) -> "EverlastingClassifier":
        """Calibrate, deal the units and train the first teachers.

        Fitting again opens new budgets: both are paid. `probe` holds public points, which are asked when a phase opens:
        their answers are public, and show the drift.
        """
        self._check_settings()
        self._forget()
        # What is set later changes nothing of this fit; proof: step 1
        self.settings_ = self.get_params(deep=False)
        self.account_: Guarantee | None = None
        estimator = self._estimator()
        is_concept = isinstance(estimator, Concept)
        self.estimator_ = estimator.for_learning() if is_concept else clone(estimator, safe=False)
        X = self._records(X, reset=True)
        X = fill_missing(X) if is_concept else X
        public = None if probe is None else self._records(probe, reset=False)
        self.classes_, labels = declared_classes(self.classes, y)
        if is_concept and len(self.classes_) > 2:
            raise InvalidInput(f"a class of hypotheses tells two classes apart, not {len(self.classes_)}")
        check_consistent_length(X, labels)
        codes = class_codes(self.classes_, labels)
        codes = np.maximum(codes, 0) if is_concept else codes  # a hypothesis counts every row
        units, count = unit_numbers(len(codes), groups)
        self.unit_, self.declared_ = "row" if groups is None else "person", self.classes is not None
        if self.relabel == "labelboost":
            arrivals = self._boost(X, codes, count, public)
        else:
            arrivals = self._vote(X, codes, units, count, public)
        self.terms_, self.teachers_ = arrivals.terms, arrivals.ensemble.teachers
        self.session_: EverlastingSession = EverlastingSession(arrivals)
        return self

    def _check_settings(self) -> None:
        """Refuse settings that no records could make work."""
        for name in ("epsilon", "query_epsilon", "cutoff_epsilon"):
            if getattr(self, name) is not None or name == "epsilon":
                check_positive(name, getattr(self, name))
        for delta in (self.delta, self.delta if self.query_delta is None else self.query_delta):
            check_delta(delta, zero=False)
        check_choice("relabel", self.relabel, ("votes", "labelboost"))
        check_choice("refresh", self.refresh, ("queries", "pool"))
        if check_positive("growth", self.growth) < 1:
            raise InvalidInput(f"growth must be at least 1, not {self.growth!r}")
        if self.max_phase_size is not None:
            check_count("max_phase_size", self.max_phase_size)
        choose_backend(self.device)
        check_positive("kappa", self.kappa)
        check_rate("labelled", self.labelled)
        check_auto_counts(self, "no_quorums", "phase_size")
        check_jobs(self.n_jobs)
        estimator = self._estimator()
        if not isinstance(estimator, Concept) and not (hasattr(estimator, "fit") and is_classifier(estimator)):
            kind = repr(estimator) if isinstance(estimator, str) else type(estimator).__name__
            raise InvalidInput(f"estimator must be a classifier or a class of quorate.models.concepts, not {kind}")

    def _estimator(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def check_movable(self) -> None:
        """Refuse a model that cannot continue from a folder: not fitted, saved before, or fitted on a data frame."""
        check_is_fitted(self)
        self.session_.check_unkept()
        if self.form_ is not None:
            raise InvalidInput("an everlasting model keeps points as numbers: encode the data frame before fitting")

    def to_state(self, account: Guarantee | None = None) -> State:
        """Return settings and terms, the estimator and the probe; the session's own files have the phase.

        With an `account` larger than the cost of phase 1, that phase can be opened again, and paid for again, if its
        state is ever lost: the claim is then the account's.
        """
        self._saved_budget = self.terms_.account_budget(account)  # which refuses an account that cannot pay
        state = State({**self.fitted_values(), "account": account})
        state.put_estimator("estimator", self.estimator_)
        if (probe := self.session_.answerer.probe) is not None:
            state.put_arrays("probe", points=np.asarray(probe, dtype=np.float64))
        state.later_files = ensemble_files(self.session_.answerer.phase.ensemble)
        return state

    @classmethod
    def phase_no_quorums(cls, values: Mapping[str, Any]) -> int | None:
        """Return after how many no-quorums a phase may close."""
        return int(values["terms"]["cutoff"]["allowed"])

    def claim_part(self) -> Node:
        """Return the account of a training unit, which is charged for all of phase 1."""
        terms, answers = self.terms_, account_node(self._saved_budget, [self.terms_.first], ledger=True)
        if terms.boost is None:
            return answers
        return boost_node(*terms.training, terms.boost._asdict(), answers, of="records")

    def other_claims(self) -> Mapping[str, Node]:
        """Return what a query pays, and a point of the pool: the cutoff, and the run of the phase that it teaches."""
        terms, cutoff = self.terms_, self.terms_.cutoff
        hidden = cutoff_node(cutoff.epsilon, cutoff.delta, cutoff)
        if terms.boost is None:
            paid = {"phase": cutoff.cost()}
            teaching = account_node(terms.budget(2), [(cutoff, paid), terms.later], ledger=False)
        else:
            answers = account_node(terms.budget(2), [terms.later], ledger=False)
            teaching = boost_node(*terms.point, terms.boost._asdict(), answers, of="points")
            teaching = teaching if terms.pool else restate_claim(sum_node(hidden, teaching), *terms.queries)
        return {"query": hidden, "point of the pool": teaching} if terms.pool else {"query": teaching}

    def move_to(self, folder: PrivateFolder) -> None:
        """Continue from a new folder: same phase, same seats, same noise. All of phase 1 is charged at once."""
        account = folder.manifest["account"]
        ledger = folder.create_ledger(self.terms_.account_budget(account))
        self.session_.keep_in(folder.path, ledger, features=self.n_features_in_)
        self.account_ = account

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the classifier of a state, in its phase. Only one process at a time may use it."""
        model, phases = cls._open_phases(state)
        try:
            phases.restore()
        except BaseException:
            phases.close()
            raise
        return model

    @classmethod
    def reopen_phase(cls, state: State) -> None:
        """Open phase 1 again after its state was lost, and pay for all of it again."""
        _, phases = cls._open_phases(state)
        try:
            phases.reopen()
        finally:
            phases.close()

    @classmethod
    def _open_phases(cls, state: State) -> tuple[Self, PhaseFolder]:
        """Return the model of a state and its phases, before they are read."""
        assert state.home is not None
        values, home, estimator = state.values, state.home, state.estimator("estimator")
        model = cls.from_fitted_values(values, estimator=estimator)
        model.settings_ = values["settings"] | {"estimator": estimator, "classes": model.classes}
        model.estimator_ = clone(estimator, safe=False)
        model.account_ = None if values["account"] is None else Guarantee(*values["account"])
        arrivals = model.open_arrivals(model.terms_, state.arrays("probe")["points"] if "probe.npz" in state else None)
        phases = PhaseFolder(arrivals, home.path, home.ledger, features=model.n_features_in_, trusted=home.trusted)
        model.session_ = EverlastingSession(arrivals, phases)
        return model, phases

    def _vote(self, X: Any, codes: Integers, units: Integers, count: int, probe: Any) -> Arrivals:
        settings = self.settings_
        teachers = count // check_count("chunk", settings["chunk"])
        if teachers < 1:
            raise Infeasible(f"{count} units are too few for a teacher of chunk={settings['chunk']}")
        size = settings["phase_size"]
        size = math.ceil(settings["growth"] * count) if size == "auto" else check_count("phase_size", size)
        if size < teachers:
            raise Infeasible(f"phase_size={size} is too small for {teachers} teachers: each needs at least one seat")
        check_chunks(settings, self.estimator_, teachers=teachers, size=size)
        no_quorums = math.ceil(_NO_QUORUM_RATE * size) if settings["no_quorums"] == "auto" else settings["no_quorums"]
        terms = votes_terms(teachers=teachers, arrivals=size, no_quorums=no_quorums, **self._guarantees())
        deal, _ = deal_units(units, count, teachers=teachers)  # proof: step 2
        arrivals = self.open_arrivals(terms, probe)
        arrivals.teach(1, X, codes, deal, units=count, size=size)
        return arrivals

    def _boost(self, X: Any, codes: Integers, count: int, probe: Any) -> Arrivals:
        settings, concept = self.settings_, self.estimator_
        if not isinstance(concept, Concept):
            raise InvalidInput(
                "relabel='labelboost' chooses a hypothesis: estimator must be of quorate.models.concepts"
            )
        if self.unit_ != "row" or settings["growth"] != 1 or settings["phase_size"] != "auto":
            raise InvalidInput("relabel='labelboost' takes rows as units, growth=1 and phase_size='auto'")
        chunk, allowed = check_count("chunk", settings["chunk"]), settings["no_quorums"]
        terms, teachers, size = boost_terms(
            rows=count,
            chunk=chunk,
            no_quorum_rate=min(
                1.0, _NO_QUORUM_RATE if allowed == "auto" else check_count("no_quorums", allowed) / count
            ),
            kappa=settings["kappa"],
            labelled=settings["labelled"],
            **self._guarantees(),
        )
        assert terms.boost is not None
        sample = max(1, round(terms.boost.labelled * teachers * chunk))
        concept.check_size(teachers * chunk + sample)  # at the end of a phase it would be too late
        rows = secret_subset(count, teachers * chunk)  # proof: step 9
        arrivals = self.open_arrivals(terms, probe)
        arrivals.boost(1, X[rows], codes[rows], size=size)
        return arrivals

    def open_arrivals(self, terms: Terms, probe: Any) -> Arrivals:
        """Return the state of a stream that begins, by the settings of the fit."""
        classes = len(self.classes_)
        return Arrivals(terms, self.estimator_, classes=classes, settings=self.settings_, probe=probe)

    def _guarantees(self) -> dict[str, Any]:
        """Return the guarantees of a training unit and of a query, and who teaches."""
        settings = self.settings_
        training, query = ([settings[f"{prefix}{name}"] for name in ("epsilon", "delta")] for prefix in ("", "query_"))
        queries = [default if value is None else value for default, value in zip(training, query, strict=True)]
        shared = {name: settings[name] for name in ("refresh", "cutoff_epsilon")}
        return {"training": Guarantee(*training), "queries": Guarantee(*queries), **shared}

    def _records(self, X: Any, *, reset: bool) -> Any:
        points = check_records(self, X, estimator=self.estimator_, reset=reset)
        if isinstance(self.estimator_, Concept) and points.shape[1] != self.estimator_.features:
            raise InvalidInput(f"the concept reads {self.estimator_.features} features and X has {points.shape[1]}")
        return points

    # --- Public state: none of it depends on the number of no-quorums (PROOF.md, steps 14 and 23) --------------------

    @property
    def phase_(self) -> int:
        """The number of the phase, from 1."""
        return self.session_.answerer.number

    @property
    def seats_taken_(self) -> int:
        """The number of arrivals in this phase."""
        return self.session_.answerer.seats.arrivals

    @property
    def progress_(self) -> dict[str, Any]:
        """How far the phase has come, and the drift."""
        return self.session_.answerer.progress

    @property
    def claim_(self) -> str:
        """The guarantees, in one sentence each."""
        training, queries, pool = self.account_ or self.terms_.training, self.terms_.queries, self.terms_.pool
        claims = [
            Claim(training.epsilon, training.delta, unit=replaced(self.unit_), what="all answers are"),
            Claim(queries.epsilon, queries.delta, unit="one query", what="All answers but its own are"),
        ]
        if pool is not None:
            claims.append(Claim(pool.epsilon, pool.delta, unit="one point of the pool", what="All answers are"))
        sentences = [*map(str, claims), *([] if self.declared_ else [LABELS_READ.capitalize()])]
        return f"{'. '.join(sentences)}."

    # --- Answers -----------------------------------------------------------------------------------------------------

    def check_queries(self, X: Any) -> Any:
        """Return queries in the form that teachers take, or say what is wrong with them. Nothing is asked."""
        check_is_fitted(self)
        return self._records(X, reset=False)

    def predict(self, X: Any, caller: str = "") -> Predictions:
        """Answer a batch of queries in order. While a phase is closed, they are refused until the next one.

        Apart from the outcomes of this batch, nothing returned reveals the number of no-quorums: neither what was spent
        nor what is left.
        """
        X = self.check_queries(X)
        labels = self.session_.arrive(X, caller=caller)
        return Predictions.of(np.maximum(labels, NO_QUORUM), classes=self.classes_, refused=labels == REFUSED)

    def feed(self, X: Any) -> "EverlastingClassifier":
        """Give points that the owner trusts to the next phase; they are labelled, and nothing about them is returned.

        >>> from quorate.models.concepts import Thresholds
        >>> X = np.random.default_rng(0).normal(size=(20_000, 1))
        >>> made = EverlastingClassifier(Thresholds(), epsilon=8.0, delta=1e-5, chunk=5, no_quorums=60, refresh="pool")
        >>> made.fit(X, (X[:, 0] > 0).astype(int)).feed(X[:5000]).seats_taken_
        5000
        """
        points = self.check_queries(X)
        if self.terms_.pool is None:
            raise InvalidInput(
                "with refresh='queries' only queries teach; construct with refresh='pool' to feed points"
            )
        self.session_.arrive(points, feeds=True)
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of queries that are answered with `y`. All of them are asked and take seats."""
        check_consistent_length(X, y, sample_weight)
        return float(np.average(self.predict(X).labels == np.asarray(y), weights=sample_weight))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "terms_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = allows_missing(self._estimator())
        return tags
