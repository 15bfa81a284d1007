"""Observability for the operator: structured logs, metrics for Prometheus, and traces for OpenTelemetry.

A log line is one JSON object, of fields that cannot hold a feature, a ballot or a key. A request is logged as its route
(the template, not the path), model, status, code, key id, and milliseconds in whole paces. Headers, bodies and query
strings are never logged. An exception is logged as its type and its position in this package. Log records of uvicorn
are reduced to their templates, without arguments and tracebacks.

Metrics count answers by model and outcome, refusals by code, unknown categories by column, and times in whole paces.
For an everlasting model they count queries only: its outcomes, and its numbers of inserted, forgotten and fed records,
are for its owner alone. The budget is read from the ledgers on each request for metrics. A caller sees the models that
its key may read, and the owner of a model what each key has spent. Time and memory of the processes, and the number of
requests under way, depend on the queries to all models, so only a caller who owns all models sees them. Metrics of
several worker processes are summed through the folder PROMETHEUS_MULTIPROC_DIR.

A trace has a span for each finished request: the method, the template of the route, the model, the status, the code of
a refusal, the number of rows, and the time in whole paces. It never has a value, an answer, a key or the id of a
request. Only the `traceparent` of a caller is used.
"""

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TextIO

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from quorate import __version__
from quorate.core.errors import InvalidInput
from quorate.core.lazy import install_command
from quorate.service._http import Context

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # of the metrics

_BUCKETS = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_PACKAGE = str(Path(__file__).resolve().parents[1])
_FLUSH_SECONDS = 0.1
_MAX_LINES = 4096  # A stalled disk must not fill the memory with lines.


class Log:
    """Lines for a stream, written a few times a second."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._lines: list[bytes] = []
        self._dropped = 0
        self._planned = False

    def event(self, event: str, /, **fields: str | int | float | bool | None) -> None:
        """Write down what happened. Fields are names, numbers and codes of our own."""
        if len(self._lines) >= _MAX_LINES:
            self._dropped += 1
            return
        self._lines.append(msgspec.json.encode({"time": _now(), "event": event, **fields}))
        if not self._planned:
            try:
                asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)
                self._planned = True
            except RuntimeError:  # Without an event loop the logging thread flushes.
                pass

    def failure(self, error: BaseException, *, route: str) -> None:
        """Write down that something failed that should not: the type of the exception, and where it arose."""
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if frame.filename.startswith(_PACKAGE)]
        where = f"{Path(ours[-1].filename).relative_to(_PACKAGE)}:{ours[-1].lineno}" if ours else "unknown"
        self.event("failure", route=route, kind=type(error).__name__, where=where)

    def flush(self) -> None:
        """Write all lines out."""
        self._planned = False
        if not self._lines and not self._dropped:
            return
        if self._dropped:
            self._lines.append(
                msgspec.json.encode({"time": _now(), "event": "log_lines_dropped", "lines": self._dropped})
            )
        lines, self._lines, self._dropped = self._lines, [], 0
        stream = sys.stderr if self._stream is None else self._stream
        try:
            stream.write((b"\n".join(lines) + b"\n").decode())
            stream.flush()
        except (OSError, ValueError):  # The reader of the log is gone; keep answering.
            pass


class LineFormatter(logging.Formatter):
    """Lines of other packages' loggers: the level and the template, no argument, no traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        text = str(record.msg).partition("\n")[0]
        line = {"time": _now(), "event": "server", "level": record.levelname.lower(), "text": text}
        return msgspec.json.encode(line).decode()


