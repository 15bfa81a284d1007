"""Measuring the promised figures. Speeds are medians of several runs in this process."""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table

from quorate.bench.audit import audit_figures
from quorate.bench.auto import auto_figures
from quorate.bench.bars import BARS
from quorate.bench.concepts import selection_figures, semi_private_figures, stability_figures, theory_figures
from quorate.bench.cover import cover_figures
from quorate.bench.everlasting import everlasting_figures
from quorate.bench.front import front_figures
from quorate.bench.learners import counting_figures, fitting_figures
from quorate.bench.overhead import overhead_figures
from quorate.bench.peers import peer_figures
from quorate.bench.release import adult_figures
from quorate.bench.service import service_figures
from quorate.bench.students import student_figures
from quorate.bench.throughput import noise_draws_per_second
from quorate.mechanisms import BetweenThresholds, ConfidentMax, NoisyMax, Quorum, SharpMajority, StabilityTest

__all__ = ["data_folder", "run_bench"]

Figure = tuple[str, float | None, str]


def data_folder() -> Path:
    """Return where benchmark data lies: $QUORATE_DATA, or the folder shared/data beside this checkout.

    >>> data_folder().name
    'data'
    """
    beside = Path(__file__).parents[4] / "shared" / "data"
    return Path(os.environ.get("QUORATE_DATA", beside))


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _quorum_figures(quick: bool) -> Iterator[Figure]:
    slowest = 0.0
    for allowed in (5, 20, 100, 1000):
        start = time.perf_counter()
        made = Quorum.calibrate(epsilon=1.0, delta=1e-6, teachers=8000, no_quorums=allowed)
        slowest = max(slowest, time.perf_counter() - start)
        yield f"quorum.distance.c{allowed}", made.distance(), "ballots"
    made = Quorum.calibrate(epsilon=2.0, delta=1e-5, teachers=8000, no_quorums=20)
    yield "quorum.distance.epsilon2.c20", made.distance(), "ballots"
    yield "quorum.calibrate_seconds.slowest", slowest, "s"
    rows = 200_000 if quick else 1_000_000
    votes = np.zeros((rows, 2), dtype=np.int64)
    votes[:, 1] = np.random.default_rng().integers(0, 2, size=rows) * 8000
    votes[:, 0] = 8000 - votes[:, 1]
    times = [_seconds(lambda: made.open().answers(votes)) for _ in range(7)]
    bare = [_seconds(lambda: votes.argmax(axis=1)) for _ in range(7)]
    yield "quorum.answers_per_second", rows / median(times), "1/s"
    yield "quorum.time_over_bare_argmax", median(times) / median(bare), "ratio"


def _threshold_figures(quick: bool) -> Iterator[Figure]:
    target = {"epsilon": 1.0, "delta": 1e-6, "teachers": 100_000}
    for allowed in (5, 20, 100, 1000):
        distance = BetweenThresholds.calibrate(**target, no_quorums=allowed).distance()  # type: ignore[arg-type]
        yield f"between_thresholds.distance.c{allowed}", distance, "ballots"
    tight = StabilityTest.calibrate(**target, no_quorums=20)  # type: ignore[arg-type]
    paper = StabilityTest.calibrate(**target, no_quorums=20, queries=1000, calibration="paper")  # type: ignore[arg-type]
    yield "stability.distance.c20", tight.distance(), "ballots"
    yield "stability.paper_distance.c20", paper.distance(), "ballots"


def _maximum_figures(quick: bool) -> Iterator[Figure]:
    for queries in (1000, 100_000):
        made = NoisyMax.calibrate(epsilon=1.0, delta=1e-6, teachers=8000, classes=10, queries=queries)
        yield f"noisy_max.distance.queries{queries}", made.distance(), "ballots"
    for queries in (1000, 100_000):
        sharp = SharpMajority.calibrate(epsilon=1.0, delta=1e-6, teachers=8000, queries=queries)
        yield f"sharp_majority.distance.queries{queries}", sharp.distance(), "ballots"
    noisy = NoisyMax.calibrate(epsilon=1.0, delta=1e-6, teachers=8000, classes=2, queries=100_000)
    yield "sharp_majority.distance_over_noisy_max.queries100000", sharp.distance() / noisy.distance(), "ratio"
    share = NoisyMax(teachers=250, classes=10, scale=40.0).renyi(8.0) / (8.0 / 40.0**2)
    yield "noisy_max.winner_share", share, "ratio"


