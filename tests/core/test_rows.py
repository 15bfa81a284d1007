"""One way in: every container becomes one canonical form, by rules that the fit fixed."""

import json
import tracemalloc
from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from quorate import EverlastingClassifier, PrivateClassifier
from quorate.core.errors import InvalidInput
from quorate.core.rows import canonical_matrix, join_rows, query_digests, take_rows, usable_cores
from quorate.models.predictors import StableClassifier
from quorate.models.predictors.records import check_matrix, check_records
from quorate.service._codec import Tensor
from quorate.service._inputs import MatrixInput, NamedInputs, SchemaInputs
from quorate.tables import Number, Schema
from quorate.tables.frames import FrameFormat

CONTAINERS = {
    "float64": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "int64": lambda X: X.astype(np.int64),
    "uint8": lambda X: X.astype(np.uint8),
    "bool": lambda X: X.astype(bool),
    "fortran": np.asfortranarray,
    "list": lambda X: X.tolist(),
    "sparse": scipy.sparse.csr_array,
    "pandas": lambda X: pd.DataFrame(X, columns=["a", "b"], index=np.arange(len(X))[::-1]),
    "nullable": lambda X: pd.DataFrame(X, columns=["a", "b"]).astype("Int64"),
    "polars": lambda X: pl.DataFrame({"a": X[:, 0], "b": X[:, 1]}),
    "arrow": lambda X: pa.table({"a": X[:, 0], "b": X[:, 1]}),
}


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("estimator", [LogisticRegression(), DecisionTreeClassifier()], ids=["batched", "joblib"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_of_numbers_is_one_matrix(container, estimator):
    X = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    classifier = PrivateClassifier(estimator)
    check_records(classifier, X, estimator=estimator, reset=True)
    rows = check_records(classifier, CONTAINERS[container](X), estimator=estimator, reset=False)
    assert rows.dtype == np.float64
    assert rows.flags.c_contiguous
    assert rows.tobytes() == X.tobytes()


def test_the_matrix_is_nobody_elses():
    X = np.zeros((2, 2))
    classifier = PrivateClassifier()
    check_records(classifier, X, estimator=LogisticRegression(), reset=True)[:] = 5.0
    assert not X.any()


ODD = st.none() | st.floats() | st.integers() | st.booleans() | st.text(max_size=3) | st.binary(max_size=2)


@given(st.lists(st.tuples(st.floats(width=32), st.integers(-(2**40), 2**40), ODD, ODD), min_size=1, max_size=8))
def test_a_row_is_converted_by_itself(rows):
    """Also beside odd values of objects: none of them says how another is read, or of which type a column is."""
    frame = pd.DataFrame([row[:2] for row in rows], columns=["a", "b"]).astype({"a": "float32"})
    for name, place in (("c", 2), ("d", 3)):
        frame[name] = pd.Series([row[place] for row in rows], dtype=object)
    form = FrameFormat("pandas", ("a", "b", "c", "d"), ("number", "number", "number", "text"))
    together = form.read(frame, role="private")
    for place in range(len(rows)):
        alone = form.read(frame.iloc[[place]], role="private")
        assert query_digests(alone) == query_digests(take_rows(together, [place]))
        assert (alone.dtypes == together.dtypes).all()


def frame(**columns):
    return pd.DataFrame(columns)


FITTED = frame(
    whole=[1, 2],
    real=[0.5, -0.0],
    text=["x", "y"],
    kind=pd.Categorical(["u", "v"], categories=["u", "v", "w"]),
    flag=[True, False],
    maybe=pd.array([1, None], dtype="Int64"),
    day=pd.to_datetime(["2024-05-31T00:00", "1970-01-02T12:00"]),
)
KINDS = ("number", "number", "text", "text", "number", "number", "date")


def test_a_format_survives_a_manifest():
    form = FrameFormat.of(FITTED)
    again = FrameFormat.from_document(json.loads(json.dumps(form.to_document())))
    assert again == form
    assert form.kinds == KINDS
    of_polars = FrameFormat.of(pl.DataFrame({"a": [1], "b": ["x"], "c": [0.5], "d": [datetime(2020, 1, 1)]}))
    assert of_polars.kinds == ("number", "text", "number", "date")
    assert FrameFormat.from_document(json.loads(json.dumps(of_polars.to_document()))) == of_polars


@pytest.mark.parametrize(
    "make",
    [
        lambda X: X,
        pl.from_pandas,
        pa.Table.from_pandas,
        lambda X: X.set_index(pd.Index([9, 3])),
        lambda X: X.iloc[:, ::-1],
        lambda X: X.astype({"whole": "float32", "text": "category", "kind": str, "flag": float, "maybe": object}),
        lambda X: X.astype(object),
        lambda X: X.assign(whole=["1", " 2.0"], maybe=["1", ""], more=[1, 2]),
    ],
)
def test_frames_of_every_make_become_floats_and_texts(make):
    form = FrameFormat.of(FITTED)
    rows = form.read(make(FITTED))
    assert list(rows.columns) == list(FITTED.columns)
    assert list(rows.index) == [0, 1]
    for name, kind in zip(form.columns, KINDS, strict=True):
        assert rows[name].dtype == (pd.Series(["x"]).dtype if kind == "text" else np.float64)
    assert rows["day"].tolist() == [19874.0, 1.5]
    assert rows["whole"].tolist() == [1.0, 2.0]
    assert rows["kind"].tolist() == ["u", "v"]
    assert query_digests(rows) == query_digests(form.read(FITTED))
    of_polars = FrameFormat("polars", form.columns, form.kinds).read(make(FITTED))
    assert of_polars.dtypes == [pl.String if kind == "text" else pl.Float64 for kind in KINDS]


TYPES = {
    "whole or with a gap": (pd.Series([1, 2]), pd.Series([1, None])),
    "whole or real": (pd.Series([1, 2]), pd.Series([1, 2.5])),
    "nullable": (pd.Series([1, 2], dtype="Int64"), pd.Series([1, None], dtype="Float64")),
    "categories": (pd.Series(pd.Categorical(["u"] * 2)), pd.Series(pd.Categorical(["u", "a-town-of-one"]))),
    "categories of numbers": (pd.Series(pd.Categorical([1, 2])), pd.Series(pd.Categorical(["a", None]))),
    "order of categories": (pd.Series(pd.Categorical([1, 2])), pd.Series(pd.Categorical([1, 2], ordered=True))),
    "objects": (pd.Series([1, 2], dtype=object), pd.Series([None, "a-town-of-one"], dtype=object)),
    "time zones": (pd.Series(pd.to_datetime(["2024-05-31"] * 2)), pd.Series([pd.Timestamp(0, tz="UTC"), pd.NaT])),
    "arrow": (pa.array([1, 2]), pa.array([0.5, None])),
    "arrow scales": (
        pa.array(["0.1"]).cast(pa.decimal128(5, 1)),
        pa.array(["0.125"]).cast(pa.decimal128(9, 5)),
    ),
    "arrow dictionaries": (pa.array(["u"] * 2).dictionary_encode(), pa.array(["a-town-of-one", None])),
    "polars": (pl.Series([1, 2]), pl.Series([0.5, None])),
    "polars categories": (pl.Series(["u", "v"], dtype=pl.Categorical), pl.Series(["v", None], dtype=pl.Categorical)),
}


@pytest.mark.parametrize("case", TYPES)
def test_no_value_of_a_column_says_what_a_format_is(case):
    made = []
    for column in TYPES[case]:
        library = type(column).__module__.partition(".")[0]
        make = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[library]
        form = FrameFormat.of(make({"a": column}))
        made.append((form, [str(kind) for kind in form.read(make({"a": column}), role="private").dtypes]))
        assert "a-town-of-one" not in json.dumps(form.to_document())
    assert made[0] == made[1]


@pytest.mark.parametrize("column", [["secret", 1.0], ["x" * 40, "4"], [b"secret", 1]], ids=["text", "long", "bytes"])
def test_what_is_no_number_is_refused_in_a_query_without_its_value_and_missing_in_a_record(column):
    asked = FITTED.assign(whole=pd.Series(column, dtype=object))
    for role in ("query", "public"):
        with pytest.raises(InvalidInput, match=r"column 'whole', row 1 .*a number is expected") as refusal:
            FrameFormat.of(FITTED).read(asked, role=role)
        assert "secret" not in str(refusal.value)
        assert "xx" not in str(refusal.value)
    rows = FrameFormat.of(FITTED).read(asked, role="private")
    assert np.isnan(rows["whole"][0])
    expected = FrameFormat.of(FITTED).read(FITTED.assign(whole=[0, float(column[1])]))
    assert query_digests(rows)[1] == query_digests(expected)[1]


def test_rows_that_are_taken_or_joined_keep_no_number():
    rows = FrameFormat.of(FITTED).read(FITTED)
    joined = join_rows([take_rows(rows, [1]), take_rows(rows, [0]), rows])
    assert list(joined.index) == [0, 1, 2, 3]
    assert joined.dtypes.to_dict() == rows.dtypes.to_dict()


def test_without_pandas_and_polars_models_of_ours_get_arrow_tables(no_frame_library):
    table = pa.table({"a": [0.5, -0.0, np.nan], "b": ["x", None, "y"]})
    form = FrameFormat.of(table)
    rows = form.read(table)
    assert form.library == "pyarrow"
    assert join_rows([rows, take_rows(rows, [0])])["b"].to_pylist() == ["x", None, "y", "x"]
    assert FrameFormat.from_document(json.loads(json.dumps(form.to_document()))) == form
    assert take_rows(rows, [2, 1])["b"].to_pylist() == ["y", None]
    assert query_digests(rows) == query_digests(FrameFormat("pandas", form.columns, form.kinds).read(table))
    estimator = make_pipeline(make_column_transformer((OneHotEncoder(), ["b"])), LogisticRegression())
    with pytest.raises(InvalidInput, match="install pandas or polars"):
        PrivateClassifier(estimator, epsilon=4.0, queries=1, teachers=3, classes=[0, 1]).fit(table, [0, 1, 0])


def test_polars_categories_are_texts():
    """Their codes tell in which order texts first appeared, in this frame or another."""
    made = pl.DataFrame({"a": pl.Series(["x", "y"], dtype=pl.Categorical)})
    assert FrameFormat.of(made).read(made)["a"].dtype == pl.String


def test_minus_zero_is_zero_in_every_form():
    assert not np.signbit(canonical_matrix([[-0.0]])).any()
    for make in (pd.DataFrame, pl.DataFrame, pa.table):
        for values in ([-0.0, 1.0], ["-0", "1"]):
            made = make({"a": values})
            read = FrameFormat("pandas", ("a",), ("number",)).read(made)
            assert not np.signbit(read["a"].to_numpy()).any()


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pl.Series([datetime(2020, 1, 1)]), "date"),
        (pd.Categorical(pd.to_datetime(["2020-01-01"])), "text"),
        (pd.Categorical(pd.interval_range(0, 2)), "text"),
    ],
    ids=["polars time", "times as categories", "intervals as categories"],
)
def test_every_type_is_kept_in_a_manifest_by_its_kind_alone(column, kind):
    frame = pl.DataFrame({"a": column}) if isinstance(column, pl.Series) else pd.DataFrame({"a": column})
    document = FrameFormat.of(frame).to_document()
    assert document["columns"] == [{"name": "a", "kind": kind}]
    assert FrameFormat.from_document(json.loads(json.dumps(document))) == FrameFormat.of(frame)


