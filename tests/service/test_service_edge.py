"""The edge of the server: silent connections, endless headers, too many of them, and a client that does no wrong."""

import asyncio
import contextlib
import inspect
import json
import resource
import socket
import time
from types import SimpleNamespace

import pytest
import uvicorn
from fake_session import fake_model

from quorate.cli.serving import serve
from quorate.core.errors import LedgerRefused
from quorate.service import _app as app_module
from quorate.service._app import make_app
from quorate.service._auth import Access
from quorate.service._edge import EdgeProtocol
from quorate.service._errors import Refused
from quorate.service._run import fit_connections
from quorate.service._settings import ENVIRONMENT, Settings
from support import edge_attacks
from support.edge_attacks import ATTACKS
from support.service_client import features

INFER = b"POST /v2/models/m/infer HTTP/1.1\r\nhost: 127.0.0.1\r\n"
WRITERS = []  # of connections that a test has opened


def at_the_edge(work, monkeypatch, *, models=None, **limits):
    """Run `work(port)` against a server with these limits."""
    settings = Settings(**({"models": {"m": "m"}, "keys": False, "pace_ms": 0} | limits))
    monkeypatch.setenv(ENVIRONMENT, settings.to_json())
    EdgeProtocol.waiting.clear()

    async def main():
        listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        app = make_app(models or [fake_model()], settings)
        server = uvicorn.Server(uvicorn.Config(app, http=EdgeProtocol, ws="none", lifespan="on", log_level="critical"))
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            return await work(listening.getsockname()[1])
        finally:
            while WRITERS:
                WRITERS.pop().close()
            server.should_exit = True
            await task

    return asyncio.run(main())


