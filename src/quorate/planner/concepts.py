"""Plans for classes of hypotheses: what each method needs and guarantees, before any record is read.

Every figure is a bound with explicit constants on the expected excess error: how much more often an answer is wrong
than the best hypothesis of the class is. It holds for every distribution of the records, and is therefore conservative:
real data do better. It is used to compare methods because it treats them alike.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any

from quorate.core.checks import check_count, check_delta, check_positive, check_rate
from quorate.core.errors import InvalidInput
from quorate.core.hypotheses import Concept
from quorate.planner.concept_bounds import (
    MethodBound,
    agnostic,
    pure_realizable,
    pure_relabel,
    pure_stable,
    semi_private,
    stable,
    subsample,
    universal,
)
from quorate.planner.learning import LogGrowth, sauer_growth
from quorate.planner.result import Change, plan_card

__all__ = ["ConceptMethod", "ConceptPlan", "plan_concept"]

_MOST_RECORDS = 10**15


@dataclass(frozen=True)
class ConceptMethod:
    """One method: the excess error that it guarantees with these records, and the records that alpha needs.

    `needed` is None if no number of records would do. `settings` are those of the bound.
    """

    name: str
    error: float
    needed: int | None
    settings: Mapping[str, float]
    guarantee: str
    least: int | None = None


@dataclass(frozen=True, kw_only=True)
class ConceptPlan:
    """All methods, the best for these records first.

    `best` is its name, `feasible` whether it reaches alpha.
    """

    records: int
    vc_dimension: int
    epsilon: float
    delta: float
    queries: int
    alpha: float
    best: str
    feasible: bool
    methods: tuple[ConceptMethod, ...]
    assumptions: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values that JSON can hold."""
        plain = asdict(self)
        plain["methods"] = [asdict(method) | {"settings": dict(method.settings)} for method in self.methods]
        plain["assumptions"] = list(self.assumptions)
        return plain

    @property
    def nearest(self) -> tuple[Change, ...]:
        """The fewest records with which a method with an epsilon reaches alpha, if the best method does not."""
        needed = [(m.needed, m.name) for m in self.methods if m.needed is not None and m.name != "stable"]
        if self.feasible or not needed:
            return ()
        records, name = min(needed)
        return (Change("records", records, None, f"collect {records:,} records, for {name}"),)

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments, apart from the class, of the classifier of the best method."""
        if self.best == "stable":
            return {"gamma": self.methods[0].settings["gamma"]}
        if self.best.startswith("pure-"):
            return {"epsilon": self.epsilon, "queries": self.queries, "method": self.best.removeprefix("pure-")}
        named = {"semi-private": ("epsilon",), "universal": ("epsilon", "delta")}
        return {name: getattr(self, name) for name in named.get(self.best, ("epsilon", "delta", "queries"))}

    def method(self, name: str) -> ConceptMethod:
        """Return one method by its name."""
        for method in self.methods:
            if method.name == name:
                return method
        raise InvalidInput(f"the plan has no method {name!r}; it has {', '.join(one.name for one in self.methods)}")

    def summary(self) -> str:
        """Return the plan in a few sentences."""
        best = self.methods[0]
        parts = [
            f"With {self.records:,} records of a class of VC dimension {self.vc_dimension}, at epsilon = "
            f"{self.epsilon:g}, {best.name} is sure to keep the smallest excess error: {best.error:.3g}."
        ]
        if best.needed is not None:
            parts.append(f"It needs {best.needed:,} records for {self.alpha:g}.")
        parts += [
            f"{other.name} keeps {other.error:.3g}"
            + (f" and needs {other.needed:,}." if other.needed is not None else " and no number of records would do.")
            for other in self.methods[1:]
        ]
        return " ".join(parts)

    def _repr_html_(self) -> str:
        return plan_card(self, "best", "records", "vc_dimension", "epsilon", "delta", "queries", "alpha")


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
) -> ConceptPlan:
    """Compare the methods for a class of hypotheses: their errors, and the records that alpha needs.

    Give the class itself or its VC dimension. `queries` are answered within (epsilon, delta) together; a published
    hypothesis (semi-private) answers any number. `public` is the number of public points from the distribution of the
    records. `realizable` declares that some hypothesis of the class is always right. `gamma` adds the uniformly stable
    predictor.

    >>> plan = plan_concept(records=200_000, vc_dimension=2, queries=100, alpha=0.1)
    >>> [method.name for method in plan.methods]
    ['pure-stable', 'agnostic', 'pure-relabel', 'universal']
    """
    dimension, log_growth = _class(vc_dimension, concept)
    records, queries = check_count("records", records), check_count("queries", queries)
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
    alpha, public = check_rate("alpha", alpha), check_count("public", public, least=0)
    known: dict[str, Any] = {"log_growth": log_growth, "epsilon": epsilon}
    bounds: dict[str, tuple[Callable[..., MethodBound], str, int | None]] = {
        "pure-stable": (partial(pure_stable, **known, queries=queries), f"({epsilon:g}, 0)", None),
        "pure-relabel": (partial(pure_relabel, **known, queries=queries), f"({epsilon:g}, 0)", None),
    }
    if realizable:
        bounds["pure-realizable"] = (partial(pure_realizable, **known, queries=queries), f"({epsilon:g}, 0)", None)
    if delta > 0:
        target = f"({epsilon:g}, {delta:g})"
        bounds["agnostic"] = (partial(agnostic, **known, delta=delta, queries=queries), target, None)
        bounds["universal"] = (partial(universal, **known, delta=delta), f"{target}, any number of queries", None)
        if realizable:
            bounds["subsample"] = (partial(subsample, **known, delta=delta, queries=queries), target, None)
    if public:
        told = f"({epsilon:g}, 0), published: any number of queries"
        bounds["semi-private"] = (partial(semi_private, **known, public=public), told, None)
    if gamma is not None:
        gamma = check_rate("gamma", gamma)
        least = math.ceil((dimension - 1) / (8 * gamma * alpha))
        told = f"each prediction moves by at most {gamma:g}; not an epsilon"
        bounds["stable"] = (partial(stable, log_growth=log_growth, gamma=gamma), told, least)
    methods = [
        _method(name, bound, records=records, alpha=alpha, guarantee=told, least=least)
        for name, (bound, told, least) in bounds.items()
    ]
    methods.sort(key=lambda method: (method.name == "stable", method.error, method.needed or _MOST_RECORDS))
    return ConceptPlan(
        records=records,
        vc_dimension=dimension,
        epsilon=epsilon,
        delta=delta,
        queries=queries,
        alpha=alpha,
        best=methods[0].name,
        feasible=methods[0].error <= alpha,
        methods=tuple(methods),
        assumptions=_assumptions(realizable, public),
    )


def _class(vc_dimension: int | None, concept: Concept | None) -> tuple[int, LogGrowth]:
    if (vc_dimension is None) == (concept is None):
        raise InvalidInput("give the class by either vc_dimension= or concept=")
    if concept is None:
        dimension = check_count("vc_dimension", vc_dimension)
        return dimension, sauer_growth(dimension)
    if not isinstance(concept, Concept):
        raise InvalidInput(f"concept must be a class of quorate.models.concepts, not {type(concept).__name__}")
    learned = concept.for_learning()
    return max(1, learned.vc_dimension), cache(lambda points: math.log(learned.growth(points)))


def _assumptions(realizable: bool, public: int) -> tuple[str, ...]:
    told = ["records, queries and public points are drawn independently from one law"]
    if realizable:
        told.append("some hypothesis of the class is always right")
    if public:
        told.append(f"{public:,} public points are at hand; they are not protected")
    return tuple(told)


def _method(
    name: str, bound: Callable[..., MethodBound], *, records: int, alpha: float, guarantee: str, least: int | None
) -> ConceptMethod:
    here = bound(records)
    return ConceptMethod(
        name, min(1.0, here.error), _needed(lambda n: bound(n).error, alpha), here.settings, guarantee, least
    )


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