def test_values_that_teachers_could_share_and_change_are_missing():
    """A copy of a frame does not copy the lists in it: one teacher that appends to one would speak to the next."""
    frame = pd.DataFrame({"a": [[1], [2]]})
    assert FrameFormat.of(frame).read(frame, role="private")["a"].isna().all()
    mixed = pd.DataFrame({"a": pd.Series(["x", 2, None, True, datetime(2020, 1, 1), {}], dtype=object)})
    read = FrameFormat.of(mixed).read(mixed, role="private")["a"]
    assert read[read.notna()].tolist() == ["x", "2", "true", "2020-01-01"]
    for make in (pl.DataFrame, pa.table):
        with pytest.raises(InvalidInput, match="column 'a': values must be numbers, texts, dates or truth values, got"):
            FrameFormat.of(make({"a": [[1], [2]]}))  # a type, which is public


def test_names_that_stand_twice_are_refused():
    with pytest.raises(InvalidInput, match="column names must"):
        FrameFormat.of(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_minus_zero_is_zero_on_every_road():
    """Over HTTP, and for classes of hypotheses: one query has one digest, and one sign."""
    tensors = {name: Tensor(name, "FP64", [1], np.array([-0.0])) for name in ("a", "b")}
    matrix = {"features": Tensor("features", "FP32", [1, 2], np.array([-0.0, -0.0], dtype=np.float32))}
    schema = Schema({"a": Number(), "b": Number()})
    stable = StableClassifier(gamma=0.5).fit([[0.0, 0.0], [1.0, 0.0]] * 20, [0, 1] * 20)
    for made in (
        MatrixInput(2).queries(matrix),
        NamedInputs(["a", "b"]).queries(tensors),
        SchemaInputs(schema).queries(tensors),
        stable.check_queries([[-0.0, -0.0]]),
    ):
        assert query_digests(made) == query_digests(canonical_matrix([[0.0, 0.0]]))


COLUMNS = {  # what a column is fitted on, one query in it, and company that pandas or polars would read otherwise
    "whole": ([1, 2], 3, 2**60),
    "nullable": (pd.array([1, 2], dtype="Int64"), 3, None),
    "nullable bool": (pd.array([True, False], dtype="boolean"), True, None),
    "nullable float": (pd.array([1.5, 2.5], dtype="Float64"), -0.0, None),
    "object": (pd.Series(["x", 2], dtype=object), 3, None),
    "objects": (pd.Series(["x", 2], dtype=object), 1, True),
    "category": (pd.Categorical([1, 2, 3]), 3, None),
    "text": (["x", "y"], "x", None),
    "polars whole": (pl.Series([1, 2]), 2**60 + 1, None),
    "polars bool": (pl.Series([True, False]), True, None),
    "polars float": (pl.Series([1.5, 2.5]), 3.0, None),
    "polars text": (pl.Series(["x", "y"]), "x", None),
}


def test_true_and_1_are_two_texts_and_one_number():
    """A model is asked once for equal queries, so that one row must never answer for another."""
    asked = pd.DataFrame({"a": pd.Series([True, 1, 1.0, "1", "true", "True"], dtype=object)})
    texts = query_digests(FrameFormat("pandas", ("a",), ("text",)).read(asked))
    assert [texts.index(digest) for digest in texts] == [0, 1, 1, 1, 0, 5]
    assert len(set(query_digests(FrameFormat("pandas", ("a",), ("number",)).read(asked)))) == 1


def test_canonical_bytes_of_two_rows_never_meet():
    """Neither by what stands between columns, nor by a text that is written as a missing one."""
    texts = pd.DataFrame({"a": ["1:x", "1", "-", None, ""], "b": ["y", ":xy", "-", "-", "--"]})
    assert len(set(query_digests(FrameFormat.of(texts).read(texts)))) == 5
    for make in (pd.DataFrame, pl.DataFrame):
        two = make({"a": ["x"], "b": [0.0]}), make({"b": ["x"], "a": [0.0]}), make({"a": [0.0], "b": ["x"]})
        assert len({query_digests(FrameFormat.of(one).read(one))[0] for one in two}) == 3


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_text_is_missing(missing):
    for make in (pd.DataFrame, pl.DataFrame):
        form = FrameFormat.of(make({"a": ["x"]}))
        (value,) = form.read(pd.DataFrame({"a": [missing]}))["a"].to_list()
        assert pd.isna(value)


def test_a_number_that_polars_misses_is_not_0():
    form = FrameFormat.of(pl.DataFrame({"a": [1.5]}))
    read = form.read(pl.DataFrame({"a": [-0.0, None, 2.0]}))["a"]
    assert read.dtype == pl.Float64
    np.testing.assert_array_equal(read.to_numpy(), [0.0, np.nan, 2.0])


by_type = make_pipeline(
    make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include="float64")),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
    ),
    LogisticRegression(),
)


