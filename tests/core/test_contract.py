"""What every mechanism promises its caller, whichever it is."""

import copy
import dataclasses
import functools
import os
import pickle
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from mechanism_cases import MAKERS, THRESHOLD, mechanism_case

from planted.bug import run_together
from quorate import Budget, BudgetSpent, Cost, InvalidInput, RunEnded, WrongProcess
from quorate.auditing._plays import SeededNoise
from quorate.core.mechanisms import NO_QUORUM, Dissent, SoftMajority, StabilityTest
from quorate.core.mechanisms.base import Run

ALL = sorted(MAKERS)


def clear_votes(mechanism, rows):
    """Unanimous votes, alternating between the first and the last class; for a Dissent, all for the student's label."""
    classes = getattr(mechanism, "classes", 2)
    votes = np.zeros((rows, classes), dtype=np.int64)
    votes[::2, 0] = mechanism.teachers
    votes[1::2, 0 if isinstance(mechanism, Dissent) else -1] = mechanism.teachers
    return votes


def split_votes(mechanism, rows):
    """Votes that are even, which find no quorum; for a Dissent, all against the student's label."""
    classes = getattr(mechanism, "classes", 2)
    votes = np.zeros((rows, classes), dtype=np.int64)
    votes[:, 0] = 0 if isinstance(mechanism, Dissent) else mechanism.teachers // 2
    votes[:, 1] = mechanism.teachers - votes[:, 0]
    return votes


def wavering_votes(mechanism):
    """Votes on which the noise decides."""
    half = mechanism.teachers // 2
    if isinstance(mechanism, Dissent):
        behind = half - mechanism.distance(run_rate=0.5, dissent_rate=0.2)
        return np.array([[behind, mechanism.teachers - behind], [half, mechanism.teachers - half]] * 40)
    top = half + mechanism.distance(answer_rate=0.9) + 1
    return np.array([[top, mechanism.teachers - top], [mechanism.teachers - top, top]] * 40)


def fresh(name):
    """A copy of the description: it opens a run of its own."""
    return dataclasses.replace(mechanism_case(name)) if name != "soft_majority" else mechanism_case(name)


@pytest.mark.parametrize("name", ALL)
def test_clear_ballots_are_answered_with_their_label(name):
    mechanism = fresh(name)
    answers = mechanism.answers(clear_votes(mechanism, 40))
    answered = answers.answered
    assert answered.mean() > 0.8
    expected = clear_votes(mechanism, 40).argmax(axis=1)[: answers.labels.size]
    assert (answers.labels[answered] == expected[answered]).mean() > 0.9
    assert answers.labels.dtype == np.int64


@pytest.mark.parametrize("name", ALL)
def test_one_query_is_a_label_or_none(name):
    mechanism = fresh(name)
    label = mechanism.answer(clear_votes(mechanism, 1)[0])
    assert label in (0, None)
    assert label is None or type(label) is int


@pytest.mark.parametrize("name", ALL)
def test_everything_released_is_an_integer(name):
    mechanism = fresh(name)
    answers = mechanism.answers(split_votes(mechanism, 3))
    assert set(answers.labels.tolist()) <= {NO_QUORUM, 0, 1, 2}
    assert type(answers.refused) is int


@pytest.mark.parametrize("name", ALL)
def test_costs_rise_with_the_target_and_meet_it(name):
    mechanism = mechanism_case(name)
    if name in THRESHOLD:
        assert mechanism.renyi(2.0) < mechanism.renyi(8.0)
        assert mechanism.epsilon(delta=1e-2) < mechanism.epsilon(delta=1e-3)
        claim = {"between_thresholds_paper": 2.0, "stability_paper": 3.0}.get(name, 2.0)
        assert mechanism.epsilon(delta=1e-3 if name.endswith("paper") else 1e-5) <= claim
    else:
        assert mechanism.epsilon(delta=1e-5, queries=10) < mechanism.epsilon(delta=1e-5, queries=100)
        if name != "noisy_max_of_three":
            assert mechanism.epsilon(delta=1e-5, queries=100) <= 2.0


BAD_VOTES = [
    ([[1, 2, -3]], "votes must be counts of at least 0 that sum to teachers="),
    ([[1.0, 2.0]], "votes must be whole numbers of an integer type, got float64"),
    ([[True, False]], "votes must be whole numbers of an integer type, got bool"),
    ([["1", "2"]], "votes must be whole numbers of an integer type"),
    ([1, 2], "votes must be a matrix"),
    ([[5]], "votes must be a matrix"),
    ([[[5, 5]]], "votes must be a matrix"),
    ([[2**63, 2]], "votes must"),
    ([[None, 2]], "votes must be whole numbers of an integer type, got object"),
]


