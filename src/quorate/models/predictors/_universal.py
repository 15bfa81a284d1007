"""UniversalClassifier: a vote on the first queries, then one published hypothesis for any number of queries.

Claim: all outputs of `predict` and `stream`, and `hypothesis_`, are together (epsilon, delta)-differentially private
under replacement of one unit's rows (a row, or a person if `groups` are given). The queries are not protected: those
of the first callers become the cover from which the hypothesis is chosen.

This is Algorithm 4 of Nandi and Bassily (2020). Both of its mechanisms read the same records, so the budget is split
between them, and the two shares add up to the claim. PROOF_CONCEPTS.md, steps 4, 5 and 9.
"""

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from quorate.compute.ensemble import Ensemble
from quorate.core.answerers import Answerer, Journal, Votes
from quorate.core.checks import check_count, check_rate
from quorate.core.errors import BudgetSpent, InvalidInput, RunEnded
from quorate.core.hypotheses.concept import check_queries, say_by_row
from quorate.core.hypotheses.sealed import seal_candidates, seal_concept, unseal_hypothesis, works_alone
from quorate.core.ledger import LOST, Ledger, LedgerView
from quorate.core.mechanisms import NO_QUORUM, Answers
from quorate.core.mechanisms.exponential import ExponentialChoice
from quorate.core.privacy import Budget, Cost
from quorate.core.privacy.claims import Node, account_node, releases_node, restate_claim, sample_node, sum_node
from quorate.core.privacy.cost import float_down
from quorate.core.rows import query_digests
from quorate.core.session import Session
from quorate.models.concepts import Concept, Hypothesis
from quorate.models.predictors._agnostic import RelabelledSample, RelabellingClassifier
from quorate.models.predictors.concept_classifier import UnitRows
from quorate.models.predictors.records import Predictions
from quorate.models.saving.codecs import from_plain, to_plain
from quorate.models.saving.documents import HYPOTHESES


