"""Neighbours with individual accounting: `src/quorate/models/knn/PROOF.md`, step by step."""

import contextlib
import copy
import json
import math
import pickle
from dataclasses import replace
from datetime import date
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from benchmarks.pictures import accuracy_as_records_wear, plot_nearest
from planted.neighbour_games import (
    RECORDS,
    game_terms,
    game_units,
    widest_change,
    widest_change_in_batches,
    worst_delta,
)
from quorate import InvalidInput, NeighbourClassifier, plan_neighbours
from quorate.core.errors import BudgetSpent
from quorate.core.mechanisms.noisy_vector import ROUNDING_VARIANCE, discrete_delta
from quorate.core.privacy import Cost
from quorate.models.knn._ballots import Labels, Levels, Shares, Terms
from quorate.models.knn._kernel import LONGEST, Block, Kernel, Space, query_factors, record_factors
from quorate.models.knn._units import Units
from quorate.planner import Plan
from support.devices import DEVICES


def blobs(rows, *, features=6, classes=3, apart=3.0, seed=0):
    """Return rows around a centre for each class, and their labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, size=rows)
    centres = np.random.default_rng(99).normal(size=(classes, features)) * apart
    return centres[y] + rng.normal(size=(rows, features)), y


def small_model(X, y, **settings):
    fixed = {"epsilon": 8.0, "delta": 1e-6, "radius": 0.6, "votes": 5.0, "classes": [0, 1, 2]}
    return NeighbourClassifier(**fixed | settings).fit(X, y)


# --- Steps 1 and 2: points and weights -------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_a_point_is_a_function_of_its_row_alone(metric):
    X = np.random.default_rng(1).normal(size=(200, 37)) * np.logspace(-8, 8, 200)[:, np.newaxis]
    space = Space(metric, np.full(37, 0.01), reach=50.0)
    whole = space.points(X)
    for rows in (X[17:18], X[::-1], np.asfortranarray(X), X[:3]):
        wanted = {row.tobytes(): point for row, point in zip(X, whole, strict=True)}
        for row, point in zip(rows, space.points(rows), strict=True):
            assert (point == wanted[np.ascontiguousarray(row).tobytes()]).all()
    assert (whole == np.rint(whole)).all()
    assert (whole.astype(np.int64) ** 2).sum(axis=1).max() <= LONGEST**2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("centre", [0.0, 1e3, -1e308])
def test_no_row_raises_or_warns_however_far_out_it_is(metric, centre):
    space = Space(metric, np.full(3, centre), reach=5.0)
    top = np.finfo(np.float64).max
    X = np.array([[top, top, top], [top, -top, 0], [1e200, 1, 1], [5e-324, 0, 0], [0, 0, 0], [centre] * 3])
    points = space.points(X)
    assert (points == np.concatenate([space.points(row) for row in X[:, np.newaxis]])).all()
    assert (points.astype(np.int64) ** 2).sum(axis=1).max() <= LONGEST**2


def test_points_keep_directions_or_distances():
    X = np.array([[3.0, 4.0], [30.0, 40.0], [0.0, 0.0]])
    assert Space("cosine", np.zeros(2)).points(X).tolist()[0] == Space("cosine", np.zeros(2)).points(X).tolist()[1]
    near, far, centre = Space("euclidean", np.zeros(2), reach=10.0).points(X)
    assert np.allclose(near, far / 2, atol=1)
    assert (centre == 0).all()


ANCHORS = np.random.default_rng(8).integers(-700, 700, size=(40, 3)).astype(np.float32)


def squared_radius(kernel, query):
    """Return the squared radius of a query in plain integers."""
    if kernel.anchors is None:
        return kernel.squared_radius
    return max(1, sorted(squared_distance(point, query) for point in kernel.anchors)[kernel.rank - 1])


def squared_distance(one, other):
    return sum((int(first) - int(second)) ** 2 for first, second in zip(one, other, strict=True))


def reference_votes(kernel, units, query, table):
    """Return what each unit would add on a query, and the square of it, in plain integers."""
    radius, votes = squared_radius(kernel, query), []
    for rows in units:
        near = []
        for point, code in rows:
            short = np.array([[radius - squared_distance(point, query)]], dtype=np.float32)
            near.append((int(kernel.weigh(short, np.array([radius], dtype=np.float32))[0, 0]), code))
        weight, code = max(near)
        added = [weight * int(number) for number in table[code]]
        votes.append((added, sum(number**2 for number in added)))
    return votes


def reference_counts(capacity, votes, batches):
    """Return the counts and what each unit has spent, in plain integers, one group of queries after the other.

    `votes` has those of all units on each query. Batches of up to 16 are paid for query by query, of up to 32 two by
    two, and so on, up to 16.
    """
    spent, worn, counts, start = [0] * len(votes[0]), [False] * len(votes[0]), [], 0
    for batch in batches:
        together, stop = min(16, math.ceil(batch / 16)), start + batch
        for first in range(start, stop, together):
            group = votes[first : min(first + together, stop)]
            for unit in range(len(spent)):
                squares = sum(query[unit][1] for query in group)
                worn[unit] = worn[unit] or spent[unit] + squares > capacity
                spent[unit] = capacity + 1 if worn[unit] else spent[unit] + squares
            for query in group:
                there = [added for unit, (added, _) in enumerate(query) if not worn[unit]]
                counts.append(np.sum(there, axis=0) if there else np.zeros(len(query[0][0]), dtype=np.int64))
        start = stop
    return np.array(counts), spent


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize(
    ("kernel", "capacity", "table"),
    [
        (Kernel(shape="flat", squared_radius=640_000, top=7), 2200, Labels(range(3)).table),
        (Kernel(shape="linear", squared_radius=640_000, top=7), 400, Labels(range(3)).table),
        (Kernel(shape="linear", anchors=ANCHORS, rank=14, top=7), 400, Labels(range(2)).table),
        (Kernel(shape="flat", anchors=ANCHORS, rank=14, top=7), 8000, Shares(range(2)).table),
        (Kernel(shape="linear", squared_radius=640_000, top=7), 4_000_000, Levels(low=0.0, high=1.0, centre=0.3).table),
        (Kernel(shape="linear", squared_radius=640_000, top=7), 400, Labels(range(61)).table),  # 61 * (1 / 61) < 1
    ],
)
def test_counts_and_spends_are_those_of_plain_integers_in_every_batch(persons, kernel, capacity, table, device):
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 5, size=120) if persons else np.ones(120, dtype=np.int64)
    points = rng.integers(-700, 700, size=(sizes.sum(), 3)).astype(np.float32)
    codes = rng.integers(0, len(table), size=len(points))
    queries = rng.integers(-700, 700, size=(90, 3)).astype(np.float32)
    stops = np.cumsum(sizes)
    rows = list(zip(points.tolist(), codes.tolist(), strict=True))
    people = [rows[stop - size : stop] for size, stop in zip(sizes, stops, strict=True)]
    votes = [reference_votes(kernel, people, query, table) for query in queries]
    one_by_one = reference_counts(capacity, votes, (1,) * 90)
    assert max(one_by_one[1]) > capacity > min(one_by_one[1])  # some are worn out
    for batches in ((90,), (1, 1, 16, 24, 48), (64, 25, 1), (15, 16) * 2 + (14, 14)):
        wanted = reference_counts(capacity, votes, batches)
        units = Units(kernel, capacity=capacity, features=3, table=table, persons=persons, device=device)
        units.insert([str(number) for number in range(120)], sizes.tolist(), points, codes)
        cuts = np.cumsum([0, *batches]).tolist()
        counts = [units.count(queries[start:stop]).put_to(np.copy) for start, stop in pairwise(cuts)]
        assert (np.concatenate(counts) == wanted[0]).all()
        assert units.spends().tolist() == wanted[1]
        if max(batches) <= 16:  # then it does not matter how queries are put together
            assert (wanted[0] == one_by_one[0]).all()
            assert wanted[1] == one_by_one[1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("persons", [False, True])
def test_large_batches_and_many_blocks_are_counted_like_small_ones(persons, device):
    """1,030 queries, paid for 16 at a time, on 4,500 rows, some of which were forgotten: more than one block."""
    rng, table = np.random.default_rng(6), Labels(range(6)).table
    kernel = Kernel(shape="linear", squared_radius=250_000, top=5)
    points = rng.integers(-700, 700, size=(4500, 2)).astype(np.float32)
    codes, queries = rng.integers(0, 6, size=4500), rng.integers(-700, 700, size=(1030, 2)).astype(np.float32)
    sizes = [4100, *[2] * 200] if persons else [1] * 4500  # one person has more rows than a block
    units = Units(kernel, capacity=2500, features=2, table=table, persons=persons, device=device)
    units.insert([str(number) for number in range(len(sizes))], sizes, points, codes)
    gone = rng.permutation(len(sizes))[:50]
    units.forget([str(number) for number in gone])
    counts = units.count(queries).put_to(np.copy)
    apart = ((points[:, np.newaxis].astype(np.int64) - queries.astype(np.int64)) ** 2).sum(axis=2)
    weights = np.maximum(np.floor((250_000 - apart).astype(np.float32) * (np.float32(5) / np.float32(250_000))), 0)
    keys, firsts = weights.astype(np.int64) * 6 + codes[:, np.newaxis], np.cumsum([0, *sizes[:-1]])
    strongest = np.maximum.reduceat(keys, firsts, axis=0)
    strongest[gone] = 0
    tops = np.concatenate([strongest // 6, np.zeros((len(sizes), 10), dtype=np.int64)], axis=1)
    running = (tops**2).reshape(len(sizes), -1, 16).sum(axis=2).cumsum(axis=1)
    counted = tops[:, :1030] * np.repeat(running <= 2500, 16, axis=1)[:, :1030]
    assert (counts == np.stack([(counted * (strongest % 6 == code)).sum(axis=0) for code in range(6)], axis=1)).all()
    assert (units.spends() == np.where(running[:, -1] <= 2500, running[:, -1], 2501)).all()
    assert 0.1 < (units.spends() > 2500).mean() < 0.9


@pytest.mark.parametrize("device", DEVICES)
def test_who_comes_and_goes_between_counts_is_counted_on_every_device(device):
    kernel, here = Kernel(shape="flat", squared_radius=9, top=3), np.zeros((2, 1), dtype=np.float32)
    units = Units(kernel, capacity=10**6, features=1, table=Labels([0, 1, 2]).table, persons=False, device=device)
    votes = []
    for change in (
        lambda: units.insert(["a", "b"], [1, 1], here, np.array([0, 1])),
        lambda: units.forget(["a"]),
        lambda: units.insert(["c", "a"], [1, 1], here, np.array([2, 2])),
        lambda: units.forget(["b", "c", "a"]),
    ):
        change()
        votes += units.count(here[:1]).put_to(np.ndarray.tolist)
    assert votes == [[3, 3, 0], [0, 3, 0], [0, 3, 6], [0, 0, 0]]
    assert units.spends().tolist() == [18, 27, 9]


@pytest.mark.parametrize("device", DEVICES)
def test_an_insertion_or_deletion_that_is_interrupted_lets_no_unit_vote_twice(monkeypatch, device):
    kernel, point, code = Kernel(shape="flat", squared_radius=9, top=32), np.zeros((1, 1), np.float32), np.zeros(1, int)

    def interrupted(method, work, units):
        def stop(*given):
            method(*given)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Block, method.__name__, stop)
            with pytest.raises(KeyboardInterrupt):
                work(units)

    def insert(units):
        units.insert(["a"], [1], point, code)

    for method, work in ((Block.add, insert), (Block.clear, lambda units: units.forget(["a"]))):
        units = Units(kernel, capacity=10**6, features=1, table=Labels([0, 1, 2]).table, persons=False, device=device)
        if method is Block.clear:
            insert(units)
        interrupted(method, work, units)
        with contextlib.suppress(InvalidInput):  # it is there already
            insert(units)
        [[votes, *_]] = units.count(point).put_to(np.ndarray.tolist)
        assert votes**2 == units.spends().tolist()[0] <= 32**2


def test_what_a_count_that_was_interrupted_still_writes_is_read_by_nobody(monkeypatch):
    """A second interrupt ends the wait for the threads of the first, which go on writing what they had read before."""
    X, y = blobs(30)
    model, late = small_model(X, y), []

    def interrupted(units, block, batch, spends):
        late.append(spends)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Units, "_count_block", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.predict(X[:1])
    model.predict(X[:2])
    charged = model.session_.answerer.units.spends().tolist()
    late[0][:] = 0
    assert max(charged) > 0
    assert model.session_.answerer.units.spends().tolist() == charged


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("persons", [False, True])
def test_nor_does_it_stop_the_others_from_being_counted(monkeypatch, persons, device):
    """Where it was interrupted between a new block and its first row."""
    kernel, point, code = Kernel(shape="flat", squared_radius=9, top=32), np.zeros((1, 1), np.float32), np.zeros(1, int)
    units = Units(kernel, capacity=10**6, features=1, table=Labels([0, 1]).table, persons=persons, device=device)
    with monkeypatch.context() as patch:
        patch.setattr(Block, "reserve", lambda *_given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            units.insert(["a"], [1], point, code)
    assert units.count(point).put_to(np.ndarray.tolist) == [[0]]
    units.insert(["b"], [1], point, code)
    assert units.count(point).put_to(np.ndarray.tolist) == [[-32]]


def test_products_of_the_longest_points_are_exact():
    """In every layout of rows, for the largest radius that there is."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(5000, 256))
    space = Space("cosine", np.zeros(256))
    points = space.points(X)
    whole = points.astype(np.int64)
    apart = ((whole[:8, np.newaxis] - whole) ** 2).sum(axis=2)
    for radius in (1, 2**20, (2 * LONGEST) ** 2):
        queries, records = query_factors(points[:8], np.full(8, radius, np.float32)), record_factors(points)
        for order in (np.arange(258), np.arange(258)[::-1], rng.permutation(258)):
            assert (queries[:, order] @ records[order] == radius - apart).all()


