"""What users of scikit-learn expect, and what they are told where privacy does not give it."""

import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

import quorate as qr
from quorate.models.concepts import Stumps, Threshold, Thresholds
from quorate.models.concepts.stumps import named_condition, rule_text
from quorate.models.predictors import Predictions
from quorate.tables import Category, Number, Schema
from quorate.tables.features import AdditiveColumns, HashedColumns

CHANCE = np.random.default_rng(0)
X = CHANCE.normal(size=(4000, 2))
Y = (X[:, 0] < 0.3).astype(int)  # 1 below


def voting(**settings):
    return qr.PrivateClassifier(
        **{"epsilon": 8.0, "teachers": 100, "queries": 2000, "classes": [0, 1], "aggregator": "quorum"} | settings
    )


def test_cross_validation_says_that_each_fold_has_a_budget():
    with pytest.warns(UserWarning, match=r"copies of one PrivateClassifier .* epsilon = 8, and they add up") as told:
        cross_val_score(voting(aggregator="sharp_majority"), X, Y, cv=3)
    assert len([one for one in told if "copies of one" in str(one.message)]) == 1
    linear = qr.PrivateLogisticRegression(epsilon=1.0, classes=[0, 1])
    copies = [clone(linear), clone(linear)]
    copies[0].fit(X, Y, public=X)
    with pytest.warns(UserWarning, match="copies of one PrivateLogisticRegression"):
        copies[1].fit(X, Y, public=X)


def test_one_copy_and_one_estimator_fitted_twice_say_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier = clone(voting(disagreement=0.001)).fit(X, Y)
        voting(disagreement=0.001).fit(X, Y).fit(X, Y)
    assert classifier.budget_ is not None


@pytest.mark.parametrize("name", ["predict_proba", "predict_log_proba", "decision_function"])
def test_what_is_not_there_has_a_reason(name):
    for classifier in (voting(), qr.PureClassifier(), qr.StableClassifier(), qr.SemiPrivateClassifier()):
        assert not hasattr(classifier, name)
        with pytest.raises(AttributeError, match=rf"has no {name}.*votes are not released.*scores=True"):
            getattr(classifier, name)
    assert hasattr(voting(scores=True, aggregator="auto"), name) is (name != "predict_log_proba")


def test_answers_are_scored_without_asking_again():
    told = Predictions.of(np.array([1, -1, 0, -1]), classes=np.array([0, 1]), refused=np.array([0, 0, 0, 1], bool))
    assert told.score([1, 1, 1, 1]) == 0.25
    assert told.score([1, 1, 1, 1], of="answered") == 0.5
    with pytest.raises(qr.InvalidInput, match="of must"):
        told.score([1, 1, 1, 1], of="some")
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        told.score([1, 1])
    none = Predictions.of(np.array([-1]), classes=np.array([0, 1]), refused=np.array([True]))
    assert none.score([1]) == 0.0
    with pytest.raises(qr.InvalidInput, match="no query was answered"):
        none.score([1], of="answered")
    # A random label in place of a no-quorum is no answer.
    filled = Predictions.of(np.array([-1]), classes=np.array([0, 1]), refused=np.zeros(1, bool), filled=np.array([1]))
    assert filled.score([1]) == 0.0


def test_a_classifier_scores_its_answers_alike():
    """One query of 150 finds no quorum, however clear it is: ten of 40 less than once in 10^12."""
    classifier = voting().fit(X, Y)
    far = np.stack([np.linspace(-3, -2.5, 20), np.zeros(20)], axis=1)
    far, right = np.concatenate([far, -far]), np.repeat([1, 0], 20)
    assert classifier.predict(far).score(right) == classifier.score(far, right) > 0.75


# Rules that lie the other way round.


def test_thresholds_are_learned_in_both_directions():
    """A rule that says 1 below was right on 48% of the rows, and nothing said so."""
    line = X[:, :1]
    model = qr.SemiPrivateClassifier(Thresholds(), epsilon=4.0, classes=[0, 1]).fit(line, Y, public=line[:200])
    assert (model.predict(line) == Y).mean() > 0.95
    assert not model.hypothesis_.upward
    stable = qr.StableClassifier(Thresholds(), gamma=0.1, classes=[0, 1]).fit(line, Y)
    assert stable.concept_ == Thresholds(both_directions=True)
    assert stable.predict([[-3.0], [3.0]]).tolist() == [1, 0]
    assert Thresholds(both_directions=False).for_learning() == Thresholds(both_directions=False)
    assert Stumps(3).for_learning() == Stumps(3)


