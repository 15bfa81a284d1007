"""The edge of the server: silent connections, endless headers, too many of them, and a client that does no wrong."""

import asyncio
import inspect
import json
import socket
import time

import pytest
import uvicorn

from fake_session import fake_model
from quorate.cli.serving import serve
from quorate.service.app import make_app
from quorate.service.edge import EdgeProtocol
from quorate.service.settings import ENVIRONMENT, Settings
from service_client import features

WRITERS = []  # of connections that a test has opened


def at_the_edge(work, monkeypatch, *, models=None, **limits):
    """Run `work(port)` against a server with these limits."""
    settings = Settings(models={"m": "m"}, keys=False, pace_ms=0, **limits)
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
        told = [await asyncio.wait_for(reader.read(), 20) for reader, _ in (silent, slow)]
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
        return first, await asyncio.wait_for(reader.read(), 20)

    first, second = at_the_edge(work, monkeypatch, header_seconds=0.3)
    assert first.startswith(b"HTTP/1.1 200 ")
    assert second.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("flood", ["many", "one", "whole"])
def test_headers_without_end_are_refused(monkeypatch, flood):
    part = {"many": b"x-a: 1\r\n" * 200, "one": b"a" * 1500, "whole": b"x-a: 1\r\n" * 400 + b"\r\n"}[flood]

    async def work(port):
        reader, writer = await connect(port, b"GET /v2/health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nx-b: ")
        for _ in range(1 if flood == "whole" else 2):
            writer.write(part)
            await asyncio.sleep(0.05)
        return await asyncio.wait_for(reader.read(), 20), await answer(port)

    told, after = at_the_edge(work, monkeypatch, header_limit=2048)
    assert told.startswith(b"HTTP/1.1 431 ")
    assert json.loads(told.partition(b"\r\n\r\n")[2])["code"] == "headers_too_large"
    assert after == b"200"


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
        return await asyncio.wait_for(reader.read(), 20)

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
        return await asyncio.wait_for(reader.read(), 20)

    assert at_the_edge(work, monkeypatch).startswith(b"HTTP/1.1 400 ")


def test_silent_connections_do_not_keep_others_out(monkeypatch):
    async def work(port):
        silent = [await connect(port) for _ in range(30)]
        answered = [await answer(port) for _ in range(10)]
        closed = [await asyncio.wait_for(reader.read(), 20) for reader, _ in silent[:20]]
        return answered, closed, len(EdgeProtocol.waiting)

    answered, closed, held = at_the_edge(work, monkeypatch, connection_limit=10)
    assert answered == [b"200"] * 10
    assert closed == [b""] * 20
    assert held <= 10


def test_the_command_line_has_every_setting_with_its_default():
    settings, options = inspect.signature(Settings).parameters, inspect.signature(serve).parameters
    assert set(settings) - {"models", "pace_ms"} <= set(options)
    for name in set(settings) - {"models", "pace_ms", "port", "trusted"}:
        assert options[name].default == settings[name].default, name
    assert options["pace"].default == settings["pace_ms"].default
