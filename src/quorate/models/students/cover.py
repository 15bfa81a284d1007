"""The base of learners over a cover: public points define the candidates, private rows choose among them."""

import math
import warnings
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from quorate.core.checks import check_choice, check_count, check_rate
from quorate.core.errors import InvalidInput
from quorate.core.hypotheses.sealed import seal_candidates, unseal_hypothesis
from quorate.core.mechanisms import NoisySum
from quorate.core.mechanisms.exponential import ExponentialChoice
from quorate.core.privacy.claims import Node, releases_node, replaced
from quorate.models.concepts import Dichotomies, Hypothesis
from quorate.models.concepts.stumps import named_condition, rule_text
from quorate.models.predictors.concept_classifier import ConceptModel, UnitRows, fill_unit_rows
from quorate.models.predictors.records import check_matrix
from quorate.models.saving.contract import Spending, State
from quorate.models.students.points import random_points
from quorate.tables.containers import is_frame

_MODES = ("semi-private", "label-private")
_ONE_LABEL = (  # said of what was chosen, which may be known
    "the chosen hypothesis gives all public points one label, at the edge of its class: the columns may not tell the "
    "labels apart, the class may be the wrong one, or epsilon or the records too small to choose"
)


@dataclass(eq=False, repr=False)
class CoverClassifier(ConceptModel):
    """A classifier of two classes: one hypothesis, chosen among the dichotomies of public points.

    Subclasses take these parameters and define in `_select` how private rows choose, and at what cost.
    """

    spending = Spending(published=True, searchable=True)
    summary = "A hypothesis that was chosen privately."
    saved_attributes = (
        *(*ConceptModel.saved_attributes, "claim_", "claim_part_"),
        *("candidates_", "spent_epsilon_", "hypothesis_"),
    )

    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-6
    points: int | None = None
    mode: Literal["semi-private", "label-private"] = "semi-private"

    def fit(self, X: Any, y: Any, groups: Any = None, public: Any = None) -> Any:
        """Choose a hypothesis by its mistakes on the records, among those that the public points tell apart."""
        self._check_settings(groups, public)
        X, codes = self._begin_fit(X, y, groups, instead="StudentClassifier", declared=is_frame(public))
        defining = X if self.mode == "label-private" else check_matrix(self, public, reset=False, role="public")
        if self.points is not None:
            defining = defining[np.sort(random_points(np.arange(len(defining)), self.points))]
        candidates = seal_candidates(self.concept_.dichotomies(defining))  # proof: steps 1 and 2
        rows = fill_unit_rows(X, codes, groups=groups, row_limit=self.records_per_person)  # proof: step 2
        hypothesis, spent = self._select(candidates, rows)
        self.hypothesis_, self.candidates_, self.spent_epsilon_ = unseal_hypothesis(hypothesis), len(candidates), spent
        ours = self.hypothesis_ is hypothesis  # somebody else's may fail
        if ours and len(np.unique(hypothesis.predict(defining))) < 2:
            warnings.warn(_ONE_LABEL, UserWarning, stacklevel=2)
        unit, open_ = "", "the public points are not protected"
        if self.mode != "semi-private":
            unit, open_ = f"the labels of {replaced(self.unit_)}", "the features are not protected"
        self.claim_ = str(self._claim(self.epsilon, self._claimed_delta(), unit=unit, open_=open_))
        self.claim_part_ = self._describe_releases()
        return self

    def claim_part(self) -> Node:
        """Return what was released of the records."""
        return self.claim_part_

    def to_state(self) -> State:
        """Return the class of hypotheses and the hypothesis, all of it plain values."""
        check_is_fitted(self)
        return super().to_state()

    def page_facts(self, schema: Any = None) -> list[str]:
        """Return the rule in words, by the columns of the schema if there is one."""
        classes = self.classes_.tolist()
        rule = self.rule_ if schema is None else rule_text(self.hypothesis_, classes, schema.condition)
        return [
            f"Rule: {rule}.",
            f"It is {self.hypothesis_}, one of {self.candidates_} candidates.",
            f"Classes: {', '.join(map(str, classes))}.",
        ]

    @abstractmethod
    def _select(self, candidates: Dichotomies, rows: UnitRows) -> tuple[Hypothesis, float]:
        """Return a hypothesis, chosen privately, and the epsilon that it has cost at `_claimed_delta`."""

    @abstractmethod
    def _describe_releases(self) -> Node:
        """Return what was released of the records, in integers."""

    def _claimed_delta(self) -> float:
        return float(self.delta)

    def _check_settings(self, groups: Any, public: Any) -> None:
        """Refuse what cannot be done, from public values alone."""
        check_choice("mode", self.mode, _MODES)
        if self.mode == "semi-private" and public is None:
            raise InvalidInput(
                "mode='semi-private' needs public points: fit(X, y, public=...), or mode='label-private'"
            )
        if self.mode == "label-private" and public is not None:
            raise InvalidInput("mode='label-private' takes the features of X; leave public out, or mode='semi-private'")
        if self.points is not None:
            check_count("points", self.points)
        if check_count("records_per_person", self.records_per_person) != 1 and groups is None:
            raise InvalidInput("records_per_person requires groups=, the person of each row")

    @property
    def rule_(self) -> str:
        """The chosen hypothesis in words, with the names of its columns and classes."""
        check_is_fitted(self)
        condition = named_condition(getattr(self, "feature_names_in_", None))
        return rule_text(self.hypothesis_, self.classes_.tolist(), condition)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the labels of the chosen hypothesis. Nothing is spent."""
        queries = self.check_queries(X)  # first: it says where nothing is fitted yet
        labels: NDArray[Any] = self.classes_[self.hypothesis_.predict(queries)]
        return labels

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "hypothesis_")


@dataclass(eq=False, repr=False, kw_only=True)
class SemiPrivateClassifier(CoverClassifier):
    """A publishable classifier of two classes: one hypothesis, chosen privately by its mistakes.

    Parameters
    ----------
    concept
        The class of hypotheses, from `quorate.models.concepts`; stumps over all features by default.
    epsilon, delta
        The privacy loss allowed. One choice needs no delta: the claim has delta = 0, whatever delta is given.
    classes
        Both labels. If not declared, they are read from `y` and become public.
    points
        How many of the public points, chosen at random, define the candidates; all of them by default. More points come
        closer to the best hypothesis of the class, but leave more candidates to choose from.
    records_per_person
        With `groups`: how many rows of each person count, the first ones. Each mistake then weighs that much less.
    mode
        "semi-private" needs `public` points; "label-private" uses the features of the records themselves. The top of
        this module states what is then protected.

    `hypothesis_` is the chosen hypothesis, `candidates_` the number of candidates, `claim_` the guarantee. Nothing else
    of the private rows is kept.

    >>> import numpy as np
    >>> from quorate.models.concepts import Thresholds
    >>> X = np.random.default_rng(0).uniform(size=(5000, 1))
    >>> y = np.where(X[:, 0] > 0.25, "yes", "no")
    >>> public = np.linspace(0, 1, 101).reshape(-1, 1)
    >>> made = SemiPrivateClassifier(Thresholds(), epsilon=1.0, classes=["no", "yes"]).fit(X, y, public=public)
    >>> made.predict([[0.1], [0.4]])
    array(['no', 'yes'], dtype='<U3')
    """

    kind = "published hypothesis"

    delta: float = 0.0

    def _describe_releases(self) -> Node:
        """Return the one choice among the candidates."""
        return releases_node(self.epsilon, 0.0, [self._choice().describe()])

    def _choice(self) -> ExponentialChoice:
        return ExponentialChoice.calibrate(epsilon=self.epsilon, delta=self.delta, sensitivity=self.records_per_person)

    def _check_settings(self, groups: Any, public: Any) -> None:
        super()._check_settings(groups, public)
        self._choice()

    def _select(self, candidates: Dichotomies, rows: UnitRows) -> tuple[Hypothesis, float]:
        choice = self._choice()
        return choice.choose(candidates.tally(rows.points, rows.labels)), choice.epsilon()  # proof: step 3

    def _claimed_delta(self) -> float:
        return 0.0

    def excess(self, *, beta: float = 0.05) -> int:
        """Bound the mistakes beyond the fewest of all candidates, with probability 1 - beta.

        The bound is computed from public numbers (PROOF_CONCEPTS.md, step 4). It does not include rows that do not
        count.
        """
        check_is_fitted(self)
        surplus = math.log(self.candidates_) - math.log(check_rate("beta", beta))
        return math.ceil(surplus / float(self._choice().rate) * (1 + 1e-12))


class QueryReleaseClassifier(CoverClassifier):
    """The best of all candidates, released with the noisy number of mistakes of each.

    The parameters are those of `SemiPrivateClassifier`; delta must be above 0. `mistakes_` has the released number for
    each candidate, in the order of `concept.dichotomies(public)`; noise may make it negative. `hypothesis_` is the
    first candidate with the smallest number.

    >>> from quorate.models.concepts import Thresholds
    >>> X = np.random.default_rng(0).uniform(size=(5000, 1))
    >>> y = (X[:, 0] > 0.5).astype(int)
    >>> made = QueryReleaseClassifier(Thresholds(), epsilon=1.0, delta=1e-6, classes=[0, 1])
    >>> made.fit(X, y, public=np.linspace(0, 1, 11).reshape(-1, 1)).predict([[0.1], [0.9]])
    array([0, 1])
    >>> made.mistakes_.shape  # eleven public points tell 22 thresholds apart, in both directions
    (22,)
    """

    kind = "published hypothesis"
    saved_attributes = (*CoverClassifier.saved_attributes, "mistakes_")

    def _describe_releases(self) -> Node:
        """Return the noisy numbers of mistakes, one for each candidate."""
        releases = [self._noisy(self.candidates_).describe(uses=self.candidates_)]
        return releases_node(self.epsilon, self.delta, releases)

    def _noisy(self, candidates: int) -> NoisySum:
        return NoisySum.calibrate(
            epsilon=self.epsilon, delta=self.delta, sensitivity=self.records_per_person, releases=candidates
        )

    def _check_settings(self, groups: Any, public: Any) -> None:
        super()._check_settings(groups, public)
        self._noisy(1)

    def _select(self, candidates: Dichotomies, rows: UnitRows) -> tuple[Hypothesis, float]:
        noisy = self._noisy(len(candidates))
        mistakes = noisy.releases(candidates.mistakes(rows.points, rows.labels).tolist())  # proof: step 5
        self.mistakes_ = np.array(mistakes, dtype=np.int64)
        spent = min(float(self.epsilon), noisy.epsilon(delta=self.delta, releases=len(candidates)))
        return candidates[int(np.argmin(self.mistakes_))], spent

    def excess(self, *, beta: float = 0.05) -> int:
        """Bound the mistakes beyond the fewest of all candidates, with probability 1 - beta."""
        check_is_fitted(self)
        tails = math.log(2 * self.candidates_) - math.log(check_rate("beta", beta))
        return math.ceil(2 * self._noisy(self.candidates_).scale * math.sqrt(2 * tails) * (1 + 1e-12))
