"""The private test of a model: what a unit moves, intervals by enumeration, groups, failures, the page, the command."""

import csv
import json
import math

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
from scipy import sparse, stats
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, VotingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from quorate import (
    ConformalClassifier,
    InvalidInput,
    PrivateClassifier,
    PrivateLogisticRegression,
    SemiPrivateClassifier,
    StudentClassifier,
    check_model,
    save,
)
from quorate.auditing import entropy_tape
from quorate.cli import main
from quorate.core.mechanisms import NoisyVector
from quorate.models.evaluation.measures import NoisyCount, area_interval, noise_bound, share_interval
from quorate.models.evaluation.rows import format_of_model
from quorate.tables import Schema
from quorate.tables.features import HashedColumns

X = np.random.default_rng(0).normal(size=(6000, 2))
Y = (X.sum(axis=1) + np.random.default_rng(1).logistic(size=6000) > 0).astype(int)
MODEL = LogisticRegression().fit(X[:1000], Y[:1000])


def noise_law(scale, cells):
    """Return the law of a sum of discrete Gaussian noises, from -reach to reach, by plain sums."""
    reach = 12 * math.ceil(scale) + 5
    one = np.array([math.exp(-(x**2) / (2 * scale**2)) for x in range(-reach, reach + 1)])
    law = np.ones(1)
    for _ in range(cells):
        law = np.convolve(law, one / one.sum())
    return dict(zip(range(-reach * cells, reach * cells + 1), law.tolist(), strict=True))


# ---------------------------------------------------------------------------------------------------------- intervals


@pytest.mark.parametrize(("scale", "cells", "miss"), [(0.7, 1, 0.05), (3.0, 5, 0.01), (8.4, 40, 0.0125), (1.0, 2, 0.5)])
def test_noise_is_bounded_by_the_smallest_number_that_will_do(scale, cells, miss):
    law, bound = noise_law(scale, cells), noise_bound(scale, cells, miss)
    beyond = [sum(p for x, p in law.items() if abs(x) > bound - less) for less in (0, 1)]
    assert beyond[0] <= miss < beyond[1]


def test_large_noise_is_bounded_as_a_gaussian():
    assert noise_bound(2000.0, 4, 0.05) == pytest.approx(1.96 * 4000, abs=5)
    assert noise_bound(400.0, 4, 0.05) == pytest.approx(1.96 * 800, abs=5)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("known", [False, True])
def test_an_interval_of_a_share_covers_by_exact_enumeration(share, known):
    """Every outcome of the sampling and of both noises is weighed: nothing is left to chance."""
    units, scale, miss = 15, 1.2, 0.2
    law = {noise: p for noise, p in noise_law(scale, 1).items() if p > 1e-9}
    missed = 0.0
    for part, weight in enumerate(stats.binom.pmf(np.arange(units + 1), units, share).tolist()):
        for first, one in law.items():
            for second, other in law.items():
                counts = NoisyCount(part + first, 1, scale), NoisyCount(units - part + second, 1, scale)
                found = share_interval(*counts, miss=miss, total=units if known else None)
                assert found.low <= found.estimate <= found.high
                missed += weight * one * other * (not found.low <= share <= found.high)
    assert missed <= miss


def test_an_interval_without_noise_for_it_would_be_caught():
    """The same enumeration refutes an interval that counts the sampling alone."""
    units, scale, share, miss = 15, 3.0, 0.3, 0.2
    law = {noise: p for noise, p in noise_law(scale, 1).items() if p > 1e-6}
    missed = 0.0
    for part, weight in enumerate(stats.binom.pmf(np.arange(units + 1), units, share).tolist()):
        for first, one in law.items():
            count = min(max(part + first, 0), units)
            found = share_interval(NoisyCount(count, 1, 1e-3), NoisyCount(units - count, 1, 1e-3), miss=miss)
            missed += weight * one * (not found.low <= share <= found.high)
    assert missed > miss


