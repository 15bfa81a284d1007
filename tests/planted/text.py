"""Models of texts with one mistake each, caught by a replay on neighbours or by counting what a run pays."""

import math
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa

from planted.bug import Caught, kind_bug, replaced, replacement_bug
from quorate.auditing.replay import entropy_tape
from quorate.models.linear import PrivateLogisticRegression
from quorate.models.linear.model import LinearModel
from quorate.models.text import PrivateWriter, Prompt, PromptTeachers
from quorate.models.text import _writer as writer_module
from quorate.tables import Embedded, Schema


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


class _Echo:
    """A model of two words that repeats what its prompt holds, and notes its calls."""

    end = 2

    def __init__(self) -> None:
        self.calls: list[int] = []

    def start(self, prompts: Any, public: bool = False) -> "_Echo":
        self.calls.append(len(prompts))
        self._prompts = prompts
        again = _Echo()
        again.calls, again._prompts = self.calls, prompts
        return again

    def log_probabilities(self, tokens: Any = None) -> Any:
        scores = [[9.0 * prompt.count("a"), 9.0 * prompt.count("b"), -9.0] for prompt in self._prompts]
        return np.array(scores) if tokens is None else np.array(scores)[:, tokens]

    def append(self, token: int) -> None:
        self.calls.append(token)

    def decode(self, tokens: Any) -> str:
        return "".join("ab"[token] for token in tokens)


def _writer(texts: Any, kind: type[PrivateWriter] = PrivateWriter, folder: Any = None) -> PrivateWriter:
    settings: dict[str, Any] = {"epsilon": 9.0, "batch": 2, "tokens": 2, "free_share": 0.0, "shown": "{text}"}
    return kind(_Echo(), asked="", clip=0.5, candidates=2, **settings).fit(texts, folder=folder)


class _ClippedToTheRange(PrivateWriter):
    """Clips differences to the range of the change of two of them."""

    def _differences(self, own: Any, likely: Any) -> Any:
        """Take the sensitivity for the largest difference: the mistake, for replacing a text moves by twice that."""
        limit = self.plan_.choice.sensitivity
        return np.clip((np.asarray(own) - likely) * 4096, -limit, limit).astype(np.int64).sum(axis=0)


def _ratios_enumerated(kind: type[PrivateWriter], _plays: int, _seed: int) -> Caught:
    """Compute the law of a token for neighbouring batches, and compare the largest ratio with what was paid."""
    writer, even = _writer(["a", "b"], kind), np.log(np.array([0.05, 0.05]))
    choice, changes = writer.plan_.choice, [[-99.0, 0.0], [0.0, -99.0]]
    laws = []
    for change in changes:
        scores = writer._differences([change, [0.0, 0.0]], even)
        scores += 2 * np.array([0, -20_000])  # the public heights of two prompts: the second token is rare
        heights = [math.exp(float(choice.rate) * int(score)) for score in scores]
        laws.append([height / sum(heights) for height in heights])
    worst = max(abs(math.log(p / q)) for p, q in zip(*laws, strict=True))
    evidence = f"one text changes a probability by exp({worst:.3f}), and {choice.epsilon_per_choice:.3f} was paid"
    return Caught("exact enumeration", evidence, found=worst > choice.epsilon_per_choice * (1 + 1e-9))


class _CallsByLength(PrivateWriter):
    """Reads long texts in parts."""

    def _written(self, rows: Any) -> str:
        """Call the model once more for each ten characters: the mistake, for calls can be counted from outside."""
        for row in rows.tolist():
            for _ in range(len(self._texts[row]) // 10):
                self.model.start([""])
        return super()._written(rows)


def _calls_counted(kind: type[PrivateWriter], _plays: int, seed: int) -> Caught:
    """Write with one tape of noise from two data sets that differ in the length of one text, and count calls."""
    calls = []
    for text in ("c", "c" * 1000):
        with entropy_tape(seed):
            writer = _writer(["c", "c", "c", text], kind)
            writer.write(2)
        calls.append(len(writer.model.calls))
    return Caught("replay on neighbours", f"{calls[0]} and {calls[1]} calls", found=calls[0] != calls[1])


def _dealt_again(self: Any, folder: Any, budget: Any, fingerprint: str) -> None:
    """Go on with the ledger and a new deal: the mistake, for a text is then in several batches of one charge."""
    _continued(self, folder, budget, fingerprint)
    self._deal = writer_module._deal(len(self._texts), self.plan_)


_continued = PrivateWriter._continue


def _deals_compared(twin: tuple[Any, str, Any]) -> Caught:
    """Fit twice with one folder, and see whether a text changes its batch."""
    with replaced(*twin), tempfile.TemporaryDirectory() as folder:
        deals = []
        for _ in range(2):
            writer = _writer(["a"] * 40, folder=f"{folder}/notes")
            deals.append([batch.tolist() for batch in writer._deal])
            writer.close()
    return Caught("state after a restart", "the deals of two processes are compared", found=deals[0] != deals[1])


class _ExamplesOfPrivateTexts(PrivateWriter):
    """Shows private texts to the public model."""

    def _public_prompt(self) -> str:
        """Show the last private texts: that is the mistake, for only what was written is public."""
        return self.instruction + "".join(map(self._shown, self._texts[-self.examples :])) + self.asked


def _public_prompts_replayed(kind: type[PrivateWriter], _plays: int, seed: int) -> Caught:
    """Write with one tape of noise from two data sets that differ in one text, and compare the first public prompt."""
    prompts = []
    for text in ("c", "ab"):
        with entropy_tape(seed):
            writer = _writer(["c", "c", "c", text], kind)
            prompts.append(writer._public_prompt())
    return Caught("replay on neighbours", "public prompts are compared", found=prompts[0] != prompts[1])


def _embedded_together(self: Any, texts: Any) -> Any:
    """Return vectors less their mean: that is the mistake, for it depends on all texts."""
    vectors = np.asarray(self.model([text or "" for text in texts]), dtype=np.float64)
    return vectors - vectors.mean(axis=0)


def _vectors_replayed(twin: tuple[Any, str, Any]) -> Caught:
    """Compare the vectors of all texts but one, which is replaced."""
    schema = Schema({"note": Embedded("lengths", 2, model=lambda texts: [[len(text), 1] for text in texts])})
    with replaced(*twin):
        first, second = (schema.encode(pa.table({"note": ["a", "bb", text]}))[:2] for text in ("c", "c" * 9))
    moved = int((first != second).any(axis=1).sum())
    return Caught("replay on neighbours", f"one text moved the vectors of {moved} others", found=moved > 0)


TEXT = (
    kind_bug("examples_of_private_texts", "replay", _ExamplesOfPrivateTexts, PrivateWriter, _public_prompts_replayed),
    replacement_bug("embedded_together", "replay", (Embedded, "embed"), _embedded_together, _vectors_replayed),
    kind_bug("clipped_to_the_range", "enumeration", _ClippedToTheRange, PrivateWriter, _ratios_enumerated),
    kind_bug("calls_by_length", "replay", _CallsByLength, PrivateWriter, _calls_counted),
    replacement_bug("batches_dealt_again", "state", (PrivateWriter, "_continue"), _dealt_again, _deals_compared),
    kind_bug("prompts_of_all_in_one_call", "replay", _PromptsOfAllInOneCall, PromptTeachers, _ballots_replayed),
    replacement_bug(
        "offset_of_the_batch", "replay", (LinearModel, "_with_log_odds"), _with_log_odds_of_all, _offset_replayed
    ),
)
