"""Ballot counters and their noise: distances, costs, speeds. Speeds are medians of several runs in this process."""

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Literal

import numpy as np

from benchmarks.figures import Figure, data_folder
from benchmarks.needed import votes_needed
from quorate.core._noise import SystemNoise
from quorate.core.mechanisms import (
    BetweenThresholds,
    ConfidentMax,
    Dissent,
    NoisyMax,
    Quorum,
    SharpMajority,
    SoftMajority,
    StabilityTest,
)


def measure(quick: bool) -> Iterator[Figure]:
    """Measure how far from changing a vote must be to be answered, what answers cost, and how fast they come."""
    for part in (_quorum_figures, _threshold_figures, _maximum_figures, _pate_figures, _noise_figures):
        yield from part(quick)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _quorum_figures(quick: bool) -> Iterator[Figure]:
    slowest = 0.0
    for allowed in (5, 20, 100, 1000):
        start = time.perf_counter()
        quorum = Quorum.calibrate(epsilon=1.0, delta=1e-6, teachers=8000, no_quorums=allowed)
        slowest = max(slowest, time.perf_counter() - start)
        yield f"quorum.distance.c{allowed}", quorum.distance(), "ballots"
        yield f"quorum.votes_needed.c{allowed}", votes_needed(quorum), "votes"
    quorum = Quorum.calibrate(epsilon=2.0, delta=1e-5, teachers=8000, no_quorums=20)
    yield "quorum.distance.epsilon2.c20", quorum.distance(), "ballots"
    yield "quorum.calibrate_seconds.slowest", slowest, "s"
    rows = 200_000 if quick else 1_000_000
    votes = np.zeros((rows, 2), dtype=np.int64)
    votes[:, 1] = np.random.default_rng().integers(0, 2, size=rows) * 8000
    votes[:, 0] = 8000 - votes[:, 1]
    times = [_seconds(lambda: quorum.open().answers(votes)) for _ in range(7)]
    bare = [_seconds(lambda: votes.argmax(axis=1)) for _ in range(7)]
    yield "quorum.answers_per_second", rows / median(times), "1/s"
    yield "quorum.time_over_bare_argmax", median(times) / median(bare), "ratio"


def _threshold_figures(quick: bool) -> Iterator[Figure]:
    target = {"epsilon": 1.0, "delta": 1e-6, "teachers": 100_000}
    for allowed in (5, 20, 100, 1000):
        between = BetweenThresholds.calibrate(**target, no_quorums=allowed)  # type: ignore[arg-type]
        yield f"between_thresholds.distance.c{allowed}", between.distance(), "ballots"
        yield f"between_thresholds.votes_needed.c{allowed}", votes_needed(between), "votes"
    tight = StabilityTest.calibrate(**target, no_quorums=20)  # type: ignore[arg-type]
    paper = StabilityTest.calibrate(**target, no_quorums=20, queries=1000, calibration="paper")  # type: ignore[arg-type]
    yield "stability.distance.c20", tight.distance(), "ballots"
    yield "stability.votes_needed.c20", votes_needed(tight), "votes"
    yield "stability.paper_distance.c20", paper.distance(), "ballots"
    yield "stability.paper_votes_needed.c20", votes_needed(paper), "votes"
    dissent = Dissent.calibrate(**target, dissents=20)  # type: ignore[arg-type]
    yield "dissent.votes_needed.c20", votes_needed(dissent), "votes"


def _maximum_figures(quick: bool) -> Iterator[Figure]:
    for queries in (1000, 100_000):
        noisy_max = NoisyMax.calibrate(epsilon=1.0, delta=1e-6, teachers=8000, classes=10, queries=queries)
        yield f"noisy_max.distance.queries{queries}", noisy_max.distance(), "ballots"
    for queries in (1000, 100_000):
        sharp = SharpMajority.calibrate(epsilon=1.0, delta=1e-6, teachers=8000, queries=queries)
        yield f"sharp_majority.distance.queries{queries}", sharp.distance(), "ballots"
        yield f"sharp_majority.votes_needed.queries{queries}", votes_needed(sharp), "votes"
        noisy = NoisyMax.calibrate(epsilon=1.0, delta=1e-6, teachers=8000, classes=2, queries=queries)
        yield f"noisy_max.votes_needed.queries{queries}", votes_needed(noisy), "votes"
    yield "sharp_majority.distance_over_noisy_max.queries100000", sharp.distance() / noisy.distance(), "ratio"
    soft = SoftMajority.calibrate(epsilon=1.0, delta=1e-6, teachers=8000)
    yield "soft_majority.votes_needed.queries1", votes_needed(soft), "votes"
    share = NoisyMax(teachers=250, classes=10, scale=40.0).renyi(8.0) / (8.0 / 40.0**2)
    yield "noisy_max.winner_share", share, "ratio"


def _pate_figures(quick: bool) -> Iterator[Figure]:
    for name, classes, threshold, test_scale, queries in (
        ("mnist", 10, 200, 150.0, 640),
        ("adult", 2, 300, 200.0, 1500),
    ):
        path = data_folder() / "pate2018" / f"{name}_250_teachers.npy"
        confident = ConfidentMax(
            teachers=250, classes=classes, threshold=threshold, test_scale=test_scale, winner_scale=40.0
        )
        epsilon = None
        if path.exists():
            counts, queries_at = np.unique(np.load(path)[:queries].max(axis=1), return_counts=True)
            answered = sum(
                confident.answer_probability(int(u)) * int(n) for u, n in zip(counts, queries_at, strict=True)
            )
            epsilon = confident.epsilon(delta=1e-5, queries=queries, answered=answered)
        yield f"confident_max.epsilon.{name}", epsilon, "epsilon"


def _noise_figures(quick: bool) -> Iterator[Figure]:
    for law in ("laplace", "gaussian"):
        yield f"noise.{law}_per_second", _draws_per_second(law, draws=20_000 if quick else 100_000), "1/s"


def _draws_per_second(law: Literal["laplace", "gaussian"], *, draws: int) -> float:
    """Return the median rate of five timed draws of this many values, from a source of its own."""
    noise = SystemNoise()
    draw = noise.laplace if law == "laplace" else noise.gaussian
    draw(20.0, draws)  # the sampler's blocks grow to their full size
    return draws / median(_seconds(lambda: draw(20.0, draws)) for _ in range(5))
