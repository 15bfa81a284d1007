"""Models of texts with one mistake each, caught by a replay on neighbours or by counting what a run pays."""

from typing import Any

import numpy as np
import pyarrow as pa

from planted.bug import Caught, kind_bug, replaced, replacement_bug
from quorate.models.linear import PrivateLogisticRegression
from quorate.models.linear.model import LinearModel
from quorate.models.text import Prompt, PromptTeachers


def _with_log_odds_of_all(self: Any, X: Any) -> Any:
    """Pass all rows to the function: that is the mistake, for it may centre them on each other."""
    return np.column_stack([X, self.offset(X)])


def _offset_replayed(twin: tuple[Any, str, Any]) -> Caught:
    """Compare the log odds of all rows but one, which is replaced; the function centres what it is given."""
    rows = np.random.default_rng(0).normal(size=(50, 3))
    other = rows.copy()
    other[-1] = 1e3
    model = PrivateLogisticRegression(offset=lambda X: X.mean(axis=-1) - X.mean())
    with replaced(*twin):
        first, second = (model._with_log_odds(table)[:-1, -1] for table in (rows, other))
    moved = int((first != second).sum())
    return Caught("replay on neighbours", f"one row moved the log odds of {moved} others", found=moved > 0)


class _PromptsOfAllInOneCall(PromptTeachers):
    """Puts the prompts of all teachers into one call, to a model that pads them to the longest."""

    def votes(self, X: Any) -> Any:
        """Ask for all ballots at once: that is the mistake, for a model may look at the rows beside a row."""
        queries = [self._prompt.query(text) for text in X["text"].to_pylist()]
        prompts = [prefix + query for prefix in self._prefixes[:-1] for query in queries]
        scores = np.asarray(self._model(prompts, self._words)).reshape(self.teachers, len(queries), self.classes)
        return np.stack([(scores.argmax(axis=2) == label).sum(axis=0) for label in range(self.classes)], axis=1)


def _padding_model(prompts: Any, words: Any) -> Any:
    """Score by the length of the longest prompt of the call, as rounding in a padded batch does in its last bits."""
    longest = max(map(len, prompts))
    return [[(longest * len(word)) % 3, 1.0] for _ in prompts for word in words[:1]]


def _ballots_replayed(electorate: type[PromptTeachers], _plays: int, seed: int) -> Caught:
    """Count the ballots of two data sets that differ in one text."""
    votes = []
    for length in (1, 2, 3):
        prefixes = [Prompt().prefix([text], ["no"]) for text in ["a" * 30] * 20 + ["a" * (40 + length)]]
        teachers = electorate(_padding_model, prefixes, words=["no", "yes"], prompt=Prompt(), public=["a"])
        votes.append(teachers.votes(pa.table({"text": ["b"]})))
    moved = max(int(np.abs(one - votes[0]).max()) for one in votes)
    return Caught("replay on neighbours", f"one text moved {moved} ballots of a query", found=moved > 1)


TEXT = (
    kind_bug("prompts_of_all_in_one_call", "replay", _PromptsOfAllInOneCall, PromptTeachers, _ballots_replayed),
    replacement_bug(
        "offset_of_the_batch", "replay", (LinearModel, "_with_log_odds"), _with_log_odds_of_all, _offset_replayed
    ),
)
