"""Plans of everlasting prediction, and teachers that are directions."""

import csv
import json
import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from quorate import Infeasible, InvalidInput
from quorate.auditing._plays import SeededNoise
from quorate.cli import main
from quorate.compute.ensemble import dealing
from quorate.compute.learners import Deal
from quorate.models.concepts import Boxes, Halfspaces, Intervals, Stumps, Thresholds
from quorate.models.everlasting import EverlastingClassifier
from quorate.models.everlasting import plan as planning
from quorate.models.everlasting._teaching import teach
from quorate.models.everlasting.directions import MeanDirection, fit_directions
from quorate.models.everlasting.plan import plan_everlasting, simulated_points
from quorate.models.saving import load


@pytest.fixture(autouse=True)
def _tape(monkeypatch):
    """Points, deals and noise of a plan come from one tape: by chance one play in a hundred closes early."""
    noise, dealt, made = SeededNoise(1), np.random.default_rng(2), np.random.default_rng
    for name, module in list(sys.modules.items()):
        if name.startswith("quorate.core.mechanisms") and hasattr(module, "system_noise"):
            monkeypatch.setattr(module, "system_noise", noise)
    monkeypatch.setattr(dealing, "_secret_permutation", dealt.permutation)
    monkeypatch.setattr(np.random, "default_rng", lambda seed=3: made(seed))


def sphere(rows, features=3, seed=0):
    X = np.random.default_rng(seed).normal(size=(rows, features))
    return X, (X[:, 0] >= 0).astype(np.int64)


def test_small_chunks_are_best_and_what_is_promised_comes():
    plan = plan_everlasting(Thresholds(both_directions=False), epsilon=4.0, delta=1e-6, records=20_000, phases=2)
    assert plan.chunk <= 8
    assert plan.feasible
    assert plan.no_quorum_rate < 0.02
    assert max(one.no_quorum_rate for one in plan.phases) < 2 * plan.no_quorum_rate + 0.002
    assert [one.refused for one in plan.phases] == [0, 0]
    rates = [one.no_quorum_rate for one in plan.candidates if one.chunk >= 3]
    assert len(rates) > 3
    assert {one.chunk: one.no_quorum_rate for one in plan.candidates}[15] > plan.no_quorum_rate
    assert json.loads(json.dumps(plan.as_dict()))["teachers"] == 20_000 // plan.chunk
    assert "Records and queries both keep epsilon = 4" in plan.summary()
    EverlastingClassifier(Thresholds(both_directions=False), **plan.settings())


def test_the_smallest_number_of_records_grows_as_epsilon_falls():
    sizes = [
        plan_everlasting(Thresholds(both_directions=False), epsilon=e, no_quorum_rate=0.1, phases=0).records
        for e in (4.0, 8.0)
    ]
    assert sizes[0] > 1.5 * sizes[1]
    assert sizes[0] < 10_000


def test_a_public_sample_stands_for_any_learner():
    X, y = sphere(20_000)
    batched = plan_everlasting(
        LogisticRegression(), epsilon=8.0, records=20_000, sample=(X, y), chunks=(5, 10), phases=0, no_quorum_rate=0.2
    )
    assert batched.candidates[0].no_quorum_rate < 0.2
    named = np.where(y == 1, "yes", "no")
    tree = plan_everlasting(
        DecisionTreeClassifier(max_depth=2), epsilon=8.0, records=20_000, sample=(X, named), chunks=(20,), phases=0
    )
    assert tree.chunk == 20
    pointing = plan_everlasting(MeanDirection(), epsilon=8.0, records=20_000, sample=(X, y), phases=1)
    assert pointing.chunk <= 2
    assert pointing.no_quorum_rate < batched.no_quorum_rate
    assert pointing.phases[0].error < 0.05


