"""Plans for releases: what is achievable, from public numbers and records, before any private record is read.

The largest error has two parts. The engine's part shrinks with the number of private records and with epsilon; the
cover's own part shrinks with the number of public points alone. The order of both is known (Bassily, Cheu, Moran,
Nikolov, Ullman and Wu 2020, Theorem 10), and so is a class for which public data cannot help (there, Theorem 13).
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from quorate.core.checks import check_count, check_delta, check_positive, check_rate
from quorate.core.errors import Infeasible
from quorate.core.hypotheses.points import Points
from quorate.models.concepts import Concept, Conjunctions, Stumps
from quorate.planner.result import Change, plan_card
from quorate.release.auto_cuts import AutoCuts
from quorate.release.cover.base import cover_share
from quorate.release.domain import Domain, make_domain
from quorate.release.engines import expected_errors
from quorate.release.queries import Rows
from quorate.release.workloads import Workload

_MOST = 2**50  # records that a plan asks for
_TRIES = 24  # numbers of records looked at


@dataclass(frozen=True)
class EngineForecast:
    """The largest error that an engine is expected to make on the queries it is given."""

    engine: str
    error: float


@dataclass(frozen=True)
class ReleasePlan:
    """What a release can achieve: engines from best to worst, the cover's error, and the records needed.

    `error` is the best engine's expected largest error and `cover` the cover's own error at confidence 1 - beta; a plan
    is `feasible` if both together stay within alpha. `private_needed` and `public_needed` are the smallest numbers that
    bring each part within half of alpha, None if no number does or none is needed. `public_alone` is the error of
    answering from the public records alone, if they are a fair sample; `sentences` state the conclusions.
    """

    subject: str
    records: int
    public: int
    epsilon: float
    delta: float
    alpha: float
    beta: float
    cells: int | None
    queries: int
    engine: str
    error: float
    cover: float
    public_alone: float
    engines: tuple[EngineForecast, ...]
    private_needed: int | None
    public_needed: int | None
    published: tuple[str, ...]
    sentences: tuple[str, ...]

    @property
    def feasible(self) -> bool:
        """Whether the expected error and the cover's error together stay within alpha."""
        return self.error + self.cover <= self.alpha

    @property
    def nearest(self) -> tuple[Change, ...]:
        """About how many records bring each part of the error within half of alpha, with the other number unchanged.

        If both parts are too large, both numbers must grow: more public records make more cells to measure.
        """
        half = self.alpha / 2
        parts = (
            ("records", "private", self.error, self.private_needed),
            ("public", "public", self.cover, self.public_needed),
        )
        return tuple(
            Change(parameter, needed, None, f"collect about {needed:,} {whose} records")
            for parameter, whose, error, needed in parts
            if not self.feasible and error > half and needed is not None
        )

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments, apart from the subject, of a `QueryRelease` that follows the plan."""
        return {"epsilon": self.epsilon, "delta": self.delta, "engine": self.engine}

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return asdict(self) | {"feasible": self.feasible}

    def summary(self) -> str:
        """Return the plan in a few sentences."""
        words = (
            f"{self.records} private and {self.public} public records, asked for {self.subject}: expected largest "
            f"error {self.error:.3g} by the engine {self.engine!r}, and {self.cover:.3g} for the cover itself."
        )
        return " ".join([words, *self.sentences])

    def _repr_html_(self) -> str:
        return plan_card(
            self, "subject", "engine", "records", "public", "queries", "error", "cover", "epsilon", "delta"
        )


def plan_release(
    subject: Any,
    *,
    records: int,
    public: Any = 0,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    alpha: float = 0.05,
    beta: float = 0.05,
    columns: Any = None,
) -> ReleasePlan:
    """Plan a release of this class or workload. No private record is read.

    `public` is the number of public records, or the public records themselves. For a number, evenly spread points stand
    in for them; a workload then needs declared `columns`.

    >>> from quorate.models.concepts import Thresholds
    >>> plan = plan_release(Thresholds(), records=1_000_000, public=10_000, epsilon=1.0, delta=1e-6, alpha=0.005)
    >>> plan.error < 0.002, plan.cover < 0.002
    (True, True)
    """
    records = check_count("records", records)
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
    alpha, beta = check_rate("alpha", alpha), check_rate("beta", beta)
    counted = public is None or (isinstance(public, int | np.integer) and not isinstance(public, bool))
    auto_cuts = AutoCuts.of(subject, columns, None if counted else public)
    domain, size = _domain(subject, public, columns if auto_cuts is None else auto_cuts.widest)
    known = domain.public() if size else None
    known = known.merged() if isinstance(known, Rows) else known
    forecast = partial(_forecasts, domain, known, auto_cuts, epsilon=epsilon, delta=delta)
    forecasts = forecast(records=records)
    if not forecasts:
        raise Infeasible(
            "no engine can answer these queries: they are too many; ask fewer, or pass fewer public points"
        )
    cover = domain.share(beta)
    alone = min(1.0, math.sqrt(math.log(2 * domain.queries.count / beta) / (2 * size))) if size else 1.0
    plan = ReleasePlan(
        subject=subject.kind if isinstance(subject, Workload) else type(subject).__name__,
        records=records,
        public=size,
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
        beta=beta,
        cells=domain.queries.cells,
        queries=domain.queries.count,
        engine=forecasts[0].engine,
        error=forecasts[0].error,
        cover=cover,
        public_alone=alone,
        engines=tuple(forecasts),
        private_needed=_private_needed(forecast, target=alpha / 2),
        public_needed=_public_needed(subject, target=alpha / 2, beta=beta),
        published=_published(subject, epsilon=epsilon, delta=delta, alpha=alpha, beta=beta),
        sentences=(),
    )
    found = (
        () if auto_cuts is None else ("A tenth of the budget finds cuts: this is for as many cells as there may be.",)
    )
    return replace(plan, sentences=(*_sentences(subject, plan), *found))


def _forecasts(
    domain: Domain, known: Any, auto_cuts: AutoCuts | None, *, records: int, epsilon: float, delta: float
) -> list[EngineForecast]:
    """Return each engine that can answer these queries with its expected largest error, best first."""
    errors = expected_errors(domain.queries, records=records, epsilon=epsilon, delta=delta, public=known)
    errors = errors if auto_cuts is None else auto_cuts.expected_errors(errors)
    return [EngineForecast(name, float(error)) for name, error in errors.items()]


def _domain(subject: Any, public: Any, columns: Any) -> tuple[Domain, int]:
    if isinstance(public, int | np.integer) and not isinstance(public, bool):
        size = check_count("public", int(public), least=0)
        if isinstance(subject, Concept):
            return make_domain(subject, stand_in_points(subject, size)), size
        return make_domain(subject, None, columns), 0
    if public is None:
        return make_domain(subject, None, columns), 0
    domain = make_domain(subject, public, columns)
    known = domain.public()
    return domain, int(known.records if isinstance(known, Rows) else np.sum(known))  # type: ignore[arg-type]


def stand_in_points(concept: Concept, size: int) -> Points:
    """Return so many evenly spread points of a class, for planning: they depend on nothing but their number."""
    root = _root(concept.features)
    steps = np.arange(1, size + 1)[:, np.newaxis] / root ** np.arange(1, concept.features + 1)
    spread = (0.5 + steps) % 1.0  # an additive recurrence: no clusters and no gaps in any of a few dimensions
    if isinstance(concept, Conjunctions):
        return np.asarray(np.floor(spread * np.array(concept.categories)))
    if isinstance(concept, Stumps) and concept.binary:
        return np.floor(2 * spread)
    return np.asarray(spread)


def _root(dimensions: int) -> float:
    """Return the number above 1 with x**(d + 1) = x + 1, which generalises the golden ratio to d dimensions."""
    value = 2.0
    for _ in range(60):
        value = (1.0 + value) ** (1.0 / (dimensions + 1))
    return value


def _private_needed(forecast: Callable[..., list[EngineForecast]], *, target: float) -> int | None:
    """Return about the smallest number of private records at which some engine is expected to keep within the target.

    Errors fall like a power of the number between -1 and -1/2, so that scaling it by error / target comes close fast.
    """
    records, enough = 1000, None
    for _ in range(_TRIES):
        forecasts = forecast(records=records)
        error = forecasts[0].error if forecasts else 1.0
        if error <= target:
            enough = records
        if 0.98 * target <= error <= target or records >= _MOST:
            break
        records = max(1, min(_MOST, math.ceil(records * max(error / target, 2.0 if error >= 1 else 0.0) * 1.005)))
        if records == enough:
            break
    return enough


def _public_needed(subject: Any, *, target: float, beta: float) -> int | None:
    """Return how many public points bring the cover's own share within the target; None for what has no cover."""
    finite = isinstance(subject, Conjunctions) or (isinstance(subject, Stumps) and subject.binary)
    if not isinstance(subject, Concept) or finite:  # every query is its own
        return None
    high = 1
    while cover_share(subject, high, beta) > target:
        high *= 2
        if high > 2**40:
            return None
    low = high // 2
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if cover_share(subject, middle, beta) <= target else (middle, high)
    return high


