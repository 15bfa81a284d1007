"""Everlasting prediction: an endless stream of answers that protects the records and every query.

Claim: all that `predict` and `stream` ever return is differentially private under replacement of one training unit,
with `terms_.training`; and all that they return but the answer to one query is differentially private under replacement
of that query, with `terms_.queries`. Both hold against adversaries who choose every query by what they have seen.
PROOF.md says why. That it can be done was shown by Naor, Nissim, Stemmer and Yan (2023).
"""

import math
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from quorate.checks import check_count
from quorate.concepts import Concept
from quorate.ensemble import deal_units, unit_numbers
from quorate.errors import Infeasible, InvalidInput
from quorate.everlasting.boosting import boosted, secret_sample
from quorate.everlasting.phase import Phase
from quorate.everlasting.seats import Seats, deal_seats
from quorate.everlasting.settings import check_chunks, check_settings
from quorate.everlasting.shown import Shown
from quorate.everlasting.teaching import teach
from quorate.everlasting.terms import Guarantee, Refresh, Terms, boost_terms, votes_terms
from quorate.learners import Deal
from quorate.mechanisms import NO_QUORUM
from quorate.memory import REFUSED
from quorate.predictors.inputs import check_records, class_codes, declared_classes
from quorate.predictors.predictions import Predictions
from quorate.process import check_process, process_identity
from quorate.rows import take_rows

__all__ = ["EverlastingClassifier"]

Integers = NDArray[np.int64]
_RATE = 0.02  # the share of a phase's arrivals that may find no quorum, unless given