def test_an_interval_of_an_area_covers():
    """Seeded: 300 samples with noise, at a confidence of 80%; none may be narrower than the noise alone."""
    random = np.random.default_rng(5)
    positive, negative = np.array([0.05, 0.15, 0.3, 0.5]), np.array([0.4, 0.3, 0.2, 0.1])
    area = float(positive @ (np.cumsum(negative) - negative / 2))
    covered = []
    for _ in range(300):
        counts = [
            random.multinomial(n, law) + np.rint(random.normal(0, 4, size=4))
            for n, law in ((300, positive), (700, negative))
        ]
        found = area_interval(*counts, scale=4.0, fewest=270.0, miss=0.2)
        covered.append(found.low <= area <= found.high)
        assert 0.02 < found.high - found.low < 0.35
    assert np.mean(covered) >= 0.8


def test_an_area_of_nobody_says_nothing():
    nobody = area_interval(np.zeros(4), np.ones(4), scale=1.0, fewest=0.0, miss=0.05)
    assert (nobody.low, nobody.high, nobody.says) == (0.0, 1.0, False)


def test_a_large_sample_is_told_as_it_is():
    """With little noise the figures are those of scikit-learn on the same rows, and intervals are narrow."""
    found = check_model(MODEL, X[1000:], Y[1000:], epsilon=200.0, delta=1e-3)
    assert found.measure("error").estimate == pytest.approx(1 - MODEL.score(X[1000:], Y[1000:]), abs=0.002)
    right = MODEL.predict(X[1000:]) == Y[1000:]
    recalls = [right[Y[1000:] == label].mean() for label in (0, 1)]
    assert found.measure("recall of 1").estimate == pytest.approx(recalls[1], abs=0.004)
    assert found.measure("balanced accuracy").estimate == pytest.approx(np.mean(recalls), abs=0.004)
    from sklearn.metrics import roc_auc_score

    plain = roc_auc_score(Y[1000:], MODEL.predict_proba(X[1000:])[:, 1])
    assert found.measure("auc").estimate == pytest.approx(plain, abs=0.01)
    assert all(row.calibrated for row in found.calibration)
    assert found.measure("error").high - found.measure("error").low < 0.04


def test_a_model_that_is_too_sure_is_not_calibrated():
    class Sure(DummyClassifier):
        def predict_proba(self, X):
            return np.tile([0.05, 0.95], (len(X), 1))

    sure = Sure(strategy="constant", constant=1).fit(X, Y)
    found = check_model(sure, X[:400], Y[:400], epsilon=20.0, delta=1e-3)
    said = [row for row in found.calibration if row.seen.says]
    assert said
    assert not any(row.calibrated for row in said)
    assert "not calibrated" in found.summary()


# ----------------------------------------------------------------------------------------------------- what is private


def test_a_replaced_unit_moves_two_cells_of_each_table_by_one():
    random = np.random.default_rng(7)
    by = random.choice(["a", "b"], size=300)
    for place in range(12):
        tables = []
        for replaced in (False, True):
            rows, labels, groups = X[:300].copy(), Y[:300].copy(), by.copy()
            if replaced:
                rows[place], labels[place], groups[place] = (9.0, -8.0), 1 - labels[place], "c"
            with entropy_tape(place):
                told = check_model(MODEL, rows, labels, by=groups, by_values=["a", "b"], epsilon=1.0)
            tables.append(told.counts)
        for first, second in zip(*tables, strict=True):
            assert np.abs(first - second).sum() in (0, 2)


ODD = [(np.inf, 0.0), (-np.inf, np.inf), (np.nan, np.nan), (1e308, -1e308), (None, "three"), ([1], 10**400)]


def contained(container, rows, place, odd):
    """Return rows of which one holds odd values, in a container whose type would be the same without them."""
    if container == "sparse":
        rows[place] = odd
        return sparse.csr_array(rows)
    if container == "matrix":
        rows[place] = odd
        return rows
    objects = np.array(rows, dtype=object)
    objects[place] = odd
    return objects.tolist() if container == "list" else pandas.DataFrame(objects, columns=["a", "b"])


