"""What a federation loses against one table: Adult, by occupation, at twenty sites.

There are fifteen occupations; the largest sites are halved until there are twenty. Nothing about it is random to a
teacher: each knows one occupation. So the teachers leave out the columns of occupations, which are constant at a site,
and have a constant column in place of a free intercept: the regularisation keeps the level of one occupation from being
taken for that of all. All settings were compared on splits of the training file. Accuracies are averages over the
noise, by its law: drawn once for each query, they would scatter by a tenth of a point.
"""

import csv
import gzip
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from quorate.bench.adult import read_adult
from quorate.bench.figures import Figure, data_folder
from quorate.compute.ensemble import Ensemble, deal_units, unit_numbers
from quorate.core.arrays import Floats, Integers
from quorate.core.mechanisms import DistributedMax, NoisyMax
from quorate.core.mechanisms.distributions import gaussian_pmf

__all__ = ["expected_accuracy", "site_figures", "site_numbers"]

_SITES, _CORRUPT = 20, 5
_QUERIES = 100
_ROWS = 60  # of a teacher at a site
_OCCUPATIONS = [8, 9]  # columns of Adult
_TERMS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "classes": 2, "queries": _QUERIES}
_NAMES = ("pooled_percent", "sites_percent", "loss_points", "noise_from_sites_percent")


def site_figures(quick: bool) -> Iterator[Figure]:
    """Yield the accuracy of one table and of twenty sites, and the difference: None where there is no data."""
    folder = data_folder() / "adult"
    values: list[float | None] = [None] * len(_NAMES)
    if (folder / "train.csv.gz").exists():
        measured = [_accuracies(folder, repeat) for repeat in range(4 if quick else 12)]
        pooled, sites, noise = (100 * float(np.mean(column)) for column in zip(*measured, strict=True))
        values = [pooled, sites, pooled - sites, noise]
    for name, value in zip(_NAMES, values, strict=True):
        yield f"scale.sites.adult.{name}", value, "points" if name == "loss_points" else "%"


def site_numbers(occupations: list[str], repeat: int) -> Integers:
    """Return the site of each record: one for each occupation, and the largest halved until there are twenty."""
    names, numbers = np.unique(occupations, return_inverse=True)
    chance = np.random.default_rng(repeat)
    for new in range(len(names), _SITES):
        largest = np.flatnonzero(numbers == np.bincount(numbers).argmax())
        numbers[chance.permutation(largest)[: largest.size // 2]] = new
    return numbers


def _accuracies(folder: Path, repeat: int) -> tuple[float, float, float]:
    """Return how often one table, twenty sites, and twenty sites with noise of their own are right."""
    from quorate import PrivateClassifier

    X, y = read_adult(folder / "train.csv.gz")
    asked, truth = read_adult(folder / "test.csv.gz")
    with gzip.open(folder / "train.csv.gz", "rt", newline="") as file:
        occupations = [row["occupation"] for row in csv.DictReader(file, skipinitialspace=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pooled = PrivateClassifier(**_TERMS | {"classes": [0, 1]}, aggregator="noisy_max").fit(X, y)
    assert isinstance(pooled.mechanism_, NoisyMax)
    one = pooled.session_.answerer.ensemble.fitted.votes(asked)
    sites = _site_votes(_columns(X), y, site_numbers(occupations, repeat), _columns(asked))
    teachers = sum(int(votes[0].sum()) for votes in sites)
    shared = DistributedMax.calibrate(**_TERMS, teachers=teachers, sites=_SITES, corrupt=_CORRUPT)
    total, plain = np.sum(sites, axis=0), NoisyMax.calibrate(**_TERMS, teachers=teachers)
    return (
        expected_accuracy(one, truth, deviation=pooled.mechanism_.scale),
        expected_accuracy(total, truth, deviation=plain.scale),
        expected_accuracy(total, truth, deviation=shared.deviation),
    )


def expected_accuracy(votes: Integers, truth: Integers, *, deviation: float) -> float:
    """Return how often the winner of two noisy counts is right, on average over the noise: class 0 where they tie."""
    radius = math.ceil(10 * deviation)
    noise = gaussian_pmf(deviation, radius)
    at_least = np.convolve(noise, noise)[::-1].cumsum()[::-1]  # of the difference of two noises, from -2 radius on
    needed = 1 - (votes[:, 1] - votes[:, 0]) + 2 * radius
    ones = at_least[np.clip(needed, 0, at_least.size - 1)]
    return float(np.where(truth == 1, ones, 1 - ones).mean())


def _columns(X: Floats) -> Floats:
    return np.hstack([np.delete(X, _OCCUPATIONS, axis=1), np.ones((len(X), 1))])


def _site_votes(X: Floats, y: Integers, numbers: Integers, asked: Floats) -> list[Integers]:
    """Return the ballots of the teachers of each site."""
    from sklearn.linear_model import LogisticRegression

    votes = []
    for site in range(_SITES):
        rows = np.flatnonzero(numbers == site)
        units, count = unit_numbers(rows.size, None)
        deal, _ = deal_units(units, count, teachers=max(1, rows.size // _ROWS))
        fitted = Ensemble.fit(
            X[rows], y[rows], deal, estimator=LogisticRegression(C=4.0, fit_intercept=False), classes=2
        ).fitted
        votes.append(fitted.votes(asked))
    return votes
