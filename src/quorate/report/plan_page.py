"""The page of a plan: what each engine is expected to do, from public numbers alone."""

from pathlib import Path

from quorate.release.plan import ReleasePlan
from quorate.report import Claim, software_versions
from quorate.report.release import ReleaseReport, write_release_report
from quorate.report.words import percent

__all__ = ["plan_report", "write_plan_report"]


def plan_report(plan: ReleasePlan) -> ReleaseReport:
    """Return what the page of a plan shows."""
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
        software=software_versions(),
        notes=plan.published,
    )


def write_plan_report(plan: ReleasePlan, path: Path) -> Path:
    """Write the page of a plan."""
    return write_release_report(plan_report(plan), path)