@pytest.mark.parametrize("name", ["quorum", "noisy_max_of_three", "soft_majority"])
@pytest.mark.parametrize(("votes", "text"), BAD_VOTES)
def test_bad_votes_are_refused(name, votes, text):
    if name == "noisy_max_of_three" and np.asarray(votes).shape == (1, 2):
        text = "votes must have one column for each of the 3 classes, got 2"
    with pytest.raises(InvalidInput) as caught:
        fresh(name).answers(votes)
    assert text in str(caught.value)


@pytest.mark.parametrize("name", ALL)
def test_errors_are_the_same_whatever_the_votes_are(name):
    """Wrong sums, negative counts and overflowing ones give one message, which repeats no vote."""
    mechanism = fresh(name)
    classes, teachers = getattr(mechanism, "classes", 2), mechanism.teachers
    rest = [0] * (classes - 2)
    wrong = [
        [teachers, 1, *rest],
        [0, 0, *rest],
        [-1, teachers + 1, *rest],
        [teachers - 1, 0, *rest],
        [2**62, 2**62, *rest],
        [-(2**62), 2**62 + teachers, *rest],
    ]
    good = clear_votes(mechanism, 3).tolist()
    messages = set()
    for row in wrong:
        for batch in ([row], [*good, row], [row, *good]):
            with pytest.raises(InvalidInput) as caught:
                mechanism.answers(batch)
            messages.add(str(caught.value))
    assert messages == {f"votes must be counts of at least 0 that sum to teachers={teachers} for every query"}


@pytest.mark.parametrize("name", ALL)
def test_refused_votes_draw_and_spend_nothing(name):
    mechanism = fresh(name)
    budget = Budget(epsilon=50.0, delta=1e-2, order=getattr(mechanism, "order", 4.0), slack=5e-3)
    run = mechanism.open(budget) if name in THRESHOLD else None
    before = budget.remaining()
    wrong = [[1] * getattr(mechanism, "classes", 2)]
    ask = run.answers if run is not None else functools.partial(mechanism.answers, budget=budget)
    with pytest.raises(InvalidInput):
        ask(wrong)
    assert budget.remaining() == before


@pytest.mark.parametrize("name", ALL)
def test_empty_batches_are_fine(name):
    mechanism = fresh(name)
    answers = mechanism.answers(np.zeros((0, getattr(mechanism, "classes", 2)), dtype=np.int64))
    assert answers.labels.size == 0
    assert answers.refused == 0


@pytest.mark.parametrize("name", sorted(THRESHOLD))
def test_a_run_ends_at_its_last_no_quorum(name):
    mechanism = fresh(name)
    run = mechanism.open()
    answers = run.answers(split_votes(mechanism, 1000))
    assert (answers.labels == NO_QUORUM).sum() == mechanism.no_quorums
    assert answers.labels[-1] == NO_QUORUM
    assert answers.refused == 1000 - answers.labels.size
    assert run.no_quorums_left == 0
    whole = mechanism.run_cost(mechanism.order)
    assert run.spent.renyi == pytest.approx(whole.renyi)
    assert run.spent.slack == pytest.approx(whole.slack)
    for _ in range(2):
        with pytest.raises(RunEnded, match=r"has met its \d no-quorums"):
            run.answer(clear_votes(mechanism, 1)[0])


@pytest.mark.parametrize("name", sorted(THRESHOLD))
def test_a_budget_that_fits_the_run_pays_for_exactly_the_run(name):
    mechanism = fresh(name)
    cost = mechanism.run_cost(mechanism.order)
    epsilon = mechanism.epsilon(delta=1e-2)
    budget = Budget(epsilon=epsilon + 5.0, delta=1e-2, order=mechanism.order, slack=cost.slack * (1 + 1e-9))
    run = mechanism.open(budget)
    run.answers(split_votes(mechanism, 100))
    assert run.no_quorums_left == 0
    assert budget.spent().renyi == pytest.approx(cost.renyi, rel=1e-6, abs=1e-9)
    assert budget.spent().slack == pytest.approx(cost.slack, rel=1e-6)


@pytest.mark.parametrize("name", sorted(THRESHOLD))
def test_a_run_stops_when_its_budget_does(name):
    mechanism = fresh(name)
    opening, each = mechanism.opening_cost(mechanism.order), mechanism.no_quorum_cost(mechanism.order)
    slack = opening.slack + each.slack * 1.5
    budget = Budget(epsilon=100.0, delta=1e-2, order=mechanism.order, slack=slack * (1 + 1e-9))
    spare = opening.renyi + each.renyi * 1.5
    budget.spend(dataclasses.replace(each, renyi=budget.remaining().renyi - spare, slack=0.0))
    run = mechanism.open(budget)
    answers = run.answers(split_votes(mechanism, 50))
    met = int((answers.labels == NO_QUORUM).sum())
    assert met == 1 + int(mechanism.redraws)
    assert met < mechanism.no_quorums or mechanism.no_quorums == 2
    with pytest.raises((BudgetSpent, RunEnded)):
        run.answers(clear_votes(mechanism, 1))
    with pytest.raises(BudgetSpent):
        mechanism.open(budget)