@dataclass(eq=False, repr=False)
class UniversalClassifier(RelabellingClassifier):
    """A classifier of two classes that answers any number of queries on one budget.

    Parameters
    ----------
    concept, epsilon, delta, classes, teachers, aggregator, no_quorums, disagreement, rate, kappa, records_per_person
        As for `AgnosticClassifier`.
    alpha, beta
        The target excess error, and the probability of missing it. They determine how many queries make the cover.
    ballots
        How many queries are put to the vote before the hypothesis takes over, or "auto": 32 (d log(1/alpha) +
        log(1/beta)) / alpha, and no more than the class can enumerate.
    share
        The share of epsilon that pays for the hypothesis; the rest, and delta, pays for the ballots.
    n_jobs, backend
        As for `AgnosticClassifier`.

    The hypothesis also takes over if the budget of the ballots runs out; its cover is then smaller. From then on
    `predict` also asks it about queries that had found no quorum; a server repeats the earlier outcome of a query.

    >>> from quorate.models.concepts import Thresholds
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(size=(20_000, 1))
    >>> y = ((X[:, 0] > 0.5) ^ (generator.uniform(size=20_000) < 0.1)).astype(int)
    >>> classifier = UniversalClassifier(Thresholds(), epsilon=4.0, ballots=20, teachers=120, classes=[0, 1]).fit(X, y)
    >>> first = classifier.predict(np.linspace(0.0, 1.0, 20)[:, np.newaxis])
    >>> classifier.predict([[0.1], [0.9]]).labels, classifier.switched_
    (array([0, 1]), True)
    """

    _: KW_ONLY
    alpha: float = 0.1
    beta: float = 0.05
    ballots: int | Literal["auto"] = "auto"
    share: float = 0.2

    kind = "universal"
    own_files = ("asked.jsonl",)
    saved_attributes = (
        *(*RelabellingClassifier.saved_attributes, "ballots_"),
        *("ballots_epsilon_", "hypothesis_epsilon_"),  # the parts of the claim
    )

    def fit(self, X: Any, y: Any, groups: Any = None) -> "UniversalClassifier":
        """Split the budget and fit the teachers for one part; keep the rest and the records for the hypothesis."""
        self.check_settings()
        records = self._records(X, y, groups)
        self.ballots_ = self._ballots()
        # Both parts, added as real numbers, are at most epsilon: proof, step 9.
        self.ballots_epsilon_ = float_down(Fraction(self.epsilon) * (1 - Fraction(self.share)))
        ensemble, budget = self._fit_teachers(records, epsilon=self.ballots_epsilon_, queries=self.ballots_)
        rest = float_down(Fraction(self.epsilon_) - Fraction(self.ballots_epsilon_))  # proof: step 9
        self.hypothesis_epsilon_ = ExponentialChoice.calibrate(epsilon=rest).epsilon_per_choice  # in whole quanta
        self.session_ = Session(self.answerer(records, ensemble), budget)
        return self

    def answerer(self, records: UnitRows, ensemble: Ensemble, folder: Path | None = None) -> "BallotsFirst":
        """Return what puts queries to the vote of these teachers, and asks the hypothesis after it was chosen."""
        return BallotsFirst(
            Votes(ensemble, self.mechanism_),
            self.concept_,
            records,
            ballots=self.ballots_,
            epsilon=self.hypothesis_epsilon_,
            journal=Journal() if folder is None else Journal(folder / self.own_files[0]),
        )

    def claim_part(self) -> Node:
        """Return the account that pays for ballots on the sample, and the choice of the hypothesis."""
        answers = account_node(self.budget_, [self.mechanism_], ledger=True)
        ballots = sample_node(self.ballots_epsilon_, self.delta_, self.sample_, answers)
        choice = ExponentialChoice(epsilon=self.hypothesis_epsilon_, sensitivity=self.rows_).describe()
        chosen = releases_node(self.hypothesis_epsilon_, 0.0, [choice])
        return restate_claim(sum_node(ballots, chosen), self.epsilon_, self.delta_)

    @classmethod
    def whole_spending(cls, values: Mapping[str, Any], view: LedgerView) -> LedgerView:
        """Return the view with the epsilon of the claim: of ballots on the sample, and of the hypothesis if chosen."""
        epsilon = float(values["epsilon"])
        ballots = from_plain(values["sample"], RelabelledSample).spent_epsilon(view.spent_epsilon)  # proof: step 3
        chosen = values["hypothesis_epsilon"] if view.chosen else 0.0  # proof: step 9
        spent = min(epsilon, min(ballots, values["ballots_epsilon"]) + chosen)
        return replace(view, epsilon=epsilon, delta=float(values["delta"]), spent_epsilon=spent)

    def check_settings(self) -> None:
        """Raise an error for invalid settings."""
        if check_rate("alpha", self.alpha) == 1 or check_rate("beta", self.beta) == 1:
            raise InvalidInput("alpha and beta must be below 1")
        if not isinstance(self.share, float | int) or not 0 < self.share < 1:
            raise InvalidInput(f"share must be above 0 and below 1, not {self.share!r}")
        if self.ballots != "auto":
            check_count("ballots", self.ballots)
        super().check_settings()

    def _ballots(self) -> int:
        if self.ballots != "auto":
            self.concept_.check_size(self.ballots)
            return self.ballots
        wanted = cover_points(vc_dimension=self.concept_.vc_dimension, alpha=self.alpha, beta=self.beta)
        return max(1, self.concept_.largest_set(wanted))

    @property
    def switched_(self) -> bool:
        """Whether the hypothesis has taken over, here or in another process that uses the same ledger."""
        return bool(self.session_.answerer.has_hypothesis())

    @property
    def hypothesis_(self) -> Hypothesis:
        """The hypothesis that answers, once it has taken over. It has been paid for and may be published."""
        if not self.switched_:
            raise AttributeError(f"the hypothesis takes over after {self.ballots_} queries")
        hypothesis: Hypothesis = self.session_.answerer.hypothesis
        return hypothesis

    def spent_epsilon(self) -> float:
        """Return the epsilon spent so far, ex post, at no more than twice this classifier's delta.

        It depends on the answers given (core/privacy/PROOF.md, step 8). The guarantee, for any queries, is `claim_`.
        """
        check_is_fitted(self)
        ballots = min(self.ballots_epsilon_, self.sample_.spent_epsilon(float(self.budget_.spent_epsilon())))
        # The ledger was read just now: what another process has chosen, or may have before a restore, counts.
        chosen = self.hypothesis_epsilon_ if self.switched_ or self.session_.answerer.is_stale() else 0.0
        return min(self.epsilon_, ballots + chosen)

    def _check_payable(self, X: Any) -> None:
        """Refuse nothing: where the ballots end, the hypothesis answers at no cost."""

    def _predictions(self, queries: Any, codes: NDArray[np.int64], **batch: Any) -> Predictions:
        """Answer by the hypothesis, once it is there, what the ballots found no quorum on: it is published."""
        missed = (codes == NO_QUORUM) & ~batch["refused"]
        if self.switched_ and missed.any():
            codes = codes.copy()
            codes[missed] = say_by_row(self.hypothesis_.predict, queries[missed])
        return super()._predictions(queries, codes, **batch)


