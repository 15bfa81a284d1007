"""Answers as people use them: counts, marginals of marginals, bands that hold for a whole table."""

import math

import numpy as np
import pytest

from quorate import InvalidInput, QueryRelease, Workload
from quorate.auditing.replay import entropy_tape
from quorate.cli import main
from quorate.core.privacy import Budget
from quorate.models.concepts import Threshold, Thresholds
from quorate.release import Columns
from quorate.release.answers import widen_ends
from quorate.release.engines import ENGINES
from quorate.release.engines.base import around, half_interval
from quorate.release.queries import NOTHING, Marginals, Rows
from quorate.tables import Category, Number

COLUMNS = Columns({"sex": Category(["f", "m"]), "region": Category(["n", "s", "w"]), "age": Number(cuts=[18, 65])})


def people(rows, seed=0):
    chance = np.random.default_rng(seed)
    region = chance.choice(3, rows, p=[0.6, 0.3, 0.1])
    return {
        "sex": np.where(chance.random(rows) < 0.4 + 0.1 * region, "f", "m"),
        "region": np.array(["n", "s", "w"])[region],
        "age": chance.normal(30 + 10 * region, 15, rows),
    }


@pytest.fixture(scope="module")
def release():
    return QueryRelease(Workload.marginals(2), columns=COLUMNS, engine="residual").fit(people(20_000))


def test_a_marginal_of_fewer_columns_is_answered(release):
    table = release.answer([{"sex": "f"}, {"sex": "f", "region": "n"}, {"age": 30}])
    assert table["query"].to_pylist() == ["sex = f", "sex = f and region = n", "age = 18 to below 65"]
    truth = people(20_000)
    shares = [np.mean(truth["sex"] == "f"), np.mean((truth["sex"] == "f") & (truth["region"] == "n"))]
    shares.append(np.mean((truth["age"] >= 18) & (truth["age"] < 65)))
    errors = np.array(table["error"].to_pylist())
    assert bool((np.abs(table["answer"].to_numpy() - shares) < 8 * errors).all())  # far beyond 1e-6, were they Gaussian
    cells = [release.answer([{"sex": "f", "region": code}])["answer"][0].as_py() for code in ("n", "s", "w", None)[:3]]
    assert table["answer"][0].as_py() >= sum(cells) - 1e-9


def test_what_is_asked_of_no_column_is_refused(release):
    for asked in (
        {},
        {"height": 3},
        {"sex": []},
        {"age": [18, 40]},
        {"age": [65, 18]},
        {"age": [18]},
        {"sex": ["f", "x"]},
    ):
        with pytest.raises(InvalidInput):
            release.answer([asked])


def test_cells_are_added_up_between_two_cuts_and_over_a_list(release):
    truth = people(20_000)
    asked = {
        "age = 18 and above": ({"age": [18, None]}, truth["age"] >= 18),
        "age = below 65": ({"age": (None, 65)}, truth["age"] < 65),
        "sex = f and age = 18 to below 65": (
            {"sex": "f", "age": [18, 65]},
            (truth["sex"] == "f") & (truth["age"] >= 18) & (truth["age"] < 65),
        ),
        "region = n or w": ({"region": ["w", "n", "n"]}, truth["region"] != "s"),
        "region = n or w and age = below 18 or 65 and above": (
            {"region": ["n", "w"], "age": ["65 and above", "below 18"]},
            (truth["region"] != "s") & ((truth["age"] < 18) | (truth["age"] >= 65)),
        ),
    }
    table = release.answer([request for request, _ in asked.values()])
    for row, (name, (_, mask)) in zip(table.to_pylist(), asked.items(), strict=True):
        assert row["query"] == name
        assert row["low"] <= row["answer"] <= row["high"]
        assert abs(row["answer"] - mask.mean()) < 8 * row["error"]


