"""QueryRelease: answers, error bars, synthetic records, files that hold nothing private, refusals before spending."""

import errno
import hashlib
import io
import json
import math
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from cover_hypotheses import hypothesis_of
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from benchmarks.release_covers import largest_answer
from conftest import FALSE_ALARM
from quorate import Budget, Infeasible, InvalidInput
from quorate.core.mechanisms.noisy_vector import NoisyVector
from quorate.models.concepts import (
    Box,
    Boxes,
    Conjunction,
    Conjunctions,
    Finite,
    Halfspaces,
    Interval,
    Intervals,
    Stump,
    Stumps,
    Threshold,
    Thresholds,
)
from quorate.models.saving.codecs import from_plain, to_plain
from quorate.models.saving.documents import CONCEPTS
from quorate.release import Columns, QueryRelease, Workload
from quorate.release.domain import SealedCounts
from quorate.release.queries import Marginals, Matrix, Prefixes, Ranges, Rows
from quorate.release.queries.base import NOTHING
from quorate.release.synthetic import fit_weights, product_support, round_weights


def reals(size, seed):
    return np.random.default_rng(seed).standard_cauchy(size)  # no bounds, heavy tails


def people(rows, seed):
    chance = np.random.default_rng(seed)
    return {
        "age": chance.normal(45, 18, rows).round(1).tolist(),
        "sex": chance.choice(["f", "m"], rows).tolist(),
        "region": chance.choice(["n", "s", "w"], rows, p=[0.6, 0.3, 0.1]).tolist(),
    }


def points(rows, seed):
    return np.random.default_rng(seed).normal(size=(rows, 2))


# ---------------------------------------------------------------- answers


def test_thresholds_over_unbounded_reals_are_answered_within_the_bound():
    private, public = reals(50_000, 1), reals(400, 2)
    release = QueryRelease(Thresholds(both_directions=True), epsilon=1.0, delta=1e-6).fit(private, public)
    asked = [Threshold(cut, upward=up) for cut in (-1e9, -3.0, 0.0, 0.1, 7.0, 1e9) for up in (True, False)]
    table = release.answer(asked)
    truth = np.array([query.predict(private).mean() for query in asked])
    bound = release.engine_error_bound(FALSE_ALARM) + release.domain_.share(1e-6)
    assert np.abs(table["answer"].to_numpy() - truth).max() <= bound
    assert table.column_names == ["query", "answer", "error", "low", "high"]
    assert table["query"][0].as_py() == "Threshold(cut=-1000000000.0, upward=True)"


def test_every_class_is_released_and_its_queries_come_near_the_truth():
    plane, known = points(20_000, 3), points(12, 4)
    line, marks = reals(20_000, 5), reals(60, 6)
    coded = np.random.default_rng(7).integers(0, 3, size=(20_000, 3)).astype(float)
    bits = (coded > 1).astype(float)
    cases = [
        (Intervals(), line, marks, [Interval(-1.0, 1.0), Interval(0.0, math.inf)]),
        (Boxes(2), plane, known, [Box((-1.0, -1.0), (1.0, 0.5))]),
        (Halfspaces(2), plane, known, list(Halfspaces(2).dichotomies(known))[:5]),
        (Conjunctions([3, 3, 3]), coded, coded[:50], [Conjunction(features=3, literals=((0, 1), (2, 2)))]),
        (Stumps(features=3, binary=True), bits, bits[:9], [Stump(features=3, feature=1, cut=0.5)]),
        (Finite([lambda X: X[:, 0] > 0, lambda X: X[:, 1] > X[:, 0]], features=2), plane, known, None),
    ]
    for concept, private, public, asked in cases:
        release = QueryRelease(concept).fit(private, public)
        queries = release.domain_.every() if asked is None else asked
        table = release.answer(queries)
        truth = np.array([query.predict(private).mean() for query in queries])
        projected = [hypothesis_of(release.domain_, int(one)) for one in release.domain_.find(queries)]
        nearby = np.array([query.predict(private).mean() for query in projected])
        assert np.abs(table["answer"].to_numpy() - nearby).max() < 0.1, concept  # the engine's part alone
        assert len(table) == len(truth)
        assert release.budget_.remaining().renyi == 0.0 or release.engine_ == "weights"


