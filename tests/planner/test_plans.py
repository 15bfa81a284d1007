"""Plans of every family say the same things: feasible or not, what to run, what would do. So does the command line."""

import json

import pytest

import quorate as qr
from quorate.cli import main
from quorate.cli.options import make_concept
from quorate.models.concepts import Thresholds
from quorate.planner import Plan, plan, plan_concept, plan_student_first
from quorate.planner.result import Change
from quorate.release import Workload
from quorate.release.plan import plan_release

SHORT = {
    "private": lambda: plan(epsilon=1.0, queries=100_000, teachers=100),
    "concept": lambda: plan_concept(records=1000, vc_dimension=2),
    "student": lambda: plan_student_first(epsilon=4.0, delta=1e-5, queries=10_000, dissents=5, no_quorums=2, units=100),
    "release": lambda: plan_release(Thresholds(), records=100, public=1000),
}
ENOUGH = {
    "private": lambda: plan(epsilon=1.0, queries=100, teachers=1000),
    "concept": lambda: plan_concept(records=10**6, vc_dimension=1, public=5000),
    "student": lambda: plan_student_first(
        epsilon=4.0, delta=1e-5, queries=10_000, dissents=5, no_quorums=2, units=10_000
    ),
    "release": lambda: plan_release(Thresholds(), records=100_000, public=1000),
}
RUNS = {
    "private": qr.PrivateClassifier,
    "concept": lambda **settings: qr.SemiPrivateClassifier(Thresholds(), **settings),
    "student": lambda **settings: qr.StudentFirstClassifier(None, **settings),
    "release": lambda **settings: qr.QueryRelease(Thresholds(), **settings),
}


@pytest.mark.parametrize("family", SHORT)
def test_every_plan_says_whether_it_is_feasible_what_to_run_and_what_would_do(family):
    short, enough = SHORT[family](), ENOUGH[family]()
    assert not short.feasible
    assert enough.feasible
    assert enough.nearest == ()
    assert short.nearest
    assert all(isinstance(change, Change) and change.sentence for change in short.nearest)
    assert RUNS[family](**enough.settings()).get_params()["epsilon"] == enough.epsilon
    assert short.summary() != enough.summary()
    assert json.loads(json.dumps(enough.as_dict()))["feasible"]


def test_what_would_do_does():
    """Of a student that stands first; other plans are tested where they are made."""
    [change] = SHORT["student"]().nearest
    asked = {"epsilon": 4.0, "delta": 1e-5, "queries": 10_000, "dissents": 5, "no_quorums": 2}
    assert plan_student_first(**asked, units=int(change.value)).feasible
    assert not plan_student_first(**asked, units=int(change.value) - 1).feasible


def test_a_concept_plan_names_the_settings_of_its_best_method():
    best = {
        "agnostic": (plan_concept(records=10**8, vc_dimension=2, queries=1000), qr.AgnosticClassifier),
        "pure-stable": (plan_concept(records=10**5, vc_dimension=2, delta=0.0, queries=10), qr.PureClassifier),
    }
    for name, (made, kind) in best.items():
        assert made.best == name
        kind(Thresholds(), **made.settings())


def test_a_private_plan_survives_its_dictionary_and_says_what_is_wrong():
    made = SHORT["private"]()
    assert Plan.from_dict(json.loads(json.dumps(made.as_dict())), made.mechanism) == made
    assert made.shortfall().startswith("not feasible: with 100 teachers only 51")
    assert "any one of these would do: use " in made.shortfall()
    pure = plan(delta=0.0, queries=10, teachers=500)
    assert Plan.from_dict(pure.as_dict(), pure.mechanism) == pure
    assert pure.epsilon == 1.0, "as the command line has it"


def printed(capsys, *arguments):
    code = main([*map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_command_line_plans_as_the_functions_do(capsys):
    code, said = printed(capsys, "plan", "--queries", 5000, "--records", 40_000, "--disagreement", 0.05)
    made = plan(queries=5000, records=40_000, disagreement=0.05)
    assert (code, said) == (0 if made.feasible else 1, json.loads(json.dumps(made.as_dict())))
    code, said = printed(
        capsys, "plan", "--concept", "halfspaces", "--features", 2, "--records", 10**6, "--public", 900
    )
    concept = plan_concept(concept=make_concept("halfspaces", 2), records=10**6, public=900)
    assert (code, said) == (0 if concept.feasible else 1, json.loads(json.dumps(concept.as_dict())))


def test_the_command_line_plans_a_release_as_the_function_does(capsys, tmp_path):
    columns = {"age": {"kind": "number", "low": 0, "high": 100, "cuts": [18, 65]}, "sex": ["f", "m"]}
    (tmp_path / "schema.json").write_text(json.dumps({"columns": columns}))
    arguments = ("--plan", "--records", 5000, "--workload", "marginals:2", "--columns", tmp_path / "schema.json")
    code, said = printed(capsys, "release", *arguments)
    made = plan_release(Workload.marginals(2), records=5000, columns=columns)
    assert (code, said) == (0 if made.feasible else 1, json.loads(json.dumps(made.as_dict())))


def test_an_aggregator_that_does_not_exist_is_refused_before_a_learner_is_chosen():
    X, y = [[0.0], [1.0]] * 500, [0, 1] * 500
    classifier = qr.PrivateClassifier("auto", aggregator="bogus", classes=[0, 1])
    with pytest.raises(qr.InvalidInput, match="aggregator must be 'auto' or one of"):
        classifier.fit(X, y, public=X[:200], public_labels=y[:200])