def test_intervals_of_sums_of_cells_hold():
    """Sums over some cells of two columns, whose errors go together: over 60 releases, with seeded noise."""
    sizes, held, asked = (5, 6), 0, 0
    rows = Rows(np.random.default_rng(0).integers(0, 5, (2_000, 2)), sizes)
    queries = Marginals.of_order(sizes, 2)
    truth = queries.answers(rows) / 2_000
    runs = np.array([[0, 1, 2], [0, 6, 12], [7, 8, 13], [0, 12, 24]])
    for seed in range(60):
        with entropy_tape(seed):
            released = ENGINES["residual"].run(queries, rows, budget=Budget(epsilon=1.0, delta=1e-6, slack=0.0))
        starts, parts = np.arange(0, 12, 3), (runs.ravel(), np.full(12, NOTHING))
        _, high = released.ends(queries, np.zeros(4), parts, starts, records=2_000)
        sums = np.add.reduceat(released.unbiased[runs.ravel()], starts)
        true = np.add.reduceat(truth[runs.ravel()], starts)
        held, asked = held + int((np.abs(sums - true) <= high - sums).sum()), asked + 4
    assert held / asked > 0.92  # of 240 that hold with 95%: below by chance once in 60


def test_differences_and_ratios_have_intervals_that_hold(release):
    truth = people(20_000)
    women, north = truth["sex"] == "f", truth["region"] == "n"
    asked, others = [{"sex": "f", "region": "n"}, {"region": "n"}], [{"region": "n"}, {"region": ["s", "w"]}]
    true = np.array([[np.mean(women & north), np.mean(north)], [np.mean(north), np.mean(~north)]])
    for by, expected in (("difference", true[0] - true[1]), ("ratio", true[0] / true[1])):
        table = release.compare(asked, others, by=by)
        assert table.column_names == ["query", "compared", "answer", "low", "high"]
        low, high = table["low"].to_numpy(), table["high"].to_numpy()
        assert bool(((low <= expected) & (expected <= high) & (high - low < 0.1)).all())
    [none] = release.compare({"sex": "f"}, {"sex": None}, by="ratio").to_pylist()
    assert none["high"] is None, "a ratio to a share that may be 0 has no upper end"
    for wrong in ({"others": [{"sex": "f"}, {"sex": "m"}]}, {"others": {"sex": "m"}, "by": "sum"}):
        with pytest.raises(InvalidInput):
            release.compare({"sex": "f"}, **wrong)


def test_an_interval_with_a_smaller_miss_holds_around_any_point_inside():
    unbiased, noise = 0.5, 0.01
    for answer in (0.4, 0.49, 0.5, 0.6):
        low, high = around(np.array([answer]), np.array([unbiased]), half_interval(np.array([noise])))
        [wide_low], [wide_high] = widen_ends(low, high, 2.0)
        assert wide_low <= unbiased - 2.2414 * noise
        assert wide_high >= unbiased + 2.2414 * noise


def test_more_columns_than_were_measured_are_read_off_the_fitted_table_with_a_warning(release):
    truth, asked = people(20_000), {"sex": "f", "region": "n", "age": [18, 65]}
    true = np.mean((truth["sex"] == "f") & (truth["region"] == "n") & (truth["age"] >= 18) & (truth["age"] < 65))
    with pytest.warns(UserWarning, match="3 columns were not measured together"):
        first, beyond, last = release.answer([{"sex": "f"}, asked, {"sex": "m"}]).to_pylist()
    assert beyond["query"] == "sex = f and region = n and age = 18 to below 65"
    assert abs(beyond["answer"] - true) < 0.03
    assert (beyond["low"], beyond["error"]) == (0.0, None)
    assert true <= beyond["high"] <= 0.4
    assert [first["query"], last["query"]] == ["sex = f", "sex = m"]
    with pytest.warns(UserWarning, match="3 columns"):
        [banded] = release.answer([asked], band=0.999).to_pylist()
    assert banded["high"] > beyond["high"]  # holds together with all other answers
    plain = QueryRelease(Workload.marginals(1), columns=COLUMNS, engine="plain").fit(people(500))
    with pytest.raises(InvalidInput, match="no fitted table"):
        plain.answer([{"sex": "f", "age": 3}])


def test_a_share_errs_by_at_most_1_and_a_large_delta_is_said():
    release = QueryRelease(Workload.marginals(1), columns=COLUMNS, engine="plain", epsilon=0.1, delta=0.01)
    table = release.fit(people(101)).answer()
    assert max(table["error"].to_pylist()) <= 1.0
    assert any("delta = 0.01 is above 1 / 101" in note for note in release.notes_)
    assert not QueryRelease(Workload.marginals(1), columns=COLUMNS, engine="plain").fit(people(101)).notes_