def test_plans_of_thresholds_are_those_of_the_command_line():
    from quorate.cli.options import make_concept

    asked = {"records": 100_000, "queries": 100}
    planned = qr.plan_concept(concept=Thresholds(), **asked)
    assert planned == qr.plan_concept(concept=make_concept("thresholds", 1), **asked)
    assert planned.vc_dimension == 2
    assert qr.plan_concept(concept=Thresholds(both_directions=False), **asked).vc_dimension == 1


def test_a_choice_at_the_edge_of_its_class_is_told():
    line = X[:, :1]
    one = Thresholds(both_directions=False)  # none of them says 1 below
    model = qr.SemiPrivateClassifier(one, epsilon=50.0, classes=[0, 1])
    with pytest.warns(UserWarning, match="gives all public points one label"):
        model.fit(line, (line[:, 0] < 1.5).astype(int), public=line[:200])
    assert model.rule_ == "always 1"


# Rules in words.


def test_a_rule_has_the_names_and_the_units_of_its_columns():
    columns = Schema({"heart rate": Number(centre=80.0, spread=10.0), "age": Number(low=0, high=100), "arrival":
                      Category(["walk-in", "ambulance"], missing="indicator"), "plain": Number()})  # fmt: skip
    conditions = [columns.condition(feature, 0.5) for feature in range(6)]
    assert conditions == [
        "heart rate >= 85", "age >= 75", "arrival is walk-in", "arrival is ambulance", "arrival is missing",
        "plain >= 0.5",
    ]  # fmt: skip
    assert rule_text(Threshold(0.5), ["home", "admitted"], columns.condition) == (
        "admitted where heart rate >= 85, and home elsewhere"
    )
    assert rule_text(Threshold(2.0), [0, 1], named_condition(None)) == "1 where feature 0 >= 2, and 0 elsewhere"
    with pytest.raises(qr.InvalidInput, match="encodes 6 columns"):
        columns.condition(6, 0.5)


def test_a_published_rule_is_said_in_words(tmp_path, capsys):
    import json

    from quorate.cli import main

    rows = "\n".join(f"{income},{'yes' if income > 30_000 else 'no'}" for income in range(1000, 60_000, 20))
    for name in ("private", "public"):
        (tmp_path / f"{name}.csv").write_text(f"income,owner\n{rows}\n")
    command = ["fit", "semi-private", str(tmp_path / "private.csv"), "--public", str(tmp_path / "public.csv")]
    assert main([*command, "--label", "owner", "--epsilon", "20", "--out", str(tmp_path / "rule"), "--json"]) == 0
    rule = json.loads(capsys.readouterr().out)["rule"]
    assert rule.startswith("yes where income >= ")
    assert abs(float(rule.split(" >= ")[1].split(",")[0]) - 30_000) < 1500
    assert f"Rule: {rule}." in (tmp_path / "rule" / "GUARANTEE.md").read_text()


# Data frames in and out, and what goes with the rows.

FRAME = pd.DataFrame(X[:2000], columns=["first", "second"])
LABELS, PEOPLE = Y[:2000], np.arange(2000) // 2