# --- Steps 3 to 7: the filter and the transcript ---------------------------------------------------------------------


def test_no_record_moves_more_than_it_pays_for_on_any_path():
    """All sequences of 4 steps over 5 records: every path of every adaptive tree."""
    assert widest_change() == game_terms().capacity  # and some path reaches it
    assert widest_change(removed=[1, 2, 3, 4], churn=False) <= game_terms().capacity


def test_nor_where_it_pays_for_two_queries_at_once():
    assert widest_change_in_batches(persons=True) == game_terms().capacity  # of rows: tests/auditing/test_planted.py


@pytest.mark.parametrize(
    ("ballot", "persons"),
    [(Shares([0, 1]), False), (Labels([0, 1, 2]), True), (Levels(low=0.0, high=1.0, centre=0.3), True)],
)
def test_nor_with_shares_targets_or_persons(ballot, persons):
    widest = widest_change(removed=[0], churn=False, ballot=ballot, persons=persons)
    capacity = game_terms(ballot=ballot).capacity
    assert 0.6 * capacity < widest <= capacity


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.1])
def test_labels_of_the_worst_adaptive_tree_keep_the_claim(epsilon):
    terms = replace(game_terms(), scale=6.0)  # little noise
    allowed = discrete_delta(epsilon, math.sqrt(22 / (36 - ROUNDING_VARIANCE)), entries=22) if epsilon else 1.0
    seen = [worst_delta(terms, removed=place, epsilon=epsilon) for place in range(len(RECORDS))]
    assert max(seen) <= allowed
    assert max(seen) > allowed / 20  # the search has power


