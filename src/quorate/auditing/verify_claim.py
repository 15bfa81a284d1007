"""Verify the privacy claim of a saved model with nothing but Python's standard library.

    python -I -S verify_claim.py FOLDER

This file stands alone: copy it anywhere. It imports nothing of the library that wrote the folder. It prints VERIFIED
(exit code 0), what is wrong (1), or "not verified: ..." for a claim that it cannot recompute (3).

    files     every file that manifest.json lists is there and has its SHA-256, and claim.json is among them
    claim     the cost of every release in claim.json is recomputed from its integers with directed rounding, composed,
              and compared with the epsilon and delta that claim.json, manifest.json and GUARANTEE.md state
    ledger    every entry carries the keyed hash of itself and of the entry before it; the charges add up to the stored
              account, never exceed it, and are at least what the stored answers cost; it has come as far as its mark

Taken as given: that the program drew what the claim says, and that one unit moves each release by no more than the
sensitivity in the claim. A ledger proves this much to the holder of its key.

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
from fractions import Fraction
from pathlib import Path
from typing import Any

BITS = 256  # of a fixed-point number after the binary point
ONE = 1 << BITS
SPARE = 1 << 20  # units in the last place, above the rounding of any series here
RENYI_QUANTA = 2**40  # in one unit of divergence
SLACK_QUANTA = 2**100  # in a probability of one
WORD = 2**64  # the unit of the levels of a table
LARGEST_EXPONENT = 20_000
NO_QUORUM = -1  # the label of a query without a quorum
OWN_CALLER = "online"  # whose rows in a ledger are state of the model and no answers


class Wrong(Exception):
    """The folder contradicts its claim."""


class NotVerified(Exception):
    """The claim cannot be recomputed here."""


# --- Intervals -------------------------------------------------------------------------------------------------------


class Interval:
    """All numbers from `low` to `high`, in units of 2**-BITS. Every operation rounds outwards."""

    __slots__ = ("high", "low")

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


def larger(one: Interval, *others: Interval) -> Interval:
    """Return an interval around the largest of several numbers."""
    return Interval(max(one.low, *(v.low for v in others)), max(one.high, *(v.high for v in others)))


def root(value: Interval) -> Interval:
    """Return the square root."""
    return Interval(math.isqrt(max(value.low, 0) << BITS), math.isqrt(value.high << BITS) + 1)


def double_atanh(top: int, bottom: int) -> int:
    """Return 2 atanh(top / bottom) for 0 <= top / bottom <= 1/3, off by less than 2**9 units."""
    power = total = (top << BITS) // bottom
    odd = 3
    while power:
        power = power * top * top // (bottom * bottom)
        total += power // odd
        odd += 2
    return 2 * total


LN2 = double_atanh(1, 3)
LOGS = [double_atanh(j, 128 + j) for j in range(65)]  # log(1 + j / 64)


def log_point(value: int) -> int:
    """Return log(value / ONE): 64ths of the mantissa from the table, the rest by the series of atanh."""
    shift = value.bit_length() - BITS - 1
    mantissa = value >> shift if shift >= 0 else value << -shift  # from ONE to 2 ONE
    j = (mantissa >> (BITS - 6)) - 64
    centre = (64 + j) << (BITS - 6)
    step = ((mantissa - centre) << BITS) // (mantissa + centre)  # below 1/128
    power = total = step
    odd = 3
    while power:
        power = power * step * step >> 2 * BITS
        total += power // odd
        odd += 2
    return 2 * total + LOGS[j] + shift * LN2


def log(value: "Interval | Fraction | int") -> Interval:
    """Return the natural logarithm."""
    value = interval(value)
    if value.low <= 0:
        raise NotVerified("the logarithm of a number that may be zero is needed")
    spare = SPARE * (1 + value.high.bit_length() // BITS)
    return Interval(log_point(value.low) - spare, log_point(value.high) + spare)


def taylor(value: int) -> int:
    """Return exp(value / ONE) for 0 <= value <= ONE, off by less than 2**8 units."""
    term = total = ONE
    number = 1
    while term:
        term = term * value // (number << BITS)
        total += term
        number += 1
    return total


POWERS = [taylor(j * (LN2 >> 6)) for j in range(65)]  # 2**(j / 64)


def exp_point(value: int) -> tuple[int, int]:
    """Return bounds of exp(value / ONE)."""
    shift, rest = divmod(value, LN2)
    if shift < -2 * BITS:
        return 0, 1
    if shift > LARGEST_EXPONENT:
        raise NotVerified("an exponent is too large")
    j, rest = divmod(rest, LN2 >> 6)
    total = taylor(rest) * POWERS[j] >> BITS
    low, high = (total - SPARE * (abs(shift) + 64), total + SPARE * (abs(shift) + 64))
    return (low << shift, high << shift) if shift >= 0 else (max(low >> -shift, 0), (high >> -shift) + 1)


def exp(value: "Interval | Fraction | int") -> Interval:
    """Return the exponential."""
    value = interval(value)
    return Interval(exp_point(value.low)[0], exp_point(value.high)[1])


PI = Interval(*(interval(Fraction(3141592653589793238462643383279 + end, 10**30)).low for end in (0, 1)))
NOTHING = Interval(0, 0)


# --- Costs of mechanisms ---------------------------------------------------------------------------------------------


def epsilon_of(divergence: Interval, order: Fraction, delta: Fraction) -> Interval:
    """Return the epsilon of a divergence at an order (Canonne, Kamath and Steinke 2020, Proposition 12)."""
    return divergence + log(1 - 1 / order) - log(order * delta) / (order - 1)


def gaussian_cost(order: Fraction | None, square: int, scale: Fraction) -> Interval:
    """Return D for discrete Gaussian noise and a shift by integers of this squared length: a S / (2 s^2)."""
    if order is None:
        raise Wrong("Gaussian noise has no bound at order infinity")
    return interval(order * square / (2 * scale * scale))


def divergence(order: Fraction | None, one: tuple[Any, ...], two: tuple[Any, ...]) -> Interval:
    """Return D of two laws on the same outcomes, given as the logarithms of their probabilities."""
    if order is None:
        return larger(*(p - q for p, q in zip(one, two, strict=True)))
    total = NOTHING
    for p, q in zip(one, two, strict=True):
        total += exp(p * order - q * (order - 1))
    return log(total) / (order - 1)


def exponential_cost(order: Fraction | None, epsilon: Fraction) -> Interval:
    """Return D where log ratios span at most epsilon: a eps^2 / 8, and no more than randomised response."""
    if order is None:
        return interval(epsilon)
    likely = NOTHING - log(exp(-epsilon) + 1)
    response = divergence(order, (likely, likely - epsilon), (likely - epsilon, likely))
    return min(interval(order * epsilon * epsilon / 8), response, key=Interval.top)


def gaussian_weights(scale: Fraction, radius: int) -> list[Interval]:
    """Return exp(-k^2 / (2 s^2)) for k from 0 to the radius; each ratio is the one before times exp(-1 / s^2)."""
    if radius > 500_000:
        raise NotVerified("noise is too wide to be summed here")
    step, ratio = exp(-1 / (scale * scale)), exp(-1 / (2 * scale * scale))
    weights = [interval(1)]
    for _ in range(radius):
        weights.append(weights[-1] * ratio)
        ratio = ratio * step
    return weights


def beyond(weights: list[Interval], scale: Fraction) -> Interval:
    """Return the sum of the last weight and all after it, which fall at least as fast as a geometric series."""
    return Interval(0, (weights[-1] / (interval(1) - exp((1 - len(weights)) / (scale * scale)))).high)


def gaussian_tail(scale: Fraction, margin: int) -> Interval:
    """Return P(x > margin). The normaliser of the law is at least s sqrt(2 pi), by Poisson summation."""
    weights = gaussian_weights(scale, abs(margin) + math.ceil(17 * scale) + 2)
    total = beyond(weights, scale)
    for k in range(margin + 1, len(weights) - 1):
        total += weights[abs(k)]
    return total / (root(PI * 2) * scale)


def convolved(weights: list[int]) -> list[int]:
    """Return the convolution of a list with itself, by one product of long integers."""
    width = (2 * max(weights).bit_length() + len(weights).bit_length()) // 8 + 1
    packed = int.from_bytes(b"".join(weight.to_bytes(width, "little") for weight in weights), "little")
    content = (packed * packed).to_bytes(2 * width * len(weights), "little")
    return [int.from_bytes(content[width * i : width * (i + 1)], "little") for i in range(2 * len(weights) - 1)]


def two_winner_cost(order: Fraction, scale: Fraction) -> Interval:
    """Return D of the name of the larger of two noisy counts, where one ballot moves both counts by 1.

    With T the difference of two noises, the winner is a coin of probability S(t) = P(T >= t) on one data set and of
    S(t + 2) on the other, for any t, or the other way round. T is symmetric, so that 1 - S(t) = S(1 - t), and one
    direction at t is the other direction at -1 - t: it is enough to look at (S(t), S(t + 2)) for every t.
    """
    radius = math.ceil(17 * scale) + 2
    half = gaussian_weights(scale, radius)
    law, outside = half[:0:-1] + half, 2 * beyond(half, scale).high
    low_mass, high_mass = sum(w.low for w in law), sum(w.high for w in law) + outside
    pairs = zip(convolved([w.low for w in law]), convolved([w.high for w in law]), strict=True)
    survival, low, high = [], 0, 2 * outside * high_mass  # what the table leaves out of one noise or of both
    for more_low, more_high in reversed(list(pairs)):
        low, high = low + more_low, high + more_high
        ends = (low << BITS) // high_mass**2, -((-high << BITS) // low_mass**2)
        survival.append(Interval(ends[0], min(ends[1], ONE)))
    survival.reverse()  # S(t) for t from -2 radius to 2 radius
    rare = ONE >> 140
    logs, last = [log(s) if s.low > rare else None for s in survival], len(survival) - 1
    worst = far_cost(order, scale, Interval(0, 2 * rare))
    for i in range(1, last - 1):
        p, q, p_not, q_not = logs[i], logs[i + 2], logs[last - i + 1], logs[last - i - 1]
        if p and q and p_not and q_not:
            worst = larger(worst, divergence(order, (p, p_not), (q, q_not)))
    return worst


def far_cost(order: Fraction, scale: Fraction, mass: Interval) -> Interval:
    """Return a bound on D where one of two outcomes has at most this mass on one of both data sets.

    On the other data set it then has at most b = exp(1 / s^2) mass^(1/2) (Cauchy and Schwarz). So the common outcome
    adds at most (1 - b)^(1 - a) to the moment, and the rare one exp(a (a m - 1) / s^2) b^(1 - 1/m) for each m > 1
    (Hoelder), since E_Q[(P/Q)^c] is at most exp(c (c - 1) / s^2) for two counts that each move by 1.
    """
    rare = exp(1 / (scale * scale)) * root(mass)
    common = exp(log(interval(1) - rare) * (1 - order))
    powers = map(Fraction, ("1.2", "1.5", "2", "4", "9", "20"))
    exponents = [(m, order * (order * m - 1) / (scale * scale)) for m in powers]
    most = log(Interval(rare.high, rare.high))
    terms = [exp(most * (1 - 1 / m) + exponent) for m, exponent in exponents if exponent < LARGEST_EXPONENT // 2]
    if not terms:
        raise NotVerified("the far tail of a noisy maximum is not bounded at this order")
    return log(common + min(terms, key=Interval.top)) / (order - 1)


def log_coins(levels: list[int]) -> list[tuple[Any, Any]]:
    """Return log p and log(1 - p) for levels p in units of 2**-64; None for the logarithm of 0."""
    coins = [(Fraction(level, WORD), Fraction(WORD - level, WORD)) for level in levels]
    return [(log(p) if p > 0 else None, log(rest) if rest > 0 else None) for p, rest in coins]


def sharp_cost(order: Fraction | None, teachers: int, table: list[int]) -> Interval:
    """Return D of one answer by a table of the probabilities of the wrong label, by lead: the worst single ballot."""
    if teachers % 2 == 0 and 2 * table[0] != WORD:
        raise Wrong("the table of a majority must start at one half where a tie is possible")
    coins, worst = log_coins(table if teachers % 2 == 0 else [WORD - table[0], *table]), NOTHING
    for one, two in itertools.pairwise(coins):
        worst = larger(worst, divergence(order, one, two), divergence(order, two, one))
    return worst


def no_quorum_cost(order: Fraction | None, table: list[int]) -> Interval:
    """Return (log(p^a q^(1-a)) - log(1 - (1-p)^a (1-q)^(1-a))) / (a - 1) for the worst consecutive levels p and q."""
    if order is None or table[0] != WORD or table[-1] < 1:
        raise Wrong("a table of no-quorums must fall from 1 to a positive level, and needs a finite order")
    coins, worst = log_coins(table), NOTHING
    for (p, p_not), (q, q_not) in itertools.pairwise(coins):
        answers = NOTHING if p_not is None else exp(p_not * order - q_not * (order - 1))
        worst = larger(worst, p * order - q * (order - 1) - log(interval(1) - answers))
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


def mechanism_costs(mechanism: dict[str, Any], order: Fraction | None) -> dict[str, tuple[Interval, Interval]]:
    """Return, for each event that a mechanism charges, its divergence and the probability of its tail event."""
    name = mechanism["name"]
    if name in ("NoisyMax", "NoisyShares"):
        scale, classes = positive(mechanism["scale"]), integer(mechanism["classes"], least=2)
        cost = gaussian_cost(order, 1 if name == "NoisyShares" and classes == 2 else 2, scale)
        if name == "NoisyMax" and classes == 2 and order is not None and scale >= Fraction(1, 4):
            cost = min(cost, two_winner_cost(order, scale), key=Interval.top)
        elif name == "NoisyMax":
            raise NotVerified("the law of the noisy maximum of more than two counts is not recomputed here")
        return {"query": (cost, NOTHING)}
    if name == "SoftMajority":
        return {"query": (exponential_cost(order, positive(mechanism["epsilon_per_query"])), NOTHING)}
    if name == "SharpMajority":
        return {"query": (sharp_cost(order, integer(mechanism["teachers"]), integers(mechanism["table"])), NOTHING)}
    if name in ("Quorum", "Dissent"):
        scale, margin = positive(mechanism["threshold_scale"]), integer(mechanism["margin"], least=-(2**62))
        tail = gaussian_tail(scale, margin) if name == "Quorum" else NOTHING
        no_quorum = no_quorum_cost(order, integers(mechanism["table"]))
        return {"opening": (gaussian_cost(order, 1, scale), tail), "no quorum": (no_quorum, NOTHING)}
    raise NotVerified(f"the cost of {name} is not recomputed here")


# --- The tree of a claim ---------------------------------------------------------------------------------------------

Pair = tuple[Fraction, Fraction]  # epsilon and delta


def stated(part: dict[str, Any]) -> Pair:
    """Return the epsilon and delta that a part states."""
    epsilon, (top, bottom) = positive(part["epsilon"]), integers(part["delta"])
    delta = Fraction(top, bottom)
    if delta >= 1:
        raise Wrong("delta must be below 1")
    return epsilon, delta


def order_of(part: dict[str, Any]) -> Fraction:
    """Return the Renyi order of a part."""
    order = positive(part["order"])
    if order <= 1:
        raise Wrong("an order must be above 1")
    return order


def check_part(part: dict[str, Any], notes: list[str]) -> Pair:
    """Return the epsilon and delta of a part of a claim once it is seen to keep them, or raise what is wrong."""
    rules = {"releases": check_releases, "account": check_account, "sum": check_sum, "group": check_group}
    if part["rule"] == "unverified":
        raise NotVerified(str(part["reason"]))
    if part["rule"] not in rules:
        raise NotVerified(f"the rule {part['rule']!r} is not known here")
    found, claimed = rules[part["rule"]](part, notes), stated(part)
    if found[0] > claimed[0] or found[1] > claimed[1]:
        raise Wrong(f"a part costs up to {tuple(map(float, found))}, and it claims {tuple(map(float, claimed))}")
    return claimed


def check_sum(part: dict[str, Any], notes: list[str]) -> Pair:
    """Return the sums of parts about the same units."""
    pairs = [check_part(inner, notes) for inner in part["parts"]]
    return sum((pair[0] for pair in pairs), Fraction(0)), sum((pair[1] for pair in pairs), Fraction(0))


def check_group(part: dict[str, Any], notes: list[str]) -> Pair:
    """Return what a claim about one row says of r rows: r eps, and delta (1 + e^eps + ... + e^((r-1) eps))."""
    rows, (epsilon, delta) = integer(part["rows"], least=1), check_part(part["part"], notes)
    total = NOTHING
    for turn in range(rows):
        total += exp(epsilon * turn)
    return rows * epsilon, (total * delta).top()


def check_releases(part: dict[str, Any], notes: list[str]) -> Pair:
    """Check releases that are all that a budget ever paid for, by the tightest of three bounds."""
    (epsilon, delta), gaussian, losses = stated(part), [], []
    for release in part["releases"]:
        uses = integer(release["uses"])
        if release["mechanism"] == "discrete gaussian":
            square, entries = integer(release["squared_sensitivity"]), integer(release["entries"])
            gaussian.append((uses, square, positive(release["scale"]), entries))
        elif release["mechanism"] == "exponential":
            losses.append((uses, 2 * positive(release["rate"]) * integer(release["sensitivity"], least=1)))
        else:
            raise NotVerified(f"the cost of {release['mechanism']!r} is not recomputed here")
    if not gaussian + losses:
        raise Wrong("the claim lists no release")
    if not gaussian:
        pure = sum((uses * loss for uses, loss in losses), Fraction(0))
        if pure <= epsilon or delta == 0:
            notes.append(f"pure releases: epsilon at most {float(pure):.9g}")
            return pure, Fraction(0)
    if delta == 0 or part["order"] is None:
        raise Wrong("Gaussian releases need a delta above 0 and a finite order")
    found = renyi_epsilon(gaussian, losses, order_of(part), delta)
    if found > epsilon and not losses:
        smallest = gaussian_delta(gaussian, epsilon)
        notes.append(f"Gaussian releases: delta at most {float(smallest):.9g} at epsilon {float(epsilon):.9g}")
        return epsilon, smallest
    notes.append(f"releases: epsilon at most {float(found):.9g} at delta {float(delta):.9g}")
    return found, delta


def renyi_epsilon(gaussian: list[Any], losses: list[Any], order: Fraction, delta: Fraction) -> Fraction:
    """Return a bound by divergences at an order: costs add up, and a bound at any order is sound."""
    total = NOTHING
    for uses, square, scale, _ in gaussian:
        total += gaussian_cost(order, uses * square, scale)
    for uses, loss in losses:
        total += exponential_cost(order, loss) * uses
    return epsilon_of(total, order, delta).top()


def gaussian_delta(releases: list[Any], epsilon: Fraction) -> Fraction:
    """Return a bound on delta at epsilon of adaptively chosen Gaussian releases.

    Discrete noise of variance s^2 is, up to factors within [1 - eta, 1 + eta], continuous noise of variance s^2 - t^2
    that is rounded at random (Poisson summation), with t^2 = 25/16 and eta = 2.0001 exp(-2 pi^2 t^2). Continuous
    releases of total squared length mu^2 have delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) (Balle and Wang
    2018, Theorem 8), also where each is chosen by those before. It grows with mu. Each of n entries that a unit changes
    adds at most 4 eta to eps and to log delta.
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
    delta = normal_tail(rest / mu - mu / 2) - exp(rest) * normal_tail(rest / mu + mu / 2)
    return (Interval(0, max(delta.high, 0)) * exp(loss)).top()