def people(seed=0, rows=400):
    random = np.random.default_rng(seed)
    age = random.integers(-50, 50, size=rows)
    return pd.DataFrame({"age": age, "town": random.choice(["x", "y"], size=rows)}), (age > 0).astype(int)


def test_an_array_is_refused_by_a_model_of_frames():
    X, y = people()
    for classifier in (
        PrivateClassifier(by_type, teachers=40, epsilon=20.0, aggregator="noisy_max", queries=5).fit(X, y),
        EverlastingClassifier(by_type, epsilon=60.0, delta=1e-2, chunk=10, no_quorums=5).fit(X, y),
    ):
        with pytest.raises(InvalidInput, match=r"fitted on a data frame.*'age', 'town'"):
            classifier.predict(np.zeros((1, 2)))
        assert classifier.predict(X[:1]).answered.shape == (1,)


def test_one_query_does_not_decide_the_types_of_the_next_phase():
    """3.5 beside whole numbers, or a number beside texts, is a float or a text as all others are."""
    X, y = people()
    classifier = EverlastingClassifier(by_type, epsilon=60.0, delta=1e-2, chunk=10, no_quorums=5).fit(X, y)
    with pytest.raises(InvalidInput, match=r"column 'age', row 1 .*a number is expected"):
        classifier.predict(pd.DataFrame({"age": ["old"], "town": ["x"]}))
    assert classifier.seats_taken_ == 0
    for age, town in ((3, "x"), (3.5, "x"), (True, "x"), (4, 7)):
        classifier.predict(pd.DataFrame({"age": [age], "town": [town]}))
    points, _ = classifier.session_.answerer.seats.since(0)
    assert points["age"].dtype == np.float64
    assert points["age"].tolist() == [3.0, 3.5, 1.0, 4.0]
    assert points["town"].tolist() == ["x", "x", "x", "7"]


