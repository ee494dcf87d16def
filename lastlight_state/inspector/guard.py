"""Who may look and who may act: names of hosts, a token, writes of the same origin, and headers that bind the browser.

It stands before the pages. A service that mounts the inspector behind its own login needs no token; writes and headers
are guarded there as well.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: The cookies: of who has shown the token, of forms, and of who wants personal data hidden.
LOGIN, FORM, PERSONAL = "lastlight_login", "lastlight_form", "lastlight_personal"
#: The most bytes of a form.
MOST_FORM = 1 << 20
_FREE = ("/login", "/assets/")
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",  # without any, browsers say that the origin of a form is null
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True)
class Refusal(Exception):
    """Why a request is not answered: a status of HTTP, a code, and a text."""

    status: int
    code: str
    message: str


class Guard:
    """Lets through what may be asked, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, token: str | None, hosts: Collection[str] | None, refused: Any) -> None:
        self._app = app
        self._token = token
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the start and the end of a server; there is nothing else to connect to
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("cache-control", "no-store")
                headers.add_vary_header("accept, cookie")
            await send(message)

        try:
            self._check(request)
        except Refusal as refusal:
            answer: Response = self._refused(request, refusal)
            await answer(scope, receive, sending)
            return
        await self._app(scope, receive, sending)

    def knows_its_visitors(self, request: Request) -> bool:
        """True if a token or names of hosts keep others out, or the request is of this machine by peer and by name.

        A page of another site whose name was made to lead here has a peer of this machine, and its own name.
        """
        if self._token is not None or self._hosts is not None:
            return True
        peer = "" if request.client is None else request.client.host
        return _is_loopback(peer) and _is_loopback(_host_of(request.headers.get("host", "")))

    def is_token(self, given: str) -> bool:
        """True if the given text is the token. The time that it takes tells nothing about the token."""
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())

    def login(self) -> str:
        """Return what the cookie holds of somebody who has shown the token; it does not tell the token."""
        return hmac.digest((self._token or "").encode(), b"lastlight-state inspector", sha256).hex()

    def _check(self, request: Request) -> None:
        if self._hosts is not None and _host_of(request.headers.get("host", "")) not in self._hosts:
            raise Refusal(421, "wrong_host", "this inspector does not answer to that name")
        path = path_of(request.scope)
        if self._token is not None and not path.startswith(_FREE) and not self._may_look(request):
            raise Refusal(401, "unauthorized", "the token is needed")
        if request.method not in ("GET", "HEAD"):
            _check_origin(request)

    def _may_look(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        return hmac.compare_digest(request.cookies.get(LOGIN, "").encode(), self.login().encode())


def path_of(scope: Scope) -> str:
    """Return the path of a request below the root of the inspector."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(root) else path


def set_cookie(answer: Response, request: Request, name: str, value: str) -> None:
    """Give the browser a cookie that no script reads and that no other site sends."""
    secure = request.url.scheme == "https"
    path = quote(request.scope.get("root_path") or "/")  # as the browser has it; a cookie is no place for other signs
    answer.set_cookie(name, value, path=path, httponly=True, samesite="strict", secure=secure)


def form_token(request: Request) -> str:
    """Return the token that the forms of this browser carry: that of its cookie, or a new one."""
    return request.cookies.get(FORM) or token_urlsafe(24)


def check_form_token(request: Request, given: Iterable[str]) -> None:
    """Raise `Refusal` unless the form carries the token of the browser's cookie."""
    kept = request.cookies.get(FORM, "")
    if not kept or not any(hmac.compare_digest(kept.encode(), token.encode()) for token in given):
        raise Refusal(403, "foreign_form", "the form is not of this browser; load the page again")


def _check_origin(request: Request) -> None:
    """Raise `Refusal` for a write that another site sent, or of which the browser does not say who did."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    same = site == "same-origin"
    if origin is not None:
        scheme, host = _scheme_and_host(origin)
        if site is None:  # a browser says it of each address that begins with https, also behind a proxy
            same = scheme == request.url.scheme
        same = same and host == request.headers.get("host", "").lower() != ""
    if not same:
        raise Refusal(403, "foreign_origin", "a form must be sent from a page of the inspector")


def _scheme_and_host(origin: str) -> tuple[str, str]:
    """Return the scheme and the host in an Origin header, the host with its port."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return "", ""
    return parts.scheme, parts.netloc.lower()


def _is_loopback(name: str) -> bool:
    """True if the address or name always means this machine."""
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _host_of(header: str) -> str:
    """Return the name in a Host header, without its port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
