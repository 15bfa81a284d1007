"""Plans keep what they promise: figures as simulated, budgets that pay for them, suggestions that work."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.choices import compare
from quorate import PrivateClassifier, StudentClassifier
from quorate.auditing._plays import simulate
from quorate.cli.plan import plan as plan_command
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms import ConfidentMax, Quorum, StabilityTest
from quorate.core.mechanisms.base import ThresholdMechanism
from quorate.core.mechanisms.sharp_majority import ONE
from quorate.planner import plan
from quorate.planner._comparison import pate_epsilon, stability_teachers
from quorate.planner._teachers import AGGREGATORS, LEAST_ROWS, best_draft, drafts
from quorate.planner._thresholds import certified_settings, expect_quorum, likely_settings, shares_with_redraws
from quorate.planner.task import Task, VoteForecast, answered_before_stop, binomial_capped_mean

NAMES = tuple(AGGREGATORS)
BY_RECORDS = [  # records, epsilon, delta, queries, features; teachers and right of the sharp majority that is taken
    (20_000, 1.0, 1e-6, 1_000, 10, 844, 0.9738),
    (2_000, 1.0, 1e-6, 100, None, 98, 0.8554),
    (20_000, 0.3, 1e-6, 100, 10, 840, 0.9731),
    (20_000, 1.0, 1e-6, 20_000, 10, 1000, 0.788),
    (20_000, 4.0, 1e-6, 20_000, 60, 662, 0.9568),
    (300_000, 4.0, 1e-6, 1_000, 10, 662, 0.9848),
    (20_000, 1.0, 0.0, 20, 5, 430, 0.9828),
]
BY_TEACHERS = [  # teachers, epsilon, queries, disagreement, classes, on_no_quorum; aggregator, no_quorums and right
    (400, 2.0, 3000, 0.005, 2, "abstain", "quorum", 18, 0.9981),
    (400, 2.0, 3000, 0.005, 2, "random", "quorum", 22, 0.9989),
    (400, 2.0, 3000, 0.005, 5, "abstain", "quorum", 18, 0.9981),
    (400, 2.0, 3000, 0.005, 5, "random", "quorum", 20, 0.9984),
    (50, 2.0, 50, 0.3, 2, "abstain", "sharp_majority", None, 0.7627),
    (400, 2.0, 50, 0.005, 2, "abstain", "sharp_majority", None, 0.9996),
    (400, 2.0, 3000, 0.3, 2, "abstain", "sharp_majority", None, 0.7772),
    (2500, 0.5, 3000, 0.005, 2, "abstain", "sharp_majority", None, 0.9991),
    (2500, 2.0, 50, 0.1, 5, "random", "noisy_max", None, 0.9883),
]


def made_up_votes(teachers, rows, classes=2, *, spread=3.0, seed=5):
    """Return votes that disagree on some queries, by a rule of their own."""
    generator = np.random.default_rng(seed)
    against = generator.beta(0.1 * spread, 0.9 * spread, size=rows)
    votes = np.zeros((rows, classes), dtype=np.int64)
    labels = generator.integers(0, classes, size=rows)
    rival = (labels + generator.integers(1, classes, size=rows)) % classes
    lost = np.round(np.minimum(against, 0.5) * teachers).astype(np.int64)
    votes[np.arange(rows), labels] += teachers - lost
    votes[np.arange(rows), rival] += lost
    return votes


def payable(planned, labels):
    """Return how many queries the budget pays for, asked one by one."""
    mechanism = planned.mechanism
    if not isinstance(mechanism, ConfidentMax):
        return len(labels)
    query, answer = mechanism.query_cost(planned.order).renyi, mechanism.answer_cost(planned.order).renyi
    before = np.concatenate([[0.0], np.cumsum(query + answer * (labels >= 0))[:-1]])
    return int((before + query + answer <= planned.open_budget().capacity().renyi).sum())


def measured(planned, votes, repeats):
    """Return the shares answered, and answered and right, over seeded runs, with their standard errors."""
    generator = np.random.default_rng(1)
    seen = []
    for seed in range(repeats):
        rows = votes[generator.integers(0, len(votes), size=planned.queries)]
        labels = simulate(planned.mechanism, rows, seed=seed).labels
        labels = labels[: payable(planned, labels)]
        truth = rows[: len(labels)].argmax(axis=1)
        seen.append(((labels >= 0).sum() / planned.queries, (labels == truth).sum() / planned.queries))
    return np.mean(seen, axis=0), np.std(seen, axis=0) / math.sqrt(repeats)


def agrees(expected, mean, error):
    """Within 1%, or four standard errors of the simulation: a false alarm once in ten thousand."""
    return abs(expected - mean) <= 0.01 + 4 * error


FIGURES = [  # aggregator, teachers, queries, epsilon, classes
    ("quorum", 1000, 1000, 1.0, 2),
    ("quorum", 300, 400, 2.0, 5),
    ("noisy_max", 400, 500, 1.0, 2),
    ("noisy_max", 250, 300, 2.0, 8),
    ("confident_max", 400, 500, 1.0, 2),
    ("soft_majority", 400, 500, 1.0, 3),
    ("stability", 4000, 500, 2.0, 2),
    ("between_thresholds", 600, 500, 2.0, 2),
]


@pytest.mark.parametrize(("name", "teachers", "queries", "epsilon", "classes"), FIGURES)
def test_figures_agree_with_simulation(name, teachers, queries, epsilon, classes):
    votes = made_up_votes(teachers, 2000, classes)
    planned = plan(
        epsilon=epsilon, delta=1e-5, queries=queries, teachers=teachers, votes=votes, aggregator=name, answer_rate=1e-9
    )
    (answered, right), (answered_error, right_error) = measured(planned, votes, 60)
    assert agrees(planned.answered, answered, answered_error)
    assert agrees(planned.right, right, right_error)
    assert planned.right > 0.05, "a case that answers nothing would test nothing"


@pytest.mark.parametrize(("name", "teachers", "queries", "epsilon", "classes"), FIGURES)
def test_guessing_where_there_is_no_quorum_agrees_with_simulation(name, teachers, queries, epsilon, classes):
    votes = made_up_votes(teachers, 2000, classes)
    target = {"epsilon": epsilon, "delta": 1e-5, "queries": queries, "teachers": teachers, "votes": votes}
    planned = plan(**target, aggregator=name, answer_rate=1e-9, on_no_quorum="random")
    generator = np.random.default_rng(2)
    right, reached = [], []
    for seed in range(60):
        rows = votes[generator.integers(0, len(votes), size=queries)]
        labels = simulate(planned.mechanism, rows, seed=seed).labels
        labels = labels[: payable(planned, labels)]
        guessed = np.where(labels < 0, generator.integers(0, classes, size=len(labels)), labels)
        right.append((guessed == rows[: len(labels)].argmax(axis=1)).sum() / queries)
        reached.append(len(labels) == queries)
    assert agrees(planned.right, np.mean(right), np.std(right) / math.sqrt(60))
    assert abs(planned.lasts - np.mean(reached)) <= 0.02 + 4 * math.sqrt(
        max(0.02, planned.lasts * (1 - planned.lasts)) / 60
    )
    plain = plan(**target, aggregator=name, answer_rate=1e-9)
    assert planned.right >= plain.right - 1e-9
    assert planned.answered >= plain.answered


def test_with_guesses_quorum_answers_every_query():
    """100,000 queries that are all clear: Quorum with a coin, where a SharpMajority is right 64 times in 100."""
    target = {"teachers": 2000, "epsilon": 1.0, "queries": 100_000, "votes": [[1400, 600]] * 2000}
    planned = plan(**target, on_no_quorum="random")
    assert planned.aggregator == "quorum"
    assert planned.right > 0.9999
    assert planned.lasts > 0.99
    assert "label at random" in planned.summary()
    assert "is refused" in planned.summary()
    sharp = next(each for each in planned.candidates if each.aggregator == "sharp_majority")
    assert sharp.right == pytest.approx(0.638, abs=2e-3)
    with pytest.raises(InvalidInput, match="on_no_quorum must be one of abstain, random, raise"):
        plan(**target, on_no_quorum="guess")


def test_planted_bug_a_planner_that_forgets_the_stop_is_caught():
    votes = made_up_votes(1000, 2000)
    planned = plan(
        epsilon=1.0, delta=1e-5, queries=1000, teachers=1000, votes=votes, aggregator="quorum", no_quorums=40
    )
    forgetful = replace(planned.mechanism, no_quorums=10**6)
    task = Task(epsilon=1.0, delta=1e-5, queries=1000, classes=2)
    forecast = VoteForecast.from_votes(votes)
    (_, right), (_, error) = measured(planned, votes, 60)
    assert agrees(planned.right, right, error)
    assert not agrees(expect_quorum(forgetful, task, forecast).right, right, error)


@pytest.mark.parametrize("name", NAMES)
def test_the_budget_pays_for_the_planned_run_and_little_more(name):
    planned = plan(
        epsilon=1.0, delta=1e-6, queries=200, teachers=1500, disagreement=0.02, aggregator=name, answer_rate=1e-9
    )
    mechanism, budget = planned.mechanism, planned.open_budget()
    assert budget.epsilon == 1.0
    assert budget.delta == 1e-6
    if isinstance(mechanism, ThresholdMechanism):
        run = mechanism.open(budget)
        tied = np.array([[750, 750]] * (planned.no_quorums + 50))
        answers = run.answers(tied)
        if not isinstance(mechanism, StabilityTest):
            assert len(answers.labels) >= planned.no_quorums
        assert run.no_quorums_left == 0 or len(answers.labels) == len(tied)
        assert (answers.labels == -1).sum() == planned.no_quorums - run.no_quorums_left
    elif isinstance(mechanism, ConfidentMax):
        budget.spend(mechanism.query_cost(budget.order), times=200)
        assert budget.affordable(mechanism.answer_cost(budget.order)) >= math.floor(200 * planned.answered)
        return
    else:
        budget.spend(mechanism.query_cost(budget.order), times=200)
    assert budget.remaining().renyi < 0.05 * budget.capacity().renyi


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    epsilon=st.floats(0.3, 8.0),
    delta=st.sampled_from([0.0, 1e-9, 1e-6, 1e-3]),
    queries=st.integers(1, 3000),
    teachers=st.integers(1, 5000),
    disagreement=st.floats(0.0, 0.5),
    name=st.sampled_from(["auto", "quorum", "soft_majority"]),
)
def test_any_plan_is_affordable_and_consistent(epsilon, delta, queries, teachers, disagreement, name):
    if delta == 0 and name == "quorum":
        name = "auto"
    planned = plan(
        epsilon=epsilon,
        delta=delta,
        queries=queries,
        teachers=teachers,
        disagreement=disagreement,
        aggregator=name,
        answer_rate=1e-9,
    )
    assert 0 <= planned.answered <= 1 + 1e-9
    assert 0 <= planned.agreement <= 1 + 1e-9
    assert planned.right == pytest.approx(planned.answered * planned.agreement)
    assert delta > 0 or planned.aggregator in ("sharp_majority", "soft_majority")
    json.dumps(planned.as_dict(), allow_nan=False)
    assert str(planned.teachers) in planned.summary().replace(",", "")
    budget, mechanism = planned.open_budget(), planned.mechanism
    if isinstance(mechanism, ThresholdMechanism):
        budget.spend(mechanism.opening_cost(budget.order))
        budget.spend(mechanism.no_quorum_cost(budget.order), times=planned.no_quorums - int(mechanism.redraws))
    elif not isinstance(mechanism, ConfidentMax):
        budget.spend(mechanism.query_cost(budget.order), times=queries)


@pytest.mark.long
@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    epsilon=st.floats(0.5, 2.0), queries=st.integers(50, 3000), teachers=st.integers(20, 200), rate=st.floats(0.6, 0.9)
)
def test_what_is_suggested_is_feasible_when_planned_again(epsilon, queries, teachers, rate):
    asked = {
        "epsilon": epsilon,
        "delta": 1e-6,
        "queries": queries,
        "teachers": teachers,
        "disagreement": 0.15,
        "answer_rate": rate,
    }
    planned = plan(**asked)
    assert planned.feasible == (planned.right >= rate and planned.agreement >= 0.75)
    assert planned.feasible or planned.nearest
    for change in planned.nearest:
        again = plan(**(asked | {change.parameter: type(asked[change.parameter])(change.value)}))
        assert again.feasible, change
        assert change.right - 0.01 <= again.right <= change.right + 0.04  # other orders are tried for few queries


def test_suggested_records_are_enough():
    planned = plan(epsilon=1.0, records=1000, queries=1000, answer_rate=0.8)
    change = next(change for change in planned.nearest if change.parameter == "records")
    assert plan(epsilon=1.0, records=int(change.value), queries=1000, answer_rate=0.8).feasible
    assert not plan(epsilon=1.0, records=int(change.value) * 3 // 4, queries=1000, answer_rate=0.8).feasible


def test_auto_takes_the_most_and_lists_the_others():
    for disagreement, best in ((0.2, "sharp_majority"), (0.0005, "quorum")):
        planned = plan(epsilon=1.0, delta=1e-6, queries=5000, teachers=700, disagreement=disagreement)
        assert planned.aggregator == best
        assert {planned.aggregator, *(c.aggregator for c in planned.candidates)} == {
            "quorum",
            "noisy_max",
            "confident_max",
            "sharp_majority",
            "soft_majority",
        }
        assert all(c.noise and c.right <= planned.right + 0.005 for c in planned.candidates)


def test_teachers_are_chosen_no_more_than_needed():
    planned = plan(epsilon=1.0, delta=1e-6, queries=100, records=100_000, disagreement=0.05)
    assert planned.teachers < 100_000 // LEAST_ROWS
    assert planned.rows_per_teacher == 100_000 // planned.teachers > LEAST_ROWS
    most = plan(epsilon=1.0, delta=1e-6, queries=100, teachers=100_000 // LEAST_ROWS, disagreement=0.05)
    fewer = plan(epsilon=1.0, delta=1e-6, queries=100, teachers=planned.teachers * 4 // 5, disagreement=0.05)
    assert fewer.right < most.right - 0.005 <= planned.right + 1e-3
    free = plan(epsilon=1.0, delta=1e-6, queries=100, disagreement=0.05)
    assert free.right == pytest.approx(0.95, abs=0.01)
    assert any(f"{free.teachers * LEAST_ROWS:,} records" in sentence for sentence in free.assumptions)


def test_votes_of_few_teachers_stand_for_many():
    votes = made_up_votes(100, 300)
    small = plan(epsilon=1.0, delta=1e-6, queries=300, teachers=2000, votes=votes)
    scaled = plan(epsilon=1.0, delta=1e-6, queries=300, teachers=2000, votes=votes * 20)
    assert small.right == pytest.approx(scaled.right, abs=1e-9)
    assert small.classes == 2


def test_quorum_settings_without_a_search_are_as_good_as_with_one():
    for epsilon, delta, count in ((2.0, 1e-5, 5), (2.0, 1e-6, 60), (4.0, 1e-6, 400)):
        searched = Quorum.calibrate(epsilon=epsilon, delta=delta, teachers=10**6, no_quorums=count).distance()
        planned = plan(
            epsilon=epsilon, delta=delta, teachers=5000, aggregator="quorum", no_quorums=count, disagreement=0.01
        )
        assert planned.mechanism.distance() <= 1.02 * searched + 1
        assert planned.mechanism.epsilon(delta=delta) <= epsilon
        exact_one, likely = certified_settings(epsilon, delta, count), likely_settings(epsilon, delta, count)
        assert abs(exact_one.margin - likely.margin) <= 1


def test_stand_ins_agree_with_what_is_certified():
    forecast = VoteForecast.from_disagreement(0.1, classes=2)
    for teachers, queries in ((300, 100), (1000, 1000), (4000, 2000)):
        task = Task(epsilon=2.0, delta=1e-6, queries=queries, classes=2)
        for draft in drafts("auto", task, forecast, teachers):
            assert draft.certify()[1].right == pytest.approx(draft.expected.right, abs=0.01)


def test_published_bounds_are_the_formulas():
    planned = plan(epsilon=1.0, delta=1e-6, queries=1000, teachers=1000, disagreement=0.1)
    assert [bound.name for bound in planned.published] == ["teachers", "epsilon"]
    mean = VoteForecast.from_disagreement(0.1, classes=2).disagreement
    expected = stability_teachers(epsilon=1.0, delta=1e-6, queries=1000, disagreement=mean)[0]
    assert planned.published[0].value == expected
    assert planned.published[1].value > 1.0, "exact accounting of the same noise states less"
    by_orders = min(1000 * a / 150**2 + math.log(1e6) / (a - 1) for a in np.arange(1.5, 60, 0.01))
    assert pate_epsilon(scale=150.0, queries=1000, delta=1e-6) == pytest.approx(by_orders, rel=1e-4)


def test_laws_against_scipy():
    stats = pytest.importorskip("scipy.stats")
    for mean in (0.01, 0.1, 0.4):
        forecast = VoteForecast.from_disagreement(mean, classes=2)
        levels = np.cumsum(forecast.weights) - forecast.weights / 2
        quantiles = np.minimum(stats.beta.ppf(levels, 4 * mean, 4 * (1 - mean)), 0.5)
        np.testing.assert_allclose(1 - forecast.top, quantiles, atol=1e-9)
    for trials, cap, rate in ((100, 5, 0.03), (1000, 20, 0.02), (5000, 700, 0.15), (50, 50, 0.999)):
        counts = np.arange(trials + 1)
        mean = (np.minimum(counts, cap) * stats.binom.pmf(counts, trials, rate)).sum()
        assert binomial_capped_mean(trials, cap, np.array([rate]))[0] == pytest.approx(mean, rel=1e-9)


def test_a_run_that_hardly_ever_misses_answers_everything():
    for missed in (0.0, 1e-300, 1e-30, 1e-12, 1e-9, 1e-7):
        for count in (1, 5, 1000):
            assert answered_before_stop(5000, count, np.array([missed]))[0] == pytest.approx(1.0, abs=1e-3)


def test_redrawn_thresholds_against_a_count_by_hand():
    generator = np.random.default_rng(3)
    rates, weights = np.array([0.3, 0.02, 0.001]), np.array([0.3, 0.4, 0.3])
    for queries, count in ((60, 1), (200, 6), (40_000, 900)):
        answered = []
        for _ in range(300):
            lengths = generator.geometric(generator.choice(rates, p=weights, size=count))
            ends = np.cumsum(lengths)
            met = int((ends <= queries).sum())
            answered.append((min(queries, ends[-1]) - met) / queries)
        mean, error = np.mean(answered), np.std(answered) / math.sqrt(300)
        assert agrees(shares_with_redraws(queries, count, rates, weights).answered, mean, error)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"disagreement": 0.7}, "at most 0.5"),
        ({"aggregator": "majority"}, "aggregator must be 'auto' or one of quorum"),
        ({"votes": [[0.5, 0.5]]}, "whole numbers"),
        ({"votes": [1, 2]}, "must be a matrix"),
        ({"votes": [[1, 2]], "disagreement": 0.1}, "leave disagreement out"),
        ({"votes": [[1, 2]], "classes": 3}, "one column for each of the 3 classes"),
        ({"records": 10, "teachers": 20}, "at most records=10"),
        ({"queries": 0}, "queries must be"),
        ({"answer_rate": 0.0}, "answer_rate must be"),
    ],
)
def test_wrong_input_is_refused_with_a_reason(asked, text):
    with pytest.raises(InvalidInput, match=text):
        plan(epsilon=1.0, **asked)


def test_what_no_mechanism_can_do_is_refused():
    with pytest.raises(Infeasible, match="delta = 0 allows sharp_majority or soft_majority, not quorum"):
        plan(epsilon=1.0, delta=0.0, teachers=100, aggregator="quorum")
    with pytest.raises(Infeasible, match="2 classes"):
        plan(epsilon=1.0, teachers=100, classes=3, aggregator="between_thresholds")


def test_little_is_lost_by_choosing_automatically():
    for spread, epsilon in ((3.0, 2.0), (0.05, 1.0)):  # disputed here and there, and nearly never
        compared = compare("made up", made_up_votes(400, 6000, spread=spread), epsilon=epsilon, queries=400, repeats=20)
        assert compared.gap <= 0.01
        assert min(compared.right.values()) < max(compared.right.values()) - 0.02, "a wrong choice would show"


def test_no_quorums_leave_room_for_what_few_public_points_did_not_show():
    clear = np.array([[400, 0]] * 300)
    planned = plan(epsilon=1.0, delta=1e-6, queries=5000, teachers=1000, votes=clear, aggregator="quorum")
    assert planned.no_quorums >= 5000 / 300
    assert planned.right > 0.99


def test_command_prints_json_and_says_by_its_exit_code_whether_it_is_feasible(capsys):
    asked = {"epsilon": 1.0, "queries": 500, "teachers": 200, "disagreement": 0.1}
    assert plan_command(**asked, json=True) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["feasible"] is True
    assert printed["aggregator"] == "sharp_majority"
    assert plan_command(**asked, answer_rate=0.9) == 1
    text = capsys.readouterr().out
    for words in ("This falls short", "raise epsilon to", "Bassily, Thakkar and Thakurta 2018"):
        assert words in " ".join(text.split())


@pytest.mark.parametrize("choice", ["abstain", "random"])
def test_a_classifier_plans_for_what_it_does_without_a_quorum(choice):
    X, y = [[0.0], [1.0]] * 2000, [0, 1] * 2000
    made = PrivateClassifier(epsilon=2.0, teachers=200, queries=10, aggregator="quorum", on_no_quorum=choice).fit(X, y)
    assert made.plan_.on_no_quorum == choice
    assert (made.plan_.answered > 0.99) == (choice == "random")


# ---------------------------------------------------------------------------------------------------------------------
# How many teachers, by the number of columns

ADULT = {"epsilon": 1.0, "delta": 1e-5, "queries": 1000, "records": 32_561}


def test_more_columns_make_fewer_teachers_who_learn_from_more_records():
    plans = [plan(**ADULT, features=columns) for columns in (2, 20, 200, 10_000)]
    counts = [made.teachers for made in plans]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0] <= ADULT["records"] // LEAST_ROWS
    assert all(made.feasible for made in plans)


def test_a_student_gets_fewer_teachers_than_answers_do():
    answers, labels = (plan(**ADULT, features=100, teach=teach) for teach in (False, True))
    assert labels.teachers < answers.teachers
    assert labels.feasible


@pytest.mark.parametrize(("records", "epsilon"), [(19, 0.5), (300, 2.0), (3000, 0.5)])
def test_columns_never_make_a_plan_infeasible(records, epsilon):
    target = {"epsilon": epsilon, "delta": 1e-6, "queries": 50, "records": records}
    without, within = plan(**target), plan(**target, features=50)
    assert within.feasible >= without.feasible
    assert within.teachers <= max(1, records // LEAST_ROWS)


def test_columns_are_a_count_and_are_said_to_be_assumed():
    made = plan(**ADULT, features=100)
    assert any("100 columns" in sentence for sentence in made.assumptions)
    with pytest.raises(InvalidInput, match="features"):
        plan(**ADULT, features=0)
    assert plan(**ADULT, features=100, teachers=77).teachers == 77


def test_what_is_lost_is_least_near_the_number_that_is_taken():
    """The same sum by the tables of certified mechanisms, without the planner's drafts."""
    target = {name: value for name, value in ADULT.items() if name != "records"}
    forecast = VoteForecast.from_disagreement(0.1, classes=2)

    def lost(teachers, columns):
        table = plan(**target, teachers=teachers, aggregator="sharp_majority").mechanism.table
        wrong = np.interp(forecast.gap * teachers / 2, np.arange(len(table)), np.array([each / ONE for each in table]))
        return float(forecast.weights @ (forecast.gap * wrong)) + 0.02 * columns * teachers / ADULT["records"]

    for columns in (10, 120):
        taken = plan(**ADULT, features=columns).teachers
        others = [min(round(taken * factor), 1628) for factor in (0.3, 0.6, 0.8, 1.25, 1.6, 3.0)]
        assert lost(taken, columns) < min(lost(teachers, columns) for teachers in others) + 0.001


