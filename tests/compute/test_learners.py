"""Teachers fitted together are the teachers that would be fitted alone, and their ballots are counted right."""

import importlib.util
import io
import subprocess
import sys
import tracemalloc
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from benchmarks.learners import counting_figures, fitting_figures
from quorate import InvalidInput
from quorate.compute.learners import (
    BatchedCentroid,
    BatchedLogistic,
    BatchedNaiveBayes,
    BatchedQuadratic,
    BatchedRidge,
    BatchedTree,
    Deal,
    backends,
    batched_equivalent,
    teachers_from_arrays,
)
from quorate.compute.learners import _losses as newton_module
from quorate.compute.learners import teachers as teachers_module
from quorate.compute.learners.backends import choose_backend
from quorate.compute.learners.linear import LinearTeachers
from quorate.compute.learners.teachers import Learner, padded_rows
from support.devices import needs_torch, on

LEARNERS = {
    "logistic": BatchedLogistic(),
    "logistic_without_intercept": BatchedLogistic(C=30.0, fit_intercept=False),
    "ridge": BatchedRidge(),
    "least_squares": BatchedRidge(alpha=0.0, fit_intercept=False),
    "centroid": BatchedCentroid(),
    "naive_bayes": BatchedNaiveBayes(),
    "quadratic": BatchedQuadratic(),
    "stump": BatchedTree(max_depth=1),
    "tree": BatchedTree(max_depth=3),
    "tree_balanced": BatchedTree(max_depth=4, min_samples_leaf=3, class_weight="balanced"),
}
NAMES = sorted(LEARNERS)


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    """What is said of memory, speed and single steps holds of NumPy; `test_gpu.py` has the GPU."""
    monkeypatch.setenv("QUORATE_DEVICE", "cpu")


DEVICES = ["cpu", pytest.param("torch", marks=needs_torch)]


def made(seed, sizes, features, classes, *, uneven=False):
    """Rows drawn around a linear rule, dealt by a random permutation."""
    random = np.random.default_rng(seed)
    rows = int(np.sum(sizes))
    X = random.normal(size=(rows, features))
    rule = random.normal(size=(features, classes)) * 2 / np.sqrt(features)
    y = (X @ rule + random.gumbel(size=(rows, classes))).argmax(axis=1)
    if uneven:
        X = X * 10.0 ** random.uniform(-2, 3, size=features) + random.uniform(-1000, 1000, size=features)
    return X, y, Deal(random.permutation(rows), np.asarray(sizes))


def chunks_of(deal):
    return np.split(deal.rows, np.cumsum(deal.sizes)[:-1])


def one_teacher(teachers, place):
    """All that teacher `place` is, as bytes."""
    return {
        name: array[place].tobytes()
        for name, array in teachers.arrays().items()
        if name not in ("kind", "classes", "features", "quadratic", "slices")
    }


# ---------------------------------------------------------------------------------------------------------------------
# Equality with scikit-learn


def loop_ballots(estimator, X, y, deal, queries):
    """What a loop of scikit-learn's would vote; a chunk of one class votes for it, an empty one for 0."""
    columns = []
    for rows in chunks_of(deal):
        shown = np.unique(y[rows])
        if shown.size < 2:
            columns.append(np.full(len(queries), shown[0] if shown.size else 0))
        else:
            with warnings.catch_warnings(action="ignore"):  # chunks may be too small for some of its statistics
                columns.append(estimator.fit(X[rows], y[rows]).predict(queries))
    return np.stack(columns, axis=1)


EXACT = {"tol": 1e-10, "max_iter": 10_000}
ESTIMATORS = {
    "logistic": LogisticRegression(solver="newton-cholesky", **EXACT),
    "logistic_without_intercept": LogisticRegression(C=30.0, fit_intercept=False, solver="newton-cholesky", **EXACT),
    "ridge": RidgeClassifier(),
    "ridge_without_intercept": RidgeClassifier(alpha=0.01, fit_intercept=False),
    "centroid": NearestCentroid(),
    "naive_bayes": GaussianNB(),
}
CASES = [(2, 4, False), (2, 20, True), (3, 5, True), (6, 20, False), (2, 60, True), (3, 60, False)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("classes", "features", "uneven"), CASES)
@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_ballots_are_those_of_a_loop_of_scikit_learn(name, classes, features, uneven, device):
    sizes = np.random.default_rng(features).permutation([0, 1, 2, 3, *range(5, 45, 3), 40, 40, 120])
    X, y, deal = made(7, sizes, features, classes, uneven=uneven)
    queries = X[::3]
    teachers = batched_equivalent(ESTIMATORS[name]).fit(X, y, deal, classes=classes, device=device)
    expected = loop_ballots(ESTIMATORS[name], X, y, deal, queries)
    assert (on(teachers, device=device).ballots(queries) == expected).mean() > 0.999