def normal_tail(point: Fraction) -> Interval:
    """Return P(Z > x) for a standard normal Z: 1/2 - phi(x) (x + x^3/3 + x^5/15 + ...), bounded from x = 12 on."""
    if point < 0:
        return interval(1) - normal_tail(-point)
    if point > 12:
        return Interval(0, normal_tail(Fraction(12)).high)
    x, term, total = interval(point), interval(point), NOTHING
    odd = 1
    while term.high > 1 << 8:  # beyond, each term is below half of the one before, or adds less than is spared
        total, odd = total + term, odd + 2
        term = term * x * x / odd
    total += Interval(0, SPARE)
    return interval(Fraction(1, 2)) - exp(-point * point / 2) / root(PI * 2) * total


def check_account(part: dict[str, Any], notes: list[str]) -> Pair:
    """Check a budget at one order: what its capacity is worth, and that every price covers the cost of its event."""
    order = None if part["order"] is None else order_of(part)
    (epsilon, delta), (capacity, slack) = stated(part), integers(part["capacity"])
    rest, spent = delta - Fraction(slack, SLACK_QUANTA), [0, 0]
    if rest < 0 or (order is not None and rest == 0):
        raise Wrong("the slack of the account takes all of its delta")
    worth = interval(Fraction(capacity, RENYI_QUANTA))
    worth = worth if order is None else epsilon_of(worth, order, rest)
    notes.append(f"account: its capacity is worth epsilon {float(worth.top()):.12g} of {float(epsilon):.12g}")
    for mechanism in part["mechanisms"]:
        costs, charges = mechanism_costs(mechanism, order), mechanism["charges"]
        if set(charges) != set(costs):
            raise Wrong(f"{mechanism['name']} charges for {', '.join(costs)}, and the claim for {', '.join(charges)}")
        for event, (cost, tail) in costs.items():
            price = integers(charges[event]["price"])
            dearest = cost.top() * RENYI_QUANTA, tail.top() * SLACK_QUANTA
            if dearest[0] > price[0] or dearest[1] > price[1]:
                raise Wrong(f"the {event} of {mechanism['name']} costs more than its price")
            notes.append(f"{mechanism['name']}, {event}: costs {float(dearest[0] / max(price[0], 1)):.9f} of its price")
            uses = 0 if part["ledger"] else integer(charges[event]["uses"])
            spent = [total + uses * quanta for total, quanta in zip(spent, price, strict=True)]
    if spent[0] > capacity or spent[1] > slack:
        raise Wrong("the uses that the claim lists cost more than the account has")
    return worth.top(), delta