def test_answers_become_data_frames(monkeypatch):
    told = Predictions.of(
        np.array([1, -1, -1]), classes=np.array([0, 1]), refused=np.array([False, False, True])
    )  # fmt: skip
    for library, kind in (("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("arrow", pa.Table)):
        frame = told.to_frame(library)
        assert isinstance(frame, kind)
        plain = frame.to_pylist() if library == "arrow" else pl.DataFrame(frame).to_dicts()
        assert [row["answer"] for row in plain] == [1, None, None]
        assert [row["outcome"] for row in plain] == ["answered", "no_quorum", "refused"]
    with pytest.raises(qr.InvalidInput, match="library must"):
        told.to_frame("numpy")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "polars", None)
        with pytest.raises(qr.InvalidInput, match="install it, or ask for 'arrow'"):
            told.to_frame("polars")
    scored = voting(scores=True, aggregator="auto", teachers=50, queries=100).fit(X, Y).predict(X[:4])
    assert scored.to_frame().columns.tolist() == ["answer", "outcome", "score_0", "score_1"]
    assert np.array_equal(scored.to_frame()[["score_0", "score_1"]], scored.scores)


OUTPUTS = (
    "check_set_output_transform",
    "check_set_output_transform_pandas",
    "check_set_output_transform_polars",
    "check_global_output_transform_pandas",
    "check_global_set_output_transform_polars",
    "check_transformer_get_feature_names_out",
    "check_transformer_get_feature_names_out_pandas",
    "check_get_feature_names_out_error",
    "check_dataframe_column_names_consistency",
)


@pytest.mark.filterwarnings("ignore:X .*feature names:UserWarning")
@pytest.mark.parametrize("name", [name for name in OUTPUTS if hasattr(estimator_checks, name)])  # of this version
def test_columns_keep_scikit_learns_contract_of_outputs(name):
    from check_subjects import DrawnColumns

    for columns in (AdditiveColumns(), DrawnColumns(number=3)):
        getattr(estimator_checks, name)(type(columns).__name__, columns)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_become_data_frames_and_models_do_not_mind(library):
    columns = AdditiveColumns(cuts=2).fit(FRAME).set_output(transform=library)
    frame = columns.transform(FRAME)
    assert type(frame).__module__.startswith(library)
    assert list(frame.columns) == columns.get_feature_names_out().tolist()
    with config_context(transform_output=library):
        model = qr.PrivateLogisticRegression(columns=columns, classes=[0, 1]).fit(FRAME, LABELS, public=FRAME[:300])
        assert model.predict_proba(FRAME).shape == (2000, 2)


def test_columns_whose_cuts_are_alike_to_six_digits_have_names_of_their_own():
    close = np.array([1e9, 1e9 + 1, 1e9 + 2, 1e9 + 3] * 50)[:, np.newaxis]
    names = AdditiveColumns(cuts=3).fit(close).get_feature_names_out().tolist()
    assert len(set(names)) == len(names)
    assert names[:2] == ["0 from 1e+09", "0 from 1e+09 (2)"]


def test_columns_say_what_is_wrong_with_a_table():
    columns = AdditiveColumns().fit(FRAME)
    with pytest.raises(ValueError, match="X has 1 features, but AdditiveColumns is expecting 2"):
        AdditiveColumns().fit(X).transform(X[:, :1])
    with pytest.raises(ValueError, match="feature names should match"):
        columns.transform(FRAME.rename(columns={"first": "third"}))
    with pytest.raises(qr.InvalidInput, match="input_features should have length"):
        AdditiveColumns().fit(X).get_feature_names_out(["one"])
    with pytest.raises(ValueError, match="X has 3 features, but HashedColumns is expecting 40"):
        HashedColumns(number=3).fit(CHANCE.poisson(0.3, size=(60, 40))).transform(np.zeros((1, 3)))


def routed(model):
    return model.set_fit_request(
        groups=True, **({"public": True} if isinstance(model, qr.PrivateLogisticRegression) else {})
    )


def test_people_reach_a_model_through_a_pipeline_and_a_cross_validation():
    people = np.arange(len(X)) // 4
    with config_context(enable_metadata_routing=True):
        ballots = routed(voting(aggregator="sharp_majority", teachers=50, queries=4000))
        linear = routed(qr.PrivateLogisticRegression(classes=[0, 1]))
        for model, more in ((ballots, {}), (linear, {"public": X[:300]})):
            fitted = make_pipeline(FunctionTransformer(), clone(model)).fit(X, Y, groups=people, **more)
            assert fitted[-1].unit_ == "person"
            assert "all rows of one person" in fitted[-1].claim_
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of copies: tested above
                done = cross_validate(
                    model, X, Y, params={"groups": people, **more}, cv=GroupKFold(3), return_estimator=True
                )
            assert {one.unit_ for one in done["estimator"]} == {"person"}
        with pytest.raises(UnsetMetadataPassedError, match="groups"):  # never dropped in silence
            make_pipeline(FunctionTransformer(), voting()).fit(X, Y, groups=people)


def test_a_copy_keeps_the_published_model_that_it_stands_on():
    published = LogisticRegression().fit(X, Y)
    clear = X[np.abs(X[:, 0] - 0.3) > 1][:5]  # a student stands there, but for once in 10**11
    first = qr.StudentFirstClassifier(published, epsilon=8.0, teachers=200, dissents=5, no_quorums=2)
    for model in (qr.ConformalClassifier(published, epsilon=2.0), first):
        copied = clone(model)
        assert copied.fit(X, Y).predict(clear).tolist() == published.predict(clear).tolist()
        assert copied.get_params() == model.get_params()
    line = LinearRegression().fit(X, Y)
    assert cross_val_score(qr.ConformalRegressor(line, largest_error=10.0), X, Y, cv=2).shape == (2,)
