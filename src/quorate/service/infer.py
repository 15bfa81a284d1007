"""Asking a model over HTTP: read, check, queue, wait, write, and leave at the pace.

    body -> clock set -> tensors -> checked queries -> [ the group's `ask_all` ] -> class numbers -> bytes -> departure

Everything that is refused before the brackets follows from the request, the key and public state, and what follows from
the body leaves by the same clock as an answer. The response is a function of the request and the answers: an id that is
sent again with the same bytes gets the same bytes back.
"""

from typing import Any

from quorate.errors import QuorateError
from quorate.everlasting import Feed
from quorate.service.calls import Answer, Call, refusal_answer
from quorate.service.codec import check_id, read_request, request_digest, write_response
from quorate.service.errors import Refused, code_of
from quorate.service.metrics import Metrics
from quorate.service.model import Model
from quorate.service.pace import Pace
from quorate.service.settings import Settings
from quorate.session import Request

__all__ = ["Infer"]

_JSON = (b"content-type", b"application/json")
_BINARY = (b"content-type", b"application/octet-stream")


class Infer:
    """The address that answers queries.

    >>> infer = Infer(Settings(models={"m": "m"}), Metrics())
    >>> infer.pace.seconds
    0.02
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self.pace = Pace(settings.pace_ms / 1000)

    async def __call__(self, call: Call) -> Answer:
        """Answer a call, or refuse it."""
        return await self._asked(call, Request)

    async def feed(self, call: Call) -> Answer:
        """Give points to an everlasting model with a pool, as the owner alone may. Nothing is told about them."""
        if not self._settings.keys:
            raise Refused(
                "forbidden", "feeding a model takes a key with the scope 'admin', and this server has no keys"
            )
        assert call.model is not None
        if not getattr(call.model.session, "takes_feed", False):
            raise Refused("invalid_input", "only an everlasting model that was fitted with refresh='pool' is fed")
        answer = await self._asked(call, Feed)
        if answer.status == 200:
            answer.body, answer.headers = b'{"fed":%d}' % answer.rows, [_JSON]
        return answer

    async def _asked(self, call: Call, kind: type[Request]) -> Answer:
        model = call.model
        assert model is not None
        if call.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Refused("unsupported_encoding")
        header_length = _header_length(call.headers)
        key = _idempotency_key(call.headers)
        body = await call.body(limit=self._settings.body_limit, seconds=self._settings.body_seconds)
        call.departure = self.pace.departure()  # before anything of the body is read: see `quorate.service.pace`
        async with call.departure:
            return await self._read_and_asked(call, model, kind, (body, header_length), key)

    async def _read_and_asked(
        self, call: Call, model: Model, kind: type[Request], sent: tuple[bytes, int | None], key: str
    ) -> Answer:
        request = read_request(*sent, names=model.inputs.names, row_limit=self._settings.row_limit)
        X, chosen = model.queries(request)
        asked = kind(
            X,
            caller=call.caller.id,
            id=key or request.id or None,
            body=request_digest(*sent),
        )
        result = await model.groups.ask(asked, rows=len(X))
        answer = self._written(model, request.id, result, chosen)
        answer.rows = len(X)
        if answer.status == 200 and kind is Request:
            self._count(model, result)
        return answer

    def _written(self, model: Model, id: str, result: Any, chosen: Any) -> Answer:
        if isinstance(result, BaseException):
            if not isinstance(result, QuorateError):
                raise result
            return refusal_answer(Refused(code_of(result)))
        labels, refused = result.labels, result.refused
        body, length = write_response(model.name, id, model.outputs.written(labels, refused, chosen))
        if length is None:
            return Answer(200, body, [_JSON])
        return Answer(200, body, [_BINARY, (b"inference-header-content-length", b"%d" % length)])

    def _count(self, model: Model, result: Any) -> None:
        labels, refused = result.labels, int(result.refused.sum())
        if model.progress is not None:  # whoever reads metrics must not learn how many no-quorums there were
            self._metrics.rows(model.name, "asked", len(labels))
            return
        answered = int((labels >= 0).sum())
        self._metrics.rows(model.name, "answered", answered)
        self._metrics.rows(model.name, "no_quorum", len(labels) - answered - refused)
        self._metrics.rows(model.name, "refused", refused)


def _header_length(headers: dict[bytes, bytes]) -> int | None:
    value = headers.get(b"inference-header-content-length")
    if value is None:
        return None
    if not value.isdigit() or len(value) > 12:
        raise Refused("bad_request", "Inference-Header-Content-Length must be a number of bytes")
    return int(value)


def _idempotency_key(headers: dict[bytes, bytes]) -> str:
    value = headers.get(b"idempotency-key")
    return "" if value is None else check_id(value.decode("latin-1"))