@pytest.mark.parametrize("settings", [{"refresh": "pool"}, {"growth": 5.0}, {"chunk": 1}, {"estimator": None}])
def test_what_is_set_after_a_fit_changes_nothing_of_it(settings):
    X, y = people()
    X = X[["age"]]
    tree = DecisionTreeClassifier(max_depth=2)
    classifier = EverlastingClassifier(tree, epsilon=60.0, delta=1e-2, chunk=10, no_quorums=5).fit(X, y)
    claim = classifier.claim_
    classifier.set_params(**settings)
    classifier.predict(X)
    classifier.predict(X[:3])
    assert (classifier.phase_, classifier.seats_taken_) == (2, 3)  # queries teach, as the claim says
    assert classifier.progress_["seats"] == 400
    assert classifier.teachers_ == 40
    assert classifier.claim_ == claim


def test_people_with_more_rows_shift_nobodys_index():
    seen = {}

    class Indexed(DecisionTreeClassifier):
        def fit(self, X, y):
            seen.setdefault(len(y), set()).add(tuple(X.index))
            return super().fit(X.to_numpy(), y)

        def predict(self, X):
            assert list(X.index) == [0]  # nobody else is asked with it
            return super().predict(X.to_numpy())

    X, y = people()
    groups = np.repeat(np.arange(200), 2)
    classifier = PrivateClassifier(Indexed(), teachers=40, epsilon=20.0, aggregator="noisy_max", queries=3)
    classifier.fit(X[["age"]], y, groups=groups).predict(X[["age"]][5:7])
    assert seen == {10: {tuple(range(10))}}


