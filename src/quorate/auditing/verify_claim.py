"""Verify the privacy claim of a saved model with nothing but Python's standard library.

    python -I -S verify_claim.py FOLDER

It imports nothing of the library that wrote the folder: copy it anywhere. It prints VERIFIED (exit code 0), what is
wrong (1), or "not verified: ..." for a claim that it cannot recompute (3).

    files     every file that manifest.json lists is there and has its SHA-256; a published folder has no others
    claim     the cost of every release in claim.json is recomputed from its integers with directed rounding, composed,
              and compared with what claim.json, manifest.json and GUARANTEE.md state, and with the model's mechanisms
    ledger    every entry carries the keyed hash of itself and of the entry before it; the charges add up to the stored
              account, never exceed it, and are at least what the stored answers cost; it has come as far as its mark

Given: that the claim lists every release, that the program drew what it says, and that one unit moves each release by
no more than its sensitivity. A ledger proves this much to the holder of its key.

Notation: a is a Renyi order above 1, s the scale of discrete Gaussian noise, P(x) proportional to exp(-x^2 / (2 s^2)),
D the Renyi divergence at order a between the laws on two data sets that differ in one unit.
"""

import hashlib
import hmac
import itertools
import json
import math
import operator
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, Overflow
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

DOWN, UP = (Context(40, rounding, -20_000, 20_000) for rounding in (ROUND_FLOOR, ROUND_CEILING))  # of 40 digits
RARE = Decimal("1e-60")  # a probability below which outcomes are bounded together
RENYI_QUANTA, SLACK_QUANTA = 2**40, 2**100  # in one unit of divergence, and in a probability of one
WORD = 2**64  # the unit of the levels of a table
MOST_WORK = 600_000  # logarithms, exponentials and weights: some 15 seconds
NO_QUORUM = -1  # the label of a query without a quorum
OWN_CALLER = "online"  # whose rows in a ledger are state of the model and no answers
DAMAGE = (OSError, LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError, sqlite3.Error)
Fields = dict[str, Any]
Order = Fraction | None  # None: infinity
Pair = tuple[Fraction, Fraction]  # epsilon and delta
Box = tuple[int, int, int, int]  # the least x and y, and the numbers of them
Costs = dict[str, "Interval"]  # the divergence of each event that is charged
work_left = [MOST_WORK]


class Wrong(Exception):
    """The folder contradicts its claim."""


class NotVerified(Exception):
    """The claim cannot be recomputed here."""


def count_work(amount: int = 1) -> None:
    """Refuse a claim that takes too long: its numbers are those of whoever wrote it."""
    work_left[0] -= amount
    if work_left[0] < 0:
        raise NotVerified("this claim takes too long to recompute")


class Interval:
    """All numbers from `low` to `high`. Every operation rounds outwards."""

    def __init__(self, low: Decimal, high: Decimal) -> None:
        self.low, self.high = low, high

    def __add__(self, other: Any) -> "Interval":
        other = interval(other)
        return Interval(DOWN.add(self.low, other.low), UP.add(self.high, other.high))

    def __sub__(self, other: Any) -> "Interval":
        other = interval(other)
        return Interval(DOWN.subtract(self.low, other.high), UP.subtract(self.high, other.low))

    def __mul__(self, other: Any) -> "Interval":
        other = interval(other)
        ends = [(one, two) for one in (self.low, self.high) for two in (other.low, other.high)]
        return Interval(min(DOWN.multiply(*end) for end in ends), max(UP.multiply(*end) for end in ends))

    def __truediv__(self, other: Any) -> "Interval":
        other = interval(other)
        if other.low <= 0:
            raise NotVerified("a divisor is not seen to be above zero")
        ends = [(top, bottom) for top in (self.low, self.high) for bottom in (other.low, other.high)]
        return Interval(min(DOWN.divide(*end) for end in ends), max(UP.divide(*end) for end in ends))

    def top(self) -> Fraction:
        """Return the largest number."""
        return Fraction(self.high)


def interval(value: "Interval | Fraction | int") -> Interval:
    """Return the narrowest interval around an exact number."""
    if isinstance(value, Interval):
        return value
    ends = Decimal(value.numerator), Decimal(value.denominator)
    return Interval(DOWN.divide(*ends), UP.divide(*ends))


def root(value: Interval) -> Interval:
    """Return the square root. `decimal` rounds roots, logarithms and exponentials to the nearest number."""
    return Interval(DOWN.next_minus(DOWN.sqrt(max(value.low, Decimal(0)))), UP.next_plus(UP.sqrt(value.high)))


def log(value: "Interval | Fraction | int") -> Interval:
    """Return the natural logarithm."""
    count_work()
    value = interval(value)
    if value.low <= 0:
        raise NotVerified("the logarithm of a number that may be zero is needed")
    return Interval(DOWN.next_minus(DOWN.ln(value.low)), UP.next_plus(UP.ln(value.high)))


def exp(value: "Interval | Fraction | int") -> Interval:
    """Return the exponential."""
    count_work()
    value = interval(value)
    low, high = DOWN.next_minus(DOWN.exp(value.low)), UP.next_plus(UP.exp(value.high))
    return Interval(max(low, Decimal(0)), high)


PI = Interval(*(Decimal(f"3.14159265358979323846264338327950288419716939937510582097{end}") for end in (494, 495)))
NOTHING = Interval(Decimal(0), Decimal(0))


def epsilon_of(divergence: Interval, order: Fraction, delta: Fraction) -> Interval:
    """Return the epsilon of a divergence at an order (Canonne, Kamath and Steinke 2020, Proposition 12)."""
    return divergence + log(1 - 1 / order) - log(order * delta) / (order - 1)


def largest(costs: list[Interval]) -> Interval:
    """Return the interval with the largest upper end, at least 0."""
    return max([NOTHING, *costs], key=Interval.top)


def up_to(value: Interval) -> Interval:
    """Return all numbers from 0 to the largest of an interval."""
    return Interval(Decimal(0), value.high)


def gaussian_cost(order: Order, square: int, scale: Fraction) -> Interval:
    """Return D for discrete Gaussian noise and a shift by integers of this squared length: a S / (2 s^2)."""
    if order is None or square < 1:
        raise Wrong("Gaussian noise needs a finite order, and a release that a unit moves")
    return interval(order * square / (2 * scale * scale))


def divergence(order: Order, one: tuple[Interval, ...], two: tuple[Interval, ...]) -> Interval:
    """Return D of two laws on the same outcomes, given as the logarithms of their probabilities."""
    if order is None:
        return largest([p - q for p, q in zip(one, two, strict=True)])
    terms = [exp(p * order - q * (order - 1)) for p, q in zip(one, two, strict=True)]
    return log(sum(terms, NOTHING)) / (order - 1)


def pure_cost(order: Order, epsilon: Interval) -> Interval:
    """Return D of randomised response, the largest where log ratios are at most epsilon."""
    likely = NOTHING - log(exp(NOTHING - epsilon) + 1)
    response = (likely, likely - epsilon)
    return epsilon if order is None else divergence(order, response, response[::-1])


