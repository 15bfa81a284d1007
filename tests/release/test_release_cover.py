"""Covers against brute force: cells, the place of every record, and the projection of every hypothesis."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from cover_hypotheses import hypothesis_of, read_answers
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.release_covers import largest_answer
from quorate import Budget
from quorate.core.errors import Infeasible, InvalidInput
from quorate.models.concepts import (
    Box,
    Boxes,
    Conjunction,
    Conjunctions,
    Constant,
    Finite,
    Halfspace,
    Halfspaces,
    Interval,
    Intervals,
    Stump,
    Stumps,
    Threshold,
    Thresholds,
)
from quorate.release.cover import make_cover
from quorate.release.cover._arrangement import Lines, find_exact_points
from quorate.release.cover.base import gap_share, pair_share
from quorate.release.engines import ENGINES
from quorate.release.queries import NOTHING, Matrix, Queries, Rows

SMALL = st.integers(-3, 3).map(float)
WILD = st.sampled_from(
    [0.0, -0.0, 0.1, 0.2, 0.30000000000000004, 0.3, 1.0, math.nextafter(1.0, 2.0), 1e-300, 1e300, -1e300]
)
NUMBERS = SMALL | WILD
STRANGE = st.sampled_from([math.nan, math.inf, -math.inf])


def predicted(hypothesis, points):
    return np.asarray(hypothesis.label_points(points)).astype(np.int64)


def sums(cover, records, numbers):
    """The exact counts of the cover's queries, read from the counted records."""
    return read_answers(cover, cover.queries.answers(cover.count(records)), numbers)


def check(cover, public, records, hypotheses):
    """Every hypothesis goes to a query that labels the public points alike and counts the records as it should."""
    public = np.asarray(public, dtype=float).reshape(-1, cover.concept.features)
    records = np.asarray(records, dtype=float).reshape(-1, cover.concept.features)
    numbers = cover.find(hypotheses)
    found = sums(cover, records, numbers)
    usable = cover.concept.usable(records)
    for hypothesis, number, count in zip(hypotheses, numbers, found, strict=True):
        chosen = hypothesis_of(cover, int(number))
        if len(public):
            np.testing.assert_array_equal(predicted(hypothesis, public), predicted(chosen, public))
        if usable.all():  # of other records a cover of rows may count what can be read
            assert count == predicted(chosen, records).sum()
    return numbers


def check_cells(cover, probes):
    """A cell is one pattern of labels: centres differ in it, and no probe has another."""
    cells = cover.locate(probes)
    centres = cover.centres()
    assert centres.shape == (cover.cells, cover.concept.features)
    assert cover.locate(centres[~np.isnan(centres).any(axis=1)]).max(initial=0) < cover.cells
    rows = {}
    for cell, probe in zip(cells.tolist(), probes, strict=True):
        patterns = tuple(sums(cover, [probe], np.arange(cover.queries.count)).tolist())
        assert rows.setdefault(cell, patterns) == patterns
    assert len(set(rows.values())) == len(rows)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(NUMBERS, max_size=6),
    st.lists(NUMBERS, max_size=6),
    st.lists(NUMBERS | st.sampled_from([-math.inf, math.inf]), min_size=1, max_size=5),
)
def test_thresholds(public, records, cuts):
    for both in (False, True):
        cover = make_cover(Thresholds(both_directions=both), public)
        hypotheses = [Threshold(cut, upward) for cut in cuts for upward in ((True, False) if both else (True,))]
        check(cover, public, records, [*hypotheses, Constant(features=1, label=0), Constant(features=1, label=1)])
        assert cover.cells == max(1, len(set(public))) + 1
        np.testing.assert_array_equal(cover.locate(cover.centres()), np.arange(cover.cells))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(NUMBERS, max_size=6),
    st.lists(NUMBERS, max_size=6),
    st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=5),
)
def test_intervals(public, records, ends):
    cover = make_cover(Intervals(), public)
    check(cover, public, records, [*(Interval(low, high) for low, high in ends), *Intervals().dichotomies(public)])
    np.testing.assert_array_equal(cover.locate(cover.centres()), np.arange(cover.cells))
    assert len(set(cover.find(list(Intervals().dichotomies(public))))) == len(Intervals().dichotomies(public))


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 3))
def test_boxes(data, features):
    point = st.tuples(*[NUMBERS] * features)
    public, records = data.draw(st.lists(point, max_size=4)), data.draw(st.lists(point, max_size=4))
    corners = data.draw(st.lists(st.tuples(point, point), min_size=1, max_size=4))
    cover = make_cover(Boxes(features), np.array(public).reshape(-1, features))
    matrix = np.array(public, dtype=float).reshape(-1, features)
    check(cover, public, records, [*(Box(low, high) for low, high in corners), *Boxes(features).dichotomies(matrix)])
    centres = cover.centres()
    plain = ~np.isnan(centres).any(axis=1)
    np.testing.assert_array_equal(cover.locate(centres[plain]), np.flatnonzero(plain))


