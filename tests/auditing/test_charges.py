"""What a unit moves against what is charged: every run is sound, every rule can be broken, every claim is attacked."""

import importlib
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from quorate.auditing._charges import Played, compare_charges, interrupted_at_release
from quorate.auditing.runs import RUNS, compare_run
from quorate.auditing.targets import CLAIMS, ELSEWHERE, REPLAYS, TARGETS
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NoisyMax, NoisySum, NoisyVector
from quorate.core.privacy import Budget, Cost
from quorate.models.concepts import Threshold, Thresholds
from quorate.release import QueryRelease

pytestmark = pytest.mark.attack
ROOT = Path(__file__).parents[2]


LEAST_MOVED = {  # of what is charged: the neighbours are not the worst ones, or part of the charge is for other steps
    **dict.fromkeys(("queries_ranges_by_group", "engine_prefix_boxes"), 0.86),
    "release_with_cuts": 0.029,
    "groups": 0.37,
    "groups_of_people": 0.38,
    "groups_counted": 0.49,
    "groups_found": 0.4,
    "groups_with_bounds": 0.45,
    **dict.fromkeys(
        (
            "logistic",
            "logistic_three",
            "fit",
            "votes_noisy_max",
            "votes_confident_max",
            "votes_soft_majority",
            "votes_sharp_majority",
            "writer",
        ),
        0.4,
    ),
    "least_squares": 0.8,
    "poisson": 0.75,
    "votes_noisy_shares": 0.24,
    "votes_held_out": 0.13,
    "student": 0.22,
    "student_first": 0.43,
    "mistakes": 0.85,
    "stable": 0.35,
    "pure_relabel": 0.078,
    "agnostic": 0.17,
    "universal": 0.041,
    "account": 0.49,
    "search": 0.3,
}


@pytest.mark.parametrize("name", RUNS)
def test_what_a_unit_moves_in_a_run_is_charged_and_not_much_more(name):
    """A charge that is too large would only cost accuracy: no privacy test would see it."""
    comparison = compare_run(name)
    assert comparison.forbidden == ()
    assert comparison.moved >= LEAST_MOVED.get(name, 0.93) * comparison.charged


def play_sum(total, *, budget=None, scale=20.0, pays=True, shown=None):
    budget = Budget(epsilon=1.0, delta=1e-6) if budget is None else budget
    released = NoisySum(sensitivity=1, scale=scale).release(total, budget=budget if pays else None)
    return Played(released if shown is None else shown, (1.0, 1e-6), [budget])


def play_often(total):
    for _ in range(total - 9):
        played = play_sum(total, shown="often")
    return played


@pytest.mark.parametrize(
    ("play", "said"),
    [
        (lambda total: play_sum(2 * total), "4 times the square of its stated sensitivity"),
        (lambda total: play_sum(total, pays=False), "0 were charged by then"),
        (lambda total: play_sum(total, scale=0.5, budget=Budget(epsilon=90.0, delta=0.5)), "is claimed"),
        (lambda total: play_sum(total, shown=total), "what is shown besides the releases differs"),
        (lambda total: play_sum(total, shown=1 / (total - 11)), "what is shown besides the releases differs"),
        (play_often, "releases on one data set"),
        (lambda total: play_sum(total, scale=float(total)), "what is charged differs"),
    ],
)
def test_every_rule_can_be_broken(play, said):
    assert any(said in text for text in compare_charges(play, 10, 11).forbidden)


def test_a_charge_after_the_draw_is_seen_though_all_is_charged_at_the_end():
    def play(total):
        budget, noisy = Budget(epsilon=1.0, delta=1e-6), NoisySum(sensitivity=1, scale=20.0)
        released = noisy.release(total)
        budget.spend(noisy.release_cost(budget.order))
        return Played(released)

    [said] = compare_charges(play, 10, 11).forbidden
    assert "0 were charged by then" in said


def test_two_ballots_that_move_are_seen():
    def play(votes):
        budget = Budget(epsilon=4.0, delta=1e-6)
        return Played(NoisyMax(teachers=20, classes=2, scale=5.0).answers(np.array([votes]), budget=budget).labels)

    assert compare_charges(play, [8, 12], [7, 13]).sound
    assert not compare_charges(play, [8, 12], [6, 14]).sound


def test_all_of_a_budget_pays_for_the_exact_guarantee_and_for_no_more():
    terms = {"epsilon": 1.0, "delta": 1e-6}
    noisy = NoisyVector.calibrate(**terms, squared_sensitivities=(2,))

    def play(counts, scale=1.0):
        less = NoisyVector(squared_sensitivities=(2,), scales=(noisy.scales[0] * scale,))
        budget = Budget(**terms, slack=0.0)
        budget.spend(Cost(budget.capacity().renyi))
        return Played([part.tolist() for part in less.release([np.array(counts)])], (1.0, 1e-6))

    assert compare_charges(play, [3, 4], [4, 3]).sound
    assert not compare_charges(lambda counts: play(counts, 0.97), [3, 4], [4, 3]).sound