class BallotsFirst(Answerer):
    """Ballots for the first queries, whoever asks; then one hypothesis, chosen once, and never a ballot again.

    The queries that were put to the vote are public. They define the candidates, and lie in the journal. The hypothesis
    is in the ledger before anything that was computed from it leaves. It does not stop at the last no-quorum: a caller
    whose share ends must not end the ballots of the others.
    """

    def __init__(
        self,
        votes: Votes,
        concept: Concept,
        records: UnitRows,
        *,
        ballots: int,
        epsilon: float,
        journal: Journal | None = None,
    ) -> None:
        self.votes, self.records, self.journal = votes, records, Journal() if journal is None else journal
        self.ensemble = votes.ensemble
        self.epsilon = ExponentialChoice.calibrate(epsilon=epsilon).epsilon_per_choice  # in whole quanta
        self.hypothesis: Hypothesis | None = None
        self._concept, self._ballots = concept, ballots
        self._budget = Budget(epsilon=self.epsilon, delta=0.0)  # of the hypothesis
        self._asked: dict[bytes, list[float]] = {}  # public: every query put to the vote so far
        self._seen = 0  # lines of the journal that are among them
        self._ledger: Ledger | None = None

    def open(self, budget: Budget | None, ledger: Ledger | None) -> None:
        """Go on where the ledger says: with ballots, or with the hypothesis."""
        self._ledger, self.votes = ledger, copy.copy(self.votes)
        if not self.has_hypothesis():
            self.votes.open(budget, ledger)

    def row_cost(self) -> Cost:
        """Return what a ballot costs; the hypothesis answers at no cost."""
        return Cost(0.0) if self.has_hypothesis() else self.votes.row_cost()

    def affordable(self, limit: int) -> int:
        """Return how many queries are answered together: no more than there are ballots left, and then any number."""
        return limit if self.has_hypothesis() else max(1, min(limit, self._ballots - self._count()))

    def quote(self, limit: int) -> tuple[int, Cost]:
        """Return all of them, and what those that are still put to the vote cost at most."""
        ballots = 0 if self.has_hypothesis() else min(limit, self._ballots - self._count())
        return limit, self.votes.quote(ballots)[1] if ballots > 0 else Cost(0.0)

    def draw(self, X: Any) -> Answers:
        """Put queries to the vote as long as the ballots last; choose the hypothesis when they end, and ask it then."""
        answers = None
        if self.hypothesis is None and self._count() < self._ballots:
            try:
                payable = self.votes.affordable(len(X))
                self.journal.add(X[:payable].tolist())
                answers = self.votes.draw(X[:payable])
            except (BudgetSpent, RunEnded):
                self.journal.add(X.tolist())
        if self.hypothesis is None and (answers is None or self._count() >= self._ballots) and not self.is_stale():
            self._choose()
        if answers is not None:
            return answers
        if self.hypothesis is None:
            raise RunEnded("the ledger is an old copy, and the hypothesis may have been chosen after it was made")
        return Answers(labels=say_by_row(self.hypothesis.predict, X).astype(np.int64), spent=Cost(0.0))

    def has_hypothesis(self) -> bool:
        """Return whether there is a hypothesis, of this process or of another one that uses the same ledger."""
        chosen = None if self._ledger is None or self.is_stale() else self._ledger.choice()
        if self.hypothesis is None and chosen is not None:
            self.hypothesis = _from_text(chosen)
        return self.hypothesis is not None

    def is_stale(self) -> bool:
        """Return whether the ledger is an old copy, after which a hypothesis may have been chosen and published."""
        return self._ledger is not None and self._ledger.choice() == LOST

    def _count(self) -> int:
        lines = self.journal.lines()[self._seen :]
        if lines:
            self._seen += len(lines)
            self._asked.update(zip(query_digests(np.array(lines)), lines, strict=True))
        return len(self._asked)

    def _choose(self) -> None:
        """Choose the hypothesis, once, from the queries that were asked so far (proof: step 9)."""
        self._count()
        public = np.array(list(self._asked.values()))
        public = public[works_alone(self._concept, public)]  # one caller's query must not fail for all others
        hypothesis, _ = choose_from_cover(
            seal_concept(self._concept),
            self.records.points,
            self.records.labels,
            public,
            epsilon=self.epsilon,
            rows=self.records.row_limit,
            budget=self._budget,
        )
        if self._ledger is not None:  # what another process has chosen meanwhile stands, and this one is never seen
            hypothesis = _from_text(self._ledger.keep_choice(_text(hypothesis)))
        self.hypothesis = hypothesis

    def move(self, ledger: Ledger) -> None:
        """Leave the noise of the ballots' run in the ledger, or the hypothesis."""
        if self.hypothesis is None:
            self.votes.move(ledger)
        else:
            ledger.keep_choice(_text(self.hypothesis))

    def close(self) -> None:
        """Let go of what the electorate has open."""
        self.votes.close()


