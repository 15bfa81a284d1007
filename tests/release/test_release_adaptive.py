"""The adaptive engine: its scores and its law by enumeration, replay on neighbours, planted bugs."""

import functools
import itertools
import math

import numpy as np
import pytest

from quorate import Budget, QueryRelease, Workload
from quorate.auditing._plays import SeededNoise
from quorate.core.errors import BudgetSpent, InvalidInput
from quorate.core.mechanisms.noisy_vector import ROUNDING_VARIANCE, NoisyVector
from quorate.core.privacy import Cost
from quorate.release import Columns
from quorate.release.engines import ENGINES, AdaptiveEngine, expected_errors
from quorate.release.engines._components import MarginalStrategy, plan_marginals
from quorate.release.engines._marginals import _Steps, looks_of, misplaced
from quorate.release.engines._mixture_fit import fit_mixture
from quorate.release.engines.base import Released, check_private
from quorate.release.queries import Marginals, Rows


def tables(sizes, records):
    """Every data set of so many records, up to their order."""
    cells = list(itertools.product(*map(range, sizes)))
    return [Rows(list(chosen), sizes) for chosen in itertools.combinations_with_replacement(cells, records)]


def neighbours(data):
    """Every pair of data sets that differ in one record."""
    cells = [np.bincount(rows.cell(range(len(rows.sizes))), minlength=math.prod(rows.sizes)) for rows in data]
    pairs = itertools.combinations(range(len(data)), 2)
    return [(data[one], data[two]) for one, two in pairs if np.abs(cells[one] - cells[two]).sum() == 2]


# ---------------------------------------------------------------- the scores


def test_a_replaced_record_moves_a_score_by_one_at_most():
    moved = set()
    for guess in itertools.product(range(3), repeat=4):
        for one, two in neighbours(tables((2, 2), 2)):
            counts = [Marginals((2, 2), [(0, 1)]).answers(rows).astype(np.int64) for rows in (one, two)]
            moved.add(abs(misplaced(counts[0], np.array(guess)) - misplaced(counts[1], np.array(guess))))
    assert moved == {0, 1}  # held, and reached


# ---------------------------------------------------------------- what reaches the noise, on neighbours


def twins(seed=5, records=20_000):
    """Twelve columns of which the first two say the same, and the others are hardly related."""
    chance = np.random.default_rng(seed)
    first = np.minimum(chance.geometric(0.3, records), 12) - 1
    others = [chance.integers(0, size, records) for size in MANY.sizes[2:]]
    return Rows(np.stack([first, 11 - first, *others], axis=1), MANY.sizes)


MANY = Marginals.of_order((12, 12, 3, 2, 4, 3, 2, 3, 4, 2, 3, 2), 2)
MEAN = Marginals(MANY.sizes, MANY.cliques, [1.0] * len(MANY.cliques))


class Told:
    """Noisy vectors that come out as they are told, whatever the data: and what they were drawn for, in order."""

    def __init__(self, results=None):
        self.results, self.seen, self.asked = results, [], []


def play(engine, queries, rows, told, monkeypatch):
    draw = NoisyVector.draw_release

    def release(self, parts, budget, noise):
        drawn = draw(self, parts, budget, SeededNoise(len(told.seen)))
        result = drawn if told.results is None else told.results[len(told.seen)]
        told.seen.append(result)
        told.asked += zip(parts, self.squared_sensitivities, self.scales, strict=True)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(NoisyVector, "draw_release", release)
        budget = Budget(epsilon=0.1, delta=1e-6, slack=0.0)
        released = engine._run(queries, rows, None, budget, SeededNoise(0))
    return released, budget


def worst_move(monkeypatch, neighbours=80):
    """How far any vector that gets noise moves, squared and over what is charged for it, on some neighbours.

    All of them get the same noisy vectors, so that one table is fitted for all, and they choose the same.
    """
    rows, told, chance, worst = twins(), Told(), np.random.default_rng(0), []
    fits = functools.cache(lambda: fit_mixture(MANY.sizes, *fitted, emphasis=False))
    fitted = []

    def fit(sizes, noisy, estimate, *, emphasis):
        fitted[:] = fitted or [noisy, estimate]
        return fits()

    monkeypatch.setattr("quorate.release.engines._marginals.fit_mixture", fit)
    monkeypatch.setattr("quorate.release.engines._marginals.release_tables", nothing_more)
    play(AdaptiveEngine(), MEAN, rows, told, monkeypatch)
    for _ in range(neighbours):
        codes = rows.codes.copy()
        codes[chance.integers(len(codes))] = [chance.integers(size) for size in MANY.sizes]
        again = Told(told.seen)
        play(AdaptiveEngine(), MEAN, Rows(codes, MANY.sizes), again, monkeypatch)
        for (one, square, scale), (two, *same) in zip(told.asked, again.asked, strict=True):
            assert same == [square, scale]
            worst.append(float(((one - two) ** 2).sum()) / square)
    return max(worst), [square for _, square, _ in told.asked]