class EverlastingClassifier(Shown, ClassifierMixin, BaseEstimator):
    """A classifier that answers for ever: queries teach the teachers of later queries, and are protected in turn.

    Parameters
    ----------
    estimator
        Any scikit-learn classifier, or a class of `quorate.concepts` (two classes; "labelboost" needs one).
        `LogisticRegression()` unless given. Thresholds, stumps and linear models are fitted and counted in batches.
    epsilon, delta
        What holds for one training unit: a row, or a person where `groups` are given.
    query_epsilon, query_delta
        What holds for one query, or with a pool for one point of it; the same as for a training unit unless given.
    chunk
        How many units, or later seats, a teacher has. Many small teachers are often best.
    no_quorums
        How many arrivals of a phase may find no quorum, the cutoff's headroom not counted; 2% of them unless given.
    seats
        How many arrivals a phase has, the first one; `growth` times the number of units unless given.
    growth, most_seats
        How many times more seats each phase has than the one before, and how many at most ("votes" only). Teachers stay
        as many and get more, so that errors of later phases are smaller and the boundary comes to rest.
    relabel
        "votes": a point teaches with the label that was released for it, or not at all. "labelboost": all points teach
        with the labels of a hypothesis that the earlier labelled set chooses (Beimel, Nissim and Stemmer).
    refresh
        "queries": queries teach. "pool": only points given to `feed`, which the owner trusts, teach.
    cutoff_epsilon
        The part of a query's epsilon that hides how it was answered itself; chosen unless given.
    classes
        All labels that may occur. Where they are not declared, the labels of `y` are taken and are public.
    kappa, labelled
        For "labelboost": the parameter of the choice, and the share of the labelled set that makes it.
    n_jobs, backend
        For joblib, where teachers are not fitted as one array.

    >>> from quorate.concepts import Thresholds
    >>> X = np.random.default_rng(0).normal(size=(20_000, 1))
    >>> classifier = EverlastingClassifier(Thresholds(), epsilon=8.0, delta=1e-5, chunk=5, no_quorums=60)
    >>> answers = classifier.fit(X, (X[:, 0] > 0).astype(int)).predict([[2.0], [-2.0]])
    >>> answers.labels, classifier.phase_, classifier.seats_taken_
    (array([1, 0]), 1, 2)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        query_epsilon: float | None = None,
        query_delta: float | None = None,
        chunk: int = 10,
        no_quorums: int | Literal["auto"] = "auto",
        seats: int | Literal["auto"] = "auto",
        growth: float = 1.0,
        most_seats: int | None = None,
        relabel: Literal["votes", "labelboost"] = "votes",
        refresh: Refresh = "queries",
        cutoff_epsilon: float | None = None,
        classes: Any = None,
        kappa: float = 1.0,
        labelled: float = 0.05,
        n_jobs: int | None = None,
        backend: str | None = None,
    ) -> None:
        self.estimator = estimator
        self.epsilon = epsilon
        self.delta = delta
        self.query_epsilon = query_epsilon
        self.query_delta = query_delta
        self.chunk = chunk
        self.no_quorums = no_quorums
        self.seats = seats
        self.growth = growth
        self.most_seats = most_seats
        self.relabel = relabel
        self.refresh = refresh
        self.cutoff_epsilon = cutoff_epsilon
        self.classes = classes
        self.kappa = kappa
        self.labelled = labelled
        self.n_jobs = n_jobs
        self.backend = backend

    def fit(self, X: Any, y: Any, groups: Any = None, probe: Any = None) -> "EverlastingClassifier":
        """Calibrate, deal the units, teach the first teachers. Fitting again opens other budgets: both are paid.

        `probe` holds public points, which are asked when a phase opens: their answers are public, and show the drift.

        >>> EverlastingClassifier(chunk=10, no_quorums=2, epsilon=4.0).fit([[0.0], [1.0]] * 100, [0, 1] * 100)
        Traceback (most recent call last):
        ...
        quorate.errors.Infeasible: with teachers=20 even a unanimous ballot would mostly find no quorum; ...
        """
        check_settings(self)
        for name in ("terms_", "session_", "account_", "_phase", "_seats"):
            self.__dict__.pop(name, None)  # of an earlier fit: no answer mixes two models
        self.settings_ = self.get_params(deep=False)  # what is set later changes nothing of this fit; proof: step 1
        self.estimator_ = clone(self._estimator(), safe=False)
        X = self._records(X, reset=True)
        self._probe = None if probe is None else self._records(probe, reset=False)
        self._probed: tuple[Integers, Integers] | None = None  # what was answered in phase 1, and in this one
        self._labelled_set: tuple[Any, Integers] | None = None  # of LabelBoost
        self.classes_, labels = declared_classes(self.classes, y)
        if isinstance(self.estimator_, Concept) and len(self.classes_) > 2:
            raise InvalidInput(f"a class of hypotheses tells two classes apart, not {len(self.classes_)}")
        check_consistent_length(X, labels)
        codes = class_codes(self.classes_, labels)
        units, count = unit_numbers(len(codes), groups)
        self.unit_, self.declared_ = "row" if groups is None else "person", self.classes is not None
        self._lock, self._process = threading.Lock(), process_identity()
        if self.relabel == "labelboost":
            self._fit_boosted(X, codes, count)
        else:
            self._fit_voting(X, codes, units, count)
        return self

    def _fit_voting(self, X: Any, codes: Integers, units: Integers, count: int) -> None:
        teachers = count // check_count("chunk", self.chunk)
        if teachers < 1:
            raise Infeasible(f"{count} units are too few for a teacher of chunk={self.chunk}")
        size = math.ceil(self.growth * count) if self.seats == "auto" else check_count("seats", self.seats)
        if size < teachers:
            raise Infeasible(f"seats={size} are too few for {teachers} teachers: each needs at least one")
        check_chunks(self, teachers=teachers, size=size)
        no_quorums = math.ceil(_RATE * size) if self.no_quorums == "auto" else self.no_quorums
        terms = votes_terms(
            teachers=teachers,
            arrivals=size,
            no_quorums=no_quorums,
            refresh=self.refresh,
            cutoff_epsilon=self.cutoff_epsilon,
            **self._guarantees(),
        )
        deal, _ = deal_units(units, count, teachers=teachers)  # proof: step 2
        self._open(terms, 1, X, codes, deal, units=count, size=size)

    def _fit_boosted(self, X: Any, codes: Integers, count: int) -> None:
        if not isinstance(self.estimator_, Concept):
            raise InvalidInput("relabel='labelboost' chooses a hypothesis: estimator must be of quorate.concepts")
        if self.unit_ != "row" or self.growth != 1 or self.seats != "auto":
            raise InvalidInput("relabel='labelboost' takes rows as units, growth=1 and seats='auto'")
        rate = _RATE if self.no_quorums == "auto" else check_count("no_quorums", self.no_quorums) / count
        terms, teachers, size = boost_terms(
            rows=count,
            chunk=check_count("chunk", self.chunk),
            no_quorum_rate=min(1.0, rate),
            refresh=self.refresh,
            kappa=self.kappa,
            labelled=self.labelled,
            cutoff_epsilon=self.cutoff_epsilon,
            **self._guarantees(),
        )
        assert terms.boost is not None
        sample = max(1, round(terms.boost.labelled * teachers * self.chunk))
        self.estimator_.check_size(teachers * self.chunk + sample)  # at the end of a phase it would be too late
        rows = secret_sample(count, teachers * self.chunk)  # proof: step 9
        self._boost(terms, 1, X[rows], codes[rows], size=size)

    def _guarantees(self) -> dict[str, Guarantee]:
        epsilon = self.epsilon if self.query_epsilon is None else self.query_epsilon
        delta = self.delta if self.query_delta is None else self.query_delta
        return {"training": Guarantee(self.epsilon, self.delta), "queries": Guarantee(epsilon, delta)}

    def _estimator(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _records(self, X: Any, *, reset: bool) -> Any:
        points = check_records(self, X, estimator=self.estimator_, reset=reset)
        if isinstance(self.estimator_, Concept) and points.shape[1] != self.estimator_.features:
            raise InvalidInput(f"the concept reads {self.estimator_.features} features and X has {points.shape[1]}")
        return points

    def _open(
        self,
        terms: Terms,
        phase: int,
        X: Any,
        codes: Integers,
        deal: Deal,
        *,
        units: int,
        size: int,
        labelled: Any = None,
    ) -> None:
        """Teach the teachers of a phase and draw its secret noises: one threshold, one limit."""
        ensemble = teach(
            self.estimator_,
            X,
            codes,
            deal,
            classes=len(self.classes_),
            units=units,
            first=phase == 1,
            n_jobs=self.settings_["n_jobs"],
            backend=self.settings_["backend"],
        )
        run = terms.quorum(phase).open(terms.budget(phase))  # proof: steps 5 and 6
        self.terms_, self.teachers_ = terms, ensemble.teachers
        self._begin(phase, size, Phase(ensemble, run, terms.cutoff.open()), labelled)

    def _begin(self, number: int, size: int, phase: Phase, labelled: Any = None) -> None:
        """Go on with a phase that has just opened: nobody sits yet, and the probe is asked."""
        seats = Seats(size)  # who sat before goes here, and not earlier: whatever is interrupted before has not begun
        self._phase, self._number, self._size, self._seats, self._labelled_set = phase, number, size, seats, labelled
        if self._probe is not None:
            answers = self._phase.ask(self._probe)  # proof: step 22
            self._probed = (answers if self._probed is None else self._probed[0]), answers

    def _boost(self, terms: Terms, phase: int, X: Any, codes: Integers, *, size: int) -> None:
        """Open a phase of LabelBoost; its labelled set is kept, for a sample of it labels the next one."""
        deal = deal_seats(codes, teachers=len(codes) // self.settings_["chunk"])
        self._open(terms, phase, X, codes, deal, units=len(codes), size=size, labelled=(X, codes))

    def _advance(self) -> None:
        """Open the next phase where all seats are taken: a matter of how many arrived, and of nothing else."""
        if self._seats.left:
            return
        points, labels = self._seats.since(0)
        if self.terms_.boost is not None:
            assert self._labelled_set is not None
            rows = len(self._labelled_set[1])
            new = boosted(self.estimator_, self._labelled_set, points, boost=self.terms_.boost, seats=rows)
            self._boost(self.terms_, self._number + 1, *new, size=self._size)
            return
        deal = deal_seats(labels, teachers=self.teachers_)  # proof: step 3
        self._open(self.terms_, self._number + 1, points, labels, deal, units=labels.size, size=self._next_size())

    def _next_size(self) -> int:
        """Return how many seats the next phase has."""
        grown: int = math.ceil(self.settings_["growth"] * self._size)
        most: int | None = self.settings_["most_seats"]
        return grown if most is None else max(self._size, min(grown, most))

    def _arrive(self, X: Any, *, seated: bool, asked: bool = True) -> Integers:
        """Answer arrivals in order, through as many phases as they fill; each takes a seat if it is to teach."""
        labels = np.full(len(X), NO_QUORUM, dtype=np.int64)
        start = 0
        while start < len(X):
            self._advance()
            stop = min(len(X), start + self._seats.left) if seated else len(X)
            block = take_rows(X, slice(start, stop))
            if asked:
                labels[start:stop] = self._phase.ask(block)
            if seated:
                self._seats.take(block, labels[start:stop])
            start = stop
        return labels

    def _come(self, X: Any, *, feeds: bool) -> Integers:
        """Let queries arrive, or points that the owner gives."""
        teach = feeds or self.terms_.pool is None
        return self._arrive(X, seated=teach, asked=not feeds or self.terms_.boost is None)  # proof: steps 7 and 11

    def _answered(self, X: Any, *, feeds: bool) -> Integers:
        with self._lock:
            session = self.__dict__.get("session_")
            if session is None:
                check_process("this classifier", self._process)  # a full phase would open, and pay, in each of the two
                return self._come(X, feeds=feeds)
        labels: Integers = session.ask(X, feeds=feeds)  # and never from memory alone, once there is a folder
        return labels

    def checked(self, X: Any) -> Any:
        """Return queries as the teachers take them, or say what is wrong with them. Nothing is asked."""
        check_is_fitted(self, "terms_")
        return self._records(X, reset=False)

    def predict(self, X: Any) -> Predictions:
        """Answer a batch of queries, in order. Where the phase is closed they are refused until the next one.

        Nothing that is returned tells how many no-quorums there were but for the queries of the batch: not what was
        spent, nor what is left.

        >>> from quorate.concepts import Thresholds
        >>> X = np.random.default_rng(0).normal(size=(20_000, 1))
        >>> made = EverlastingClassifier(Thresholds(), epsilon=8.0, delta=1e-5, chunk=5, no_quorums=60)
        >>> made.fit(X, (X[:, 0] > 0).astype(int)).predict([[3.0]]).tolist()
        [1]
        """
        labels = self._answered(self.checked(X), feeds=False)
        return Predictions.of(np.maximum(labels, NO_QUORUM), classes=self.classes_, refused=labels == REFUSED)

    def feed(self, X: Any) -> "EverlastingClassifier":
        """Give points that the owner trusts to the next phase; they are labelled, and nothing is told about them.

        >>> from quorate.concepts import Thresholds
        >>> X = np.random.default_rng(0).normal(size=(20_000, 1))
        >>> made = EverlastingClassifier(Thresholds(), epsilon=8.0, delta=1e-5, chunk=5, no_quorums=60, refresh="pool")
        >>> made.fit(X, (X[:, 0] > 0).astype(int)).feed(X[:5000]).seats_taken_
        5000
        """
        points = self.checked(X)
        if self.terms_.pool is None:
            raise InvalidInput(
                "with refresh='queries' only queries teach; construct with refresh='pool' to feed points"
            )
        self._answered(points, feeds=True)
        return self

    def stream(self, queries: Iterable[Any]) -> Iterator[Any]:
        """Answer queries one by one as they come, each a row of features: a label, or None for no answer."""
        for query in queries:
            row = query if hasattr(query, "columns") else np.asarray(query)[np.newaxis, :]
            yield self.predict(row).tolist()[0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of queries that are answered, and answered with `y`. They are asked, all, and take seats."""
        check_consistent_length(X, y, sample_weight)
        return float(np.average(self.predict(X).labels == np.asarray(y), weights=sample_weight))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "terms_")

    def __getstate__(self) -> Any:
        if hasattr(self, "terms_"):
            raise TypeError(
                "a fitted EverlastingClassifier cannot be copied or pickled: it holds private points and secret noise, "
                "and the copy would use them a second time"
            )
        return super().__getstate__()
