"""Words and other sparse counts: each row by itself to the last bit, directions from public rows alone."""

import pickle
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.texts import text_table
from quorate import InvalidInput, PrivateLogisticRegression, load, make_private_pipeline, save
from quorate.auditing.replay import entropy_tape
from quorate.core.mechanisms import NoisyVectors
from quorate.core.privacy import Budget
from quorate.core.requests import Request
from quorate.models.linear._sums import SQUARED_SENSITIVITY, PrivateSums, grid_length
from quorate.service.model import Model
from quorate.tables.features import AdditiveColumns, HashedColumns
from quorate.tables.features.words import BUCKETS, Words, as_counts, number_for, words_from_public

WIDTH = 2000


def texts(rows, seed):
    return text_table(rows, seed, words=WIDTH, topics=8)


@pytest.fixture(scope="module")
def hashed():
    return HashedColumns(number=12).fit(texts(400, 1)[0])


def sentences(rows, seed):
    """The words of simulated texts, written out."""
    counts = texts(rows, seed)[0]
    return [" ".join(f"word{place}" for place in counts[[row]].indices) for row in range(rows)]


@pytest.mark.parametrize(
    "columns", [HashedColumns(number=12), HashedColumns(number=12).fit(None)], ids=["public", "none"]
)
def test_a_row_becomes_the_same_numbers_in_every_container_and_company(columns):
    X, _, _ = texts(300, 0)
    columns = columns if hasattr(columns, "words_") else columns.fit(texts(400, 1)[0])
    whole = columns.transform(X)
    assert whole.min() >= 0
    assert whole.max() <= 1
    assert whole.std() > 0.05
    order = np.random.default_rng(0).permutation(300)
    doubled = sparse.coo_array(X)
    doubled = sparse.csr_array(
        (np.tile(doubled.data / 2, 2), (np.tile(doubled.coords[0], 2), np.tile(doubled.coords[1], 2))), shape=X.shape
    )
    for other in (X.toarray(), sparse.csc_matrix(X), sparse.coo_array(X), doubled, X.astype(np.int8)):
        assert np.array_equal(columns.transform(other), whole)
    assert np.array_equal(columns.transform(X[order]), whole[order])
    for first, size in ((0, 1), (3, 7), (299, 1)):
        assert np.array_equal(columns.transform(X[first : first + size]), whole[first : first + size])
    for read in (columns.read(X), columns.read(X)[order]):
        assert np.array_equal(columns.spread(read[:5]), columns.spread(read)[:5])


def test_products_with_directions_are_exact(hashed):
    read, words = hashed.read(texts(20, 3)[0]), hashed.words_
    along = read @ words.directions.astype(float)
    for row in range(20):
        places = slice(read.indptr[row], read.indptr[row + 1])
        exactly = [
            sum(Fraction(value) * int(step) for value, step in zip(read.data[places], column, strict=True))
            for column in words.directions[read.indices[places]].T
        ]
        assert [Fraction(value) for value in along[row]] == exactly
        assert np.sum(read.data[places] ** 2) <= (2**16) ** 2 * 1.001


@given(arrays(np.float64, (3, 40), elements=st.floats(width=64)))
@pytest.mark.filterwarnings("error")
def test_whatever_a_count_is_the_numbers_are_within_0_and_1(counts):
    for columns in (_small_public(), HashedColumns(number=3).fit(None)):
        numbers = columns.transform(sparse.csr_array(counts))
        assert np.isfinite(numbers).all()
        assert numbers.min() >= 0
        assert numbers.max() <= 1


@lru_cache(maxsize=1)
def _small_public():
    counts = np.random.default_rng(0).poisson(0.3, size=(60, 40))
    return HashedColumns(number=3).fit(sparse.csr_array(counts))


@given(arrays(np.float64, (40,), elements=st.floats(width=64)), st.integers(0, 5))
def test_one_sparse_row_moves_a_sum_by_no_more_than_its_noise_is_for(other, place):
    columns, X = _small_public(), np.random.default_rng(1).poisson(0.3, size=(6, 40)).astype(float)
    neighbour = X.copy()
    neighbour[place] = other
    released = []
    for table in (X, neighbour):
        read = columns.read(sparse.csr_array(table))
        private = PrivateSums(lambda rows, read=read: columns.spread(read[rows]), np.zeros((6, 1)), np.arange(6), 6)
        noisy = NoisyVectors(Budget(epsilon=200.0, delta=1e-6, slack=0.0), entries=3)
        with entropy_tape(1):
            mean, _ = private.release(lambda rows, _: rows, entries=3, radius=1.0, noisy=noisy, fraction=0.5)
        released.append(mean * 6 * grid_length(3))
    assert np.sum((released[0] - released[1]) ** 2) <= SQUARED_SENSITIVITY * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["sparse", "sparse, nothing public", "texts"])
