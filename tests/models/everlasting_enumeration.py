"""The game of everlasting prediction (Naor, Nissim, Stemmer and Yan 2023, Figure 1), played to the end by enumeration.

Two phases: what was released in the first teaches the second, so that a query challenged in one is met again in the
other. The adversary chooses each query by what he has seen, among a few; all of his ways are gone through, and the best
is kept. Laws are exact: hidden are the threshold noise, the limit of the cutoff and the challenged outcome. What is
enumerated is written down here from the definition, apart from the code that answers.

A small instance stands for the large: teachers are few, an adversary who knows the deal chooses how they vote in phase
1, and in phase 2 each votes by a rule from the labels of its own seats. `Rules` are sound, or have one mistake.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.core.checks import check_positive
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NO_QUORUM, Quorum
from quorate.core.mechanisms.cutoff import NoisyCutoff
from quorate.core.mechanisms.distributions import gaussian_tail
from quorate.core.mechanisms.quorum import build_table, table_price
from quorate.core.requests import REFUSED

__all__ = ["MISTAKES", "EverlastingGame", "Rules", "majority", "seated", "small_quorum"]

Floats = NDArray[np.float64]
Challenge = Literal["record", "query"]
Votes = tuple[int, int]  # for class 1, in the two worlds

_ONE = 2.0**64
_UNSEEN = -3  # the view of a challenged query
_TINY = 1e-13


def majority(labels: Sequence[int]) -> int:
    """Return the label of most seats of a teacher, 0 among equals and without any."""
    told = [label for label in labels if label >= 0]
    return int(2 * sum(told) > len(told))


@dataclass(frozen=True)
class Rules:
    """How the phases are run: all False is as it should be."""

    redraws: bool = False  # the threshold noise, after each no-quorum
    bare_cutoff: bool = False  # no noise at all
    noisy_limit_alone: bool = False  # no fresh noise at each arrival
    kept_cache: bool = False  # across phases
    shifting_seats: bool = False  # dropped points give theirs up
    raw_labels: bool = False  # of no-quorum points, from the ballots


MISTAKES: Mapping[str, Rules] = {
    "threshold redrawn after each no-quorum": Rules(redraws=True),
    "cutoff without noise": Rules(bare_cutoff=True),
    "cutoff with noise on its threshold alone": Rules(noisy_limit_alone=True),
    "cache kept across phases": Rules(kept_cache=True),
    "dropped points shifting seats": Rules(shifting_seats=True),
    "labels of no-quorum points taken from raw ballots": Rules(raw_labels=True),
}


class _Hidden(NamedTuple):
    """What nobody sees of a world, apart from the two noises."""

    seats: tuple[int, ...]
    met: int  # no-quorums so far
    closed: bool
    votes: int  # of the teachers of phase 2, for class 1
    kept: int  # a cached answer to the challenged query


World = dict[_Hidden, Floats]  # weights by threshold noise and limit


@dataclass(frozen=True)
class _Action:
    """One query: the votes it meets in phase 1 in the two worlds; None where the teachers of phase 2 say themselves."""

    votes: Votes | None
    challenged: bool = False
    repeated: bool = False


class EverlastingGame:
    """Two phases of `seats` arrivals and of `later` queries, between which `teachers` are taught by `rule`.

    In the game with a `record` challenged, the votes of a phase-1 query may differ by one between the worlds; with a
    `query`, once two queries are named instead of one, and the outcome is not shown.
    """

    def __init__(
        self,
        quorum: Quorum,
        cutoff: NoisyCutoff,
        *,
        seats: int,
        later: int = 2,
        rule: Callable[[Sequence[int]], int] = majority,
        rules: Rules | None = None,
    ) -> None:
        teachers = quorum.teachers
        if seats % teachers:
            raise InvalidInput(f"seats={seats} must be a multiple of teachers={teachers}: each has as many")
        self.quorum, self.cutoff, self.rules = quorum, cutoff, Rules() if rules is None else rules
        self.teachers, self.seats, self.later, self.rule = teachers, seats, later, rule
        self._noise, self._noise_law = _gaussian_law(quorum.threshold_scale)
        self._limits, self._limit_law = self._limit()
        self._missed = {votes: self._no_quorum(votes) for votes in range(teachers + 1)}

    def _limit(self) -> tuple[NDArray[np.int64], Floats]:
        cutoff, ratio = self.cutoff, self.cutoff.ratio / _ONE
        if self.rules.bare_cutoff:
            return np.array([cutoff.allowed]), np.ones(1)
        law: Floats = (1 - ratio) * ratio ** np.arange(cutoff.spread + 1, dtype=np.float64)
        law[-1] = ratio**cutoff.spread
        return cutoff.allowed + np.arange(cutoff.spread + 1), law

    def _closing(self, met: int) -> Floats:
        """Return the probability, by limit, that the phase closes before the next arrival."""
        missing = self._limits - met
        if self.rules.bare_cutoff or self.rules.noisy_limit_alone:
            return (missing <= 0).astype(np.float64)
        tails = np.array(self.cutoff.tails[: self.cutoff.most + 1], dtype=np.float64) / _ONE
        return tails[np.clip(missing, 0, len(tails) - 1)]

    def _no_quorum(self, votes: int) -> Floats:
        """Return the probability of no quorum, by threshold noise."""
        gap = abs(2 * votes - self.teachers)
        distance = max(0, math.ceil(gap / 2) - 1)
        level = np.clip((distance + self._noise - self.quorum.margin + 1) // 2, 0, len(self.quorum.table) - 1)
        return np.array([float(self.quorum.table[one]) for one in level]) / _ONE

    def _opened(self, votes: int, kept: int = NO_QUORUM) -> World:
        return {_Hidden((), 0, False, votes, kept): np.outer(self._noise_law, self._limit_law)}

    def _answered(
        self, hidden: _Hidden, weights: Floats, votes: int, *, keeps: bool
    ) -> Iterator[tuple[int, _Hidden, Floats]]:
        """Yield outcomes of one arrival in one hidden state: refused, no quorum, or the leading label."""
        if hidden.closed:
            yield REFUSED, hidden._replace(seats=self._seated(hidden.seats, REFUSED, votes)), weights
            return
        closing = self._closing(hidden.met)
        still = weights * (1 - closing)
        shut = hidden._replace(seats=self._seated(hidden.seats, REFUSED, votes), closed=True)
        yield REFUSED, shut, weights * closing
        missed = self._missed[votes][:, np.newaxis]
        none = hidden._replace(seats=self._seated(hidden.seats, NO_QUORUM, votes), met=hidden.met + 1)
        lost = still * missed
        yield NO_QUORUM, none, np.outer(self._noise_law, lost.sum(axis=0)) if self.rules.redraws else lost
        label = int(2 * votes > self.teachers)
        told = hidden._replace(seats=self._seated(hidden.seats, label, votes), kept=label if keeps else hidden.kept)
        yield label, told, still * (1 - missed)

    def _seated(self, seats: tuple[int, ...], outcome: int, votes: int) -> tuple[int, ...]:
        return seated(seats, outcome, raw=int(2 * votes > self.teachers), rules=self.rules)

    def _asked(self, world: World, action: _Action, side: int) -> dict[int, World]:
        """Return the worlds after one arrival, by what is seen of it."""
        seen: dict[int, World] = {}
        for hidden, weights in world.items():
            votes = hidden.votes if action.votes is None else action.votes[side]
            if action.repeated and self.rules.kept_cache and hidden.kept >= 0 and side == 0:
                outcomes: Any = [(hidden.kept, hidden, weights)]  # he repeats the first of the two points he named
            else:
                outcomes = self._answered(hidden, weights, votes, keeps=action.challenged)
            for outcome, after, mass in outcomes:
                if mass.sum() > _TINY:
                    view = seen.setdefault(_UNSEEN if action.challenged else outcome, {})
                    view[after] = view[after] + mass if after in view else mass
        return seen

    def _second_phase(self, world: World) -> World:
        """Teach, by the rule, and draw fresh noises."""
        opened: World = {}
        each = self.seats // self.teachers
        for hidden, weights in world.items():
            filled = (*hidden.seats, *[NO_QUORUM] * (self.seats - len(hidden.seats)))
            chunks = [filled[start : start + each] for start in range(0, self.seats, each)]
            votes = sum(self.rule(chunk) for chunk in chunks)
            for fresh, noises in self._opened(votes, hidden.kept).items():
                opened[fresh] = opened.get(fresh, 0.0) + float(weights.sum()) * noises
        return opened

    def claim(self, challenge: Challenge, *, delta: float) -> float:
        """Return the epsilon at this delta: of the Quorum for a record, and with the cutoff's for a query.

        A query that is challenged in the last phase of all (`later` = 0) pays for the cutoff alone.
        """
        if challenge == "record":
            return self.quorum.epsilon(delta=delta)
        rest = delta - self.cutoff.delta
        if rest < 0 or (self.later and rest == 0):
            raise InvalidInput(f"delta must be above the cutoff's {self.cutoff.delta:g}, not {delta!r}")
        return self.cutoff.epsilon + (self.quorum.epsilon(delta=rest) if self.later else 0.0)

    def worst(
        self, challenge: Challenge, *, epsilon: float, queries: Sequence[int], script: Sequence[Votes] | None = None
    ) -> float:
        """Return the smallest delta at this epsilon, over all ways to ask; `queries` are the votes to choose from.

        A `script` leaves no choice in phase 1: votes of each query in the two worlds, the challenged being the first
        whose votes differ.
        """
        factor = math.exp(check_positive("epsilon", epsilon))
        if script is not None and len(script) != self.seats:
            raise InvalidInput(f"a script names the votes of {self.seats} queries, not of {len(script)}")
        start = self._opened(-1)
        menu = _Menu(challenge, tuple(queries), None if script is None else tuple(script))
        return max(self._best((start, start), turn, factor, menu, place=0, named=False) for turn in ((0, 1), (1, 0)))

    def exact_epsilon(self, challenge: Challenge, *, delta: float, queries: Sequence[int]) -> float:
        """Return the epsilon that the worst way to ask needs at this delta, to two digits and rounded down."""
        low, high = 0.0, 2 * self.claim(challenge, delta=delta)
        while high - low > 0.01:
            middle = (low + high) / 2
            if self.worst(challenge, epsilon=middle, queries=queries) > delta:
                low = middle
            else:
                high = middle
        return low

    def _actions(self, menu: "_Menu", *, place: int, named: bool) -> list[_Action]:
        if place >= self.seats:
            return [_Action(None), *([_Action(None, repeated=True)] if self.rules.kept_cache and named else [])]
        if menu.script is not None:
            votes = menu.script[place]
            return [_Action(votes, challenged=menu.challenge == "query" and votes[0] != votes[1])]
        if menu.challenge == "record":
            moved = [(votes, other) for votes in menu.queries for other in (votes - 1, votes, votes + 1)]
            return [_Action((votes, other)) for votes, other in moved if 0 <= other <= self.teachers]
        asked = [_Action((votes, votes)) for votes in menu.queries]
        if named:
            return asked
        pairs = [(one, other) for one in menu.queries for other in menu.queries if one != other]
        return [*asked, *[_Action(pair, challenged=True) for pair in pairs]]

    def _best(
        self,
        worlds: tuple[World, World],
        turn: tuple[int, int],
        factor: float,
        menu: "_Menu",
        *,
        place: int,
        named: bool,
    ) -> float:
        """Return the largest sum, over all that may be seen from here on, of what one world has beyond the other."""
        masses = [sum(float(weights.sum()) for weights in worlds[side].values()) for side in turn]
        if masses[0] <= _TINY or place == self.seats + self.later:
            return max(0.0, masses[0] - factor * masses[1])
        if place == self.seats:
            worlds = self._second_phase(worlds[0]), self._second_phase(worlds[1])
        best = 0.0
        for action in self._actions(menu, place=place, named=named):
            seen = [self._asked(worlds[side], action, side) for side in (0, 1)]
            after = named or action.challenged
            total = 0.0
            for view in seen[0].keys() | seen[1].keys():
                pair = seen[0].get(view, {}), seen[1].get(view, {})
                total += self._best(pair, turn, factor, menu, place=place + 1, named=after)
            best = max(best, total)
        return best

    def with_rules(self, rules: Rules) -> "EverlastingGame":
        """Return the same game under other rules."""
        return EverlastingGame(
            self.quorum, self.cutoff, seats=self.seats, later=self.later, rule=self.rule, rules=rules
        )


def seated(seats: tuple[int, ...], outcome: int, *, raw: int, rules: Rules) -> tuple[int, ...]:
    """Return the labels of all seats after one more arrival; `raw` is the label that most ballots name."""
    if outcome == NO_QUORUM and rules.raw_labels:
        return (*seats, raw)
    if outcome < 0 and rules.shifting_seats:
        return seats
    return (*seats, max(outcome, NO_QUORUM))


class _Menu(NamedTuple):
    """What may be asked in phase 1."""

    challenge: Challenge
    queries: tuple[int, ...]
    script: tuple[Votes, ...] | None


def small_quorum(
    teachers: int,
    *,
    no_quorums: int,
    margin: int = 0,
    threshold_scale: float = 0.4,
    price: float = 2.0,
    levels: int = 3,
) -> Quorum:
    """Return a Quorum for so few teachers that all of its outcomes can be gone through; it costs what it costs."""
    order = 3.0
    table = build_table(order=order, price=price)[:levels]
    return Quorum(
        teachers=teachers,
        no_quorums=no_quorums,
        order=order,
        price=table_price(table, order=order),
        margin=margin,
        threshold_scale=threshold_scale,
        slack=gaussian_tail(threshold_scale, margin),
        table=table,
    )


def _gaussian_law(scale: float) -> tuple[NDArray[np.int64], Floats]:
    reach = math.ceil(8 * scale)
    values = np.arange(-reach, reach + 1)
    law = np.exp(-(values**2) / (2 * scale**2))
    return values, law / law.sum()