def nothing_more(queries, noisy, *given, **settings):
    return Released(None, None, None, None, "adaptive", (), {})


def test_a_replaced_record_moves_all_that_gets_noise_within_what_is_charged(monkeypatch):
    worst, squares = worst_move(monkeypatch)
    assert worst == 1.0  # held, and reached
    assert max(squares) == 54  # one for each score
    assert len(squares) % 2 == 0  # two parts of a plan, the scores, and one that is chosen


def test_scores_that_move_further_than_is_charged_are_found(monkeypatch):
    """A planted bug: a distance that one record moves by 3, charged as if it moved by 1."""
    monkeypatch.setattr("quorate.release.engines._marginals.misplaced", lambda *given: 3 * misplaced(*given))
    assert worst_move(monkeypatch, neighbours=50)[0] > 1.0


def test_all_shares_together_are_those_of_the_budget(monkeypatch):
    """Precisions of all that was drawn add up to those of one release with the whole of the budget, and no more."""
    told = Told()
    play(AdaptiveEngine(), MEAN, twins(), told, monkeypatch)
    squares, scales = np.array([(square, scale) for _, square, scale in told.asked]).T
    [whole] = NoisyVector.calibrate(epsilon=0.1, delta=1e-6, squared_sensitivities=(2,)).scales
    told = (squares / (scales**2 - ROUNDING_VARIANCE)).sum()
    assert 1.0 - 1e-6 < told * (whole**2 - ROUNDING_VARIANCE) / 2 <= 1.0


# ---------------------------------------------------------------- what follows is a function of what was drawn


def replayed(engine, monkeypatch):
    one, two = twins(1), twins(2)
    told = Told()
    first, budget = play(engine, MEAN, one, told, monkeypatch)
    second, again = play(engine, MEAN, two, Told(told.seen), monkeypatch)
    assert budget.spent() == again.spent()
    return first, second


def same(first, second):
    return np.array_equal(first.answers, second.answers) and np.array_equal(first.errors, second.errors)


def test_nothing_but_what_was_drawn_is_used(monkeypatch):
    first, second = replayed(AdaptiveEngine(), monkeypatch)
    assert first.notes == ("1 of 54 marginals chosen and measured by themselves",)
    assert same(first, second)


class Peeks(AdaptiveEngine):
    """A planted bug: error bars that depend on the records."""

    def _run(self, queries, data, public, budget, noise):
        released = super()._run(queries, data, public, budget, noise)
        truth = queries.answers(data) / data.records
        released.errors[:] = np.maximum(released.errors, np.abs(released.answers - truth))
        return released


def test_bars_that_know_the_truth_are_found(monkeypatch):
    assert not same(*replayed(Peeks(), monkeypatch))


# ---------------------------------------------------------------- what is charged


@pytest.mark.parametrize("epsilon", [1.0, pytest.param(0.05, marks=pytest.mark.long)])
def test_all_of_a_fresh_budget_is_spent_and_another_is_refused(epsilon):
    budget = Budget(epsilon=epsilon, delta=1e-6, slack=0.0)
    ENGINES["adaptive"]._run(MEAN, twins(), None, budget, SeededNoise(1))
    assert budget.remaining().renyi < 1e-3 * budget.capacity().renyi
    assert budget.spent_epsilon() <= epsilon
    used = Budget(epsilon=epsilon, delta=1e-6, slack=0.0)
    used.spend(Cost(1e-6))
    with pytest.raises(BudgetSpent):
        ENGINES["adaptive"]._run(MEAN, twins(), None, used, SeededNoise(1))


def test_an_epsilon_that_it_cannot_take_is_known_before():
    assert ENGINES["adaptive"].expected_error(MEAN, records=10**6, epsilon=5000.0, delta=1e-6) == math.inf


