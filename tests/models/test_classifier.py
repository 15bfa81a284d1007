"""PrivateClassifier: scikit-learn manners, a budget inside, and answers that are paid for once."""

import copy
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from quorate import BudgetSpent, Infeasible, InvalidInput, NoQuorum, PrivateLogisticRegression
from quorate.compute.ensemble import Ensemble
from quorate.compute.learners.linear import LinearTeachers
from quorate.core.rows import canonical_matrix, query_digests
from quorate.models.knn import NeighbourClassifier
from quorate.models.predictors import PrivateClassifier
from quorate.models.predictors.labels import class_codes, declared_classes, target_numbers
from quorate.models.saving import save
from quorate.tables.frames import FrameFormat


@pytest.fixture(scope="module")
def records():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(20_000, 2))
    return X, np.where(X[:, 0] + 0.2 * X[:, 1] > 0, "yes", "no")


EASY, HARD = [[3.0, 0.0], [-3.0, 0.0]], [[0.0, 0.0]]


def _quorum(**settings):
    known = {"epsilon": 2.0, "delta": 1e-8, "teachers": 400, "aggregator": "quorum", "no_quorums": 5, "queries": 100}
    return PrivateClassifier(**(known | {"classes": ["no", "yes"]} | settings))


def _tied(classifier):
    """Give a fitted classifier teachers that are of one mind on EASY and exactly tied on HARD.

    Fitted ones are tied there on average only: as the rows were dealt, one side led far enough for a quorum once in a
    thousand fits. With a tie, only threshold noise past the margin is left: below 1e-9 a query.
    """
    lean = np.tile([0.5, -0.5], classifier.session_.answerer.ensemble.teachers // 2)
    scores = np.stack([np.ones_like(lean), np.full_like(lean, 0.2), lean], axis=1)
    classifier.session_.answerer.ensemble = Ensemble(LinearTeachers(scores[:, None], classes=2))
    return classifier


@pytest.fixture
def asked(records):
    return _tied(_quorum().fit(*records))


# Answers


def test_answers_are_labels_with_a_mask(asked):
    answers = asked.predict(EASY + HARD)
    assert answers.labels.tolist() == ["yes", "no", None]
    assert answers.answered.tolist() == [True, True, False]
    assert answers.no_quorum.tolist() == [False, False, True]
    assert answers.refused == 0
    assert answers.spent == asked.mechanism_.no_quorum_cost(asked.mechanism_.order)
    assert np.asarray(answers).tolist() == list(answers) == answers.tolist()
    assert (answers == np.array(["yes", "no", "no"])).tolist() == [True, True, False]


def test_no_quorum_may_be_filled_or_raised(records):
    X = np.array(EASY + HARD)
    guessing = _tied(_quorum(on_no_quorum="random").fit(*records))
    seen = {guessing.predict(HARD).tolist()[0] for _ in range(60)}  # remembered as no quorum, drawn anew each time
    assert seen == {"yes", "no"}
    assert guessing.predict(X).answered.tolist() == [True, True, False]
    strict = _tied(_quorum(on_no_quorum="raise").fit(*records))
    with pytest.raises(NoQuorum, match="1 of 3 queries found no quorum; they were paid for") as caught:
        strict.predict(X)
    assert caught.value.predictions.tolist() == ["yes", "no", None]


def test_once_spent_it_refuses(asked):
    hard = np.array(HARD).repeat(8, axis=0) + np.arange(8)[:, None] * 1e-6
    answers = asked.predict(np.concatenate([hard, EASY]))
    assert answers.refused == 5  # five no-quorums were met; the other three and both easy ones were not asked
    assert answers.labels.tolist() == [None] * 10
    with pytest.raises(BudgetSpent, match="Queries answered before can be asked again"):
        asked.predict(EASY)
    again = asked.predict(np.concatenate([hard[:5], EASY]))
    assert again.refused == 2
    assert asked.spent_epsilon() <= 2.0


def test_a_stream_is_answered_one_by_one(asked):
    def queries():
        yield EASY[0]
        yield np.array(EASY[1])
        yield from ([0.0, shift * 1e-6] for shift in range(9))

    stream = asked.stream(queries())
    assert [next(stream) for _ in range(7)] == ["yes", "no", *[None] * 5]
    with pytest.raises(BudgetSpent):
        next(stream)


def test_a_caller_is_answered_the_same_again_for_nothing(asked):
    def left():
        return asked.session_.answerer.run.no_quorums_left

    asked.predict(HARD * 3, caller="a")
    assert left() == 4
    asked.predict(np.array(HARD) * -1.0, caller="a")  # -0.0 is 0.0
    asked.predict(np.array(HARD, dtype=np.float32), caller="a")
    assert left() == 4
    asked.predict(HARD, caller="b")
    assert left() == 3


def test_digests_tell_queries_apart():
    X = np.random.default_rng(0).normal(size=(500, 3))
    assert len(set(query_digests(X))) == 500
    frame = pd.DataFrame({"a": [1.0, 2.0, 1.0], "b": ["x", "y", "x"]})
    first, second, third = query_digests(frame)
    assert first == third != second
    assert query_digests(pl.DataFrame({"a": [1.0], "b": ["x"]})) == [first]
    assert query_digests(pd.DataFrame({"c": [1.0], "b": ["x"]})) != [first]
    whole = pd.DataFrame({"a": [1], "b": ["x"]})
    assert query_digests(FrameFormat.of(whole).read(whole)) == [first]
    with pytest.raises(TypeError, match="canonical form"):
        query_digests(whole)
    large = pd.DataFrame({"a": [2**60, 2**60 + 64]}, dtype=object)
    assert len(set(query_digests(FrameFormat.of(large).read(large)))) == 2
    alike = canonical_matrix([[np.nan, 0.0], [-np.nan, -0.0]])
    assert len(set(query_digests(alike))) == 1


# Frames


def _mixed(rows):
    generator = np.random.default_rng(1)
    frame = pd.DataFrame({"ward": generator.choice(["east", "west"], rows), "age": generator.normal(size=rows)})
    frame.loc[generator.random(rows) < 0.1, "age"] = np.nan
    return frame, (frame["ward"] == "east").to_numpy()


@pytest.mark.parametrize("kind", [lambda frame: frame, pl.from_pandas], ids=["pandas", "polars"])
def test_each_teacher_may_prepare_its_own_columns(kind):
    frame, y = _mixed(3000)
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["ward"]),
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age"]),
    )
    columns.set_output(transform="default")
    estimator = make_pipeline(columns, LogisticRegression())
    classifier = PrivateClassifier(
        estimator, epsilon=8.0, teachers=60, aggregator="noisy_max", queries=10, classes=[False, True]
    )
    public = kind(frame[:50])
    assert classifier.fit(kind(frame), y, public=public).predict(kind(frame[:4])).tolist() == y[:4].tolist()
    assert classifier.predict(kind(frame[:4].astype({"age": str}))).tolist() == y[:4].tolist()  # the same queries
    with pytest.raises(InvalidInput, match=r"column 'age', row 1 .*a number is expected"):
        classifier.predict(kind(frame[:2].assign(age="old")))
    broken = clone(classifier).set_params(estimator=make_pipeline(StandardScaler(), LogisticRegression()))
    with pytest.raises(InvalidInput, match=r"missing values|tried on rows that are not private"):
        broken.fit(kind(frame), y, public=public)