def test_counts_are_whole_and_rounded_to_what_noise_allows(release):
    shares, counts = release.answer(), release.answer(counts=True)
    unit = 10.0 ** np.floor(np.log10(np.maximum(counts["error"].to_numpy(), 1.0)))
    values = counts["answer"].to_numpy()
    assert values.dtype == np.int64
    assert bool((np.abs(values - 20_000 * shares["answer"].to_numpy()) <= unit / 2 + 1e-6).all())
    assert bool((values % unit == 0).all())
    assert bool((counts["low"].to_numpy() <= 20_000 * shares["low"].to_numpy() + 1e-6).all())
    assert bool((counts["high"].to_numpy() >= 20_000 * shares["high"].to_numpy() - 1e-6).all())


def test_a_band_is_wider_than_the_bars_and_is_kept_in_the_folder(release, tmp_path):
    bars, band = release.answer(), release.answer(band=0.95)
    assert bool((band["low"].to_numpy() <= band["answer"].to_numpy()).all())
    inside = bars["answer"].to_numpy() > 0.05
    assert bool((band["low"].to_numpy() < bars["low"].to_numpy())[inside].all())
    loaded = QueryRelease.load(release.save(tmp_path / "release"))
    assert loaded.answer(band=0.95) == band
    assert loaded.answer(band=0.99)["low"][0].as_py() <= band["low"][0].as_py()
    with pytest.raises(InvalidInput):
        release.answer(band=1.5)


def test_other_engines_have_bands_by_their_bound_or_none():
    chance = np.random.default_rng(0)
    line = QueryRelease(Thresholds()).fit(chance.normal(size=5000), chance.normal(size=20))
    [row] = line.answer([Threshold(0.0)], band=0.9).to_pylist()
    assert math.isclose(row["answer"] - row["low"], line.engine_error_bound(0.1), rel_tol=1e-9)
    table = {name: list(values) for name, values in people(2000).items()}
    guessed = QueryRelease(Workload.marginals(2), columns=COLUMNS, engine="weights").fit(table)
    with pytest.raises(InvalidInput, match="band= is not available"):
        guessed.answer(band=0.95)


@pytest.mark.long
def test_bands_hold_in_nearly_all_runs_and_narrower_ones_do_not():
    """At most 5 of 100 may miss; by chance more than 20 would with a probability below 1e-8."""
    private = people(20_000)
    missed, halved = 0, 0
    for _ in range(100):
        release = QueryRelease(Workload.marginals(2), columns=COLUMNS, epsilon=0.2, engine="residual").fit(private)
        queries = release.domain_.queries
        truth = queries.answers(release.domain_.count(private)) / 20_000
        table = release.answer(band=0.95)
        low, high = table["low"].to_numpy(), table["high"].to_numpy()
        missed += bool(((truth < low) | (truth > high)).any())
        off, level = np.abs(release.released_.unbiased - truth), math.sqrt(2 * math.log(2 * queries.count / 0.05))
        halved += bool((off > level * release.released_.deviations / 3).any())
    assert missed <= 20
    assert halved > 50  # a planted band of a third of the width is seen to fail


AGES = np.random.default_rng(5).uniform(0, 80, 4000)


@pytest.mark.parametrize("by", [(), "sex"])
@pytest.mark.parametrize("ends", [(25, 35), (25, 55), (None, 55), (30, None), (20, 45), (5, 70), (-9, 10), (61, 90)])
def test_ends_that_are_no_cuts_are_answered_between_those_that_are(by, ends):
    columns, table = {"age": {"cuts": [20, 40, 60]}}, {"age": AGES}
    if by:
        columns["sex"], table["sex"] = ["f", "m"], ["f", "m"] * 2000
    ranges = QueryRelease(Workload.ranges("age", by=by), columns=columns, epsilon=50.0).fit(table)
    asked = {"age": ends} | ({"sex": "f"} if by else {})
    [row] = ranges.answer([asked], band=0.999_999).to_pylist()
    low, high = -np.inf if ends[0] is None else ends[0], np.inf if ends[1] is None else ends[1]
    truth = np.mean((low <= AGES) & (high > AGES) & (np.arange(4000) % 2 == 0 if by else True))
    assert row["low"] <= truth <= row["high"]
    assert row["asked"] is not None
    if low >= 20 and high <= 60:
        assert abs(row["answer"] - truth) < 0.04  # ages are spread evenly
    assert abs(row["answer"] - truth) <= row["gap"] + 6 * row["error"]
    assert row["query"].startswith("between (")
    [counted] = ranges.answer([asked], counts=True).to_pylist()
    assert counted["gap"] == pytest.approx(4000 * row["gap"])
    if ends[0] is None:
        below = QueryRelease(Workload.thresholds("age", by=by), columns=columns, epsilon=50.0).fit(table)
        [row] = below.answer([asked | {"age": ends[1]}]).to_pylist()
        assert abs(row["answer"] - truth) < 0.1


