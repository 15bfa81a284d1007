"""LabelBoost between phases: a sample of the new points gets the labels of one privately chosen hypothesis."""

from typing import Any

import numpy as np

from quorate.compute.ensemble import deal_units
from quorate.core.arrays import Floats, Integers
from quorate.core.mechanisms import Relabel
from quorate.models.concepts import Concept
from quorate.models.everlasting.terms import Boost


def secret_sample(count: int, size: int) -> Integers:
    """Return `size` of `count` positions without replacement, all subsets equally likely, from secret randomness."""
    if size >= count:
        return np.arange(count)
    return deal_units(np.arange(count), count, teachers=1, held_out=size)[1]


def boosted(
    concept: Concept, labelled: tuple[Floats, Integers], points: Any, *, boost: Boost, seats: int
) -> tuple[Floats, Integers]:
    """Return a sample of `seats` of the points, labelled by a hypothesis that a sample of the labelled rows chooses."""
    X, y = labelled
    chosen = secret_sample(len(points), seats)  # proof: step 10
    some = secret_sample(len(y), max(1, round(boost.labelled * len(y))))  # proof: step 8
    new = np.asarray(points, dtype=np.float64)[chosen]
    relabelled = Relabel(concept=concept, kappa=boost.kappa).relabel(X[some], y[some], unlabelled=new)
    return new, relabelled.unlabelled
