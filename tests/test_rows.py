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
from quorate.errors import InvalidInput
from quorate.predictors import StableClassifier
from quorate.predictors.base import check_matrix, check_records
from quorate.rows import FrameForm, canonical_matrix, join_rows, query_digests, take_rows, usable_cores
from quorate.service.codec import Tensor
from quorate.service.tensors import MatrixInput, NamedInputs, SchemaInputs
from quorate.tables import Number, Schema

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


@given(st.lists(st.tuples(st.floats(width=32), st.integers(-(2**40), 2**40)), min_size=1, max_size=8))
def test_a_row_is_converted_by_itself(rows):
    frame = pd.DataFrame(rows, columns=["a", "b"]).astype({"a": "float32"})
    form = FrameForm.of(frame)
    together = form.rows(frame)
    for place in range(len(rows)):
        alone = form.rows(frame.iloc[[place]])
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
)


def test_a_form_survives_a_manifest():
    form = FrameForm.of(FITTED)
    again = FrameForm.from_described(json.loads(json.dumps(form.described())))
    assert again == form
    assert form.kinds == ["number", "number", "other", "other", "number", "number"]
    of_polars = FrameForm.of(pl.DataFrame({"a": [1], "b": ["x"], "c": [0.5]}))
    assert FrameForm.from_described(json.loads(json.dumps(of_polars.described()))) == of_polars


@pytest.mark.parametrize("make", [lambda X: X, pl.from_pandas, lambda X: X.set_index(pd.Index([9, 3]))])
def test_frames_of_every_make_are_cast_to_the_types_of_the_fit(make):
    asked = make(FITTED)
    rows = FrameForm.of(FITTED).rows(asked)
    assert rows.dtypes.to_dict() == FITTED.dtypes.to_dict()
    assert list(rows.index) == [0, 1]
    assert query_digests(rows) == query_digests(FrameForm.of(FITTED).rows(FITTED))


@pytest.mark.parametrize("column", [[3.5, 1.0], ["3", "4"], [None, 1], [float("nan"), 1.0], [2.0**70, 1.0]])
def test_what_a_column_cannot_hold_is_refused_without_its_value(column):
    asked = FITTED.assign(whole=column)
    with pytest.raises(InvalidInput, match=r"column 'whole' .* when the teachers were fitted") as refusal:
        FrameForm.of(FITTED).rows(asked)
    assert not any(str(value) in str(refusal.value) for value in column)


def test_rows_that_are_taken_or_joined_keep_no_number():
    rows = FrameForm.of(FITTED).rows(FITTED)
    joined = join_rows([take_rows(rows, [1]), take_rows(rows, [0]), rows])
    assert list(joined.index) == [0, 1, 2, 3]
    assert joined.dtypes.to_dict() == rows.dtypes.to_dict()


def test_polars_categories_are_texts():
    """Their codes tell in which order texts first appeared, in this frame or another."""
    made = pl.DataFrame({"a": pl.Series(["x", "y"], dtype=pl.Categorical)})
    assert FrameForm.of(made).rows(made)["a"].dtype == pl.String


def test_minus_zero_is_zero_in_every_form():
    assert not np.signbit(canonical_matrix([[-0.0]])).any()
    for make in (pd.DataFrame, pl.DataFrame):
        made = make({"a": [-0.0, 1.0]})
        assert not np.signbit(FrameForm.of(made).rows(made)["a"].to_numpy()).any()


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([datetime(2020, 1, 1)]),
        pd.Categorical(pd.to_datetime(["2020-01-01"])),
        pd.Categorical(pd.interval_range(0, 2)),
    ],
    ids=["polars time", "times as categories", "intervals as categories"],
)
def test_a_type_that_cannot_be_read_back_is_refused_before_a_model_is_kept(column):
    frame = pl.DataFrame({"a": column}) if isinstance(column, pl.Series) else pd.DataFrame({"a": column})
    with pytest.raises(InvalidInput, match="column 'a' is of a"):
        FrameForm.of(frame).described()


def test_values_that_teachers_could_share_and_change_are_refused():
    """A copy of a frame does not copy the lists in it: one teacher that appends to one would speak to the next."""
    frame = pd.DataFrame({"a": [[1], [2]]})
    with pytest.raises(InvalidInput, match="no text, number, time or date"):
        FrameForm.of(frame).rows(frame)
    mixed = pd.DataFrame({"a": pd.Series(["x", 2, None, True, datetime(2020, 1, 1)], dtype=object)})
    assert FrameForm.of(mixed).rows(mixed)["a"].tolist()[:2] == ["x", 2.0]


