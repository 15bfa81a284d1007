"""Inference over HTTP: read, check, queue, wait, write, and send at the pace.

    body -> clock -> tensors -> checked queries -> [ the batch's `ask_all` ] -> class numbers -> bytes -> departure

A refusal before the brackets depends only on the request, the key and public state, and a refusal of the body leaves by
the same clock as an answer. The response is a function of the request and the answers, so a repeated id with the same
bytes gets the same bytes back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from quorate.core.errors import QuorateError
from quorate.core.requests import Replies, Request
from quorate.models.everlasting import Feed
from quorate.service._codec import InferRequest, Tensor, check_id, read_request, request_digest, write_response
from quorate.service._errors import Refused
from quorate.service._http import Pace, context_of, json_response, read_body
from quorate.service._settings import Settings
from quorate.service._telemetry import Metrics
from quorate.service.model import Model

_ROW_FACTS = ("label", "unit")  # what an insertion says about its rows beside the model's inputs


class Infer:
    """The endpoints that take queries."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self._metrics = settings, metrics
        self.pace = Pace(settings.pace_ms / 1000)

    def infer(self, http: HTTPRequest) -> Awaitable[Response]:
        """Answer queries, or refuse them."""
        return self._ask(http, Request)

    async def feed(self, http: HTTPRequest) -> Response:
        """Feed points to an everlasting model with a pool. Only the owner may; the response does not depend on them."""
        self._check_keys("feeding")
        if not getattr(context_of(http).named_model.session, "takes_feed", False):
            raise Refused("invalid_input", "only an everlasting model that was fitted with refresh='pool' is fed")
        return await self._ask(http, Feed)

    async def insert(self, http: HTTPRequest) -> Response:
        """Insert records with labels and units into a nearest-neighbour model, for the owner alone."""
        model, request = await self._read_change(http)
        labels, units = _take_fact(model, request, "label"), _take_fact(model, request, "unit")
        if labels is None or units is None:  # a request that is sent again must not become another unit
            raise Refused(
                "bad_request",
                "an insertion has the inputs of a query and, under 'about', the tensors 'label' and 'unit', one each "
                "for each row",
            )
        X = model.inputs.queries(request.inputs, role="private")
        if not len(labels.values) == len(units.values) == len(X):
            raise Refused("bad_tensor", "'label' and 'unit' must have one value for each row")
        inserted = await _change(model.session.insert, X, labels.values, units.values)
        return json_response({"inserted": inserted})

    async def forget(self, http: HTTPRequest) -> Response:
        """Forget units of a nearest-neighbour model, for the owner alone."""
        model, request = await self._read_change(http)
        units = request.about.get("unit") or request.inputs.pop("unit", None)
        if units is None or request.inputs or request.about.keys() - {"unit"}:
            raise Refused("bad_request", "the units to forget are named by the tensor 'unit', and by no other")
        if len(units.values) > units.shape[0]:
            raise Refused("bad_tensor", "the tensor 'unit' must be a flat list of names")
        return json_response({"forgotten": await _change(model.session.forget, units.values)})

    def _check_keys(self, change: str) -> None:
        if not self.settings.keys:
            raise Refused(
                "forbidden", f"{change} a model takes a key with the scope 'admin', and this server has no keys"
            )

    async def _read_change(self, http: HTTPRequest) -> tuple[Model, InferRequest]:
        """Return the model that its owner changes, and the request."""
        model, headers = context_of(http).named_model, context_of(http).headers
        self._check_keys("changing")
        if not hasattr(model.session, "insert"):
            raise Refused("invalid_input", "only a nearest-neighbour model inserts and forgets records")
        body = await read_body(http, limit=self.settings.body_limit, seconds=self.settings.body_seconds)
        names, rows = (*model.inputs.names, *_ROW_FACTS), self.settings.row_limit
        return model, read_request(body, _header_length(headers), names=names, row_limit=rows, about=_ROW_FACTS)

    async def _ask(self, http: HTTPRequest, kind: type[Request]) -> Response:
        context = context_of(http)
        if context.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Refused("unsupported_encoding")
        header_length, key = _header_length(context.headers), _idempotency_key(context.headers)
        body = await read_body(http, limit=self.settings.body_limit, seconds=self.settings.body_seconds)
        context.departure = self.pace.departure()  # before anything of the body is read: see `quorate.service._http`
        async with context.departure:
            model = context.named_model
            request = read_request(body, header_length, names=model.inputs.names, row_limit=self.settings.row_limit)
            X = self._read_queries(model, request.inputs)
            context.rows = len(X)
            outputs = model.outputs.choose(request.outputs, binary=request.binary)
            digest = b"" if model.published else request_digest(body, header_length)
            queries = kind(X, caller=context.caller.id, id=key or request.id or None, body=digest)
            replies = await model.batcher.ask(queries, rows=len(X))
            if isinstance(replies, BaseException):
                raise Refused.by(replies) if isinstance(replies, QuorateError) else replies
            if kind is Feed:
                return json_response({"fed": len(X)})
            response = self._respond(model, request.id, replies, outputs)
            self._count(model, replies)
            return response

    def _read_queries(self, model: Model, inputs: Mapping[str, Tensor]) -> Any:
        """Return checked queries, and count queries with an unknown category, refused or not."""
        try:
            X = model.inputs.queries(inputs)
        except Refused as refused:
            self._count_unknown(model, refused.unknown)
            raise
        self._count_unknown(model, model.inputs.count_unknown(X))
        return X

    def _count_unknown(self, model: Model, counts: Mapping[str, int]) -> None:
        if not model.hides_outcomes:  # the queries of an everlasting model are secret too
            self._metrics.count_unknown(model.name, counts)

    def _respond(self, model: Model, id: str, replies: Replies, outputs: Any) -> Response:
        tensors = model.outputs.write(replies.labels, replies.refused, outputs, replies.told)
        body, length = write_response(model.name, id, tensors)
        if length is None:
            return Response(body, media_type="application/json")
        headers = {"inference-header-content-length": str(length)}
        return Response(body, headers=headers, media_type="application/octet-stream")

    def _count(self, model: Model, replies: Replies) -> None:
        labels, refused = replies.labels, int(np.count_nonzero(replies.refused))
        if model.hides_outcomes:  # Metrics must not show the number of no-quorums.
            self._metrics.count_queries(model.name, "asked", len(labels))
            return
        answered = int(np.count_nonzero(labels >= 0))
        self._metrics.count_queries(model.name, "answered", answered)
        self._metrics.count_queries(model.name, "no_quorum", len(labels) - answered - refused)
        self._metrics.count_queries(model.name, "refused", refused)


