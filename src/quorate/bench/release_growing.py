"""Tables that grow: the error of 24 monthly updates over that of a single release with the whole budget."""

import math
from collections.abc import Iterator
from statistics import mean
from typing import Any

import numpy as np

from quorate.bench.adult import adult_columns
from quorate.bench.figures import Figure, data_folder
from quorate.release import GrowingRelease, QueryRelease, Workload
from quorate.release.running_sums import best_running_sums

__all__ = ["growing_figures"]

_MONTHS = 24
_REPEATS = 3  # of both; with `quick` the growing one is made once


def growing_figures(quick: bool) -> Iterator[Figure]:
    """Yield the noise of an update over that of a single release, and the errors on Adult: 7 columns, all pairs."""
    sums = best_running_sums(_MONTHS)
    noise = max(sums.deviation(number) for number in range(1, _MONTHS + 1)) * math.sqrt(sums.squared_length)
    yield "release.growing.noise_over_single", noise, "ratio"
    folder = data_folder() / "adult_release"
    names = [f"release.growing.adult7.{which}_error_over_single" for which in ("mean", "largest")]
    if not (folder / "adult7.csv.gz").is_file():
        yield from ((name, None, "ratio") for name in names)
        return
    sizes, codes = adult_columns(folder, "adult7")
    columns = {f"c{place}": [str(code) for code in range(size)] for place, size in enumerate(sizes)}
    dealt = np.random.default_rng(0).permutation(len(codes))
    tables = [_table(codes[part]) for part in np.array_split(dealt, _MONTHS)]
    whole = _table(codes)
    single = [_errors(QueryRelease(Workload.marginals(2), columns=columns).fit(whole), whole) for _ in range(_REPEATS)]
    grown = []
    for _ in range(1 if quick else _REPEATS):
        release = GrowingRelease(Workload.marginals(2), columns=columns, updates=_MONTHS)
        for number, table in enumerate(tables, start=1):
            last = release.update(str(number), table)
        grown.append(_errors(last, whole))
    for place, name in enumerate(names):
        yield name, mean(errors[place] for errors in grown) / mean(errors[place] for errors in single), "ratio"


def _table(codes: Any) -> dict[str, list[str]]:
    return {f"c{place}": codes[:, place].astype(str).tolist() for place in range(codes.shape[1])}


def _errors(release: QueryRelease, records: Any) -> tuple[float, float]:
    """Return the mean and the largest error of all answers about records that are public here."""
    sealed, count = release.domain_.seal(records)
    answers = release.released_.some(release.domain_.queries, np.arange(release.domain_.queries.count))
    errors = np.abs(answers - sealed.put_to(release.domain_.queries.answers) / count)
    return float(errors.mean()), float(errors.max())