@pytest.mark.parametrize("kind", [lambda frame: frame, pl.from_pandas], ids=["pandas", "polars"])
def test_text_columns_are_named_with_a_remedy(kind):
    frame, y = _mixed(200)
    for estimator in (None, DecisionTreeClassifier()):
        classifier = PrivateClassifier(estimator, epsilon=8.0, teachers=20, aggregator="noisy_max", queries=10)
        text = (
            r"columns 'ward' hold no numbers; .*OneHotEncoder"
            if estimator is None
            else "more than half|missing|numbers"
        )
        with pytest.raises(InvalidInput, match=text):
            classifier.fit(kind(frame), y)


def test_types_of_private_frames_are_public_only_where_the_claim_says_so():
    """One whole number among texts makes objects of them: then a column is not refused."""
    texts, y = ["5", "6"] * 200, np.arange(400) % 2
    private = [pd.DataFrame({"x": texts}), pd.DataFrame({"x": [7, *texts[1:]]}), pd.DataFrame({"x": range(400)})]
    settings = {"epsilon": 8.0, "teachers": 20, "aggregator": "noisy_max", "queries": 10, "classes": [0, 1]}
    numbers = PrivateClassifier(**settings).fit(private[2], y)
    assert "count as public" in numbers.claim_
    assert "count as public" not in PrivateClassifier(**settings).fit(private[2].to_numpy(), y).claim_
    for frame in private:  # the types of public rows decide, and no private frame is refused
        declared = PrivateClassifier(**settings).fit(frame, y, public=private[2])
        assert "count as public" not in declared.claim_
        near = NeighbourClassifier(radius=0.5, votes=3.0, classes=[0, 1], queries=10).fit(frame, y, public=private[2])
        assert "count as public" not in near.claim_
        near.insert(frame, y)