def test_a_last_marginal_of_a_tiny_share_is_paid_for():
    """As small as a plan of 3,240 marginals may have it: less than a tolerance may take for nothing."""
    sizes = (2,) * 80
    known = [(column,) for column in range(80)] + list(itertools.combinations(range(80), 2))
    shares = np.append(np.ones(len(known) - 1), 1.01e-4)
    plan = MarginalStrategy(tuple(known), shares / shares.sum(), np.ones(len(known)))
    queries, budget = Marginals.of_order(sizes, 2), Budget(epsilon=1.0, delta=1e-6, slack=0.0)
    private = check_private(queries, Rows([[0] * 80] * 10, sizes))
    steps = _Steps(queries, private, budget, SeededNoise(0), plan, {})
    steps.measure_plan(0.975)
    steps.measure_plan(steps.remaining)
    assert set(steps.noisy) == set(known)
    with pytest.raises(BudgetSpent):  # and nothing is left over
        steps.measure((0,), 1.0)


# ---------------------------------------------------------------- which error is to be small


def test_what_noise_would_drown_is_left_to_columns():
    queries = Marginals((8,) * 10, list(itertools.combinations(range(10), 2)), [1.0] * 45)
    columns = [
        sum(share for clique, share in zip(plan.cliques, plan.shares, strict=True) if len(clique) == 1)
        for plan in (plan_marginals(queries, noise) for noise in (1e-4, 1e-2))
    ]
    assert columns[0] < 0.1 < 0.5 < columns[1]
    assert plan_marginals(queries, 1e-2).variances.max() < math.inf  # and every answer has an unbiased estimate


def test_weights_by_query_lower_the_noise_of_what_they_name():
    queries = Marginals((3, 3, 3), list(itertools.combinations(range(3), 2)), [1.0, 1.0, 6.0])
    variances = plan_marginals(queries, 1e-4).variances
    assert variances[2] < 0.7 * variances[0]


TABLE = {"a": ["x", "y"] * 3000, "b": ["u", "v", "w", "u"] * 1500, "c": ["p", "q", "q"] * 2000}
COLUMNS = Columns.from_dict({"a": ["x", "y"], "b": ["u", "v", "w"], "c": ["p", "q"]})


@pytest.mark.parametrize("engine", ["adaptive", "residual"])
@pytest.mark.parametrize(
    "settings",
    [{"error": "mean"}, {"error": "weighted", "target": "c"}, {"error": "weighted", "error_weights": {("a", "b"): 3}}],
    ids=["mean", "target", "weights"],
)
def test_a_release_makes_the_error_small_that_it_is_told(engine, settings, tmp_path):
    release = QueryRelease(Workload.marginals(2), columns=COLUMNS, engine=engine, **settings).fit(TABLE)
    answers = release.answer([{"a": "x", "c": "q"}]).to_pylist()
    assert abs(answers[0]["answer"] - 1 / 3) < 0.05
    again = QueryRelease.load(release.save(tmp_path / "kept"))
    assert again.answer() == release.answer()


@pytest.mark.parametrize(
    ("subject", "settings", "says"),
    [
        (Workload.marginals(2), {"error": "least"}, "error must be one of"),
        (Workload.marginals(2), {"error": "mean", "target": "c"}, "only then"),
        (Workload.marginals(2), {"error": "weighted"}, "only then"),
        (Workload.marginals(2), {"error": "weighted", "target": "d"}, "names 'd'"),
        (Workload.marginals(2), {"error": "weighted", "error_weights": {"a": -1.0}}, "weight must be"),
        (Workload.expressions(["a = 'x'"]), {"error": "mean"}, "is for marginals"),
    ],
)
def test_what_cannot_be_weighed_is_refused(subject, settings, says):
    with pytest.raises(InvalidInput, match=says):
        QueryRelease(subject, columns=COLUMNS, **settings).fit(TABLE)


# ---------------------------------------------------------------- bands, where earlier noise decides what is measured


