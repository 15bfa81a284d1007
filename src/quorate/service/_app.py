"""The service as a Starlette application: routes, authorization, one middleware, starting and stopping.

    make_app([model, ...], settings)     the application; models are `quorate.service.model.Model`

Every refusal is written in one place. An unexpected exception becomes 500 `internal`, without its text.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quorate import __version__
from quorate.core.errors import QuorateError
from quorate.service._administration import Administration
from quorate.service._auth import OWNER, Caller, check_site, token_of
from quorate.service._documents import EXTENSIONS, IndexRequest, LoadRequest
from quorate.service._errors import Refused
from quorate.service._http import (
    Context,
    context_of,
    json_response,
    open_context,
    page_response,
    read_order,
    refusal_response,
)
from quorate.service._infer import Infer
from quorate.service._openapi import ROUTES, RouteInfo, openapi_document
from quorate.service._reading import (
    budget_document,
    budget_figures,
    condition_figures,
    is_owner,
    model_view,
    read_budget,
    share_document,
    spent_by_key,
)
from quorate.service._repository import Repository, refusal_of
from quorate.service._settings import Settings
from quorate.service._telemetry import CONTENT_TYPE, Log, Metrics, Traces
from quorate.service.model import VERSION, Model
from quorate.service.pages import CONTENT_SECURITY_POLICY, dashboard_page, docs_page

if TYPE_CHECKING:
    from quorate.service._worker import Folders

_NOTES_SECONDS = 1.0  # how often refusals are written to the ledgers
# Keys are read from the ledgers by this clock and never on a request.
_KEYS_SECONDS = 0.5
_STALL_SECONDS = 1.0  # how often it is looked whether a ledger has stopped answering
_FOLLOW_SECONDS = 0.5  # how often a worker looks for what others were ordered to load
_LOAD_SECONDS = 1.0  # how often a worker says how many requests it has
_SCAN_SECONDS = 2.0  # how often it is looked whether models came into the folder of models
_END_SECONDS = 1.0  # A process ends after this time even if a model still closes.
_EVERY_RESPONSE = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]

Handler = Callable[[Request], Awaitable[Response]]


def make_app(
    models: Sequence[Model],
    settings: Settings,
    *,
    log: Log | None = None,
    source: "Folders | None" = None,
    traces: Traces | None = None,
) -> Starlette:
    """Return the application that serves these models. Its `state.service` holds them.

    The owner of a model may load it from a `source` while this runs. Requests leave `traces`, where there are some.
    """
    service = Service(models, settings, log=Log() if log is None else log, source=source, traces=traces)
    by_use = sorted(ROUTES, key=lambda route: route.endpoint != "infer")  # the first that matches is taken
    routes = [Route(route.path, _Endpoint(service, route), methods=[route.method]) for route in by_use]
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
        context = open_context(scope)

        async def start(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                message["headers"] += _EVERY_RESPONSE
                if context.code:  # an answer that is sent again is the same to the last byte
                    message["headers"].append((b"x-request-id", context.id.encode()))
            await send(message)

        self._service.active += 1
        try:
            writes = scope["method"] not in ("GET", "HEAD")
            check_site(context.headers, keys=self._service.settings.keys, writes=writes)
            await self._app(scope, receive, start)
        except Exception as error:
            if context.status:  # the response has started: the server ends the connection
                raise
            await self._refuse(scope, context, error)(scope, receive, start)
        finally:
            self._service.active -= 1
        self._service.note_request(scope["method"], _path_of(scope), context)

    def _refuse(self, scope: Scope, context: Context, error: Exception) -> Response:
        if isinstance(error, HTTPException):  # of Starlette: no route, or none by this method
            refused = Refused("not_found" if error.status_code == 404 else "method_not_allowed")
        elif isinstance(error, Refused | QuorateError):  # a ledger that cannot be read, for example
            refused = error if isinstance(error, Refused) else Refused.by(error)
        else:  # The text of an unexpected exception must not reach the client.
            self._service.log.failure(error, route=_path_of(scope))
            refused = Refused("internal")
        context.code, context.cause = refused.code, refused.cause
        response = refusal_response(refused)
        if isinstance(error, HTTPException):
            response.headers.update(error.headers or {})  # such as Allow
        return response


def _path_of(scope: Scope) -> str:
    """Return the template of the matched route, or an empty text without a match."""
    route = scope.get("route")
    return "" if route is None else str(route.path)


class _Endpoint:
    """A route as an ASGI application: authorizes the caller, then calls the handler of its name."""

    def __init__(self, service: "Service", route: RouteInfo) -> None:
        self._service, self._scope = service, route.scope
        self._with_refused = route.endpoint in ("load", "unload")
        self._handler: Handler = service.handler(route.endpoint)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        if self._scope is not None:
            await self._service.authorize_caller(request, self._scope, with_refused=self._with_refused)
        response = await self._handler(request)
        await response(scope, receive, send)


class Service:
    """State that the endpoints share. It owns the models: on stop it answers the queues and returns the leases."""

    def __init__(
        self,
        models: Sequence[Model],
        settings: Settings,
        *,
        log: Log,
        source: "Folders | None" = None,
        traces: Traces | None = None,
    ) -> None:
        self.settings, self.log, self.metrics, self.traces = settings, log, Metrics(), traces
        self.repository = Repository(models, settings, log, source)
        self.models, self.access = self.repository.models, self.repository.access
        self.inference = Infer(settings, self.metrics)
        self.administration = Administration(settings, self.models, partial(self.access.models, complete=True))
        self.active = 0  # requests that are being answered
        self._recurring: list[asyncio.Task[None]] = []

    def handler(self, name: str) -> Handler:
        """Return what answers the routes of this name."""
        for part in (self.inference, self.administration):
            if handler := getattr(part, name, None):
                return handler  # type: ignore[no-any-return]
        return getattr(self, f"_{name}")  # type: ignore[no-any-return]

    async def authorize_caller(self, request: Request, scope: str, *, with_refused: bool = False) -> None:
        """Authenticate the caller and check its scope before the body is read.

        A caller without a key for a model gets 401 whether the model exists or not. A model that cannot answer is
        refused unless `with_refused`, for endpoints through which its owner repairs it.
        """
        context, name = context_of(request), request.path_params.get("name", "")
        context.model = model = self.models.get(name)
        callers = await self._find_callers(_token(context), name)
        if self.settings.keys and not callers:
            raise Refused("unauthenticated")
        if name:
            _check_model(model, request.path_params.get("version", VERSION), with_refused=with_refused)
        context.callers = {name: caller for name, caller in callers.items() if caller.may(scope)}
        context.caller = next(iter(callers.values()), OWNER)
        if callers and not context.callers:
            raise Refused("forbidden", f"this key lacks the scope {scope!r}; ask the owner for one that has it")

    async def _find_callers(self, token: str | None, name: str = "") -> dict[str, Caller]:
        """Return the caller by model: for the named model, or for every model that knows the token."""
        if name:
            caller = await self.access.caller(name, token)
            return {} if caller is None else {name: caller}
        return await self.access.models(token) if self.settings.keys else dict.fromkeys(self.models, OWNER)

    def note_request(self, method: str, route: str, context: Context) -> None:
        """Log and count a request that was answered; a refusal of a caller with a key goes to the ledger too."""
        pace, code = self.inference.pace, context.code
        paces = context.departure.ticks if context.departure is not None else 0
        seconds = pace.round_up(paces * pace.seconds or time.perf_counter() - context.started)
        model = context.model.name if context.model is not None else ""
        self.metrics.count_request(route=route, model=model, status=context.status, code=code, seconds=seconds)
        if self.traces is not None:
            self.traces.add_request(method, route, context, seconds=seconds)
        has_key = context.caller is not OWNER
        self.log.event(
            "request",
            route=route,
            model=model,
            status=context.status,
            code=code,
            milliseconds=round(1000 * seconds, 3),
            key=context.caller.id if has_key else None,
            request=context.id,
            rows=context.rows,
            **({"cause": context.cause} if context.cause else {}),
        )
        if code and context.model is not None and context.status != 401 and (has_key or not self.settings.keys):
            context.model.note(context.caller.id, code)

    # Handlers, by the names in the table of routes.

    async def _live(self, request: Request) -> Response:
        return json_response({"live": True})

    async def _ready(self, request: Request) -> Response:
        serving = [model for model in self.models.values() if not model.refused]
        causes = await asyncio.gather(*(model.find_cause() for model in serving))
        for model, cause in zip(serving, causes, strict=True):
            if cause:
                context_of(request).model = model  # for the log
                raise Refused("not_ready", cause=cause)
        return json_response({"ready": True})

    async def _server(self, request: Request) -> Response:
        return json_response({"name": "quorate", "version": __version__, "extensions": list(EXTENSIONS)})

    async def _index(self, request: Request) -> Response:
        token = _token(context_of(request)) if self.settings.keys else None
        names = {*await self._find_callers(token), *self.access.published}
        if token is not None and not names - self.access.published:
            raise Refused("unauthenticated")
        ready = (await read_order(request, IndexRequest)).ready if names else False
        return json_response(await self.repository.index(names, ready=ready))

    async def _load(self, request: Request) -> Response:
        name = await self._read_owner_order(request)
        await self.repository.load(name)
        return json_response({})

    async def _unload(self, request: Request) -> Response:
        name = await self._read_owner_order(request)
        await self.repository.unload(name)
        return json_response({})

    async def _read_owner_order(self, request: Request) -> str:
        """Return the name of the model that its owner orders to be loaded or unloaded."""
        if not is_owner(context_of(request).caller):
            raise Refused("forbidden", "this takes a key of the model's owner, and this server has no keys")
        await read_order(request, LoadRequest)
        return context_of(request).named_model.name

    async def _model(self, request: Request) -> Response:
        return json_response(context_of(request).named_model.metadata())

    async def _model_ready(self, request: Request) -> Response:
        model = context_of(request).named_model
        if cause := await model.find_cause():
            raise Refused("not_ready", cause=cause)
        return json_response({"name": model.name, "ready": True})

    async def _budget(self, request: Request) -> Response:
        context = context_of(request)
        view = await read_budget(context.named_model)
        return json_response(budget_document(context.named_model, view, owner=is_owner(context.caller)))

    async def _share(self, request: Request) -> Response:
        context = context_of(request)
        return json_response(share_document(await read_budget(context.named_model), context.caller))

    async def _metrics(self, request: Request) -> Response:
        callers, budgets, keys = context_of(request).callers, {}, {}
        names = [name for name in callers if not self.models[name].refused]
        owned = [name for name, caller in callers.items() if is_owner(caller)]
        views = await asyncio.gather(*(read_budget(self.models[name]) for name in names), return_exceptions=True)
        for name, view in zip(names, views, strict=True):
            budgets[name] = await condition_figures(self.models[name], owner=name in owned)
            if not isinstance(view, BaseException):  # no figures for a ledger that cannot be read
                budgets[name] |= budget_figures(self.models[name], view)
                keys[name] = spent_by_key(self.models[name], view)
        private = [name for name, model in self.models.items() if not model.published]
        owns_all = all(name in callers and callers[name].may("admin") for name in private)
        await self._note_load()
        text = await asyncio.to_thread(
            self.metrics.expose, budgets, models=names, owned=owned, keys=keys, processes=owns_all
        )
        return Response(text, media_type=CONTENT_TYPE)

    async def _note_load(self) -> None:
        self.metrics.set_load(self.active, {name: model.batcher.queued for name, model in self.models.items()})

    @cached_property
    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document of this server."""
        return openapi_document(self.settings)

    @cached_property
    def _docs_page(self) -> str:
        return docs_page(self.openapi)

    async def _docs(self, request: Request) -> Response:
        return page_response(self._docs_page, CONTENT_SECURITY_POLICY)

    async def _openapi(self, request: Request) -> Response:
        return json_response(self.openapi)

    async def _dashboard(self, request: Request) -> Response:
        at = time.time()
        views = [
            await model_view(self.models[name], caller, at=at)
            for name, caller in context_of(request).callers.items()
            if self.models[name].ledger is not None
        ]
        live = "live" in request.query_params
        return page_response(dashboard_page(views, at=at, live=live), CONTENT_SECURITY_POLICY)

    # Starting and stopping.

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """Start the models; at the end answer queued requests and return the leases."""
        for model in self.models.values():
            if not model.refused:
                model.batcher.start()
        recurring = [
            (_NOTES_SECONDS, self._each_model(Model.write_notes)),
            (_STALL_SECONDS, self._each_model(Model.refuse_if_stalled)),
            (_FOLLOW_SECONDS, self.repository.follow),
            (_LOAD_SECONDS, self._note_load),
            (_SCAN_SECONDS, self.repository.scan),
        ]
        if self.settings.keys:
            recurring.append((_KEYS_SECONDS, self._each_model(Model.read_keys)))
        await self.repository.scan(at_once=True)
        self._recurring = [asyncio.create_task(self._repeat(seconds, work)) for seconds, work in recurring]
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
        closing = [*self.repository.closing.values(), *(model.close() for model in self.models.values())]
        tasks = [asyncio.ensure_future(close) for close in closing]
        _, late = await asyncio.wait(tasks, timeout=self.settings.stop_seconds / 2)  # The requests had the other half.
        errors = [TimeoutError() if task in late else task.exception() for task in tasks]
        failures = [error for error in errors if error is not None]
        for error in failures:
            self.log.failure(error, route="")
        if late:  # The process does not wait for its threads.
            end = threading.Timer(_END_SECONDS, os._exit, (1,))
            end.daemon = True
            end.start()
        if self.traces is not None:
            self.traces.flush()
        self.log.event("stopped", clean=not failures)
        self.log.flush()
        return bool(failures)

    def _each_model(self, work: Callable[[Model], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def work_on_each() -> None:
            for model in list(self.models.values()):
                try:
                    await work(model)
                except Exception as error:
                    self.log.failure(error, route="")

        return work_on_each

    async def _repeat(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Do this again and again, whatever is asked meanwhile."""
        while True:
            try:
                await work()
            except Exception as error:
                self.log.failure(error, route="")
            await asyncio.sleep(seconds)


def _check_model(model: Model | None, version: str, *, with_refused: bool) -> None:
    if model is None or version != VERSION:
        raise Refused("unknown_model")
    if model.refused and not with_refused:
        raise refusal_of(model)


def _token(context: Context) -> str | None:
    return token_of(context.headers.get(b"authorization"))
