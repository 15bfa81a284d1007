"""Every number that a mechanism is made of or calibrated for: a value that cannot be is refused by its name."""

import inspect
import math
from dataclasses import fields, is_dataclass, replace

import pytest
from mechanism_cases import MAKERS, mechanism_case

from quorate import InvalidInput
from quorate.core import mechanisms
from quorate.core.mechanisms import (
    AboveThreshold,
    Answers,
    DistributedMax,
    EveryCandidate,
    ExponentialChoice,
    LaplaceSums,
    NoisyCutoff,
    NoisyShares,
    NoisySum,
    NoisyVector,
    PrivateQuantile,
    RandomStopping,
    Relabel,
)
from quorate.core.mechanisms.selection import GaussianTrial
from quorate.core.mechanisms.sparse_histogram import SparseHistogram
from quorate.core.mechanisms.sparse_sums import SparseSums
from quorate.models.concepts import Thresholds

OTHERS = [
    AboveThreshold.calibrate(epsilon=1.0, delta=1e-6, records=10_000, near=250, far=500),
    DistributedMax(teachers=300, classes=3, scale=4.0, sites=3),
    EveryCandidate.calibrate(epsilon=1.0, delta=1e-6, candidates=3, trial=GaussianTrial),
    ExponentialChoice(epsilon=1.0),
    LaplaceSums(sensitivity=2, scale=3.0, threshold=30),
    NoisyCutoff.calibrate(epsilon=1.0, delta=1e-6, no_quorums=300, arrivals=10_000),
    NoisyShares(teachers=30, classes=3, scale=2.0),
    NoisySum(sensitivity=3, scale=9.0),
    NoisyVector(squared_sensitivities=(2,), scales=(9.0,)),
    PrivateQuantile(epsilon=1.0, cells=9, units=30, rank=20),
    RandomStopping.calibrate(epsilon=1.0, delta=1e-6, candidates=3, trial=GaussianTrial),
    Relabel(concept=Thresholds(), kappa=1.0),
    SparseHistogram(columns=2, scale=1.0, threshold=30),
    SparseSums(head=1, keys_per_unit=1, squared_sensitivity=2, scale=1.0, threshold=30),
]
ALL = [mechanism_case(name) for name in MAKERS] + OTHERS
CALIBRATED = [*{type(made): None for made in ALL if hasattr(made, "calibrate")}]
NUMBERS = ("int", "float", int, float)
TARGET = {"epsilon": 1.0, "delta": 1e-6, "teachers": 900, "classes": 2, "queries": 9, "no_quorums": 3, "dissents": 3}
TARGET |= {"records": 9000, "near": 250, "far": 500, "sites": 3, "candidates": 3, "trial": GaussianTrial, "units": 900}
TARGET |= {"arrivals": 9000, "sensitivity": 3, "squared_sensitivities": (2,), "cells": 9, "columns": 2, "share": 0.9}


def test_every_mechanism_is_tried():
    known = {value for value in map(vars(mechanisms).get, mechanisms.__all__) if isinstance(value, type)}
    assert {kind for kind in known if is_dataclass(kind)} - {Answers} <= {type(mechanism) for mechanism in ALL}


@pytest.mark.parametrize("wrong", [math.nan, -1.5, "1", None], ids=repr)
@pytest.mark.parametrize(
    "mechanism", [made for made in ALL if not isinstance(made, ExponentialChoice)], ids=lambda made: type(made).__name__
)
def test_a_number_that_cannot_be_is_refused(mechanism, wrong):
    settings = inspect.signature(type(mechanism)).parameters
    for number in [field.name for field in fields(mechanism) if field.name in settings and field.type in NUMBERS]:
        with pytest.raises(InvalidInput, match=number):
            replace(mechanism, **{number: wrong})


@pytest.mark.parametrize("wrong", [math.nan, -1.5, "1", None], ids=repr)
@pytest.mark.parametrize("kind", CALIBRATED, ids=lambda kind: kind.__name__)
def test_a_target_that_cannot_be_is_refused(kind, wrong):
    parameters = inspect.signature(kind.calibrate).parameters.values()
    target = {each.name: TARGET[each.name] for each in parameters if each.name in TARGET and each.default is each.empty}
    for number in target.keys() - {"trial", "squared_sensitivities"}:
        with pytest.raises(InvalidInput, match=number):
            kind.calibrate(**target | {number: wrong})
