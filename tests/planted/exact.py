"""The exact law of what a mechanism's own code releases: the code is run on every value that its noise can take.

`quorate.auditing.release_of` states a law by the mechanism's definition. This module runs the code instead: its draws
come from a grid that holds each value of each noise once, and outcomes are counted by the probability of their row. A
mistake in the code, planted or not, is therefore in the law.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planted.bug import Caught
from quorate.auditing._laws import Release, Votes, ballots_to_change, gaussian, laplace, release_of
from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NO_QUORUM, Quorum, StabilityTest
from quorate.core.mechanisms.base import QueryMechanism, ThresholdMechanism

_MOST = 2_000_000  # rows of a grid
_WORDS = 2**64

Law = tuple[NDArray[Any], Floats]  # values, and their probabilities


class ConstantNoise:
    """A source of noise that says the same number always, so that outcomes of single keys can be listed."""

    def __init__(self, value: int) -> None:
        self._value = value

    def gaussian(self, scale: float, size: int) -> NDArray[np.int64]:
        return np.full(size, self._value, dtype=np.int64)

    laplace = gaussian


def compare_orders(publish: Callable[[dict[str, int], Any], dict[str, int]]) -> Caught:
    """Publish the same counts of rows in two orders, without noise, and compare the orders of what is published."""
    source = ConstantNoise(0)
    orders = {tuple(publish(counts, source)) for counts in ({"a": 50, "b": 50}, {"b": 50, "a": 50})}
    return Caught("rows in two orders", f"texts were published in {len(orders)} orders", found=len(orders) > 1)


class _Asked(NamedTuple):
    kind: str
    scale: float
    size: int
    scores: tuple[int, ...] = ()  # of a choice


class _Probe:
    """Gives zeros, and notes which laws were asked for."""

    def __init__(self) -> None:
        self.asked: list[_Asked] = []

    def _note(self, kind: str, scale: float, size: int) -> NDArray[np.int64]:
        self.asked.append(_Asked(kind, scale, size))
        return np.zeros(size, dtype=np.int64)

    def laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        return self._note("laplace", scale, size)

    def gaussian(self, scale: float, size: int) -> NDArray[np.int64]:
        return self._note("gaussian", scale, size)

    def words(self, size: int) -> NDArray[np.uint64]:
        return self._note("words", 0.0, size).astype(np.uint64)

    def choice(self, scores: Sequence[int], scale: float) -> int:
        self.asked.append(_Asked("choice", scale, 1, tuple(scores)))
        return 0


class _Grid:
    """Gives out, call after call, the columns of a grid; a choice is taken from its column as well."""

    def __init__(self, columns: list[NDArray[Any]], widths: list[int]) -> None:
        self._columns, self._widths = columns, widths
        self._call, self._row = 0, 0

    def _next(self, size: int) -> NDArray[Any]:
        start = sum(self._widths[: self._call])
        taken = np.stack(self._columns[start : start + self._widths[self._call]], axis=1).ravel()
        self._call += 1
        if taken.size != size:
            raise InvalidInput("a mechanism must draw the same noise for every query to be enumerated")
        return taken

    def laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        return self._next(size)

    def gaussian(self, scale: float, size: int) -> NDArray[np.int64]:
        return self._next(size)

    def words(self, size: int) -> NDArray[np.uint64]:
        return self._next(size)

    def choice(self, scores: Sequence[int], scale: float) -> int:
        self._row += 1
        return int(self._columns[0][self._row - 1])


def law_of_code(mechanism: QueryMechanism | ThresholdMechanism, *, classes: int) -> Release:
    """Return the law of what this mechanism's code releases, for votes on this many classes."""
    if isinstance(mechanism, ThresholdMechanism):
        return _run_law(mechanism, classes)

    def outcomes(votes: Votes) -> Floats:
        return _count(mechanism, votes, [0])

    return Release(
        teachers=mechanism.teachers, classes=classes, outcomes=outcomes, law=np.ones(1), covered_law=np.ones(1)
    )


