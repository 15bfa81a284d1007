"""Choices among hypotheses and among cells of a quantile: their exact laws, and the games on them."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from quorate.auditing._enumeration import Outcomes
from quorate.auditing._laws import release_of
from quorate.auditing._plays import PlayNoise
from quorate.auditing._verdict import Effort, Verdict, game
from quorate.core.mechanisms import ExponentialChoice, PrivateQuantile, Relabel, SoftMajority
from quorate.models.concepts import Hypothesis, Tally, Thresholds

_RECORDS = 40
# Plays are drawn exactly, one at a time, in 50 to 300 us.
_MOST_CHOICES, _MOST_QUANTILES, _MOST_RELABELLED = 100_000, 100_000, 30_000
_RELABEL_ROWS, _INNER = 80, 0.25
_PLACES = (0.0, 1.0, 2.0)  # where the changed row may lie, the others being at one of them
_LEADS = 11  # by which one label of the others may lead: an odd number, as theirs is
_REACH = 12  # ranks on either side of the quantile at which values lie

Row = tuple[float, int]
Data = tuple[int, ...]  # how many values lie in each cell
World = tuple[np.ndarray, np.ndarray]


def choice_law(tally: Tally, rate: float | Fraction) -> dict[Hypothesis, float]:
    """Return the probability of each candidate of a tally, whose weight falls by e**-rate with each mistake.

    Candidates of one level have equal probabilities; one that is in the tally more than once has their sum.
    """
    weights: dict[Hypothesis, float] = {}
    fewest = int(np.flatnonzero(tally.counts)[0])  # taken off all, so that not all weights underflow
    for mistakes, count in enumerate(tally.counts.tolist()):
        for rank in range(count):
            chosen = tally.pick(mistakes, rank)
            weights[chosen] = weights.get(chosen, 0.0) + math.exp(-float(rate) * (mistakes - fewest))
    total = math.fsum(weights.values())
    return {chosen: weight / total for chosen, weight in weights.items()}


@game(ExponentialChoice)
def audit_choice(target: ExponentialChoice, effort: Effort) -> Verdict:
    """Choose between "all 0" and "all 1" on records of which one changes its label, and return the verdict.

    Every choice is drawn by the real code, one at a time, so there are at most a hundred thousand plays.
    """
    effort, noise = effort.limit_plays(_MOST_CHOICES), PlayNoise(effort.seed)
    rate, records = float(target.rate), max(_RECORDS, target.sensitivity)
    laws = [_choice_law(rate, zeros, records) for zeros in range(records + 1)]
    pairs = [(zeros, zeros + target.sensitivity) for zeros in range(records + 1 - target.sensitivity)]
    zeros, changed = effort.find_best_pair(pairs, laws.__getitem__, delta=0.0)
    first, second = (_choices(target, _tally(count, records), effort.plays, noise) for count in (zeros, changed))
    return effort.judge_plays(
        "ExponentialChoice",
        [(target.epsilon(), 0.0)],
        first,
        second,
        attack=f"{zeros} or {changed} of {records} records labelled 0, two candidates",
        not_tested="more than two candidates, several choices in a row, and candidates that depend on the records",
        exact=Outcomes.from_laws(laws[zeros], laws[changed]),
    )


@game(Relabel)
def audit_relabel(target: Relabel, effort: Effort) -> Verdict:
    """Relabel rows of which one is replaced, release a soft majority of the new labels, and return the verdict.

    The labels are not a release, so the game includes what is run on them, and the claim is the sum of both. All other
    rows are at one point, so that they get one label; the majority costs little and shows which. The changed row is on
    either side of them: there it decides how many hypotheses give them a label, and their weights.
    """
    effort, noise = effort.limit_plays(_MOST_RELABELLED), PlayNoise(effort.seed)
    inner = SoftMajority(teachers=_RELABEL_ROWS, epsilon_per_query=_INNER)

    @cache
    def law(row: Row, middle: float, lead: int) -> np.ndarray:
        return _relabelled_law(target, inner, *_relabel_world(target, row, middle, lead))

    pairs = [
        ((row, middle, lead), (other, middle, lead))
        for middle, lead in itertools.product(_PLACES[:2], range(-_LEADS, _LEADS + 1, 2))
        for row, other in itertools.combinations(itertools.product(_PLACES, (0, 1)), 2)
    ]
    worlds = effort.find_best_pair(pairs, lambda world: law(*world), delta=0.0)
    answers = []
    for world in worlds:
        X, labels = _relabel_world(target, *world)
        votes = np.array([_relabelled_votes(target, X, labels, noise) for _ in range(effort.plays)])
        answers.append(inner.draw_answers(votes, None, noise).labels)
    (row, middle, lead), (changed, _, _) = worlds
    return effort.judge_plays(
        "Relabel",
        [(target.epsilon(_INNER), 0.0)],
        *answers,
        attack=f"a row at {row[0]:g} of label {row[1]} or at {changed[0]:g} of label {changed[1]}, "
        f"{_RELABEL_ROWS - 1} others at {middle:g}, of which label {int(lead < 0)} has {abs(lead)} more, then a soft "
        f"majority of epsilon {_INNER}",
        not_tested="other classes of hypotheses, rows at many points, other mechanisms on the new labels, unlabelled "
        "rows; the term of relabelling is a worst case over all of them, and exact enumeration in the tests looks at "
        "more",
        exact=Outcomes.from_laws(*(law(*world) for world in worlds)),
    )


def _tally(zeros: int, records: int) -> Tally:
    labels = [0] * zeros + [1] * (records - zeros)
    return Thresholds().dichotomies([1.0]).tally([1.0] * records, labels)


def _choice_law(rate: float, zeros: int, records: int) -> np.ndarray:
    """Return the law of (all 0, all 1), which make `records - zeros` and `zeros` mistakes."""
    weights = np.exp(-rate * (np.array([records - zeros, zeros]) - min(zeros, records - zeros)))
    return np.asarray(weights / weights.sum())


def _choices(target: ExponentialChoice, tally: Tally, plays: int, noise: PlayNoise) -> np.ndarray:
    chosen = (target.draw_choice(tally, None, noise) for _ in range(plays))
    return np.array([hypothesis.cut < 1.0 for hypothesis in chosen], dtype=np.int64)  # type: ignore[attr-defined]


def _relabel_world(target: Relabel, row: Row, middle: float, lead: int) -> World:
    """Return the rows and labels: all others at one point, where label 0 is ahead by `lead`, and then this row."""
    unchanged, features = _RELABEL_ROWS - 1, target.concept.features or 1
    ones = (unchanged - lead) // 2
    X = np.full((_RELABEL_ROWS, features), middle)
    X[-1] = row[0]
    return X, np.array([0] * (unchanged - ones) + [1] * ones + [row[1]])


def _relabelled_law(target: Relabel, inner: SoftMajority, X: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the law of the majority's label: of every hypothesis that may be chosen, by its weight."""
    law, release = np.zeros(2), release_of(inner, classes=2)
    for chosen, share in choice_law(target.private_tally(X, labels, X[:0]), target.kappa / 2).items():
        ones = int((chosen.predict(X) == 1).sum())
        law += share * release.outcomes((len(X) - ones, ones))[:2, 0]
    return law