def test_a_range_that_ends_before_it_begins_is_refused():
    ranges = QueryRelease(Workload.ranges("age"), columns={"age": {"cuts": [20, 40]}}).fit({"age": AGES})
    for ends in ((35, 25), (30, 30)):
        with pytest.raises(InvalidInput, match="lower end"):
            ranges.answer([{"age": ends}])


def test_synthetic_numbers_are_spread_over_their_cells():
    columns = {"age": {"cuts": [20, 40, 60]}, "wage": {"cuts": [1.5, 2.5, 3.5]}, "sex": ["f", "m"]}
    table = {"age": AGES, "wage": AGES / 20, "sex": ["f", "m"] * 2000}
    release = QueryRelease(Workload.marginals(1), columns=columns, epsilon=50.0, engine="plain").fit(table)
    made = release.synthetic(4000)
    ages, wages = (
        np.array([value for value in made[name].to_pylist() if value is not None]) for name in ("age", "wage")
    )
    within = ages[(ages >= 20) & (ages < 60)]
    assert set(within) == set(range(20, 60))  # whole numbers, as the cuts are
    assert np.unique(wages).size > 200
    low, high = np.quantile(within, [0.25, 0.75])
    assert (low, high) == pytest.approx((30, 50), abs=2)
    shares = np.histogram(ages, [-100, 20, 40, 60, 1000])[0] / 4000
    assert shares == pytest.approx(np.histogram(AGES, [-100, 20, 40, 60, 1000])[0] / 4000, abs=0.01)


def test_where_numbers_lie_in_their_cells_says_nothing_of_other_columns():
    codes = np.tile([1, 1], (2000, 1))
    values = Columns({"one": Number(cuts=[0, 1000]), "other": Number(cuts=[0, 1000])}).decode(codes)
    assert abs(np.corrcoef(values["one"], values["other"])[0, 1]) < 0.2  # a fixed order of rows, so never by chance


def test_quantiles_are_read_off_released_thresholds(tmp_path, capsys):
    wages = np.exp(np.random.default_rng(6).normal(8, 2, 40_000))
    first = {"wage": {"cuts": [float(1.3**power) for power in range(80)]}}
    release = QueryRelease(Workload.thresholds("wage"), columns=first, epsilon=0.5).fit({"wage": wages})
    columns = release.quantiles(5)
    shares = np.bincount(columns.encode({"wage": wages}).codes[:, 0], minlength=6)[:5] / 40_000
    assert len(shares) == 5
    assert shares == pytest.approx([0.2] * 5, abs=0.06)
    folder, out = release.publish(tmp_path / "published"), tmp_path / "columns.json"
    assert main(["release", str(folder), "--quantiles", "5", "--out", str(out)]) == 0
    assert Columns.load(out).to_dict() == columns.to_dict()
    days = QueryRelease(
        Workload.thresholds("day"), columns={"day": {"kind": "date", "cuts": ["2024-01-02", "2024-01-03"]}}
    )
    days.fit({"day": ["2024-01-01"] * 500 + ["2024-01-02"] * 500})
    assert days.quantiles(2).to_dict()["day"]["cuts"] == ["2024-01-02"]
    for other in (Workload.ranges("age"), Workload.thresholds("age", by="sex"), Workload.marginals(1)):
        with pytest.raises(InvalidInput, match="without groups"):
            QueryRelease(other, columns=COLUMNS, engine="plain").fit(people(50)).quantiles(3)
