"""Prompts as teachers behind a student: the public zero-shot model answers until the ensemble clearly objects.

Claim (replace-one units: a text with its label, or a person): all answers of `predict` together are (epsilon, delta)-
differentially private. Proof: PROOF.md, steps 1 to 4, and core/mechanisms/PROOF_dissent.md.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from quorate.compute.ensemble import Ensemble
from quorate.core.answerers import open_runs
from quorate.core.checks import check_choice, check_count, check_delta, check_positive
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.ledger import Ledger
from quorate.core.mechanisms import Answers, Dissent, Quorum
from quorate.core.mechanisms.dissent import calibrate_with_quorum
from quorate.core.privacy import Budget, Cost
from quorate.core.privacy.claims import Claim
from quorate.core.requests import NO_QUORUM
from quorate.core.session import Session
from quorate.models.predictors import StudentFirst
from quorate.models.predictors.base import SessionClassifier
from quorate.models.predictors.records import Predictions
from quorate.models.text._prompts import OWN_PROMPT, Prompt
from quorate.models.text._teachers import TEXT, LanguageModel, PromptTeachers
from quorate.tables.containers import as_table

_MOST_DISSENTS = 1000  # that "auto" chooses
_EXACTNESS = 8  # "auto" is within one part in so many of the largest number that fits
_REACH = 0.3  # of all teachers: the half-gap from which "auto" wants dissents to be reported


class PromptClassifier(SessionClassifier):
    """A public language model that private examples correct; only clear disagreement costs budget.

    Each teacher is the model with a few private examples in its prompt. The model without examples answers a query
    unless the teachers clearly disagree. After the last dissent it goes on alone, at no privacy cost.

    Parameters
    ----------
    model
        A function from a list of prompts and the words of the classes to scores (log probabilities, for one): one row
        a prompt, one column a word. See `TransformersModel` and `HttpModel`.
    words
        The word that stands for each class in a prompt, such as {0: "negative", 1: "positive"}.
    epsilon, delta
        The guarantee of all answers together; delta must be above 0.
    examples_per_teacher
        The number of units in each prompt.
    dissents
        How many times the teachers may clearly disagree; "auto": as many as leave a dissent visible where four fifths
        of the teachers agree on it.
    prompt
        The public template.
    batch
        The number of prompts in one call.

    >>> def model(prompts, words):  # a stand-in: which word followed the same text among the examples?
    ...     queries = [prompt[prompt.rindex("Text:") :] for prompt in prompts]
    ...     return [[prompt.count(f"{query} {word}") for word in words] for prompt, query in zip(prompts, queries)]
    >>> words = {"no": "bad", "yes": "good"}
    >>> classifier = PromptClassifier(model, words, epsilon=4.0, examples_per_teacher=1)
    >>> classifier = classifier.fit(["Fine."] * 400, ["yes"] * 400, public=["A film."])
    >>> answers = classifier.predict(["Fine.", "A book."])
    >>> answers.tolist(), answers.corrected.tolist()
    (['yes', 'no'], [True, False])
    """

    def __init__(
        self,
        model: LanguageModel,
        words: Mapping[Any, str],
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        examples_per_teacher: int = 4,
        dissents: int | Literal["auto"] = "auto",
        prompt: Prompt | None = None,
        on_no_quorum: Literal["abstain", "random", "raise"] = "abstain",
        batch: int = 64,
    ) -> None:
        self.model, self.words, self.epsilon, self.delta = model, words, epsilon, delta
        self.examples_per_teacher, self.dissents, self.prompt = examples_per_teacher, dissents, prompt
        self.on_no_quorum, self.batch = on_no_quorum, batch

    def check_settings(self) -> None:
        """Raise an error for invalid settings."""
        check_positive("epsilon", self.epsilon)
        check_delta(self.delta, zero=False)
        check_choice("on_no_quorum", self.on_no_quorum, ("abstain", "random", "raise"))
        if not callable(self.model) or not isinstance(self.words, Mapping) or len(self.words) < 2:
            raise InvalidInput("model must be a function of prompts and words, and words must map at least 2 classes")

    def fit(self, texts: Sequence[Any], y: Any, groups: Any = None, *, public: Sequence[str]) -> "PromptClassifier":
        """Deal the private examples to prompts and open the budget. `public` are texts that are not private."""
        self.check_settings()
        electorate = PromptTeachers.deal(
            self.model,
            texts,
            y,
            words=self.words,
            public=public,
            examples_per_teacher=self.examples_per_teacher,
            groups=groups,
            prompt=self.prompt,
            batch=self.batch,
        )
        return self.open(electorate, unit="row" if groups is None else "person")

    def open(self, electorate: PromptTeachers, *, unit: str = "teacher") -> "PromptClassifier":
        """Open the budget for teachers that are dealt already. No unit may be in the prompts of two of them."""
        self.check_settings()
        self._forget()
        self.classes_, self.declared_, self.unit_ = np.array(list(self.words)), True, unit
        self.epsilon_, self.delta_ = float(self.epsilon), float(self.delta)
        self.teachers_ = electorate.teachers
        self.dissent_, quorum = self._mechanisms(electorate)
        slack = 0.0 if quorum is None else quorum.slack
        budget = Budget(epsilon=self.epsilon, delta=self.delta, order=self.dissent_.order, slack=slack)
        self._student = electorate.zero_shot
        answerer = PromptsFirst(Ensemble(electorate), self.dissent_, quorum, propose=electorate.zero_shot)  # type: ignore[arg-type]
        self.session_ = Session(answerer, budget)
        return self

    def _mechanisms(self, electorate: PromptTeachers) -> tuple[Dissent, Quorum | None]:
        """Return the Dissent, and for more than two classes the Quorum that answers after it."""
        if self.dissents != "auto":
            return self._calibrate(electorate, check_count("dissents", self.dissents))
        fewest, too_many = 1, _MOST_DISSENTS + 1
        while too_many - fewest > max(1, fewest // _EXACTNESS):
            count = math.isqrt(fewest * too_many)
            count = max(count, fewest + 1)
            if self._are_visible(electorate, count):
                fewest = count
            else:
                too_many = count
        return self._calibrate(electorate, fewest)

    def _are_visible(self, electorate: PromptTeachers, dissents: int) -> bool:
        """Return whether so many dissents leave each visible where four fifths of the teachers agree on it."""
        try:
            return self._calibrate(electorate, dissents)[0].distance() <= _REACH * electorate.teachers
        except Infeasible:
            return False

    def _calibrate(self, electorate: PromptTeachers, dissents: int) -> tuple[Dissent, Quorum | None]:
        sizes: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "dissents": dissents}
        sizes |= {"teachers": electorate.teachers}
        if electorate.classes == 2:  # the other class is what a dissent means
            return Dissent.calibrate(**sizes), None
        return calibrate_with_quorum(**sizes, no_quorums=max(1, dissents // 4))

    def _claim(self, epsilon: float, delta: float, *, open_: str = OWN_PROMPT, **options: Any) -> Claim:
        return super()._claim(epsilon, delta, open_=open_, **options)

    def check_queries(self, X: Any) -> Any:
        """Return texts as a table of one column, or raise an error."""
        check_is_fitted(self)
        texts = [X] if isinstance(X, str) else list(X)
        if not all(isinstance(text, str) for text in texts):
            raise InvalidInput("queries must be texts; give a list of str")
        return as_table({TEXT: [text.encode("utf-8", "replace").decode() for text in texts]})

    def _predictions(self, queries: Any, codes: NDArray[np.int64], **batch: Any) -> Predictions:
        corrected = (codes != NO_QUORUM) & (codes != self._student(queries))
        predictions = Predictions.of(
            codes, classes=self.classes_, filled=self._filled(len(codes)), corrected=corrected, **batch
        )
        self._check_quorum(predictions)
        return predictions


class PromptsFirst(StudentFirst):
    """A student first, whose dissents of two classes name the other one, and which answers alone after the last."""

    quorum: Quorum | None  # type: ignore[assignment]

    def open(self, budget: Budget | None, ledger: Ledger | None) -> None:
        """Open the run of the Dissent, and that of the Quorum if there is one."""
        if self.quorum is not None:
            return super().open(budget, ledger)
        assert budget is not None
        self._order = budget.order
        (self.dissent_run,) = open_runs([self.dissent], budget, ledger)
        return None

    def row_cost(self) -> Cost:
        """Return what a dissent costs, with a no-quorum."""
        return self.dissent.no_quorum_cost(self._order) if self.quorum is None else super().row_cost()

    def affordable(self, limit: int) -> int:
        """Return `limit`: the student's label is free."""
        return limit

    def quote(self, limit: int) -> tuple[int, Cost]:
        """Return `limit`, and the cost if every query is dissented from as long as the run lasts."""
        if self.dissent_run.no_quorums_left == 0:
            return limit, Cost(0.0)
        return limit, self.dissent_run.quote(limit)[1] if self.quorum is None else super().quote(limit)[1]

    def draw(self, X: Any) -> Answers:
        """Ask whether the ensemble disagrees as long as the run lasts; the student answers the rest."""
        if self.dissent_run.no_quorums_left == 0:
            return Answers(labels=self.propose(X), spent=Cost(0.0))
        return super().draw(X)  # the session asks again for what a run left open at its end

    def _corrected(self, X: Any) -> tuple[NDArray[np.int64], Cost]:
        if self.quorum is None:
            return 1 - self.propose(X), Cost(0.0)  # proof: step 3
        return super()._corrected(X)

    def move(self, ledger: Ledger) -> None:
        """Refuse: prompts and their model are not kept in a file."""
        raise InvalidInput("a PromptClassifier answers in this process alone and cannot be saved")