PLANE = st.tuples(SMALL, SMALL) | st.tuples(WILD, WILD)


@settings(max_examples=80, deadline=None)
@given(st.lists(PLANE, max_size=6), st.lists(PLANE, max_size=6), st.lists(st.tuples(SMALL, SMALL, SMALL), max_size=4))
def test_halfspaces(public, records, planes):
    public = np.array(public, dtype=float).reshape(-1, 2)
    cover = make_cover(Halfspaces(2), public)
    every = list(Halfspaces(2).dichotomies(public))
    drawn = [
        Halfspace(features=2, levels=(((Fraction(a), Fraction(b)), Fraction(c)),), otherwise=0) for a, b, c in planes
    ]
    numbers = check(cover, public, [*records, *public], [*every, *drawn])
    assert len(set(numbers[: len(every)].tolist())) == len(every)
    if len(public):
        assert 2 * len(cover.lines) + 2 == len(every)
    lines = range(len(cover.lines))
    for number in (*lines, *(len(cover.lines) + 1 + line for line in lines)):
        assert cover.find([hypothesis_of(cover, number)]) == [number]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), max_size=9, unique=True), st.booleans())
def test_faces_are_as_many_as_euler_says_and_all_different(pairs, fine):
    unit = Fraction(1, 3) if fine else Fraction(1)  # thirds are no floats
    lines = Lines([slope * unit for slope, _ in pairs], [intercept * unit for _, intercept in pairs])
    faces, inside = find_exact_points(lines)
    rows = faces.bits()
    vertices: dict[tuple[Fraction, Fraction], set[int]] = {}
    for one in range(len(lines)):
        for other in range(one):
            if lines.slopes[one] != lines.slopes[other]:
                x = lines.crossing(one, other)
                vertices.setdefault((x, lines.slopes[one] * x + lines.intercepts[one]), set()).update((one, other))
    assert len(faces) == 1 + len(lines) + sum(len(through) - 1 for through in vertices.values())
    assert len(np.unique(rows, axis=0)) == len(rows) == len(faces)
    for bits, (x, y) in zip(rows, inside, strict=True):
        heights = [y - slope * x - intercept for slope, intercept in zip(lines.slopes, lines.intercepts, strict=True)]
        assert all(height != 0 for height in heights)
        np.testing.assert_array_equal(np.unpackbits(bits, count=len(lines)), [height > 0 for height in heights])


def test_a_record_on_a_line_counts_as_below_it():
    cover = make_cover(Halfspaces(2), [[0.0, 0.0], [0.0, 2.0], [3.0, 1.0]])
    on = []
    for slope, intercept in zip(cover.lines.slopes, cover.lines.intercepts, strict=True):
        on += [[float(x), float(slope * x + intercept)] for x in (Fraction(-2), Fraction(1), Fraction(4))]
    for one in range(len(cover.lines)):
        for other in np.flatnonzero(cover.lines.ranks < cover.lines.ranks[one]).tolist():
            x = cover.lines.crossing(one, other)
            on.append([float(x), float(cover.lines.slopes[one] * x + cover.lines.intercepts[one])])
    numbers = np.arange(len(cover.lines))
    for point in on:
        expected = [predicted(hypothesis_of(cover, int(number)), np.array([point]))[0] for number in numbers]
        np.testing.assert_array_equal(sums(cover, [point], numbers), expected)