def exponential_cost(order: Order, epsilon: Fraction) -> Interval:
    """Return D where log ratios span at most epsilon: a eps^2 / 8, and no more than randomised response."""
    pure = pure_cost(order, interval(epsilon))
    return pure if order is None else min(interval(order * epsilon * epsilon / 8), pure, key=Interval.top)


def gaussian_weights(scale: Fraction, radius: int) -> tuple[list[Interval], Interval]:
    """Return exp(-k^2 / (2 s^2)) for k from 0 to the radius, and the sum from there on, below a geometric series."""
    count_work(radius)
    step, ratio = exp(-1 / (scale * scale)), exp(-1 / (2 * scale * scale))
    weights = [interval(1)]
    for _ in range(radius):  # each ratio is the one before times exp(-1 / s^2)
        weights.append(weights[-1] * ratio)
        ratio = ratio * step
    return weights, up_to(weights[-1] / (interval(1) - exp(-radius / (scale * scale))))


def gaussian_tail(scale: Fraction, margin: int) -> Interval:
    """Return a bound on P(x > margin). The normaliser is at least s sqrt(2 pi), by Poisson summation, or five terms."""
    weight = exp(-Fraction((margin + 1) ** 2) / (2 * scale * scale))
    if margin < 0 or scale > 2**16:  # the law is sub-Gaussian
        return interval(1) if margin < 0 else weight
    ratio, step, total = exp(-Fraction(2 * margin + 3) / (2 * scale * scale)), exp(-1 / (scale * scale)), NOTHING
    while weight.high > DOWN.multiply(total.low, Decimal("1e-20")):
        count_work()
        total, weight, ratio = total + weight, weight * ratio, ratio * step
    five = (exp(-1 / (2 * scale * scale)) + exp(-2 / (scale * scale))) * 2 + 1
    return (total + up_to(weight / (interval(1) - ratio))) / largest([root(PI * 2) * scale, five])


def integers(value: Any, *, least: int = 0) -> list[int]:
    """Return a list of integers, none of which is below the least."""
    if not isinstance(value, list) or not value or any(type(part) is not int or part < least for part in value):
        raise Wrong(f"{str(value)[:40]} is not a list of integers from {least} on")
    return value


def integer(value: Any, *, least: int = 0) -> int:
    """Return an integer that is not below the least."""
    return integers([value], least=least)[0]


def positive(value: Any) -> Fraction:
    """Return a pair of positive integers as a fraction."""
    return Fraction(*integers(value, least=1))


def rare_moment(order: Fraction, square: Fraction, rare: Interval) -> Interval:
    """Return a bound on the sum of p^a q^(1-a) over outcomes of Gaussian noise that have at most this q together.

    S is the squared length of the shift over the variance. By Hoelder's inequality it is at most q^(1 - 1/m) times
    exp(a (a m - 1) S / 2), for every m, as E_Q[(P/Q)^c] <= exp(c (c - 1) S / 2).
    """
    powers = [log(rare) * (1 - Fraction(1, m)) + order * (m * order - 1) * square / 2 for m in (2, 4, 8, 16, 32)]
    return exp(min(powers, key=Interval.top))