def test_what_is_fitted_on_words_depends_on_the_released_vectors_alone(monkeypatch, kind):
    """Proof, step 4: with the same vectors released, unrelated private texts give the same model, bit by bit."""
    count = 0

    def scripted(self, part, *, squared_sensitivity, fraction):
        nonlocal count
        scale = self._take_share(np.size(part), squared_sensitivity, fraction)
        count += 1
        return np.rint(np.random.default_rng(count).normal(size=np.size(part)) * scale).astype(np.int64), scale

    monkeypatch.setattr(NoisyVectors, "release", scripted)
    results = []
    for seed in (0, 1):
        count = 0
        if kind == "texts":
            words = [f"{word} {seed}" for word in sentences(300, seed)]
            X = pandas.DataFrame({"age": np.arange(300.0) + seed, "notes": words})
            public = pandas.DataFrame({"age": np.arange(200.0), "notes": sentences(200, 9)})
            columns = AdditiveColumns(declared={"notes": "text"})
        else:
            X, public, columns = texts(300, seed)[0], texts(200, 9)[0], None
            if seed:
                X = X.astype(np.float32) * 1e30
                X.data[:4] = [np.nan, np.inf, -np.inf, -3]
        model = PrivateLogisticRegression(classes=[0, 1], columns=columns)
        model.fit(X, np.full(300, seed), public=None if kind.endswith("public") else public)
        results.append(pickle.dumps(vars(model)))
    assert results[0] == results[1]


def test_sparse_words_reach_what_a_model_that_is_not_private_does(tmp_path):
    X, y, _ = texts(6000, 0)
    rest, labels, p = texts(2000, 2)
    with entropy_tape(1):
        model = PrivateLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1]).fit(X, y, public=texts(1000, 1)[0])
    auc = roc_auc_score(labels, model.decision_function(rest))
    known = LogisticRegression(max_iter=300).fit(model.columns_.transform(X), y)
    assert auc > roc_auc_score(labels, p) - 0.06 > 0.75
    assert auc > roc_auc_score(labels, known.decision_function(model.columns_.transform(rest))) - 0.02
    again = load(save(model, tmp_path / "model"))
    assert np.array_equal(again.decision_function(rest), model.decision_function(rest))
    [reply] = Model.of_published("texts", again).session.ask_all([Request(rest[:3].toarray())])
    assert np.array_equal(reply.labels, model.predict(rest[:3]))


def test_a_column_of_sentences_beside_numbers(tmp_path):
    _, y, _ = texts(2500, 0)
    table, rest = (
        pandas.DataFrame({"age": np.random.default_rng(0).normal(size=rows), "notes": sentences(rows, seed)})
        for rows, seed in ((2500, 0), (1000, 2))
    )
    labels = texts(1000, 2)[1]
    columns = AdditiveColumns(declared={"notes": "text"})
    with entropy_tape(1):
        model = PrivateLogisticRegression(classes=[0, 1], columns=columns).fit(table, y, public=rest)
    assert roc_auc_score(labels, model.decision_function(rest)) > 0.75
    again = load(save(model, tmp_path / "model"))
    assert np.array_equal(again.predict_proba(rest), model.predict_proba(rest))
    assert "notes about 0" in model.columns_.get_feature_names_out()
    assert len(model.columns_.families()) == model.coef_.shape[1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "other", [None, np.nan, 7, b"x", [1], "\ud800", "", "x" * 10**5], ids=lambda value: repr(value)[:9]
)
def test_a_value_that_is_no_sentence_says_nothing(other):
    words = words_from_public("notes", sentences(100, 1), number=5)
    own = sentences(3, 2)
    mixed = np.array([*own, other], dtype=object) if not isinstance(other, list) else pandas.Series([*own, other])
    assert np.array_equal(words.encode(mixed)[:3], words.encode(own))