@pytest.mark.parametrize("name", sorted(set(ALL) - THRESHOLD))
def test_queries_are_charged_until_the_budget_ends(name):
    mechanism = fresh(name)
    budget = Budget(epsilon=2.0, delta=1e-5, order=20.0)
    each = mechanism.renyi(20.0)
    fits = int(budget.remaining().renyi / each)
    answers = mechanism.answers(clear_votes(mechanism, fits + 5), budget=budget)
    assert answers.labels.size >= fits
    if name != "confident_max":  # which gives back what a failed test did not use
        assert answers.labels.size == fits
        assert answers.refused == 5
        assert answers.spent.renyi == pytest.approx(fits * each)
        with pytest.raises(BudgetSpent):
            mechanism.answer(clear_votes(mechanism, 1)[0], budget=budget)
    assert budget.spent().renyi >= answers.spent.renyi * (1 - 1e-12)


class Tape:
    """Noise read off one recorded tape for each law and scale, so that two ways of asking meet the same draws."""

    def __init__(self, seed):
        self._seed, self._tapes = seed, {}

    def _take(self, law, scale, size):
        tape = self._tapes.setdefault((law, scale), [0, getattr(SeededNoise(self._seed), law)(*scale, 500)])
        tape[0] += size
        return tape[1][tape[0] - size : tape[0]]

    def laplace(self, scale, size):
        return self._take("laplace", (scale,), size)

    def gaussian(self, scale, size):
        return self._take("gaussian", (scale,), size)

    def words(self, size):
        return self._take("words", (), size)


@pytest.mark.parametrize("name", sorted(THRESHOLD))
def test_a_batch_is_answered_as_its_queries_one_after_the_other(name):
    mechanism = fresh(name)
    votes, seen = wavering_votes(mechanism), set()
    for seed in range(20):
        whole = Run(mechanism, budget=None, noise=Tape(seed)).answers(votes)
        run, one_by_one = Run(mechanism, budget=None, noise=Tape(seed)), []
        for row in votes[: whole.labels.size]:
            label = run.answer(row)
            one_by_one.append(NO_QUORUM if label is None else label)
        assert whole.labels.tolist() == one_by_one
        assert (whole.refused > 0) == (run.no_quorums_left == 0 and whole.labels.size < len(votes))
        seen.add(tuple(one_by_one))
    assert len(seen) > 10  # the noise mattered


@pytest.mark.parametrize("name", sorted(THRESHOLD))
def test_runs_cannot_be_copied_and_copies_of_a_mechanism_pay_again(name):
    mechanism = fresh(name)
    run = mechanism.open()
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="secret noise would be used twice"):
            duplicate(run)
    mechanism.answers(split_votes(mechanism, 1))
    for twin in (copy.copy(mechanism), copy.deepcopy(mechanism), pickle.loads(pickle.dumps(mechanism))):
        assert twin == mechanism
        assert "_run" not in vars(twin)
    assert "threshold" not in repr(run).replace("threshold_scale", "")


