"""Small games with neighbours, enumerated: how far one unit moves what is released, on every path, by the code itself.

Five records and four steps. A step is one of three queries, or the first record is forgotten and inserted again. What
the units count depends on the steps so far and not on noise, so that every path of every adaptive tree is one of these
sequences. `widest_change` takes them all, and `worst_delta` the best of all adaptive trees, by exact laws of labels.
`widest_change_in_batches` does the same where queries come in batches of 18, of which a unit pays for two at once.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from quorate.core.arrays import Integers
from quorate.core.mechanisms.distributions import gaussian_pmf
from quorate.models.knn._ballots import Ballot, Labels, Terms
from quorate.models.knn._kernel import Kernel
from quorate.models.knn._units import Units

__all__ = [
    "BALLOT",
    "CHURN",
    "QUERIES",
    "RECORDS",
    "STEPS",
    "counted",
    "game_terms",
    "game_units",
    "widest_change",
    "widest_change_in_batches",
    "worst_delta",
]

CHURN = -1  # the first record is forgotten, and inserted again under its name
STEPS = 4
RECORDS = np.array([[0, 0], [10, 0], [0, 12], [-9, -9], [30, 0]], dtype=np.float32)
QUERIES = np.array([[0, 0], [8, 4], [25, 0]], dtype=np.float32)
BALLOT = Labels([0, 1])
_SIDES = np.array([1, 1, 0, 0, 1])
_KERNEL = Kernel(shape="linear", squared_radius=400, top=3)
_VOTES = 2.5  # of full weight: two and a part of a third
_BATCH = np.concatenate([QUERIES, np.full((15, 2), 500, dtype=np.float32)])  # the last of them is far from all records

Make = Callable[..., Units]
World = dict[tuple[int, ...], Integers]
Law = Callable[[int], tuple[float, float]]


def game_terms(epsilon: float = 1.0, delta: float = 1e-5, *, ballot: Ballot = BALLOT) -> Terms:
    """Return the terms of the game: a unit may cast two votes of full weight, and not three."""
    return Terms.calibrate(epsilon=epsilon, delta=delta, votes=_VOTES, top=_KERNEL.top, ballot=ballot)


def game_units(
    make: Make = Units, *, without: int | None = None, persons: bool = False, ballot: Ballot = BALLOT
) -> Units:
    """Return the records of the game as units, all of them or all but one."""
    capacity = game_terms(ballot=ballot).capacity
    units = make(_KERNEL, capacity=capacity, features=2, table=ballot.table, persons=persons)
    there = [place for place in range(len(RECORDS)) if place != without]
    units.insert([str(place) for place in there], [1] * len(there), RECORDS[there], _codes(units, _SIDES[there]))
    return units


def _codes(units: Units, sides: Integers) -> Integers:
    """Return the first code of a ballot for one side, and the last for the other."""
    return sides * (len(units._table) - 1)


def counted(units: Units, steps: Sequence[int]) -> Integers:
    """Return what gets noise, for every query among these steps in order: with labels, the second class's lead."""
    leads = [np.empty(0, dtype=np.int64)]
    for churns, queries in itertools.groupby(steps, key=lambda step: step == CHURN):
        if not churns:
            leads.append(units.count(QUERIES[list(queries)]).put_to(np.ravel))
        elif "0" in units:  # in the world without the first record there is nobody to forget
            for _ in queries:
                units.forget(["0"])
                units.insert(["0"], [1], RECORDS[:1], _codes(units, _SIDES[:1]))
    return np.concatenate(leads)


def _sequences(churn: bool) -> Iterator[tuple[int, ...]]:
    return itertools.product([*range(len(QUERIES)), *([CHURN] if churn else [])], repeat=STEPS)


def widest_change(
    make: Make = Units,
    *,
    removed: Sequence[int] = range(len(RECORDS)),
    churn: bool = True,
    ballot: Ballot = BALLOT,
    persons: bool = False,
) -> int:
    """Return how far one of these records moves all that is counted, at most: a sum of squares over a sequence.

    The steps with `churn` are for the first record: the others are never forgotten.
    """
    widest = 0
    for steps in _sequences(churn):
        whole = counted(game_units(make, ballot=ballot, persons=persons), steps)
        for place in removed:
            if place == 0 or CHURN not in steps:
                rest = counted(game_units(make, without=place, ballot=ballot, persons=persons), steps)
                widest = max(widest, int(((whole - rest) ** 2).sum()))
    return widest


def widest_change_in_batches(make: Make = Units, *, persons: bool = False) -> int:
    """Return how far the first record moves all that is counted in two batches, at most, with churn and without.

    Each has one of the first two queries, or one far from all records, in each of four places, and then far ones.
    """
    widest, far = 0, len(_BATCH) - 1
    for places in itertools.product([0, 1, far], repeat=STEPS):
        queries = _BATCH[[*places, *[far] * (len(_BATCH) - STEPS)]]
        for churn in (False, True):
            worlds = []
            for gone in (None, 0):
                units = game_units(make, without=gone, persons=persons)
                counts = units.count(queries).put_to(np.ravel)
                if churn and gone is None:
                    counted(units, [CHURN])
                worlds.append(np.concatenate([counts, units.count(queries).put_to(np.ravel)]))
            widest = max(widest, int(((worlds[0] - worlds[1]) ** 2).sum()))
    return widest


def worst_delta(terms: Terms, *, removed: int, epsilon: float, make: Make = Units) -> float:
    """Return the delta, at this epsilon, of the labels of the worst adaptive tree of queries, by their exact laws."""
    worlds = [
        {steps: counted(game_units(make, without=gone), steps) for steps in _sequences(churn=False)}
        for gone in (None, removed)
    ]
    return max(_worst(one, other, _label_law(terms.scale), epsilon) for one, other in (worlds, worlds[::-1]))


def _worst(one: World, other: World, law: Law, epsilon: float) -> float:
    """Return the largest delta of one world over another: at every node the query is chosen by the labels so far."""

    def best(asked: tuple[int, ...], here: float, there: float) -> float:
        if len(asked) == STEPS:
            return max(0.0, here - math.exp(epsilon) * there)
        return max(step((*asked, query), here, there) for query in range(len(QUERIES)))

    def step(path: tuple[int, ...], here: float, there: float) -> float:
        padded = path + (0,) * (STEPS - len(path))  # what is asked later does not change what was counted
        laws = (law(int(world[padded][len(path) - 1])) for world in (one, other))
        return sum(best(path, here * first, there * second) for first, second in zip(*laws, strict=True))

    return best((), 1.0, 1.0)


def _label_law(scale: float) -> Law:
    """Return the probabilities of both labels, by the lead of the second class: it wins where that is above 0."""
    radius = math.ceil(12 * scale)
    law = np.cumsum(gaussian_pmf(scale, radius))

    def probabilities(lead: int) -> tuple[float, float]:
        second_wins = float(law[min(max(radius + lead - 1, 0), 2 * radius)])  # the noise is above -lead
        return 1 - second_wins, second_wins

    return probabilities
