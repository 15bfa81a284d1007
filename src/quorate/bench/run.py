"""Which figures each bench measures, and whether they hold against their bars."""

import platform
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from quorate.bench.audit import audit_figures
from quorate.bench.auto import auto_figures
from quorate.bench.bars import bar_of
from quorate.bench.concepts import selection_figures, semi_private_figures, stability_figures, theory_figures
from quorate.bench.cover import cover_figures
from quorate.bench.everlasting import everlasting_figures
from quorate.bench.figures import Bar, Figure
from quorate.bench.held_out import held_out_figures
from quorate.bench.learners import learner_figures
from quorate.bench.learning_peers import learning_peer_figures
from quorate.bench.linear import linear_figures
from quorate.bench.mechanisms import mechanism_figures
from quorate.bench.neighbours import neighbour_figures
from quorate.bench.overhead import overhead_figures
from quorate.bench.peers import peer_figures
from quorate.bench.release import adult_figures, front_figures
from quorate.bench.release_growing import growing_figures
from quorate.bench.release_learning import learning_figures
from quorate.bench.release_tables import table_figures
from quorate.bench.scale import scale_figures
from quorate.bench.scale_clusters import cluster_figures
from quorate.bench.scale_gpu import gpu_figures
from quorate.bench.scale_reading import reading_figures
from quorate.bench.scale_sites import site_figures
from quorate.bench.scores import score_figures
from quorate.bench.service import service_figures
from quorate.bench.service_callers import caller_figures
from quorate.bench.service_operation import operation_figures
from quorate.bench.students import student_figures
from quorate.bench.teachers import teacher_figures
from quorate.core.rows import usable_cores

__all__ = ["BENCHES", "judge", "machine", "measure"]

BENCHES: dict[str, tuple[Callable[[bool], Iterator[Figure]], ...]] = {
    "mechanisms": (mechanism_figures,),
    "classifier": (
        learner_figures,
        overhead_figures,
        auto_figures,
        teacher_figures,
        student_figures,
        score_figures,
        held_out_figures,
    ),
    "concepts": (selection_figures, semi_private_figures, stability_figures, theory_figures),
    "models": (linear_figures,),
    "neighbours": (neighbour_figures,),
    "service": (service_figures, caller_figures, operation_figures),
    "everlasting": (everlasting_figures,),
    "release": (
        adult_figures,
        table_figures,
        learning_figures,
        growing_figures,
        cover_figures,
        front_figures,
        peer_figures,
        learning_peer_figures,
    ),
    "audit": (audit_figures,),
    "scale": (scale_figures, reading_figures, gpu_figures, cluster_figures, site_figures),
}


def measure(bench: str, *, quick: bool) -> Iterator[dict[str, Any]]:
    """Yield each figure of a bench as soon as it is measured, with its bar and whether it holds."""
    for part in BENCHES[bench]:
        for figure in part(quick):
            yield judge(figure, bar_of(bench, figure[0], quick=quick))


def judge(figure: Figure, bar: Bar | None) -> dict[str, Any]:
    """Return a figure and its bar as JSON has them; `holds` is None where one of the two is missing."""
    name, value, unit = figure
    shown = None if value is None else float(value)  # NumPy's numbers are none of JSON's
    holds: bool | None = None
    if shown is not None and bar is not None:
        holds = shown <= bar[1] if bar[0] == "<=" else shown >= bar[1]
    return {"name": name, "value": shown, "unit": unit, "bar": f"{bar[0]} {bar[1]:g}" if bar else None, "holds": holds}


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    return {
        "cores": usable_cores(),
        "platform": platform.platform(terse=True),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
