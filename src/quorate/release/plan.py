"""Plan a release: forecast its error from public numbers and records, before any private record is read.

The largest error has two parts. The engine's part shrinks with the number of private records and with epsilon; the
cover's own part shrinks with the number of public points alone. The order of both is known (Bassily, Cheu, Moran,
Nikolov, Ullman and Wu 2020, Theorem 10), and so is a class for which public data cannot help (there, Theorem 13).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from quorate.core.checks import check_count, check_delta, check_positive, check_rate
from quorate.core.errors import Infeasible
from quorate.core.hypotheses.concept import Points
from quorate.models.concepts import Concept, Conjunctions, Stumps
from quorate.planner.result import Change, Plan
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
    """The expected largest error of an engine on these queries."""

    engine: str
    error: float


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
) -> Plan:
    """Plan a release of this class or workload. No private record is read.

    `public` is the number of public records, or the public records themselves. A number is planned with evenly spread
    points; a workload then needs declared `columns`.

    `error` of the plan is the best engine's expected largest error and `cover` the cover's own error at confidence
    1 - beta; the plan is feasible if both together stay within alpha. `engines` has all engines from best to worst,
    `private_needed` and `public_needed` the smallest numbers of records that bring each part within half of alpha, None
    if no number does or none is needed, and `public_alone` the error of answering from public records alone, if they
    are a fair sample.

    >>> from quorate.models.concepts import Thresholds
    >>> plan = plan_release(Thresholds(), records=1_000_000, public=10_000, epsilon=1.0, delta=1e-6, alpha=0.005)
    >>> plan.error < 0.002, plan.cover < 0.002
    (True, True)
    """
    records = check_count("records", records)
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
    alpha, beta = check_rate("alpha", alpha), check_rate("beta", beta)
    auto_cuts = AutoCuts.of(subject, columns, None if _is_number(public) else public)
    domain, size = _make_domain(subject, public, columns if auto_cuts is None else auto_cuts.widest)
    counts = domain.public() if size else None
    counts = counts.merged() if isinstance(counts, Rows) else counts
    forecast = partial(_forecast_engines, domain, counts, auto_cuts, epsilon=epsilon, delta=delta)
    forecasts = forecast(records=records)
    if not forecasts:
        raise Infeasible(
            "no engine can answer these queries: they are too many; ask fewer, or pass fewer public points"
        )
    alone = min(1.0, math.sqrt(math.log(2 * domain.queries.count / beta) / (2 * size))) if size else 1.0
    figures: dict[str, Any] = {
        "subject": subject.kind if isinstance(subject, Workload) else type(subject).__name__,
        "records": records,
        "public": size,
        "epsilon": epsilon,
        "delta": delta,
        "alpha": alpha,
        "beta": beta,
        "cells": domain.queries.cells,
        "queries": domain.queries.count,
        "engine": forecasts[0].engine,
        "error": forecasts[0].error,
        "cover": domain.share(beta),
        "public_alone": alone,
        "engines": tuple(forecasts),
        "private_needed": _private_needed(forecast, target=alpha / 2),
        "public_needed": _public_needed(subject, target=alpha / 2, beta=beta),
        "published": _cite_orders(subject, epsilon=epsilon, delta=delta, alpha=alpha, beta=beta),
    }
    sentences = _write_sentences(subject, figures)
    if auto_cuts is not None:
        sentences.append("A tenth of the budget finds cuts: this is for as many cells as there may be.")
    return _make_plan(figures, sentences)


def _make_plan(figures: dict[str, Any], sentences: list[str]) -> Plan:
    error, cover, alpha = figures["error"], figures["cover"], figures["alpha"]
    text = (
        f"{figures['records']} private and {figures['public']} public records, asked for {figures['subject']}: "
        f"expected largest error {error:.3g} by the engine {figures['engine']!r}, and {cover:.3g} for the cover itself."
    )
    feasible = error + cover <= alpha
    return Plan(
        family="release",
        feasible=feasible,
        keywords={name: figures[name] for name in ("epsilon", "delta", "engine")},
        figures=figures | {"sentences": tuple(sentences)},
        text=" ".join([text, *sentences]),
        shortage="" if feasible else f"{error + cover:.3g} is above alpha = {alpha:g}",
        nearest=() if feasible else _list_changes(figures),
        shown=("subject", "engine", "records", "public", "queries", "error", "cover", "epsilon", "delta"),
    )


def _list_changes(figures: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the approximate number of records that brings the one excessive part of the error within half of alpha.

    If both parts are too large, no change of one number is enough.
    """
    parts = (("records", "private", "error", "private_needed"), ("public", "public", "cover", "public_needed"))
    large = [part for part in parts if figures[part[2]] > figures["alpha"] / 2]
    if len(large) > 1:
        return ()
    return tuple(
        Change(parameter, figures[needed], None, f"collect about {figures[needed]:,} {adjective} records")
        for parameter, adjective, _, needed in large
        if figures[needed] is not None
    )