@pytest.mark.parametrize("kind", ["linear", "scikit-learn"])
@pytest.mark.parametrize("container", ["matrix", "sparse", "list", "frame"])
def test_no_value_of_a_private_row_is_refused_and_it_moves_its_own_cells_alone(kind, container):
    public, fitted = X[:1000], X[:1000]
    if container == "frame":
        public = fitted = pandas.DataFrame(public, columns=["a", "b"])
    if kind == "linear":
        model = PrivateLogisticRegression(epsilon=20.0, classes=[0, 1]).fit(fitted, Y[:1000], public=public)
    else:
        model = LogisticRegression().fit(fitted, Y[:1000])
    odd = [one for one in ODD if container in ("list", "frame") or all(isinstance(value, float) for value in one)]
    if kind == "scikit-learn" and container == "frame":
        odd = [one for one in odd if not isinstance(one[0], list)]  # no value of a frame: its form refuses it
    told = []
    for values in [(0.5, -0.5), *odd]:
        with entropy_tape(3):
            told.append(check_model(model, contained(container, X[1000:1200].copy(), 7, values), Y[1000:1200]).counts)
    for tables in told[1:]:
        for plain, strange in zip(told[0], tables, strict=True):
            assert np.abs(plain - strange).sum() in (0, 2)


@pytest.mark.parametrize("container", [sparse.csr_array, sparse.coo_array, np.asarray])
def test_a_count_that_is_no_number_is_none_as_where_the_model_was_fitted(container):
    counts = np.random.default_rng(0).poisson(0.02, size=(400, 400)).astype(float)
    model = PrivateLogisticRegression(epsilon=20.0, classes=[0, 1], columns=HashedColumns())
    model.fit(sparse.csr_array(counts), counts[:, 0] > 0, public=sparse.csr_array(counts))
    odd = counts[:3].copy()
    odd[1, 7], counts[1, 7] = np.nan, 0.0
    said = [model.predict_proba(model.private_queries(container(rows))) for rows in (odd, counts[:3])]
    assert np.array_equal(*said)


@pytest.mark.parametrize("odd", [math.nan, None, "north", 2.5, True])
@pytest.mark.parametrize("container", [list, pandas.Series])
def test_the_group_of_one_row_is_not_how_those_of_others_are_read(odd, container):
    regions = [1, 2] * 150
    told = []
    for first in (1, odd):
        with entropy_tape(3):
            by = container([first, *regions[1:]])
            told.append(check_model(MODEL, X[:300], Y[:300], by=by, by_values=[1, 2], epsilon=1.0).counts)
    for plain, strange in zip(*told, strict=True):
        assert np.abs(plain - strange).sum() in (0, 2)


def test_the_noise_is_what_the_claim_takes():
    found = check_model(MODEL, X[:300], Y[:300], epsilon=0.7, delta=1e-5)
    noisy = NoisyVector(squared_sensitivities=(2, 2), scales=found.scales)
    assert 0.699 < noisy.epsilon(delta=1e-5) <= 0.7
    assert found.claim.startswith("(0.7, 1e-05)-differentially private under replacement of one row")


def test_a_person_counts_by_the_first_row():
    people = np.repeat(np.arange(1000), 5)
    y = np.zeros(5000, dtype=int)
    y[::5] = 1
    always = DummyClassifier(strategy="constant", constant=1).fit([[0.0], [1.0]], [0, 1])
    found = check_model(always, np.zeros((5000, 1)), y, groups=people, epsilon=4.0)
    assert (found.units, found.unit) == (1000, "person")
    assert found.measure("error").high < 0.1
    assert "all rows of one person" in found.claim