def test_a_model_without_teachers_names_another_remedy():
    frame, y = _mixed(200)
    model = NeighbourClassifier(queries=10, records=200)
    with pytest.raises(InvalidInput, match=r"columns 'ward' hold no numbers; .*Schema\.from_public"):
        model.fit(frame, y, public=frame)
    with pytest.raises(ValueError, match=r"contains NaN: .*with_gaps"):
        model.fit(frame[["age"]], y, public=frame[["age"]])
    for estimator in (None, DecisionTreeClassifier()):
        with pytest.raises(InvalidInput, match="column names must"):
            PrivateClassifier(estimator, epsilon=2.0, queries=10).fit(frame[["age", "age"]], y)
    with pytest.raises(InvalidInput, match="column names must"):
        model.fit(frame[["age", "age"]], y)


# Labels


@pytest.mark.parametrize("kind", ["Int64", "boolean", "UInt8", "int64[pyarrow]", "bool[pyarrow]", "string", "category"])
def test_labels_of_a_nullable_column_stay_what_they_are(kind):
    plain = np.array([1, 0, 0, 1])
    given = pd.Series(plain.astype(str) if kind == "string" else plain).astype(kind)
    classes, labels = declared_classes(None, given)
    assert labels.tolist() == given.tolist()
    assert classes.tolist() == sorted(set(given.tolist()))
    assert classes.dtype.kind != "f"
    with pytest.warns(DataConversionWarning, match="column-vector y was passed"):
        framed = declared_classes(None, given.to_frame())
    assert [part.tolist() for part in framed] == [classes.tolist(), labels.tolist()]
    assert framed[0].dtype.kind != "f"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("y", "classes", "codes"),
    [
        (pd.Series([1, None, 0], dtype="Int64"), [0, 1], [1, -1, 0]),
        (pd.Series([1, None, 0]), [0, 1], [1, -1, 0]),
        (pd.Series(["a", None, "b"]), ["a", "b"], [0, -1, 1]),
        (pd.Series(["a", None, "b"], dtype="category"), ["a", "b"], [0, -1, 1]),
        (pd.Series([True, None, False]), [False, True], [1, -1, 0]),
        (pl.Series([None, "a", "b"]), ["a", "b"], [-1, 0, 1]),
        (pa.chunked_array([["b", "a"], [None]]), ["a", "b"], [1, 0, -1]),
        ([1.0, 0.0, float("nan")], [0, 1], [1, 0, -1]),
        (["", "yes", "NA", "no"], ["no", "yes"], [-1, 1, -1, 0]),
        (np.array(["a", 1, b"b"], dtype=object), ["1", "a", "b"], [1, 0, 2]),
        (np.ma.array([1, 0, 2], mask=[False, True, False]), [1, 2], [0, -1, 1]),
    ],
    ids=str,
)
def test_a_missing_label_is_no_class_and_changes_none(y, classes, codes):
    known, labels = declared_classes(None, y)
    assert known.tolist() == classes
    assert known.dtype == np.array(classes).dtype
    assert class_codes(known, labels).tolist() == codes


