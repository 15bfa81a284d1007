"""Numbers for Prometheus. Over several worker processes they are summed, through the folder PROMETHEUS_MULTIPROC_DIR.

What was answered is counted by model and outcome, refusals by code, times in whole paces; of an everlasting model only
how much was asked, for its count of no-quorums is nobody's but the owner's. The budget is read from the ledgers when it
is asked for. A caller sees the models that its key may read.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BUCKETS = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Metrics:
    """What a worker counts.

    >>> metrics = Metrics()
    >>> metrics.rows("clinic", "answered", 3)
    >>> b'quorate_queries_total{model="clinic",outcome="answered"} 3.0' in metrics.exposed({}, models=["clinic"])
    True
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "quorate_requests", "Requests by route, model, status and code.",
            ("route", "model", "status", "code"), registry=self._registry,
        )  # fmt: skip
        self._queries = Counter(
            "quorate_queries", "Queries by model and outcome: answered, no_quorum, refused; or asked, whatever it was.",
            ("model", "outcome"), registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "quorate_seconds", "Seconds until the answer left, in whole paces.",
            ("route", "model"), registry=self._registry, buckets=_BUCKETS,
        )  # fmt: skip
        self._children: dict[tuple[str, ...], Any] = {}

    def request(self, *, route: str, model: str, status: int, code: str, seconds: float) -> None:
        """Count a request. `route` is a template and `model` one that is served, or empty.

        >>> Metrics().request(route="/", model="", status=200, code="", seconds=0.02)
        """
        self._child(self._requests, route, model, str(status), code).inc()
        self._child(self._seconds, route, model).observe(seconds)

    def rows(self, model: str, outcome: str, count: int) -> None:
        """Count queries of one outcome.

        >>> Metrics().rows("clinic", "no_quorum", 1)
        """
        if count:
            self._child(self._queries, model, outcome).inc(count)

    def exposed(self, budgets: Mapping[str, Mapping[str, float]], *, models: Collection[str]) -> bytes:
        """Return all of it in the text format, for whoever may see these models. `budgets` holds figures by model.

        >>> text = Metrics().exposed({"clinic": {"left": 0.5}}, models=["clinic"])
        >>> b'quorate_budget_left{model="clinic"} 0.5' in text
        True
        """
        registry: CollectorRegistry = self._registry
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(_Seen(registry, budgets, models))

    def _child(self, family: Any, *labels: str) -> Any:
        key = (family._name, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = family.labels(*labels)
        return child


_GAUGES = {
    "left": ("quorate_budget_left", "Share of the privacy budget that is not charged; leased counts as charged."),
    "spent_epsilon": (
        "quorate_budget_spent_epsilon",
        "Epsilon spent so far, ex post; the guarantee is the budget's epsilon.",
    ),
    "epsilon": ("quorate_budget_epsilon", "Epsilon allowed in all."),
    "phase": ("quorate_phase", "The phase of an everlasting model."),
    "seats": ("quorate_seats", "How many arrivals the phase has."),
    "seats_taken": ("quorate_seats_taken", "How many of them have come."),
    "drift": ("quorate_drift", "Share of the public probe that is answered otherwise than in phase 1."),
}


class _Seen:
    """The metrics of some models: what `generate_latest` collects."""

    def __init__(
        self, registry: CollectorRegistry, budgets: Mapping[str, Mapping[str, float]], models: Collection[str]
    ) -> None:
        self._registry, self._budgets, self._models = registry, budgets, models

    def collect(self) -> Iterable[Metric]:
        for family in self._registry.collect():
            seen = Metric(family.name, family.documentation, family.type)
            seen.samples = [one for one in family.samples if one.labels.get("model", "") in {"", *self._models}]
            yield seen
        for figure, (name, help_text) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, help_text, labels=["model"])
            for model, figures in self._budgets.items():
                if figure in figures and model in self._models:
                    gauge.add_metric([model], figures[figure])
            yield gauge
