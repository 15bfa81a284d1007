"""Verify the privacy claim of a saved model with nothing but Python's standard library.

    python -I -S verify_claim.py FOLDER

It imports nothing of the library that wrote the folder: copy it anywhere. It prints VERIFIED (exit code 0), what is
wrong (1), or "not verified: ..." for a claim that it cannot recompute (3).

    files     every file that manifest.json lists is there and has its SHA-256; a published folder has no others
    claim     the cost of every release in claim.json is recomputed from its integers with directed rounding, composed,
              and compared with what claim.json, manifest.json and GUARANTEE.md state, and with the model's mechanisms
    ledger    every entry carries the keyed hash of itself and of the entry before it; the charges add up to the stored
              account, never exceed it, and are at least what the stored answers cost; it has come as far as its mark

Taken as given: that the claim lists every release, that the program drew what it says, and that one unit moves each
release by no more than its sensitivity. A ledger proves this much to the holder of its key.

Notation: a is a Renyi order above 1, s the scale of discrete Gaussian noise, P(x) proportional to exp(-x^2 / (2 s^2)),
D the Renyi divergence at order a between the laws on two data sets that differ in one unit.
"""

import hashlib
import hmac
import itertools
import json
import math
import re
import sqlite3
import sys
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

BITS, ONE = 256, 1 << 256  # of a fixed-point number after the binary point, and the number 1
SPARE = 1 << 20  # units in the last place, above the rounding of any series here
RENYI_QUANTA, SLACK_QUANTA = 2**40, 2**100  # in one unit of divergence, and in a probability of one
WORD = 2**64  # the unit of the levels of a table
LARGEST_EXPONENT, MOST_WORK = 20_000, 1_000_000  # of logarithms, exponentials and weights: some 15 seconds
NO_QUORUM = -1  # the label of a query without a quorum
OWN_CALLER = "online"  # whose rows in a ledger are state of the model and no answers
MECHANISMS = "Noisy(Max|Shares|Cutoff|Sum)|SoftMajority|SharpMajority|Quorum|Dissent|PureStable|AboveThreshold"
DAMAGE = (OSError, LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError, sqlite3.Error)
Fields = dict[str, Any]
Order = Fraction | None  # None: infinity
Pair = tuple[Fraction, Fraction]  # epsilon and delta
Costs = dict[str, tuple["Interval", "Interval"]]  # by event: divergence, and the probability of its tail event
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
    """All numbers from `low` to `high`, in units of 2**-BITS. Every operation rounds outwards."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def __add__(self, other: Any) -> "Interval":
        other = interval(other)
        return Interval(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Any) -> "Interval":
        other = interval(other)
        return Interval(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Any) -> "Interval":
        other = interval(other)
        ends = [one * two for one in (self.low, self.high) for two in (other.low, other.high)]
        return Interval(min(ends) >> BITS, -(-max(ends) >> BITS))

    def __truediv__(self, other: Any) -> "Interval":
        other = interval(other)
        if other.low <= 0:
            raise NotVerified("a divisor is not seen to be above zero")
        ends = [(top << BITS, bottom) for top in (self.low, self.high) for bottom in (other.low, other.high)]
        return Interval(min(top // bottom for top, bottom in ends), max(-(-top // bottom) for top, bottom in ends))

    def top(self) -> Fraction:
        """Return the largest number."""
        return Fraction(self.high, ONE)


def interval(value: "Interval | Fraction | int") -> Interval:
    """Return the narrowest interval around an exact number."""
    if isinstance(value, Interval):
        return value
    low, rest = divmod(value.numerator << BITS, value.denominator)
    return Interval(low, low + (rest > 0))


def root(value: Interval) -> Interval:
    """Return the square root."""
    return Interval(math.isqrt(max(value.low, 0) << BITS), math.isqrt(value.high << BITS) + 1)


def log_point(value: int) -> int:
    """Return log(value / ONE), off by less than 2**16 units: six square roots, then 2 atanh((x - 1) / (x + 1))."""
    shift, odd = value.bit_length() - BITS - 1, 3
    mantissa = value >> shift if shift >= 0 else value << -shift  # from ONE to 2 ONE
    for _ in range(6):
        mantissa = math.isqrt(mantissa << BITS)
    power = total = step = ((mantissa - ONE) << BITS) // (mantissa + ONE)  # below 1 / 180
    while power:
        power = power * step * step >> 2 * BITS
        total, odd = total + power // odd, odd + 2
    return (total << 7) + shift * LN2


def log(value: "Interval | Fraction | int") -> Interval:
    """Return the natural logarithm."""
    count_work()
    value = interval(value)
    if value.low <= 0:
        raise NotVerified("the logarithm of a number that may be zero is needed")
    return Interval(log_point(value.low) - SPARE, log_point(value.high) + SPARE)


def exp_point(value: int) -> int:
    """Return exp(value / ONE), of relative error below 2**-230: by powers of two, and a series squared eight times."""
    shift, rest = divmod(value, LN2)
    if shift > LARGEST_EXPONENT:
        raise NotVerified("an exponent is too large")
    term, total, number = ONE, ONE, 1
    while term:
        term, number = term * (rest >> 8) // (number << BITS), number + 1
        total += term
    for _ in range(8):
        total = total * total >> BITS
    return total << shift if shift >= 0 else total >> min(-shift, 2 * BITS)


def exp(value: "Interval | Fraction | int") -> Interval:
    """Return the exponential."""
    count_work()
    value = interval(value)
    low, high = exp_point(value.low), exp_point(value.high)
    return Interval(max(low - (low >> 230) - 1, 0), high + (high >> 230) + 1)


LN2 = 0xB17217F7D1CF79ABC9E3B39803F2F6AF40F343267298B62D8A0D175B8BAAFA2B  # of ONE, rounded down
PI = Interval(*(0x3243F6A8885A308D313198A2E03707344A4093822299F31D0082EFA98EC4E6C89 + end for end in (0, 1)))
NOTHING = Interval(0, 0)


def epsilon_of(divergence: Interval, order: Fraction, delta: Fraction) -> Interval:
    """Return the epsilon of a divergence at an order (Canonne, Kamath and Steinke 2020, Proposition 12)."""
    return divergence + log(1 - 1 / order) - log(order * delta) / (order - 1)


def gaussian_cost(order: Any, square: int, scale: Fraction) -> Interval:
    """Return D for discrete Gaussian noise and a shift by integers of this squared length: a S / (2 s^2)."""
    return interval(Fraction(order) * square / (2 * scale * scale))


def divergence(order: Order, one: tuple[Interval, ...], two: tuple[Interval, ...]) -> Interval:
    """Return D of two laws on the same outcomes, given as the logarithms of their probabilities."""
    if order is None:
        return max([p - q for p, q in zip(one, two, strict=True)], key=Interval.top)
    terms = [exp(p * order - q * (order - 1)) for p, q in zip(one, two, strict=True)]
    return log(sum(terms, NOTHING)) / (order - 1)


def exponential_cost(order: Order, epsilon: Fraction) -> Interval:
    """Return D where log ratios span at most epsilon: a eps^2 / 8, and no more than randomised response."""
    if order is None:
        return interval(epsilon)
    likely = NOTHING - log(exp(-epsilon) + 1)
    response = divergence(order, (likely, likely - epsilon), (likely - epsilon, likely))
    return min(interval(order * epsilon * epsilon / 8), response, key=Interval.top)


def gaussian_weights(scale: Fraction, radius: int) -> tuple[list[Interval], Interval]:
    """Return exp(-k^2 / (2 s^2)) for k from 0 to the radius, and the sum from there on, below a geometric series."""
    count_work(radius)
    step, ratio = exp(-1 / (scale * scale)), exp(-1 / (2 * scale * scale))
    weights = [interval(1)]
    for _ in range(radius):  # each ratio is the one before times exp(-1 / s^2)
        weights.append(weights[-1] * ratio)
        ratio = ratio * step
    return weights, Interval(0, (weights[-1] / (interval(1) - exp(-radius / (scale * scale)))).high)


def gaussian_tail(scale: Fraction, margin: int) -> Interval:
    """Return a bound on P(x > margin). The normaliser of the law is at least s sqrt(2 pi), by Poisson summation."""
    weight = exp(-Fraction((margin + 1) ** 2) / (2 * scale * scale))
    if margin < 0 or scale > 2**16:  # the law is sub-Gaussian
        return interval(1) if margin < 0 else weight
    ratio, step, total = exp(-Fraction(2 * margin + 3) / (2 * scale * scale)), exp(-1 / (scale * scale)), NOTHING
    while weight.high > 1 << 16:
        count_work()
        total, weight, ratio = total + weight, weight * ratio, ratio * step
    return (total + Interval(0, (weight / (interval(1) - ratio)).high)) / (root(PI * 2) * scale)


def convolved(weights: list[int]) -> list[int]:
    """Return the convolution of a list with itself, by one product of long integers."""
    width = (2 * max(weights).bit_length() + len(weights).bit_length()) // 8 + 1
    packed = int.from_bytes(b"".join(weight.to_bytes(width, "little") for weight in weights), "little")
    content = (packed * packed).to_bytes(2 * width * len(weights), "little")
    return [int.from_bytes(content[width * i : width * (i + 1)], "little") for i in range(2 * len(weights) - 1)]


def two_winner_cost(order: Fraction, scale: Fraction) -> Interval:
    """Return D of the name of the larger of two noisy counts, where one ballot moves both counts by 1.

    With T the difference of two noises, the winner is a coin of probability S(t) = P(T >= t) on one data set and of
    S(t + 2) on the other, or the other way round. T is symmetric, so that 1 - S(t) = S(1 - t), and one direction at t
    is the other at -1 - t: it is enough to look at (S(t), S(t + 2)) for every t.
    """
    radius = math.ceil(17 * scale) + 2
    half, rest = gaussian_weights(scale, radius)
    law, outside = half[:0:-1] + half, 2 * rest.high
    low_mass, high_mass = sum(w.low for w in law), sum(w.high for w in law) + outside
    pairs = zip(convolved([w.low for w in law]), convolved([w.high for w in law]), strict=True)
    survival, low, high = [], 0, 2 * outside * high_mass  # what the table leaves out of one noise or of both
    for more_low, more_high in reversed(list(pairs)):
        low, high = low + more_low, high + more_high
        survival.append(Interval((low << BITS) // high_mass**2, min(-((-high << BITS) // low_mass**2), ONE)))
    survival.reverse()  # S(t) for t from -2 radius to 2 radius
    rare = ONE >> 140
    logs, last = [log(s) if s.low > rare else None for s in survival], len(survival) - 1
    worst = far_cost(order, scale, Interval(0, 2 * rare))
    for i in range(1, last - 1):
        p, q, p_not, q_not = logs[i], logs[i + 2], logs[last - i + 1], logs[last - i - 1]
        if p and q and p_not and q_not:
            worst = max(worst, divergence(order, (p, p_not), (q, q_not)), key=Interval.top)
    return worst


def far_cost(order: Fraction, scale: Fraction, mass: Interval) -> Interval:
    """Return a bound on D where one of two outcomes has at most this mass on one of both data sets.

    On the other it then has at most b = exp(1 / s^2) mass^(1/2) (Cauchy and Schwarz). The common outcome adds at most
    (1 - b)^(1 - a) to the moment, and the rare one exp(a (a m - 1) / s^2) b^(1 - 1/m) for each m > 1 (Hoelder), since
    E_Q[(P/Q)^c] is at most exp(c (c - 1) / s^2) for two counts that each move by 1.
    """
    rare = exp(1 / (scale * scale)) * root(mass)
    exponents = [(m, order * (order * m - 1) / (scale * scale)) for m in map(Fraction, ("1.2", "2", "5", "20"))]
    most = log(Interval(rare.high, rare.high))
    terms = [exp(most * (1 - 1 / m) + exponent) for m, exponent in exponents if exponent < LARGEST_EXPONENT // 2]
    if not terms:
        raise NotVerified("the far tail of a noisy maximum is not bounded at this order")
    return log(exp(log(interval(1) - rare) * (1 - order)) + min(terms, key=Interval.top)) / (order - 1)


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
    return max(NOTHING, *(divergence(order, *pair) for pair in steps), key=Interval.top)


def no_quorum_cost(order: Order, table: list[int]) -> Interval:
    """Return (log(p^a q^(1-a)) - log(1 - (1-p)^a (1-q)^(1-a))) / (a - 1) for the worst consecutive levels p and q."""
    if order is None or table[0] != WORD or table[-1] < 1:
        raise Wrong("a table of no-quorums must fall from 1 to a positive level, and needs a finite order")
    coins, worst = log_coins(table), NOTHING
    for (p, p_not), (q, q_not) in itertools.pairwise(coins):
        answers = NOTHING if p_not is None else exp(p_not * order - q_not * (order - 1))
        worst = max(worst, p * order - q * (order - 1) - log(interval(1) - answers), key=Interval.top)
    return worst / (order - 1)


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


def mechanism_costs(mechanism: Fields, order: Order) -> Costs:
    """Return, for each event that a mechanism charges, its divergence and the probability of its tail event."""
    name = mechanism["name"]
    if name in ("Quorum", "Dissent", "AboveThreshold"):
        scale, margin = positive(mechanism["threshold_scale"]), integer(mechanism["margin"], least=-(2**62))
        opening = gaussian_cost(order, 1, scale), gaussian_tail(scale, margin) if name == "Quorum" else NOTHING
        return {"opening": opening, "no quorum": (no_quorum_cost(order, integers(mechanism["table"])), NOTHING)}
    if name == "NoisyCutoff":  # hides one no-quorum from the end of a phase by geometric noise
        loss = log(1 / Fraction(integer(mechanism["ratio"], least=1), WORD))
        if (loss + Fraction(1, 2**40)).top() < positive(mechanism["epsilon"]):
            raise Wrong("the ratio of the cutoff is not that of its epsilon")
        return {"phase": (loss, exp(loss * -integer(mechanism["spread"], least=1)))}
    if name in ("NoisyMax", "NoisyShares"):
        scale, classes = positive(mechanism["scale"]), integer(mechanism["classes"], least=2)
        cost = gaussian_cost(order, 1 if name == "NoisyShares" and classes == 2 else 2, scale)
        if name == "NoisyMax" and classes > 2:
            raise NotVerified("the law of the noisy maximum of more than two counts is not recomputed here")
        if name == "NoisyMax" and order is not None and scale >= Fraction(1, 4):
            cost = min(cost, two_winner_cost(order, scale), key=Interval.top)
    elif name == "SoftMajority":
        cost = exponential_cost(order, positive(mechanism["epsilon_per_query"]))
    elif name == "SharpMajority":
        cost = sharp_cost(order, integer(mechanism["teachers"]), integers(mechanism["table"]))
    elif name == "PureStable" and order is None:
        cost = stable_law(mechanism)[1]
    elif name == "NoisySum":
        cost = gaussian_cost(order, integer(mechanism["sensitivity"], least=1) ** 2, positive(mechanism["scale"]))
    else:
        raise NotVerified(f"the cost of {name} is not recomputed here")
    return {"measurement" if name == "NoisySum" else "query": (cost, NOTHING)}


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
    moved, parts = moved * (1 - share) + share, max(interval(epsilon), log(1 + odds * share), key=Interval.top)
    return moved, min(log(moved * odds + 1), parts, key=Interval.top)


def stated(part: Fields) -> Pair:
    """Return the epsilon and delta that a part states."""
    epsilon, delta = (Fraction(*integers(part[name])) for name in ("epsilon", "delta"))
    if delta >= 1 or epsilon + delta == 0:
        raise Wrong("delta must be below 1, and epsilon or delta above 0")
    return epsilon, delta


def check_part(part: Fields, seen: list[Fields]) -> Pair:
    """Return the epsilon and delta of a part of a claim once it is seen to keep them, or raise what is wrong."""
    rules: Fields = {rule.__name__: rule for rule in (releases, account, group, sample, neighbours)}
    rules["sum"] = lambda part, seen: map(sum, zip(*[check_part(one, seen) for one in part["parts"]], strict=True))
    rules["stable"] = lambda part, seen: (0, stable_law(part["numbers"])[0].top())
    if part["rule"] not in rules:
        raise NotVerified(str(part.get("reason", f"the rule {part['rule']!r} is not known here")))
    seen.append(part)
    found, claimed = tuple(rules[part["rule"]](part, seen)), stated(part)
    if found[0] > claimed[0] or found[1] > claimed[1]:
        raise Wrong(f"a part costs up to {tuple(map(float, found))}, and it claims {tuple(map(float, claimed))}")
    return claimed


def group(part: Fields, seen: list[Fields]) -> Pair:
    """Return what a claim about one row says of r rows: r eps, and delta (1 + e^eps + ... + e^((r-1) eps))."""
    rows, (epsilon, delta) = integer(part["rows"], least=1), check_part(part["part"], seen)
    return rows * epsilon, ((exp(rows * epsilon) - 1) / (exp(epsilon) - 1) * delta).top() if delta else delta


def sample(part: Fields, seen: list[Fields]) -> Pair:
    """Return what a mechanism costs that runs on a secret share q of the units, relabelled by a private choice.

    Relabelling adds r 2 log(1 + e^(kappa/2)) for a unit of r rows (Nandi and Bassily 2020, our constants), and a share
    without replacement gives (log(1 + q (e^eps - 1)), q delta) (Balle, Barthe and Gaboardi 2018).
    """
    sample, (epsilon, delta) = part["numbers"], check_part(part["part"], seen)
    share = Fraction(integer(sample["sampled"], least=1), integer(sample["units"], least=1))
    relabelled = log(exp(positive(sample["kappa"]) / 2) + 1) * (2 * integer(sample["rows"], least=1)) + epsilon
    return log((exp(relabelled) - 1) * share + 1).top(), share * delta


def neighbours(part: Fields, seen: list[Fields]) -> Pair:
    """Return what votes cost whose squares a ledger keeps within a unit's capacity; replacing a unit changes two's."""
    numbers, (epsilon, _), times = part["numbers"], stated(part), 1 if part["ledger"] else 2
    square = integer(numbers["capacity"]) + integer(numbers["reports"]) * integer(numbers["reported"], least=1) ** 2
    square *= integer(numbers["replacement"], least=1) if times == 2 else 1
    entries = times * integer(numbers["entries"], least=1)
    return epsilon, gaussian_delta([(1, square, positive(numbers["scale"]), entries)], epsilon)


def releases(part: Fields, seen: list[Fields]) -> Pair:
    """Check releases that are all that a budget ever paid for, by the tightest of three bounds."""
    (epsilon, delta), gaussian, losses, slack = stated(part), [], [], Fraction(0)
    weights = [integers(row) for row in part.get("weights", [[1]])]  # row t: of each update in the sums after update t
    longest = max(sum(one * one for one in column) for column in zip(*weights, strict=True))
    grown = longest * integer(part.get("rows", 1), least=1) ** 2  # all rows of a unit may be in one update
    for release in part["releases"]:
        uses, name = integer(release["uses"], least=1), release["mechanism"]
        if name == "exponential" and "weights" not in part:
            losses.append((uses, 2 * positive(release["rate"]) * integer(release["sensitivity"], least=1)))
            continue
        if name != "discrete gaussian" and (name != "thresholded gaussian" or "weights" in part):
            raise NotVerified(f"the cost of {name!r} is not recomputed here")
        square, entries = integer(release["squared_sensitivity"], least=1), integer(release["entries"], least=1)
        gaussian.append((uses, square * grown, positive(release["scale"]), entries * len(weights)))
        if name == "thresholded gaussian":  # keys that one unit alone has pass with at most this probability
            passed = gaussian_tail(positive(release["scale"]), integer(release["above"])).top()
            slack += uses * integer(release["keys"], least=1) * passed
    if not gaussian + losses:
        raise Wrong("the claim lists no release")
    pure = sum((uses * loss for uses, loss in losses), Fraction(0))
    if not gaussian and (pure <= epsilon or delta == 0):
        return pure, Fraction(0)
    if delta <= slack or part["order"] is None:
        raise Wrong("Gaussian releases need a delta above that of their tail events, and a finite order")
    lost = (NOTHING - log(1 - slack)).top() if slack else Fraction(0)
    order = positive(part["order"])
    costs = [gaussian_cost(order, uses * square, scale) for uses, square, scale, _ in gaussian]
    costs += [exponential_cost(order, loss) * uses for uses, loss in losses]
    found = epsilon_of(sum(costs, NOTHING), order, delta - slack).top() + lost
    if found > epsilon > lost and not losses:
        found, delta = epsilon, gaussian_delta(gaussian, epsilon - lost) + slack
    return found, delta


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
    return (Interval(0, max(delta.high, 0)) * exp(loss)).top()


def mills(point: Fraction) -> Interval:
    """Return P(Z > x) / phi(x): 1 / (2 phi(x)) - (x + x^3/3 + x^5/15 + ...), or 1 / (x + 1 / (x + 2 / (x + ...)))."""
    x, total, odd = interval(point), NOTHING, 1
    if point > 4:  # the ends of the fraction are by turns above and below it
        ends = [x, x + interval(80) / x]
        for k in range(79, 0, -1):
            ends = [x + interval(k) / end for end in ends]
        ends = [interval(1) / end for end in ends]
        return Interval(min(end.low for end in ends), max(end.high for end in ends))
    term = x
    while term.high > 1 << 8:  # beyond, each term is below half of the one before, or adds less than is spared
        total, odd = total + term, odd + 2
        term = term * x * x / odd
    return root(PI * 2) * exp(point * point / 2) / 2 - (total + Interval(0, SPARE))


def account(part: Fields, seen: list[Fields]) -> Pair:
    """Check a budget at one order: what its capacity is worth, and that every price covers the cost of its event."""
    order = None if part["order"] is None else positive(part["order"])
    (_, delta), (capacity, slack) = stated(part), integers(part["capacity"])
    rest, spent = delta - Fraction(slack, SLACK_QUANTA), [0, 0]
    if rest < 0 or (order is not None and rest == 0) or not part["mechanisms"]:
        raise Wrong("an account needs mechanisms, and a delta above its slack")
    worth = Fraction(capacity, RENYI_QUANTA)
    for mechanism in part["mechanisms"]:
        costs, charges = mechanism_costs(mechanism, order), mechanism["charges"]
        if set(charges) != set(costs):
            raise Wrong(f"{mechanism['name']} charges for {', '.join(costs)}, and the claim for {', '.join(charges)}")
        for event, (cost, tail) in costs.items():
            price = integers(charges[event]["price"])
            if cost.top() * RENYI_QUANTA > price[0] or tail.top() * SLACK_QUANTA > price[1]:
                raise Wrong(f"the {event} of {mechanism['name']} costs more than its price")
            uses = 0 if part["ledger"] else integer(charges[event]["uses"])
            spent = [total + uses * quanta for total, quanta in zip(spent, price, strict=True)]
    if spent[0] > capacity or spent[1] > slack:
        raise Wrong("the uses that the claim lists cost more than the account has")
    return (worth if order is None else epsilon_of(interval(worth), order, rest).top()), delta


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
    for name, value in document.items():
        if isinstance(value, dict) and value.get("kind") == "Fraction":
            numbers[name] = [value["numerator"], value["denominator"]]
        elif isinstance(value, dict) and name != "concept":
            numbers |= numbers_of(value)
        elif name not in ("name", "kind", "concept", "order"):
            numbers[name] = list(value.as_integer_ratio()) if isinstance(value, float) else value
    return numbers


def check_manifest(manifest: Fields, claim: Fields, contents: dict[str, bytes], names: set[str]) -> None:
    """Refuse a folder that states less than its claim, of another unit, or that has files which nobody lists."""
    (epsilon, delta), published = stated(claim), manifest["access"] == "published"
    stating = [(manifest.get("epsilon", 1e9), manifest.get("delta", 1.0))]
    for text in [str(manifest["claim"]), contents["GUARANTEE.md"].decode()] if published else []:
        found = re.findall(r"\(([0-9.e+-]+), ([0-9.e+-]+)\)-differentially private", text)
        stating += [(float(one), float(two)) for one, two in found] or [(0.0, 0.0)]
    is_less = any(Fraction(one) < epsilon or Fraction(two) < delta for one, two in stating)
    if is_less or manifest.get("unit", claim["unit"]) != claim["unit"]:
        raise Wrong("the text of the guarantee or the manifest states less than claim.json, or of another unit")
    if published and names - {"manifest.json", *contents}:
        raise Wrong(f"the manifest does not list {min(names - {'manifest.json', *contents})}")


def check_numbers(manifest: Fields, nodes: list[Fields]) -> None:
    """Refuse a claim with other mechanisms or numbers than the model has, or that leaves one out."""
    if sum(bool(node.get("ledger")) for node in nodes) != (manifest["access"] != "published"):
        raise Wrong("the answers of a private folder are paid from its ledger, and those of a published one are not")
    claimed = [part for node in nodes for part in node.get("mechanisms", [])]
    named = [(str(part.get("name", part.get("kind"))), part) for part in inner_documents(manifest)]
    models = [(name, part) for name, part in named if "charges" not in part]  # whose claim may lie there as well
    documents = [{"name": name, **numbers_of(part)} for name, part in models if re.fullmatch(MECHANISMS, name)]
    described = [{name: one for name, one in part.items() if name not in ("charges", "ratio")} for part in claimed]
    one, other = (sorted(json.dumps(part, sort_keys=True) for part in parts) for parts in (described, documents))
    rows = math.prod(node.get("rows", 1) for node in nodes if node["rule"] in ("group", "releases"))
    updates = manifest.get("updates") or (manifest.get("update") or {}).get("updates", 1)
    is_whole = {len(node.get("weights", [[1]])) for node in nodes if node["rule"] == "releases"} <= {updates}
    if one != other or rows != manifest.get("records_per_person", 1) or not is_whole:
        raise Wrong("the claim and the model differ in their mechanisms, the records of a person, or the updates")
    for node in nodes:
        source = {"sample": "sample", "stable": "choice", "neighbours": "terms"}.get(node["rule"])
        if source and node["numbers"] != numbers_of(manifest[source]):
            raise Wrong(f"the {source} of the model is not that of the claim")
        charges = [event for part in node.get("mechanisms", []) for event in part["charges"].values()]
        listed = sum(event["uses"] * event["price"][0] for event in charges if "spent_quanta" in manifest)
        if node["rule"] == "account" and listed < manifest.get("spent_quanta", [0])[0]:
            raise Wrong("the uses that the claim lists cost less than was spent")


def keyed(key: bytes, *parts: str) -> str:
    """Return the keyed hash of texts, each with its length before it."""
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(len(part.encode()).to_bytes(8, "big") + part.encode())
    return mac.hexdigest()


def check_ledger(folder: Path, manifest: bytes, node: Fields) -> None:
    """Check the chain of a ledger in SQLite, its account and its mark, and that its charges cover what was answered."""
    if (folder / "ledger.json").exists():
        raise NotVerified("the ledger stands in another database")
    key = bytes.fromhex((folder / "ledger.key").read_text("ascii"))
    with closing(sqlite3.connect(f"{(folder / 'ledger.sqlite').absolute().as_uri()}?mode=ro", uri=True)) as database:
        entries = database.execute("SELECT ledger, seq, at, kind, body, mac FROM quorate_entry ORDER BY seq").fetchall()
        [(last, head, text, mac)] = database.execute("SELECT seq, head, state, mac FROM quorate_snapshot").fetchall()
        answers = database.execute("SELECT label, caller FROM quorate_answer").fetchall()
    fingerprint = hashlib.sha256(manifest).hexdigest()
    spent, capacity = replay(entries, key)
    ledger, state = entries[0][0], json.loads(text)
    if (last, head) != (entries[-1][1], entries[-1][5]) or mac != keyed(key, "snapshot", ledger, str(last), head, text):
        raise Wrong("the account of the ledger is not that of its last entry")
    if integers([*map(int, state["spent"])]) != spent or capacity != node.get("capacity", capacity):
        raise Wrong("the entries of the ledger do not add up to its account, or the claim has another capacity")
    outer = json.loads((folder / "ledger.mark").read_text("utf-8"))
    mark = json.loads(outer["mark"])
    heads = {seq: mac for _, seq, _, _, _, mac in entries}
    if outer["mac"] != keyed(key, "mark", fingerprint, outer["mark"]) or state["fingerprint"] != fingerprint:
        raise Wrong("the ledger or its mark belongs to another manifest, or the mark was edited")
    if mark["seq"] > last or (mark["seq"] >= entries[0][1] and heads[mark["seq"]] != mark["head"]):
        raise Wrong("the ledger has not come as far as its mark: it is an old copy, or another")
    labels = [label for label, caller in answers if caller != OWN_CALLER and not state.get("choice")]
    least = least_spent(node, labels, sum(caller == OWN_CALLER for _, caller in answers), json.loads(manifest)["kind"])
    if any(paid < part for paid, part in zip(spent, least, strict=True)):
        raise Wrong(f"{len(labels)} answers cost at least {least[0]} quanta, and the ledger has charged {spent[0]}")


def replay(entries: list[Any], key: bytes) -> tuple[list[int], list[int]]:
    """Replay the entries from the opening, or from the last compaction, and return what is spent, and the capacity."""
    spent, capacity, head, previous = [0, 0], [0, 0], "", 0
    for place, (_, seq, at, kind, text, mac) in enumerate(entries):
        body = json.loads(text)
        if place == 0:
            if kind not in ("opened", "compacted") or (kind == "opened" and seq != 1):
                raise Wrong("the first entries of the ledger are missing")
            state, head, previous = (body, "", 0) if kind == "opened" else (body["state"], body["head"], seq - 1)
            spent, capacity = integers([*map(int, state["spent"])]), integers([*map(int, state["capacity"])])
        if seq != previous + 1 or mac != keyed(key, head, str(seq), kind, repr(float(at)), text):
            raise Wrong(f"entry {previous + 1} of the ledger is missing or was edited")
        if kind == "restored":
            spent = [max(one, two) for one, two in zip(spent, integers([*map(int, body["spent"])]), strict=True)]
        if kind in ("leased", "returned"):  # what is leased counts as spent until it is returned
            taken = integers([int(body["renyi"]), int(body["slack"])])
            spent = [one + two * (1 if kind == "leased" else -1) for one, two in zip(spent, taken, strict=True)]
        if not all(0 <= part <= whole for part, whole in zip(spent, capacity, strict=True)):
            raise Wrong(f"entry {seq} of the ledger overdraws the account")
        head, previous = mac, seq
    return spent, capacity


def least_spent(node: Fields, labels: list[int], own: int, kind: str) -> list[int]:
    """Return what a ledger must have charged at least: for all of a fit, or for each query, or for each no-quorum."""
    least = [0, 0] if node["rule"] == "account" else node.get("capacity", [0, 0])
    for mechanism in node.get("mechanisms", []):
        paid = labels if mechanism is node["mechanisms"][-1] else []
        counts = {"opening": int(bool(labels)), "query": len(paid), "no quorum": paid.count(NO_QUORUM)}
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
            check_ledger(folder, text, node)
        wholes = [(*map(float, stated(whole)), whole["unit"]) for whole in (claim, *claim.get("also", []))]
        lines = [f"epsilon = {epsilon}, delta = {delta}, for each {unit}" for epsilon, delta, unit in wholes]
        return [line.replace(".0,", ",") + ", says claim.json alone" * bool(row) for row, line in enumerate(lines)]
    except DAMAGE as error:
        raise Wrong(f"the folder is damaged or not a model ({type(error).__name__}: {error})") from None


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