def test_fractions_are_no_classes():
    with pytest.raises(InvalidInput, match="Unknown label type: continuous"):
        declared_classes(None, [0.5, 1.0, None])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("y", "codes"),
    [
        (pd.Series([1, None, 0], dtype="Int64"), [1, -1, 0]),
        (pd.Series([1.0, 0.5, None]), [1, -1, -1]),
        (pd.Series(["1", None, "a diagnosis"]), [1, -1, -1]),
        (pd.Series([1, None, 0], dtype="category"), [1, -1, 0]),
        (pl.Series([None, "1.0", "true"]), [-1, 1, 1]),
        (pa.array([1, None, 7]), [1, -1, -1]),
        ([1.0, 0.0, float("nan")], [1, 0, -1]),
        ([1, {}, 1j], [1, -1, -1]),
        (np.array(["a", 1, b"0"], dtype=object), [-1, 1, 0]),
        (np.ma.array([1, 0], mask=[False, True]), [1, -1]),
    ],
    ids=str,
)
def test_a_label_that_is_missing_or_no_class_has_no_code_and_changes_no_other(y, codes):
    classes, labels = declared_classes([0, 1], y)
    assert class_codes(classes, labels).tolist() == codes
    for place, code in enumerate(codes):
        assert class_codes(classes, declared_classes([0, 1], y[place : place + 1])[1]).tolist() == [code]


def test_one_more_type_among_labels_does_not_make_two_long_codes_one():
    """NumPy makes floats of all where one is: classes of 18 digits would fall together."""
    long = [10**17 + 1, 10**17 + 2, 10**17 + 3]
    classes, labels = declared_classes(long, [*long, 2.5, None])
    assert class_codes(classes, labels).tolist() == [0, 1, 2, -1, -1]


def test_private_rows_that_are_given_as_public_ones_are_warned_of():
    X, y = np.random.default_rng(0).normal(size=(4000, 2)), [0, 1] * 2000
    with pytest.warns(UserWarning, match="the public rows are the private rows"):
        PrivateLogisticRegression(classes=[0, 1]).fit(X, y, public=X)
    with pytest.warns(UserWarning, match="the public rows are the private rows"):
        PrivateClassifier(epsilon=4.0, teachers=100, queries=10, classes=[0, 1]).fit(X, y, public=X)


@pytest.mark.parametrize(
    "y",
    [
        ["1.5", 2, "none", None],
        pd.Series(["1.5", 2, "none", None], dtype=object),
        pd.Series(["1.5", "2", "none", None], dtype="str"),
        pl.Series(["1.5", "2", "none", None]),
    ],
)
def test_targets_are_read_one_by_one(y):
    """One private value that is no number makes a column of texts: that it is one decides nothing."""
    assert np.array_equal(target_numbers(y), [1.5, 2.0, np.nan, np.nan], equal_nan=True)


def test_labels_that_are_bytes_are_classes_by_their_texts():
    classes, labels = declared_classes(None, np.array([b"b", b"a"]))
    assert classes.tolist() == ["a", "b"]
    assert class_codes(classes, labels).tolist() == [1, 0]


@pytest.mark.parametrize("classes", [{"a", "b"}, pd.Index(["b", "a"]), {"a": 1, "b": 2}.keys(), ("b", "a")])
def test_classes_are_named_by_anything_that_lists_them(classes):
    assert declared_classes(classes, ["a", "b"])[0].tolist() == ["a", "b"]


def test_missing_values_where_the_estimator_takes_them():
    frame, y = _mixed(2000)
    X = frame[["age"]].to_numpy()
    settings = {"epsilon": 8.0, "teachers": 40, "aggregator": "noisy_max", "queries": 10}
    PrivateClassifier(DecisionTreeClassifier(), **settings).fit(X, y).predict([[np.nan]])
    for estimator in (KNeighborsClassifier(), None):
        fitted = PrivateClassifier(estimator, **settings).fit(X, y)  # no private gap is a refusal
        with pytest.raises(ValueError, match="NaN"):
            fitted.predict([[np.nan]])
        assert fitted.spent_epsilon() == 0


