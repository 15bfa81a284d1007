"""Traces for OpenTelemetry: a span for each request, made when it is over, of what its log line may say.

A span has the method, the template of the route, the model, the status, the code of a refusal, how many rows were
asked, and how long it took in whole paces: never a value, an answer, a key or the id of a request. The `traceparent` of
a caller is taken up, and nothing else that it sends along.
"""

import threading
import time
from typing import Any

from quorate import __version__
from quorate.core.errors import InvalidInput
from quorate.service._http import Context

_FLUSH_SECONDS = 1.0  # that a stop waits for a collector


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
        """Send what is there, and wait a moment for it: a collector that hangs holds up nobody's stop."""
        thread = threading.Thread(target=self._provider.force_flush, daemon=True)
        thread.start()
        thread.join(_FLUSH_SECONDS)


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
        raise InvalidInput(f"traces need {error.name}; install it: pip install 'quorate[tracing]'") from None
    about = Resource.create({"service.name": "quorate", "service.version": __version__})
    provider = TracerProvider(resource=about, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
    return Traces(provider)
