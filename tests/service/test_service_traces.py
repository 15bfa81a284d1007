"""Traces: a span a request, with nothing in it that a log line may not say."""

import io
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from fake_session import fake_model

from quorate.service import Settings, make_app
from quorate.service._telemetry import Log, Traces, traces_to
from support.service_client import features, in_process

pytest.importorskip("opentelemetry.sdk", reason="the packages of the tracing extra are not installed")

ALLOWED = {
    *("http.request.method", "http.route", "http.response.status_code"),
    *("quorate.outcome", "quorate.rows", "quorate.model", "quorate.code"),
}
PACE = 0.02


def spans_of(requests, model=None, **told):
    """Return the spans that these requests leave: method, path, body and headers of each."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    model = model or fake_model()
    model.ledger.add("qk_canaryid_canarykey", "ask")
    settings = Settings(models={"m": "m"}, **{"pace_ms": 1000 * PACE, **told})

    with in_process(make_app([model], settings, log=Log(io.StringIO()), traces=Traces(provider))) as ask:
        for request in requests:
            ask(*request)
    return exporter.get_finished_spans()


def test_no_value_and_nothing_private_is_in_a_span():
    key = {"authorization": "Bearer qk_canaryid_canarykey"}
    infer = "/v2/models/m/infer"
    trace = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01", "tracestate": "canary=1", "baggage": "canary=1"}
    requests = [
        ("POST", infer, features([123454321.5, 0, 0], [-1, 0, 0], id="canary-id"), key | trace),
        ("POST", infer, features([0, 0, 0]), key | {"idempotency-key": "canary-idem", "user-agent": "canary"}),
        ("POST", infer, b'{"canary": 1}', key),
        ("POST", "/v2/models/canary/infer", features([1, 0, 0]), key),
        ("GET", "/canary", b"", {}),
        ("GET", "/v2/health/live", b"", {}),
        ("GET", "/v2/health/ready", b"", {}),
    ]
    spans = spans_of(requests)
    assert len(spans) == len(requests)
    for span in spans:
        text = span.to_json()
        assert set(span.attributes) <= ALLOWED
        for private in ("canary", "123454321", "yes", "no_quorum", '"a"'):
            assert private not in text, private
        assert not span.events
        assert not span.links
        took = (span.end_time - span.start_time) / 1e9
        assert took / PACE == pytest.approx(round(took / PACE), abs=1e-6)
    first, second, wrong, missing, nowhere = spans[:5]
    assert (first.name, first.attributes["quorate.rows"]) == ("POST /v2/models/{name}/infer", 2)
    assert f"{first.context.trace_id:x}" == "ab" * 16
    assert not first.context.trace_state
    told = [(one.attributes["quorate.outcome"], one.attributes.get("quorate.code")) for one in (first, second, wrong)]
    assert told == [("answered", None), ("answered", None), ("refused", "bad_request")]
    assert missing.attributes["quorate.code"] == "unauthenticated"
    assert "quorate.model" not in missing.attributes
    assert (nowhere.attributes["http.route"], nowhere.attributes["quorate.code"]) == ("", "not_found")


def test_two_answers_leave_the_same_span():
    """What was answered, or that nothing was, cannot be told from a span."""
    key = {"authorization": "Bearer qk_canaryid_canarykey"}

    def told(row):
        (span,) = spans_of([("POST", "/v2/models/m/infer", features(row), key)])
        return span.name, dict(span.attributes), span.status.status_code

    assert told([1, 0, 0]) == told([-1, 0, 0]) == told([0, 0, 0])


def test_a_failure_is_marked_as_one():
    from opentelemetry.trace import StatusCode

    def told(path, model=None):
        (span,) = spans_of([("GET", path, b"", {})], model)
        return span.status.status_code, span.attributes["quorate.outcome"]

    broken = fake_model()
    broken.ledger.probe = lambda: 1 / 0
    assert told("/v2/health/ready") == (StatusCode.UNSET, "answered")
    assert told("/nothing") == (StatusCode.UNSET, "refused")
    assert told("/v2/health/ready", broken) == (StatusCode.ERROR, "failed")


def test_traces_reach_a_collector_and_one_that_hangs_holds_nobody_up(monkeypatch):
    got, hung = threading.Event(), threading.Event()
    bodies = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            got.set()
            hung.wait(120)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    collector = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    try:
        traces = traces_to(f"http://127.0.0.1:{collector.server_port}/v1/traces")
        settings = Settings(models={"m": "m"}, keys=False, pace_ms=0)
        with in_process(make_app([fake_model()], settings, log=Log(io.StringIO()), traces=traces)) as ask:
            ask("POST", "/v2/models/m/infer", features([1, 0, 0]))
            stopping = time.monotonic()
        assert time.monotonic() - stopping < 60  # the collector hangs for twice as long
        assert got.wait(60)
        assert b"/v2/models/{name}/infer" in bodies[0]
    finally:
        hung.set()
        collector.shutdown()
        collector.server_close()
    assert traces_to("") is None