def test_units_that_are_worn_out_stay_so_and_others_do_not_notice():
    units = game_units()
    first = units.count(RECORDS[:1]).put_to(np.copy)
    counts = [units.count(RECORDS[:1]).put_to(np.copy) for _ in range(5)]
    assert abs(counts[-1].sum()) < abs(first.sum())
    units.forget(["0"])
    units.insert(["0"], [1], RECORDS[:1], np.array([1]))
    again = units.count(RECORDS[:1]).put_to(np.copy)
    assert (again == counts[-1]).all()  # it came back with what it had spent


def test_a_name_is_there_once_and_what_is_forgotten_was_there():
    units = game_units()
    with pytest.raises(InvalidInput, match="there already"):
        units.insert(["3"], [1], RECORDS[:1], np.array([0]))
    with pytest.raises(InvalidInput, match="not there"):
        units.forget(["7"])
    with pytest.raises(InvalidInput, match="not there"):
        units.forget(["3", "3"])
    assert "3" in units
    assert repr(units) == "<sealed units>"
    with pytest.raises(TypeError):
        copy.copy(units)
    with pytest.raises(TypeError):
        pickle.dumps(units)


@pytest.mark.parametrize("again", [7.0, "+07", Decimal("7.00")])  # tests/tables has every spelling
def test_a_person_has_one_name_however_it_is_written(again):
    """A second name would be a second budget."""
    X, y = blobs(10)
    model = small_model(X, y, classes=None)
    with pytest.raises(InvalidInput, match="there already"):
        model.insert(X[:1], y[:1], ids=[again])
    with pytest.raises(InvalidInput, match="there already"):
        model.insert(X[:1], y[:1], ids=np.array([again]))
    model.forget([again])
    assert "7" not in model.session_.answerer.units
    with pytest.raises(InvalidInput, match="all others were inserted"):  # the first row of a name is the unit
        model.insert(X[:3], y[:3], ids=["07", "7b", "7.0"])
    assert all(name in model.session_.answerer.units for name in ("7", "7b"))
    model.forget([again])
    assert model.insert(X[:2], y[:2], ids=["07", "7a"]) == ["7", "7a"]
    for number in (2**24 + 1, 0.1, 7):  # refused by its type alone, whatever the number
        with pytest.raises(InvalidInput, match="must not be 16- or 32-bit floats"):
            model.insert(X[:1], y[:1], ids=np.array([number], dtype=np.float32))
    for name in ([(1, 2)], [b"x"], [date(2024, 5, 31)], [math.inf]):  # no value is refused; a pair cannot be read
        assert len(model.insert(X[:1], y[:1], ids=name)) == 1
    for nameless in ([" "], [None, math.nan], [(1, 2), ""]):  # nothing is said of a missing name
        assert model.insert(X[: len(nameless)], y[: len(nameless)], ids=nameless) == []
    people = NeighbourClassifier(radius=0.6, votes=5.0, classes=[0, 1, 2]).fit(X[:4], y[:4], groups=[7, again, "8", 8])
    assert len(people.session_.answerer.units.spends()) == 2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("row", [["1.0", "a diagnosis"], [np.nan, 1.0], [None, 1.0], [np.inf, 1.0], [0.0, b"\xff"]])