def test_a_sparse_matrix_is_filled_once():
    """Beside the filled matrix there is no second one, and what marks gaps is an eighth of it."""
    sparse = scipy.sparse.random_array((2000, 1000), density=0.001, random_state=0, format="csr")
    tracemalloc.start()
    filled = check_matrix(LogisticRegression(), sparse, reset=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(filled, sparse.toarray())
    assert peak < 1.3 * filled.nbytes


@pytest.mark.parametrize("kind", ["coo", "csr"])
def test_how_a_sparse_row_is_stored_does_not_change_how_others_are_added_up(kind):
    """Scipy sorts all rows of a csr where one is not sorted, and adds what is there twice in another order."""
    generator = np.random.default_rng(0)
    columns, values = np.sort(generator.integers(0, 8, size=60)), np.append(generator.normal(size=60), [1.0, 2.0])
    first = []
    for last in ([0, 1], [1, 0]):
        places = np.append(columns, last)
        stored = scipy.sparse.coo_array((values, (np.repeat([0, 1], [60, 2]), places)), shape=(2, 8))
        if kind == "csr":
            stored = scipy.sparse.csr_array((values, places, [0, 60, 62]), shape=(2, 8))
        first.append(check_matrix(LogisticRegression(), stored, reset=True)[0])
    assert np.array_equal(*first)


def test_gaps_are_refused_in_queries_alone():
    gaps = np.array([[0.0, np.nan], [1.0, 0.0]])
    for rows in (gaps, scipy.sparse.csr_array(gaps), gaps.tolist(), pd.DataFrame(gaps, columns=["a", "b"])):
        model = LogisticRegression()
        taken = check_matrix(model, rows, reset=True)
        assert np.array_equal(taken, gaps, equal_nan=True)
        for role in ("query", "public"):
            with pytest.raises(ValueError, match="contains NaN"):
                check_matrix(model, rows, reset=False, role=role)
            taken = check_matrix(model, rows, missing=True, reset=False, role=role)
            assert np.array_equal(taken, gaps, equal_nan=True)


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    """A container with a quota of one core had as many threads as its host has cores."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    assert usable_cores() == 1
    monkeypatch.setattr("joblib.cpu_count", lambda: 64)
    assert usable_cores() == 64
    assert usable_cores(most=8) == 8