def accounts_of(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the accounts of a claim."""
    inner = [*part.get("parts", []), *([part["part"]] if "part" in part else [])]
    return ([part] if part["rule"] == "account" else []) + [account for node in inner for account in accounts_of(node)]


def check_claim(claim: dict[str, Any]) -> list[str]:
    """Check the arithmetic of a claim; return notes about its bounds, or raise what is wrong."""
    notes: list[str] = []
    try:
        if claim["format"] != 1:
            raise NotVerified(f"claims of format {claim['format']!r} are not known here")
        found = check_part(claim["part"], notes)
        if any(part > whole for part, whole in zip(found, stated(claim), strict=True)):
            raise Wrong("the claim is smaller than what its parts add up to")
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError, ZeroDivisionError) as error:
        raise Wrong(f"claim.json is incomplete or has a part of another type ({type(error).__name__})") from None
    return notes


# --- The folder and its ledger ---------------------------------------------------------------------------------------


def check_files(folder: Path, manifest: dict[str, Any]) -> None:
    """Check that every listed file is there with its SHA-256."""
    if "claim.json" not in manifest["files"]:
        raise NotVerified("the manifest lists no claim.json")
    for name, digest in manifest["files"].items():
        if Path(name).name != name:
            raise Wrong(f"the manifest lists {name!r}, which is no plain file name")
        if not (folder / name).is_file():
            raise Wrong(f"{name} is missing")
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise Wrong(f"{name} is not the file that the manifest lists")


def check_texts(folder: Path, manifest: dict[str, Any], claim: dict[str, Any]) -> None:
    """Refuse a published folder whose texts state less than its claim."""
    epsilon, delta = stated(claim)
    for text in [str(manifest["claim"]), (folder / "GUARANTEE.md").read_text("utf-8")]:
        found = re.search(r"\(([0-9.e+-]+), ([0-9.e+-]+)\)-differentially private", text)
        if found is None or Fraction(float(found[1])) < epsilon or Fraction(float(found[2])) < delta:
            raise Wrong("the text of the guarantee states less than claim.json")


def check_mechanisms(manifest: dict[str, Any], claim: dict[str, Any]) -> None:
    """Refuse a claim about other mechanisms than those by which the model answers."""
    accounts, published = accounts_of(claim["part"]), manifest["access"] == "published"
    if any(bool(account["ledger"]) == published for account in accounts) or (not published and not accounts):
        raise Wrong("the answers of a private folder are paid from its ledger, and those of a published one are not")
    documents = [part for part in manifest.values() if isinstance(part, dict) and isinstance(part.get("name"), str)]
    for mechanism in [inner for account in accounts for inner in account["mechanisms"]]:
        if not any(is_same_mechanism(mechanism, document) for document in documents):
            raise Wrong(f"the model does not answer by the {mechanism['name']} of the claim")


def is_same_mechanism(mechanism: dict[str, Any], document: dict[str, Any]) -> bool:
    """Return whether the claim has the name and every number of the mechanism by which the model answers."""
    for name, value in document.items():
        exact = list(Fraction(value).as_integer_ratio()) if isinstance(value, float) and math.isfinite(value) else value
        if name != "order" and mechanism.get(name) != exact:
            return False
    return True


def keyed(key: bytes, *parts: str) -> str:
    """Return the keyed hash of texts, each with its length before it."""
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(len(part.encode()).to_bytes(8, "big") + part.encode())
    return mac.hexdigest()


def check_ledger(folder: Path, account: dict[str, Any], notes: list[str]) -> None:
    """Check the chain of a ledger in SQLite, its account and its mark, and that its charges cover what was answered."""
    if (folder / "ledger.json").exists():
        raise NotVerified("the ledger stands in another database")
    key = bytes.fromhex((folder / "ledger.key").read_text("ascii"))
    database = sqlite3.connect(f"{(folder / 'ledger.sqlite').absolute().as_uri()}?mode=ro", uri=True)
    try:
        entries = database.execute("SELECT ledger, seq, at, kind, body, mac FROM quorate_entry ORDER BY seq").fetchall()
        [(last, head, text, mac)] = database.execute("SELECT seq, head, state, mac FROM quorate_snapshot").fetchall()
        answers = database.execute("SELECT label FROM quorate_answer WHERE caller != ?", (OWN_CALLER,)).fetchall()
    finally:
        database.close()
    fingerprint = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    spent = replay(entries, key, account["capacity"], fingerprint)
    ledger, state = entries[0][0], json.loads(text)
    if (last, head) != (entries[-1][1], entries[-1][5]) or mac != keyed(key, "snapshot", ledger, str(last), head, text):
        raise Wrong("the account of the ledger is not that of its last entry")
    if [int(part) for part in state["spent"]] != spent or state["fingerprint"] != fingerprint:
        raise Wrong("the entries of the ledger do not add up to its account")
    outer = json.loads((folder / "ledger.mark").read_text("utf-8"))
    mark = json.loads(outer["mark"])
    heads = {seq: mac for _, seq, _, _, _, mac in entries}
    if outer["mac"] != keyed(key, "mark", fingerprint, outer["mark"]) or mark["seq"] > last:
        raise Wrong("the ledger has not come as far as its mark: it is an old copy, or the mark was edited")
    if mark["seq"] >= entries[0][1] and heads[mark["seq"]] != mark["head"]:
        raise Wrong("the ledger is not the one that its mark speaks of")
    check_answers(account["mechanisms"], spent, [label for (label,) in answers])
    notes.append(f"ledger: {last} entries, {spent[0]} of {account['capacity'][0]} quanta spent, {len(answers)} answers")


def replay(entries: list[Any], key: bytes, capacity: list[int], fingerprint: str) -> list[int]:
    """Replay the entries from the opening, or from the last compaction, and return what is spent."""
    spent, head, previous = [0, 0], "", 0
    for place, (_, seq, at, kind, text, mac) in enumerate(entries):
        body = json.loads(text)
        if place == 0:
            if kind not in ("opened", "compacted") or (kind == "opened" and seq != 1):
                raise Wrong("the first entries of the ledger are missing")
            state, head, previous = (body, "", 0) if kind == "opened" else (body["state"], body["head"], seq - 1)
            if state["fingerprint"] != fingerprint or [int(part) for part in state["capacity"]] != capacity:
                raise Wrong("the ledger belongs to another manifest, or has another capacity than the claim")
            spent = [int(part) for part in state["spent"]]
        if seq != previous + 1 or mac != keyed(key, head, str(seq), kind, repr(float(at)), text):
            raise Wrong(f"entry {previous + 1} of the ledger is missing or was edited")
        spent, head, previous = charge(spent, kind, body), mac, seq
        if not all(0 <= part <= whole for part, whole in zip(spent, capacity, strict=True)):
            raise Wrong(f"entry {seq} of the ledger overdraws the account")
    return spent


def charge(spent: list[int], kind: str, body: dict[str, Any]) -> list[int]:
    """Return what is spent after an entry. What is leased counts as spent until it is returned."""
    if kind == "restored":
        return [max(total, int(part)) for total, part in zip(spent, body["spent"], strict=True)]
    if kind not in ("leased", "returned"):
        return spent
    amounts = integers([int(body["renyi"]), int(body["slack"])])
    sign = 1 if kind == "leased" else -1
    return [total + sign * amount for total, amount in zip(spent, amounts, strict=True)]


def check_answers(mechanisms: list[dict[str, Any]], spent: list[int], labels: list[int]) -> None:
    """Refuse a ledger that has charged less than its answers cost: each query, or each one without a quorum."""
    charges, least = mechanisms[-1]["charges"], 0
    if "query" in charges:
        least = len(labels) * charges["query"]["price"][0]
    elif labels:
        least = sum(mechanism["charges"]["opening"]["price"][0] for mechanism in mechanisms)
        least += labels.count(NO_QUORUM) * charges["no quorum"]["price"][0]
    if spent[0] < least:
        raise Wrong(f"{len(labels)} answers cost at least {least} quanta, and the ledger has charged {spent[0]}")


def verify(folder: Path) -> list[str]:
    """Return notes about a folder whose claim is verified, or raise what is wrong."""
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        check_files(folder, manifest)
        claim = json.loads((folder / "claim.json").read_bytes())
        notes = check_claim(claim)
        check_mechanisms(manifest, claim)
        if manifest["access"] == "published":
            check_texts(folder, manifest, claim)
        for account in accounts_of(claim["part"]):
            if account["ledger"]:
                check_ledger(folder, account, notes)
    except sqlite3.Error as error:
        raise Wrong(f"the ledger cannot be read: {error}") from None
    except (OSError, KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise Wrong(f"the folder is damaged or not a model ({type(error).__name__}: {error})") from None
    epsilon, delta = stated(claim)
    return [f"epsilon = {float(epsilon):g}, delta = {float(delta):g}, for each {claim['unit']}", *notes]


def main(folder: str) -> int:
    """Verify one folder, print the result and return the exit code."""
    try:
        sys.stdout.write("".join(f"{note}\n" for note in verify(Path(folder))) + "VERIFIED\n")
    except Wrong as error:
        sys.stdout.write(f"WRONG: {error}\n")
        return 1
    except NotVerified as error:
        sys.stdout.write(f"not verified: {error}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "."))
