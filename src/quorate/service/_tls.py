"""HTTPS without a proxy: a certificate that may be renewed, and a bound on the handshakes under way.

A connection whose client does not finish its handshake has no protocol yet that could limit it. `TlsListener` therefore
accepts connections itself: each handshake has a time limit, and at the limit of handshakes a new one replaces the
oldest.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import stat
from collections.abc import Callable
from functools import partial

from quorate.core.errors import InvalidInput

_RETRY_SECONDS = 1.0  # After an accept that failed, for example without a free file descriptor.
_ACCEPTS = 2  # connections at a time: a flood of handshakes must not keep the event loop from other work


class Certificate:
    """A certificate chain and its private key, in files that are read again after they were renewed.

    Parameters
    ----------
    chain
        The file of the certificate and its chain, in PEM.
    key
        The file of the private key; "" if it is in the same file.
    """

    def __init__(self, chain: str, key: str = "") -> None:
        self._chain, self._key = chain, key or chain
        try:
            self._context, self._read_at = self._read(), self._changed_at()
        except OSError as error:  # such as `ssl.SSLError`
            reason = error.strerror or "it must be a certificate and its private key in PEM"
            raise InvalidInput(f"{chain} cannot be used as a certificate: {reason}") from None

    def context(self) -> ssl.SSLContext:
        """Return the context of a connection. A renewed pair that cannot be used leaves the former in use."""
        with contextlib.suppress(OSError, InvalidInput):
            changed_at = self._changed_at()
            if changed_at != self._read_at:
                self._context, self._read_at = self._read(), changed_at
        return self._context

    def _changed_at(self) -> tuple[int, int]:
        return os.stat(self._chain).st_mtime_ns, os.stat(self._key).st_mtime_ns

    def _read(self) -> ssl.SSLContext:
        if os.stat(self._key).st_mode & stat.S_IROTH:
            raise InvalidInput(f"{self._key} may be read by everybody on this machine; close it: chmod o-r")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self._chain, self._key, password="")  # An encrypted key must not wait for a terminal.
        return context


class TlsListener:
    """A server in the form of `asyncio.Server` whose handshakes are bounded in number and time."""

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        context: Callable[[], ssl.SSLContext],
        *,
        limit: int,
        seconds: float,
    ) -> None:
        self._listening, self._make_protocol, self._context = listening, make_protocol, context
        self._limit, self._seconds = limit, seconds
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._retry: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._listening.fileno())
                self._retry = self._loop.call_later(_RETRY_SECONDS, self._listen)
                return
            if len(self._handshakes) >= self._limit:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.cancel()  # which closes the connection
            connection.setblocking(False)
            task = self._loop.create_task(self._shake_hands(connection))
            self._handshakes[task] = None
            task.add_done_callback(partial(self._end, connection))

    async def _shake_hands(self, connection: socket.socket) -> None:
        await self._loop.connect_accepted_socket(
            self._make_protocol, connection, ssl=self._context(), ssl_handshake_timeout=self._seconds
        )

    def _end(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task, None)
        if task.cancelled() or task.exception():  # The client is gone, or does not speak TLS.
            connection.close()

    def close(self) -> None:
        """Accept nothing more, and end the handshakes under way."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._listening.fileno())
        for task in list(self._handshakes):
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait for nothing: the connections have their own shutdown."""