@pytest.mark.parametrize("label", [1, "a diagnosis", None])
@pytest.mark.parametrize("when", ["fit", "insert"])
def test_a_record_that_cannot_be_read_has_no_vote_and_keeps_nobody_out(row, label, when):
    """Refused, it would take the votes of all others of its list with it."""
    near, counts = [[0.0, 1.0], [0.1, 1.0]], []
    for odd in (row, near[0]):
        told = label if odd is row else "no class"
        model = NeighbourClassifier(radius=0.6, votes=5.0, classes=[0, 1])
        if when == "fit":
            model.fit([near[0], odd, near[1]], [0, told, 1])
        else:
            model.fit([near[0]], [0]).insert([odd, near[1]], [told, 1])
        units = model.session_.answerer.units
        assert len(units.spends()) == 3
        counts.append([units.count(model.space_.points(place)).put_to(list) for place in ([near[0]], [near[1]])])
    assert counts[0] == counts[1]


def test_who_is_there_does_not_decide_who_else_comes_or_goes():
    """Refused as a whole, a list would come in by whether one person is there: with votes that this one never pays."""
    X, y = blobs(6)
    model = NeighbourClassifier(radius=0.6, votes=5.0, classes=[0, 1, 2]).fit(X[:3], y[:3], groups=["i", "i", "j"])
    units = model.session_.answerer.units
    with pytest.raises(InvalidInput, match="there already, and stay as they are; all others were inserted"):
        model.insert(X[:5], y[:5], ids=["k", "i", "l", "k", "j"])
    kept = {name: row[0] for _, name, _, row in units.rows()}
    points = model.space_.points(X)
    assert list(kept) == ["i", "j", "k", "l"]
    assert (kept["i"] == points[:2]).all()
    assert (kept["k"] == points[[0, 3]]).all()
    assert (kept["l"] == points[2:3]).all()
    with pytest.raises(InvalidInput, match="not there; all others were forgotten"):
        model.forget(["j", "nobody", "k", "k"])
    assert [name for name, _ in model.forgotten()] == ["j", "k"]
    assert model.insert(X[5:], y[5:], ids=["k"]) == ["k"]