def test_a_record_within_rounding_of_a_line_is_on_its_right_side():
    chance = np.random.default_rng(5)
    cover = make_cover(Halfspaces(2), chance.normal(size=(7, 2)))
    for line, (slope, intercept) in enumerate(zip(cover.lines.slopes, cover.lines.intercepts, strict=True)):
        x = chance.normal(size=40) * 10.0 ** chance.integers(-8, 9, 40)
        y = np.array([float(slope * Fraction(value) + intercept) for value in x.tolist()])
        y = np.concatenate([np.nextafter(y, -np.inf), y, np.nextafter(y, np.inf)])
        records = np.stack([np.tile(x, 3), y], axis=1)
        above = np.isin(cover.locate(records), cover.queries.members(line))
        exact = [Fraction(b) > slope * Fraction(a) + intercept for a, b in records.tolist()]
        np.testing.assert_array_equal(above, exact)


def test_cells_are_patterns_of_labels():
    generator = np.random.default_rng(1)
    grid = [[float(x), float(y)] for x in range(-2, 3) for y in range(-2, 3)]
    for concept, public in [
        (Thresholds(), [[1.0], [2.0], [2.0], [7.0]]),
        (Intervals(), [[1.0], [2.0], [7.0]]),
        (Boxes(2), [[0.0, 0.0], [1.0, 2.0], [2.0, 1.0]]),
        (Halfspaces(2), [[0.0, 0.0], [1.0, 2.0], [2.0, 1.0], [1.0, 1.0]]),
    ]:
        probes = generator.normal(scale=3, size=(300, concept.features)).tolist()
        probes += grid if concept.features == 2 else [[value] for value in np.arange(-3, 9, 0.25)]
        cover = make_cover(concept, public)
        check_cells(cover, probes)
        plain = cover.centres()[:-1]
        plain = plain[~np.isnan(plain).any(axis=1)]
        patterns = [tuple(sums(cover, [centre], np.arange(cover.queries.count))) for centre in plain]
        assert len(set(patterns)) == len(patterns)


def test_many_points_in_the_plane_are_located_rightly():
    generator = np.random.default_rng(2)
    cover = make_cover(Halfspaces(2), generator.normal(size=(15, 2)).round(1))
    records = generator.normal(size=(2000, 2))
    counts = sums(cover, records, np.arange(len(cover.lines)))
    for number in range(len(cover.lines)):
        assert counts[number] == predicted(hypothesis_of(cover, number), records).sum()
    centres = cover.centres()[:-1]
    assert (cover.locate(centres) == np.arange(len(centres))).mean() > 0.99  # some faces are too small for floats