@pytest.mark.parametrize("classes", [2, 3])
def test_quadratic_ballots_are_those_of_a_loop_of_scikit_learn(classes, monkeypatch):
    sizes = [0, 1, 2, 3, *range(5, 45, 3), 40, 120]
    X, y, deal = made(8, sizes, 4, classes)
    estimator = make_pipeline(PolynomialFeatures(include_bias=False), ESTIMATORS["logistic"])
    teachers = batched_equivalent(estimator).fit(X, y, deal, classes=classes)
    assert (teachers.ballots(X) == loop_ballots(estimator, X, y, deal, X)).mean() > 0.999
    monkeypatch.setattr(Learner, "memory", 2**14)
    few = batched_equivalent(estimator).fit(X, y, deal, classes=classes)
    assert (on(few, memory=2**14).votes(X) == teachers.votes(X)).all()


def test_logistic_coefficients_are_those_of_scikit_learn():
    X, y, deal = made(3, [50] * 10, 8, 2)
    scores = BatchedLogistic(C=2.0).fit(X, y, deal, classes=2).arrays()["scores"]
    for rows, found in zip(chunks_of(deal), scores, strict=True):
        model = LogisticRegression(C=2.0, solver="newton-cholesky", **EXACT).fit(X[rows], y[rows])
        assert found[0] == pytest.approx(np.append(model.coef_[0], model.intercept_), abs=1e-4)


def test_multinomial_scores_are_those_of_scikit_learn():
    X, y, deal = made(3, [80] * 5, 6, 4)
    scores = BatchedLogistic().fit(X, y, deal, classes=4).arrays()["scores"]
    for rows, found in zip(chunks_of(deal), scores, strict=True):
        model = LogisticRegression(solver="newton-cholesky", **EXACT).fit(X[rows], y[rows])
        assert not found[0].any()  # others are relative to it
        assert found[:, :-1] == pytest.approx(model.coef_ - model.coef_[0], abs=1e-3)
        assert found[:, -1] == pytest.approx(model.intercept_ - model.intercept_[0], abs=1e-3)


def tree_errors(X, y, weights, teachers, place, *, least):
    """Replay one tree on its rows: what is wrong with it, by an exhaustive search in exact fractions at every cut."""
    parts = teachers.arrays()
    features, thresholds, labels = (parts[name][place] for name in ("feature", "threshold", "label"))

    def purity(rows):
        sums = [sum((weights[label] for label in y[rows] if label == each), Fraction(0)) for each in weights]
        return sum(value**2 for value in sums) / sum(sums)

    def walk(cut, rows):
        if cut >= len(features):
            sums = [
                (sum((weights[each] for label in y[rows] if label == each), Fraction(0)), -each) for each in weights
            ]
            return [] if not rows.size or -max(sums)[1] == labels[cut - len(features)] else [f"leaf {cut}"]
        below = X[rows, features[cut]] <= thresholds[cut]
        found = []
        for column in range(X.shape[1]):
            for value in np.unique(X[rows, column])[:-1]:
                left = X[rows, column] <= value
                if least <= left.sum() <= rows.size - least:
                    found.append(purity(rows[left]) + purity(rows[~left]))
        wrong = []
        if bool(found) != bool(0 < below.sum() < rows.size):
            wrong = [f"cut {cut} is missing or made up"]
        elif found and float(max(found)) > float(purity(rows[below]) + purity(rows[~below])) + 1e-9 * rows.size:
            wrong = [f"cut {cut} is not the best"]
        return wrong + walk(2 * cut + 1, rows[below]) + walk(2 * cut + 2, rows[~below])

    return walk(0, np.arange(len(y)))