def _pate_figures(quick: bool) -> Iterator[Figure]:
    for name, classes, threshold, test_scale, queries in (
        ("mnist", 10, 200, 150.0, 640),
        ("adult", 2, 300, 200.0, 1500),
    ):
        path = data_folder() / "pate2018" / f"{name}_250_teachers.npy"
        made = ConfidentMax(
            teachers=250, classes=classes, threshold=threshold, test_scale=test_scale, winner_scale=40.0
        )
        epsilon = None
        if path.exists():
            counts, queries_at = np.unique(np.load(path)[:queries].max(axis=1), return_counts=True)
            answered = sum(made.answer_probability(int(u)) * int(n) for u, n in zip(counts, queries_at, strict=True))
            epsilon = made.epsilon(delta=1e-5, queries=queries, answered=answered)
        yield f"confident_max.epsilon.{name}", epsilon, "epsilon"


def _noise_figures(quick: bool) -> Iterator[Figure]:
    for law in ("laplace", "gaussian"):
        yield f"noise.{law}_per_second", noise_draws_per_second(law, draws=20_000 if quick else 100_000), "1/s"


def _learner_figures(quick: bool) -> Iterator[Figure]:
    fitting = fitting_figures(teachers=2000, loop=60, queries=300) if quick else fitting_figures()
    yield "learners.logistic_times_faster_than_a_loop", fitting.times_faster, "ratio"
    yield "learners.ballots_equal_to_scikit_learn", fitting.agreement, "share"
    counting = counting_figures(teachers=2000, queries=20_000) if quick else counting_figures()
    yield "learners.counting_share_of_bare_product", counting.speed_share, "ratio"
    yield "learners.counting_peak_bytes", float(counting.peak_bytes), "bytes"


_PARTS = {
    "mechanisms": (_quorum_figures, _threshold_figures, _maximum_figures, _pate_figures, _noise_figures),
    "classifier": (_learner_figures, overhead_figures, auto_figures, student_figures),
    "concepts": (selection_figures, semi_private_figures, stability_figures, theory_figures),
    "service": (service_figures,),
    "everlasting": (everlasting_figures,),
    "release": (adult_figures, cover_figures, front_figures, peer_figures),
    "audit": (audit_figures,),
}


def _judge(bench: str, figure: Figure) -> dict[str, Any]:
    name, value, unit = figure
    bar = BARS[bench][name]
    holds: bool | None = None
    if value is not None and bar is not None:
        holds = value <= bar[1] if bar[0] == "<=" else value >= bar[1]
    shown = None if value is None else float(value)
    return {"name": name, "value": shown, "unit": unit, "bar": f"{bar[0]} {bar[1]:g}" if bar else None, "holds": holds}


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "platform": platform.platform(terse=True),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def run_bench(name: str, *, quick: bool, as_json: bool) -> int:
    """Measure, print, and return 1 if a figure misses its bar. A figure whose data is absent is reported as missing.

    >>> sorted(_PARTS)
    ['audit', 'classifier', 'concepts', 'everlasting', 'mechanisms', 'release', 'service']
    """
    figures = []
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=as_json or not console.is_terminal) as progress:
        task = progress.add_task(name, total=len(_PARTS[name]))
        for part in _PARTS[name]:
            figures += [_judge(name, figure) for figure in part(quick)]
            progress.advance(task)
    if as_json:
        print(json.dumps({"figures": figures, "machine": _machine()}, indent=2))
    else:
        numbers = [Column(title, no_wrap=True) for title in ("value", "unit", "bar", "holds")]
        table = Table(Column("figure", overflow="fold"), *numbers, title=f"quorate bench {name}")
        for figure in figures:
            value = "no data" if figure["value"] is None else f"{figure['value']:,.6g}"
            verdict = {True: "yes", False: "NO", None: "-"}[figure["holds"]]
            table.add_row(figure["name"], value, figure["unit"], figure["bar"] or "-", verdict)
        Console().print(table)
    return 1 if any(figure["holds"] is False for figure in figures) else 0