def test_nobody_is_forgotten_where_no_name_is_given():
    X, y = blobs(4)
    model = small_model(X[:2], y[:2])
    model.insert(X[2:], y[2:], ids=["None", "nan"])
    for missing in (None, np.nan):  # the unknown person, who is not there
        with pytest.raises(InvalidInput, match="not there"):
            model.forget([missing])
    assert model.forget([]) == 0
    assert model.forgotten() == []


def test_a_table_is_no_list_of_names_and_each_unit_is_counted_once():
    X, y = blobs(4)
    model = small_model(X[:1], y[:1])
    model.insert(X[1:], y[1:], ids=["a", "3", "19581e27"])  # the last is the beginning of a hash, and no number
    for table in (pd.DataFrame({"id": ["a"], "visit": ["3"]}), np.array([["a", "3"]], dtype=object)):
        with pytest.raises(InvalidInput, match="one list of names"):
            model.forget(table)
    assert model.forgotten() == []
    assert model.forget(pd.DataFrame({"id": ["a"]})) == 1
    assert model.forget(["3", "3.0", 3, "19581e27"]) == 2


def test_a_number_in_place_of_a_name_is_nobody_elses():
    """A unit that took over the name of another would go on with what that has spent: two units would move."""
    X, y = blobs(4)
    model = small_model(X[:3], y[:3])
    assert model.insert(X[3:], y[3:], ids=["4"]) == ["4"]
    model.forget(["4"])
    model.session_.answerer.units.count(model.space_.points(X[:1]))
    assert model.insert(X[2:], y[2:]) == ["5", "6"]
    assert model.insert(X[:1], y[:1]) == ["7"]