def test_a_run_ends_at_a_release_as_in_a_crash():
    def play(total):
        with interrupted_at_release():
            play_sum(total)
            pytest.fail("went on")
        return play_sum(total)

    assert compare_charges(play, 10, 11).releases == 2


class LoudRelease(QueryRelease):
    """Is fitted with a fifth more epsilon than it claims."""

    def fit(self, private, public=None):
        claimed, self.epsilon = self.epsilon, 1.2 * self.epsilon
        super().fit(private, public)
        self.epsilon = claimed
        return self


@pytest.mark.parametrize(("kind", "is_sound"), [(QueryRelease, True), (LoudRelease, False)])
def test_a_release_that_is_fitted_with_more_epsilon_than_it_claims_is_found(kind, is_sound):
    def play(records):
        release = kind(Thresholds(), epsilon=1.0, delta=1e-2, engine="plain")
        release.fit(records, np.array([1.0, 2.0, 3.0, 4.0]))
        return Played(release.answer([Threshold(1.5), Threshold(3.5)]).to_pylist(), (1.0, 1e-2))

    first = np.repeat([0.0, 10.0], 100)
    comparison = compare_charges(play, first, np.append(first[1:], 10.0))
    assert comparison.sound == is_sound
    assert is_sound or re.match("delta is .* at epsilon 1, and 0.01 is claimed", comparison.forbidden[0])


def test_a_run_without_a_release_is_refused():
    with pytest.raises(InvalidInput, match="releases nothing"):
        compare_charges(lambda total: Played(0), 10, 11)
    with pytest.raises(InvalidInput, match="no run is called"):
        compare_run("everything")


def _public_names():
    """Return the public objects of the reference, by name."""
    text = (ROOT / "docs" / "reference" / "api.md").read_text()
    for path in re.findall(r"^- `(quorate[\w.]*)`:", text, flags=re.M):
        module, name = path.rsplit(".", 1)
        yield name, getattr(importlib.import_module(module), name)


def _claims_something(made):
    """Whether a public name promises (epsilon, delta) of its own: a mechanism, a model, a call that spends."""
    if not callable(made) or (isinstance(made, type) and issubclass(made, Exception)):
        return False
    attributes = (
        "claim_",
        "release_cost",
        "choice_cost",
        "query_cost",
        "run_cost",
        "relabelling_cost",
        "renyi",
        "cost",
    )
    takes = inspect.signature(made).parameters
    if isinstance(made, type):
        return any(hasattr(made, name) for name in attributes) or bool({"epsilon", "gamma"} & {*takes})
    return "epsilon" in takes


PLANS_AND_RECORDS = {  # public numbers alone, and what others claim
    *("plan", "plan_concept", "plan_everlasting", "plan_neighbours", "plan_release", "plan_search"),
    *("Budget", "Cost", "Predictions", "Quote", "Client", "AsyncClient", "Ledger", "Verdict"),
    "make_private_pipeline",  # makes a linear model with columns
}


def test_every_public_name_with_a_claim_has_an_attack():
    claiming = {name for name, made in _public_names() if _claims_something(made)} - PLANS_AND_RECORDS
    assert claiming - {*CLAIMS, *ELSEWHERE} == set()
    assert {*CLAIMS, *ELSEWHERE} - {name for name, _ in _public_names()} == set()
    known = {*TARGETS, *REPLAYS, *RUNS}
    assert {attack for attacks in CLAIMS.values() for attack in attacks} == known - {"noisy_count"}  # the yardstick
    assert all(CLAIMS.values())
    for name, path in ELSEWHERE.items():
        assert name in (ROOT / path).read_text()


def claims_table():
    """Return the table of `docs/reference/audits.md`: what `quorate audit` plays against each claim."""
    lines = ["| claim of | games | replays | runs |", "| --- | --- | --- | --- |"]
    for name, attacks in CLAIMS.items():
        cells = [", ".join(f"`{one}`" for one in attacks if one in kind) for kind in (TARGETS, REPLAYS, RUNS)]
        lines.append(f"| `{name}` | {' | '.join(cell or '-' for cell in cells)} |")
    return "\n".join(lines)


def test_the_guide_is_short():
    assert len((ROOT / "docs" / "howto" / "audit.md").read_text().split()) <= 1500


def test_the_reference_has_the_table_of_claims():
    guide = (ROOT / "docs" / "reference" / "audits.md").read_text()
    assert claims_table() in guide
    for name, path in ELSEWHERE.items():
        assert f"`{name}` (`{path}`)" in guide