@pytest.mark.parametrize("weight", [None, "balanced"])
@pytest.mark.parametrize("least", [1, 3])
@pytest.mark.parametrize("classes", [2, 4])
def test_every_cut_of_a_tree_is_the_best_by_exact_fractions(classes, least, weight):
    X, y, deal = made(13, [*range(2, 40, 3)], 3, classes)
    X = np.round(X * 2) / 2  # many values alike, and single precision holds them
    teachers = BatchedTree(max_depth=3, min_samples_leaf=least, class_weight=weight).fit(X, y, deal, classes=classes)
    for place, rows in enumerate(chunks_of(deal)):
        sizes = np.bincount(y[rows], minlength=classes)
        weights = {label: Fraction(1, int(sizes[label]) if weight else 1) for label in np.flatnonzero(sizes)}
        if len(weights) < 2:
            continue
        assert not tree_errors(X[rows], y[rows], weights, teachers, place, least=least)


@pytest.mark.parametrize("weight", [None, "balanced"])
@pytest.mark.parametrize(("classes", "depth"), [(2, 2), (2, 4), (3, 3), (5, 6)])
def test_trees_vote_as_scikit_learns_do(classes, depth, weight):
    """Several splits are often equally good, and scikit-learn draws among them: so not every ballot is equal."""
    X, y, deal = made(14, [200] * 12, 5, classes)
    estimator = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=8, class_weight=weight, random_state=0)
    queries = np.random.default_rng(0).normal(size=(300, 5))
    ballots = batched_equivalent(estimator).fit(X, y, deal, classes=classes).ballots(queries)
    assert (ballots == loop_ballots(estimator, X, y, deal, queries)).mean() > 0.95


def test_a_missing_value_is_above_every_threshold():
    X = np.array([[1.0], [2.0], [3.0], [np.nan], [np.nan], [np.inf]])
    teachers = BatchedTree(max_depth=1, class_weight="balanced").fit(
        X, [0, 0, 0, 1, 1, 0], Deal.of([range(6)]), classes=2
    )
    assert teachers.ballots([[3.0], [1e37], [np.nan]]).ravel().tolist() == [0, 0, 1]
    with pytest.raises(InvalidInput, match="finite numbers"):
        teachers.ballots([[np.inf]])


# ---------------------------------------------------------------------------------------------------------------------
# Isolation: a teacher is a function of its own rows


def leaks(fit, *, rounds=3, classes=3, features=4, others=40):
    """Return whether any teacher changes, by as much as a bit, when only other teachers' rows do.

    `fit(X, y, deal, classes=...)` is tried with other chunks replaced by some of another size and kind, moved to
    other places, spoilt, and emptied.
    """
    random = np.random.default_rng(2)
    for attempt in range(rounds):
        X, y, deal = made(attempt, random.integers(0, 40, size=14), features, classes)
        chunks, kept = chunks_of(deal), random.permutation(14)[:3]
        before = fit(X, y, deal, classes=classes)
        strange_X, strange_y, strange = made(100 + attempt, random.integers(0, 70, size=others), features, classes)
        strange_X = 100 * strange_X + 7
        strange_X[::17], strange_X[5::23], strange_y[::11], strange_y[3::29] = np.nan, 1e300, -1, 7
        places = random.permutation(3 + others)
        mixed = [chunks[place] for place in kept] + [rows + len(X) for rows in chunks_of(strange)]
        both = np.concatenate([X, strange_X]), np.concatenate([y, strange_y])
        after = fit(*both, Deal.of([mixed[place] for place in places]), classes=classes)
        for number, place in enumerate(kept):
            alone = fit(X, y, Deal.of([chunks[place], *[[]] * (others + 2)]), classes=classes)
            elsewhere = one_teacher(after, places.tolist().index(number))
            if not one_teacher(before, place) == elsewhere == one_teacher(alone, 0):
                return True
    return False


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_a_teacher_depends_on_its_own_rows_alone(name, classes, device):
    def fit(*arguments, classes):
        return LEARNERS[name].fit(*arguments, classes=classes, device=device)

    rounds = 2 if name == "quadratic" else 3  # products of far-off values take many steps
    assert not leaks(fit, rounds=rounds, classes=classes, others=11)  # the number of teachers stays: it is public
    if device == "cpu":
        assert not leaks(fit, rounds=rounds, classes=classes, others=40)


@pytest.mark.parametrize("name", ["logistic", "ridge"])
def test_more_features_than_rows_leak_nothing_either(name):
    assert not leaks(LEARNERS[name].fit, classes=2, features=30, rounds=3)