def _run_law(mechanism: ThresholdMechanism, classes: int) -> Release:
    probe = _Probe()
    constant = mechanism.draw_threshold_noise(probe)
    hidden, law = np.array([constant]), np.ones(1)
    written = release_of(mechanism, classes=classes)
    covered_law = law
    if probe.asked:
        kind, scale = probe.asked[0][:2]
        drawn, law = _noise_law(kind, scale, reach=written.law.size // 2)
        hidden = np.array([mechanism.draw_threshold_noise(_Grid([np.array([value])], [1])) for value in drawn])
        covered_law = np.where(written.covered_law > 0, law, 0.0)

    @functools.cache
    def outcomes(votes: Votes) -> Floats:
        return _count(mechanism, votes, hidden.tolist())

    def covered(votes: Votes) -> Floats:
        rows = outcomes(votes).copy()
        if isinstance(mechanism, Quorum | StabilityTest) and ballots_to_change(votes) == 0:
            rows[:NO_QUORUM] = 0.0  # an answer that one ballot may change is in the tail event that both of them name
        return rows

    laws = {"law": law, "covered_law": covered_law, "covered": covered}
    return Release.of_run(mechanism, classes, outcomes=outcomes, redraws=mechanism.redraws, **laws)


def _count(mechanism: Any, votes: Votes, hidden: Sequence[int]) -> Floats:
    """Return the probability of every outcome, given each value of the hidden noise."""
    laws, widths = _laws(mechanism, votes, hidden)
    size = math.prod(values.size for values, _ in laws)
    if size > _MOST:
        raise InvalidInput(f"{size} combinations of noise are too many to enumerate; take a smaller mechanism")
    columns = [column.ravel() for column in np.meshgrid(*[values for values, _ in laws], indexing="ij")]
    chances = np.ones(1)
    for _, law in laws:
        chances = np.multiply.outer(chances, law)
    weights = chances.ravel()
    grid, counts = _Grid(columns, widths), np.tile(np.array(votes, dtype=np.int64), (size, 1))
    rows = np.zeros((len(votes) + 1, len(hidden)))
    if isinstance(mechanism, ThresholdMechanism):
        decide = mechanism.draw_decisions(counts, grid)
        drawn = [decide(slice(0, size), value) for value in hidden]
    else:
        drawn = [mechanism.draw_labels(counts, grid)]
    for column, labels in enumerate(drawn):
        places = np.where(labels == NO_QUORUM, len(votes), labels)
        rows[:, column] = np.bincount(places, weights=weights, minlength=len(votes) + 1)
    return rows


def _laws(mechanism: Any, votes: Votes, hidden: Sequence[int]) -> tuple[list[Law], list[int]]:
    """Return the laws that one query draws from, in order, and how many values each call takes."""
    probe, one = _Probe(), np.array([votes], dtype=np.int64)
    if isinstance(mechanism, ThresholdMechanism):
        mechanism.draw_decisions(one, probe)
    else:
        mechanism.draw_labels(one, probe)
    laws: list[Law] = []
    far = max(abs(value) for value in hidden) + mechanism.teachers + int(getattr(mechanism, "margin", 0))
    for kind, scale, size, scores in probe.asked:
        if kind == "words":
            law = _word_law(mechanism)
        elif kind == "choice":
            law = _choice_law(scores, scale)
        else:
            reach = math.ceil((45 if kind == "laplace" else 38) * scale) + (far if len(hidden) > 1 else 1)
            law = _noise_law(kind, scale, reach=reach)
        laws += [law] * size
    return laws, [one.size for one in probe.asked]


def _noise_law(kind: str, scale: float, *, reach: int) -> Law:
    return np.arange(-reach, reach + 1), (gaussian if kind == "gaussian" else laplace)(scale, reach)


def _word_law(mechanism: Any) -> Law:
    """Return one word for each step of the mechanism's table, and the share of words in that step."""
    ends = sorted({level - 1 for level in mechanism.table} | {_WORDS - 1})
    shares = [(end - before) / _WORDS for before, end in itertools.pairwise([-1, *ends])]
    return np.array(ends, dtype=np.uint64), np.array(shares)


def _choice_law(scores: Sequence[int], scale: float) -> Law:
    weights = np.exp((np.array(scores) - max(scores)) / scale)
    return np.arange(len(scores)), weights / weights.sum()