@pytest.mark.parametrize("concept", [Stumps(3), Intervals(), Halfspaces(2), Thresholds(both_directions=False)])
def test_points_of_a_class_have_labels_of_one_hypothesis(concept):
    X, y = simulated_points(concept)(500)
    assert X.shape == (500, concept.features)
    assert 0.3 < y.mean() < 0.7


def test_what_cannot_be_planned_is_said(monkeypatch):
    with pytest.raises(InvalidInput, match=r"sample=\(X, y\), public rows"):
        plan_everlasting(Boxes(2))
    with pytest.raises(InvalidInput, match="at least 100 public rows"):
        plan_everlasting(LogisticRegression(), sample=([[1.0]], [1]))
    with pytest.raises(InvalidInput, match="too large for a sample"):
        plan_everlasting(LogisticRegression(), sample=sphere(200), chunks=(50,))
    with pytest.raises(Infeasible, match=r"half of all queries would find no quorum .* it takes about"):
        plan_everlasting(Thresholds(both_directions=False), epsilon=4.0, records=500)
    with pytest.raises(InvalidInput, match=r"400 public rows cannot show .* 0.0001; give at least 20,000"):
        plan_everlasting(LogisticRegression(), sample=sphere(400), chunks=(3,), no_quorum_rate=1e-4)
    short = plan_everlasting(
        Thresholds(both_directions=False), epsilon=4.0, records=3000, no_quorum_rate=0.001, phases=0
    )
    assert not short.feasible
    assert "falls short" in short.summary()
    [change] = short.nearest
    assert change.parameter == "records"
    assert change.value > 3000
    assert change.sentence in short.summary()
    assert json.loads(json.dumps(short.as_dict()))["nearest"][0]["value"] == change.value
    monkeypatch.setattr(planning, "_MOST_STEPS", 0)
    with pytest.raises(Infeasible, match="no number of records up to 500 brings"):
        plan_everlasting(Thresholds(both_directions=False), epsilon=4.0, no_quorum_rate=0.001)


def test_an_epsilon_too_small_for_a_cutoff_is_refused():
    with pytest.raises(Infeasible, match=r"epsilon must be at least 0\.0004883, not 0\.0001"):
        EverlastingClassifier(Thresholds(both_directions=False), epsilon=1e-4).fit(*sphere(200, features=1))


@pytest.mark.parametrize("epsilon", [81.0, 200.0, 1e5])
def test_an_epsilon_of_any_size_has_a_cutoff(epsilon):
    made = EverlastingClassifier(Thresholds(both_directions=False), epsilon=epsilon, delta=1e-2, chunk=6, no_quorums=12)
    made.fit(*sphere(360, features=1))
    assert made.terms_.cutoff.epsilon <= 40
    assert made.predict([[2.0], [-2.0]]).tolist() == [1, 0]


def test_directions_are_counted_as_they_vote_and_depend_on_their_own_rows():
    X, y = sphere(3000)
    y[::7] = -1
    owner = np.random.default_rng(1).integers(-1, 900, size=3000)
    deal = Deal.by_assignment(owner, teachers=1000)
    teachers = fit_directions(MeanDirection(), X, y, deal)
    queries = sphere(700, seed=2)[0]
    ballots = teachers.ballots(queries)
    assert (teachers.votes(queries)[:, 1] == ballots.sum(axis=1)).all()
    assert (teachers.votes(1e20 * queries) == teachers.votes(queries)).mean() > 0.99
    assert (ballots[:, 900:] == np.arange(900, 1000) % 2).all()  # without rows
    moved = X.copy()
    moved[owner == 5] = 9.0
    changed = (fit_directions(MeanDirection(), moved, y, deal).ballots(queries) != ballots).any(axis=0)
    assert set(np.flatnonzero(changed)) <= {5}
    ensemble = teach(MeanDirection(), X, y, deal, classes=2, first=False)
    assert ensemble.count(queries).put_to(lambda votes: (votes.sum(axis=1) == 1000).all())