@pytest.mark.parametrize(
    ("ballot", "price", "numbers", "moved"),
    [
        (Labels(range(2)), 1, 1, 4),
        (Labels(range(3)), 1, 1, 2),
        (Shares(range(2)), 5, 2, 4),
        (Shares(range(3)), 1, 1, 2),
        (Levels(low=0.0, high=1.0, centre=0.5), 64**2 + 127**2, 2, 4),
    ],
)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 1000.0])
def test_the_noise_is_what_the_whole_capacity_takes(epsilon, ballot, price, numbers, moved):
    terms = Terms.calibrate(epsilon=epsilon, delta=1e-5, votes=20.0, top=32, ballot=ballot)
    assert (terms.full, terms.capacity, terms.votes) == (32**2 * price, 20 * 32**2 * price, 20.0)
    squares = terms.capacity + terms.reports * terms.reported**2
    length = math.sqrt(squares / (terms.scale**2 - ROUNDING_VARIANCE))
    cheapest = {1: 1, 5: 5, 64**2 + 127**2: 64**2 + 1}[price]  # a vote that changes so many numbers
    entries = terms.capacity * numbers // cheapest + 1 + terms.reports
    assert terms.entries in (entries - 1, entries)
    assert discrete_delta(epsilon, length, entries=terms.entries) <= 1e-5
    assert discrete_delta(epsilon, 1.01 * length, entries=terms.entries) > 1e-5
    replaced = terms.replaced_epsilon()
    assert epsilon < replaced < moved * epsilon
    assert discrete_delta(replaced, math.sqrt(moved) * length, entries=2 * terms.entries) <= 1e-5
    assert terms.reports * terms.reported**2 <= max(squares / 32, 16)


# --- The classifier --------------------------------------------------------------------------------------------------