def test_a_global_scaler_is_caught():
    def fit(X, y, deal, *, classes):
        usable = X[(np.abs(X) < 1e30).all(axis=1)]
        return BatchedLogistic().fit((X - usable.mean(axis=0)) / usable.std(axis=0), y, deal, classes=classes)

    assert leaks(fit)


def test_a_shared_prior_is_caught():
    def fit(X, y, deal, *, classes):
        fitted = BatchedCentroid().fit(X, y, deal, classes=classes).arrays()
        fitted["scores"] = fitted["scores"] + 1e-9 * fitted["scores"].mean(axis=0)
        return LinearTeachers.from_arrays(fitted)

    assert leaks(fit)


@pytest.mark.parametrize("classes", [2, 3])
def test_shared_convergence_is_caught(monkeypatch, classes):
    def until_all_stand_still(loss, found, scores, value, *, steps):
        for _ in range(steps):
            direction, _ = loss.direction(found, scores)
            found, change = found + direction, loss.design @ direction
            scores = scores + change
            if np.abs(change).max() < 0.02:
                break
        return found

    monkeypatch.setattr(newton_module, "_descend", until_all_stand_still)
    assert leaks(BatchedLogistic().fit, classes=classes)


def test_filling_chunks_up_to_the_largest_is_caught(monkeypatch):
    monkeypatch.setattr(teachers_module, "padded_rows", lambda sizes: np.full_like(sizes, sizes.max()))
    assert leaks(BatchedLogistic().fit, classes=2)


def test_inferred_classes_are_caught():
    def fit(X, y, deal, *, classes):
        return BatchedCentroid().fit(X, y, deal, classes=max(2, int(y[deal.rows].max()) + 1))

    assert leaks(fit)


@pytest.mark.parametrize("name", NAMES)
def test_blocks_change_nothing_to_the_last_bit(name, monkeypatch):
    X, y, deal = made(4, np.arange(60) % 37, 7, 3)
    whole = LEARNERS[name].fit(X, y, deal, classes=3)
    for memory in (1024, 100_000, 2**30):
        monkeypatch.setattr(Learner, "memory", memory)
        part = LEARNERS[name].fit(X, y, deal, classes=3)
        assert all(one_teacher(whole, place) == one_teacher(part, place) for place in range(60))


# ---------------------------------------------------------------------------------------------------------------------
# Every chunk votes, whatever it holds, and no private value is heard of

NASTY = st.sampled_from([0.0, 1.0, -1.0, 2.0, 1e-300, 1e20, -1e38, 3e38, 1e200, np.nan, np.inf, -np.inf, 0.1])


@st.composite
def tables(draw):
    classes, features = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    sizes = draw(st.lists(st.integers(0, 7), min_size=1, max_size=6))
    rows = sum(sizes)
    values = draw(st.lists(NASTY, min_size=rows * features, max_size=rows * features))
    labels = draw(st.lists(st.integers(-1, classes), min_size=rows, max_size=rows))
    X = np.array(values, dtype=np.float64).reshape(rows, features)
    return X, np.array(labels, dtype=np.int64), Deal(np.arange(rows), np.array(sizes)), classes