async def connect(port, sent=b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    WRITERS.append(writer)
    return reader, writer


async def answer(port):
    reader, writer = await connect(
        port, b"GET /v2/health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    )
    try:
        return (await reader.read()).split(b" ", 2)[1]
    finally:
        writer.close()


def test_a_silent_connection_is_closed(monkeypatch):
    async def work(port):
        silent, slow = await connect(port), await connect(port, b"GET / HTTP/1.1\r\nhost: ")
        start = time.monotonic()
        told = [await asyncio.wait_for(reader.read(), 60) for reader, _ in (silent, slow)]
        return told, time.monotonic() - start

    (silent, slow), waited = at_the_edge(work, monkeypatch, header_seconds=0.3)
    assert silent == b""
    assert slow.startswith(b"HTTP/1.1 408 ")
    assert json.loads(slow.partition(b"\r\n\r\n")[2])["code"] == "too_slow"
    assert 0.2 < waited < 10


def test_a_second_request_must_not_dawdle_either(monkeypatch):
    async def work(port):
        reader, writer = await connect(port, b"GET /v2/health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        first = await reader.readuntil(b"true}")
        writer.write(b"GET /v2/health/li")
        return first, await asyncio.wait_for(reader.read(), 60)

    first, second = at_the_edge(work, monkeypatch, header_seconds=0.3)
    assert first.startswith(b"HTTP/1.1 200 ")
    assert second.startswith(b"HTTP/1.1 408 ")


def test_an_empty_line_does_not_keep_a_connection(monkeypatch):
    async def work(port):
        reader, writer = await connect(port, b"GET /v2/health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        await reader.readuntil(b"true}")
        start = time.monotonic()
        for _ in range(2):
            writer.write(b"\r\n")
            await asyncio.sleep(0.2)
        return await asyncio.wait_for(reader.read(), 10), time.monotonic() - start

    told, waited = at_the_edge(work, monkeypatch, header_seconds=0.3)
    assert told == b""
    assert waited < 3


@pytest.mark.parametrize("flood", ["many", "one", "whole"])
def test_headers_without_end_are_refused(monkeypatch, flood):
    part = {"many": b"x-a: 1\r\n" * 200, "one": b"a" * 1500, "whole": b"x-a: 1\r\n" * 400 + b"\r\n"}[flood]

    async def work(port):
        reader, writer = await connect(port, b"GET /v2/health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nx-b: ")
        for _ in range(1 if flood == "whole" else 2):
            writer.write(part)
            await asyncio.sleep(0.05)
        return await asyncio.wait_for(reader.read(), 60), await answer(port)

    told, after = at_the_edge(work, monkeypatch, header_limit=2048)
    assert told.startswith(b"HTTP/1.1 431 ")
    assert json.loads(told.partition(b"\r\n\r\n")[2])["code"] == "headers_too_large"
    assert after == b"200"


@pytest.mark.parametrize("flood", [b"GET /%b HTTP/1.1\r\n" % (b"%2F/" * 700), b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 101])
def test_long_addresses_and_many_headers_are_refused_before_they_are_read(monkeypatch, flood):
    """A route is looked for step by step, and each header is an object: both cost more than their bytes."""

    async def work(port):
        reader, _ = await connect(port, flood + b"host: 127.0.0.1\r\n\r\n")
        return await asyncio.wait_for(reader.read(), 60), await answer(port)

    told, after = at_the_edge(work, monkeypatch)
    assert told.startswith(b"HTTP/1.1 431 ")
    assert told.count(b"HTTP/1.1 ") == 1
    assert after == b"200"


def test_the_rest_of_a_refused_body_is_read_slowly(monkeypatch):
    read = []
    on_body = EdgeProtocol.on_body
    monkeypatch.setattr(EdgeProtocol, "on_body", lambda self, body: read.append(len(body)) or on_body(self, body))

    async def work(port):
        reader, writer = await connect(port, INFER + b"content-length: 900000000\r\n\r\n")
        status = await asyncio.wait_for(reader.readuntil(b"\r\n"), 60)
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            writer.write(b"x" * 2**16)
            await asyncio.sleep(0)
        writer.transport.abort()
        return status

    assert b" 413 " in at_the_edge(work, monkeypatch)
    assert 2**16 < sum(read) < 16 * 2**20


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_in_short(monkeypatch, name):
    """What tests/crash does for eight seconds to a whole server; here health probes are answered."""
    monkeypatch.setattr(edge_attacks, "MOST", [16])
    model = fake_model()
    model.ledger.add("qk_a1_x", "ask")

    async def work(port):
        edge_attacks.OPENED.clear()
        attack = asyncio.create_task(ATTACKS[name](port, time.monotonic() + 0.2))
        answers = []
        while not attack.done():
            answers.append(await asyncio.wait_for(answer(port), 20))
            await asyncio.sleep(0.02)
        await attack
        return answers, len(edge_attacks.OPENED), len(EdgeProtocol.waiting)

    answers, opened, waiting = at_the_edge(work, monkeypatch, models=[model], keys=True, connection_limit=64)
    assert set(answers) == {b"200"}
    assert opened >= 4
    assert waiting <= 65


@pytest.mark.parametrize(
    ("second", "status"),
    [
        (b"POST /v2/models/m/infer HTTP/1.1\r\ncontent-length: 9\r\nx-a: %s\r\n\r\n{smuggled" % (b"a" * 3000), b"431"),
        (b"GET / HTTP/1.1\r\nhost: ", b"408"),
        (b"\x00\x01 no HTTP\r\n\r\n", b"400"),
    ],
)
def test_a_refusal_waits_for_the_answers_before_it(monkeypatch, second, status):
    """Answers on one connection come in the order of its requests, and no part of a refused one joins another."""
    model = fake_model()

    async def work(port):
        model.session.held.clear()
        body = features([1.0, 2.0, 3.0])
        head = b"POST /v2/models/m/infer HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % len(body)
        reader, _ = await connect(port, head + body + second)
        await asyncio.sleep(0.6)  # the second is refused meanwhile
        model.session.held.set()
        return await asyncio.wait_for(reader.read(), 60)

    told = at_the_edge(work, monkeypatch, models=[model], header_limit=2048, header_seconds=0.3)
    first, refused = told.split(b"HTTP/1.1 ")[1:]
    assert first.startswith(b"200 ")
    assert json.loads(first.partition(b"\r\n\r\n")[2])["outputs"][0]["data"] == ["yes"]
    assert refused.startswith(status + b" ")
    assert b"connection: close" in refused


def test_a_body_that_is_no_http_is_refused_at_once(monkeypatch):
    async def work(port):
        head = b"POST /v2/models/m/infer HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
        reader, writer = await connect(port, head)
        await asyncio.sleep(0.1)
        writer.write(b"no number\r\n")
        return await asyncio.wait_for(reader.read(), 60)

    assert at_the_edge(work, monkeypatch).startswith(b"HTTP/1.1 400 ")


def test_silent_connections_do_not_keep_others_out(monkeypatch):
    async def work(port):
        silent = [await connect(port) for _ in range(30)]
        answered = [await answer(port) for _ in range(10)]
        closed = [await asyncio.wait_for(reader.read(), 60) for reader, _ in silent[:20]]
        return answered, closed, len(EdgeProtocol.waiting)

    answered, closed, held = at_the_edge(work, monkeypatch, connection_limit=10)
    assert answered == [b"200"] * 10
    assert closed == [b""] * 20
    assert held <= 10


@pytest.mark.parametrize("flood", ["many", "one", "extension"])
def test_trailers_without_end_are_refused(monkeypatch, flood):
    """Nothing is kept of what follows the body, and it may not go on for ever."""
    part = {"many": b"x-a: 1\r\n" * 100, "one": b"a" * 1000, "extension": b"a" * 1000}[flood]
    start = b"5;" if flood == "extension" else b"2\r\n{}\r\n0\r\nx-b: "

    async def work(port):
        reader, writer = await connect(port, INFER + b"transfer-encoding: chunked\r\n\r\n" + start)
        for _ in range(3):
            writer.write(part)
            await asyncio.sleep(0.05)
        return await asyncio.wait_for(reader.read(), 60), await answer(port)

    told, after = at_the_edge(work, monkeypatch, header_limit=2048)
    assert told.startswith(b"HTTP/1.1 431 ")
    assert told.count(b"HTTP/1.1 ") == 1
    assert after == b"200"


def test_a_flood_of_tiny_chunks_is_refused_before_all_of_it_is_parsed(monkeypatch):
    """Each chunk costs a call, and nobody else is answered while a read of many is parsed."""
    parsed = []
    on_body = EdgeProtocol.on_body
    monkeypatch.setattr(EdgeProtocol, "on_body", lambda self, body: parsed.append(body) or on_body(self, body))

    async def work(port):
        reader, writer = await connect(port, INFER + b"transfer-encoding: chunked\r\n\r\n")
        writer.write(b"1\r\na\r\n" * 40_000)
        await asyncio.wait_for(_end(reader), 60)
        return await answer(port)

    assert at_the_edge(work, monkeypatch, header_limit=2048) == b"200"
    assert 0 < len(parsed) < 4000


def test_a_chunked_body_larger_than_the_limit_of_headers_is_read(monkeypatch):
    async def work(port):
        body = features([1.0, 2.0, 3.0]) + b" " * 10_000
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:500], body[500:])) + b"0\r\n\r\n"
        reader, writer = await connect(port, INFER + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n")
        for start in range(0, len(chunks), 700):
            writer.write(chunks[start : start + 700])
            await asyncio.sleep(0.01)
        return await asyncio.wait_for(reader.read(), 60)

    assert at_the_edge(work, monkeypatch, header_limit=2048).startswith(b"HTTP/1.1 200 ")


def test_no_key_is_taken_from_a_trailer(monkeypatch):
    model = fake_model()
    model.ledger.add("qk_a1_x", "ask")
    body = features([1.0, 2.0, 3.0])
    chunk, trailer = b"%x\r\n%b\r\n0\r\n" % (len(body), body), b"authorization: Bearer qk_a1_x\r\n"
    head = INFER + b"connection: close\r\ntransfer-encoding: chunked\r\n"

    async def work(port):
        asked = {
            "trailer": head + b"\r\n" + chunk + trailer + b"\r\n",
            "header": head + trailer + b"\r\n" + chunk + b"\r\n",
            "both": head + trailer + b"\r\n" + chunk + b"authorization: Bearer qk_b2_y\r\n\r\n",
        }
        replies = {}
        for name, sent in asked.items():
            reader, _ = await connect(port, sent)
            replies[name] = (await asyncio.wait_for(reader.read(), 60)).split(b" ", 2)[1]
        return replies

    statuses = at_the_edge(work, monkeypatch, models=[model], keys=True)
    assert statuses == {"trailer": b"401", "header": b"200", "both": b"200"}


@pytest.mark.parametrize("path", [b"/v2/repository/index", b"/v2/models/m/infer", b"/v2/repository/models/m/load"])
def test_nobody_without_a_key_has_a_body_read(monkeypatch, path):
    async def work(port):
        head = b"POST " + path + b" HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 4000\r\n\r\n{"
        start = time.monotonic()
        reader, _ = await connect(port, head)  # the rest never comes
        return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60), time.monotonic() - start

    told, waited = at_the_edge(work, monkeypatch, keys=True, body_seconds=60)
    assert told.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 200 "))  # an index without a key lists nothing
    assert waited < 10