def test_groups_that_are_not_declared_are_public_and_the_claim_says_so():
    by = np.where(X[:, 0] > 0, "left", "right")
    read = check_model(MODEL, X, Y, by=by)
    assert "the groups were read from by and count as public" in read.claim
    declared = check_model(MODEL, X, Y, by=by, by_values=["left"])
    assert "read from by" not in declared.claim
    assert [one.group for one in declared.measures if one.name == "error"] == ["all", "left", "other"]
    assert declared.measure("error", "other").says


def test_a_row_on_which_the_model_fails_counts_as_wrong():
    class Fussy(DummyClassifier):
        def predict(self, X):
            if np.max(X) > 3:
                raise ValueError("there is a large number")
            return super().predict(X)

    model = Fussy(strategy="constant", constant=0).fit([[0.0], [1.0]], [0, 1])
    rows = np.concatenate([np.zeros((900, 1)), np.full((900, 1), 5.0)])
    found = check_model(model, rows, np.zeros(1800, dtype=int), epsilon=4.0)
    assert 0.4 < found.measure("error").low < found.measure("error").high < 0.6


def test_labels_alone_and_many_classes_have_no_auc():
    rule = SemiPrivateClassifier(epsilon=8.0, classes=[0, 1]).fit(X[:1000], Y[:1000], public=X[:50])
    found = check_model(rule, X[1000:], Y[1000:])
    assert (len(found.counts), found.calibration) == (1, ())
    with pytest.raises(InvalidInput, match="must be one of error, recall of 0"):
        found.measure("auc")
    three = np.digitize(X[:, 0], [-0.5, 0.5])
    model = LogisticRegression().fit(X[:1000], three[:1000])
    found = check_model(model, X[1000:], three[1000:], epsilon=4.0)
    assert found.measure("error").high < 0.1
    assert [one.name for one in found.measures][-1] == "balanced accuracy"
    assert any(row.seen.says for row in found.calibration)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"model": None}, "needs predict"),
        ({"bins": 7}, "bins must be an even number"),
        ({"bins": 2}, "bins must be a whole number of at least 4"),
        ({"confidence": 1.0}, "confidence must be below 1"),
        ({"by_values": ["a"]}, "by_values requires by"),
        ({"by": ["a"] * 6000, "by_values": ["a", "all"]}, "reserved names 'all' and 'other'"),
        ({"by": ["a"] * 6000, "by_values": ["a", "a"]}, "name each group once"),
        ({"y": Y[:10]}, "inconsistent numbers of samples"),
        ({"by": ["a"] * 10}, "inconsistent numbers of samples"),
        ({"X": X[:, :1]}, "must have 2 features like the model, got 1"),
        ({"delta": 0.0}, "delta must be above 0"),
    ],
)
def test_what_cannot_be_is_refused(change, text):
    with pytest.raises(ValueError, match=text):
        check_model(**({"model": MODEL, "X": X, "y": Y} | change))


def test_a_private_model_is_not_tested_at_its_budgets_cost():
    private = PrivateClassifier(epsilon=2.0, teachers=20, queries=10, aggregator="noisy_max", classes=[0, 1])
    private.fit(X[:200], Y[:200])
    for model in (private, make_pipeline(StandardScaler(), private).fit(X[:200], Y[:200]), VotingClassifier([])):
        if isinstance(model, VotingClassifier):
            model.estimators_ = [private]
        with pytest.raises(InvalidInput, match="give a published model"):
            check_model(model, X, Y)


def test_everything_found_can_be_written_as_json():
    found = check_model(MODEL, X, Y, by=np.where(X[:, 0] > 0, "left", "right"), by_values=["left", "right"])
    told = json.loads(json.dumps(found.as_dict()))
    assert told["claim"] == found.claim
    assert {one["group"] for one in told["measures"]} == {"all", "left", "right", "other"}
    assert len(told["counts"]) == 2
    assert found.summary().splitlines()[-1].startswith("(1, 1e-06)-differentially private")


# --------------------------------------------------------------------------------------------------------- the command


