"""The service as a Starlette application: routes, who is let in, one middleware, starting and stopping.

    make_app([model, ...], settings)     the application; models are `quorate.service.model.Model`

Every refusal is written in one place. An exception that nobody expected becomes 500 `internal`, and says nothing of
itself.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quorate import __version__
from quorate.core.errors import QuorateError
from quorate.service.auth import OWNER, Caller, check_site, token_of
from quorate.service.documents import EXTENSIONS, IndexRequest, LoadRequest
from quorate.service.errors import Refused
from quorate.service.http import Context, context_of, json_response, page_response, read_body, refusal_response
from quorate.service.infer import Infer
from quorate.service.model import VERSION, Model
from quorate.service.openapi import openapi_document
from quorate.service.pages import CONTENT_SECURITY_POLICY, dashboard_page, docs_page
from quorate.service.reading import (
    Verifier,
    budget_document,
    budget_figures,
    model_view,
    owns,
    read_budget,
    share_document,
)
from quorate.service.repository import Repository, Source, refusal_of
from quorate.service.routes import ROUTES, RouteInfo
from quorate.service.settings import Settings
from quorate.service.telemetry import CONTENT_TYPE, Log, Metrics
from quorate.service.tracing import Traces

_NOTES_SECONDS = 1.0  # how often refusals are written to the ledgers
_END_SECONDS = 1.0  # after which a process ends whose model took longer
_FOLLOW_SECONDS = 0.5  # how often a worker looks for what others were ordered to load
_ORDER_BYTES = 4096  # of a body that orders something
_KEYS_SECONDS = 0.5  # and how often keys are read from them: by this clock, and not when somebody asks
_EVERY_RESPONSE = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]

Order = TypeVar("Order", IndexRequest, LoadRequest)
Handler = Callable[[Request], Awaitable[Response]]


def make_app(
    models: Sequence[Model],
    settings: Settings,
    *,
    log: Log | None = None,
    source: Source | None = None,
    traces: Traces | None = None,
) -> Starlette:
    """Return the application that serves these models. Its `state.service` holds them.

    The owner of a model may load it from a `source` while this runs. Requests leave `traces`, where there are some.
    """
    service = Service(models, settings, log=Log() if log is None else log, source=source, traces=traces)
    routes = [Route(route.path, _Endpoint(service, route), methods=[route.method]) for route in ROUTES]
    app = _Application(routes=routes, lifespan=service.lifespan)
    app.router.redirect_slashes = False
    app.state.service = service
    return app


class _Application(Starlette):
    """Starlette with one middleware, which answers every exception: Starlette's own two would have nothing to do."""

    def build_middleware_stack(self) -> ASGIApp:
        return RequestMiddleware(self.router.app, self.state.service)


