"""Broken releases and false claims, each a small change of a sound one, which the enumeration must find out."""

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from quorate.auditing import Release
from quorate.auditing._enumeration import Claim, RenyiClaim

Votes = tuple[int, ...]


def misjudged(release: Release, distance: Callable[[Votes], int]) -> Release:
    """Return the release with another distance: that of votes which have it, and the same top label."""

    def votes_at(votes: Votes) -> Votes:
        changed = [0] * len(votes)
        changed[votes.index(max(votes))] = 2 * (distance(votes) + 1)
        return tuple(changed)

    return replace(
        release,
        outcomes=lambda votes: release.outcomes(votes_at(votes)),
        covered=lambda votes: release.covered_outcomes(votes_at(votes)),
    )


def gap_of_sensitivity_one(release: Release) -> Release:
    """As printed by Bassily, Thakkar and Thakurta (2018): the distance is gap - 1, which one ballot moves by 2."""
    return misjudged(release, lambda votes: max(0, max(votes) - sorted(votes)[-2] - 1))


def raw_gap(release: Release) -> Release:
    """As printed by Nandi and Bassily (2020): the distance is the gap, positive where one ballot changes the label."""
    return misjudged(release, lambda votes: max(votes) - sorted(votes)[-2])


def lead_for_votes(release: Release) -> Release:
    """Between thresholds: the lead of label 1 where its votes belong, which one ballot moves by 2."""
    half = release.teachers // 2
    return replace(release, outcomes=lambda votes: release.outcomes((0, half + votes[1] - votes[0])))


def votes_at_half_gap(half_gap: int, classes: int) -> Votes:
    """Return votes with this half-gap, for a Dissent."""
    rest = [0] * (classes - 2)
    return (0, 2 * half_gap, *rest) if half_gap >= 0 else (-2 * half_gap, 0, *rest)


def gap_for_half_gap(release: Release) -> Release:
    """Dissent: the lead itself is compared with the margin, and one ballot moves it by 2."""
    return replace(
        release,
        outcomes=lambda votes: release.outcomes(votes_at_half_gap(max(votes[1:]) - votes[0], len(votes))),
    )


def top_label_for_the_students(release: Release) -> Release:
    """Where no dissent is reported, the plurality label is answered and not the student's own."""

    def outcomes(votes: Votes) -> np.ndarray:
        rows = release.outcomes(votes).copy()
        top = votes.index(max(votes))
        rows[[0, top]] = rows[[top, 0]]
        return rows

    return replace(release, outcomes=outcomes)


def fix_noise(release: Release, column: int) -> Release:
    """Return the release with its hidden noise fixed to the value of this column."""
    fixed = np.zeros(release.law.size)
    fixed[column] = 1.0
    return replace(release, law=fixed, covered_law=fixed)


def without_threshold_noise(release: Release) -> Release:
    """The threshold noise is always 0."""
    return fix_noise(release, release.law.size // 2)


def redrawn_each_query(release: Release) -> Release:
    """The threshold noise is drawn again for every query, so that answers are no longer free."""
    return replace(
        release,
        outcomes=lambda votes: (release.outcomes(votes) @ release.law)[:, np.newaxis],
        covered=lambda votes: (release.covered_outcomes(votes) @ release.covered_law)[:, np.newaxis],
        law=np.ones(1),
        covered_law=np.ones(1),
        redraws=False,
    )


def redrawn_after_no_quorum(release: Release) -> Release:
    """The threshold noise is drawn again after a no-quorum and paid for once."""
    return replace(release, redraws=True)


def half_cost(claim: Claim) -> Claim:
    """The claim, with every cost divided by two; an (epsilon, delta) claim stays as it is."""
    if not isinstance(claim, RenyiClaim):
        return claim
    return replace(claim, limit=claim.limit / 2, per_no_quorum=claim.per_no_quorum / 2, per_answer=claim.per_answer / 2)


def at_order(mechanism, order: float):
    """Return the mechanism as if its table or band had been priced at this order, past the constructor's checks."""
    made = copy.copy(mechanism)
    object.__setattr__(made, "order", order)
    return made