def test_a_workload_is_a_tidy_table_with_error_bars():
    private, public = people(20_000, 1), people(300, 2)
    release = QueryRelease(Workload.marginals(2), epsilon=2.0).fit(private, public)
    table = release.answer()
    assert table.column_names == ["query", "age", "sex", "region", "answer", "error", "low", "high"]
    assert len(table) == release.domain_.queries.count
    low, answer, high = (table[name].to_numpy() for name in ("low", "answer", "high"))
    assert ((low <= answer) & (answer <= high)).all()
    both = release.answer([{"sex": "f", "region": "n"}])["answer"][0].as_py()
    truth = np.mean(
        [sex == "f" and region == "n" for sex, region in zip(private["sex"], private["region"], strict=True)]
    )
    assert abs(both - truth) <= release.engine_error_bound(FALSE_ALARM)
    name = table["query"][5].as_py()
    assert release.answer(name)["answer"][0] == table["answer"][5]


def test_thresholds_by_group_and_ranges_and_expressions():
    private, public = people(20_000, 3), people(300, 4)
    ages, sexes = np.array(private["age"]), np.array(private["sex"])
    by_sex = QueryRelease(Workload.thresholds("age", by="sex")).fit(private, public)
    row = by_sex.answer([{"age": 40, "sex": "f"}]).to_pylist()[0]
    cut = float(row["age"].removeprefix("below "))
    assert abs(row["answer"] - ((ages < cut) & (sexes == "f")).mean()) <= by_sex.engine_error_bound(FALSE_ALARM)
    ranges = QueryRelease(Workload.ranges("age", bins=20)).fit(private, public)
    assert len(ranges.answer([{"age": (20, 60)}])) == 1
    texts = ["age >= 18 and sex = 'f'", "not (region in ('n', 's'))"]
    said = QueryRelease(Workload.expressions(texts)).fit(private)
    found = said.answer(texts)["answer"].to_numpy()
    truth = [((ages >= 18) & (sexes == "f")).mean(), np.mean([one == "w" for one in private["region"]])]
    assert np.abs(found - truth).max() <= said.engine_error_bound(FALSE_ALARM)


def test_what_is_no_value_has_a_cell_and_raises_nothing():
    private = np.concatenate([reals(5000, 1), [np.nan, np.inf, -np.inf] * 100])
    release = QueryRelease(Thresholds()).fit(private, [-1.0, 0.0, 1.0])
    whole = release.answer([Threshold(-1e300)])["answer"][0].as_py()
    assert abs(whole - 5000 / 5300) <= release.engine_error_bound(FALSE_ALARM)
    odd = people(3000, 1)
    odd["region"] = ["never declared"] * 1500 + odd["region"][1500:]
    odd["age"] = [None, "?", "old", *odd["age"][3:]]
    release = QueryRelease(Workload.marginals(1)).fit(odd, people(100, 2))
    share = release.answer([{"region": "other"}])["answer"][0].as_py()
    assert abs(share - 0.5) < 0.1


def test_the_bound_allows_for_the_projection_onto_the_simplex():
    columns = Columns.from_dict({"sex": ["f", "m"]})
    release = QueryRelease(Workload.marginals(1), columns=columns, engine="plain").fit(people(5000, 1))
    noise = math.sqrt(2 * math.log(2 * 3 / 0.05)) * release.released_.errors.max()
    assert math.isclose(release.engine_error_bound(0.05), 2 * noise)


