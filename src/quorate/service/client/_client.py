"""The two clients: the same calls over httpx, blocking or with asyncio."""

import os
import ssl
import time
from collections.abc import Generator, Mapping
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlsplit

import anyio
import httpx

from quorate.core.errors import InvalidInput
from quorate.service.client._answers import Answers
from quorate.service.client._asking import Asking, Exchanged, Pause, Reply, Send, Step

Result = TypeVar("Result")
Call = Generator[Step, Reply, Result]

_CONNECT_SECONDS = 5.0
_MAX_REPLY_BYTES = 2**28
_LATE, _TOO_LARGE = "the answer did not arrive in time", "the answer is larger than any of a server"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ClientOptions(TypedDict, total=False):
    """The options of both clients apart from the address, documented in `Client`."""

    model: str | None
    key: str | None
    seconds: float
    attempt_seconds: float
    rows: int
    insecure: bool


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


class _Calls:
    """What both clients share: where the server is, which model is asked, and what a call may take."""

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
    ) -> None:
        key = os.environ.get("QUORATE_KEY", "") if key is None else key
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise InvalidInput(
                "a key is what 'quorate keys add' printed: qk_ and letters, digits, dashes or underscores"
            )
        self._host, on_loopback = _check_address(url, key, insecure=insecure)
        if not seconds > 0 or not attempt_seconds > 0 or rows < 1:
            raise InvalidInput("seconds and attempt_seconds must be above 0, and rows at least 1")
        self._url, self._model = url.rstrip("/"), model
        self._metadata_read: dict[str, Any] | None = None
        self._limits = {"seconds": seconds, "attempt_seconds": attempt_seconds, "rows": rows}
        # A compressed answer of a few bytes could fill the memory.
        headers = {"accept-encoding": "identity"} | ({"authorization": f"Bearer {key}"} if key else {})
        # A proxy of the environment would read the key, and cannot reach this machine's loopback anyway.
        self._options: dict[str, Any] = {"base_url": self._url, "headers": headers, "trust_env": not on_loopback}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r}, model={self._model!r})"

    def _begin(self, id: str | None = None) -> Asking:
        return Asking(self._host, **self._limits, id=id)  # type: ignore[arg-type]

    def _metadata(self, asking: Asking) -> Call[dict[str, Any]]:
        """Read once what the model takes. Without a name it is the one model that this key may ask."""
        if self._metadata_read is None:
            if self._model is None:
                names = [model["name"] for model in (yield from self._models(asking))]
                if len(names) != 1:
                    raise InvalidInput(f"say which model is asked: this key may ask {', '.join(names) or 'none'}")
                self._model = str(names[0])
            self._metadata_read = yield from asking.document(f"/v2/models/{quote(self._model, safe='')}")
        return self._metadata_read

    def _models(self, asking: Asking) -> Call[list[dict[str, str]]]:
        return asking.document("/v2/repository/index", "POST")

    def _share(self, asking: Asking) -> Call[dict[str, Any]]:
        model = yield from self._metadata(asking)
        share: dict[str, Any] = yield from asking.document(f"/share/{model['name']}")
        return share

    def _answers(self, asking: Asking, X: Any) -> Call[Answers]:
        """Ask all rows; once more, under the same ids, where another model was loaded since its metadata were read."""
        try:
            return (yield from asking.answers((yield from self._metadata(asking)), X))
        except Exchanged:
            self._metadata_read = None
            return (yield from asking.answers((yield from self._metadata(asking)), X))

    def _predict(self, asking: Asking, X: Any) -> Call[Any]:
        return (yield from self._answers(asking, X)).predictions()

    def _ask(self, asking: Asking, X: Any) -> Call[Any]:
        return (yield from self._answers(asking, X)).frame_like(X)


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

    def __init__(
        self, url: str, *, transport: httpx.BaseTransport | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        super().__init__(url, **options)
        self._http = httpx.Client(transport=transport, **self._options)

    def predict(self, X: Any, *, id: str | None = None) -> Any:
        """Return `Predictions`, one label per row of an array, a data frame or a table; a plain array for a regressor.

        With the `id` of a call that was abandoned, what was answered then is not charged again.
        """
        return self._drive(self._predict(self._begin(id), X))

    def ask(self, X: Any, *, id: str | None = None) -> Any:
        """Return a frame like that of the queries: the answer and the outcome of each, and other outputs."""
        return self._drive(self._ask(self._begin(id), X))

    def metadata(self) -> Mapping[str, Any]:
        """Return what the model takes and gives, and its guarantee."""
        return self._drive(self._metadata(self._begin()))

    def models(self) -> list[dict[str, str]]:
        """Return the models that the key opens, and whether each is ready."""
        return self._drive(self._models(self._begin()))

    def share(self) -> dict[str, Any]:
        """Return what the key may have, and what it has had."""
        return self._drive(self._share(self._begin()))

    def close(self) -> None:
        """End the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _drive(self, call: Call[Result]) -> Result:
        try:
            step = next(call)
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = next(call)
                else:
                    step = call.send(self._request(step))
        except StopIteration as stop:
            result: Result = stop.value
            return result

    def _request(self, step: Send) -> Reply:
        end, body = time.monotonic() + step.seconds, bytearray()
        try:
            with self._http.stream(step.method, step.path, content=step.body, timeout=_timeout(step)) as response:
                for part in response.iter_bytes() if _is_plain(response) else ():
                    body += part
                    if time.monotonic() > end:
                        return Reply(0, lost=_LATE)
                    if len(body) > _MAX_REPLY_BYTES:
                        return Reply(0, lost=_TOO_LARGE, final=True)
                return _make_reply(response, bytes(body))
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

    def __init__(
        self, url: str, *, transport: httpx.AsyncBaseTransport | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        super().__init__(url, **options)
        self._http = httpx.AsyncClient(transport=transport, **self._options)

    async def predict(self, X: Any, *, id: str | None = None) -> Any:
        """Return `Predictions`, as `Client.predict` does."""
        return await self._drive(self._predict(self._begin(id), X))

    async def ask(self, X: Any, *, id: str | None = None) -> Any:
        """Return a frame like that of the queries, as `Client.ask` does."""
        return await self._drive(self._ask(self._begin(id), X))

    async def metadata(self) -> Mapping[str, Any]:
        """Return what the model takes and gives, and its guarantee."""
        return await self._drive(self._metadata(self._begin()))

    async def models(self) -> list[dict[str, str]]:
        """Return the models that the key opens, and whether each is ready."""
        return await self._drive(self._models(self._begin()))

    async def share(self) -> dict[str, Any]:
        """Return what the key may have, and what it has had."""
        return await self._drive(self._share(self._begin()))

    async def aclose(self) -> None:
        """End the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _drive(self, call: Call[Result]) -> Result:
        try:
            step = next(call)
            while True:
                if isinstance(step, Pause):
                    await anyio.sleep(step.seconds)
                    step = next(call)
                else:
                    step = call.send(await self._request(step))
        except StopIteration as stop:
            result: Result = stop.value
            return result

    async def _request(self, step: Send) -> Reply:
        body = bytearray()
        try:
            with anyio.fail_after(step.seconds):
                async with self._http.stream(
                    step.method, step.path, content=step.body, timeout=_timeout(step)
                ) as response:
                    if _is_plain(response):
                        async for part in response.aiter_bytes():
                            body += part
                            if len(body) > _MAX_REPLY_BYTES:
                                return Reply(0, lost=_TOO_LARGE, final=True)
                    return _make_reply(response, bytes(body))
        except TimeoutError:
            return Reply(0, lost=_LATE)
        except httpx.RequestError as error:
            return _explain_loss(error)


def _timeout(step: Send) -> httpx.Timeout:
    return httpx.Timeout(step.seconds, connect=min(_CONNECT_SECONDS, step.seconds))


def _is_plain(response: httpx.Response) -> bool:
    return bool(response.headers.get("content-encoding", "identity") == "identity")


def _make_reply(response: httpx.Response, body: bytes) -> Reply:
    if not _is_plain(response):
        return Reply(0, lost="the answer was garbled on the way")
    seconds = response.headers.get("retry-after", "")
    return Reply(response.status_code, body, float(seconds) if seconds.isdecimal() else None)


def _explain_loss(error: httpx.RequestError) -> Reply:
    """Return why a request has no response. A certificate that is not trusted will not be later."""
    if isinstance(error, httpx.TimeoutException):
        return Reply(0, lost=_LATE)
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    if cause is not None:
        return Reply(0, lost="its certificate is not trusted here", final=True)
    reached = not isinstance(error, httpx.ConnectError)
    return Reply(0, lost="the connection was lost" if reached else "it could not be reached")
