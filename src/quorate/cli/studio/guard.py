"""Who may speak to the studio: one browser, which came with the token, on this machine and from its own pages."""

import hmac
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_SAFE_METHODS = ("GET", "HEAD")
_HEADERS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",  # With "no-referrer" a browser would hide the origin of forms.
    "x-content-type-options": "nosniff",
}


class Guard:
    """An ASGI application around another: it refuses other hosts, other origins, and browsers without the session.

    A name that an attacker points at 127.0.0.1 (DNS rebinding) is another host. A form on another page has another
    origin, and another program on this machine has no cookie. The token of the printed address opens one session.
    Cookies do not tell ports apart: one for a random folder is not sent to other servers on this machine.

    Parameters
    ----------
    app
        The application to protect.
    refuse
        Makes the page of a refusal: an ASGI application from a sentence and a status.
    port
        The port that the server listens on.
    policy
        The content security policy of pages that state none.
    """

    def __init__(self, app: App, *, refuse: Callable[[str, int], App], port: int, policy: str) -> None:
        self._app, self._refuse, self._policy = app, refuse, policy
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._cookie = f"quorate-studio-{port}"
        self._token: str | None = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)
        self._root = f"/{secrets.token_hex(8)}/"
        self.address = f"http://127.0.0.1:{port}{self._root}?token={self._token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in {**_HEADERS, "content-security-policy": self._policy}.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._choose(scope)(scope, receive, send_with_headers)

    def _choose(self, scope: Scope) -> App:
        headers = Headers(scope=scope)
        if headers.get("host", "").lower() not in self._hosts:
            return self._refuse("The studio answers at its own address on this machine alone.", 421)
        if scope["method"] not in _SAFE_METHODS and headers.get("origin", "") != f"http://{headers['host']}":
            return self._refuse("This request came from another page. Use the forms of the studio.", 403)
        is_inside = scope["path"].startswith(self._root)
        if is_inside and self._has_session(headers.get("cookie", "")):
            scope["path"] = scope["path"].removeprefix(self._root.rstrip("/"))
            return self._app
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not is_inside or self._token is None or not hmac.compare_digest(token.encode(), self._token.encode()):
            text = "The address opens the studio once, in one browser. Stop it in its terminal and start it again."
            return self._refuse(text, 403)
        self._token = None
        entry = RedirectResponse(self._root, status_code=303)
        entry.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", path=self._root)
        return entry

    def _has_session(self, text: str) -> bool:
        try:
            cookie = SimpleCookie(text).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), self._session.encode())