@settings(max_examples=40, deadline=None)
@given(st.data(), st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_conjunctions(data, categories):
    point = st.tuples(*[st.integers(0, count - 1).map(float) for count in categories])
    records = data.draw(st.lists(point, min_size=1, max_size=6))
    public = data.draw(st.lists(point, max_size=3))
    concept = Conjunctions(categories)
    cover = make_cover(concept, np.array(public).reshape(-1, len(categories)))
    literals = st.tuples(st.integers(0, len(categories) - 1), st.integers(0, 3))
    drawn = data.draw(st.lists(st.lists(literals, max_size=3), max_size=4))
    hypotheses = [Conjunction(features=len(categories), literals=tuple(each)) for each in drawn]
    check(cover, public, records, [*hypotheses, *concept.dichotomies(np.array(records))])
    for hypothesis, count in zip(hypotheses, sums(cover, records, cover.find(hypotheses)), strict=True):
        assert count == predicted(hypothesis, np.array(records)).sum(), "every conjunction is its own query"


def test_a_value_that_is_not_declared_fulfils_no_literal_of_its_column():
    cover = make_cover(Conjunctions([2, 2]), [])
    records = [[0, 1], [5, 1], [0.5, math.nan], [-1, math.inf]]
    numbers = cover.find([Conjunction(features=2, literals=((1, 1),)), Conjunction(features=2, literals=((0, 0),))])
    np.testing.assert_array_equal(sums(cover, records, numbers), [2, 1])
    assert np.isnan(cover.points_of(np.array([[2, 0]]))[0, 0])


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 3), st.booleans())
def test_stumps(data, features, binary):
    value = st.integers(0, 1).map(float) if binary else NUMBERS
    point = st.tuples(*[value] * features)
    public, records = data.draw(st.lists(point, max_size=4)), data.draw(st.lists(point, max_size=4))
    stump = st.builds(
        Stump, features=st.just(features), feature=st.integers(0, features - 1), cut=NUMBERS, upward=st.booleans()
    )
    concept = Stumps(features=features, binary=binary)
    cover = make_cover(concept, np.array(public).reshape(-1, features))
    drawn = data.draw(st.lists(stump, max_size=4))
    check(cover, public, records, [*drawn, *concept.dichotomies(np.array(public).reshape(-1, features))])
    if public:
        codes = cover.count(public).codes
        np.testing.assert_array_equal(cover.count(cover.points_of(codes)).codes, codes)


def test_a_stump_does_not_count_what_has_no_value_there():
    cover = make_cover(Stumps(features=2), [[0.0, 0.0], [1.0, 1.0]])
    records = [[math.nan, 1.0], [1.0, math.inf]]
    up, down = Stump(features=2, feature=0, cut=0.5), Stump(features=2, feature=0, cut=0.5, upward=False)
    np.testing.assert_array_equal(sums(cover, records, cover.find([up, down])), [1, 0])
    other = Stump(features=2, feature=1, cut=0.5)
    np.testing.assert_array_equal(sums(cover, records, cover.find([other])), [1])


def test_a_finite_list_is_merged_by_its_labels_on_public_points():
    members = [lambda X, cut=cut: X[:, 0] > cut for cut in (0.0, 0.2, 1.0, 5.0)]
    concept = Finite(members, features=1)
    public = np.array([[0.5], [2.0]])
    cover = make_cover(concept, public)
    records = [[0.1], [3.0], [9.0]]
    check(cover, public, records, [concept.member(index) for index in range(4)])
    assert cover.queries.count == 1 + 3 * 3
    assert math.isnan(cover.points_of(np.array([[1, 1, 1]]))[0, 0]), "no public point above 5 is known"
    with pytest.raises(InvalidInput, match="as no member"):
        cover.find([Threshold(1.0, upward=False)])
    assert cover.find([Threshold(1.0)]) == cover.find([concept.member(2)])


@pytest.mark.parametrize(
    "concept",
    [Thresholds(), Thresholds(both_directions=True), Intervals(), Boxes(1), Boxes(2), Boxes(3), Halfspaces(2)],
    ids=repr,
)
def test_what_is_no_point_has_a_cell_of_its_own_and_is_in_no_query(concept):
    public = np.arange(3 * concept.features, dtype=float).reshape(3, -1)
    cover = make_cover(concept, public)
    for strange in (math.nan, math.inf, -math.inf):
        record = np.zeros((1, concept.features))
        record[0, -1] = strange
        assert cover.locate(record) == [cover.cells - 1]
        every = list(concept.dichotomies(public))
        np.testing.assert_array_equal(sums(cover, record, cover.find(every)), np.zeros(len(every)))
    assert np.isnan(cover.centres()[-1]).all()
    assert isinstance(cover.queries, Queries)


@pytest.mark.parametrize("points", [0, 1])
@pytest.mark.parametrize("concept", [Thresholds(), Intervals(), Boxes(2), Halfspaces(2), Stumps(2)], ids=repr)
def test_one_public_point_and_none(concept, points):
    public = np.full((points, concept.features), 3.0)
    cover = make_cover(concept, public)
    one = Constant(features=concept.features, label=1)
    records = np.zeros((4, concept.features))
    np.testing.assert_array_equal(sums(cover, records, cover.find([one])), [4])
    assert cover.share() > 0.9
    assert cover.find([Constant(features=concept.features, label=0)]) == [NOTHING]


