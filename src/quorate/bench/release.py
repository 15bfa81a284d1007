"""Query release: its error on UCI Adult, its synthetic records, and the price of a good start online.

Nothing is tuned to Adult: the trust in public records is what a sample of the same population deserves, and is
halved until large cells lie as near to their noisy answers as it foresees; the rule was chosen on simulated
populations. The noise is that of the best strategy for the workload. All of it is in `quorate.release.engines`.
"""

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

from quorate.bench.adult import adult_columns, adult_split
from quorate.bench.figures import Figure, data_folder
from quorate.bench.release_tables import mean_distance
from quorate.core.arrays import Floats
from quorate.core.privacy import Budget
from quorate.models.concepts import Boxes, Halfspaces, Threshold, Thresholds
from quorate.release import Columns, OnlineRelease, QueryRelease, Workload
from quorate.release.engines import Released, choose_engine
from quorate.release.queries import Marginals, Queries, Rows

__all__ = ["adult_figures", "front_figures"]

_EPSILONS = {"epsilon1": 1.0, "epsilon01": 0.1}
_DELTA = 1e-6
_SEEDS, _REPEATS = 3, 5
_MANY_REPEATS = 9  # of the 7 columns, which are quick: a median of nine is above its bar by chance in 4 runs of 100
_PARTS = ("near", "shifted", "far")


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
    answers = released.answers if released.answers is not None else np.zeros(queries.count)
    return float(np.abs(answers - truth).max()), seconds, released


def adult_figures(quick: bool) -> Iterator[Figure]:
    """Measure the largest error over all marginals and the slowest fit: medians of releases of three splits.

    Each split is released nine times, with `quick` once. The 15 columns come in fixed parts: five releases, or one, of
    the same records; their errors with public records are compared with those without. A single release is above the
    median by up to a fifth: noise is never seeded.
    The far public part must be refuted in every run: that figure is the share of the runs in which it was.
    """
    folder = data_folder() / "adult_release"
    if not folder.exists():
        yield from ((name, None, unit) for name, unit in _names())
        return
    slowest = 0.0
    splits = [adult_split(folder, seed) for seed in range(_SEEDS)] * (1 if quick else _MANY_REPEATS)
    releases = 1 if quick else _REPEATS
    for label, epsilon in _EPSILONS.items():
        runs = [_run(*split, engine="auto", epsilon=epsilon) for split in splits]
        plain = [_run(*split, engine="plain", epsilon=epsilon) for split in splits]
        slowest = max(slowest, *(run[1] for run in runs))
        yield f"release.adult7.{label}.largest_error", median(run[0] for run in runs), "share"
        yield f"release.adult7.{label}.plain_largest_error", median(run[0] for run in plain), "share"
    sizes, codes = adult_columns(folder, "adult15", "_private")
    queries, private = Marginals.of_order(sizes, 2), Rows(codes, sizes)
    truth, far = queries.answers(private) / private.records, []
    for label, epsilon in _EPSILONS.items():
        plain = [_run(queries, private, private, engine="plain", epsilon=epsilon) for _ in range(releases)]
        yield f"release.adult15.{label}.plain_largest_error", median(run[0] for run in plain), "share"
        alone = [_run(queries, private, private, engine="residual", epsilon=epsilon) for _ in range(releases)]
        worst, distance = median(run[0] for run in alone), _distance(queries, truth, alone)
        yield f"release.adult15.{label}.alone_largest_error", worst, "share"
        for part in _PARTS:
            public = Rows(adult_columns(folder, "adult15", f"_public_{part}")[1], sizes)
            runs = [_run(queries, private, public, engine="auto", epsilon=epsilon) for _ in range(releases)]
            slowest = max(slowest, *(run[1] for run in runs))
            error = median(run[0] for run in runs)
            yield f"release.adult15.{part}.{label}.largest_error", error, "share"
            yield f"release.public.{part}.{label}.mean_over_alone", _distance(queries, truth, runs) / distance, "ratio"
            yield f"release.public.{part}.{label}.largest_over_alone", error / worst, "ratio"
            if part != "near":
                ratio = error / median(run[0] for run in plain)
                yield f"release.adult15.{part}.{label}.over_plain", ratio, "ratio"
            if part == "far":
                far += [run[2].details.get("refuted", 0.0) for run in runs]
    yield "release.adult15.far.refuted", float(np.mean(far)), "share"
    yield "release.adult.fit_seconds.slowest", slowest, "s"


def _distance(queries: Marginals, truth: Floats, runs: list[tuple[float, float, Released]]) -> float:
    """Return the median over runs of the mean total variation of a marginal."""
    return median(mean_distance(queries, run[2].answers, truth) for run in runs if run[2].answers is not None)


def _names() -> list[tuple[str, str]]:
    """Return the names and units of the figures, for where the data are absent."""
    names = []
    for label in _EPSILONS:
        names += [f"release.adult7.{label}.largest_error", f"release.adult7.{label}.plain_largest_error"]
    for label in _EPSILONS:
        names += [f"release.adult15.{label}.{which}_largest_error" for which in ("plain", "alone")]
        names.append(f"release.adult15.near.{label}.largest_error")
        names += [
            f"release.public.{part}.{label}.{which}_over_alone" for part in _PARTS for which in ("mean", "largest")
        ]
        for part in ("shifted", "far"):
            names += [f"release.adult15.{part}.{label}.{end}" for end in ("largest_error", "over_plain")]
    units = [(name, "ratio" if name.endswith(("over_plain", "over_alone")) else "share") for name in names]
    return [*units, ("release.adult15.far.refuted", "share"), ("release.adult.fit_seconds.slowest", "s")]


def front_figures(quick: bool) -> Iterator[Figure]:
    """Yield each figure: its name, its value (None where its data are missing), its unit."""
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