@settings(max_examples=60)
@given(table=tables(), name=st.sampled_from(NAMES))
def test_every_teacher_casts_one_valid_ballot_without_a_word(table, name):
    """Warnings are errors in this suite, so that none was raised."""
    X, y, deal, classes = table
    teachers = LEARNERS[name].fit(X, y, deal, classes=classes)
    queries = np.concatenate([np.nan_to_num(X, posinf=1e300, neginf=-1e300), np.eye(X.shape[1])])
    ballots, votes = teachers.ballots(queries), teachers.votes(queries)
    assert ballots.shape == (len(queries), deal.teachers)
    assert ballots.max(initial=0) < classes
    assert (votes == np.stack([(ballots == label).sum(axis=1) for label in range(classes)], axis=1)).all()
    assert (votes.sum(axis=1) == deal.teachers).all()
    missing = np.isnan(X) & LEARNERS[name].takes_missing
    usable = ((np.abs(X) <= 1e38) | missing).all(axis=1) & (y >= 0) & (y < classes)
    for place, rows in enumerate(chunks_of(deal)):
        shown = np.unique(y[rows[usable[rows]]])
        if shown.size < 2:
            assert (ballots[:, place] == (shown[0] if shown.size else 0)).all()
        else:
            assert set(ballots[:, place].tolist()) <= set(shown.tolist())


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000), sizes=st.lists(st.integers(0, 30), min_size=1, max_size=12), classes=st.integers(2, 5)
)
def test_left_out_rows_are_as_if_never_dealt(seed, sizes, classes):
    X, y, deal = made(seed, sizes, 3, classes)
    spoilt = np.random.default_rng(seed).random(len(X)) < 0.2
    broken = np.where(spoilt[:, np.newaxis], np.nan, X)
    without = Deal.of([rows[~spoilt[rows]] for rows in chunks_of(deal)])
    one = BatchedLogistic().fit(broken, y, deal, classes=classes)
    two = BatchedLogistic().fit(X, y, without, classes=classes)
    assert all(one_teacher(one, place) == one_teacher(two, place) for place in range(deal.teachers))


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_at_all(name):
    teachers = LEARNERS[name].fit(np.zeros((0, 3)), np.zeros(0, dtype=int), Deal.of([[], []]), classes=4)
    assert teachers.votes(np.eye(3)).tolist() == [[2, 0, 0, 0]] * 3
    assert teachers.votes(np.zeros((0, 3))).shape == (0, 4)
    assert teachers.ballots(np.zeros((0, 3))).shape == (0, 2)


@pytest.mark.parametrize("name", NAMES)
def test_alike_rows_with_different_labels(name):
    teachers = LEARNERS[name].fit(np.ones((6, 2)), [0, 1, 1, 1, 0, 1], Deal.of([range(6)]), classes=2)
    winner = 0 if name in ("centroid", "tree_balanced") else 1  # both centroids are equally near, both classes weigh 1
    assert teachers.ballots([[1.0, 1.0]]).tolist() == [[winner]]


def test_separable_chunks_with_almost_no_penalty_stay_finite():
    X = np.concatenate([np.linspace(-2, -1, 10), np.linspace(1, 2, 10)])[:, np.newaxis]
    teachers = BatchedLogistic(C=1e12).fit(X, [0] * 10 + [1] * 10, Deal.of([range(20)]), classes=2)
    assert np.isfinite(teachers.arrays()["scores"]).all()
    assert teachers.ballots([[-0.5], [0.5]]).ravel().tolist() == [0, 1]


def test_a_singular_system_disturbs_no_other():
    matrices = np.array([np.eye(2), np.zeros((2, 2)), 2 * np.eye(2)])
    solved = choose_backend("cpu").solve(matrices, np.ones((3, 2, 1)))
    assert solved[:, :, 0].tolist() == [[1.0, 1.0], [1.0, 1.0], [0.5, 0.5]]


# ---------------------------------------------------------------------------------------------------------------------
# Counting


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("classes", [2, 3, 10, 300])
def test_votes_are_the_count_of_ballots_in_blocks_of_any_size(classes, device):
    random = np.random.default_rng(1)
    scores = random.normal(size=(30 if classes > 100 else 700, 1 if classes == 2 else classes, 6))
    teachers, queries = LinearTeachers(scores, classes=classes), random.normal(size=(61, 5))
    votes = on(teachers, device=device).votes(queries)
    assert votes.dtype == np.int64
    exact = np.einsum("qf,tsf->qts", np.append(queries, np.ones((61, 1)), axis=1), scores)
    expected = exact[:, :, 0] > 0 if classes == 2 else exact.argmax(axis=2)
    ballots = on(teachers, device=device).ballots(queries)
    assert (ballots == expected).all()
    assert ballots.dtype == (np.uint16 if classes > 256 else np.uint8)
    assert (votes == np.stack([(expected == label).sum(axis=1) for label in range(classes)], axis=1)).all()
    for memory in (20_000, 2**22) if classes > 3 else (1024, 20_000, 2**22):
        assert (on(teachers, memory=memory, device=device).votes(queries) == votes).all()
    one_by_one = [on(teachers, device=device).votes(query[np.newaxis])[0] for query in queries[:9]]
    assert (np.stack(one_by_one) == votes[:9]).all()


