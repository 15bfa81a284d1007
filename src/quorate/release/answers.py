"""Parse queries from text, and format answers as a tidy table."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.core.hypotheses.concept import Concept
from quorate.release.domain import Between, Domain, as_list
from quorate.release.queries import NOTHING

_SHOWN = 200  # characters of an unreadable query in an error


def parse_queries(texts: Sequence[str], about: Any) -> list[Any]:
    """Parse queries from text.

    An expression or a JSON object {"column": value} for a workload; "low:high,low:high" for boxes, with an end left
    out where there is none; "a,b>c" for the halfspace a*x + b*y > c.
    """
    if isinstance(about, Concept):
        from quorate.release.cover import parse_hypothesis  # noqa: PLC0415  workloads need no classes of hypotheses

        return [parse_hypothesis(text, about) for text in texts]
    return [_parse_request(text) for text in texts]


def _parse_request(text: str) -> Any:
    if not text.lstrip().startswith("{"):
        return text
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput(
            f'a query that starts with {{ must be a JSON object, such as {{"age": 40}}, got {text[:_SHOWN]!r}'
        ) from None
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def as_counts(bars: dict[str, Floats], records: int) -> dict[str, Any]:
    """Return shares as numbers of records, rounded to the precision of the noise, ends outwards."""
    errors = np.nan_to_num(bars["error"]) * records
    unit = 10.0 ** np.floor(np.log10(np.maximum(errors, 1.0)))
    ways = {"answer": np.rint, "low": np.floor, "high": np.ceil}
    rounded = {name: way(np.nan_to_num(bars[name]) * records / unit) * unit for name, way in ways.items()}
    limited = {name: np.minimum(values, records).astype(np.int64) for name, values in rounded.items()}
    return limited | {name: bars[name] * records for name in ("error", "gap") if name in bars}


def split_requests(domain: Domain, requests: Any) -> tuple[Any, dict[int, Any]]:
    """Return the requests that queries of the workload answer, and by their positions those of more columns."""
    if isinstance(requests, np.ndarray):
        return requests, {}
    listed = as_list(requests)
    beyond = {index: request for index, request in enumerate(listed) if domain.beyond(request) is not None}
    return (requests, beyond) if not beyond else ([query for query in listed if domain.beyond(query) is None], beyond)


def widen_ends(low: Floats, high: Floats, times: float) -> tuple[Floats, Floats]:
    """Return ends that miss `times` less often than those of a 95% interval do: PROOF.md, step 5.

    An interval is at least as wide as its noise: half of its width more on each side covers any point inside of it.
    """
    margin = (special.ndtri(1.0 - 0.025 / times) / special.ndtri(0.975) - 1.0) * (high - low) / 2.0
    return low - margin, high + margin


def divide(shares: Floats, others: Floats) -> Floats:
    """Return ratios, infinite where the other share is not above 0."""
    return np.asarray(np.divide(shares, others, out=np.full(len(shares), np.inf), where=others > 0.0))


def take_between(bars: dict[str, Floats], inner: dict[str, Floats], moved: Mapping[int, Between]) -> None:
    """Replace each outer query's answer by the interpolated answer, and add the gap to the inner query."""
    positions, weights = list(moved), np.array([near.weight for near in moved.values()])
    gaps = np.maximum(bars["answer"][positions] - inner["answer"], 0.0)
    bars["gap"] = np.full(len(bars["answer"]), np.nan)
    bars["gap"][positions] = gaps
    bars["answer"][positions] = np.minimum(bars["answer"][positions], inner["answer"]) + weights * gaps
    bars["error"][positions] = np.maximum(bars["error"][positions], inner["error"])
    bars["low"][positions] = np.minimum(bars["low"][positions], inner["low"])
    bars["high"][positions] = np.maximum(bars["high"][positions], inner["high"])


def name_between(names: list[dict[str, Any]], domain: Domain, moved: Mapping[int, Between]) -> None:
    """Name the two queries that bracket each answer."""
    for position, near in moved.items():
        inner = "nothing"
        if near.inner != NOTHING:
            inner = domain.describe(np.array([near.inner]), [near.inner])[0]["query"]
        names[position]["query"] = f"between ({inner}) and ({names[position]['query']})"


def shown_answers(rows: Sequence[Mapping[str, Any]], records: int) -> list[dict[str, Any]]:
    """Return rows of answers with numbers as texts for people: finer than a record, ends rounded outwards.

    >>> shown_answers([{"answer": 0.123456789, "error": 0.001, "low": 0.1214567, "high": 0.1254567}], 1000)
    [{'answer': '0.123457', 'error': '0.001', 'low': '0.121456', 'high': '0.125457'}]
    """
    digits = max(6, math.ceil(math.log10(records)) + 2)
    return [{name: _format_cell(name, value, digits) for name, value in row.items()} for row in rows]


def _format_cell(name: str, value: Any, digits: int) -> Any:
    if not isinstance(value, float) or math.isnan(value):
        return value
    if name not in ("answer", "low", "high"):
        return f"{value:.6g}"
    rounded = {"low": math.floor, "high": math.ceil}.get(name, round)(value * 10.0**digits) / 10.0**digits
    return f"{rounded:.{digits}f}".rstrip("0").rstrip(".")