def _text(hypothesis: Hypothesis) -> str:
    return json.dumps(to_plain(hypothesis))


def _from_text(text: str) -> Hypothesis:
    hypothesis: Hypothesis = from_plain(json.loads(text), *HYPOTHESES)
    return hypothesis


def choose_from_cover(
    concept: Concept, X: Any, y: Any, public: Any, *, epsilon: float, rows: int = 1, budget: Budget | None = None
) -> tuple[Hypothesis, Cost]:
    """Return one hypothesis for all that the public points tell apart, chosen by private mistakes, and its cost.

    Claim (replace-one units of at most `rows` rows; the public points do not depend on the private rows, or only
    through what was released about them): the chosen hypothesis is epsilon-DP. PROOF_CONCEPTS.md, step 5, says why
    (Beimel, Nissim and Stemmer 2013; Alon, Bassily and Moran 2019).

    `rows` is the most that one unit has among the private rows. Where a `budget` is given, it is charged before
    anything is drawn; the cost is the one at its order, or plain epsilon where there is none.
    """
    choice = ExponentialChoice(epsilon=epsilon, sensitivity=rows)  # proof: step 5
    candidates = concept.dichotomies(check_queries(public, features=concept.features))  # of public points alone
    tally = seal_candidates(candidates).tally(X, y)  # proof: step 0
    cost = choice.choice_cost(math.inf if budget is None else budget.order)
    return unseal_hypothesis(choice.choose(tally, budget=budget)), cost


def cover_points(*, vc_dimension: int, alpha: float, beta: float) -> int:
    """Return how many public points from the same law make a cover of error alpha with probability 1 - beta.

    32 (d log(1/alpha) + log(1/beta)) / alpha: Algorithm 4 of Nandi and Bassily (2020).
    """
    dimension = max(1, check_count("vc_dimension", vc_dimension, least=0))
    alpha, beta = check_rate("alpha", alpha), check_rate("beta", beta)
    return max(1, math.ceil(32 * (dimension * math.log(1 / alpha) + math.log(1 / beta)) / alpha))