def test_a_direction_is_what_the_classifier_of_that_name_learns():
    X, y = sphere(41)
    teachers = fit_directions(MeanDirection(centre=[0.1, 0.2, 0.3]), X, y, Deal.of([range(41)]))
    alone = MeanDirection(centre=[0.1, 0.2, 0.3]).fit(X, y)
    queries = sphere(200, seed=3)[0]
    assert (teachers.ballots(queries)[:, 0] == alone.predict(queries)).all()
    with pytest.raises(InvalidInput, match="two classes apart, not 3"):
        MeanDirection().fit(X, np.arange(41) % 3)
    with pytest.raises(InvalidInput, match="centre must be 3 finite numbers"):
        MeanDirection(centre=[1.0]).fit(X, y)


def test_teachers_of_one_row_answer_through_phases():
    X, y = sphere(20_000)
    made = EverlastingClassifier(MeanDirection(), epsilon=8.0, delta=1e-5, chunk=1, no_quorums=800, classes=[0, 1])
    made.fit(X, y)
    for seed in (1, 2, 3):
        queries, right = sphere(20_000, seed=seed)
        answers = made.predict(queries)
        assert answers.refused == 0
        assert answers.answered.mean() > 0.9
        assert (answers.labels == right)[answers.answered].mean() > 0.98


# --- The command line ------------------------------------------------------------------------------------------------


def write_line(path, rows, seed):
    X = np.random.default_rng(seed).random(rows)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["x", "y"], *((x, "yes" if x >= 0.5 else "no") for x in X.tolist())])
    return path


def fit_line(folder, *, json=True, **options):
    """Fit 10,000 records on a line, with these options of the command."""
    given = {"label": "y", "classes": "no,yes", "epsilon": 8.0, "delta": 1e-5, "out": folder / "model"} | options
    texts = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    table = write_line(folder / "records.csv", 10_000, 0)
    return main(["fit", "everlasting", str(table), *texts, *(["--json"] if json else [])])


def test_fit_writes_a_folder_that_answers(tmp_path, capsys):
    assert fit_line(tmp_path, concept="thresholds") == 0
    bill = json.loads(capsys.readouterr().out)
    assert bill["method"] == "everlasting"
    assert (bill["epsilon"], bill["query_epsilon"]) == (8.0, 8.0)
    assert bill["teachers"] == 10_000 // bill["chunk"]
    assert bill["plan"]["feasible"]
    assert "under replacement of one query" in bill["claim"]
    made = load(tmp_path / "model")
    assert made.predict([[0.95], [0.05]]).tolist() == ["yes", "no"]
    made.session_.close()
    assert fit_line(tmp_path, concept="thresholds") == 1
    assert "not an empty folder" in capsys.readouterr().err


def test_fit_plans_for_the_smaller_epsilon(tmp_path, capsys):
    """Later phases have what a query pays: a plan by the records' epsilon would let them close early."""
    assert fit_line(tmp_path, concept="thresholds", query_epsilon=4.0) == 0
    bill = json.loads(capsys.readouterr().out)
    assert (bill["epsilon"], bill["query_epsilon"], bill["plan"]["epsilon"]) == (8.0, 4.0, 4.0)
    (tmp_path / "other").mkdir()
    assert fit_line(tmp_path / "other", concept="thresholds", query_epsilon=4.0, json=False) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "10,000 records make" in said


def test_fit_plans_by_a_public_table_or_not_at_all(tmp_path, capsys):
    public = write_line(tmp_path / "public.csv", 4000, 1)
    assert fit_line(tmp_path, public=public, learner="centroid", no_quorums=400) == 0
    bill = json.loads(capsys.readouterr().out)
    assert bill["plan"] is not None
    (tmp_path / "other").mkdir()
    assert fit_line(tmp_path / "other", learner="centroid", no_quorums=400, json=False) == 0
    assert "everlasting" in capsys.readouterr().err
