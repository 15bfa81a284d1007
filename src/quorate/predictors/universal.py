"""UniversalClassifier: a few private ballots first, then one published hypothesis for any number of queries.

Claim: all that `predict` and `stream` ever return, and `hypothesis_`, is (epsilon, delta)-differentially private under
replacement of one unit's rows (a row, or a person where `groups` are given). The queries are not protected: those of
the first callers become the cover from which the hypothesis is chosen.

This is Algorithm 4 of Nandi and Bassily (2020). Both of its mechanisms read the same records, so the budget is split
between them: each has a share, and the shares add up to what is claimed. PROOF_CONCEPTS.md, steps 4, 5 and 9.
"""

import threading
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from quorate.checks import check_count, check_rate
from quorate.concepts import Concept, Hypothesis
from quorate.concepts.points import say_by_row
from quorate.concepts.sealed import sealed, works_alone
from quorate.errors import BudgetSpent, InvalidInput
from quorate.exchange import Replies
from quorate.mechanisms import NO_QUORUM
from quorate.mechanisms.exponential import ExponentialChoice
from quorate.predictors.agnostic import AgnosticClassifier
from quorate.predictors.concept_classifier import ConceptClassifier, largest_set
from quorate.predictors.semi_private import choose_from_cover, cover_points
from quorate.predictors.slots import Slots
from quorate.predictors.stable_choice import Calibration
from quorate.privacy import Budget, Cost
from quorate.rounding import float_down
from quorate.rows import query_digests
from quorate.session import Session

__all__ = ["UniversalClassifier"]


class UniversalClassifier(ConceptClassifier):
    """A classifier of two classes that answers any number of queries on one budget.

    Parameters
    ----------
    concept, epsilon, delta, classes, teachers, aggregator, no_quorums, disagreement, rate, kappa, rows_per_person
        As for `AgnosticClassifier`.
    alpha, beta
        The excess error aimed at, and the probability of missing it: they say how many queries make the cover.
    ballots
        How many queries are put to the vote before the hypothesis takes over, or "auto": 32 (d log(1/alpha) +
        log(1/beta)) / alpha, and no more than the class can go through.
    share
        The share of epsilon that pays for the hypothesis; the rest, and delta, is for the ballots.
    calibration, n_jobs, backend
        As for `AgnosticClassifier`.

    The hypothesis also takes over where the ballots can pay for no more: then its cover is smaller.

    >>> from quorate.concepts import Thresholds
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(size=(20_000, 1))
    >>> y = ((X[:, 0] > 0.5) ^ (generator.uniform(size=20_000) < 0.1)).astype(int)
    >>> classifier = UniversalClassifier(Thresholds(), epsilon=4.0, ballots=20, teachers=120, classes=[0, 1]).fit(X, y)
    >>> first = classifier.predict(np.linspace(0.0, 1.0, 20)[:, np.newaxis])
    >>> classifier.predict([[0.1], [0.9]]).labels, classifier.switched_
    (array([0, 1]), True)
    """

    answers_: "_Phases"

    def __init__(
        self,
        concept: Concept | None = None,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        classes: Any = None,
        alpha: float = 0.1,
        beta: float = 0.05,
        ballots: int | Literal["auto"] = "auto",
        share: float = 0.2,
        teachers: int | Literal["auto"] = "auto",
        aggregator: str = "auto",
        no_quorums: int | Literal["auto"] = "auto",
        disagreement: float | None = None,
        rate: float | Literal["auto"] = "auto",
        kappa: float | Literal["auto"] = "auto",
        rows_per_person: int = 1,
        calibration: Calibration = "tight",
        n_jobs: int | None = None,
        backend: str | None = None,
    ) -> None:
        self.concept = concept
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.alpha = alpha
        self.beta = beta
        self.ballots = ballots
        self.share = share
        self.teachers = teachers
        self.aggregator = aggregator
        self.no_quorums = no_quorums
        self.disagreement = disagreement
        self.rate = rate
        self.kappa = kappa
        self.rows_per_person = rows_per_person
        self.calibration = calibration
        self.n_jobs = n_jobs
        self.backend = backend

    def fit(self, X: Any, y: Any, groups: Any = None) -> "UniversalClassifier":
        """Split the budget, fit the teachers on one part of it, keep the rest and the records for the hypothesis.

        >>> UniversalClassifier(share=1.0).fit([[0.0], [1.0]], [0, 1])
        Traceback (most recent call last):
        ...
        quorate.errors.InvalidInput: share must be above 0 and below 1, not 1.0
        """
        if check_rate("alpha", self.alpha) == 1 or check_rate("beta", self.beta) == 1:
            raise InvalidInput("alpha and beta must be below 1")
        if not isinstance(self.share, float | int) or not 0 < self.share < 1:
            raise InvalidInput(f"share must be above 0 and below 1, not {self.share!r}")
        if self.ballots != "auto":
            check_count("ballots", self.ballots)
        first = self._first_phase()
        slots = self._records(X, y, groups)
        first.concept_, first.classes_, first.unit_, first.declared_ = self.concept_, self.classes_, self.unit_, True
        self.ballots_ = self._ballots()
        first.queries = self.ballots_
        first._check_settings()
        first._fit(slots)
        self.epsilon_, self.delta_, self.first_ = float(self.epsilon), float(self.delta), first
        rest = float_down(Fraction(self.epsilon_) - Fraction(first.epsilon_))  # proof: step 9
        self.answers_ = _Phases(first.answers_, self.concept_, slots, ballots=self.ballots_, epsilon=rest)
        return self

    def _first_phase(self) -> AgnosticClassifier:
        """Return the classifier that answers by ballots, with its part of the budget."""
        taken = ("delta", "teachers", "aggregator", "no_quorums", "disagreement", "rate", "kappa", "rows_per_person")
        given = {name: getattr(self, name) for name in (*taken, "calibration", "alpha", "beta", "n_jobs", "backend")}
        first = AgnosticClassifier(self.concept, epsilon=self.epsilon, **given)
        first._check_settings()
        # Both parts, added as real numbers, are at most epsilon: proof, step 9.
        first.epsilon = float_down(Fraction(self.epsilon) * (1 - Fraction(self.share)))
        return first

    def _ballots(self) -> int:
        if self.ballots != "auto":
            self.concept_._check_size(self.ballots)
            return self.ballots
        wanted = cover_points(vc_dimension=self.concept_.vc_dimension, alpha=self.alpha, beta=self.beta)
        return max(1, largest_set(self.concept_, wanted))

    @property
    def switched_(self) -> bool:
        """Whether the hypothesis has taken over.

        >>> hasattr(UniversalClassifier(), "switched_")
        False
        """
        return self.answers_.hypothesis is not None

    @property
    def hypothesis_(self) -> Hypothesis:
        """The hypothesis that answers, once it has taken over. It is paid for and may be published.

        >>> hasattr(UniversalClassifier(), "hypothesis_")
        False
        """
        if self.answers_.hypothesis is None:
            raise AttributeError(f"the hypothesis takes over after {self.ballots_} queries")
        return self.answers_.hypothesis

    def spent_epsilon(self) -> float:
        """Return what has been spent so far, ex post, as an epsilon at no more than twice this classifier's delta.

        It depends on the answers given (privacy/PROOF.md, step 8). The guarantee, whatever is asked, is `claim_`.

        >>> hasattr(UniversalClassifier(), "spent_epsilon")
        True
        """
        check_is_fitted(self)
        return min(self.epsilon_, self.first_.spent_epsilon() + (self.answers_.epsilon if self.switched_ else 0.0))