@pytest.mark.parametrize(
    "odd",
    [
        *("text", "", b"x", 1j, None, [], [1.0, 2.0], [[1.0]], [[1.0], 2.0], {"a": 1}, np.datetime64("2020"), 10**400),
        np.array(1.0),  # which NumPy takes for a number among numbers, and not among texts
        np.timedelta64("NaT"),
    ],
    ids=lambda odd: type(odd).__name__,
)
def test_a_record_of_a_plain_list_that_is_no_point_leaves_the_others_alone(odd):
    """No type is read off a list, so that one record cannot turn the others into texts, or be refused."""
    line = make_cover(Thresholds(), [[0.0], [1.0]])
    assert line.locate([1.0, odd, 0.0]).tolist() == line.locate([1.0, math.nan, 0.0]).tolist()
    assert line.locate([[1.0], odd, [0.0]]).tolist() == line.locate([1.0, math.nan, 0.0]).tolist()
    plane = make_cover(Boxes(2), [[0.0, 0.0], [1.0, 1.0]])
    known = plane.locate([[1.0, 1.0], [math.nan, 1.0], [0.0, 0.0]]).tolist()
    assert plane.locate([[1.0, 1.0], [odd, 1.0], [0.0, 0.0]]).tolist() == known
    if not isinstance(odd, list) or odd != [1.0, 2.0]:
        assert plane.locate([[1.0, 1.0], odd, [0.0, 0.0]]).tolist() == known


def test_numbers_of_any_kind_are_points():
    line = make_cover(Thresholds(), [[0.0], [1.0]])
    second = np.timedelta64(1, "s")
    for one in (1, True, np.True_, np.float32(1), Fraction(1), Decimal(1), "1", " 1.0 ", b"1", 1 + 0j, second):
        assert line.locate([0.0, one]).tolist() == line.locate([0.0, 1.0]).tolist(), repr(one)
        assert line.locate(np.array([0.0, one], dtype=object)).tolist() == line.locate([0.0, 1.0]).tolist()
    with pytest.raises(InvalidInput, match="with 1 columns"):
        line.locate(np.array([[1.0, "text"], [0.0, "text"]], dtype=object))  # two columns are a mistake of whoever asks
    assert line.locate([[1.0, "text"], [0.0, "text"]]).tolist() == line.locate([math.nan] * 2).tolist()


@pytest.mark.filterwarnings("error")
def test_public_points_near_the_ends_of_floats_do_not_warn():
    cover = make_cover(Halfspaces(2), [[1e-300, 1e308], [1.0, -1.0], [-1.7e308, -1.7e308]])
    assert cover.locate([[0.0, 0.0], [1e308, -1e308]]).max() < cover.cells


def test_the_same_points_in_another_order_give_the_same_cover():
    generator = np.random.default_rng(3)
    public, records = generator.normal(size=(9, 2)).round(1), generator.normal(size=(50, 2))
    one, other = (make_cover(Halfspaces(2), points) for points in (public, public[::-1]))
    np.testing.assert_array_equal(one.locate(records), other.locate(records))
    np.testing.assert_array_equal(one.centres(), other.centres())


def test_shares_hold_on_samples():
    """The bound is broken with probability 5% at most: more than 30 breaks of 200 samples would be too many."""
    generator = np.random.default_rng(8)
    broken = 0
    for _ in range(200):
        public = np.sort(generator.uniform(size=50))
        gaps = np.diff(np.concatenate([[0.0], public, [1.0]]))
        broken += gaps.max() > make_cover(Thresholds(), public).share()
    assert broken <= 30
    assert make_cover(Thresholds(), np.arange(10_000.0)).share() < 0.00125
    assert make_cover(Intervals(), np.arange(100.0)).share(0.01) < 2 * make_cover(Thresholds(), np.arange(100.0)).share(
        0.004
    )


