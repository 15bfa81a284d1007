"""Releases of many means, to be traced: exact ones, which give everybody away, and private ones of several kinds."""

from typing import Any

import numpy as np

from quorate.auditing._tracing import Release, Rows
from quorate.core.arrays import Floats
from quorate.core.mechanisms import NoisySum
from quorate.models.knn import NeighbourRegressor
from quorate.models.knn._ballots import Levels, Terms
from quorate.models.knn._choice import TOP
from quorate.release import Columns, QueryRelease, Workload
from quorate.tables import Number


def exact_means(rows: Rows) -> Floats:
    """Return the mean answer to each question: no privacy at all."""
    means: Floats = rows.mean(axis=0, dtype=np.float64)
    return means


def noisy_means(*, epsilon: float, delta: float) -> Release:
    """Return the release of all means together within (epsilon, delta), with discrete Gaussian noise on the sums."""

    def release(rows: Rows) -> Floats:
        sums = rows.sum(axis=0, dtype=np.int64)
        # replacing one person moves every sum by 2 at most
        noisy = NoisySum.calibrate(epsilon=epsilon, delta=delta, sensitivity=2, releases=rows.shape[1])
        return np.array(noisy.releases(sums.tolist()), dtype=np.float64) / len(rows)

    return release


def released_means(*, epsilon: float, delta: float, engine: str = "plain") -> Release:
    """Return the release of all means by a `QueryRelease` of this engine."""

    def release(rows: Rows) -> Floats:
        names = [str(number) for number in range(rows.shape[1])]
        columns = Columns({name: Number(cuts=[0.0]) for name in names})
        query_release = QueryRelease(
            Workload.marginals(1), epsilon=epsilon, delta=delta, engine=engine, columns=columns
        )
        query_release.fit({name: rows[:, number].astype(np.float64) for number, name in enumerate(names)})
        shares = query_release.read(np.arange(3 * len(names)))[0].reshape(len(names), 3)  # below 0, above 0, missing
        return shares[:, 1] - shares[:, 0]

    return release


def neighbour_means(*, epsilon: float, delta: float, make: type[NeighbourRegressor] = NeighbourRegressor) -> Release:
    """Return the release of all means by a regressor of neighbours, as `trace` takes it.

    A person has a record for each question, at a place of its own, and a query is asked at each place: so a person
    votes on every question, and pays for all. `epsilon` is for one person replaced.
    """

    def release(rows: Any) -> Floats:
        people, questions = rows.shape
        points = np.arange(questions, dtype=np.float64)[:, np.newaxis]
        votes = float(questions)
        added = _added_epsilon(epsilon, delta, votes)
        model = make(epsilon=added, delta=delta, bounds=(-1, 1), radius=0.4, votes=votes, metric="euclidean")
        everyone = np.repeat(np.arange(people), questions)
        model.fit(np.tile(points, (people, 1)), rows.ravel().astype(np.float64), groups=everyone, public=points)
        return model.predict(points)

    return release


def _added_epsilon(epsilon: float, delta: float, votes: float) -> float:
    """Return an epsilon for addition or removal at which replacement has at most this one."""
    ballot, low, high = Levels(low=-1.0, high=1.0, centre=0.0), 0.0, epsilon
    for _ in range(20):
        middle = (low + high) / 2
        terms = Terms.calibrate(epsilon=middle, delta=delta, votes=votes, top=TOP, ballot=ballot)
        low, high = (middle, high) if terms.replaced_epsilon() <= epsilon else (low, middle)
    return low