def _published(subject: Any, *, epsilon: float, delta: float, alpha: float, beta: float) -> tuple[str, ...]:
    """Return the published orders of magnitude, without their constants, for a class of known dimensions."""
    if not isinstance(subject, Concept):
        return ()
    told = subject.vc_dimension * math.log(1 / alpha) + math.log(1 / beta)
    dual = subject.dual_vc_dimension or 2 ** (subject.vc_dimension + 1)
    private = told**1.5 * math.sqrt(dual * math.log(1 / delta)) / (epsilon * alpha**2)
    return (
        f"Bassily et al. 2020, Theorem 10, for VC dimension {subject.vc_dimension} and dual {dual}: of the order of "
        f"{private:.2g} private and {told / alpha:.2g} public records, constants left out",
    )


def _sentences(subject: Any, plan: ReleasePlan) -> list[str]:
    """Say what would have to change, and when public data are all or nothing."""
    said, half = [], plan.alpha / 2
    if plan.error > half and plan.private_needed is not None:
        said.append(f"About {plan.private_needed} private records bring the engine's part within {half:g}.")
    if plan.cover > half and plan.public_needed is not None:
        said.append(f"About {plan.public_needed} public records bring the cover's own part within {half:g}.")
    if plan.public and plan.public_alone <= plan.error:
        said.append(
            f"If the public records are a fair sample, they alone answer within {plan.public_alone:.3g}: private data "
            "add nothing."
        )
    if isinstance(subject, Stumps) and subject.binary:
        said.append(_stumps(subject.features, plan))
    return said


def _stumps(features: int, plan: ReleasePlan) -> str:
    """Say when public data cannot help: for stumps over p binary columns they answer alone, or not at all."""
    private, few = math.sqrt(features) / (plan.epsilon * plan.alpha), 1 / plan.alpha**2
    short = plan.public < few and plan.records < private
    return (
        f"For stumps over {features} binary columns public data cannot help (Bassily et al. 2020, Theorem 13): within "
        f"{plan.alpha:g} it takes of the order of {private:.2g} private records, or of {few:.2g} public ones, which "
        f"then answer alone{'; there are too few of both' if short else ''}."
    )
