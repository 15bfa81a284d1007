"""The program of the peers' models gives each column and each row its place: run against stand-ins for the peers."""

import numpy as np
import pandas
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import roc_auc_score

from benchmarks import model_tables, models, texts
from benchmarks.data import DigitSplit
from benchmarks.figures import BARS
from benchmarks.model_tables import EPSILONS, peer_scores
from benchmarks.peer_models import GRIDS, SETTINGS, settings_of
from benchmarks.tables import Split
from quorate.core.errors import Infeasible

_DIFFPRIVLIB = """
from sklearn import linear_model


def LogisticRegression(*, epsilon, data_norm, C, max_iter):
    assert epsilon and data_norm
    return linear_model.LogisticRegression(C=1.0, max_iter=max_iter)


def LinearRegression(*, epsilon, bounds_X, bounds_y):
    return linear_model.LinearRegression()
"""

_INTERPRET = """
import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler


def DPExplainableBoostingRegressor(*, privacy_target_min, privacy_target_max, **settings):
    assert privacy_target_min < privacy_target_max
    columns = DPExplainableBoostingClassifier(**settings)[0]
    return make_pipeline(columns, LinearRegression())


def DPExplainableBoostingClassifier(*, epsilon, delta, feature_names, feature_types, privacy_bounds, n_jobs):
    assert delta == 1e-5
    numbers = [name for name, kind in zip(feature_names, feature_types) if kind == "continuous"]
    assert privacy_bounds is None or sorted(privacy_bounds) == sorted(numbers)
    columns = make_column_transformer((StandardScaler(), numbers), remainder=OneHotEncoder(handle_unknown="ignore"))
    return make_pipeline(columns, LogisticRegression())
"""


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    files = {"diffprivlib/__init__.py": "", "diffprivlib/models.py": _DIFFPRIVLIB}
    files |= {"interpret/__init__.py": "", "interpret/privacy.py": _INTERPRET}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("QUORATE_PEERS", raising=False)


def split():
    """Rows in which a number and a text each say a part of the label."""
    generator = np.random.default_rng(0)
    frame = pandas.DataFrame({"job": generator.choice(["a", "b", "NA"], 3000), "age": generator.integers(0, 100, 3000)})
    score = (frame["age"].to_numpy() - 50) / 15 + 3.0 * (frame["job"] == "NA").to_numpy()
    truth = generator.random(3000) < 1 / (1 + np.exp(-score))
    parts = [frame[:2000].reset_index(drop=True), frame[2000:2400], frame[2400:]]
    return Split("adult", parts[0], truth[:2000], parts[1], parts[2], truth[2400:]), score[2400:]


@pytest.mark.long
@pytest.mark.parametrize(("peer", "public"), [("diffprivlib", True), ("dp_ebm_bounds", False)])
def test_a_peer_sees_every_column_and_its_scores_are_those_of_the_judges(peer, public, stand_ins, monkeypatch):
    monkeypatch.setattr(Split, "bounds", {"age": (0, 100)})
    dealt, true = split()
    scores = peer_scores(peer, dealt, (1.0,), public=public)[1.0]
    best = roc_auc_score(dealt.truth, true)
    assert roc_auc_score(dealt.truth, scores) > best - 0.01
    assert roc_auc_score(dealt.truth, dealt.judges["age"]) < best - 0.02


@pytest.mark.long
def test_a_peer_of_numbers_answers_in_their_units(stand_ins, monkeypatch):
    monkeypatch.setattr(Split, "bounds", {"age": (0, 100)})
    dealt, true = split()
    labels = 30.0 * dealt.private["age"].to_numpy() + 5
    numbers = Split("bike", dealt.private, labels, dealt.public, dealt.judges, true)
    scores = peer_scores("dp_ebm_bounds", numbers, (1.0,), public=True)[1.0]
    assert scores == pytest.approx(30.0 * dealt.judges["age"].to_numpy() + 5)


def test_where_peers_are_missing_their_figures_are_there_without_values(monkeypatch):
    monkeypatch.setenv("QUORATE_PEERS", "/no/such/python")
    monkeypatch.setattr(model_tables, "split_of", lambda table, seed: split()[0])
    monkeypatch.setattr(Split, "bounds", {"age": (0, 100)})
    figures = list(model_tables._peer_figures({"linear.adult.epsilon1": 0.9}, quick=True))
    tables = tuple(f"{table}{road}.epsilon" for table in model_tables.TABLES for road in model_tables.ROADS)
    named = {
        name
        for name in BARS["models"]
        if any(about in name for about in tables) and (name.startswith("models.peer.") or "_over_" in name)
    }
    assert {name for name, _, _ in figures} == {name for name in named if not name.endswith("over_constant")}
    assert all(value is None for _, value, _ in figures)