def test_a_classifier_and_a_student_are_planned_by_their_columns():
    random = np.random.default_rng(0)
    X = random.normal(size=(6000, 12))
    y = (X[:, 0] > 0).astype(int)
    settings = {"epsilon": 4.0, "delta": 1e-5, "queries": 100, "classes": [0, 1]}
    asked = {"epsilon": 4.0, "delta": 1e-5, "queries": 100, "records": 6000, "features": 12}
    classifier = PrivateClassifier(**settings).fit(X, y)
    student = StudentClassifier(**settings).fit(X, y, public=random.normal(size=(200, 12)))
    assert classifier.teachers_ == plan(**asked).teachers
    assert student.plan_.teachers == plan(**asked, teach=True).teachers != classifier.teachers_


@pytest.mark.parametrize("guess", [False, True])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_best_draft_is_the_best_of_all_drafts(classes, guess):
    """Drafts that a bound rules out are not made: none of them would have been the best."""
    generator = np.random.default_rng(3)
    forecasts = [VoteForecast.from_disagreement(share, classes=classes) for share in (0.001, 0.05, 0.2, 0.45)]
    for sharpness in (0.3, 2.0):
        shares = generator.dirichlet([8 * sharpness, *[sharpness] * (classes - 1)], size=60)
        forecasts.append(VoteForecast.from_votes(np.rint(1000 * shares).astype(np.int64) + 1))
    for queries, epsilon in ((30, 0.5), (3000, 4.0)):
        task = Task(epsilon, 1e-6, queries, classes, guess=guess)
        for forecast in forecasts:
            for teachers in (20, 300, 4000):
                best = drafts("auto", task, forecast, teachers)[0].expected.worth
                assert best_draft("auto", task, forecast, teachers).expected.worth >= best - 2e-6


@pytest.mark.parametrize(("records", "epsilon", "delta", "queries", "features", "teachers", "right"), BY_RECORDS)
def test_teachers_are_those_of_a_search_of_everything(records, epsilon, delta, queries, features, teachers, right):
    """Stored from a search that drafts every aggregator for every number of teachers."""
    planned = plan(records=records, epsilon=epsilon, delta=delta, queries=queries, features=features)
    assert (planned.aggregator, planned.teachers, planned.no_quorums) == ("sharp_majority", teachers, None)
    assert planned.right == pytest.approx(right, abs=1e-3)


@pytest.mark.parametrize("row", BY_TEACHERS, ids=str)
def test_choices_are_those_of_a_search_of_everything(row):
    *asked, aggregator, no_quorums, right = row
    names = ("teachers", "epsilon", "queries", "disagreement", "classes", "on_no_quorum")
    planned = plan(**dict(zip(names, asked, strict=True)))
    assert (planned.aggregator, planned.no_quorums) == (aggregator, no_quorums)
    assert planned.right == pytest.approx(right, abs=1e-3)