def test_names_that_stand_twice_are_refused():
    with pytest.raises(InvalidInput, match="same name"):
        FrameForm.of(pd.DataFrame([[1, 2]], columns=["a", "a"]))


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
        stable.checked([[-0.0, -0.0]]),
    ):
        assert query_digests(made) == query_digests(canonical_matrix([[0.0, 0.0]]))


COLUMNS = {  # what a column is fitted on, one query in it, and company that pandas or polars would read otherwise
    "whole": ([1, 2], 3, 2**60),
    "nullable": (pd.array([1, 2], dtype="Int64"), 3, None),
    "nullable bool": (pd.array([True, False], dtype="boolean"), True, None),
    "nullable float": (pd.array([1.5, 2.5], dtype="Float64"), -0.0, None),
    "object": (pd.Series(["x", 2], dtype=object), 3, None),
    "category": (pd.Categorical([1, 2, 3]), 3, None),
    "text": (["x", "y"], "x", None),
    "polars whole": (pl.Series([1, 2]), 2**60 + 1, None),
    "polars bool": (pl.Series([True, False]), True, None),
    "polars float": (pl.Series([1.5, 2.5]), 3.0, None),
    "polars text": (pl.Series(["x", "y"]), "x", None),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_company_in_a_column_changes_neither_value_nor_digest(column):
    fitted, query, company = COLUMNS[column]
    make = pl.DataFrame if isinstance(fitted, pl.Series) else pd.DataFrame
    form = FrameForm.of(make({"a": fitted}))
    kind = None if make is pl.DataFrame or column in ("object", "text") else getattr(fitted, "dtype", None)
    asked = [
        make({"a": values if kind is None else pd.array(values, dtype=kind)}) for values in ([query], [query, company])
    ]
    alone, beside = [form.rows(one) for one in asked]
    assert query_digests(alone)[0] == query_digests(beside)[0]
    assert repr(alone["a"].to_list()[0]) == repr(beside["a"].to_list()[0])


@pytest.mark.parametrize("kind", ["str", "string", "polars"])
@pytest.mark.parametrize("values", [[3], [3, 2.5], [3, "x"]], ids=str)
def test_a_number_is_no_text(kind, values):
    """It would be "3" by itself, and "3.0" beside a 2.5 or a value that is missing."""
    texts = pl.DataFrame({"a": ["x"]}) if kind == "polars" else pd.DataFrame({"a": pd.Series(["x"], dtype=kind)})
    with pytest.raises(InvalidInput, match="has values that are not"):
        FrameForm.of(texts).rows(pd.DataFrame({"a": values}))


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_text_is_missing(missing):
    for make in (pd.DataFrame, pl.DataFrame):
        form = FrameForm.of(make({"a": ["x"]}))
        (value,) = form.rows(pd.DataFrame({"a": [missing]}))["a"].to_list()
        assert pd.isna(value)


def test_a_number_that_polars_misses_is_not_0():
    form = FrameForm.of(pl.DataFrame({"a": [1.5]}))
    assert form.rows(pl.DataFrame({"a": [-0.0, None, 2.0]}))["a"].to_list() == [0.0, None, 2.0]


by_type = make_pipeline(
    make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include="int64")),
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
    """3.5 in a column of whole numbers is refused; joined as it came, it made the column real for every teacher."""
    X, y = people()
    classifier = EverlastingClassifier(by_type, epsilon=60.0, delta=1e-2, chunk=10, no_quorums=5).fit(X, y)
    with pytest.raises(InvalidInput, match="'age' was of the type int64"):
        classifier.predict(pd.DataFrame({"age": [3.5], "town": ["x"]}))
    assert classifier.seats_taken_ == 0
    classifier.predict(pd.DataFrame({"age": [3.0], "town": ["x"]}))
    points, _ = classifier.session_.answerer.seats.since(0)
    assert points["age"].dtype == np.int64


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


def test_a_sparse_matrix_with_gaps_is_refused_or_taken_as_a_filled_one_is():
    gaps = scipy.sparse.csr_array([[0.0, np.nan], [1.0, 0.0]])
    with pytest.raises(ValueError, match="contains NaN"):
        check_matrix(LogisticRegression(), gaps, reset=True)
    taken = check_matrix(LogisticRegression(), gaps, missing=True, reset=True)
    assert np.array_equal(taken, gaps.toarray(), equal_nan=True)


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    """A container with a quota of one core had as many threads as its host has cores."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    assert usable_cores() == 1
    monkeypatch.setattr("joblib.cpu_count", lambda: 64)
    assert usable_cores() == 64
    assert usable_cores(most=8) == 8