class RequestMiddleware:
    """Around every request: refuses the pages of other sites, lets no exception out, logs and counts."""

    def __init__(self, app: ASGIApp, service: "Service") -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or start and stop with the server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context = Context(scope)

        async def start(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                message["headers"] += _EVERY_RESPONSE
                if context.code:  # an answer that is sent again is the same to the last byte
                    message["headers"].append((b"x-request-id", context.id.encode()))
            await send(message)

        try:
            writes = scope["method"] not in ("GET", "HEAD")
            check_site(context.headers, keys=self._service.settings.keys, writes=writes)
            await self._app(scope, receive, start)
        except Exception as error:
            if context.status:  # the response has started: the server ends the connection
                raise
            await self._refusal(scope, context, error)(scope, receive, start)
        self._service.note(scope["method"], _path_of(scope), context)

    def _refusal(self, scope: Scope, context: Context, error: Exception) -> Response:
        if isinstance(error, HTTPException):  # of Starlette: no route, or none by this method
            refused = Refused("not_found" if error.status_code == 404 else "method_not_allowed")
        elif isinstance(error, Refused | QuorateError):  # a ledger that cannot be read, for example
            refused = error if isinstance(error, Refused) else Refused.by(error)
        else:  # whatever it is, its text stays here
            self._service.log.failure(error, route=_path_of(scope))
            refused = Refused("internal")
        context.code, context.cause = refused.code, refused.cause
        return refusal_response(refused)


def _path_of(scope: Scope) -> str:
    """Return the template of the route that a request took, or nothing where there is none."""
    route = scope.get("route")
    return "" if route is None else str(route.path)


class _Endpoint:
    """What answers a route, as an ASGI application: lets the caller in, then asks the handler of that name."""

    def __init__(self, service: "Service", route: RouteInfo) -> None:
        self._service, self._scope = service, route.scope
        self._of_any = route.endpoint in ("load", "unload")  # also of a model that answers nothing
        self._handler: Handler = service.handler(route.endpoint)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        if self._scope is not None:
            await self._service.let_in(request, self._scope, of_any=self._of_any)
        response = await self._handler(request)
        await response(scope, receive, send)


class Service:
    """What the endpoints share. It owns its models: when it stops, what is queued is answered and leases go back."""

    def __init__(
        self,
        models: Sequence[Model],
        settings: Settings,
        *,
        log: Log,
        source: Source | None = None,
        traces: Traces | None = None,
    ) -> None:
        self.settings, self.log, self.metrics, self.traces = settings, log, Metrics(), traces
        self.repository = Repository(models, settings, log, source)
        self.models, self.access = self.repository.models, self.repository.access
        self.asking = Infer(settings, self.metrics)
        self._verifier = Verifier()
        self._document = openapi_document(settings)
        self._recurring: list[asyncio.Task[None]] = []

    def handler(self, name: str) -> Handler:
        """Return what answers the routes of this name."""
        asking: dict[str, Handler] = {"infer": self.asking.infer, "feed": self.asking.feed}
        asking |= {"insert": self.asking.insert, "forget": self.asking.forget}
        handler: Handler = asking.get(name) or getattr(self, f"_{name}")
        return handler

    async def let_in(self, request: Request, scope: str, *, of_any: bool = False) -> None:
        """Find out who calls, and refuse who may not. To whoever has no key of it, a model looks like one not there.

        A model that answers nothing is refused too, but where its owner can change that: `of_any`.
        """
        context, name = context_of(request), request.path_params.get("name", "")
        token = token_of(context.headers.get(b"authorization")) if self.settings.keys else None
        context.model = model = self.models.get(name)
        if model is not None:
            caller = await self.access.caller(name, token)
            known = {name: caller} if caller is not None else {}
        else:
            known = await self._known(token) if not name else {}
        if self.settings.keys and not known:
            raise Refused("unauthenticated")
        if name and (model is None or request.path_params.get("version", VERSION) != VERSION):
            raise Refused("unknown_model")
        if model is not None and model.refused and not of_any:
            raise refusal_of(model)
        context.known = {name: caller for name, caller in known.items() if caller.may(scope)}
        context.caller = next(iter(known.values())) if known else OWNER
        if known and not context.known:
            raise Refused("forbidden", f"this key has not the scope {scope!r}; ask the owner for one that has")

    async def _known(self, token: str | None) -> dict[str, Caller]:
        return await self.access.models(token) if self.settings.keys else dict.fromkeys(self.models, OWNER)

    def note(self, method: str, route: str, context: Context) -> None:
        """Log and count a request that was answered; a refusal of somebody with a key goes to the ledger too."""
        pace, code = self.asking.pace, context.code
        paces = context.departure.ticks if context.departure is not None else 0
        seconds = pace.told(paces * pace.seconds or time.perf_counter() - context.started)
        model = context.model.name if context.model is not None else ""
        self.metrics.request(route=route, model=model, status=context.status, code=code, seconds=seconds)
        if self.traces is not None:
            self.traces.request(method, route, context, seconds=seconds)
        known = context.caller is not OWNER
        self.log.event(
            "request",
            route=route,
            model=model,
            status=context.status,
            code=code,
            milliseconds=round(1000 * seconds, 3),
            key=context.caller.id if known else None,
            request=context.id,
            rows=context.rows,
            **({"cause": context.cause} if context.cause else {}),
        )
        if code and context.model is not None and context.status != 401 and (known or not self.settings.keys):
            context.model.note(context.caller.id, code)

    # Handlers, by the names in the table of routes.

    async def _live(self, request: Request) -> Response:
        return json_response({"live": True})

    async def _ready(self, request: Request) -> Response:
        serving = [model for model in self.models.values() if not model.refused]
        causes = await asyncio.gather(*(model.readiness.cause() for model in serving))
        for model, cause in zip(serving, causes, strict=True):
            if cause:
                context_of(request).model = model  # for the log
                raise Refused("not_ready", cause=cause)
        return json_response({"ready": True})

    async def _server(self, request: Request) -> Response:
        return json_response({"name": "quorate", "version": __version__, "extensions": list(EXTENSIONS)})

    async def _index(self, request: Request) -> Response:
        asked = await self._order(request, IndexRequest)
        token = token_of(context_of(request).headers.get(b"authorization")) if self.settings.keys else None
        known = await self._known(token)
        if token is not None and not known:
            raise Refused("unauthenticated")
        return json_response(await self.repository.index({*known, *self.access.published}, ready=asked.ready))

    async def _load(self, request: Request) -> Response:
        await self._order(request, LoadRequest)
        await self.repository.load(self._owned(request))
        return json_response({})

    async def _unload(self, request: Request) -> Response:
        await self._order(request, LoadRequest)
        await self.repository.unload(self._owned(request))
        return json_response({})

    def _owned(self, request: Request) -> str:
        if not owns(context_of(request).caller):
            raise Refused("forbidden", "this takes a key of the model's owner, and this server has no keys")
        return context_of(request).named_model.name

    async def _order(self, request: Request, kind: type[Order]) -> Order:
        """Return the body of a request that orders something, which may be empty."""
        body = await read_body(request, limit=_ORDER_BYTES, seconds=self.settings.body_seconds)
        try:
            return msgspec.json.decode(body or b"{}", type=kind)
        except msgspec.ValidationError:
            raise Refused("bad_request", "the body asks for something that this server does not do") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Refused("bad_json") from None

    async def _model(self, request: Request) -> Response:
        return json_response(context_of(request).named_model.metadata())

    async def _model_ready(self, request: Request) -> Response:
        model = context_of(request).named_model
        if cause := await model.readiness.cause():
            raise Refused("not_ready", cause=cause)
        return json_response({"name": model.name, "ready": True})

    async def _budget(self, request: Request) -> Response:
        context = context_of(request)
        view = await read_budget(context.named_model)
        return json_response(budget_document(context.named_model, view, owner=owns(context.caller)))

    async def _share(self, request: Request) -> Response:
        context = context_of(request)
        return json_response(share_document(await read_budget(context.named_model), context.caller))

    async def _metrics(self, request: Request) -> Response:
        known, budgets = [name for name in context_of(request).known if not self.models[name].refused], {}
        views = await asyncio.gather(*(read_budget(self.models[name]) for name in known), return_exceptions=True)
        for name, view in zip(known, views, strict=True):
            if not isinstance(view, BaseException):  # no figures for a ledger that cannot be read
                budgets[name] = budget_figures(self.models[name], view)
        callers, private = (
            context_of(request).known,
            [name for name, model in self.models.items() if not model.published],
        )
        owned = [name for name, caller in callers.items() if owns(caller)]
        owner = all(name in callers and callers[name].may("admin") for name in private)
        text = await asyncio.to_thread(self.metrics.exposed, budgets, models=known, owned=owned, processes=owner)
        return Response(text, media_type=CONTENT_TYPE)

    async def _docs(self, request: Request) -> Response:
        return page_response(docs_page(self._document), CONTENT_SECURITY_POLICY)

    async def _openapi(self, request: Request) -> Response:
        return json_response(self._document)

    async def _dashboard(self, request: Request) -> Response:
        at = time.time()
        shown = [
            await model_view(self.models[name], caller, self._verifier, at=at)
            for name, caller in context_of(request).known.items()
            if self.models[name].ledger is not None
        ]
        live = "live" in request.query_params
        return page_response(dashboard_page(shown, at=at, live=live), CONTENT_SECURITY_POLICY)

    # Starting and stopping.

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """Start answering; at the end answer what is queued, and give leases back."""
        for model in self.models.values():
            if not model.refused:
                model.batcher.start()
        self._recurring = [asyncio.create_task(self._every(_NOTES_SECONDS, Model.write_notes))]
        self._recurring.append(asyncio.create_task(self._follow()))
        if self.settings.keys:
            self._recurring.append(asyncio.create_task(self._every(_KEYS_SECONDS, Model.read_keys)))
        self.log.event("started", models=len(self.models), keys=self.settings.keys)
        yield
        if await self._stop():
            raise RuntimeError("a model could not be closed; the log says where")

    async def _stop(self) -> bool:
        """Stop cleanly; return whether something could not be."""
        for task in self._recurring:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        failed = False
        for closing in (*self.repository.closing.values(), *(model.close() for model in self.models.values())):
            try:
                async with asyncio.timeout(self.settings.stop_seconds):
                    await closing
            except Exception as error:
                self.log.failure(error, route="")
                failed = True
                if isinstance(error, TimeoutError):  # its threads would be waited for: they are not
                    end = threading.Timer(_END_SECONDS, os._exit, (1,))
                    end.daemon = True
                    end.start()
        if self.traces is not None:
            self.traces.flush()
        self.log.event("stopped", clean=not failed)
        self.log.flush()
        return failed

    async def _follow(self) -> None:
        """Load and unload what other workers were asked to."""
        while True:
            try:
                await self.repository.follow()
            except Exception as error:
                self.log.failure(error, route="")
            await asyncio.sleep(_FOLLOW_SECONDS)

    async def _every(self, seconds: float, work: Callable[[Model], Awaitable[None]]) -> None:
        """Do this for each model again and again, whatever is asked meanwhile."""
        while True:
            for model in list(self.models.values()):
                try:
                    await work(model)
                except Exception as error:
                    self.log.failure(error, route="")
            await asyncio.sleep(seconds)