@pytest.mark.parametrize("points", [1, 10, 100])
def test_the_share_by_the_growth_function_is_above_what_samples_show(points):
    """For thresholds the largest gap is known: its 95% point is `gap_share` at most, and the rougher bound is above."""
    gaps = np.diff(np.sort(np.random.default_rng(7).uniform(size=(4000, points)), axis=1), prepend=0.0, append=1.0)
    seen = float(np.quantile(gaps.max(axis=1), 0.95))
    assert seen - 0.03 < gap_share(points, 0.05) <= pair_share(Thresholds(), points, 0.05)
    assert pair_share(Thresholds(), points, 0.05) <= pair_share(Halfspaces(2), points, 0.05)


def test_what_is_refused_names_no_record():
    with pytest.raises(InvalidInput, match="public row 2 is no point of Boxes"):
        make_cover(Boxes(2), [[0.0, 0.0], [math.nan, 1.0]])
    with pytest.raises(InvalidInput, match="Threshold or Constant over 1 features, not Interval"):
        make_cover(Thresholds(), [1.0]).find([Interval(0.0, 1.0)])
    with pytest.raises(InvalidInput, match="both_directions"):
        make_cover(Thresholds(), [1.0]).find([Threshold(0.0, upward=False)])
    with pytest.raises(InvalidInput, match="got NaN"):
        make_cover(Thresholds(), [1.0]).find([Threshold(math.nan)])
    with pytest.raises(Infeasible, match="must have 2 dimensions, got 3"):
        make_cover(Halfspaces(3), np.eye(3))
    with pytest.raises(Infeasible, match="at most 3 dimensions, got 4"):
        make_cover(Boxes(4), np.eye(4))
    with pytest.raises(Infeasible, match="pass fewer public points"):
        make_cover(Boxes(3), np.random.default_rng(0).normal(size=(500, 3)))
    with pytest.raises(Infeasible, match="pass fewer public points"):
        make_cover(Halfspaces(2), np.random.default_rng(0).normal(size=(200, 2)))
    with pytest.raises(InvalidInput, match="can be released for Thresholds"):
        make_cover(object(), [])  # type: ignore[arg-type]
    assert isinstance(make_cover(Stumps(features=50, binary=True), []).count(np.zeros((1, 50))), Rows)


def test_sides_agree_with_a_matrix():
    generator = np.random.default_rng(4)
    cover = make_cover(Halfspaces(2), generator.normal(size=(7, 2)))
    queries = cover.queries
    rows = np.zeros((queries.count, queries.cells), dtype=bool)
    for number in range(queries.count):
        rows[number, queries.members(number)] = True
    matrix = Matrix(rows)
    assert matrix.sensitivity <= queries.sensitivity
    for weights in (generator.normal(size=queries.cells), np.eye(queries.cells)[5]):
        np.testing.assert_allclose(queries.answers(weights), matrix.answers(weights), atol=1e-12)
        np.testing.assert_allclose(queries.some([3, 0], weights), matrix.some([3, 0], weights), atol=1e-12)
        assert largest_answer(queries, weights) == pytest.approx(largest_answer(matrix, weights))
    values = generator.normal(size=queries.count)
    np.testing.assert_allclose(queries.spread(values), matrix.spread(values), atol=1e-12)


@pytest.mark.parametrize("engine", ["plain", "weights"])
def test_a_cover_goes_through_an_engine(engine):
    """With epsilon 50 the noise of 2000 records is far below 0.1."""
    generator = np.random.default_rng(5)
    public, private = generator.normal(size=(6, 2)), generator.normal(size=(2000, 2))
    for concept in (Boxes(2), Halfspaces(2)):
        cover = make_cover(concept, public)
        budget = Budget(epsilon=50.0, delta=1e-6, slack=0.0)
        released = ENGINES[engine].run(cover.queries, cover.count(private), budget=budget)
        every = list(concept.dichotomies(public))
        answers = read_answers(cover, released.answers, cover.find(every))
        truth = sums(cover, private, cover.find(every)) / len(private)
        np.testing.assert_allclose(answers, truth, atol=0.1)