def test_ours_is_compared_with_the_best_of_them(monkeypatch):
    reached = {("diffprivlib", 1.0): 0.8, ("dp_ebm", 1.0): 0.85, ("dp_sgd_network", 1.0): 0.92}
    monkeypatch.setattr(model_tables, "peer_medians", lambda table, public, quick: reached if public else {})
    ours = {"linear.bank.epsilon1": 0.9}
    figures = {name: value for name, value, _ in model_tables._peer_figures(ours, quick=False)}
    assert figures["linear.bank.epsilon1.auc_over_plain_peers"] == pytest.approx(0.05)
    assert figures["linear.bank.epsilon1.auc_over_dp_sgd"] == pytest.approx(-0.02)
    assert figures["linear.bank.nothing_public.epsilon1.auc_over_dp_sgd"] is None


def test_the_settings_that_are_used_are_in_the_grid():
    assert len(EPSILONS) == 3
    for (peer, _, _), chosen in SETTINGS.items():
        assert len(chosen) == len(EPSILONS)
        assert all(settings in list(settings_of(peer)) for settings in chosen), GRIDS[peer]


def test_every_figure_has_a_bar_and_no_value_where_there_is_no_data(monkeypatch):
    for module in (model_tables, models):
        monkeypatch.setattr(module, "split_of", lambda table, seed: None)
    monkeypatch.setattr(models, "digit_splits", lambda quick: ())
    monkeypatch.setattr(models, "_million_rows", lambda: (None, None))
    monkeypatch.setattr(texts, "read_texts", lambda name: None)
    monkeypatch.setattr(texts, "_topic_figures", lambda quick: ())
    monkeypatch.setattr(model_tables, "_odd_lost", lambda *table: 0.0)
    figures = {name: value for name, value, _ in models.measure(quick=False)}
    generated = {f"linear.text.{end}" for end in ("seconds", "auc", "auc_lost")}
    assert set(figures) | generated == set(BARS["models"])
    assert not any(figures.values())


def test_a_refused_fit_has_no_figure(monkeypatch):
    def refuse(*run):
        raise Infeasible("too few rows")

    monkeypatch.setattr(model_tables, "run_linear", refuse)
    assert model_tables._runs([split()[0]], 0.1, "learned") == []
    assert [value for _, value, _ in model_tables.road_figures("linear.bike", "bike", [])] == [None, None]


def test_digits_are_told_by_the_model_as_it_comes_and_the_median_is_shown(monkeypatch):
    asked = []

    class Model(ClassifierMixin, BaseEstimator):
        def __init__(self, **settings):
            asked.append(settings)

        def fit(self, X, y, public):
            assert len(public) == 3
            return self

        def predict(self, X):
            return X[:, 0]

    monkeypatch.setattr("quorate.models.linear.PrivateLogisticRegression", Model)
    rows = np.arange(10.0)[:, None]
    splits = [
        DigitSplit(rows, rows[:, 0], rows[:3], rows, truth) for truth in (rows[:, 0], rows[:, 0] % 9, rows[::-1, 0])
    ]
    monkeypatch.setattr(models, "digit_splits", lambda quick: splits)
    figures = {name: value for name, value, _ in models._digit_figures(quick=False)}
    assert figures["linear.mnist.epsilon0.3.accuracy_percent"] == 90.0
    assert figures["linear.mnist.epsilon0.3.taught_percent"] <= 30.0  # it has seen three digits only
    assert asked == [{"epsilon": 0.3, "delta": 1e-5, "classes": list(range(10))}] * 3  # columns are not given


@pytest.mark.parametrize("wrong", models._WRONG)
def test_wrong_public_rows_have_the_columns_of_the_right_ones(wrong, monkeypatch):
    dealt, _ = split()
    other = dealt.public.rename(columns={"job": "work", "age": "day"})
    bank = Split("bank", other, dealt.labels, other, other, dealt.truth)
    monkeypatch.setattr(models, "split_of", lambda table, seed: bank)
    monkeypatch.setattr(Split, "bounds", {"day": (0, 100)})
    public = dealt.public.assign(town="x", hours=range(len(dealt.public)))
    changed = models._WRONG[wrong](public)
    assert list(changed) == list(public)
    assert changed.dtypes.map(lambda kind: kind.kind in "if").tolist() == [False, True, False, True]
    assert not changed.reset_index(drop=True).equals(public.reset_index(drop=True))
