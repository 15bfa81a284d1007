"""The two clients: the same calls over httpx, blocking or with asyncio."""

import asyncio
import os
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import quote, urlsplit

import httpx

from quorate.core.errors import InvalidInput
from quorate.service.client._asking import Answers, Asking, Exchanged, Reply
from quorate.tables.containers import shown_names

_CONNECT_SECONDS = 5.0
_MAX_REPLY_BYTES = 2**28
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _check_address(url: str, key: str, *, insecure: bool) -> tuple[str, bool]:
    """Return the host of a server, and whether it is on this machine; refuse to send a key in the clear."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise InvalidInput("a server is named by its address, such as https://triage.example.org")
    on_loopback = parts.scheme == "http" and parts.hostname in _LOOPBACK
    if key and parts.scheme == "http" and not on_loopback and not insecure:
        raise InvalidInput(
            f"the key would be readable on the way to {parts.hostname}: use https://, or say insecure=True where the "
            "network is your own"
        )
    return parts.hostname, on_loopback


class _Calls(ABC):
    """The calls of both clients. A blocking client returns their results, the other one something to be awaited."""

    _http_class: ClassVar[Any]  # of httpx

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        key: str | None = None,
        seconds: float = 300.0,
        attempt_seconds: float = 30.0,
        rows: int = 512,
        insecure: bool = False,
        transport: httpx.BaseTransport | httpx.AsyncBaseTransport | None = None,
    ) -> None:
        key = os.environ.get("QUORATE_KEY", "") if key is None else key
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise InvalidInput(
                "a key is what 'quorate keys add' printed: qk_ and letters, digits, dashes or underscores"
            )
        self._has_key = bool(key)
        self._host, on_loopback = _check_address(url, key, insecure=insecure)
        if not seconds > 0 or not attempt_seconds > 0 or rows < 1:
            raise InvalidInput("seconds and attempt_seconds must be above 0, and rows at least 1")
        self._url, self._model = url.rstrip("/"), model
        self._metadata_read: dict[str, Any] | None = None
        self._limits = {"seconds": seconds, "attempt_seconds": attempt_seconds, "rows": rows}
        # A compressed answer of a few bytes could fill the memory.
        headers = {"accept-encoding": "identity"} | ({"authorization": f"Bearer {key}"} if key else {})
        # A proxy of the environment would read the key, and cannot reach this machine's loopback anyway.
        options = {"base_url": self._url, "headers": headers, "trust_env": not on_loopback}
        self._http: Any = self._http_class(transport=transport, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r}, model={self._model!r})"

    def _begin(self, id: str | None = None) -> Asking:
        return Asking(self._host, self._send, self._sleep, **self._limits, id=id)  # type: ignore[arg-type]

    @abstractmethod
    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of a call, or what can be awaited for it."""

    @abstractmethod
    async def _send(self, method: str, path: str, body: bytes | None, seconds: float) -> Reply:
        """Send a request, and return what came back."""

    @abstractmethod
    async def _sleep(self, seconds: float) -> None:
        """Wait."""

    def predict(self, X: Any, *, id: str | None = None) -> Any:
        """Return `Predictions`, one label per row, or a plain array of numbers from a regressor.

        Parameters
        ----------
        X
            The queries: an array, a data frame or an Arrow table.
        id
            The id of an abandoned call. Its answered queries are not charged again.
        """
        return self._run(self._predict(self._begin(id), X))

    def ask(self, X: Any, *, id: str | None = None) -> Any:
        """Return a frame of answers, outcomes and other outputs, one row per query; parameters as for `predict`."""
        return self._run(self._ask(self._begin(id), X))

    def metadata(self) -> Any:
        """Return the inputs, the outputs and the guarantee of the model."""
        return self._run(self._metadata(self._begin()))

    def models(self) -> Any:
        """Return the models that the key opens, and whether each is ready."""
        return self._run(self._models(self._begin()))

    def share(self) -> Any:
        """Return the limits of the key and its use."""
        return self._run(self._share(self._begin()))

    async def _metadata(self, asking: Asking) -> dict[str, Any]:
        """Read the metadata once. Without a name the model is the only one that this key opens."""
        if self._metadata_read is None:
            if self._model is None:
                names = [model["name"] for model in await self._models(asking)]
                if not names:
                    problem = "no model may be asked with this key" if self._has_key else "the server asks for a key"
                    raise InvalidInput(f"{problem}: pass a caller's key (QUORATE_KEY, key=, --key-file)")
                if len(names) > 1:
                    raise InvalidInput(f"say which model is asked: this key may ask {shown_names(names)}")
                self._model = str(names[0])
            self._metadata_read = await asking.document(f"/v2/models/{quote(self._model, safe='')}")
        return self._metadata_read

    async def _models(self, asking: Asking) -> Any:
        return await asking.document("/v2/repository/index", "POST")

    async def _share(self, asking: Asking) -> Any:
        return await asking.document(f"/share/{(await self._metadata(asking))['name']}")

    async def _answers(self, asking: Asking, X: Any) -> Answers:
        """Ask all rows; once more, under the same ids, where another model was loaded since its metadata were read."""
        try:
            return await asking.answers(await self._metadata(asking), X)
        except Exchanged:
            self._metadata_read = None
            return await asking.answers(await self._metadata(asking), X)

    async def _predict(self, asking: Asking, X: Any) -> Any:
        return (await self._answers(asking, X)).predictions()

    async def _ask(self, asking: Asking, X: Any) -> Any:
        return (await self._answers(asking, X)).frame_like(X)


