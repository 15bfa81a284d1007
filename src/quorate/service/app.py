"""The service as an ASGI application: finds the route, lets in who may, answers, logs and counts. Nothing escapes it.

    make_app([model, ...], settings)     the application; models are `quorate.service.model.Model`

Every answer is sent from one place, and so is every refusal. An exception that nobody expected becomes 500 `internal`,
and says nothing of itself.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from quorate import __version__
from quorate.errors import LedgerRefused, QuorateError
from quorate.service.auth import OWNER, Access, check_site, token_of
from quorate.service.calls import Answer, Call, json_answer, page_answer, refusal_answer
from quorate.service.errors import Refused, code_of
from quorate.service.infer import Infer
from quorate.service.logs import Log
from quorate.service.metrics import CONTENT_TYPE, Metrics
from quorate.service.model import Model
from quorate.service.openapi import openapi_document
from quorate.service.pages import CONTENT_SECURITY_POLICY, dashboard_page, docs_page
from quorate.service.reading import Verifier, budget_document, budget_figures, model_view, owns, read_budget
from quorate.service.routes import ROUTES, find_route
from quorate.service.settings import Settings

__all__ = ["Service", "make_app"]

_NOTES_SECONDS = 1.0  # how often refusals are written to the ledgers
_KEYS_SECONDS = 0.5  # and how often keys are read from them: by this clock, and not when somebody asks

Handler = Callable[[Call], Awaitable[Answer]]


def make_app(models: Sequence[Model], settings: Settings, *, log: Log | None = None) -> "Service":
    """Return the application that serves these models.

    >>> make_app([], Settings(models={"m": "m"})).models
    {}
    """
    return Service(models, settings, log=Log() if log is None else log)


class Service:
    """The application. It owns its models: when it stops, what is queued is answered and leases go back.

    >>> Service([], Settings(models={"m": "m"}), log=Log()).settings.keys
    True
    """

    def __init__(self, models: Sequence[Model], settings: Settings, *, log: Log) -> None:
        self.models = {model.name: model for model in models}
        self.settings, self.log, self.metrics = settings, log, Metrics()
        finders = {model.name: model.ledger.find_key for model in models if model.ledger is not None}
        published = {model.name for model in models if model.published}
        self._access = Access(finders, required=settings.keys, published=published)
        self._verifier = Verifier()
        self._infer = Infer(settings, self.metrics)
        self._handlers: dict[str, Handler] = {route.handler: getattr(self, f"_on_{route.handler}") for route in ROUTES}
        self._openapi = openapi_document(settings)
        self._tending: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, or start and stop with the server."""
        if scope["type"] == "http":
            await self._http(Call(scope, receive), send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _http(self, call: Call, send: Any) -> None:
        try:
            answer = await self._answered(call)
        except Refused as refused:
            answer = refusal_answer(refused)
        except QuorateError as error:  # a ledger that cannot be read, for example
            answer = refusal_answer(Refused(code_of(error)))
        except Exception as error:  # whatever it is, its text stays here
            self.log.failure(error, route=call.route.template if call.route else "")
            answer = refusal_answer(Refused("internal"))
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.sent_headers()})
        await send({"type": "http.response.body", "body": answer.body})
        self._note(call, answer)

    async def _answered(self, call: Call) -> Answer:
        call.route, call.name = find_route(call.path)
        route = call.route
        check_site(call.headers, keys=self.settings.keys, writes=call.method not in ("GET", "HEAD"))
        if route is None:
            raise Refused("not_found")
        if call.method != route.method and (call.method, route.method) != ("HEAD", "GET"):
            raise Refused("method_not_allowed")
        if route.scope is not None:
            await self._let_in(call, route.scope)
        return await self._handlers[route.handler](call)

    async def _let_in(self, call: Call, scope: str) -> None:
        """Find out who calls, and refuse whoever may not. A model that is not there looks the same without a key."""
        token = token_of(call.headers.get(b"authorization")) if self.settings.keys else None
        model = self.models.get(call.name)
        if model is not None:
            caller = await self._access.caller(call.name, token)
            known = {call.name: caller} if caller is not None else {}
            call.model = model
        else:
            known = await self._access.models(token) if self.settings.keys else dict.fromkeys(self.models, OWNER)
        if self.settings.keys and not known:
            raise Refused("unauthenticated")
        if call.name and model is None:
            raise Refused("unknown_model")
        call.known = {name: caller for name, caller in known.items() if caller is not None and caller.may(scope)}
        call.caller = next(iter(known.values())) if known else OWNER
        if known and not call.known:
            raise Refused("forbidden", f"this key has not the scope {scope!r}; ask the owner for one that has")

    def _note(self, call: Call, answer: Answer) -> None:
        paces = call.departure.ticks if call.departure is not None else 0
        elapsed = paces * self._infer.pace.seconds or time.perf_counter() - call.started
        seconds = self._infer.pace.told(elapsed)
        route = call.route.template if call.route is not None else ""
        model = call.model.name if call.model is not None else ""
        self.metrics.request(route=route, model=model, status=answer.status, code=answer.code, seconds=seconds)
        known = call.caller is not OWNER
        self.log.event(
            "request",
            route=route,
            model=model,
            status=answer.status,
            code=answer.code,
            milliseconds=round(1000 * seconds, 3),
            key=call.caller.id if known else None,
        )
        if answer.code and call.model is not None and answer.status != 401 and (known or not self.settings.keys):
            call.model.note(call.caller.id, answer.code)

    # Handlers, by the names in the table of routes.

    async def _on_infer(self, call: Call) -> Answer:
        return await self._infer(call)

    async def _on_feed(self, call: Call) -> Answer:
        return await self._infer.feed(call)

    async def _on_live(self, call: Call) -> Answer:
        return json_answer({"live": True})

    async def _on_ready(self, call: Call) -> Answer:
        if not all(model.groups.answering for model in self.models.values()):
            raise Refused("not_ready")
        return json_answer({"ready": True})

    async def _on_server(self, call: Call) -> Answer:
        return json_answer({"name": "quorate", "version": __version__, "extensions": ["binary_tensor_data"]})

    async def _on_model(self, call: Call) -> Answer:
        return json_answer(_named(call).metadata())

    async def _on_model_ready(self, call: Call) -> Answer:
        if not _named(call).groups.answering:
            raise Refused("not_ready")
        return json_answer({"name": call.name, "ready": True})

    async def _on_budget(self, call: Call) -> Answer:
        model = _named(call)
        return json_answer(budget_document(model, await read_budget(model), owner=owns(call.caller)))

    async def _on_metrics(self, call: Call) -> Answer:
        budgets = {}
        for name in call.known:
            with contextlib.suppress(LedgerRefused, Refused):  # no figures for a ledger that cannot be read
                budgets[name] = budget_figures(self.models[name], await read_budget(self.models[name]))
        text = await asyncio.to_thread(self.metrics.exposed, budgets, models=list(call.known))
        return Answer(200, text, [(b"content-type", CONTENT_TYPE.encode())])

    async def _on_docs(self, call: Call) -> Answer:
        return page_answer(docs_page(self._openapi), CONTENT_SECURITY_POLICY)

    async def _on_openapi(self, call: Call) -> Answer:
        return json_answer(self._openapi)

    async def _on_dashboard(self, call: Call) -> Answer:
        at = time.time()
        shown = [
            await model_view(self.models[name], caller, self._verifier, at=at)
            for name, caller in call.known.items()
            if self.models[name].ledger is not None
        ]
        return page_answer(dashboard_page(shown, at=at), CONTENT_SECURITY_POLICY)

    # Starting and stopping.

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        self._start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        failed = await self._stop()
        await send({"type": "lifespan.shutdown.failed" if failed else "lifespan.shutdown.complete"})

    def _start(self) -> None:
        for model in self.models.values():
            model.groups.start()
        self._tending = [asyncio.create_task(self._every(_NOTES_SECONDS, Model.write_notes))]
        if self.settings.keys:
            self._tending.append(asyncio.create_task(self._every(_KEYS_SECONDS, Model.read_keys)))
        self.log.event("started", models=len(self.models), keys=self.settings.keys)

    async def _stop(self) -> bool:
        """Stop cleanly; return whether something could not be."""
        for task in self._tending:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        failed = False
        for model in self.models.values():
            try:
                await model.close()
            except Exception as error:
                self.log.failure(error, route="")
                failed = True
        self.log.event("stopped", clean=not failed)
        self.log.flush()
        return failed

    async def _every(self, seconds: float, work: Callable[[Model], Awaitable[None]]) -> None:
        """Do this for each model, over and over, whoever asks meanwhile."""
        while True:
            for model in self.models.values():
                try:
                    await work(model)
                except Exception as error:
                    self.log.failure(error, route="")
            await asyncio.sleep(seconds)


def _named(call: Call) -> Model:
    assert call.model is not None
    return call.model
