"""A server from settings to its clean stop: uvicorn, one process or several, on loopback unless told otherwise."""

import contextlib
import math
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from quorate.core.errors import InvalidInput
from quorate.core.rows import usable_cores
from quorate.service.edge import EdgeProtocol
from quorate.service.settings import ENVIRONMENT, ORDERS, PARENT, Settings
from quorate.service.telemetry import Log, log_config

_READY = 0.2  # seconds that a worker has to say whether it has started


def serve(settings: Settings, *, ready: Callable[[], None] | None = None) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit status: 0 after a clean stop.

    `ready` is called once the models are loaded and requests are answered. Workers finish what they are asked, return
    their leases and end. A worker that dies is replaced, and its lease stays charged.

    >>> settings = Settings(models={"triage": "models/triage"}, port=8900, pace_ms=20)
    >>> settings.keys, settings.pace_ms  # every caller has a key, and answers leave every 20 milliseconds
    (True, 20)
    >>> serve(settings)  # doctest: +SKIP
    """
    listening = listen(settings.host, settings.port)
    try:
        with _environment(settings):
            return _run(settings, listening, ready)
    finally:
        listening.close()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there, or say why it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # so that asyncio sends at once
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(2048)
        listening.set_inheritable(True)
    except OSError as error:
        listening.close()
        raise InvalidInput(f"{host}:{port} cannot be listened on: {error.strerror}") from None
    return listening


@contextlib.contextmanager
def _environment(settings: Settings) -> Iterator[None]:
    """Hand the settings to the workers, and give several of them folders to sum their metrics in and to pass orders."""
    with tempfile.TemporaryDirectory(prefix="quorate-metrics-") as folder:
        told = {ENVIRONMENT: settings.to_json(), PARENT: str(os.getpid())}
        if settings.workers > 1:
            told |= {"PROMETHEUS_MULTIPROC_DIR": folder, ORDERS: os.path.join(folder, "orders")}
            os.mkdir(told[ORDERS])
            share = max(1, usable_cores() // settings.workers)
            told |= {name: str(share) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if name not in os.environ}
        before = {name: os.environ.get(name) for name in told}
        os.environ.update(told)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _run(settings: Settings, listening: socket.socket, ready: Callable[[], None] | None) -> int:
    config = uvicorn.Config(
        "quorate.service.worker:application",
        factory=True,
        workers=settings.workers,
        log_config=log_config(),
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        http=EdgeProtocol,
        timeout_graceful_shutdown=math.ceil(settings.stop_seconds),
        timeout_keep_alive=math.ceil(settings.idle_seconds),
    )
    host, port = listening.getsockname()[:2]

    def announce() -> None:
        log = Log()
        log.event("listening", host=host, port=port, workers=settings.workers, keys=settings.keys)
        log.flush()
        if ready is not None:
            ready()

    with signals_end_quietly():
        if settings.workers > 1:
            workers = _Workers(config, sockets=[listening], announce=announce)
            workers.run()
            failed = workers.failed
        else:
            server = AnnouncingServer(config, announce=announce)
            try:
                server.run(sockets=[listening])
            except SystemExit as ended:
                return int(bool(ended.code))
            failed = not server.started
    return int(failed)


@contextlib.contextmanager
def signals_end_quietly() -> Iterator[None]:
    """Let the signals that stop a server be all they do: uvicorn raises them again once it has stopped."""

    def ignore(number: int, frame: Any) -> None:
        pass

    signals = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, ignore) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class AnnouncingServer(uvicorn.Server):
    """uvicorn's server, which says so once it answers: a model that cannot be loaded ends it before."""

    def __init__(self, config: uvicorn.Config, *, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and announce it."""
        await super().startup(sockets)
        if self.started:
            self._announce()


class _Workers(Multiprocess):
    """uvicorn's supervisor, which asks no worker whether it is well: while one loads a large model it cannot answer."""

    failed = False  # whether a worker could not start

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], *, announce: Callable[[], None]) -> None:
        super().__init__(config, sockets=sockets)
        self._announce: Callable[[], None] | None = announce

    def keep_subprocess_alive(self) -> None:
        """Replace the workers that have died, and announce the first that answers. What the dead leased is charged."""
        if self._announce is not None and any(process.is_ready(timeout=_READY) for process in self.processes):
            self._announce()
            self._announce = None
        for place, process in enumerate(self.processes):
            if self.should_exit.is_set() or process.process.is_alive():
                continue
            process.join()
            if process.exitcode == STARTUP_FAILURE:
                self.failed = True
                self.should_exit.set()
                return
            log = Log()
            log.event("worker_died", worker=place, status=process.exitcode)
            log.flush()
            self.processes[place] = Process(self.config, self.sockets)
            self.processes[place].start()
