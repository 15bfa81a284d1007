"""Calls to the service: in this process, straight into the application, or over HTTP to a server of its own."""

import asyncio
import http.client
import json
import os
import select
import signal
import ssl
import subprocess
import time
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

from support.forked import Forked

LOCAL = {"host": "127.0.0.1:8000"}


class Got(NamedTuple):
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        return self.json.get("code", "")


async def call(app, method, path, body=b"", headers=None, parts=None):
    """Send one request into the application."""
    sent = {}
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in (parts or [])[:-1]]
    messages.append({"type": "http.request", "body": parts[-1] if parts else body, "more_body": False})

    async def receive():
        return messages.pop(0) if messages else await asyncio.sleep(3600)

    async def send(message):
        if message["type"] == "http.response.start":
            sent["status"] = message["status"]
            sent["headers"] = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            sent["body"] = message["body"]

    given = {"content-length": str(len(body))} if parts is None else {}
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in (LOCAL | given | (headers or {})).items()]
    path, _, query = path.partition("?")
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": pairs}
    await app(scope, receive, send)
    return Got(sent["status"], sent["headers"], sent["body"])


@asynccontextmanager
async def running(app):
    """Start the application and stop it, as a server does."""
    to_app, from_app = asyncio.Queue(), asyncio.Queue()
    task = asyncio.create_task(app({"type": "lifespan"}, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    assert (await from_app.get())["type"] == "lifespan.startup.complete"
    try:
        yield app
    finally:
        await to_app.put({"type": "lifespan.shutdown"})
        assert (await from_app.get())["type"] == "lifespan.shutdown.complete"
        await task


class InProcess(NamedTuple):
    """An application in this process. A call runs its event loop until the response is there."""

    app: object
    run: object

    def __call__(self, method, path, body=b"", headers=None, parts=None):
        return self.run(call(self.app, method, path, body, headers, parts))

    def together(self, *requests):
        """Send several requests at once."""

        async def gather():
            return await asyncio.gather(*(call(self.app, *request) for request in requests))

        return self.run(gather())


@contextmanager
def in_process(app):
    """Start the application, and stop it at the end of the block."""
    with asyncio.Runner() as runner:
        lifespan = running(app)
        runner.run(lifespan.__aenter__())
        try:
            yield InProcess(app, runner.run)
        finally:
            runner.run(lifespan.__aexit__(None, None, None))


def features(*rows, **more):
    """Return the JSON of a request for these rows."""
    flat = [value for row in rows for value in row]
    tensor = {"name": "features", "shape": [len(rows), len(rows[0])], "datatype": "FP64", "data": flat}
    return json.dumps({"inputs": [tensor], **more}).encode()


class Server(NamedTuple):
    port: int
    process: Forked
    log: str
    tls: str = ""  # the file of its certificate

    def request(self, method, path, body=None, headers=None, seconds=120):
        if self.tls:
            context = ssl.create_default_context(cafile=self.tls)
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=seconds, context=context)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return Got(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
        finally:
            connection.close()

    def stop(self, number=signal.SIGTERM, seconds=120):
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def written(self):
        with open(self.log, encoding="utf-8") as file:
            return file.read()


@contextmanager
def serving(settings, log, seconds=150):
    """Run `quorate.service.serve` in a process of its own, on a port that the system chooses."""
    code = "import sys; from quorate.service import Settings, serve; sys.exit(serve(Settings.from_json(sys.argv[1])))"
    with open(log, "wb") as file, open(os.devnull, "wb") as nowhere:
        process = Forked(code, settings.to_json(), stdout=nowhere.fileno(), stderr=file.fileno())
    try:
        yield _ready(process, str(log), seconds, settings.tls)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait(120)


def _ready(process, log, seconds, tls):
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        with open(log, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.startswith("{") and line.endswith("\n")]
        ports = [line["port"] for line in lines if line["event"] == "listening"]
        if ports:
            server = Server(ports[0], process, log, tls)
            try:
                if server.request("GET", "/v2/health/ready").status == 200:
                    return server
            except OSError:
                pass
        select.select([], [], [], 0.1)
    with open(log, encoding="utf-8") as file:
        raise AssertionError(f"the server did not start:\n{file.read()}")