def _take_fact(model: Model, request: InferRequest, name: str) -> Tensor | None:
    """Return the tensors about the rows: from `about`, or from the inputs if no column has their name."""
    tensor = None if name in model.inputs.names else request.inputs.pop(name, None)
    if tensor is not None and name in request.about:
        raise Refused("bad_request", "an input stands twice in the request")
    return request.about.get(name, tensor)


async def _change(change: Callable[..., Any], *arguments: Any) -> Any:
    """Change units in a thread, while others are answered, and return the result."""
    try:
        return await asyncio.to_thread(change, *arguments)
    except ValueError as error:  # Such as `InvalidInput`. Only the owner sees that a unit exists.
        raise Refused("invalid_input", str(error)) from None
    except QuorateError as error:
        raise Refused.by(error) from None


def _header_length(headers: Mapping[bytes, bytes]) -> int | None:
    value = headers.get(b"inference-header-content-length")
    if value is None:
        return None
    if not value.isdigit() or len(value) > 12:
        raise Refused("bad_request", "Inference-Header-Content-Length must be a number of bytes")
    return int(value)


def _idempotency_key(headers: Mapping[bytes, bytes]) -> str:
    value = headers.get(b"idempotency-key")
    return "" if value is None else check_id(value.decode("latin-1"))