def write_table(path, rows, seed):
    random = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "z", "y", "sex"])
        for x, z, noise in random.normal(size=(rows, 3)):
            writer.writerow([x, z, "ill" if x + z + noise / 2 > 0 else "well", "f" if x > z else "m"])
    return path


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    """Return the folder of a published student that takes two columns of numbers."""
    random = np.random.default_rng(3)
    rows = random.normal(size=(6000, 2))
    labels = np.where(rows.sum(axis=1) > 0, "ill", "well")
    made = StudentClassifier(epsilon=20.0, teachers=100, queries=100, aggregator="noisy_max", classes=["ill", "well"])
    made.fit(rows, labels, public=random.normal(size=(200, 2)))
    return save(made, tmp_path_factory.mktemp("student") / "student")


LABELS = "--label y --classes ill,well"


def test_the_command_says_what_was_found_and_whether_limits_hold(student, tmp_path, capsys, monkeypatch, run_json):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "held.csv", 6000, 4)
    command = f"check {student} held.csv {LABELS} --leave-out sex --epsilon 2"
    groups = "--by sex --by-values f,m --max-error 0.3 --min-auc 0.6 --report check.html"
    assert main(f"{command} {groups}".split()) == 0
    said = capsys.readouterr().out
    assert "error, f" in said
    assert "auc" in said
    assert "Calibration" in (tmp_path / "check.html").read_text()
    assert main(f"{command} --max-error 0.05 --min-auc 0.999 --json".split()) == 1
    output = capsys.readouterr()
    assert len(json.loads(output.out)["failed"]) == 2
    assert "the error is not shown to be at most 0.05" in output.err


def test_the_command_reads_groups_as_categories_and_refuses_no_value(student, tmp_path, run_json):
    random = np.random.default_rng(4)
    rows = random.normal(size=(400, 2))
    columns = {"x": rows[:, 0], "z": rows[:, 1], "y": np.where(rows.sum(axis=1) > 0, "ill", "well")}
    half = b"\xff"  # bytes that are no text
    texts = pyarrow.array([b"f", b"m", half, b" f "] * 100).cast(pyarrow.binary()).view(pyarrow.string())
    for groups, values, expected in (
        (texts, "f,m", [200, 100, 100]),
        ([True, False] * 200, "true,false", [200, 200, 0]),
        ([1.0, None] * 200, "1", [200, 200]),
    ):
        pyarrow.parquet.write_table(pyarrow.table(columns | {"group": groups}), tmp_path / "t.parquet")
        command = f"check {student} {tmp_path}/t.parquet {LABELS} --by group --by-values {values} --epsilon 100"
        [counts, _] = run_json(command)["counts"]
        assert np.abs(np.sum(counts, axis=(1, 2)) - expected).max() < 10


def test_the_command_reads_no_groups_from_private_records(student, tmp_path, capsys):
    command = f"check {student} {write_table(tmp_path / 'held.csv', 500, 4)} {LABELS} --leave-out sex --by"
    for column, text in (("sex", "are not read from private records"), ("height", "there is no such column")):
        assert main([*command.split(), column]) == 1
        assert text in " ".join(capsys.readouterr().err.split())


def test_the_command_refuses_a_limit_that_cannot_be_measured(tmp_path, capsys):
    rule = SemiPrivateClassifier(epsilon=8.0, classes=["ill", "well"])
    rule.fit(X[:100], np.where(X[:100, 0] > 0, "ill", "well"), public=X[:20])
    folder, held = save(rule, tmp_path / "rule"), write_table(tmp_path / "held.csv", 500, 4)
    assert main(f"check {folder} {held} {LABELS} --leave-out sex --min-auc 0.5".split()) == 1
    assert "--min-auc needs a model" in capsys.readouterr().err


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("odd", [1 + 2j, None, np.nan, "a diagnosis", 7, b"\xff", [1, 2]], ids=str)
def test_a_label_that_the_model_does_not_know_is_in_no_cell(odd):
    """Found in review: scikit-learn's own text of complex labels held those of all rows."""
    rows = np.arange(40.0).reshape(-1, 1)
    model, made = LogisticRegression().fit(rows, rows[:, 0] > 20), []
    for label in (odd, "another"):
        with entropy_tape(4):
            made.append(repr(check_model(model, rows, [*[True] * 39, label])))
    assert made[0] == made[1]