def test_equal_scores_fall_to_the_lowest_class():
    teachers = LinearTeachers(np.array([[[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]]), classes=3)
    assert teachers.ballots([[1.0], [-1.0], [0.0]]).ravel().tolist() == [1, 0, 0]
    assert LinearTeachers(np.zeros((3, 1, 2)), classes=2).votes([[1.0]]).tolist() == [[3, 0]]


def test_huge_queries_still_get_a_ballot():
    teachers = LinearTeachers(np.array([[[1.0, -1.0, 0.0]], [[1e300, 1.0, 0.0]]]), classes=2)
    assert teachers.votes([[1.7e308, 1.7e308]]).sum() == 2


@pytest.mark.parametrize(("classes", "quadratic"), [(2, False), (5, False), (2, True)])
def test_memory_is_bounded_whatever_the_size(classes, quadratic):
    """The full table of scores would take 320 MB for two classes."""
    random = np.random.default_rng(0)
    columns = 2 * 10 + 1 if quadratic else 10 + 1
    scores = random.normal(size=(2000, 1 if classes == 2 else classes, columns))
    teachers = LinearTeachers(scores, classes=classes, quadratic=quadratic)
    queries = random.normal(size=(20_000, 10))
    tracemalloc.start()
    on(teachers, memory=2**20).votes(queries)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20 + 20_000 * classes * 8 * 2


def test_fitting_in_little_memory(monkeypatch):
    X, y, deal = made(0, [50] * 2000, 10, 2)
    monkeypatch.setattr(Learner, "memory", 2**20)
    tracemalloc.start()
    BatchedLogistic().fit(X, y, deal, classes=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes + 6 * 2**20  # checking the rows takes a copy of some of them


# ---------------------------------------------------------------------------------------------------------------------
# Saving, printing, refusing


@pytest.mark.parametrize("name", NAMES)
def test_saved_without_pickle_and_rebuilt(name):
    X, y, deal = made(6, [9] * 12, 4, 3)
    teachers = LEARNERS[name].fit(X, y, deal, classes=3)
    file = io.BytesIO()
    np.savez(file, **teachers.arrays())
    file.seek(0)
    with np.load(file, allow_pickle=False) as saved:
        again = teachers_from_arrays(saved)
    assert type(again) is type(teachers)
    assert all(array.tobytes() == again.arrays()[key].tobytes() for key, array in teachers.arrays().items())
    assert (again.votes(X) == teachers.votes(X)).all()
    assert repr(again) == repr(teachers)


def test_arrays_that_describe_nothing_are_refused():
    arrays = LinearTeachers(np.ones((2, 1, 2)), classes=2).arrays()
    for change in (
        {"kind": np.array("forest")},
        {"scores": np.ones((2, 2, 2))},
        {"scores": np.full((2, 1, 2), np.nan)},
    ):
        with pytest.raises(InvalidInput, match="must"):
            teachers_from_arrays({**arrays, **change})
    with pytest.raises(InvalidInput, match="kind"):
        teachers_from_arrays({})
    with pytest.raises(InvalidInput, match="hold numbers as classes"):
        teachers_from_arrays({"kind": np.array("tree")})
    tree = BatchedTree(max_depth=1).fit([[0.0], [1.0]], [0, 1], Deal.of([[0, 1]]), classes=2).arrays()
    for change in (
        {"feature": np.array([[7]])},
        {"label": np.array([[0, 2]])},
        {"threshold": np.array([[np.inf]])},
        {"label": np.array([[0]])},
    ):
        with pytest.raises(InvalidInput, match="must be"):
            teachers_from_arrays({**tree, **change})


@pytest.mark.parametrize("name", NAMES)
def test_nothing_private_is_printed(name):
    shown = set()
    for seed in range(4):
        X, y, deal = made(seed, [30, 0, 5], 2, 3)
        teachers = LEARNERS[name].fit(X * 10**seed, y, deal, classes=3)
        shown |= {repr(teachers), repr(deal), str(teachers)}
    kinds = {"quadratic": "QuadraticTeachers", "stump": "TreeTeachers", "tree": "TreeTeachers"}
    kind = kinds.get(name.partition("_")[0], "LinearTeachers")
    assert shown == {f"{kind}(teachers=3, classes=3, features=2)", "Deal(teachers=3)"}


BAD_FITS = [
    ({"X": [1.0, 2.0]}, "X must be a matrix of numbers"),
    ({"X": [["a"], ["b"]]}, "X must be a matrix of numbers"),
    ({"X": np.zeros((2, 0))}, "with at least 1 column"),
    ({"y": [0.0, 1.0]}, "y must be 2 integer codes"),
    ({"y": [0, 1, 1]}, "y must be 2 integer codes"),
    ({"y": [True, False]}, "y must be 2 integer codes"),
    ({"classes": 1}, "classes must be a whole number of at least 2"),
    ({"deal": Deal.of([[0, 5]])}, "the deal must name rows below 2"),
    ({"device": "abacus"}, "device must be"),
]


@pytest.mark.parametrize("learner", [BatchedRidge(), BatchedTree()])
@pytest.mark.parametrize(("change", "text"), BAD_FITS)
def test_bad_arguments_are_refused(learner, change, text):
    given = {"X": [[0.0], [1.0]], "y": [0, 1], "deal": Deal.of([[0, 1]]), "classes": 2, **change}
    with pytest.raises(InvalidInput, match=text):
        learner.fit(given.pop("X"), given.pop("y"), given.pop("deal"), **given)


@pytest.mark.parametrize("name", ["centroid", "naive_bayes"])
def test_bad_queries_are_refused(name):
    teachers = LEARNERS[name].fit([[0.0, 0.0], [1.0, 1.0]], [0, 1], Deal.of([[0, 1]]), classes=2)
    for ask in (teachers.votes, teachers.ballots):
        with pytest.raises(InvalidInput, match="queries must"):
            ask([[1.0]])
        with pytest.raises(InvalidInput, match="queries must"):
            ask([[1.0, np.nan]])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Deal([0, 1], [1]), "sum to the number of rows"),
        (lambda: Deal([], []), "at least 1 teacher"),
        (lambda: Deal([0, 0], [1, 1]), "to one teacher at most"),
        (lambda: Deal([-1], [1]), "at least 0"),
        (lambda: Deal([0.5], [1]), "a vector of integers"),
        (lambda: Deal.of([]), "at least 1 teacher"),
        (lambda: Deal.by_assignment([0, 2], teachers=2), "numbers from 0 to 1"),
        (lambda: BatchedLogistic(C=0.0), "C must be a positive finite number"),
        (lambda: BatchedRidge(alpha=-1.0), "alpha must be"),
        (lambda: BatchedNaiveBayes(var_smoothing=0.0), "var_smoothing must be"),
    ],
)
def test_bad_descriptions_are_refused(make, text):
    with pytest.raises(InvalidInput, match=text):
        make()