class Winner:
    """The winner of a, b and the best other count, by noise that is cut off; probabilities are over `whole`.

    With noises z, w the first wins where z + x >= 1 and w + y <= z + x, and the second where w + y >= 1 and
    z + x < w + y. A ballot that moves from a to b changes (x, y) to (x + 1, y - 1), or back.
    """

    def __init__(self, order: Fraction, scale: Fraction, radius: int) -> None:
        half = [int(DOWN.scaleb(weight.low, 50)) for weight in gaussian_weights(scale, radius)[0]]
        self.order, self.radius, self.law = order, radius, half[:0:-1] + half
        below = list(itertools.accumulate(self.law))
        self.whole, self.start = below[-1] ** 2, 6 * radius
        self.below = [0] * self.start + below + [below[-1]] * self.start
        self.sums, self.growth = lru_cache(256)(self.sums_of), lru_cache(None)(self.growth_of)

    def sums_of(self, lead: int) -> list[int]:
        """Return P(noise = z, other noise <= z + lead), summed over z from the radius down."""
        count_work(self.radius // 150)
        cut = self.below[self.start + lead : self.start + lead + len(self.law)]
        return list(itertools.accumulate(map(operator.mul, reversed(self.law), reversed(cut))))

    def wins(self, lead: int, first: int) -> int:
        """Return the probability of noise of at least `first` that is ahead of the other by this lead."""
        return 0 if first > self.radius else self.sums(lead)[min(self.radius - first, 2 * self.radius)]

    def neither(self, x: int, y: int) -> int:
        """Return the probability that another count wins."""
        return self.below[self.start + self.radius - x] * self.below[self.start + self.radius - y]

    def law_at(self, x: int, y: int) -> tuple[int, int, int]:
        """Return the probabilities that a, b and another win."""
        return self.wins(x - y, 1 - x), self.wins(y - x - 1, 1 - y), self.neither(x, y)

    def growth_of(self, place: int) -> int:
        """Return phi(r) = r^a - 1 - a (r - 1) at r = 1 + place / 10^20, in units of 10^-40, rounded up."""
        more = Fraction(max(place, -(10**20)), 10**20)
        power = exp(log(1 + more) * self.order) if more > -1 else NOTHING
        return math.ceil((power - 1 - interval(more * self.order)).top() * 10**40)

    def excess(self, p: int, q: int, bits: int) -> int:
        """Return phi(p / q), by a chord of the convex phi that is as short as these bits of r - 1 say."""
        place = (p - q) * 10**20 // q
        place += place >= 0  # rounded away from 0
        step = 1 << max(abs(place).bit_length() - bits, 0)
        start = place // step * step
        low, high = self.growth(start), self.growth(start + step)
        return low + -((low - high) * (place - start) // step)

    def moment(self, box: Box, rare: int, bits: int) -> int:
        """Return a bound on the larger moment, above 1, over a box of offsets whose least corner is (x, y).

        Each ratio p/q grows with x and falls with y, and so does P(a wins); P(b wins) does the opposite, and P(neither)
        falls with both (the law is log-concave). What has less than `rare` is bounded elsewhere.
        """
        x, y, wide, high = box
        near = self.law_at(x, y + high - 1), self.law_at(x + 1, y + high - 2)
        far = self.law_at(x + wide - 1, y), self.law_at(x + wide, y - 1)
        totals = []
        for here, there in ((0, 1), (1, 0)):
            most = far[there][0], near[there][1], self.neither(x + there, y - there)
            total = 0
            for i in (i for i in range(3) if most[i] > rare):
                ends = [(near[here][i], near[there][i]), (far[here][i], far[there][i])]
                if any(q == 0 for _, q in ends):
                    return 10**40 * self.whole
                total += most[i] * max(self.excess(p, q, bits) for p, q in ends)
            totals.append(total)
        return max(totals)

    def covers(self, boxes: list[Box], limit: Interval, rare: Interval) -> bool:
        """Return whether no moment in these boxes is above a limit. A box is cut where its bound is."""
        boxes = sorted(boxes, key=lambda box: box[0] - box[1])  # those that need the same sums, one after the other
        most = int(Fraction(limit.low) * (1 - Fraction(1, 2**40)) * 10**40) * self.whole
        least = int(rare.top() * self.whole)
        while boxes:
            x, y, wide, high = box = boxes.pop()
            count_work(2)
            if self.moment(box, least, 10) > most and (wide + high > 2 or self.moment(box, least, 40) > most):
                if wide + high == 2:
                    return False
                halves = [[(0, (size + 1) // 2), ((size + 1) // 2, size // 2)] for size in (wide, high)]
                boxes += [(x + i, y + j, w, h) for (i, w), (j, h) in itertools.product(*halves) if w and h]
        return True


def winner_cost(order: Order, scale: Fraction, classes: int, price: list[int]) -> Interval:
    """Return the price of the winner of noisy counts, where one ballot moves two of them by 1, if it covers D.

    Given the other counts and their noise, only the offsets x and y of two of them from the best other count matter.
    Noise beyond the radius r has probability t <= 4 exp(-(r - 1)^2 / (2 s^2)) on both sides. Outcomes below sqrt(t), at
    most two, and all beyond the radius add 3 `rare_moment`; the others move by a factor of at most 1 - sqrt(t). With
    two classes y is so large that no other wins, and swapping a and b makes the first lead at least -1. With more, the
    same law serves where x and y are large: another wins with at most h^2, h = P(noise > least of x and y), and then a,
    or b, has at most a share h of what it has (association); elsewhere all offsets are searched.
    """
    plain, paid = gaussian_cost(order, 2, scale), Fraction(price[0], RENYI_QUANTA)
    square, reach, left_out = 2 / (scale * scale), 8, interval(1)
    if paid >= plain.top() or order is None:
        return plain
    while left_out.top() > paid / 2**30 and reach < 40:
        reach, radius = reach + 1, math.ceil((reach + 1) * scale) + 2
        rare = exp(-Fraction((radius - 1) ** 2) / (4 * scale * scale)) * 2
        left_out = rare_moment(order, square, rare) * 3
    law, moment = Winner(order, scale, radius), exp((order - 1) * paid) - left_out

    def is_covered(boxes: list[Box], hidden: Interval) -> bool:
        most = (moment - rare_moment(order, square, hidden)) * exp(log(interval(1) - hidden - rare * 2) * (order - 1))
        return law.covers(boxes, most - 1 - rare * (order - 1) * 2, rare)

    side, last, near = max(1, round(scale / 2)), 3 * radius + 2, radius + 1
    line = [(x, radius + 2, side, 1) for x in range(radius + 1, last, side)]
    if classes > 2:
        starts, hidden = range(-radius - 2, last, side), gaussian_tail(scale, 5 * math.ceil(scale))
        near = 5 * math.ceil(scale) + 2 if is_covered(line, hidden) else near
        line = [(x, y, side, side) for x in starts for y in starts if min(x, y) <= near]
    if not is_covered(line, rare):
        raise Wrong("a noisy maximum costs more than its price")
    return interval(paid)


def passing_coins(numbers: Fields) -> list[Any]:
    """Return log P(u + noise > threshold) and log of 1 minus that, for all values u of the largest count."""
    scale, teachers = positive(numbers["test_scale"]), integer(numbers["teachers"], least=1)
    weights, rest = gaussian_weights(scale, math.ceil(19 * scale) + 2)
    tails = list(itertools.accumulate(reversed(weights[1:]), Interval.__add__, initial=rest))[::-1]  # from k + 1 on
    total = tails[0] * 2 + 1
    coins: list[Any] = []
    for largest_count in range(-(-teachers // integer(numbers["classes"], least=2)), teachers + 1):
        needed = integer(numbers["threshold"], least=-(2**62)) + 1 - largest_count
        tail = tails[min(max(needed, 1 - needed), len(tails)) - 1] / total
        pair = [log(part) if part.low > RARE else None for part in (tail, interval(1) - tail)]
        coins.append(pair if needed >= 1 else pair[::-1])
    return coins


def test_cost(numbers: Fields, order: Fraction) -> Interval:
    """Return the cost of a test of the largest count: a coin for each of its values, which a ballot moves by 1.

    Where an outcome is rare on one side, it has at most b = exp(S / 2) mass^(1/2) on the other (Cauchy and Schwarz).
    """
    coins, square = passing_coins(numbers), 1 / positive(numbers["test_scale"]) ** 2
    rare = exp(square / 2) * root(interval(Fraction(RARE) * 2))
    common = exp(log(interval(1) - rare) * (1 - order))
    costs = [log(common + rare_moment(order, square, rare)) / (order - 1)]
    for step in itertools.pairwise(coins):
        if None not in (*step[0], *step[1]):
            costs += [divergence(order, *pair) for pair in (step, step[::-1])]
    return largest(costs)


def confident_max_costs(numbers: Fields, order: Order) -> Costs:
    """Return the cost of a test, and of the winner that is drawn where it passes."""
    if numbers["charge"] != "split" or order is None:
        raise NotVerified("a test and its winner are verified if they are charged apart, at a finite order")
    classes, price = integer(numbers["classes"], least=2), integers(numbers["charges"]["answer"]["price"])
    winner = winner_cost(order, positive(numbers["winner_scale"]), classes, price)
    return {"query": test_cost(numbers, order), "answer": winner}


def log_coins(levels: list[int]) -> list[Any]:
    """Return log p and log(1 - p) for levels p in units of 2**-64; None for the logarithm of 0."""
    if max(levels) > WORD:
        raise Wrong("a level of a table is above 1")
    return [tuple(log(Fraction(part, WORD)) if part > 0 else None for part in (one, WORD - one)) for one in levels]


def sharp_cost(order: Order, teachers: int, table: list[int]) -> Interval:
    """Return D of one answer by a table of the probabilities of the wrong label, by lead: the worst single ballot."""
    if teachers % 2 == 0 and 2 * table[0] != WORD:
        raise Wrong("the table of a majority must start at one half where a tie is possible")
    coins = log_coins(table if teachers % 2 == 0 else [WORD - table[0], *table])
    steps = [pair for step in itertools.pairwise(coins) for pair in (step, step[::-1])]
    return largest([divergence(order, *pair) for pair in steps])


def no_quorum_cost(order: Order, table: list[int]) -> Interval:
    """Return (log(p^a q^(1-a)) - log(1 - (1-p)^a (1-q)^(1-a))) / (a - 1) for the worst consecutive levels p and q."""
    if order is None or table[0] != WORD or table[-1] < 1:
        raise Wrong("a table of no-quorums must fall from 1 to a positive level, and needs a finite order")
    costs = []
    for (p, p_not), (q, q_not) in itertools.pairwise(log_coins(table)):
        answers = NOTHING if p_not is None else exp(p_not * order - q_not * (order - 1))
        costs.append(p * order - q * (order - 1) - log(interval(1) - answers))
    return largest(costs) / (order - 1)


def run_costs(numbers: Fields, order: Order) -> Costs:
    """Return the costs of a run by a table: the noise of its threshold once, and each no-quorum."""
    opening = gaussian_cost(order, 1, positive(numbers["threshold_scale"]))
    return {"opening": opening, "no quorum": no_quorum_cost(order, integers(numbers["table"]))}


def band_costs(numbers: Fields, order: Order) -> Costs:
    """Return the costs of a run between two thresholds with Laplace noise of scale b on each query.

    No quorum has probability p where the noise is in a band [l, u]; on the other data set, in [l + 1 - d, u - 1 - d]
    for a move d of the votes. The price is that of `no_quorum_cost`, with both answers; it falls as the band grows, and
    as it moves into a tail: the narrowest band is tried, from -2 - half of its width up to 3.
    """
    if numbers["calibration"] != "tight" or order is None:
        raise NotVerified("a threshold that is drawn anew after each no-quorum is not verified here")
    width = 2 * (integer(numbers["margin"]) - integer(numbers["cap"])) + 1 - integer(numbers["teachers"]) % 2
    if width < 7:
        raise Wrong("the band between the thresholds must have seven integers")
    decay, costs = exp(-1 / positive(numbers["query_scale"])), []
    count_work(20 * width)
    powers = list(itertools.accumulate([decay] * (2 * width + 8), Interval.__mul__, initial=interval(1)))

    def above(least: int) -> Interval:
        tail = powers[max(least, 1 - least)] / (decay + 1)
        return tail if least > 0 else interval(1) - tail

    for low, move in itertools.product(range(-(width // 2) - 2, 4), (-1, 0, 1)):
        high = low + width - 1
        tails = (above(1 - low), above(-low - move)), (above(high + 1), above(high + move))
        p, q = (log(interval(1) - one - two) for one, two in zip(*tails, strict=True))
        answers = [exp(log(one) * order - log(two) * (order - 1)) for one, two in tails]
        costs.append(p * order - q * (order - 1) - log(interval(1) - answers[0] - answers[1]))
    opening = gaussian_cost(order, 1, positive(numbers["threshold_scale"]))
    return {"opening": opening, "no quorum": largest(costs) / (order - 1)}


def epoch_costs(numbers: Fields, order: Order) -> Costs:
    """Return the cost of each epoch of a stability test: its threshold moves by 1, and one distance by 1 more."""
    epsilon = 1 / positive(numbers["threshold_scale"]) + 2 / positive(numbers["query_scale"])
    return dict.fromkeys(("opening", "no quorum"), pure_cost(order, interval(epsilon)))


def laplace_tail(numbers: Fields) -> Interval:
    """Return P(X - Y > w) for the discrete Laplace noises of a query and of a threshold, by the value of Y."""
    margin, one, first = integer(numbers["margin"]), interval(1), positive(numbers["query_scale"])
    f, s = exp(-1 / first), exp(-1 / positive(numbers["threshold_scale"]))
    apart, power, between = one - f * s, one, NOTHING
    count_work(margin)
    for _ in range(margin):  # Y = -1, ..., -w
        power = power * s
        between = (between + power) * f
    above = exp(-(margin + 1) / first) / apart + between
    below = power * s / (one - s) - power * s * f / ((f + 1) * apart)
    return (above / (f + 1) + below) * (one - s) / (s + 1)


def relabel_cost(numbers: Fields) -> Interval:
    """Return log F for an answer by relabelled units, F = (1 + 4^r e^(3 (t + 1) / c) q / (1 - q)) e^(3 / c).

    A share q of the units is secret. What is missed, with probability at most growth^2 / 2 (1 - m / N)^(t + 1), is
    covered by turning the label: any larger F needs less of that, and the price pays for one.
    """
    units, subset = (integer(numbers[name], least=2) for name in ("units", "subset"))
    scale, further, missed = positive(numbers["scale"]), integer(numbers["reach"]) + 1, integer(numbers["growth"]) ** 2
    grown = exp(3 * further / scale) * 4 ** integer(numbers["rows"], least=1) * Fraction(subset, units - subset)
    cost = log(grown + 1) + 3 / scale
    misses = exp(log(1 - Fraction(subset - 1, units - 1)) * further) * Fraction(missed, 2)
    rest = Interval(Decimal(0), min(misses.high, Decimal(1))) * Fraction(subset, units)
    paid = exp(Fraction(integer(numbers["charges"]["query"]["price"][0]), RENYI_QUANTA))
    if (rest / (paid - 1 + rest * 2)).top() > positive(numbers["flip_probability"]):
        raise Wrong("labels are turned too rarely for what a sample misses")
    return cost


def cutoff_loss(numbers: Fields) -> Interval:
    """Return the cost of hiding one no-quorum from the end of a phase, by geometric noise."""
    loss = log(1 / Fraction(integer(numbers["ratio"], least=1), WORD))
    if (loss + Fraction(1, 2**40)).top() < positive(numbers["epsilon"]):
        raise Wrong("the ratio of the cutoff is not that of its epsilon")
    return loss


def stable_law(numbers: Fields) -> tuple[Interval, Interval]:
    """Return how far the law of a hypothesis moves, and the log ratio of its label, turned with probability t.

    A secret share of the units defines the candidates; the choice among them has log ratios of at most epsilon. So the
    law moves by share + (1 - share) tanh(epsilon / 4), and a label's ratio is at most 1 + (1 - 2 t) moved / t; it is
    also at most e^epsilon or 1 + (1 - 2 t) share / t.
    """
    share = Fraction(integer(numbers["subset"], least=1), integer(numbers["units"], least=1))
    epsilon, turned = positive(numbers["epsilon"]), positive(numbers.get("turned", [1, 2]))
    if 2 * turned > 1:
        raise Wrong("a label is turned at most half of the time")
    odds, moved = (1 - 2 * turned) / turned, interval(1) - interval(2) / (exp(epsilon / 2) + 1)
    moved, parts = moved * (1 - share) + share, largest([interval(epsilon), log(1 + odds * share)])
    return moved, min(log(moved * odds + 1), parts, key=Interval.top)


MECHANISMS: dict[str, Callable[[Fields, Order], Costs]] = {  # for each event that is charged: what it costs
    "NoisyMax": lambda m, a: {
        "query": winner_cost(a, positive(m["scale"]), integer(m["classes"], least=2), m["charges"]["query"]["price"])
    },
    "NoisyShares": lambda m, a: {"query": gaussian_cost(a, 1 if m["classes"] == 2 else 2, positive(m["scale"]))},
    "NoisySum": lambda m, a: {"measurement": gaussian_cost(a, integer(m["sensitivity"]) ** 2, positive(m["scale"]))},
    "SoftMajority": lambda m, a: {"query": exponential_cost(a, positive(m["epsilon_per_query"]))},
    "SharpMajority": lambda m, a: {"query": sharp_cost(a, integer(m["teachers"]), integers(m["table"]))},
    "PureStable": lambda m, a: {"query": stable_law(m)[1]},
    "NoisyCutoff": lambda m, a: {"phase": cutoff_loss(m)},
    "ConfidentMax": confident_max_costs,
    "Quorum": run_costs,
    "Dissent": run_costs,
    "AboveThreshold": run_costs,
    "BetweenThresholds": band_costs,
    "StabilityTest": epoch_costs,
    "PureRelabelling": lambda m, a: {"query": relabel_cost(m)},
}
TAILS: dict[tuple[str, str], Callable[[Fields], Interval]] = {  # the probability of the tail event, where there is one
    ("Quorum", "opening"): lambda m: gaussian_tail(positive(m["threshold_scale"]), integer(m["margin"], least=-WORD)),
    ("BetweenThresholds", "opening"): lambda m: gaussian_tail(positive(m["threshold_scale"]), integer(m["cap"])),
    **dict.fromkeys((("StabilityTest", "opening"), ("StabilityTest", "no quorum")), laplace_tail),
    ("NoisyCutoff", "phase"): lambda m: exp(cutoff_loss(m) * -integer(m["spread"], least=1)),
}


def stated(part: Fields) -> Pair:
    """Return the epsilon and delta that a part states."""
    epsilon, delta = (Fraction(*integers(part[name])) for name in ("epsilon", "delta"))
    if delta >= 1 or epsilon + delta == 0:
        raise Wrong("delta must be below 1, and epsilon or delta above 0")
    return epsilon, delta


def check_part(part: Fields, seen: list[Fields]) -> Pair:
    """Return the epsilon and delta of a part of a claim once it is seen to keep them, or raise what is wrong."""
    if part["rule"] not in RULES:
        raise NotVerified(str(part.get("reason", f"the rule {part['rule']!r} is not known here")))
    seen.append(part)
    found, claimed = RULES[part["rule"]](part, seen), stated(part)
    if found[0] > claimed[0] or found[1] > claimed[1]:
        raise Wrong(f"a part costs up to {tuple(map(float, found))}, and it claims {tuple(map(float, claimed))}")
    return claimed


def shared(part: Fields, seen: list[Fields]) -> Pair:
    """Return what an account holds on which models draw, whose own folders say what each costs."""
    capacity, slack = integers(part["capacity"])
    return Fraction(capacity, RENYI_QUANTA), Fraction(slack, SLACK_QUANTA)


def add_up(part: Fields, seen: list[Fields]) -> Pair:
    """Return what several parts about the same units cost together."""
    epsilons, deltas = zip(*[check_part(one, seen) for one in part["parts"]], strict=True)
    return sum(epsilons, Fraction(0)), sum(deltas, Fraction(0))


def group(part: Fields, seen: list[Fields]) -> Pair:
    """Return what a claim about one row says of r rows: r eps, and delta (1 + e^eps + ... + e^((r-1) eps))."""
    rows, (epsilon, delta) = integer(part["rows"], least=1), check_part(part["part"], seen)
    return rows * epsilon, ((exp(rows * epsilon) - 1) / (exp(epsilon) - 1) * delta).top() if delta else delta


def amplified(epsilon: Interval, delta: Fraction, share: Fraction) -> Pair:
    """Return (log(1 + q (e^eps - 1)), q delta) for a share q without replacement (Balle, Barthe and Gaboardi 2018)."""
    return log((exp(epsilon) - 1) * share + 1).top(), share * delta


def sample(part: Fields, seen: list[Fields]) -> Pair:
    """Return what a mechanism costs that runs on a secret share q of the units, relabelled by a private choice.

    Relabelling adds r 2 log(1 + e^(kappa/2)) for a unit of r rows (Nandi and Bassily 2020, our constants).
    """
    numbers, (epsilon, delta) = part["numbers"], check_part(part["part"], seen)
    share = Fraction(integer(numbers["sampled"], least=1), integer(numbers["units"], least=1))
    relabelled = log(exp(positive(numbers["kappa"]) / 2) + 1) * (2 * integer(numbers["rows"], least=1)) + epsilon
    return amplified(relabelled, delta, share)


def boost(part: Fields, seen: list[Fields]) -> Pair:
    """Return what the votes of one phase cost a record, or a point, whose sample is relabelled by a labelled share.

    A labelled row pays log(1 + q ((1 + e^(kappa/2))^2 - 1)) for the choice of labels, and a point log 4 more.
    """
    numbers, (epsilon, delta) = part["numbers"], check_part(part["part"], seen)
    both = log(exp(positive(numbers["kappa"]) / 2) + 1) * 2
    relabelled = interval(amplified(both, Fraction(0), positive(numbers["labelled"]))[0]) + epsilon
    if part["of"] == "points":
        return amplified(relabelled + log(4), delta, positive(numbers["points"]))
    return amplified(relabelled, delta, positive(numbers["records"]))


def cutoff(part: Fields, seen: list[Fields]) -> Pair:
    """Return what a unit pays that the end of a phase hides, and nothing else."""
    [mechanism] = part["mechanisms"]
    return cutoff_loss(mechanism).top(), TAILS["NoisyCutoff", "phase"](mechanism).top()


def neighbours(part: Fields, seen: list[Fields]) -> Pair:
    """Return what votes cost whose squares a ledger keeps within a unit's capacity; replacing a unit changes two's."""
    numbers, (epsilon, _), times = part["numbers"], stated(part), 1 if part["ledger"] else 2
    square = integer(numbers["capacity"]) + integer(numbers["reports"]) * integer(numbers["reported"], least=1) ** 2
    square *= integer(numbers["replacement"], least=1) if times == 2 else 1
    entries = times * integer(numbers["entries"], least=1)
    return epsilon, gaussian_delta([(1, square, positive(numbers["scale"]), entries)], epsilon)


def releases(part: Fields, seen: list[Fields]) -> Pair:
    """Check releases that are all that a budget ever paid for."""
    is_laplace = any(one["mechanism"].endswith("laplace") for one in part["releases"])
    return laplace_releases(part) if is_laplace else other_releases(part)


def other_releases(part: Fields) -> Pair:
    """Check choices and Gaussian releases, by the tightest of three bounds."""
    (epsilon, delta), choices = stated(part), exponential_releases(part)
    gaussian, slack = gaussian_releases(part)
    pure = sum((uses * loss for uses, loss in choices), Fraction(0))
    if not gaussian and choices and (pure <= epsilon or delta == 0):
        return pure, Fraction(0)
    if delta <= slack or part["order"] is None:
        raise Wrong("Gaussian releases need a delta above that of their tail events, and a finite order")
    order, lost = positive(part["order"]), (NOTHING - log(1 - slack)).top()
    costs = [gaussian_cost(order, uses * square, scale) for uses, square, scale, _ in gaussian]
    costs += [exponential_cost(order, loss) * uses for uses, loss in choices]
    found = epsilon_of(sum(costs, NOTHING), order, delta - slack).top() + lost
    if found > epsilon > lost and not choices:
        return epsilon, gaussian_delta(gaussian, epsilon - lost) + slack
    return found, delta


def exponential_releases(part: Fields) -> list[tuple[int, Fraction]]:
    """Return the uses of each choice of probability proportional to exp(-rate * score), and its epsilon."""
    choices = [release for release in part["releases"] if release["mechanism"] == "exponential"]
    if not part["releases"] or (choices and "weights" in part):
        raise Wrong("the claim lists no release, or a choice from a table that grows")
    losses = [2 * positive(one["rate"]) * integer(one["sensitivity"], least=1) for one in choices]
    return [(integer(one["uses"], least=1), loss) for one, loss in zip(choices, losses, strict=True)]


def laplace_releases(part: Fields) -> Pair:
    """Return the epsilon of all numbers with discrete Laplace noise, and the probability of their tail events.

    A unit moves numbers by absolute values of this sum. Of keys that it alone has, each passes if its noise is more
    than `above`: with r = exp(-1 / scale), with probability r^(above + 1) / (1 + r).
    """
    epsilon, slack = Fraction(0), Fraction(0)
    for release in part["releases"]:
        uses, scale, name = integer(release["uses"], least=1), positive(release["scale"]), release["mechanism"]
        if "weights" in part or name not in ("discrete laplace", "thresholded laplace"):
            raise NotVerified(f"the cost of {name!r} beside Laplace releases or of a table that grows is not added up")
        epsilon += uses * integer(release["sensitivity"], least=1) / scale
        if name == "thresholded laplace":
            passes = exp(-(integer(release["above"]) + 1) / scale) / (exp(-1 / scale) + 1)
            passed = integer(release["keys"], least=1) * passes.top()
            slack += uses * passed
            epsilon += uses * (NOTHING - log(1 - passed)).top()
    return epsilon, slack


def gaussian_releases(part: Fields) -> tuple[list[Any], Fraction]:
    """Return (uses, squared length, scale, entries) of each release, and the probability of their tail events.

    Row t of the weights of a growing table is about what is measured after update t. One update may have all rows.
    """
    weights, gaussian, slack = [integers(row) for row in part.get("weights", [[1]])], [], Fraction(0)
    longest = max(sum(one * one for one in column) for column in zip(*weights, strict=True))
    longest *= integer(part.get("rows", 1), least=1) ** 2
    for release in (one for one in part["releases"] if one["mechanism"] != "exponential"):
        uses, scale, name = integer(release["uses"], least=1), positive(release["scale"]), release["mechanism"]
        square, entries = integer(release["squared_sensitivity"], least=1), integer(release["entries"], least=1)
        gaussian.append((uses, square * longest, scale, entries * len(weights)))
        if name == "thresholded gaussian" and "weights" not in part:  # keys that one unit alone has, if they pass
            passed = gaussian_tail(scale, integer(release["above"])).top()
            slack += uses * integer(release["keys"], least=1) * passed
        elif name != "discrete gaussian":
            raise NotVerified(f"the cost of {name!r} is not recomputed here")
    return gaussian, slack


def gaussian_delta(releases: list[Any], epsilon: Fraction) -> Fraction:
    """Return a bound on delta at epsilon of adaptively chosen Gaussian releases.

    Up to factors within [1 - eta, 1 + eta], discrete noise of variance s^2 is continuous noise of variance s^2 - t^2,
    rounded at random (Poisson summation), with t^2 = 25/16 and eta = 2.0001 exp(-2 pi^2 t^2). Continuous releases of
    total squared length mu^2 have delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) (Balle and Wang 2018, Theorem
    8), also if each is chosen by those before. Each of n entries that a unit changes adds 4 eta to eps and log delta.
    """
    square, changed, variance = Fraction(0), 0, Fraction(25, 16)
    for uses, sensitivity, scale, entries in releases:
        if scale * scale <= variance:
            raise Wrong("the noise of a release is too small for its epsilon and delta")
        square += uses * sensitivity / (scale * scale - variance)
        changed += uses * min(entries, sensitivity)
    loss = (exp(NOTHING - PI * PI * (2 * variance)) * Fraction(20001, 10000) * (4 * changed)).top()
    if loss >= epsilon:
        raise Wrong("the releases have too many entries for their epsilon")
    rest, mu = epsilon - loss, root(interval(square)).top()
    near, far = rest / mu - mu / 2, rest / mu + mu / 2
    density = exp(-near * near / 2) / root(PI * 2)  # at `near`, and e^eps times that at `far`
    delta = (density * mills(near) if near >= 0 else interval(1) - density * mills(-near)) - density * mills(far)
    return (up_to(largest([delta])) * exp(loss)).top()


def mills(point: Fraction) -> Interval:
    """Return P(Z > x) / phi(x): 1 / (2 phi(x)) - (x + x^3/3 + x^5/15 + ...), or 1 / (x + 1 / (x + 2 / (x + ...)))."""
    x = term = interval(point)
    total, odd = NOTHING, 1
    if point > 4:  # the ends of the fraction are by turns above and below it
        ends = [x, x + interval(80) / x]
        for k in range(79, 0, -1):
            ends = [x + interval(k) / end for end in ends]
        return interval(1) / Interval(min(end.low for end in ends), max(end.high for end in ends))
    while term.high > Decimal("1e-40"):  # beyond, each term is below half of the one before
        total, odd = total + term, odd + 2
        term = term * x * x / odd
    return root(PI * 2) * exp(point * point / 2) / 2 - (total + up_to(term * 2))


def account(part: Fields, seen: list[Fields]) -> Pair:
    """Check a budget at one order: what its capacity is worth, and that every price covers the cost of its event."""
    order = None if part["order"] is None else positive(part["order"])
    (_, delta), (capacity, slack) = stated(part), integers(part["capacity"])
    rest, spent = delta - Fraction(slack, SLACK_QUANTA), [0, 0]
    if rest < 0 or not part["mechanisms"]:
        raise Wrong("an account needs mechanisms, and a delta above its slack")
    for mechanism in part["mechanisms"]:
        for event, price in prices_of(mechanism, order).items():
            uses = 0 if part["ledger"] else integer(mechanism["charges"][event]["uses"])
            spent = [total + uses * quanta for total, quanta in zip(spent, price, strict=True)]
    if spent[0] > capacity or spent[1] > slack:
        raise Wrong("the uses that the claim lists cost more than the account has")
    worth = Fraction(capacity, RENYI_QUANTA)
    return (worth if order is None else epsilon_of(interval(worth), order, rest).top()), delta


def prices_of(mechanism: Fields, order: Order) -> dict[str, list[int]]:
    """Return the price in quanta of each event that a mechanism charges, once it is seen to cover its cost."""
    name, charges = mechanism["name"], mechanism["charges"]
    if name not in MECHANISMS:
        raise NotVerified(f"the cost of {name} is not recomputed here")
    costs, prices = MECHANISMS[name](mechanism, order), {}
    if set(charges) != set(costs):
        raise Wrong(f"{name} charges for {', '.join(costs)}, and the claim for {', '.join(charges)}")
    for event, cost in costs.items():
        tail = TAILS[name, event](mechanism) if (name, event) in TAILS else NOTHING
        prices[event] = integers(charges[event]["price"])
        if cost.top() * RENYI_QUANTA > prices[event][0] or tail.top() * SLACK_QUANTA > prices[event][1]:
            raise Wrong(f"the {event} of {name} costs more than its price")
    return prices


RULES: dict[str, Callable[[Fields, list[Fields]], Pair]] = {
    "releases": releases,
    "account": account,
    "shared": shared,
    "sum": add_up,
    "group": group,
    "sample": sample,
    "boost": boost,
    "cutoff": cutoff,
    "neighbours": neighbours,
    "stable": lambda part, seen: (Fraction(0), stable_law(part["numbers"])[0].top()),
}
SOURCES = {"sample": "sample", "stable": "choice", "neighbours": "terms", "boost": "boost"}  # in the manifest, by rule


def check_claim(claim: Fields) -> list[Fields]:
    """Check the arithmetic of a claim; return all of its parts, or raise what is wrong."""
    seen, work_left[0] = list[Fields](), MOST_WORK
    try:
        if claim["format"] != 1:
            raise NotVerified(f"claims of format {claim['format']!r} are not known here")
        for whole in (claim, *claim.get("also", [])):
            if any(part > limit for part, limit in zip(check_part(whole["part"], seen), stated(whole), strict=True)):
                raise Wrong("the claim is smaller than what its parts add up to")
            if whole is not claim and any(node.get("ledger") for node in inner_documents(whole)):
                raise Wrong("a ledger limits what the unit of the model pays, and no other")
    except Overflow:
        raise NotVerified("a number of this claim is too large") from None
    except DAMAGE as error:
        raise Wrong(f"claim.json is incomplete or has a part of another type ({type(error).__name__})") from None
    return seen


def unique(pairs: list[tuple[str, Any]]) -> Fields:
    """Return a document of JSON in which no name stands twice: readers differ in which they take."""
    if len(dict(pairs)) < len(pairs):
        raise Wrong("a document has a name twice")
    return dict(pairs)


def read_files(folder: Path, manifest: Fields) -> dict[str, bytes]:
    """Return the content of every listed file, which has its SHA-256."""
    if "claim.json" not in manifest["files"]:
        raise NotVerified("the manifest lists no claim.json")
    contents = {}
    for name, digest in manifest["files"].items():
        if Path(name).name != name or not (folder / name).is_file():
            raise Wrong(f"{name!r} is missing, or is no plain file")
        contents[name] = (folder / name).read_bytes()
        if hashlib.sha256(contents[name]).hexdigest() != digest:
            raise Wrong(f"{name} is not the file that the manifest lists")
    return contents


def inner_documents(value: Any) -> list[Fields]:
    """Return all documents in a document, itself included."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [*([value] if isinstance(value, dict) else []), *(one for part in inner for one in inner_documents(part))]


def numbers_of(document: Fields) -> Fields:
    """Return all numbers of a document of the manifest, as integers."""
    numbers: Fields = {}
    for name in document.keys() - {"name", "kind", "concept", "order"}:
        value = document[name]
        if isinstance(value, dict) and value.get("kind") == "Fraction":
            numbers[name] = [value["numerator"], value["denominator"]]
        elif isinstance(value, dict):
            numbers |= numbers_of(value)
        else:
            numbers[name] = list(value.as_integer_ratio()) if isinstance(value, float) else value
    return numbers


def promises(text: str) -> list[tuple[float, float]]:
    """Return each epsilon and delta of a text."""
    found = re.findall(r"\(([0-9.e+-]+), ([0-9.e+-]+)\)-differentially private", text)
    return [(float(one), float(two)) for one, two in found] or [(0.0, 0.0)]


def check_manifest(manifest: Fields, claim: Fields, contents: dict[str, bytes], names: set[str]) -> None:
    """Refuse a folder that states less than its claim, of another unit, or that has files which nobody lists."""
    (epsilon, delta), published = stated(claim), manifest["access"] == "published"
    texts = [promises(str(manifest["claim"])), promises(contents["GUARANTEE.md"].decode())] if published else []
    stating = [(manifest.get("epsilon", 1e9), manifest.get("delta", 1.0)), *itertools.chain(*texts)]
    if published and texts[0][0][0] > epsilon * Fraction(1_000_001, 1_000_000):
        raise Wrong("the manifest claims more than the releases in claim.json explain")
    is_less = any(Fraction(one) < epsilon or Fraction(two) < delta for one, two in stating)
    if is_less or manifest.get("unit", claim["unit"]) != claim["unit"]:
        raise Wrong("the text of the guarantee or the manifest states less than claim.json, or of another unit")
    if published and names - {"manifest.json", *contents}:
        raise Wrong(f"the manifest does not list {min(names - {'manifest.json', *contents})}")


def check_mechanisms(manifest: Fields, nodes: list[Fields]) -> None:
    """Refuse a claim with other mechanisms or numbers than the model has, or that leaves one out."""
    claimed, models = Counter[str](), Counter[str]()
    for mechanism in (part for node in nodes for part in node.get("mechanisms", [])):
        numbers = {
            name: value
            for name, value in mechanism.items()
            if name not in ("charges", "ratio", "growth", "flip_probability")
        }
        claimed[json.dumps(numbers, sort_keys=True)] += 1
    for part in inner_documents(manifest):
        name = str(part.get("name", part.get("kind")))
        if name in MECHANISMS and "charges" not in part:  # a claim may lie in the manifest as well
            models[json.dumps({"name": name, **numbers_of(part)}, sort_keys=True)] += 1
    if set(claimed) != set(models) or models - claimed:  # units of several kinds may pay for one mechanism
        raise Wrong("the claim and the model differ in their mechanisms")


def check_numbers(manifest: Fields, nodes: list[Fields]) -> None:
    """Refuse a claim whose integers are not those of the model, or that leaves out what it has spent."""
    if sum(bool(node.get("ledger")) for node in nodes) != (manifest["access"] != "published"):
        raise Wrong("the answers of a private folder are paid from its ledger, and those of a published one are not")
    check_mechanisms(manifest, nodes)
    rows = math.prod(node.get("rows", 1) for node in nodes if node["rule"] in ("group", "releases"))
    updates = {"updates": 1, **(manifest.get("update") or manifest)}["updates"]
    is_whole = {len(node.get("weights", [[1]])) for node in nodes if node["rule"] == "releases"} <= {updates}
    if rows != manifest.get("records_per_person", 1) or not is_whole:
        raise Wrong("the claim and the model differ in the records of a person, or the updates")
    for node in nodes:
        check_node(manifest, node)


def check_node(manifest: Fields, node: Fields) -> None:
    """Refuse a part of a claim with other numbers or fewer uses than the model has."""
    rule, source = node["rule"], manifest["terms"] if node["rule"] == "boost" else manifest
    if rule in SOURCES and node["numbers"] != numbers_of(source[SOURCES[rule]]):
        raise Wrong(f"the {SOURCES[rule]} of the model is not that of the claim")
    if rule == "account" and "spent_quanta" in manifest:
        charges = [event for part in node["mechanisms"] for event in part["charges"].values()]
        if sum(event["uses"] * event["price"][0] for event in charges) < manifest["spent_quanta"][0]:
            raise Wrong("the uses that the claim lists cost less than was spent")


def keyed(key: bytes, *parts: str) -> str:
    """Return the keyed hash of texts, each with its length before it."""
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(len(part.encode()).to_bytes(8, "big") + part.encode())
    return mac.hexdigest()


class Ledger:
    """A ledger in SQLite as it is read: entries, the account after the last one, and the answers."""

    def __init__(self, folder: Path, manifest: bytes) -> None:
        if (folder / "ledger.json").exists():
            raise NotVerified("the ledger stands in another database")
        self.key = bytes.fromhex((folder / "ledger.key").read_text("ascii"))
        self.fingerprint = hashlib.sha256(manifest).hexdigest()
        location = f"{(folder / 'ledger.sqlite').absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(location, uri=True)) as database:
            rows = "SELECT ledger, seq, at, kind, body, mac FROM quorate_entry ORDER BY seq"
            self.entries = database.execute(rows).fetchall()
            [self.snapshot] = database.execute("SELECT seq, head, state, mac FROM quorate_snapshot").fetchall()
            self.answers = database.execute("SELECT label, caller FROM quorate_answer").fetchall()
        self.state = json.loads(self.snapshot[2])
        self.mark = json.loads((folder / "ledger.mark").read_text("utf-8"))


def check_ledger(ledger: Ledger, manifest: Fields, node: Fields) -> None:
    """Check the chain of a ledger, its account and its mark, and that its charges cover what was answered."""
    (spent, capacity), (seq, head, state, mac) = replay(ledger.entries, ledger.key), ledger.snapshot
    name, last = ledger.entries[0][0], ledger.entries[-1]
    if (seq, head) != (last[1], last[5]) or mac != keyed(ledger.key, "snapshot", name, str(seq), head, state):
        raise Wrong("the account of the ledger is not that of its last entry")
    if quanta(ledger.state["spent"]) != spent or capacity != node.get("capacity", capacity):
        raise Wrong("the entries of the ledger do not add up to its account, or the claim has another capacity")
    check_mark(ledger)
    answers = [(label, caller) for label, caller in ledger.answers if not ledger.state.get("choice")]
    labels = [label for label, caller in answers if caller != OWN_CALLER]
    least = least_spent(node, labels, len(answers) - len(labels), manifest["kind"])
    if any(paid < part for paid, part in zip(spent, least, strict=True)):
        raise Wrong(f"{len(labels)} answers cost at least {least[0]} quanta, and the ledger has charged {spent[0]}")


def check_mark(ledger: Ledger) -> None:
    """Refuse the ledger of another model, and one that has not come as far as its mark."""
    text, mark = ledger.mark["mark"], json.loads(ledger.mark["mark"])
    is_ours = ledger.mark["mac"] == keyed(ledger.key, "mark", ledger.fingerprint, text)
    if not is_ours or ledger.state["fingerprint"] != ledger.fingerprint:
        raise Wrong("the ledger or its mark belongs to another manifest, or the mark was edited")
    heads = {seq: mac for _, seq, _, _, _, mac in ledger.entries}
    if mark["seq"] > max(heads) or (mark["seq"] >= min(heads) and heads[mark["seq"]] != mark["head"]):
        raise Wrong("the ledger has not come as far as its mark: it is an old copy, or another")


def quanta(values: Any) -> list[int]:
    """Return a pair of amounts, which stand as texts in a ledger."""
    return integers([int(value) for value in values])


def replay(entries: list[Any], key: bytes) -> tuple[list[int], list[int]]:
    """Replay the entries from the opening, or from the last compaction, and return what is spent, and the capacity."""
    _, first, _, kind, text, _ = entries[0]
    body = json.loads(text)
    if kind not in ("opened", "compacted") or (kind == "opened" and first != 1):
        raise Wrong("the first entries of the ledger are missing")
    state, head = (body, "") if kind == "opened" else (body["state"], body["head"])
    spent, capacity = quanta(state["spent"]), quanta(state["capacity"])
    for number, (_, seq, at, kind, text, mac) in enumerate(entries, start=first):
        if seq != number or mac != keyed(key, head, str(seq), kind, repr(float(at)), text):
            raise Wrong(f"entry {number} of the ledger is missing or was edited")
        spent, head = spent_after(spent, kind, json.loads(text)), mac
        if not all(0 <= part <= whole for part, whole in zip(spent, capacity, strict=True)):
            raise Wrong(f"entry {seq} of the ledger overdraws the account")
    return spent, capacity


def spent_after(spent: list[int], kind: str, body: Fields) -> list[int]:
    """Return what is spent after an entry: what is leased counts as spent until it is returned."""
    if kind == "restored":
        return [max(one, two) for one, two in zip(spent, quanta(body["spent"]), strict=True)]
    sign = {"leased": 1, "returned": -1}.get(kind)
    if sign is None:
        return spent
    return [one + sign * two for one, two in zip(spent, quanta([body["renyi"], body["slack"]]), strict=True)]


def least_spent(node: Fields, labels: list[int], own: int, kind: str) -> list[int]:
    """Return what a ledger must have charged at least: for all of a fit, or for each query, or for each no-quorum."""
    least = [0, 0] if node["rule"] in ("account", "shared") else node.get("capacity", [0, 0])
    for mechanism in node.get("mechanisms", []):
        paid = labels if mechanism is node["mechanisms"][-1] else []
        missed = paid.count(NO_QUORUM)
        counts = {"opening": int(bool(labels)), "query": len(paid), "no quorum": missed, "answer": len(paid) - missed}
        if kind == "everlasting":  # whose fit pays for all of the first phase
            counts = {"opening": 1, "no quorum": mechanism["no_quorums"]}
        if kind == "online release":  # which keeps three numbers of each measurement
            counts = {"opening": 1, "no quorum": own // 3, "measurement": own // 3}
        for event, one in mechanism["charges"].items():
            least = [total + counts[event] * part for total, part in zip(least, one["price"], strict=True)]
    return least


def verify(folder: Path) -> list[str]:
    """Return what is verified of a folder, or raise what is wrong."""
    try:
        text = (folder / "manifest.json").read_bytes()
        manifest = json.loads(text, object_pairs_hook=unique)
        contents = read_files(folder, manifest)
        claim = json.loads(contents["claim.json"], object_pairs_hook=unique)
        nodes = check_claim(claim)
        check_manifest(manifest, claim, contents, {path.name for path in folder.iterdir()})
        check_numbers(manifest, nodes)
        for node in (node for node in nodes if node.get("ledger")):
            check_ledger(Ledger(folder, text), manifest, node)
        return describe(claim)
    except DAMAGE as error:
        raise Wrong(f"the folder is damaged or not a model ({type(error).__name__}: {error})") from None


def describe(claim: Fields) -> list[str]:
    """Return a line for each unit about which something is claimed."""
    wholes = [(*map(float, stated(whole)), whole["unit"]) for whole in (claim, *claim.get("also", []))]
    lines = [
        f"epsilon = {epsilon}, delta = {delta}, for each {unit}".replace(".0,", ",") for epsilon, delta, unit in wholes
    ]
    return [lines[0], *(f"{line}, says claim.json alone" for line in lines[1:])]


def main(folder: str) -> int:
    """Verify one folder, print the result and return the exit code."""
    try:
        lines, code = [*verify(Path(folder)), "VERIFIED"], 0
    except (Wrong, NotVerified) as error:
        code = 1 if isinstance(error, Wrong) else 3
        lines = [f"{'WRONG' if code == 1 else 'not verified'}: {error}"]
    for line in lines:  # names come from the folder: none may look like a line of ours
        sys.stdout.write("".join(part if part.isprintable() else "?" for part in line) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "."))