class Client(_Calls):
    """A client of a model on a server. Use it in a `with` block, or `close` it.

    Parameters
    ----------
    url
        The address of the server, such as https://triage.example.org.
    model
        The name of the model. It may be omitted if the key opens only one model.
    key
        The key. Without it the environment variable QUORATE_KEY is read; "" is for a server without keys.
    seconds
        How long one call may take in total, with every retry and every wait that the server asks for.
    attempt_seconds
        How long one request may take before it is sent again.
    rows
        The largest number of rows in one request; a server that takes fewer is sent fewer.
    insecure
        Send the key over plain HTTP to another machine.
    transport
        Another httpx transport, for your own proxy or a test.

    Every request has an id, and is sent again with it if the connection is lost or the server asks for it: it is
    charged once. Rows that the budget could not pay for have the answer None and are counted in `refused`; if these are
    all rows, `BudgetSpent` is raised.

    >>> with Client("https://triage.example.org", model="triage") as client:  # doctest: +SKIP
    ...     client.predict(visits)
    Predictions(2 of 3 answered, 0 refused)

    A key is not sent over a network in the clear by accident:

    >>> Client("http://triage.example.org", key="qk_1f2e3d4c_secret")
    Traceback (most recent call last):
    ...
    quorate.core.errors.InvalidInput: the key would be readable on the way to triage.example.org: use https://, or ...
    """

    _http_class = httpx.Client

    def close(self) -> None:
        """End the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        try:
            call.send(None)
        except StopIteration as stop:
            return stop.value
        raise RuntimeError("a call of the blocking client never suspends")

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # A call of this client blocks: no event loop is waiting.

    async def _send(self, method: str, path: str, body: bytes | None, seconds: float) -> Reply:
        content = _Content(seconds)
        try:
            with self._http.stream(method, path, content=body, timeout=_timeout(seconds)) as response:
                for part in response.iter_bytes() if _is_plain(response) else ():
                    content.add(part)
                return _make_reply(response, content)
        except httpx.RequestError as error:
            return _explain_loss(error)


class AsyncClient(_Calls):
    """A client like `Client`, for asyncio. Use it in an `async with` block, or `aclose` it.

    >>> async def labels(visits):
    ...     async with AsyncClient("https://triage.example.org", model="triage") as client:
    ...         return await client.predict(visits)

    Its repr does not show the key:

    >>> AsyncClient("https://triage.example.org", model="triage", key="qk_1f2e3d4c_secret")
    AsyncClient('https://triage.example.org', model='triage')
    """

    _http_class = httpx.AsyncClient

    async def aclose(self) -> None:
        """End the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return call

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _send(self, method: str, path: str, body: bytes | None, seconds: float) -> Reply:
        content = _Content(seconds)
        try:
            async with (
                asyncio.timeout(seconds),
                self._http.stream(method, path, content=body, timeout=_timeout(seconds)) as response,
            ):
                if _is_plain(response):
                    async for part in response.aiter_bytes():
                        content.add(part)
                return _make_reply(response, content)
        except (TimeoutError, httpx.RequestError) as error:
            return _explain_loss(error)


class _TooLarge(httpx.RequestError):
    """An answer is larger than any of a server."""


class _Content:
    """The body of a response, within limits of size and time."""

    def __init__(self, seconds: float) -> None:
        self.body, self._end = bytearray(), time.monotonic() + seconds

    def add(self, part: bytes) -> None:
        self.body += part
        if time.monotonic() > self._end:
            raise httpx.ReadTimeout("a byte now and then")
        if len(self.body) > _MAX_REPLY_BYTES:
            raise _TooLarge("")


def _timeout(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=min(_CONNECT_SECONDS, seconds))


def _is_plain(response: httpx.Response) -> bool:
    return bool(response.headers.get("content-encoding", "identity") == "identity")


def _make_reply(response: httpx.Response, content: _Content) -> Reply:
    if not _is_plain(response):
        return Reply(0, lost="the answer was garbled on the way")
    seconds = response.headers.get("retry-after", "")
    return Reply(response.status_code, bytes(content.body), float(seconds) if seconds.isdecimal() else None)


def _explain_loss(error: Exception) -> Reply:
    """Return why a request has no response. A certificate that is not trusted will not be later."""
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return Reply(0, lost="the answer did not arrive in time")
    if isinstance(error, _TooLarge):
        return Reply(0, lost="the answer is larger than any of a server", final=True)
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    if cause is not None:
        return Reply(0, lost="its certificate is not trusted here", final=True)
    reached = not isinstance(error, httpx.ConnectError)
    return Reply(0, lost="the connection was lost" if reached else "it could not be reached")