def test_the_bound_allows_for_answers_that_are_differences_and_for_weights_of_boxes():
    """A downward threshold and a lower side are one released answer less another; totals of groups must agree."""
    private, public = people(5000, 1), people(50, 2)
    for release, factor in (
        (QueryRelease(Workload.thresholds("age"), engine="prefix").fit(private, public), 1),
        (QueryRelease(Workload.thresholds("age", by="sex"), engine="prefix").fit(private, public), 2),
        (QueryRelease(Workload.ranges("age", by="sex", bins=5), engine="prefix").fit(private, public), 3),
        (QueryRelease(Workload.ranges("age", bins=5), engine="prefix").fit(private, public), 1),
        (QueryRelease(Thresholds(), engine="prefix").fit(reals(5000, 1), reals(9, 2)), 1),
        (QueryRelease(Thresholds(both_directions=True), engine="prefix").fit(reals(5000, 1), reals(9, 2)), 2),
        (QueryRelease(Halfspaces(2), engine="plain").fit(points(5000, 1), points(4, 2)), 2),
        (QueryRelease(Boxes(2), engine="prefix").fit(points(5000, 1), points(4, 2)), 2),
        (QueryRelease(Boxes(2), engine="plain").fit(points(5000, 1), points(4, 2)), 1),
    ):
        noise = math.sqrt(2 * math.log(2 * release.domain_.queries.count / 0.05)) * release.released_.errors.max()
        assert math.isclose(release.engine_error_bound(0.05), factor * noise), release.subject
        asked = release.domain_.every()
        parted = (release.domain_.parts(release.domain_.find(asked))[1] != NOTHING).any()
        assert parted == release.domain_.has_differences


# ---------------------------------------------------------------- scikit-learn manners


def test_it_can_be_cloned_and_says_where_it_is_not_fitted():
    release = QueryRelease(Thresholds(), epsilon=0.5, engine="prefix")
    copy = clone(release)
    assert copy.epsilon == 0.5
    assert copy.fit([1.0] * 100, [0.0]) is copy
    assert copy.engine_ == "prefix"
    for call in (copy.answer, copy.synthetic, copy.error_bound):
        call()
    for call in (release.answer, release.synthetic, release.error_bound):
        with pytest.raises(NotFittedError):
            call()


def test_the_budget_is_spent_by_the_fit_and_by_nothing_after_it():
    release = QueryRelease(Workload.marginals(1), epsilon=0.7, delta=1e-7).fit(people(2000, 1), people(100, 2))
    spent = release.budget_.spent()
    assert 0 < release.budget_.spent_epsilon() <= 0.7
    release.answer()
    release.synthetic(100)
    release.error_bound()
    assert release.budget_.spent() == spent
    assert "(0.7, 1e-07)-differentially private" in release.claim_
    assert "2000 private records" in release.claim_


# ---------------------------------------------------------------- refusals, before anything is spent


TENS = {f"c{i}": [str(number) for number in range(40)] for i in range(60)}
SPACE = np.random.default_rng(0).random((900, 3))
FEW, KNOWN = people(5, 1), people(5, 2)