def out_of_band(level_at, paths=20_000, looks=40):
    """How often an adversary gets an answer out of its band, who measures again until it is.

    Each measurement has three times the precision of all before. The level is a function of the precision.
    """
    rng, precision = np.random.default_rng(0), 1.0
    sums, out = rng.normal(size=paths), np.zeros(paths, dtype=bool)
    for _ in range(looks):
        out |= np.abs(sums) > level_at(precision) * math.sqrt(precision)
        sums = np.where(out, sums, sums + rng.normal(scale=math.sqrt(3 * precision), size=paths))
        precision *= 4.0
    return out.mean()


def test_an_adversary_who_measures_again_does_not_leave_the_band():
    """The band of a fixed design, it does leave. (20,000 paths: 6 deviations of the share are below 0.01.)"""
    beta, column, empty = 0.05, Marginals((2,), [(0,)]), np.zeros(1)

    def proved(precision):
        details = looks_of(column, {(0,): 1.0}, {(0,): precision})
        return Released(empty, empty, None, None, "adaptive", (), details).level(1, beta)

    assert out_of_band(lambda precision: math.sqrt(2 * math.log(2 / beta))) > beta + 0.01
    assert out_of_band(proved) < beta - 0.01


def test_bands_of_chosen_measurements_allow_for_the_choice(tmp_path):
    codes = twins().codes.astype(str)
    table = {f"c{place}": codes[:, place].tolist() for place in range(len(MANY.sizes))}
    declared = {f"c{place}": [str(code) for code in range(size)] for place, size in enumerate(MANY.sizes)}
    release = QueryRelease(Workload.marginals(2), columns=Columns.from_dict(declared), engine="adaptive").fit(table)
    again = QueryRelease.load(release.save(tmp_path / "kept"))
    for one in (release, again):
        released, count = one.released_, one.domain_.queries.count
        level, fixed = released.level(count, 0.05), math.sqrt(2 * math.log(2 * count / 0.05))
        assert level > fixed * 1.1
        band = one.answer(band=0.95).to_pydict()
        half = level * released.deviations
        assert np.allclose(band["low"], np.clip(np.minimum(released.unbiased - half, released.answers), 0, 1))
        assert np.allclose(band["high"], np.clip(np.maximum(released.unbiased + half, released.answers), 0, 1))
        assert one.engine_error_bound(0.05) >= min(1.0, level * float(released.deviations.max()))
    residual = QueryRelease(Workload.marginals(2), columns=COLUMNS, engine="residual").fit(TABLE)
    assert residual.released_.level(9, 0.05) == math.sqrt(2 * math.log(2 * 9 / 0.05))  # a fixed design


@pytest.mark.parametrize("weighted", [False, True])
def test_auto_takes_what_measures_once_where_there_is_nothing_to_choose(weighted):
    for sizes, records, epsilon in itertools.product([(2, 3), (2,) * 6], (50, 10**6), (0.01, 10.0)):
        cliques = list(itertools.combinations(range(len(sizes)), 2))
        queries = Marginals(sizes, cliques, [1.0] * len(cliques) if weighted else None)
        public = Rows([[0] * len(sizes)], sizes)
        for given in (None, public):
            ranked = list(expected_errors(queries, records=records, epsilon=epsilon, delta=1e-6, public=given))
            assert ranked.index("residual") < ranked.index("adaptive")


def test_auto_chooses_where_the_mean_error_is_to_be_small():
    settings = {"records": 20_000, "epsilon": 0.1, "delta": 1e-6}
    assert next(iter(expected_errors(MEAN, **settings))) == "adaptive"
    assert next(iter(expected_errors(MANY, **settings))) == "residual"
    assert next(iter(expected_errors(MEAN, **(settings | {"records": 200})))) == "residual"
    assert next(iter(expected_errors(MEAN, public=twins(1, 600), **settings))) != "adaptive"


# ---------------------------------------------------------------- columns that say the same


def test_columns_that_say_the_same_are_found_with_little_budget():
    """Seeds are fixed: no alarm by chance. `residual` misses up to a fifth of the records in one cell."""
    rows = twins()
    truth, place = MEAN.answers(rows) / rows.records, slice(0, 144)
    largest = {
        name: [
            np.abs(ENGINES[name]._run(MEAN, rows, None, budget, SeededNoise(seed)).answers - truth)[place].max()
            for seed in range(3)
            for budget in [Budget(epsilon=0.1, delta=1e-6, slack=0.0)]
        ]
        for name in ("adaptive", "residual")
    }
    assert max(largest["adaptive"]) < 0.1
    assert max(largest["residual"]) > 0.15