def _is_number(public: Any) -> bool:
    return public is None or (isinstance(public, int | np.integer) and not isinstance(public, bool))


def _forecast_engines(
    domain: Domain, public: Any, auto_cuts: AutoCuts | None, *, records: int, epsilon: float, delta: float
) -> list[EngineForecast]:
    """Return each engine that can answer these queries with its expected largest error, best first."""
    errors = expected_errors(domain.queries, records=records, epsilon=epsilon, delta=delta, public=public)
    errors = errors if auto_cuts is None else auto_cuts.expected_errors(errors)
    return [EngineForecast(name, float(error)) for name, error in errors.items()]


def _make_domain(subject: Any, public: Any, columns: Any) -> tuple[Domain, int]:
    """Return the domain, and the number of public records."""
    if not _is_number(public):
        domain = make_domain(subject, public, columns)
        counts = domain.public()
        return domain, int(counts.records if isinstance(counts, Rows) else np.sum(counts))  # type: ignore[arg-type]
    size = check_count("public", int(public or 0), least=0)
    if isinstance(subject, Concept) and public is not None:
        return make_domain(subject, stand_in_points(subject, size)), size
    return make_domain(subject, None, columns), 0


def stand_in_points(concept: Concept, size: int) -> Points:
    """Return this many evenly spread points of a class for planning; they depend on their number alone."""
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
    """Return about the smallest number of private records at which an engine's expected error meets the target.

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
    """Return the number of public points that brings the cover's share within the target; None without a cover."""
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


def _cite_orders(subject: Any, *, epsilon: float, delta: float, alpha: float, beta: float) -> tuple[str, ...]:
    """Return the published orders of magnitude, without their constants, for a class of known dimensions."""
    if not isinstance(subject, Concept):
        return ()
    logarithms = subject.vc_dimension * math.log(1 / alpha) + math.log(1 / beta)
    dual = subject.dual_vc_dimension or 2 ** (subject.vc_dimension + 1)
    private = logarithms**1.5 * math.sqrt(dual * math.log(1 / delta)) / (epsilon * alpha**2)
    return (
        f"Bassily et al. 2020, Theorem 10, for VC dimension {subject.vc_dimension} and dual {dual}: of the order of "
        f"{private:.2g} private and {logarithms / alpha:.2g} public records, constants left out",
    )


def _write_sentences(subject: Any, figures: Mapping[str, Any]) -> list[str]:
    """Write the changes that make a plan feasible, and the cases where public data decide everything."""
    sentences, half = [], figures["alpha"] / 2
    if figures["error"] > half and figures["private_needed"] is not None:
        sentences.append(f"About {figures['private_needed']} private records bring the engine's part within {half:g}.")
    if figures["cover"] > half and figures["public_needed"] is not None:
        sentences.append(f"About {figures['public_needed']} public records bring the cover's own part within {half:g}.")
    if figures["public"] and figures["public_alone"] <= figures["error"]:
        sentences.append(
            f"If the public records are a fair sample, they alone answer within {figures['public_alone']:.3g}: private "
            "data add nothing."
        )
    if isinstance(subject, Stumps) and subject.binary:
        sentences.append(_compare_stumps(subject.features, figures))
    return sentences


def _compare_stumps(features: int, figures: Mapping[str, Any]) -> str:
    """Say when public data cannot help: for stumps over p binary columns they answer alone, or not at all."""
    alpha = figures["alpha"]
    private, few = math.sqrt(features) / (figures["epsilon"] * alpha), 1 / alpha**2
    short = figures["public"] < few and figures["records"] < private
    return (
        f"For stumps over {features} binary columns public data cannot help (Bassily et al. 2020, Theorem 13): within "
        f"{alpha:g} it takes of the order of {private:.2g} private records, or of {few:.2g} public ones, which then "
        f"answer alone{'; there are too few of both' if short else ''}."
    )
