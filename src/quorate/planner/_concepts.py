"""Plans for classes of hypotheses: what each method needs and guarantees, before any record is read.

Every figure is a bound with explicit constants on the expected excess error: how much more often an answer is wrong
than the best hypothesis of the class is. It holds for every distribution of the records, and is therefore conservative:
real data do better. It is used to compare methods because it treats them alike.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from quorate.core.checks import check_count, check_delta, check_positive, check_rate
from quorate.core.errors import InvalidInput
from quorate.core.hypotheses.concept import Concept
from quorate.planner._concept_bounds import (
    LogGrowth,
    MethodBound,
    agnostic,
    pure_relabel,
    pure_stable,
    sauer_growth,
    semi_private,
    stable,
    subsample,
    universal,
)
from quorate.planner.result import Change, Method, Plan

_MOST_RECORDS = 10**15
_ESTIMATORS = {
    "agnostic": "AgnosticClassifier",
    "pure-realizable": "PureClassifier",
    "pure-relabel": "PureClassifier",
    "pure-stable": "PureClassifier",
    "semi-private": "SemiPrivateClassifier",
    "stable": "StableClassifier",
    "subsample": "PrivateClassifier",
    "universal": "UniversalClassifier",
}

Bound = Callable[[int], MethodBound]


def plan_concept(
    *,
    records: int,
    vc_dimension: int | None = None,
    concept: Concept | None = None,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    queries: int = 1000,
    alpha: float = 0.1,
    public: int = 0,
    realizable: bool = False,
    gamma: float | None = None,
) -> Plan:
    """Compare the methods for a class of hypotheses: their errors, and the records that alpha needs.

    Parameters
    ----------
    records
        How many private records there are.
    vc_dimension, concept
        A class of hypotheses, or its VC dimension: the methods are compared by bounds that always hold.
    epsilon, delta
        The privacy loss allowed for all answers together.
    queries
        How many queries will be asked. A published hypothesis (semi-private) answers any number.
    alpha
        The target excess error over the best hypothesis.
    public
        The number of public points from the distribution of the records.
    realizable
        Declare that some hypothesis of the class is always right.
    gamma
        Add the uniformly stable predictor.

    >>> plan = plan_concept(records=200_000, vc_dimension=2, queries=100, alpha=0.1)
    >>> [method.name for method in plan.methods]
    ['pure-stable', 'agnostic', 'pure-relabel', 'universal']
    """
    dimension, log_growth = _class(vc_dimension, concept)
    records, queries = check_count("records", records), check_count("queries", queries)
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
    alpha, public = check_rate("alpha", alpha), check_count("public", public, least=0)
    arguments: dict[str, Any] = {"log_growth": log_growth, "epsilon": epsilon}
    bounds = _bounds(arguments, delta, queries, public, realizable)
    lower_bound = None
    if gamma is not None:
        gamma = check_rate("gamma", gamma)
        lower_bound = math.ceil((dimension - 1) / (8 * gamma * alpha))
        guarantee = f"each prediction moves by at most {gamma:g}; not an epsilon"
        bounds["stable"] = (partial(stable, log_growth=log_growth, gamma=gamma), guarantee)
    methods = [
        _method(name, bound, guarantee, records=records, alpha=alpha, least=lower_bound if name == "stable" else None)
        for name, (bound, guarantee) in bounds.items()
    ]
    methods.sort(key=lambda method: (method.name == "stable", method.error, method.needed or _MOST_RECORDS))
    figures = {
        "records": records,
        "vc_dimension": dimension,
        "epsilon": epsilon,
        "delta": delta,
        "queries": queries,
        "alpha": alpha,
        "best": methods[0].name,
    }
    feasible = methods[0].error <= alpha
    return Plan(
        family="concept",
        feasible=feasible,
        keywords=_keywords(methods[0], figures),
        figures=figures,
        text=_text(methods, figures),
        shortage="" if feasible else f"an excess error of {alpha:g} is asked for",
        nearest=() if feasible else _nearest(methods),
        methods=tuple(methods),
        assumptions=_assumptions(realizable, public),
        shown=("best", "records", "vc_dimension", "epsilon", "delta", "queries", "alpha"),
    )


def _bounds(
    arguments: dict[str, Any], delta: float, queries: int, public: int, realizable: bool
) -> dict[str, tuple[Bound, str]]:
    """Return the bound and the guarantee of each method that is open."""
    pure = f"({arguments['epsilon']:g}, 0)"
    bounds: dict[str, tuple[Bound, str]] = {
        "pure-stable": (partial(pure_stable, **arguments, queries=queries), pure),
        "pure-relabel": (partial(pure_relabel, **arguments, queries=queries), pure),
    }
    if realizable:
        bounds["pure-realizable"] = (partial(subsample, **arguments, queries=queries), pure)
    if delta > 0:
        target = f"({arguments['epsilon']:g}, {delta:g})"
        bounds["agnostic"] = (partial(agnostic, **arguments, delta=delta, queries=queries), target)
        bounds["universal"] = (partial(universal, **arguments, delta=delta), f"{target}, any number of queries")
        if realizable:
            bounds["subsample"] = (partial(subsample, **arguments, delta=delta, queries=queries), target)
    if public:
        guarantee = f"{pure}, published: any number of queries"
        bounds["semi-private"] = (partial(semi_private, **arguments, public=public), guarantee)
    return bounds


def _nearest(methods: list[Method]) -> tuple[Change, ...]:
    """Return the fewest records with which a method with an epsilon reaches alpha."""
    needed = [(method.needed, method.name) for method in methods if method.needed and method.name != "stable"]
    if not needed:
        return ()
    records, name = min(needed)
    return (Change("records", records, None, f"collect {records:,} records, for {name}"),)


def _keywords(best: Method, figures: dict[str, Any]) -> dict[str, Any]:
    if best.name == "stable":
        return {"gamma": best.settings["gamma"]}
    if best.name.startswith("pure-"):
        return {name: figures[name] for name in ("epsilon", "queries")} | {"method": best.name.removeprefix("pure-")}
    parameters = {"semi-private": ("epsilon",), "universal": ("epsilon", "delta")}
    return {name: figures[name] for name in parameters.get(best.name, ("epsilon", "delta", "queries"))}


def _text(methods: list[Method], figures: dict[str, Any]) -> str:
    best = methods[0]
    sentences = [
        f"With {figures['records']:,} records of a class of VC dimension {figures['vc_dimension']}, at epsilon = "
        f"{figures['epsilon']:g}, {best.name} is sure to keep the smallest excess error: {best.error:.3g}."
    ]
    if best.needed is not None:
        sentences.append(f"It needs {best.needed:,} records for {figures['alpha']:g}.")
    sentences += [
        f"{method.name} keeps {method.error:.3g}"
        + (f" and needs {method.needed:,}." if method.needed is not None else " and no number of records would do.")
        for method in methods[1:]
    ]
    return " ".join(sentences)


def _class(vc_dimension: int | None, concept: Concept | None) -> tuple[int, LogGrowth]:
    if (vc_dimension is None) == (concept is None):
        raise InvalidInput("give the class by either vc_dimension= or concept=")
    if concept is None:
        dimension = check_count("vc_dimension", vc_dimension)
        return dimension, sauer_growth(dimension)
    if not isinstance(concept, Concept):
        raise InvalidInput(f"concept must be a class of quorate.models.concepts, got {type(concept).__name__}")
    learned = concept.for_learning()
    return max(1, learned.vc_dimension), cache(lambda points: math.log(learned.growth(points)))


def _assumptions(realizable: bool, public: int) -> tuple[str, ...]:
    assumptions = ["records, queries and public points are drawn independently from one law"]
    if realizable:
        assumptions.append("some hypothesis of the class is always right")
    if public:
        assumptions.append(f"{public:,} public points are at hand; they are not protected")
    return tuple(assumptions)


def _method(name: str, bound: Bound, guarantee: str, *, records: int, alpha: float, least: int | None) -> Method:
    bounded = bound(records)
    needed = _needed(lambda count: bound(count).error, alpha)
    error = min(1.0, bounded.error)
    return Method(name, _ESTIMATORS[name], error, guarantee, True, needed, least, dict(bounded.settings))


def _needed(error: Callable[[int], float], alpha: float) -> int | None:
    """Return a number of records that keeps alpha, within one in a hundred of the smallest; the bounds fall with it."""
    high = 16
    while error(high) > alpha:
        if high > _MOST_RECORDS:
            return None
        high *= 4
    low = high // 4
    while high > 1.01 * low + 1:
        middle = round(math.sqrt(low * high))
        if middle in (low, high):
            break
        low, high = (low, middle) if error(middle) <= alpha else (middle, high)
    return high