def test_it_answers_takes_in_and_forgets():
    X, y = blobs(3000)
    model = small_model(X[:2000], y[:2000], epsilon=100.0, votes=20.0)
    assert model.score(X[2000:2200], y[2000:2200]) > 0.9
    assert model.insert(X[2200:2202], y[2200:2202]) == ["2000", "2001"]
    model.insert(X[2202:2204], y[2202:2204], ids=["a", "b"])
    model.forget(["2000", "a", 17])
    with pytest.raises(InvalidInput, match="not there"):
        model.forget(["a"])
    model.insert(X[2202:2203], y[2202:2203], ids=["a"])
    assert model.predict(X[2204:2210]).answered.all()


def test_forgotten_records_vote_no_more():
    X, y = blobs(600, classes=2)
    model = small_model(X, y, classes=[0, 1], votes=1000.0, epsilon=1000.0)
    units, near = model.session_.answerer.units, model.space_.points(X[y == 1][:1])
    assert units.count(near).put_to(np.copy)[0, 0] > 0  # by how much the second class leads
    model.forget(np.flatnonzero(y == 1))
    assert units.count(near).put_to(np.copy)[0, 0] <= 0


def test_a_person_votes_once_with_its_nearest_record():
    X, y = np.repeat([[1.0, 0.0], [0.0, 1.0]], 40, axis=0), np.repeat([0, 1], 40)
    model = NeighbourClassifier(radius=0.5, votes=3.0, epsilon=1000.0, classes=[0, 1])
    model.fit(X, y, groups=["one"] * 40 + list(range(40)))
    spent = model.session_.answerer.units.spends
    model.predict([[1.0, 0.0]])
    assert spent().tolist() == [model.terms_.full] + [0] * 40
    model.predict([[0.0, 1.0]])
    assert spent().tolist() == [model.terms_.full] * 41
    with pytest.raises(InvalidInput, match="name the person"):
        model.insert(X[:1], y[:1])
    rows = small_model(*blobs(30))
    with pytest.raises(InvalidInput, match="all others were inserted"):
        rows.insert(*blobs(3), ids=["x", "y", "x"])
    assert all(name in rows.session_.answerer.units for name in ("x", "y"))


def test_queries_have_no_limit_and_the_budget_is_charged_once():
    X, y = blobs(400)
    model = small_model(X, y, queries=10)
    assert model.budget_.remaining() == Cost(0.0)
    with pytest.raises(BudgetSpent):
        model.budget_.spend(Cost(1e-9))
    told = [model.predict(X[:50] + place).refused for place in range(10)]
    assert told == [0] * 10
    quote = model.cost(X[:3] + 77)
    assert (quote.payable, quote.refused, quote.takes) == (3, 0, 0.0)


def test_far_from_all_records_every_class_is_said():
    """200 labels with noise alone: one of three is missing less than once in 10**34."""
    X, y = blobs(300, apart=0.0)
    model = NeighbourClassifier(radius=1e-3, votes=5.0, classes=[0, 1, 2]).fit(np.abs(X), y)
    assert set(model.predict(-np.abs(blobs(200, seed=4)[0])).tolist()) == {0, 1, 2}


def test_wear_is_estimated_and_paid_for():
    X, y = blobs(4000)
    model = small_model(X, y, votes=2.0, radius=1.2)
    before = model.wear()
    assert abs(before.voting + before.worn - 4000) < 8 * before.deviation
    assert before.share < 0.2
    model.predict(X[:300] + 1e-3)
    assert model.wear().share > 0.5
    for _ in range(14):
        assert model.wear().reports_left >= 0
    with pytest.raises(InvalidInput, match="all 16 reports"):
        model.wear()


def test_a_fit_that_is_refused_leaves_no_model_that_answers():
    X, y = blobs(50)
    for groups, labels in ((["a"] * 49, y), (None, y[1:])):  # people without a name are one unknown person
        model = NeighbourClassifier(radius=0.6, votes=5.0, classes=[0, 1, 2])
        with pytest.raises(ValueError, match=r"shape|person|inconsistent"):
            model.fit(X, labels, groups=groups)
        with pytest.raises(NotFittedError):
            model.predict(X[:1])


