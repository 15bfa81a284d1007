"""Query release measured on UCI Adult.

Nothing is tuned to these data: the trust in public records is what a sample of the same population deserves, and is
halved until large cells lie as near to their noisy answers as it foresees; the rule was chosen on simulated
populations. The noise is that of the best strategy for the workload. All of it is in `quorate.release.engines`.
"""

import csv
import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from quorate.privacy import Budget
from quorate.release.engines import Released, choose_engine
from quorate.release.queries import Marginals, Queries, Rows

__all__ = ["adult_columns", "adult_figures", "adult_split"]

Figure = tuple[str, float | None, str]

_EPSILONS = {"epsilon1": 1.0, "epsilon01": 0.1}
_DELTA = 1e-6
_SEEDS, _REPEATS = 3, 3
_MANY_REPEATS = 9  # of the 7 columns, which are quick: a median of nine is above its bar by chance in 4 runs of 100


def adult_columns(folder: Path, name: str, part: str = "") -> tuple[tuple[int, ...], Any]:
    """Return the sizes of the columns and the codes of one file of Adult, in the order of its domain.

    >>> adult_columns.__name__
    'adult_columns'
    """
    domain = json.loads((folder / f"{name}_domain.json").read_text())
    with gzip.open(folder / f"{name}{part}.csv.gz", "rt", newline="") as file:
        lines = csv.reader(file)
        header = next(lines)
        codes = np.array([[int(value) for value in line] for line in lines], dtype=np.int64)
    return tuple(domain.values()), codes[:, [header.index(column) for column in domain]]


def adult_split(folder: Path, split: int) -> tuple[Marginals, Rows, Rows]:
    """Return all 3-way marginals of the 7 columns, nine tenths of the records as private and the rest as public.

    >>> adult_split.__name__
    'adult_split'
    """
    sizes, codes = adult_columns(folder, "adult7")
    dealt = np.random.default_rng(split).permutation(len(codes))
    public = len(codes) // 10
    return Marginals.of_order(sizes, 3), Rows(codes[dealt[public:]], sizes), Rows(codes[dealt[:public]], sizes)


def _run(
    queries: Queries, private: Rows, public: Rows, *, engine: str, epsilon: float
) -> tuple[float, float, Released]:
    """Return the largest error, the seconds of the fit and the release of one run with system noise."""
    start = time.perf_counter()
    chosen = choose_engine(
        queries, records=private.records, epsilon=epsilon, delta=_DELTA, public=public, engine=engine
    )
    budget = Budget(epsilon=epsilon, delta=_DELTA, slack=0.0)
    released = chosen.run(queries, private, public=public, budget=budget)
    seconds = time.perf_counter() - start
    truth = queries.answers(private) / private.records
    found = released.answers if released.answers is not None else np.zeros(queries.count)
    return float(np.abs(found - truth).max()), seconds, released


def adult_figures(quick: bool) -> Iterator[Figure]:
    """Measure the largest error over all marginals and the slowest fit: medians of releases of three splits.

    Each split is released nine times, with `quick` three times. The 15 columns come in fixed parts: nine releases, or
    three, of the same records. A single release is above the median by up to a fifth: noise is never seeded.
    The far public part must be refuted in every run: that figure is the share of the runs in which it was.

    >>> adult_figures.__name__
    'adult_figures'
    """
    from quorate.bench.mechanisms import data_folder  # which imports this module

    folder = data_folder() / "adult_release"
    if not folder.exists():
        yield from ((name, None, unit) for name, unit in _names())
        return
    slowest = 0.0
    splits = [adult_split(folder, seed) for seed in range(_SEEDS)] * (_REPEATS if quick else _MANY_REPEATS)
    releases = _SEEDS * (1 if quick else _REPEATS)
    for label, epsilon in _EPSILONS.items():
        runs = [_run(*split, engine="auto", epsilon=epsilon) for split in splits]
        plain = [_run(*split, engine="plain", epsilon=epsilon) for split in splits]
        slowest = max(slowest, *(run[1] for run in runs))
        yield f"release.adult7.{label}.largest_error", median(run[0] for run in runs), "share"
        yield f"release.adult7.{label}.plain_largest_error", median(run[0] for run in plain), "share"
    sizes, codes = adult_columns(folder, "adult15", "_private")
    queries, private = Marginals.of_order(sizes, 2), Rows(codes, sizes)
    far = []
    for label, epsilon in _EPSILONS.items():
        plain = [_run(queries, private, private, engine="plain", epsilon=epsilon) for _ in range(releases)]
        yield f"release.adult15.{label}.plain_largest_error", median(run[0] for run in plain), "share"
        for part in ("near", "shifted", "far"):
            public = Rows(adult_columns(folder, "adult15", f"_public_{part}")[1], sizes)
            runs = [_run(queries, private, public, engine="auto", epsilon=epsilon) for _ in range(releases)]
            slowest = max(slowest, *(run[1] for run in runs))
            error = median(run[0] for run in runs)
            yield f"release.adult15.{part}.{label}.largest_error", error, "share"
            if part != "near":
                ratio = error / median(run[0] for run in plain)
                yield f"release.adult15.{part}.{label}.over_plain", ratio, "ratio"
            if part == "far":
                far += [run[2].details.get("refuted", 0.0) for run in runs]
    yield "release.adult15.far.refuted", float(np.mean(far)), "share"
    yield "release.adult.fit_seconds.slowest", slowest, "s"


def _names() -> list[tuple[str, str]]:
    """Return the names and units of the figures, for where the data are absent."""
    names = []
    for label in _EPSILONS:
        names += [f"release.adult7.{label}.largest_error", f"release.adult7.{label}.plain_largest_error"]
    for label in _EPSILONS:
        names += [f"release.adult15.{label}.plain_largest_error", f"release.adult15.near.{label}.largest_error"]
        for part in ("shifted", "far"):
            names += [f"release.adult15.{part}.{label}.{end}" for end in ("largest_error", "over_plain")]
    units = [(name, "ratio" if name.endswith("over_plain") else "share") for name in names]
    return [*units, ("release.adult15.far.refuted", "share"), ("release.adult.fit_seconds.slowest", "s")]