def _relabelled_votes(target: Relabel, X: np.ndarray, labels: Any, noise: PlayNoise) -> list[int]:
    relabelled = target.draw_relabelled(X, labels, X[:0], budget=None, unit=(1, 0), noise=noise)
    ones = int((relabelled.labels == 1).sum())
    return [len(labels) - ones, ones]


def quantile_law(quantile: PrivateQuantile, counts: Sequence[int]) -> np.ndarray:
    """Return the probability of each cell, by the distances of the mechanism and the rate of its choice."""
    distances = quantile.distances(np.asarray(counts))
    weights = np.exp(-float(quantile.choice.rate) * (distances - distances.min()))
    return np.asarray(weights / weights.sum())


@game(PrivateQuantile)
def audit_quantile(target: PrivateQuantile, effort: Effort) -> Verdict:
    """Release the quantile of values in three cells, of which one moves from the first to the last; judge the claim.

    The empty cells between them lie below the quantile: together they outweigh it, all of them lose by the move, and
    the last cell wins. Every release is drawn by the real code, so that plays end at a hundred thousand.
    """
    effort, noise = effort.limit_plays(_MOST_QUANTILES), PlayNoise(effort.seed)
    pairs = [
        (_spread(target, low, high, 0), _spread(target, low, high, 1))
        for low in range(max(1, target.rank - _REACH), target.rank + 1)
        for high in range(target.rank, min(target.rank + _REACH, target.units) + 1)
    ]
    worlds = effort.find_best_pair(pairs, lambda counts: quantile_law(target, counts), delta=0.0)
    first, second = (
        np.array([target.draw_cell(counts, None, noise) for _ in range(effort.plays)]) for counts in worlds
    )
    return effort.judge_plays(
        "PrivateQuantile",
        [(target.epsilon, 0.0)],
        first,
        second,
        attack=f"one of {target.units} values moved from the first cell to the last of {target.cells}",
        not_tested="other places of the values; exact enumeration in the tests tries all small data sets",
        exact=Outcomes.from_laws(*(quantile_law(target, counts) for counts in worlds)),
    )


def _spread(target: PrivateQuantile, low: int, high: int, moved: int) -> Data:
    """Return the values: `low` in the first cell, up to `high` before the last, and some moved from first to last."""
    counts = np.zeros(target.cells, dtype=np.int64)
    counts[0] += low - moved
    counts[max(target.cells - 2, 0)] += high - low
    counts[-1] += target.units - high + moved
    return tuple(counts.tolist())