def log_config() -> dict[str, Any]:
    """Return the logging of the server underneath, in `logging.config` form."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": "quorate.service._telemetry.LineFormatter"}},
        "handlers": {"line": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}},
        "loggers": {
            "uvicorn": {"handlers": ["line"], "level": "WARNING", "propagate": False},
            "uvicorn.access": {"handlers": [], "level": "CRITICAL", "propagate": False},
            "asyncio": {"handlers": ["line"], "level": "WARNING", "propagate": False},
        },
    }


def _now() -> str:
    milliseconds = time.time_ns() // 1_000_000
    return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=2)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class Metrics:
    """The metrics of a worker process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "quorate_requests", "Requests by route, model, status and code.",
            ("route", "model", "status", "code"), registry=self._registry,
        )  # fmt: skip
        self._found: dict[tuple[str, str, int, str], tuple[Counter, Histogram]] = {}
        self._queries = Counter(
            "quorate_queries", "Queries by model and outcome: answered, no_quorum, refused; or asked, whatever it was.",
            ("model", "outcome"), registry=self._registry,
        )  # fmt: skip
        self._active = Gauge(
            _ACTIVE, "Requests that are being answered.", registry=self._registry, multiprocess_mode="livesum"
        )
        self._queued = Gauge(
            "quorate_queued_requests", "Requests that wait for their batch, by model.",
            ("model",), registry=self._registry, multiprocess_mode="livesum",
        )  # fmt: skip
        self._unknown = Counter(
            "quorate_unknown_categories", "Queries with a category that the model does not know, by model and column.",
            ("model", "column"), registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "quorate_request_duration_seconds", "Seconds until the answer left, in whole paces.",
            ("route", "model"), registry=self._registry, buckets=_BUCKETS,
        )  # fmt: skip

    def count_request(self, *, route: str, model: str, status: int, code: str, seconds: float) -> None:
        """Count a request. `route` is a template and `model` one that is served, or empty."""
        found = self._found.get((route, model, status, code))
        if found is None:  # to look one up by its labels takes longer than to count
            found = self._requests.labels(route, model, str(status), code), self._seconds.labels(route, model)
            self._found[route, model, status, code] = found
        found[0].inc()
        found[1].observe(seconds)

    def set_load(self, active: int, queued: Mapping[str, int]) -> None:
        """Note how many requests are being answered, and how many wait for each model."""
        self._active.set(active)
        for model, count in queued.items():
            self._queued.labels(model).set(count)

    def count_queries(self, model: str, outcome: str, count: int) -> None:
        """Count queries of one outcome."""
        if count:
            self._queries.labels(model, outcome).inc(count)

    def count_unknown(self, model: str, counts: Mapping[str, int]) -> None:
        """Count queries with a category that the model does not know, by column: 0 too, so that the work is alike."""
        for column, count in counts.items():
            self._unknown.labels(model, column).inc(count)

    def expose(
        self,
        budgets: Mapping[str, Mapping[str, float]],
        *,
        models: Collection[str],
        owned: Collection[str] = (),
        keys: Mapping[str, Mapping[str, float]] | None = None,
        processes: bool = False,
    ) -> bytes:
        """Return the metrics of these models in the text format of Prometheus. `budgets` holds figures by model.

        Counts of inserted and forgotten records, and what the `keys` of a model have spent, are for the owner of the
        model. Figures of the `processes` are for the owner of all models.
        """
        registry: CollectorRegistry = self._registry
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        text = generate_latest(_Visible(registry, budgets, models, owned, keys=keys or {}, processes=processes))
        return text + generate_latest(_Processes()) if processes else text


_CHANGES = ("/insert/{name}", "/forget/{name}", "/feed/{name}")  # Routes that change private records.
_NOT_OWNER = ("unauthenticated", "forbidden")

_ACTIVE = "http_server_active_requests"  # as OpenTelemetry names it; it moves with what everybody asks
_GAUGES = {
    "ready": ("quorate_ready", "1 if the model answers and its ledger takes writes, 0 otherwise."),
    "ledger_seconds": ("quorate_ledger_write_seconds", "How long the latest synced write to the ledger took."),
    "left": ("quorate_budget_left_ratio", "Share of the privacy budget that is not charged; leased counts as charged."),
    "spent_epsilon": (
        "quorate_budget_spent_epsilon",
        "Epsilon spent so far, ex post; the guarantee is the budget's epsilon.",
    ),
    "epsilon": ("quorate_budget_epsilon", "Epsilon allowed in all."),
    "phase": ("quorate_phase", "The phase of an everlasting model."),
    "seats": ("quorate_seats", "How many arrivals the phase has."),
    "seats_taken": ("quorate_seats_taken", "How many of them have come."),
    "drift": ("quorate_drift_ratio", "Share of the public probe that is answered otherwise than in phase 1."),
}


class _Processes:
    """The figures of the processes that serve, summed: what `generate_latest` collects."""

    def collect(self) -> Iterable[Metric]:
        summed: dict[str, Metric] = {}
        for process in _serving_processes():
            for family in ProcessCollector(pid=partial(str, process), registry=None).collect():
                total = summed.setdefault(family.name, family)
                if total is not family:
                    values = total.samples[0].value, family.samples[0].value
                    value = min(values) if family.name == "process_start_time_seconds" else sum(values)
                    total.samples = [total.samples[0]._replace(value=value)]
        return summed.values()