def test_settings_are_checked_and_public_rows_asked_for():
    X, y = blobs(50)
    for wrong, text in (
        ({"epsilon": 1e5}, "at most 4096"),
        ({"delta": 0.0}, "delta"),
        ({"radius": 0.0}, "radius"),
        ({"radius": None}, "pass public="),
        ({"radius": None, "share": 0.1}, "pass public="),
        ({"votes": 1e17, "epsilon": 4000.0}, "votes must be at most"),
        ({"votes": 1e308}, "votes must be at most"),
        ({"queries": 10**400}, "queries must be at most"),
        ({"records": 10**400}, "records must be at most"),
        ({"metric": "euclidean"}, "taken from public rows"),
    ):
        with pytest.raises(InvalidInput, match=text):
            small_model(X, y, **wrong)


def test_the_claim_says_which_neighbours_are_meant():
    model = small_model(*blobs(50), classes=None)
    assert model.claim_.startswith(
        "(8, 1e-06)-differentially private under addition or removal of one row; (12.115, 1e-06)"
    )
    assert model.claim_.endswith("the label set was read from y and counts as public")


# --- The choice ------------------------------------------------------------------------------------------------------


def test_a_plan_is_made_of_public_rows_and_comes_true():
    X, y = blobs(14_000, features=16, classes=4, apart=1.2)
    public, private, judges = slice(0, 1500), slice(1500, 13_500), slice(13_500, 14_000)
    settings = {"epsilon": 2.0, "delta": 1e-6, "queries": 500, "records": 12_000, "classes": [0, 1, 2, 3]}
    model = NeighbourClassifier(**settings).fit(X[private], y[private], public=X[public], public_labels=y[public])
    plan = model.plan_
    assert plan.feasible
    assert abs(model.score(X[judges], y[judges]) - plan.right) < 0.06
    assert plan.right < plan.forecast[0][2] + 0.005  # no better than half-way, since records wear out
    unlabelled = plan_neighbours(
        X[public], records=12_000, queries=500, epsilon=2.0, delta=1e-6, classes=4, metric="cosine"
    )
    assert unlabelled.right is None
    assert unlabelled.spoilt < 0.2
    assert unlabelled.forecast[1][1] < 0.6  # most last as long as was planned
    assert [line[1] for line in plan.forecast] == sorted(line[1] for line in plan.forecast)
    assert "votes of full weight" in plan.summary()
    again = NeighbourClassifier(**plan.settings(), classes=[0, 1, 2, 3])
    assert again.fit(X[private], y[private], public=X[public]).plan_ is None


def test_of_shares_that_answer_alike_a_plan_takes_a_small_one():
    X, y = blobs(600, features=4, classes=2)
    numbers = {"records": 20_000, "queries": 500, "epsilon": 1.0, "delta": 1e-6}
    plan = plan_neighbours(X, y, **numbers)  # half of the records would answer as well, since they are of one class
    assert plan.right > 0.99
    assert plan.share < 0.1
    by_chance = plan_neighbours(X, np.arange(600) % 2, **numbers)  # no share is right more often than a coin
    assert by_chance.feasible


def test_a_plan_with_too_few_records_says_so():
    X, _ = blobs(300)
    numbers = {"records": 500, "queries": 2000, "epsilon": 0.1}
    plan = plan_neighbours(X, **numbers, delta=1e-6, classes=3)
    assert not plan.feasible
    assert [change.parameter for change in plan.nearest] == ["records", "queries", "epsilon"]
    for change in plan.nearest:
        changed = plan_neighbours(X, **numbers | {change.parameter: change.value}, delta=1e-6, classes=3)
        assert changed.feasible
        assert changed.nearest == ()
    assert Plan.from_dict(json.loads(json.dumps(plan.as_dict()))).as_dict() == plan.as_dict()
    with pytest.raises(InvalidInput, match="at least 10"):
        plan_neighbours(X[:5], records=100, queries=10, epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidInput, match="records must"):
        plan_neighbours(X, records=10**400, queries=10, epsilon=1.0, delta=1e-6)


def test_the_picture_of_the_guide_says_what_it_shows():
    plot = plot_nearest({1000: [(500, 0.9), (1000, 0.8)], 8000: [(500, 0.7), (1000, 0.75)]})
    assert "0.90 of the first 500 right, 0.80 of the last, after 1,000" in plot.description
    few = accuracy_as_records_wear(100, records=3000, queries=1000)
    assert [asked for asked, _ in few] == [500, 1000]