def test_boosted_trees_of_numbers_declare_their_columns():
    """One missing truth value makes a column of objects: it must be read as before."""
    truths, ages = [True, False] * 50, np.linspace(0, 1, 100)
    model = HistGradientBoostingClassifier(max_iter=2).fit(pandas.DataFrame({"smokes": truths, "age": ages}), truths)
    gap = pandas.DataFrame({"smokes": [None, *truths[1:]], "age": ages})
    form = format_of_model(model, gap)
    assert form == format_of_model(model, pandas.DataFrame({"smokes": truths, "age": ages}))


class OwnModel(LogisticRegression):
    """A model that is not of scikit-learn: nobody knows what it does with texts."""


def _same_frame(frame):
    return frame


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(FunctionTransformer(_same_frame), LogisticRegression()),
        OwnModel(),
        make_pipeline(
            ColumnTransformer([("s", SimpleImputer(strategy="most_frequent"), ["s"])], remainder="passthrough"),
            OneHotEncoder(handle_unknown="ignore"),  # of columns in another order than those of the frame
            LogisticRegression(),
        ),
    ],
    ids=["function", "own", "columns in another order"],
)
def test_types_of_private_columns_decide_nothing_of_a_model_that_shows_no_columns(model):
    public = pandas.DataFrame({"age": X[:200, 0], "s": X[:200, 1]})
    if len(getattr(model, "steps", ())) == 3:
        public["s"] = np.where(public["s"] > 0, "yes", "no")
    model, made = model.fit(public, Y[:200]), []
    for odd in (0.5, None, "12a"):
        frame = pandas.DataFrame({"age": X[:120, 0], "s": [odd, *X[1:120, 1]]})
        with pytest.raises(InvalidInput, match=r"does not show in which columns .* schema=Schema\.from_public"):
            check_model(model, frame, Y[:120])
        schema = Schema.from_public(public)
        with entropy_tape(7):
            made.append((check_model(model, frame, Y[:120], schema=schema), frame["s"].dtype))
        with entropy_tape(8):
            sets = ConformalClassifier(model, epsilon=2.0).fit(frame, Y[:120], schema=schema)
        assert "type" not in made[-1][0].claim + sets.claim_
        assert sets.form_.kinds == tuple(schema.kinds_of(["age", "s"]))
    assert len({str(kind) for _, kind in made}) == 2  # pandas makes objects of numbers and one text
    counts = [np.concatenate([part.ravel() for part in check.counts]) for check, _ in made]
    assert all(np.abs(counts[0] - other).sum() <= 4 for other in counts[1:])  # one row: two cells of each table


def test_columns_are_texts_where_the_encoders_of_a_model_have_seen_texts():
    frame = pandas.DataFrame({"age": X[:100, 0], "ward": ["a", "b"] * 50, "note": ["well", "not well"] * 50})
    encoders = ColumnTransformer(
        [("ward", OneHotEncoder(), [1]), ("note", CountVectorizer(), "note"), ("age", FunctionTransformer(np.abs), [0])]
    )
    bare = frame.assign(age=None, ward=1.5, note=2.5)  # private types say something else
    pipeline = make_pipeline(encoders, LogisticRegression())
    for model in (pipeline, VotingClassifier([("a", pipeline)])):
        assert format_of_model(model.fit(frame, Y[:100]), bare).kinds == ("date", "text", "text")
    categories = frame[["age", "ward"]].astype({"ward": "category"})
    trees = HistGradientBoostingClassifier(max_iter=2).fit(categories, Y[:100])
    assert format_of_model(trees, bare[["age", "ward"]]).kinds == ("date", "text")