def test_more_units_and_less_noise_make_more_numbers_and_few_public_rows_make_fewer():
    assert number_for(8000, 1.0, 2000) == 89
    assert number_for(8000, 0.25, 2000) < 89 < number_for(8000, 4.0, 2000) <= 200
    assert number_for(8000, 1.0, 400) == 50
    assert number_for(10**7, 1.0, 0) == 200


def test_the_words_of_private_rows_are_never_looked_up_for_a_vocabulary(hashed):
    public = texts(400, 1)[0]
    shown = np.bincount(public.indices, minlength=WIDTH)
    assert np.array_equal(hashed.words_.places, np.flatnonzero((shown >= 2) & (shown < 400)))


@pytest.mark.parametrize("container", ["csr", "coo"])
def test_how_another_row_is_stored_does_not_change_how_equal_places_of_a_row_are_added(container):
    draw = np.random.default_rng(0)
    columns, values = np.sort(draw.integers(0, 6, 60)), draw.normal(size=60) * 10.0 ** draw.integers(-8, 17, 60)
    values, rows = np.append(values, [1.0, 1.0]), np.append(np.zeros(60, dtype=int), [1, 1])
    read = []
    for other in ([1, 5], [5, 1]):
        places = np.append(columns, other)
        by_row = sparse.csr_array((values, places, [0, 60, 62]), shape=(2, 400))
        listed = sparse.coo_array((values, (rows, places)), shape=(2, 400))
        read.append(as_counts(by_row if container == "csr" else listed).toarray()[0])
    assert np.array_equal(*read)


@pytest.mark.filterwarnings("error")
def test_a_count_that_is_too_large_or_no_number_is_not_spoken_of():
    counts = sparse.csr_array(np.array([[1, 0], [np.longdouble("1e400"), np.nan]], dtype=np.longdouble))
    assert as_counts(counts).toarray()[1, 0] == np.inf
    words = words_from_public("w", None, number=4)
    assert words.read(counts).toarray()[1, :2].tolist() == [2**16, 0]


def test_more_columns_than_places_share_them():
    counts = sparse.csr_array(([1.0, 1.0], ([0, 1], [3, 3 + BUCKETS])), shape=(2, 2 * BUCKETS))
    one, other = HashedColumns(number=4).fit(None).transform(counts)
    assert np.array_equal(one, other)


def test_public_rows_that_tell_too_little_are_refused():
    with pytest.raises(InvalidInput, match="too few"):
        HashedColumns(number=20).fit(texts(15, 0)[0])
    with pytest.raises(InvalidInput, match="would leave them without noise"):
        PrivateLogisticRegression(columns=StandardScaler()).fit(
            np.zeros((9, 2)), np.arange(9) % 2, public=np.zeros((9, 2))
        )


def test_damaged_words_are_not_loaded(hashed):
    document, parts = hashed.words_.document(), hashed.words_.arrays()
    assert np.array_equal(Words.from_document(document, parts).directions, hashed.words_.directions)
    for part, value in (
        ("places", parts["places"] + BUCKETS),
        ("weights", parts["weights"][1:]),
        ("directions", parts["directions"] * 2**10 + 2**25),
        ("scale", parts["scale"] * np.nan),
    ):
        with pytest.raises(InvalidInput, match="damaged"):
            Words.from_document(document, parts | {part: value})


def test_a_pipeline_of_columns_and_model_is_one_estimator_that_is_saved(tmp_path):
    X, y, _ = texts(500, 0)
    given = HashedColumns(number=6).fit(X)  # what was learned elsewhere is dropped
    model = make_private_pipeline(given, PrivateLogisticRegression(epsilon=2.0, classes=[0, 1]))
    assert isinstance(model, PrivateLogisticRegression)
    assert not hasattr(model.columns, "words_")
    public = texts(200, 1)[0]
    model.fit(X, y, public=public)
    assert np.array_equal(model.columns_.words_.places, HashedColumns(number=6).fit(public).words_.places)
    assert "(2, 1e-06)-differentially private" in model.claim_
    assert np.array_equal(load(save(model, tmp_path / "model")).predict(X), model.predict(X))
    with pytest.raises(InvalidInput, match="would leave them without noise"):
        make_private_pipeline(StandardScaler(), PrivateLogisticRegression())
    with pytest.raises(InvalidInput, match="the last step"):
        make_private_pipeline(HashedColumns(), LogisticRegression())
    with pytest.raises(InvalidInput, match="cannot be saved"):
        save(make_pipeline(StandardScaler(), model), tmp_path / "other")