def _in_a_fork(work):
    """Return whether `work` was refused in a forked child as belonging to another process."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
        except WrongProcess:
            code = 7
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_cannot_spend_what_its_parent_opened():
    mechanism = fresh("quorum")
    budget = Budget(epsilon=2.0, delta=1e-5, order=mechanism.order, slack=mechanism.slack)
    reservation = budget.reserve(Cost(0.0))
    run = mechanism.open(budget)
    votes = clear_votes(mechanism, 1)
    assert _in_a_fork(lambda: run.answers(votes))
    assert _in_a_fork(lambda: mechanism.open(budget))
    assert _in_a_fork(lambda: budget.spend(Cost(0.0)))
    assert _in_a_fork(lambda: reservation.settle(1))
    assert not _in_a_fork(lambda: mechanism.open().answers(votes))  # a run of its own is fine
    assert run.answer(votes[0]) == 0


def test_threads_share_one_run():
    """However many threads ask, a run meets its no-quorums once."""
    mechanism, met = fresh("quorum"), []

    def ask():
        with suppress(RunEnded):
            for _ in range(5):
                met.append(int((mechanism.answers(split_votes(mechanism, 1)).labels == NO_QUORUM).sum()))

    run_together(8, ask)
    assert sum(met) == mechanism.no_quorums


@pytest.mark.parametrize("name", ALL)
def test_private_values_are_not_in_representations(name):
    mechanism = fresh(name)
    mechanism.answers(clear_votes(mechanism, 2))
    shown = repr(mechanism)
    assert "_run" not in shown
    assert "Run" not in shown


@pytest.mark.parametrize("name", ["quorum", "dissent", "stability", "between_thresholds"])
@pytest.mark.parametrize("no_quorums", [1, 7, 100])
def test_a_calibrated_run_fits_the_budget_it_was_calibrated_for(name, no_quorums):
    """Charges are rounded up to quanta, so a calibration must leave room for that: all no-quorums, not all but one."""
    met = {"dissents" if name == "dissent" else "no_quorums": no_quorums}
    made = type(mechanism_case(name)).calibrate(epsilon=1.0, delta=1e-6, teachers=10**5, **met)
    slack = made.run_cost(made.order).slack
    run = made.open(Budget(epsilon=1.0, delta=1e-6, order=made.order, slack=slack))
    answers = run.answers(split_votes(made, 3 * no_quorums))
    assert (answers.labels == NO_QUORUM).sum() == no_quorums


@pytest.mark.parametrize("queries", [1, 3, 7, 30, 199])
def test_a_calibrated_soft_majority_fits_its_budget(queries):
    made = SoftMajority.calibrate(epsilon=1.0, teachers=900, queries=queries)
    answers = made.answers(clear_votes(made, queries + 1), budget=Budget(epsilon=1.0, delta=0.0))
    assert answers.labels.size == queries
    exact = Fraction(made.scale) * Fraction(made.epsilon_per_query)
    assert exact >= 2  # the scale is rounded up, exactly


def test_an_answer_that_cannot_be_paid_charges_nothing():
    """A query whose test fits but whose winner would not is refused whole."""
    mechanism = fresh("confident_max")
    budget = Budget(epsilon=2.0, delta=1e-5, order=20.0)
    cost = mechanism.query_cost(20.0)
    budget.spend(Cost(budget.remaining().renyi - 1.5 * cost.renyi))
    before = budget.remaining()
    for _ in range(3):
        with pytest.raises(BudgetSpent):
            mechanism.answer(clear_votes(mechanism, 1)[0], budget=budget)
    assert budget.remaining() == before


def test_a_query_reserves_no_more_than_it_can_cost():
    mechanism = fresh("quorum")
    seen = []

    class Watching(SeededNoise):
        def words(self, size):
            seen.append(budget.remaining().renyi)
            return super().words(size)

    budget = Budget(epsilon=2.0, delta=1e-5, order=mechanism.order, slack=mechanism.slack)
    run = Run(mechanism, budget=budget, noise=Watching(1))
    before = budget.remaining().renyi
    run.answers(clear_votes(mechanism, 1))
    assert seen[0] == pytest.approx(before - mechanism.no_quorum_cost(mechanism.order).renyi)
    assert budget.remaining().renyi == before


@pytest.mark.parametrize("name", ["stability", "dissent"])
def test_an_interrupted_run_is_over_and_stays_charged(name):
    mechanism = fresh(name)

    class Failing(SeededNoise):
        armed = False

        def laplace(self, scale, size):
            if self.armed:
                raise KeyboardInterrupt
            return super().laplace(scale, size)

        def words(self, size):
            raise KeyboardInterrupt

    noise = Failing(1)
    cost = mechanism.run_cost(mechanism.order)
    budget = Budget(epsilon=50.0, delta=1e-2, order=mechanism.order, slack=cost.slack)
    run = Run(mechanism, budget=budget, noise=noise)
    before = budget.remaining().renyi
    noise.armed = True
    with pytest.raises(KeyboardInterrupt):
        run.answers(split_votes(mechanism, 3))
    assert budget.remaining().renyi < before
    with pytest.raises(RunEnded):
        run.answers(split_votes(mechanism, 1))


def test_small_integer_types_do_not_wrap():
    """What was checked is what is used: a margin given as an 8-bit integer is an int afterwards."""
    made = StabilityTest(
        teachers=np.int16(400),
        no_quorums=np.int8(5),
        order=np.float32(4.0),
        threshold_scale=5.0,
        query_scale=5.0,
        margin=np.int8(127),  # the next larger one wraps; noise passes it at a tie once in 10**10 queries
        slack=1e-3,
    )
    assert type(made.margin) is int
    assert type(made.order) is float
    assert (made.answers([[200, 200]] * 5).labels == NO_QUORUM).all()
