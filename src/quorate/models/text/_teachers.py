"""Teachers that are one public model, each with its own few private examples in its prompt. Proof: PROOF.md."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from quorate.compute.ensemble.dealing import deal_units
from quorate.core.arrays import Floats, Integers
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.core.estimator_calls import silence
from quorate.models.predictors.labels import class_codes
from quorate.models.text._prompts import Prompt
from quorate.tables.persons import unit_numbers

LanguageModel = Callable[[Sequence[str], Sequence[str]], Any]
TEXT = "text"  # the only column of queries


class PromptTeachers:
    """An electorate of prompts: teacher i is the model with the examples of its own units before each query.

    `PromptTeachers.deal` makes one of private examples; `PrivateClassifier.from_teachers` takes it for answers by a
    quorum or by scores, and `PromptClassifier` for answers by a student first.

    Parameters
    ----------
    model
        A function from a list of prompts and the words of the classes to scores, such as log probabilities: one row a
        prompt, one column a word.
    prefixes
        What stands before a query, one text a teacher. They are private.
    words
        The word of each class.
    prompt
        The public template.
    public
        Public texts without labels. The mean score of each class over them is taken off, teacher by teacher.
    batch
        The number of queries in one call. A call has prompts of one teacher alone.

    >>> import pyarrow as pa
    >>> def model(prompts, words):  # a stand-in: how often is each word in the prompt?
    ...     return [[prompt.count(word) for word in words] for prompt in prompts]
    >>> texts, labels = ["a good film", "a bad film"], ["yes", "no"]
    >>> words = {"no": "bad", "yes": "good"}
    >>> teachers = PromptTeachers.deal(model, texts, labels, words=words, public=["film"], examples_per_teacher=1)
    >>> teachers.votes(pa.table({"text": ["good", "bad"]})).tolist()
    [[0, 2], [2, 0]]
    """

    def __init__(
        self,
        model: LanguageModel,
        prefixes: Sequence[str],
        *,
        words: Sequence[str],
        prompt: Prompt,
        public: Sequence[str],
        batch: int = 64,
    ) -> None:
        self._model, self._prefixes = model, [*prefixes, prompt.prefix([], [])]  # the last one is public
        self.teachers, self.classes = check_count("teachers", len(prefixes)), len(words)
        self._words, self._prompt, self._batch = list(words), prompt, check_count("batch", batch)
        if isinstance(public, str) or len(public) < 1:
            raise InvalidInput("public must be a list of at least 1 public text")
        self._middles = [np.nan_to_num(self._scores(prefix, list(public)).mean(axis=0)) for prefix in self._prefixes]

    @classmethod
    def deal(
        cls,
        model: LanguageModel,
        texts: Sequence[Any],
        labels: Any,
        *,
        words: Mapping[Any, str],
        public: Sequence[str],
        examples_per_teacher: int = 4,
        groups: Any = None,
        prompt: Prompt | None = None,
        batch: int = 64,
    ) -> "PromptTeachers":
        """Deal private examples to teachers by a secret permutation, once and for all.

        With `groups` a unit is a person, whose first text is used; otherwise it is a text. `words` has the classes in
        their order. An example with another label is left out of its teacher's prompt.
        """
        prompt = Prompt() if prompt is None else prompt
        codes = class_codes(np.asarray(list(words)), np.asarray(labels, dtype=object))
        units, count = unit_numbers(len(texts), groups)
        if len(codes) != len(texts):
            raise InvalidInput(f"labels must have one label for each of the {len(texts)} texts, got {len(codes)}")
        firsts = np.unique(units, return_index=True)[1]
        teachers = count // check_count("examples_per_teacher", examples_per_teacher)
        dealt, _ = deal_units(np.arange(count), count, teachers=teachers)  # proof: step 1
        named, ends = list(words.values()), np.cumsum(dealt.sizes)
        prefixes = []
        for rows in np.split(firsts[dealt.rows], ends[:-1]):
            own = [row for row in rows.tolist() if codes[row] >= 0]
            prefixes.append(prompt.prefix([texts[row] for row in own], [named[codes[row]] for row in own]))
        return cls(model, prefixes, words=named, prompt=prompt, public=public, batch=batch)

    def votes(self, X: Any) -> Integers:
        """Return how many teachers vote for each class: one row a query, one column a class."""
        queries = texts_of(X)
        total = np.zeros((len(queries), self.classes), dtype=np.int64)
        for teacher in range(self.teachers):
            total[np.arange(len(queries)), self._ballots(teacher, queries)] += 1  # proof: step 2
        return total

    def zero_shot(self, X: Any) -> Integers:
        """Return the class that the public model without examples gives to each query."""
        return self._ballots(-1, texts_of(X))

    def _ballots(self, teacher: int, queries: list[Any]) -> Integers:
        """Return the ballots of a teacher; where the model fails, that of its position."""
        scores = self._scores(self._prefixes[teacher], queries) - self._middles[teacher]
        heard = np.isfinite(scores).all(axis=1)
        return np.where(heard, np.where(heard[:, None], scores, 0.0).argmax(axis=1), teacher % self.classes)

    def _scores(self, prefix: str, queries: Sequence[Any]) -> Floats:
        """Return the scores of each query by one teacher; nan where the model fails. Proof: steps 2 and 3."""
        prompts = [prefix + self._prompt.query(query) for query in queries]
        scores = np.full((len(prompts), self.classes), np.nan)
        for start in range(0, len(prompts), self._batch):
            part = prompts[start : start + self._batch]
            try:
                with silence():
                    values = np.asarray(self._model(part, self._words), dtype=np.float64)
            except Exception:  # noqa: S112  it would speak of one teacher's texts
                continue
            if values.shape == (len(part), self.classes):
                scores[start : start + self._batch] = values
        return scores

    def close(self) -> None:
        """Close nothing: the model is its owner's."""

    def __repr__(self) -> str:
        return f"PromptTeachers(teachers={self.teachers}, classes={self.classes})"


def texts_of(X: Any) -> list[Any]:
    """Return the texts of queries: the only column of a table or of a frame."""
    column = X[next(iter(X.columns if hasattr(X, "iloc") else X.column_names))]
    texts: list[Any] = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    return texts
