"""Claims of differential privacy: as text, in the same words for every kind of model, and as a tree of integers.

The tree of `claim.json` has releases, how they compose, and what they add up to, as plain integers.

A number is an integer, or a pair [numerator, denominator]. A node has a "rule":

    releases      all that a budget ever paid for, one after the other: mechanism, integers and uses of each; of a table
                  that grows, with the weights of the updates in what is measured after each, and the rows of a unit
    account       a budget at one order: capacity, mechanisms, and the price of each event that they charge; a "ledger"
                  counts the uses, or the node does
    sum           several parts about the same units, whose epsilons and deltas add up
    group         a part about one row, for units of several rows
    sample        a part about a secret, relabelled sample, for the units from which it is taken
    boost         the votes of one phase of LabelBoost, for a record or for a point that teaches it
    cutoff        geometric noise that hides one no-quorum from the end of a phase, and nothing else
    shared        an account on which models draw, each of which has a claim of its own
    neighbours    votes for which each unit pays from a budget of its own
    stable        predictions of which each is stable, and nothing is claimed about several
    unverified    releases that no node describes yet, with the reason

`quorate.auditing.verify_claim` recomputes every node from these integers and shares no code with this module.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from fractions import Fraction
from typing import Any

from quorate.core.privacy.budget import Budget, to_quanta
from quorate.core.privacy.cost import Cost, best_order, text_up

LABELS_READ = "the label set was read from y and counts as public"  # a condition, where classes are not declared

COLUMNS_READ = (  # a condition, where nothing else declares the columns of a data frame
    "the names of the columns and whether the type of each is of numbers, dates or texts count as public (in a column "
    "of truth values or of objects one value may decide the type: declare a Schema to keep that private)"
)


@dataclass(frozen=True)
class Total:
    """The total guarantee of an account that several models share; a condition of each model's claim.

    It protects the `unit` of the account, which may be smaller than the unit that a single model protects.
    """

    epsilon: float
    delta: float
    unit: str

    def __str__(self) -> str:
        pair = f"({text_up(self.epsilon)}, {text_up(self.delta)})"
        return f"with all else that is drawn on its account, {pair} for each {self.unit}"


@dataclass(frozen=True)
class Claim:
    """A claim of (epsilon, delta)-differential privacy, with its neighbouring relation and its conditions.

    `neighbours` describes how neighbouring data sets differ, by default in the replacement of one unit.
    """

    epsilon: float
    delta: float
    unit: str
    what: str = ""
    conditions: tuple[str, ...] = ()
    neighbours: str = "replacement"

    def __str__(self) -> str:
        # Rounded up, so that the text never claims more than the proof.
        pair = f"({text_up(self.epsilon)}, {text_up(self.delta)})"
        text = f"{pair}-differentially private under {self.neighbours} of {self.unit}"
        return "; ".join([f"{self.what} {text}" if self.what else text, *self.conditions])


def replaced(unit: str) -> str:
    """Return the text of the replacement of one unit: "row", "text", "person" or "teacher".

    The unit "teacher" is for teachers that the user fitted; only the user knows the records of each.
    """
    units = {"row": "one row", "text": "one text", "person": "all rows of one person"}
    return (units | {"teacher": "all that one teacher has learned from"})[unit]


def added_or_removed(claim: Claim, *, replaced_epsilon: float) -> Claim:
    """Return the claim for neighbours of which one has an additional unit, with its epsilon for a replaced unit."""
    other = f"({text_up(math.ceil(1000 * replaced_epsilon) / 1000)}, {text_up(claim.delta)}) if it is replaced"
    return replace(claim, neighbours="addition or removal", conditions=(other, *claim.conditions))


CLAIM_FORMAT = 1
_DERIVED = ("ratio", "growth", "flip_probability")  # numbers of a mechanism that a claim needs besides its fields
Node = dict[str, Any]


def write_integers(value: Any) -> Any:
    """Return a number as integers, exactly; texts and containers keep their form."""
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float | Fraction):
        exact = Fraction(value)
        return [exact.numerator, exact.denominator]
    if isinstance(value, Mapping):
        return {name: write_integers(part) for name, part in value.items()}
    return [write_integers(part) for part in value]


def claim_document(part: Node, *, unit: str, others: Mapping[str, Node] | None = None) -> Node:
    """Return what `claim.json` holds for a part, whose epsilon and delta it states, and for parts about other units."""

    def whole(part: Node, unit: str) -> Node:
        return {"unit": unit, **{name: part.get(name) for name in ("epsilon", "delta")}, "part": part}

    also = [whole(other, name) for name, other in (others or {}).items()]
    return {"format": CLAIM_FORMAT, **whole(part, unit), **({"also": also} if also else {})}


def unverified_node(reason: str, **stated: float) -> Node:
    """Return the node of a claim whose releases are not described; `stated` may have its epsilon and delta."""
    return {"rule": "unverified", "reason": reason, **write_integers(stated)}


def releases_node(
    epsilon: float, delta: float, releases: Sequence[Mapping[str, Any]], *, order: float | None = None
) -> Node:
    """Return the node of releases that are all that (epsilon, delta) ever paid for; their costs add up at an order."""
    order = best_order(epsilon=epsilon, delta=delta) if order is None else order
    stated = {"epsilon": epsilon, "delta": delta, "releases": releases}
    return {"rule": "releases", "order": _write_order(order), **write_integers(stated)}


def budget_node(budget: Budget) -> Node:
    """Return the node of everything that a budget paid for; unverified if one of the charges has no description."""
    releases = budget.releases()
    if releases is None:
        return unverified_node("a release of this fit has no description")
    return releases_node(budget.epsilon, budget.delta, releases, order=budget.order)


def growing_node(
    epsilon: float, delta: float, releases: Sequence[Node], *, weights: Sequence[Sequence[int]], rows: int
) -> Node:
    """Return the node of measurements that are made after each update, of weighted sums of the updates so far.

    The releases say how far one row moves the measurement of one update alone; a unit has this many rows.
    """
    moved = [release for release in releases if release["squared_sensitivity"]]
    return {**releases_node(epsilon, delta, moved), **write_integers({"weights": weights, "rows": rows})}


def gaussian_release(*, squared_sensitivity: int, scale: float, entries: int, uses: int = 1) -> Node:
    """Return the description of a vector with discrete Gaussian noise on every entry."""
    described = {"squared_sensitivity": squared_sensitivity, "scale": scale, "entries": entries, "uses": uses}
    return {"mechanism": "discrete gaussian", **write_integers(described)}


def thresholded_release(*, squared_sensitivity: int, scale: float, keys: int, above: int) -> Node:
    """Return the description of noisy counts that are published above a threshold.

    Noise of more than `above` publishes a key that one unit alone has; it has at most this many `keys`.
    """
    settings = {"squared_sensitivity": squared_sensitivity, "scale": scale, "entries": squared_sensitivity, "uses": 1}
    return {"mechanism": "thresholded gaussian", **write_integers(settings), "keys": keys, "above": above}


def laplace_release(*, sensitivity: int, scale: float, keys: int | None = None, above: int | None = None) -> Node:
    """Return the description of numbers with discrete Laplace noise; with `keys`, published above a threshold."""
    described = write_integers({"sensitivity": sensitivity, "scale": scale, "uses": 1})
    if keys is None:
        return {"mechanism": "discrete laplace", **described}
    return {"mechanism": "thresholded laplace", **described, "keys": keys, "above": above}


def exponential_release(*, rate: Fraction, sensitivity: int, uses: int = 1) -> Node:
    """Return the description of a choice of probability proportional to exp(-rate * score)."""
    return {"mechanism": "exponential", **write_integers({"rate": rate, "sensitivity": sensitivity, "uses": uses})}


def account_node(
    budget: Budget, mechanisms: Sequence[Any], *, ledger: bool, spent: tuple[int, int] | None = None
) -> Node:
    """Return the node of a budget from which these mechanisms pay; without a ledger, `spent` quanta were paid in all.

    A query mechanism charges every query alike. A threshold mechanism charges its opening once, and each no-quorum. Any
    other comes in a pair with the cost of each event that it charges.
    """
    order = budget.order
    described = [_describe_mechanism(mechanism, order) for mechanism in mechanisms]
    if spent is not None:
        _count_uses(described, spent[0])
    elif not ledger:  # all that the mechanisms can ever charge
        for mechanism in described:
            for event, charge in mechanism["charges"].items():
                charge["uses"] = mechanism["no_quorums"] if event == "no quorum" else 1
    return {
        "rule": "account",
        **_state(budget.epsilon, budget.delta),
        "order": _write_order(order),
        "capacity": list(budget.quanta()),
        "ledger": ledger,
        "mechanisms": described,
    }


def sum_node(*parts: Node) -> Node:
    """Return the node of parts about the same units; unverified if one of them is."""
    return _combined(parts, lambda: {"rule": "sum", **_add_up(parts), "parts": list(parts)})


def group_node(epsilon: float, delta: float, rows: int, part: Node) -> Node:
    """Return the node of a claim of (epsilon, delta) for units of several rows, from a part about one row."""
    return _combined((part,), lambda: {"rule": "group", **_state(epsilon, delta), "rows": rows, "part": part})


def sample_node(epsilon: float, delta: float, sample: Any, part: Node) -> Node:
    """Return the node of a claim about the units from which a sample was taken, by a part about the sample."""
    numbers = {"numbers": numbers_of(sample)}
    return _combined((part,), lambda: {"rule": "sample", **_state(epsilon, delta), **numbers, "part": part})


def boost_node(epsilon: float, delta: float, boost: Mapping[str, float], part: Node, *, of: str) -> Node:
    """Return the node of "records" or "points" whose votes cost a part, and whose samples have these rates."""
    numbers = {"numbers": write_integers(boost), "of": of}
    return {"rule": "boost", **_state(epsilon, delta), **numbers, "part": part}


def cutoff_node(epsilon: float, delta: float, cutoff: Any) -> Node:
    """Return the node of a unit that pays for a NoisyCutoff alone."""
    return {"rule": "cutoff", **_state(epsilon, delta), "mechanisms": [_name_mechanism(cutoff)]}


def shared_node(epsilon: float, delta: float, budget: Budget) -> Node:
    """Return the node of an account of (epsilon, delta), kept as this budget, on which models draw."""
    return {"rule": "shared", **_state(epsilon, delta), "capacity": list(budget.quanta()), "ledger": True}


def neighbours_node(epsilon: float, delta: float, terms: Any, *, capacity: Sequence[int] | None) -> Node:
    """Return the node of votes by these terms: with the capacity of a ledger, or about units that are replaced."""
    account = {"ledger": capacity is not None, **({} if capacity is None else {"capacity": list(capacity)})}
    return {"rule": "neighbours", **_state(epsilon, delta), "numbers": numbers_of(terms), **account}


def stable_node(gamma: float, choice: Any) -> Node:
    """Return the node of predictions by a choice, of which one unit moves each by at most gamma."""
    return {"rule": "stable", **_state(0.0, gamma), "numbers": numbers_of(choice), "ledger": True}


def numbers_of(settings: Any) -> Node:
    """Return the numbers of a dataclass, and of those inside it."""
    numbers: Node = {}
    for part in fields(settings):
        value = getattr(settings, part.name)
        if part.name not in ("order", "concept"):
            numbers |= numbers_of(value) if is_dataclass(value) else {part.name: write_integers(value)}
    return numbers


def restate_claim(part: Node, epsilon: float, delta: float) -> Node:
    """Return a part with the epsilon and delta that its model states, which may be larger than what it adds up to."""
    return _combined((part,), lambda: {"rule": "sum", **_state(epsilon, delta), "parts": [part]})


def _state(epsilon: float, delta: float) -> Node:
    return {"epsilon": write_integers(epsilon), "delta": write_integers(delta)}


def _write_order(order: float) -> Any:
    return None if math.isinf(order) else write_integers(order)


def _combined(parts: Sequence[Node], node: Any) -> Node:
    unknown = next((part for part in parts if part["rule"] == "unverified"), None)
    return unknown or node()


def _add_up(parts: Sequence[Node]) -> Node:
    totals = {name: sum((Fraction(*part[name]) for part in parts), Fraction(0)) for name in ("epsilon", "delta")}
    return {name: write_integers(total) for name, total in totals.items()}


def _describe_mechanism(mechanism: Any, order: float) -> Node:
    """Return the name and the integers of a mechanism, and the price in quanta of each event that it charges."""
    charges: dict[str, Cost]
    if isinstance(mechanism, tuple):
        mechanism, charges = mechanism
    elif hasattr(mechanism, "opening_cost"):
        charges = {"opening": mechanism.opening_cost(order), "no quorum": mechanism.no_quorum_cost(order)}
    else:
        charges = {"query": mechanism.query_cost(order), "answer": mechanism.answer_cost(order)}
    priced = {
        event: {"price": list(to_quanta(cost)), "uses": None} for event, cost in charges.items() if cost != Cost(0.0)
    }
    return {**_name_mechanism(mechanism), "charges": priced}


def _name_mechanism(mechanism: Any) -> Node:
    derived = {name: getattr(mechanism, name) for name in _DERIVED if hasattr(mechanism, name)}
    return {"name": type(mechanism).__name__, **numbers_of(mechanism), **write_integers(derived)}


def _count_uses(described: Sequence[Node], spent: int) -> None:
    """Write how often each event was charged, which what was spent tells: an opening once, the rest by one price."""
    for mechanism in described:
        charges = mechanism["charges"]
        if "opening" in charges:
            charges["opening"]["uses"] = int(spent > 0)
            spent -= charges["opening"]["price"][0] * int(spent > 0)
        last = charges["no quorum"] if "no quorum" in charges else charges["query"]
        last["uses"] = spent // last["price"][0]
        spent -= last["uses"] * last["price"][0]
