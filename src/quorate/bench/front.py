"""What QueryRelease and OnlineRelease promise beside their engines: synthetic records, the price of a good start."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from quorate.bench.release import adult_columns
from quorate.concepts import Boxes, Halfspaces, Threshold, Thresholds
from quorate.release import Columns, OnlineRelease, QueryRelease, Workload
from quorate.release.queries import Floats, Rows

__all__ = ["front_figures"]

Figure = tuple[str, float | None, str]


def front_figures(quick: bool) -> Iterator[Figure]:
    """Yield each figure: its name, its value (None where its data are missing), its unit.

    >>> front_figures.__name__
    'front_figures'
    """
    yield from _synthetic_figures(quick)
    yield from _online_figures(quick)


def _synthetic_figures(quick: bool) -> Iterator[Figure]:
    """The error of synthetic records over the release's own, against the true answers: at most 2 is promised."""
    chance = np.random.default_rng(1)
    size = 20_000 if quick else 100_000
    line = QueryRelease(Thresholds()).fit(records := chance.standard_cauchy(size), chance.standard_cauchy(1000))
    yield "release.synthetic.thresholds_ratio", _ratio(line, records), "ratio"
    points, known = chance.normal(size=(size, 2)), chance.normal(size=(20 if quick else 40, 2))
    yield "release.synthetic.boxes_ratio", _ratio(QueryRelease(Boxes(2)).fit(points, known), points), "ratio"
    planes = QueryRelease(Halfspaces(2)).fit(points, known[: 12 if quick else 20])
    yield "release.synthetic.halfspaces_ratio", _ratio(planes, points), "ratio"
    yield "release.synthetic.adult_ratio", _adult_ratio(), "ratio"


def _ratio(release: QueryRelease, records: Any) -> float:
    truth, own = _shares(release, records), _released(release)
    return float(np.abs(_shares(release, release.synthetic()) - truth).max() / np.abs(own - truth).max())


def _shares(release: QueryRelease, records: Any) -> Floats:
    """Return the true shares of some records, which are simulated or public here."""
    sealed, count = release.domain_.seal(records)
    answers: Floats = sealed.put_to(release.domain_.queries.answers) / count
    return answers


def _released(release: QueryRelease) -> Floats:
    return release.released_.some(release.domain_.queries, np.arange(release.domain_.queries.count))


def _adult_ratio() -> float | None:
    """Return the ratio for all 3-way marginals of seven columns of Adult, None where the data are not here."""
    from quorate.bench.mechanisms import data_folder

    folder = data_folder() / "adult_release"
    if not (folder / "adult7.csv.gz").is_file():
        return None
    sizes, codes = adult_columns(folder, "adult7")
    declared = Columns.from_dict({f"c{place}": [str(code) for code in range(size)] for place, size in enumerate(sizes)})
    dealt = np.random.default_rng(0).permutation(len(codes))
    tables = [
        {f"c{place}": codes[part, place].astype(str).tolist() for place in range(len(sizes))}
        for part in (dealt[len(codes) // 10 :], dealt[: len(codes) // 10])
    ]
    release = QueryRelease(Workload.marginals(3), columns=declared).fit(*tables)
    assert isinstance(release.domain_.public(), Rows)
    return _ratio(release, tables[0])


def _online_figures(quick: bool) -> Iterator[Figure]:
    """What a good public start pays, and how fast queries are answered."""
    chance = np.random.default_rng(2)
    private, public = chance.normal(size=130_000), chance.normal(size=20_000)
    online = OnlineRelease(Thresholds(), epsilon=1.0, delta=1e-6, alpha=0.05).fit(private, public)
    queries = [Threshold(float(cut)) for cut in chance.normal(size=500 if quick else 5000)]
    began = time.perf_counter()
    answers = online.ask(queries)
    seconds = time.perf_counter() - began
    truth = 1.0 - np.searchsorted(np.sort(private), [query.cut for query in queries]) / len(private)
    yield "release.online.opening_epsilon", online.opening_epsilon_, "epsilon"
    yield "release.online.paid_with_a_good_start", float(online.paid_), "answers"
    yield "release.online.largest_error", float(np.abs([one.answer for one in answers] - truth).max()), "share"
    yield "release.online.payable", float(online.payable_), "answers"
    yield "release.online.queries_per_second", len(queries) / seconds, "queries/s"
    bad = OnlineRelease(Thresholds(), epsilon=1.0, delta=1e-6, alpha=0.05).fit(private, public + 0.7)
    answers = bad.ask(queries)
    yield "release.online.paid_with_a_bad_start", float(bad.paid_), "answers"
    yield (
        "release.online.largest_error_bad_start",
        float(np.abs([one.answer for one in answers] - truth).max()),
        "share",
    )
