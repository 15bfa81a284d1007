"""A server from its settings to its clean stop: uvicorn in one or several processes, by default on loopback."""

import asyncio
import contextlib
import math
import os
import resource
import signal
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from types import FrameType
from typing import Any

import msgspec
import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from quorate.core.errors import InvalidInput
from quorate.core.rows import usable_cores
from quorate.service._edge import EdgeProtocol
from quorate.service._settings import ENVIRONMENT, ORDERS, PARENT, Settings
from quorate.service._telemetry import Log, log_config
from quorate.service._tls import Certificate, TlsListener

_READY_SECONDS = 0.2  # that a worker has to say whether it has started
_FOUND_MODELS = 32  # in a repository, beside those that are named
_SPARE_DESCRIPTORS, _MODEL_DESCRIPTORS = 128, 16  # For files other than connections: logs, threads, ledgers.


def serve(settings: Settings, *, ready: Callable[[], None] | None = None) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit status: 0 after a clean stop.

    After the stop signal workers answer their queued requests, return their leases and end. A dead worker is replaced,
    and its lease stays charged.

    Parameters
    ----------
    settings
        The models, the address and the limits.
    ready
        Called once the models are loaded and requests are answered.

    >>> settings = Settings(models={"triage": "models/triage"}, port=8900, pace_ms=20)
    >>> settings.keys, settings.pace_ms  # every caller has a key, and answers leave every 20 milliseconds
    (True, 20)
    >>> serve(settings)  # doctest: +SKIP
    """
    settings = fit_connections(settings)
    if settings.tls:  # Every worker reads it for itself.
        Certificate(settings.tls, settings.tls_key)
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
        variables = {ENVIRONMENT: settings.to_json(), PARENT: str(os.getpid())}
        if settings.workers > 1:
            variables |= {"PROMETHEUS_MULTIPROC_DIR": folder, ORDERS: os.path.join(folder, "orders")}
            os.mkdir(variables[ORDERS])
            threads = str(max(1, usable_cores() // settings.workers))
            for name in {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"} - os.environ.keys():
                variables[name] = threads
        former = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in former.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def fit_connections(settings: Settings) -> Settings:
    """Return settings whose connections fit into the file descriptors of a process, after raising its soft limit.

    Where connections take all descriptors, none can be accepted, not even to say so.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = _SPARE_DESCRIPTORS + _MODEL_DESCRIPTORS * len(settings.models)
    if settings.repository:
        spare += _MODEL_DESCRIPTORS * _FOUND_MODELS
    if settings.tls:
        spare += _handshake_limit(settings)
    needed = settings.connection_limit + spare
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return settings
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = raised
    limit = max(1, soft // 2, soft - spare)
    return msgspec.structs.replace(settings, connection_limit=min(settings.connection_limit, limit))


def _handshake_limit(settings: Settings) -> int:
    """Return how many TLS handshakes may be under way beside the connections."""
    return max(1, settings.connection_limit // 4)


def _run(settings: Settings, listening: socket.socket, ready: Callable[[], None] | None) -> int:
    config = make_config(
        "quorate.service._worker:application",
        factory=True,
        workers=settings.workers,
        lifespan="on",
        http=EdgeProtocol,
        timeout_graceful_shutdown=settings.stop_seconds / 2,
        timeout_keep_alive=math.ceil(settings.idle_seconds),
    )
    fields = {"workers": settings.workers, "keys": settings.keys, "connections": settings.connection_limit}
    announce = make_announcement(listening, ready, **fields)
    if settings.workers == 1:
        return run_server(config, listening, announce, settings)
    with _ignore_signals():
        workers = _Workers(config, sockets=[listening], announce=announce)
        workers.run()
    return int(workers.failed)


def make_config(app: Any, **options: Any) -> uvicorn.Config:
    """Return the configuration of a server that logs our lines alone, and believes no proxy."""
    return uvicorn.Config(
        app,
        log_config=log_config(),
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        **options,
    )


def make_announcement(
    listening: socket.socket, ready: Callable[[], None] | None, **fields: str | int
) -> Callable[[], None]:
    """Return what logs that a server listens, and calls `ready`."""
    host, port = listening.getsockname()[:2]

    def announce() -> None:
        log = Log()
        log.event("listening", host=host, port=port, **fields)
        log.flush()
        if ready is not None:
            ready()

    return announce


def run_server(
    config: uvicorn.Config,
    listening: socket.socket,
    announce: Callable[[], None],
    limits: Settings,
    tls: Callable[[], ssl.SSLContext] | None = None,
) -> int:
    """Run a server in this process until a signal stops it, and return the exit status."""
    server = _Server(config, limits, announce=announce, tls=tls)
    with _ignore_signals():
        try:
            server.run(sockets=[listening])
        except SystemExit as stop:
            return int(bool(stop.code))
    return int(not server.started)


@contextlib.contextmanager
def _ignore_signals() -> Iterator[None]:
    """Let the signals that stop a server do nothing else: uvicorn raises them again once it has stopped."""
    signals = (signal.SIGTERM, signal.SIGINT)
    former = {number: signal.signal(number, lambda number, frame: None) for number in signals}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


class _Server(uvicorn.Server):
    """uvicorn's server, which says so once it answers, and stops at once while it still loads its models.

    With `tls`, or a certificate in the settings, it accepts connections by `TlsListener`.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        limits: Settings,
        *,
        announce: Callable[[], None] = lambda: None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        super().__init__(config)
        self._announce, self._limits = announce, limits
        self._tls = Certificate(limits.tls, limits.tls_key).context if limits.tls else tls

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; a start that is interrupted returns its leases."""
        if not self.started:
            raise SystemExit(0)
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and announce it."""
        await super().startup(sockets if self._tls is None else [])
        if self.started:
            if self._tls is not None:
                self._listen(sockets or [], self._tls)
            self._announce()

    def _listen(self, sockets: list[socket.socket], tls: Callable[[], ssl.SSLContext]) -> None:
        protocol_class: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        make_protocol = partial(
            protocol_class,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        limit, seconds = _handshake_limit(self._limits), self._limits.header_seconds
        listeners: list[Any] = [TlsListener(one, make_protocol, tls, limit=limit, seconds=seconds) for one in sockets]
        self.servers = listeners


class _Process(Process):
    """A worker process with our server."""

    @cached_property
    def server(self) -> uvicorn.Server:
        """The server of this process."""
        return _Server(self.config, Settings.from_json(os.environ[ENVIRONMENT]))


class _Workers(Multiprocess):
    """uvicorn's supervisor, which asks no worker whether it is well: while one loads a large model it cannot answer."""

    failed = False  # whether a worker could not start

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], *, announce: Callable[[], None]) -> None:
        super().__init__(config, sockets=sockets)
        self._announce: Callable[[], None] | None = announce

    def init_processes(self) -> None:
        """Start the workers."""
        self.processes = [_Process(self.config, self.sockets) for _ in range(self.processes_num)]
        for process in self.processes:
            process.start()

    def keep_subprocess_alive(self) -> None:
        """Replace dead workers and announce the first that answers. The lease of a dead worker is charged."""
        if self._announce is not None and any(process.is_ready(timeout=_READY_SECONDS) for process in self.processes):
            self._announce()
            self._announce = None
        for number, process in enumerate(self.processes):
            if self.should_exit.is_set() or process.process.is_alive():
                continue
            process.join()
            mark_process_dead(process.pid)  # type: ignore[no-untyped-call]  # its part of the gauges
            if process.exitcode == STARTUP_FAILURE:
                self.failed = True
                self.should_exit.set()
                return
            log = Log()
            log.event("worker_died", worker=number, status=process.exitcode)
            log.flush()
            self.processes[number] = _Process(self.config, self.sockets)
            self.processes[number].start()