def _serving_processes() -> list[str]:
    """Return the process ids of the server: this process, or all workers of its parent."""
    folder, mine = os.environ.get("PROMETHEUS_MULTIPROC_DIR"), str(os.getpid())
    processes = {path.stem.rpartition("_")[2] for path in Path(folder).glob("*.db")} if folder else set()
    return [mine, *(process for process in processes - {mine} if _parent_of(process) == os.getppid())]


def _parent_of(process: str) -> int:
    try:
        return int(Path("/proc", process, "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):  # it has ended
        return 0


class _Visible:
    """The metrics of some models: what `generate_latest` collects."""

    def __init__(
        self,
        registry: CollectorRegistry,
        budgets: Mapping[str, Mapping[str, float]],
        models: Collection[str],
        owned: Collection[str],
        *,
        keys: Mapping[str, Mapping[str, float]],
        processes: bool,
    ) -> None:
        self._registry, self._budgets, self._models, self._owned = registry, budgets, models, owned
        self._keys, self._processes = keys, processes

    def collect(self) -> Iterable[Metric]:
        for family in self._registry.collect():
            if family.name == _ACTIVE and not self._processes:
                continue
            visible = Metric(family.name, family.documentation, family.type)
            visible.samples = [sample for sample in family.samples if self._shows(sample.labels)]
            yield visible
        build = GaugeMetricFamily("quorate_build_info", "The version that serves; always 1.", labels=["version"])
        build.add_metric([__version__], 1.0)
        yield build
        for figure, (name, help_text) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, help_text, labels=["model"])
            for model, figures in self._budgets.items():
                if figure in figures and model in self._models:
                    gauge.add_metric([model], figures[figure])
            yield gauge
        yield self._spent_by_key()

    def _spent_by_key(self) -> Metric:
        spent = GaugeMetricFamily(
            "quorate_key_spent_ratio", "Share of the privacy budget that a key has spent.", labels=["model", "key"]
        )
        for model, parts in self._keys.items():
            for key, part in parts.items() if model in self._owned else ():
                spent.add_metric([model, key], part)
        return spent

    def _shows(self, labels: Mapping[str, str]) -> bool:
        by_owner = labels.get("route") in _CHANGES and labels.get("code") not in _NOT_OWNER
        return labels.get("model", "") in (self._owned if by_owner else {"", *self._models})


_TRACE_FLUSH_SECONDS = 1.0  # that a stop waits for a collector


class Traces:
    """Spans for a tracer provider of OpenTelemetry."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        self._provider, self._tracer = provider, provider.get_tracer("quorate", __version__)
        self._kind, self._failed = SpanKind.SERVER, Status(StatusCode.ERROR)
        self._propagator = TraceContextTextMapPropagator()

    def add_request(self, method: str, route: str, context: Context, *, seconds: float) -> None:
        """Write down a request that was answered `seconds` after it came, in whole paces."""
        attributes: dict[str, str | int] = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": context.status,
            "quorate.outcome": "failed" if context.status >= 500 else "refused" if context.code else "answered",
            "quorate.rows": context.rows,
        }
        if context.model is not None:
            attributes["quorate.model"] = context.model.name
        if context.code:
            attributes["quorate.code"] = context.code
        parent = context.headers.get(b"traceparent", b"").decode("latin-1")
        start = time.time_ns() - round(seconds * 1e9)
        span = self._tracer.start_span(
            f"{method} {route}".rstrip(),
            context=self._propagator.extract({"traceparent": parent}),
            kind=self._kind,
            attributes=attributes,
            start_time=start,
        )
        if context.status >= 500:
            span.set_status(self._failed)
        span.end(start + round(seconds * 1e9))

    def flush(self) -> None:
        """Send pending traces and wait briefly, so that a hanging collector does not delay the stop."""
        thread = threading.Thread(target=self._provider.force_flush, daemon=True)
        thread.start()
        thread.join(_TRACE_FLUSH_SECONDS)


def traces_to(address: str) -> Traces | None:
    """Return traces that are sent to a collector by OTLP over HTTP; None without an address."""
    if not address:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise InvalidInput(f"traces need {error.name}; install it: {install_command('tracing')}") from None
    about = Resource.create({"service.name": "quorate", "service.version": __version__})
    provider = TracerProvider(resource=about, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
    return Traces(provider)