@pytest.mark.parametrize(
    ("subject", "settings", "private", "public", "error", "text"),
    [
        (Thresholds(), {"epsilon": 0.0}, [1.0], [1.0], InvalidInput, "epsilon"),
        (Thresholds(), {"delta": 0.0}, [1.0], [1.0], InvalidInput, "delta"),
        (Thresholds(), {"engine": "magic"}, [1.0], [1.0], InvalidInput, "engine must be"),
        ("age", {}, [1.0], [1.0], InvalidInput, "a class of hypotheses"),
        (Thresholds(), {}, [1.0], None, InvalidInput, "public points"),
        (Thresholds(), {}, [1.0], [math.nan], InvalidInput, "public"),
        (Thresholds(), {}, [], [1.0], InvalidInput, "at least one record"),
        (Thresholds(), {}, np.ones((1, 2)), [1.0], InvalidInput, "private must be a matrix"),
        (Thresholds(), {"engine": "residual"}, [1.0], [1.0], Infeasible, "cannot answer"),
        (Workload.thresholds("age"), {}, FEW, None, InvalidInput, "columns must be declared"),
        (Workload.marginals(9), {}, FEW, KNOWN, InvalidInput, "need as many"),
        (Workload.marginals(1), {}, {"age": [1.0]}, KNOWN, InvalidInput, "must have the columns"),
        (Workload.thresholds("sex"), {}, FEW, KNOWN, InvalidInput, "column of numbers"),
        (Workload.marginals(3), {"columns": TENS}, {name: ["1"] for name in TENS}, None, Infeasible, "queries"),
        (Halfspaces(2), {}, points(5, 1), points(500, 2), Infeasible, "cells"),
        (Boxes(3), {}, np.ones((5, 3)), SPACE, Infeasible, "cells"),
        (Workload.marginals(1), {"engine": "reweighting", "columns": {"sex": ["f"]}}, FEW, None, Infeasible, "without"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_drawn(subject, settings, private, public, error, text, monkeypatch):
    monkeypatch.setattr(Budget, "spend", lambda *rest, **options: pytest.fail("something was spent"))
    monkeypatch.setattr(NoisyVector, "draw_release", lambda *rest: pytest.fail("something was drawn"))
    release = QueryRelease(subject, **settings)
    with pytest.raises(error, match=text):
        release.fit(private, public)
    assert not hasattr(release, "released_")


def test_a_release_that_would_say_nothing_is_refused_unless_its_engine_is_named(monkeypatch):
    columns = {"sex": ["f", "m"], "age": {"cuts": [30, 50, 70]}}
    table = {"sex": ["f", "m"] * 500, "age": [25.0, 60.0] * 500}
    hopeless = QueryRelease(Workload.marginals(2), columns=columns, epsilon=0.001)
    with monkeypatch.context() as patched:
        patched.setattr(Budget, "spend", lambda *rest, **options: pytest.fail("something was spent"))
        with pytest.raises(Infeasible, match="the release would say nothing; raise epsilon, or name an engine"):
            hopeless.fit(table)
    assert hopeless.set_params(engine="plain").fit(table).expected_error_ >= 0.5


def test_queries_that_are_none_are_refused():
    release = QueryRelease(Thresholds()).fit([1.0, 2.0] * 500, [1.5])
    with pytest.raises(InvalidInput, match="must be a Threshold"):
        release.answer([0.5])
    with pytest.raises(InvalidInput, match="Threshold"):
        release.answer([Interval(0.0, 1.0)])
    with pytest.raises(InvalidInput, match="both_directions"):
        release.answer([Threshold(1.0, upward=False)])
    table = QueryRelease(Workload.marginals(1)).fit(people(500, 1), people(50, 2))
    for wrong in ("nonsense", {"sex": "x"}, {"height": 3}, 10**9, -2, 3.7):
        for asked in ([wrong], wrong):
            with pytest.raises(InvalidInput):
                table.answer(asked)
    with pytest.raises(InvalidInput, match="must be a Threshold"):
        release.answer(0.5)


# ---------------------------------------------------------------- synthetic records


def largest_difference(release, records):
    queries = release.domain_.queries
    counted = release.domain_.seal(records)[0].put_to(lambda counts: counts)
    answers = queries.answers(counted) / (counted.records if isinstance(counted, Rows) else counted.sum())
    return float(np.abs(answers - release.released_.some(queries, np.arange(queries.count))).max())


@pytest.mark.parametrize("engine", ["auto", "plain", "residual", "reweighting"])
def test_synthetic_rows_answer_the_marginals_as_the_release_does(engine):
    release = QueryRelease(Workload.marginals(2), engine=engine).fit(people(30_000, 1), people(1500, 2))
    made = release.synthetic()
    assert isinstance(made, pa.Table)
    assert made.num_rows == 30_000
    assert made.column_names == ["age", "sex", "region"]
    # Within the bound of the release itself, so within twice of it from the truth.
    assert largest_difference(release, made) <= release.engine_error_bound(0.05)


def test_synthetic_points_answer_thresholds_boxes_and_halfspaces():
    line = QueryRelease(Thresholds()).fit(reals(20_000, 1), reals(200, 2))
    assert largest_difference(line, line.synthetic()) <= line.engine_error_bound(0.05)
    boxes = QueryRelease(Boxes(2)).fit(points(20_000, 1), points(12, 2))
    assert largest_difference(boxes, boxes.synthetic()) <= boxes.engine_error_bound(0.05)
    planes = QueryRelease(Halfspaces(2), engine="plain").fit(points(20_000, 1), points(12, 2))
    assert largest_difference(planes, planes.synthetic()) <= planes.engine_error_bound(0.05)


@given(st.integers(1, 60), st.integers(1, 500), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_rounding_is_off_by_half_a_row_for_thresholds_and_by_one_for_ranges(cells, rows, seed):
    weights = np.random.default_rng(seed).dirichlet(np.full(cells, 0.3))
    counts = round_weights(Prefixes(cells), weights, rows)
    assert counts.sum() == rows
    assert (counts >= 0).all()
    assert np.abs(np.cumsum(counts) - rows * np.cumsum(weights)).max() <= 0.5 + 1e-6
    assert largest_answer(Ranges(cells), round_weights(Ranges(cells), weights, rows) - rows * weights) <= 1 + 1e-6


def test_weights_are_fitted_in_both_forms():
    chance = np.random.default_rng(1)
    few = Matrix(chance.random((4, 300)) < 0.5)
    many = Matrix(chance.random((90, 12)) < 0.5)
    for queries in (few, many):
        truth = queries.answers(chance.dirichlet(np.ones(queries.cells)))
        fitted = fit_weights(queries, truth, errors=np.full(queries.count, 1e-4))
        assert fitted.min() >= 0
        assert math.isclose(fitted.sum(), 1.0, rel_tol=1e-9)
        assert np.abs(queries.answers(fitted) - truth).max() < 0.02
    marginals = Marginals((2, 3), [(0,), (1,)])
    shares = np.array([0.25, 0.75, 0.2, 0.3, 0.5])
    assert np.abs(marginals.answers(product_support(marginals, shares, 4000)) / 4000 - shares).max() < 0.01


# ---------------------------------------------------------------- error bounds


def test_the_error_bound_has_both_parts_and_holds():
    private, public = reals(30_000, 1), reals(500, 2)
    for _ in range(5):
        release = QueryRelease(Thresholds(), epsilon=0.5).fit(private, public)
        truth = release.domain_.queries.answers(release.domain_.count(private)) / len(private)
        worst = np.abs(release.released_.some(release.domain_.queries, np.arange(len(truth))) - truth).max()
        assert worst <= release.engine_error_bound(FALSE_ALARM)
    assert release.error_bound(0.05) >= release.domain_.share(0.025)
    assert release.error_bound(0.01) >= release.error_bound(0.1)
    with pytest.raises(InvalidInput):
        release.error_bound(0.0)


def test_engines_that_choose_what_to_measure_have_no_bound():
    release = QueryRelease(Thresholds(), engine="weights").fit(reals(5000, 1), reals(30, 2))
    assert not release.has_error_bars
    assert release.engine_error_bound() == min(1.0, 2 * release.expected_error_)
    assert release.answer([Threshold(0.0)])["error"].null_count == 1
    assert QueryRelease(Intervals()).fit(reals(5000, 1), reals(30, 2)).has_error_bars


# ---------------------------------------------------------------- files


def all_bytes(folder):
    """Every byte of the artefact, unpacked."""
    found = b""
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        found += content
        if path.suffix == ".npz":
            with zipfile.ZipFile(io.BytesIO(content)) as packed:
                found += b"".join(packed.read(name) for name in packed.namelist())
    return found


@pytest.mark.parametrize(
    ("subject", "private", "public", "asked"),
    [
        (Thresholds(), reals(3000, 1), reals(50, 2), [Threshold(0.3)]),
        (Boxes(2), points(3000, 1), points(8, 2), [Box((-1.0, -1.0), (1.0, 1.0))]),
        (Conjunctions([2, 2]), points(3000, 1) > 0, points(9, 2) > 0, [Conjunction(features=2, literals=((0, 1),))]),
        (Workload.marginals(2), people(3000, 1), people(100, 2), [{"sex": "f", "region": "s"}]),
        (Workload.thresholds("age", by="sex"), people(3000, 1), people(100, 2), [{"age": 50, "sex": "m"}]),
        (Workload.expressions(["age < 50"]), people(3000, 1), None, ["age < 50"]),
    ],
)
def test_what_is_saved_is_what_is_loaded(subject, private, public, asked, tmp_path):
    release = QueryRelease(subject, epsilon=1.5).fit(private, public)
    folder = release.save(tmp_path / "release")
    loaded = QueryRelease.load(folder)
    assert loaded.answer(asked) == release.answer(asked)
    assert loaded.answer() == release.answer()
    assert loaded.claim_ == release.claim_
    assert loaded.error_bound() == release.error_bound()
    first, second = release.synthetic(50), loaded.synthetic(50)
    assert first == second if isinstance(first, pa.Table) else np.array_equal(first, second, equal_nan=True)
    assert loaded.budget_.remaining().renyi == 0
    assert loaded.save(tmp_path / "again").joinpath("arrays.npz").is_file()


def test_a_state_without_one_of_its_values_is_not_loaded(tmp_path):
    folder = QueryRelease(Thresholds()).fit([1.0, 2.0] * 500, [1.5, 1.7]).save(tmp_path / "release")
    manifest = folder / "manifest.json"
    state = json.loads(manifest.read_text())
    for name in ("about", "order", "records", "notes", "epsilon"):
        manifest.write_text(json.dumps({key: value for key, value in state.items() if key != name}))
        with pytest.raises(InvalidInput, match="damaged"):
            QueryRelease.load(folder)
    manifest.write_text(json.dumps(state | {"about": {"concept": {"kind": "Finite"}}}))
    with pytest.raises(InvalidInput, match="does not know"):
        QueryRelease.load(folder)


def test_a_claim_is_never_rounded_down():
    release = QueryRelease(Thresholds(), epsilon=1.0000004, delta=1.0000004e-6).fit([1.0, 2.0] * 500, [1.5])
    assert "is (1.0000004, 1.0000004e-06)-diff" in release.claim_


def test_what_is_written_is_the_claim_of_the_fit_and_not_of_the_wish(tmp_path):
    release = QueryRelease(Thresholds(), epsilon=8.0).fit([1.0, 2.0] * 500, [1.5])
    claim = release.claim_
    folder = release.set_params(epsilon=6.0, delta=1e-9).publish(tmp_path / "release")
    assert "(8, 1e-06)" in claim
    assert QueryRelease.load(folder).claim_ == claim


def test_a_full_disk_leaves_nothing_behind_and_the_release_can_be_saved_again(tmp_path, monkeypatch):
    release = QueryRelease(Thresholds()).fit([1.0, 2.0] * 500, [1.5])
    write = Path.write_bytes

    def some(self, content):
        write(self, content[:7] if self.name == "manifest.json" else content)
        if self.name == "manifest.json":
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", some)
        with pytest.raises(InvalidInput, match=r"No space left on device. Nothing of it is there: make room"):
            release.publish(tmp_path / "release")
    assert list((tmp_path / "release").iterdir()) == []
    assert QueryRelease.load(release.publish(tmp_path / "release")).answer() == release.answer()


def test_an_array_of_objects_is_never_unpacked(tmp_path):
    folder = QueryRelease(Thresholds()).fit([1.0, 2.0] * 500, [1.5, 1.7]).save(tmp_path / "release")
    content = io.BytesIO()
    np.savez(content, answers=np.array([object()]), public=np.array([[1.5]]))
    (folder / "arrays.npz").write_bytes(content.getvalue())
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["arrays.npz"] = hashlib.sha256(content.getvalue()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InvalidInput, match="damaged"):
        QueryRelease.load(folder)


def test_concepts_are_written_as_plain_values():
    for concept in (
        Thresholds(both_directions=True),
        Intervals(),
        Boxes(3),
        Halfspaces(2),
        Conjunctions([2, 5]),
        Stumps(4),
    ):
        assert from_plain(json.loads(json.dumps(to_plain(concept))), *CONCEPTS) == concept
    with pytest.raises(InvalidInput, match="cannot be written"):
        to_plain(Finite([lambda X: X[:, 0] > 0], features=1))


def test_the_artefact_holds_no_canary(tmp_path):
    canary, text = 8765.4321000001, "canary-3f9d"
    private = people(4000, 1)
    private["age"][7], private["region"][7] = canary, text
    release = QueryRelease(Workload.marginals(2), epsilon=8.0).fit(private, people(200, 2))
    artefact = all_bytes(release.publish(tmp_path / "table"))
    for trace in (text.encode(), b"8765.43", np.float64(canary).tobytes()):
        assert trace not in artefact
    values = np.append(reals(4000, 3), canary)
    release = QueryRelease(Thresholds(), epsilon=8.0).fit(values, reals(50, 4))
    artefact = all_bytes(release.publish(tmp_path / "line"))
    for value in values:
        assert np.float64(value).tobytes() not in artefact
    assert b"8765.43" not in artefact


@pytest.mark.parametrize("engine", ["plain", "residual", "reweighting"])
def test_the_artefact_is_a_function_of_the_noisy_values_alone(engine, tmp_path, monkeypatch):
    """With the same noisy vector, two data sets leave the same bytes behind."""
    public = people(200, 9)
    tape = []

    def fixed(self, parts, budget, noise=None):
        budget.spend(budget.remaining())
        shape = [len(part) for part in parts]
        if not tape:
            chance = np.random.default_rng(5)
            tape.append([chance.integers(0, 800, size) for size in shape])
        assert [len(part) for part in tape[0]] == shape
        return [part.astype(np.float64) for part in tape[0]]

    monkeypatch.setattr(NoisyVector, "draw_release", fixed)
    left = []
    for place, private in enumerate((people(2000, 1), people(2000, 2))):
        release = QueryRelease(Workload.marginals(1), engine=engine).fit(private, public)
        left.append(all_bytes(release.publish(tmp_path / f"release-{place}")))
    assert left[0] == left[1]


def test_a_fitted_release_keeps_nothing_private():
    secret = 31337.25
    private = np.append(reals(2000, 1), [secret] * 3)
    release = QueryRelease(Thresholds()).fit(private, [0.0, 1.0])
    seen, stack = set(), [vars(release)]
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        assert not isinstance(one, SealedCounts)
        if isinstance(one, np.ndarray):
            assert not (one == secret).any()
            assert one.size != len(private)
        elif isinstance(one, dict):
            stack.extend(one.values())
        elif isinstance(one, list | tuple):
            stack.extend(one)
        elif hasattr(one, "__dict__") and type(one).__module__.startswith("quorate"):
            stack.append(vars(one))


def test_sealed_counts_do_not_open():
    sealed = SealedCounts(np.array([1, 2, 3]))
    assert repr(sealed) == f"{sealed}" == "<sealed counts>"
    for call in (len, list, np.asarray, lambda one: one == one, json.dumps):
        with pytest.raises(TypeError):
            call(sealed)