@given(st.lists(st.integers(-1, 4), max_size=30))
def test_a_deal_by_assignment_gives_every_row_to_its_teacher(assignment):
    deal = Deal.by_assignment(np.array(assignment, dtype=np.int64), teachers=5)
    for teacher, rows in enumerate(chunks_of(deal)):
        assert rows.tolist() == [row for row, owner in enumerate(assignment) if owner == teacher]


@given(st.integers(0, 10**6))
def test_filling_adds_at_most_a_sixteenth(size):
    padded = int(padded_rows(np.array([size]))[0])
    assert size <= padded <= size * 17 / 16


# ---------------------------------------------------------------------------------------------------------------------
# Recognition, the other backend, speed


@pytest.mark.parametrize(
    ("estimator", "learner"),
    [
        (LogisticRegression(), BatchedLogistic()),
        (LogisticRegression(C=3, fit_intercept=False, tol=1e-8, max_iter=5, n_jobs=1), BatchedLogistic(3.0, False)),
        (LogisticRegression(solver="newton-cg", random_state=1), BatchedLogistic()),
        (LogisticRegression(solver="liblinear"), None),
        (LogisticRegression(solver="saga", l1_ratio=0.5), None),
        (LogisticRegression(C=np.inf), None),
        (LogisticRegression(class_weight="balanced"), BatchedLogistic(class_weight="balanced")),
        (LogisticRegression(class_weight={1: 4, 0: 1}), BatchedLogistic(class_weight=(1.0, 4.0))),
        (LogisticRegression(class_weight={"no": 1, "yes": 4}), None),
        (LogisticRegression(class_weight={0: 0.0, 1: 1.0}), None),
        (RidgeClassifier(alpha=0.5), BatchedRidge(alpha=0.5)),
        (RidgeClassifier(positive=True), None),
        (RidgeClassifier(class_weight={0: 2}), None),
        (RidgeClassifier(alpha=0.0), None),
        (NearestCentroid(), BatchedCentroid()),
        (NearestCentroid(metric="manhattan"), None),
        (NearestCentroid(shrink_threshold=0.1), None),
        (GaussianNB(var_smoothing=1e-3), BatchedNaiveBayes(var_smoothing=1e-3)),
        (GaussianNB(priors=[0.5, 0.5]), None),
        (GaussianNB(var_smoothing=0.0), None),
        (DecisionTreeClassifier(max_depth=1, random_state=3), BatchedTree(max_depth=1)),
        (DecisionTreeClassifier(max_depth=2), BatchedTree(max_depth=2)),
        (
            DecisionTreeClassifier(max_depth=6, min_samples_leaf=5, class_weight="balanced"),
            BatchedTree(max_depth=6, min_samples_leaf=5, class_weight="balanced"),
        ),
        (DecisionTreeClassifier(max_depth=1, min_samples_leaf=5), BatchedTree(max_depth=1, min_samples_leaf=5)),
        (DecisionTreeClassifier(max_depth=7), None),
        (DecisionTreeClassifier(max_depth=2, min_samples_leaf=0.1), None),
        (DecisionTreeClassifier(max_depth=2, class_weight={0: 2}), None),
        (DecisionTreeClassifier(max_depth=2, max_features=1), None),
        (DecisionTreeClassifier(max_depth=1, criterion="entropy"), None),
        (DecisionTreeClassifier(), None),
        (make_pipeline(PolynomialFeatures(include_bias=False), LogisticRegression(C=3)), BatchedQuadratic(C=3.0)),
        (make_pipeline(PolynomialFeatures(), LogisticRegression()), None),
        (make_pipeline(PolynomialFeatures(3, include_bias=False), LogisticRegression()), None),
        (make_pipeline(PolynomialFeatures(include_bias=False), RidgeClassifier()), None),
        (make_pipeline(StandardScaler(), LogisticRegression()), None),
        (make_pipeline(LogisticRegression()), None),
        (RandomForestClassifier(), None),
        (type("Changed", (LogisticRegression,), {})(), None),
        (LogisticRegression, None),
        (None, None),
    ],
)
def test_estimators_are_recognised_where_their_settings_allow(estimator, learner):
    assert batched_equivalent(estimator) == learner


