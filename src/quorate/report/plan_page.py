"""The page of a plan: what each engine is expected to do, and how errors fall with records, public points and epsilon.

All of it is made of public numbers and of simulated records, drawn for the page: no private record is read.
"""

import sys
from pathlib import Path

from quorate.bench.cover_sweeps import crossover, line_errors
from quorate.models.concepts import Thresholds
from quorate.release.plan import ReleasePlan, plan_release
from quorate.report import Claim, software_versions
from quorate.report.drawing import standing_alone
from quorate.report.release import ReleaseReport, write_release_report
from quorate.report.release_plots import plot_crossover, plot_public_size
from quorate.report.words import percent

__all__ = ["FEATURES", "plan_report", "write_plan_report", "write_plots"]

FEATURES = 100  # binary columns of the stumps
_RECORDS = 2_000  # of the stumps
_LINE_RECORDS = 100_000  # of the thresholds
_POINTS = (10, 30, 100, 300, 1000, 3000)


def plan_report(plan: ReleasePlan) -> ReleaseReport:
    """Return what the page of a plan shows."""
    line = [line_errors(Thresholds(), records=_LINE_RECORDS, points=size, world=size) for size in _POINTS]
    stages = crossover(features=FEATURES, records=_RECORDS, points=_POINTS, seeds=3)
    needed = {"private_records_needed": plan.private_needed, "public_records_needed": plan.public_needed}
    bill = {
        "about": plan.subject,
        "private_records": plan.records,
        "public_records": plan.public,
        "queries": plan.queries,
        "cells": plan.cells,
        "error_asked_for": plan.alpha,
        "expected_error_of_the_engine": plan.error,
        "error_of_the_cover": plan.cover,
        "public_records_alone_if_a_fair_sample": plan.public_alone,
        "feasible": "yes" if plan.feasible else "no",
        **needed,
    }
    return ReleaseReport(
        title="A plan for a private release",
        planned=True,
        claim=Claim(
            epsilon=plan.epsilon,
            delta=plan.delta,
            unit="record",
            neighbours="one private record replaced by any other; their number is public",
        ),
        cards={
            "expected largest error": percent(plan.error, 2),
            "error of the cover": percent(plan.cover, 2),
            "engine": plan.engine.replace("_", " "),
            "within what was asked": "yes" if plan.feasible else "no",
        },
        bill={name: value for name, value in bill.items() if value is not None},
        engines=[(one.engine, one.error) for one in plan.engines],
        engine=plan.engine,
        sentences=plan.sentences,
        sizes=[(stage.points, stage.of_cover, stage.of_engine) for stage in line],
        crossover=[(stage.points, stage.private, stage.both, stage.public) for stage in stages],
        crossover_words=f"{FEATURES} binary columns, {_RECORDS:,} private records, epsilon 1",
        source=f"simulated records ({_LINE_RECORDS:,} of a heavy-tailed law, thresholds, epsilon 1)",
        software=software_versions(),
        notes=plan.published,
    )


def write_plan_report(plan: ReleasePlan, path: Path) -> Path:
    """Write the page of a plan."""
    return write_release_report(plan_report(plan), path)


def write_plots(folder: Path) -> list[Path]:
    """Draw the plots of docs/howto/release.md anew: some seconds, on simulated records."""
    data = plan_report(plan_release(Thresholds(), records=_LINE_RECORDS, public=1000))
    target = folder / "release"
    target.mkdir(parents=True, exist_ok=True)
    drawn = {
        "stumps": plot_crossover(data.crossover, data.crossover_words),
        "public-size": plot_public_size(data.sizes, data.source),
    }
    paths = []
    for name, plot in drawn.items():
        paths.append(target / f"{name}.svg")
        paths[-1].write_text(standing_alone(plot.svg), encoding="utf-8")
    return paths


if __name__ == "__main__":
    for path in write_plots(Path(sys.argv[1])):
        print(path)
