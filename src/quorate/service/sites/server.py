"""A site behind HTTPS: only the coordinator may ask it, and must present the certificate of its card.

    GET  /site      the public description of the site
    POST /enrol     a declaration: whether the site agrees, and for how many queries it can pay
    POST /ballots   a batch: charged, then answered

Bodies are MessagePack. A refusal is JSON with a code of `quorate.service._errors`.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from quorate.core.errors import InvalidInput, QuorateError
from quorate.models.saving import load, open_folder
from quorate.service._edge import EdgeProtocol
from quorate.service._errors import Refused, error_body
from quorate.service._run import listen, make_announcement, make_config, run_server
from quorate.service._settings import Settings
from quorate.service._telemetry import Log
from quorate.service.sites._keys import Card, Keys
from quorate.service.sites._messages import Batch, Declaration, Enrolled, Mode, masks_of
from quorate.service.sites._site import Site
from quorate.tables import SCHEMA_FILE

_BODY_LIMIT = 64 * 2**20
_STOP_SECONDS = 8
_CONNECTIONS = 64  # of one coordinator; the one that has been idle for longest makes room for another
_BODY_SECONDS = 300.0  # for a batch of the largest size over a slow line


def open_site(
    folder: str | Path,
    keys: Keys,
    *,
    mode: Mode = "counts",
    peers: Iterable[Card] = (),
    corrupt: int = 0,
    trusted: list[str] | None = None,
) -> Site:
    """Return the site of a model's folder. `peers` are the cards of the other sites, for "sums" and "noise"."""
    opened, cards = open_folder(folder), [card for card in peers if card.name != keys.card.name]
    masks = masks_of(keys, cards) if mode != "counts" else None
    schema = opened.contents.get(SCHEMA_FILE)
    digest = "" if schema is None else hashlib.sha256(schema).hexdigest()
    classifier = load(opened, kind="classifier", trusted=trusted)
    try:
        return Site(classifier, name=keys.card.name, mode=mode, masks=masks, corrupt=corrupt, schema=digest)
    except InvalidInput:
        classifier.session_.close()
        raise


def make_site_app(site: Site, *, log: Log | None = None) -> Starlette:
    """Return the application of a site. TLS ensures that only the coordinator reaches it."""
    log = log or Log()

    async def about(request: Request) -> Any:
        return site.about()

    async def enrol(request: Request) -> Any:
        declaration = await _read(request, Declaration)
        return Enrolled(await asyncio.to_thread(site.payable, declaration), site.start)

    async def ballots(request: Request) -> Any:
        batch = await _read(request, Batch)
        counted = await asyncio.to_thread(site.ballots, batch)
        log.event("answered", batch=batch.id, rows=batch.rows, payable=counted.payable)
        return counted

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        site.close()
        log.flush()

    endpoints = {"/site": (about, "GET"), "/enrol": (enrol, "POST"), "/ballots": (ballots, "POST")}
    routes = [
        Route(path, _make_endpoint(endpoint, log), methods=[method]) for path, (endpoint, method) in endpoints.items()
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def _make_endpoint(endpoint: Callable[[Request], Awaitable[Any]], log: Log) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint with its message packed and its refusals written; failures are logged."""

    async def respond(request: Request) -> Response:
        try:
            message = await endpoint(request)
        except Exception as error:
            refusal = error if isinstance(error, Refused) else Refused.by(error)
            if refusal.code == "internal":
                log.failure(error, route=request.url.path)
            log.event("refused", code=refusal.code, route=request.url.path)
            sentence = str(error) if isinstance(error, QuorateError) else refusal.sentence
            return Response(
                error_body(refusal.code, sentence), status_code=refusal.status, media_type="application/json"
            )
        return Response(msgspec.msgpack.encode(message), media_type="application/msgpack")

    return respond


async def _read(request: Request, kind: type[Any]) -> Any:
    length = request.headers.get("content-length", "")
    if not length.isdigit() or int(length) > _BODY_LIMIT:
        raise Refused("too_large")
    try:
        return msgspec.msgpack.decode(await request.body(), type=kind)
    except (msgspec.MsgspecError, RecursionError):
        raise Refused("bad_request", "the body is no message of a federation: are both sides of one version?") from None


def serve_site(
    site: Site,
    keys: Keys,
    coordinator: Card,
    *,
    host: str = "127.0.0.1",
    port: int = 8901,
    ready: Callable[[str, int], None] | None = None,
) -> int:
    """Serve a site, only to the holder of this card, until SIGTERM or SIGINT; return the exit status.

    `ready` is called with the address once the site answers.
    """
    listening = listen(host, port)
    limits = Settings(models={"site": ""}, connection_limit=_CONNECTIONS, body_seconds=_BODY_SECONDS)
    config = make_config(
        make_site_app(site), timeout_graceful_shutdown=_STOP_SECONDS, http=partial(EdgeProtocol, limits=limits)
    )
    context = keys.context(coordinator, server=True)
    address = listening.getsockname()[:2]
    call_ready = None if ready is None else partial(ready, *address)
    announce = make_announcement(listening, call_ready, site=site.name, mode=site.mode)
    try:
        return run_server(config, listening, announce, limits, lambda: context)
    finally:
        listening.close()