def test_neither_scikit_learn_nor_torch_is_imported_before_it_is_needed():
    program = "import sys, quorate.compute.learners; print({'sklearn', 'torch', 'threadpoolctl'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@needs_torch
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_both_libraries_agree(name, classes):
    X, y, deal = made(9, [0, 1, 3, *[30] * 25, 64, 100], 9, classes)
    one, two = (LEARNERS[name].fit(X, y, deal, classes=classes, device=device) for device in ("cpu", "torch"))
    for key, array in one.arrays().items():
        if key != "kind":
            assert np.allclose(array, two.arrays()[key], rtol=1e-6, atol=1e-6)
    assert (on(one, device="torch").votes(X) == one.votes(X)).all()


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed here")
def test_torch_is_asked_for_by_name():
    assert choose_backend("auto").name == "numpy"
    with pytest.raises(InvalidInput, match="needs PyTorch, which is not installed here"):
        choose_backend("torch")


@pytest.mark.filterwarnings("ignore", category=ConvergenceWarning)
def test_a_batch_is_much_faster_than_a_loop():
    """At a tenth of the promised size; the bench holds the full size against its bar. 38 times is usual."""
    tries = (fitting_figures(teachers=1000, loop=60, queries=300) for _ in range(5))
    assert any(figures.times_faster > 10 and figures.agreement >= 0.99 for figures in tries)


def test_counting_keeps_pace_with_the_bare_product():
    """0.66 is usual. A machine that is busy with something else may spoil one measurement, and not five."""
    tries = (counting_figures(teachers=2000, queries=10_000) for _ in range(5))
    assert any(figures.speed_share > 0.3 and figures.peak_bytes < 2**25 for figures in tries)


def test_a_gpu_that_is_told_to_multiply_inexactly_is_refused(monkeypatch):
    monkeypatch.setattr(backends, "_has_torch", lambda: True)
    monkeypatch.setattr(backends, "_has_gpu", lambda: True)
    monkeypatch.setenv("CUBLAS_EMULATE_DOUBLE_PRECISION", "1")
    with pytest.raises(InvalidInput, match="ballots must"):
        choose_backend("cuda")