def test_slow_bodies_do_not_keep_others_out(monkeypatch):
    async def work(port):
        head = INFER + b"content-length: 4000\r\n\r\n{"
        slow = [await connect(port, head) for _ in range(30)]
        await asyncio.sleep(0.2)
        answered = [await answer(port) for _ in range(10)]
        await asyncio.gather(*(asyncio.wait_for(_end(reader), 60) for reader, _ in slow[:15]))
        return answered, len(EdgeProtocol.waiting)

    answered, waiting = at_the_edge(work, monkeypatch, connection_limit=10, body_seconds=60)
    assert answered == [b"200"] * 10
    assert waiting <= 10


async def _end(reader):
    with contextlib.suppress(ConnectionError):
        await reader.read()


def test_a_client_that_never_reads_is_cut_off(monkeypatch):
    async def work(port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        WRITERS.append(writer)
        writer.transport.pause_reading()
        end = time.monotonic() + 60
        request = b"GET /openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        while not writer.transport.is_closing() and time.monotonic() < end:
            writer.write(request * 8)
            await asyncio.sleep(0.02)
        return writer.transport.is_closing(), len(EdgeProtocol.waiting), await answer(port)

    cut, waiting, after = at_the_edge(work, monkeypatch, body_seconds=1)
    assert cut
    assert waiting <= 1
    assert after == b"200"


def test_requests_in_a_row_are_bounded(monkeypatch):
    """As many as may wait are answered, in their order; then the connection is refused."""

    async def work(port):
        reader, _ = await connect(port, b"GET /v2/health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 500)
        return await asyncio.wait_for(reader.read(), 60)

    told = at_the_edge(work, monkeypatch)
    statuses = [part[:3] for part in told.split(b"HTTP/1.1 ")[1:]]
    assert statuses[:-1] == [b"200"] * (len(statuses) - 1)
    assert statuses[-1] == b"503"
    assert 10 <= len(statuses) <= 30


def test_the_page_of_the_api_is_rendered_once(monkeypatch):
    rendered = []
    monkeypatch.setattr(app_module, "docs_page", lambda document: rendered.append(1) or "<p>page</p>")

    async def work(port):
        replies = []
        for _ in range(5):
            reader, _ = await connect(port, b"GET /docs HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
            replies.append(await asyncio.wait_for(reader.read(), 60))
        return replies

    replies = at_the_edge(work, monkeypatch)
    assert len(rendered) == 1
    assert all(b"<p>page</p>" in reply and reply.count(b"x-frame-options") == 1 for reply in replies)


def test_another_method_is_told_which_there_are(monkeypatch):
    async def work(port):
        reader, _ = await connect(
            port, b"DELETE /v2/models/m/infer HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
        )
        return await asyncio.wait_for(reader.read(), 60)

    told = at_the_edge(work, monkeypatch)
    assert told.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nallow: POST\r\n" in told


def test_a_key_is_looked_for_whether_there_is_such_a_model_or_not():
    looked = []

    async def main():
        access = Access()
        access.register("m", looked.append)
        return [await access.caller(name, "qk_a1_x") for name in ("m", "nothing")]

    assert asyncio.run(main()) == [None, None]
    assert looked == ["qk_a1_x"] * 2


def test_a_caller_is_forgotten_when_its_second_is_over(monkeypatch):
    access, now = Access(), 0.0
    access.register("m", lambda token: SimpleNamespace(id=token, scopes=("ask",), name="", revoked=False))
    monkeypatch.setattr("quorate.service._auth.time.monotonic", lambda: now)

    async def main():
        nonlocal now
        for number in range(50):
            now = number / 10
            assert await access.caller("m", f"qk_{number}_x")

    asyncio.run(main())
    assert len(access._callers) <= 11


@pytest.mark.parametrize("cause", ["subjects", "token_rule", "io"])
def test_a_model_that_takes_nobody_more_does_not_keep_callers_from_the_others(cause):
    def refuse(token):
        raise LedgerRefused("no", cause=cause) if cause != "subjects" else Refused("forbidden", cause=cause)

    async def models(*names, **told):
        access = Access()
        for name in names:
            access.register(name, refuse if name == "full" else steward)
        return list(await access.models("qk_1_x", **told))

    assert asyncio.run(models("full", "m")) == ["m"]
    with pytest.raises((Refused, LedgerRefused)):
        asyncio.run(models("full"))
    if cause == "io":  # what concerns all models of a key is not done in some
        with pytest.raises(LedgerRefused):
            asyncio.run(models("full", "m", complete=True))
    else:
        assert asyncio.run(models("full", "m", complete=True)) == ["m"]


def steward(token):
    return SimpleNamespace(id="1", scopes=("keys",), name="", revoked=False)


def test_connections_fit_into_the_descriptors(monkeypatch):
    settings, limits = Settings(models={"m": "m"}), []
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: limits.append(pair))
    for soft, hard, fitted, raised in (
        (10**6, 10**6, 1024, []),
        (1024, 4096, 1024, [(1168, 4096)]),
        (1024, 1024, 880, [(1024, 1024)]),
        (100, 100, 50, [(100, 100)]),
    ):
        limits.clear()
        monkeypatch.setattr(resource, "getrlimit", lambda kind, pair=(soft, hard): pair)
        assert fit_connections(settings).connection_limit == fitted
        assert limits == raised


def test_the_command_line_has_every_setting_with_its_default():
    settings, options = inspect.signature(Settings).parameters, inspect.signature(serve).parameters
    assert set(settings) - {"models", "pace_ms"} <= set(options)
    for name in set(settings) - {"models", "pace_ms", "port", "trusted"}:
        assert options[name].default == settings[name].default, name
    assert options["pace"].default == settings["pace_ms"].default