# Bad input, before anything is spent


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"teachers": 50_000}, InvalidInput, "teachers must be at most records=20000"),
        ({"holdout": 0.1, "delta": 0.0}, InvalidInput, "holdout estimates rates with Gaussian noise"),
        ({"estimator": LinearRegression()}, InvalidInput, "estimator must be a classifier, .* not LinearRegression"),
        ({"estimator": "logistic"}, InvalidInput, "estimator must be a classifier, .* not 'logistic'"),
        ({"estimator": DecisionTreeClassifier(), "backend": "foo"}, InvalidInput, "backend must be a backend"),
    ],
)
def test_bad_settings(records, settings, error, text):
    with pytest.raises(error, match=text):
        _quorum(**settings).fit(*records)


def test_an_infeasible_request_says_what_would_do(records):
    with pytest.raises(Infeasible, match="not feasible: with 20 teachers"):
        PrivateClassifier(epsilon=0.01, teachers=20, queries=10_000).fit(*records)


# The budget is not copied


def test_what_was_fitted_is_what_is_claimed(asked, records):
    before = asked.claim_
    asked.set_params(epsilon=0.01, classes=None, estimator=DecisionTreeClassifier())
    assert asked.claim_ == before
    assert asked.predict(EASY).tolist() == ["yes", "no"]
    with pytest.raises(ValueError, match="NaN"):
        asked.predict([[np.nan, 0.0]])  # the teachers are still the logistic ones
    with pytest.raises(InvalidInput, match="at least 2 classes"):
        asked.set_params(epsilon=2.0, classes=["no"]).fit(*records)
    with pytest.raises(NotFittedError):  # no answer from a mixture of two models
        asked.predict(EASY)


def test_a_copy_of_predictions_knows_what_they_know(asked):
    answers = asked.predict(EASY + HARD)
    duplicate = copy.deepcopy(answers)
    assert duplicate.refused == 0
    assert duplicate.answered.tolist() == [True, True, False]
    numbers = PrivateClassifier(epsilon=20.0, teachers=50, aggregator="noisy_max", queries=5)
    answers = numbers.fit(np.arange(1000.0)[:, None] % 2, np.arange(1000) % 2).predict([[0.0], [1.0]])
    assert (np.asarray(answers) + 1).tolist() == [1, 2]
    assert (np.array([0, 0]) == answers).tolist() == (answers == [0, 0]).tolist() == [True, False]
    assert accuracy_score([0, 1], answers) == 1.0
    with pytest.raises(FrozenInstanceError):
        answers.refused = 1


# Remark 1


def test_the_estimate_guides_the_plan(records):
    X, y = records
    classifier = _quorum(holdout=0.25, no_quorums="auto", teachers=600, epsilon=4.0).fit(X, y)
    estimate = classifier.estimate_
    assert estimate.held_out == 5000
    assert any("disagreement" in sentence for sentence in classifier.plan_.assumptions)
    assert estimate.disagreement < estimate.pessimistic <= 0.5
    assert abs(estimate.error - 0.03) < 6 * estimate.deviation + 0.05
    assert estimate.epsilon + classifier.budget_.epsilon <= 4.0
    assert estimate.delta + classifier.budget_.delta <= 1e-8
    assert classifier.spent_epsilon() > estimate.epsilon
    assert classifier.predict(EASY).tolist() == ["yes", "no"]


def test_an_estimate_that_noise_carries_away_is_still_a_plan():
    X = np.zeros((300, 1))
    settings = {"epsilon": 4.0, "teachers": 60, "queries": 5, "aggregator": "noisy_max", "holdout": 0.3}
    for _ in range(5):
        classifier = PrivateClassifier(**settings).fit(X, np.arange(300) % 5)
        assert 0 < classifier.estimate_.pessimistic <= 0.5
        assert len(classifier.predict([[0.0]])) == 1


# Files


def test_extra_files_stay_in_the_folder(asked, tmp_path):
    for name in ("../x", "manifest.json", "estimator.skops", "a/b"):
        with pytest.raises(InvalidInput, match="extra must"):
            save(asked, tmp_path / "model", extra={name: b""})


# The mechanism is what the plan says
