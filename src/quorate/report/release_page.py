"""The page of a release: what was released, and how good the same run is on simulated records.

The simulated records are synthetic ones, made of what was released: their true answers are known and nobody's secret,
so that the engine can be run on them again, at several epsilons, and held against the truth. Nothing is spent.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.errors import QuorateError
from quorate.release import QueryRelease
from quorate.release.engines import ENGINES, expected_errors
from quorate.release.people import RECORD
from quorate.release.utility import Utility, release_again
from quorate.release.workloads.bound import MarginalWorkload
from quorate.report import Claim, software_versions
from quorate.report.release import ReleaseReport, write_release_report
from quorate.report.words import percent

__all__ = ["release_bill", "simulate_release", "write_report_of"]

_EPSILONS = (0.1, 0.3, 1.0, 3.0)
_MOST_ROWS = 200_000  # simulated
_MOST_POINTS = 1500  # of the plot of answers against the truth
_SHOWN = 20  # answers on the page
_PATIENCE = 5.0  # seconds of a run that is repeated for the plot against epsilon
_PROOFS = {
    "quorate/release/PROOF.md": "cells are public, counts are taken once, the engine pays, the rest is post-processing",
    "quorate/release/engines/PROOF.md": "what each engine measures, and what that costs",
    "quorate/core/mechanisms/PROOF_noisy_vector.md": "a vector of counts with discrete Gaussian noise",
}


def release_bill(release: QueryRelease) -> dict[str, Any]:
    """Return the figures of a release: public or released, but for `seconds`, which is for who ran it alone."""
    queries = release.domain_.queries
    return {
        "claim": release.claim_,
        "privacy_unit": release.unit_,
        "epsilon": release.budget_.epsilon,
        "delta": release.budget_.delta,
        "epsilon_spent": release.budget_.spent_epsilon(),
        "records": release.records_,
        "queries": queries.count,
        "cells": queries.cells,
        "engine": release.engine_,
        "expected_error": release.expected_error_,
        "engine_error_bound": release.engine_error_bound(0.025),
        "cover_error_bound": release.domain_.share(0.025),
        "seconds": release.seconds_,
        "notes": list(release.notes_),
    }


def simulate_release(release: QueryRelease, *, epsilon: float) -> tuple[Floats, Floats, tuple[Floats, Floats], float]:
    """Run the same release on its own synthetic records: return true shares, answers, their intervals, the seconds."""
    rows = min(release.records_, _MOST_ROWS)
    records = release.synthetic(rows)
    queries = release.domain_.queries
    again = release_again(release, records, epsilon=epsilon)
    which = np.arange(queries.count)
    if queries.count > _MOST_ROWS:
        which = np.unique(np.linspace(0, queries.count - 1, _MOST_ROWS).astype(np.int64))
    truth = again.domain_.seal(records)[0].put_to(lambda counted: queries.some(which, counted)) / rows  # nobody's
    answers, (low, high) = again.released_.some(queries, which), again.released_.intervals(queries, rows)
    ends = (low[which], high[which]) if low.size else (answers, answers)  # too many to list: no noise is known
    return truth, answers, ends, again.seconds_


def write_report_of(release: QueryRelease, path: Path, utility: Utility | None = None) -> Path:
    """Write the page of a release, with figures from simulated records, and what it is worth if that is known."""
    bill = release_bill(release)
    began = time.perf_counter()
    truth, errors, again = _simulated(release)
    timing = {  # of simulated records: how long private ones took is not shown
        "the same release on simulated records": again,
        "all simulations for this page": time.perf_counter() - began,
    }
    known = release.domain_.public()
    outlook = expected_errors(
        release.domain_.queries,
        records=release.records_,
        epsilon=release.budget_.epsilon,
        delta=release.budget_.delta,
        public=known,
    )
    answers, more = _answers(release)
    by_record = release.unit_ == RECORD
    replaced = "one private record replaced by any other" if by_record else "all records of one person replaced"
    data = ReleaseReport(
        title="A private release of answers",
        claim=Claim(
            epsilon=release.budget_.epsilon,
            delta=release.budget_.delta,
            unit=release.unit_,
            neighbours=f"{replaced}; their number is public",
        ),
        cards=_cards(release),
        bill={
            name: value
            for name, value in bill.items()
            if name not in ("notes", "claim", "seconds") and value is not None
        },
        engines=list(outlook.items()),
        engine=release.engine_,
        truth=truth,
        errors=errors,
        utility=() if utility is None else utility.summary().splitlines(),
        source="synthetic records, made of what was released",
        shares=_shares(release),
        answers=answers,
        more=more,
        timing=timing,
        proofs=_PROOFS,
        software=software_versions(),
        notes=(bill["claim"] + ".", *release.notes_),
    )
    return write_release_report(data, path)


def _cards(release: QueryRelease) -> dict[str, str]:
    cards = {
        "queries answered": f"{release.domain_.queries.count:,}",
        "private records" if release.unit_ == RECORD else "people": f"{release.records_:,}",
        "expected largest error": percent(release.expected_error_, 2),
    }
    cover = release.domain_.share(0.05)
    return cards | ({"error of the cover, at most": percent(cover, 2)} if cover else {})  # a workload has none


def _shares(release: QueryRelease) -> list[tuple[str, list[tuple[str, float]]]]:
    """Return each column of a workload of marginals with the share of each value, added up from released answers."""
    asked = release.domain_.asked
    if not isinstance(asked, MarginalWorkload):
        return []
    queries, columns, shares = asked.queries, asked.columns, []
    for place, name in enumerate(columns.names):
        clique = next(number for number, members in enumerate(queries.cliques) if place in members)
        answers, _ = release.read(np.arange(queries.offsets[clique], queries.offsets[clique + 1]))
        others = tuple(axis for axis, member in enumerate(queries.cliques[clique]) if member != place)
        sums = answers.reshape(queries.shapes[clique]).sum(axis=others)
        shares.append((name, [(columns.cells[name].name(code), float(share)) for code, share in enumerate(sums)]))
    return shares


def _simulated(release: QueryRelease) -> tuple[list[Any], list[Any], float]:
    """Return points of answers against the truth, of the largest error against epsilon, and the seconds of a run."""
    truth, answers, ends, seconds = simulate_release(release, epsilon=release.budget_.epsilon)
    step = max(1, len(truth) // _MOST_POINTS)
    low, high = (np.where(np.isnan(end), answers, end) for end in ends)
    points = [tuple(map(float, point)) for point in np.stack([truth, answers, low, high], axis=1)[::step]]
    errors = []
    if seconds <= _PATIENCE:
        for epsilon in sorted({*_EPSILONS, release.budget_.epsilon}):
            try:
                true, answered, _, _ = simulate_release(release, epsilon=epsilon)
            except QuorateError:  # too small an epsilon for this engine
                continue
            errors.append((epsilon, float(np.abs(true - answered).max()), _expected(release, epsilon)))
    return points, errors, seconds


def _expected(release: QueryRelease, epsilon: float) -> float:
    engine = ENGINES[release.engine_]
    settings: dict[str, Any] = {"records": min(release.records_, _MOST_ROWS), "delta": release.budget_.delta}
    return engine.expected_error(release.domain_.queries, epsilon=epsilon, public=release.domain_.public(), **settings)


def _answers(release: QueryRelease) -> tuple[list[dict[str, Any]], int]:
    """Return the first answers, and how many more there are."""
    try:
        every = release.domain_.every()
    except QuorateError:
        return [], 0
    table = release.answer(every[:_SHOWN])
    shown = table.select(["query", "answer", "error", "low", "high"]).to_pylist()
    return shown, max(0, len(every) - len(shown))