class _Phases:
    """Ballots for the first queries, whoever asks; then the hypothesis, and never a ballot again."""

    def __init__(self, session: Session, concept: Concept, slots: Slots, *, ballots: int, epsilon: float) -> None:
        self._session, self._concept, self._slots, self._ballots = session, concept, slots, ballots
        self.epsilon = ExponentialChoice.calibrate(epsilon=epsilon).epsilon_per_choice  # in whole quanta
        self.budget = session.budget  # of the ballots; the hypothesis has its own share
        self._budget = Budget(epsilon=self.epsilon, delta=0.0)
        self.hypothesis: Hypothesis | None = None
        self._asked: dict[bytes, NDArray[np.float64]] = {}  # public: every query put to the vote so far
        self._answered: dict[tuple[str, bytes], int] = {}
        self._lock = threading.Lock()

    def ask(self, X: Any, *, caller: str = "") -> Replies:
        """Answer a batch: what this caller was told before; then ballots while they last; then the hypothesis."""
        digests = query_digests(X)
        with self._lock:
            new = any((caller, digest) not in self._answered for digest in digests)
            spent = self._vote(X, digests, caller) if new and self.hypothesis is None else Cost(0.0)
            known = [self._answered.get((caller, digest), NO_QUORUM) for digest in digests]
            labels = np.array(known, dtype=np.int64)
            if self.hypothesis is not None:
                open_ = labels == NO_QUORUM
                if open_.any():
                    labels[open_] = say_by_row(self.hypothesis.predict, X[open_])
        return Replies(labels=labels, refused=np.zeros(len(labels), dtype=np.bool_), spent=spent)

    def _vote(self, X: Any, digests: list[bytes], caller: str) -> Cost:
        """Put queries to the vote as long as the ballots last, and choose the hypothesis when they end."""
        rows: list[int] = []
        for row, digest in enumerate(digests):
            if (caller, digest) in self._answered:
                continue
            if digest not in self._asked:
                if len(self._asked) == self._ballots:
                    break
                self._asked[digest] = np.array(X[row])
            rows.append(row)
        spent, ended = Cost(0.0), len(self._asked) == self._ballots
        if rows:
            try:
                replies = self._session.ask(X[rows], caller=caller)
            except BudgetSpent:
                ended = True
            else:
                spent, ended = replies.spent, ended or bool(replies.refused.any())
                for row, label in zip(rows, replies.labels.tolist(), strict=True):
                    if label != NO_QUORUM:
                        self._answered[caller, digests[row]] = label
        if ended:
            self._choose()
        return spent

    def _choose(self) -> None:
        """Choose the hypothesis: once, and after the last ballot (proof: step 9)."""
        public = np.stack(list(self._asked.values()))
        public = public[works_alone(self._concept, public)]  # one caller's query must not fail for all others
        self.hypothesis, _ = choose_from_cover(
            sealed(self._concept),
            self._slots.points,
            self._slots.labels,
            public,
            epsilon=self.epsilon,
            rows=self._slots.most,
            budget=self._budget,
        )
        del self._session, self._slots
