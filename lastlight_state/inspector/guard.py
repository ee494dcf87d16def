"""Access control: allowed host names, a token, writes from the same origin only, and security headers.

It runs before the pages. A service that mounts the inspector behind its own login needs no token, but its writes and
headers are guarded all the same.
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

#: Names of the cookies: login with the token, the token of forms, and the choice to hide personal data.
LOGIN, FORM, PERSONAL = "lastlight_login", "lastlight_form", "lastlight_personal"
#: Most bytes of a form.
MOST_FORM = 1 << 20
_FREE = ("/login", "/assets/")
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",  # without this header, browsers send ``null`` as the origin of a form
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True)
class Refusal(Exception):
    """A refused request: an HTTP status, a code, and a text."""

    status: int
    code: str
    message: str


class Guard:
    """ASGI middleware: refuses requests that are not allowed, and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, token: str | None, hosts: Collection[str] | None, refused: Any) -> None:
        self._app = app
        self._token = token
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # only the start and end of the server: there are no websockets
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)

        async def send_with_headers(message: Message) -> None:
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
            await answer(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def knows_its_visitors(self, request: Request) -> bool:
        """True if a token or host names restrict access, or the request's peer and Host header are both this machine.

        Checking only the peer is not enough, because another site's host name may resolve to this machine (DNS
        rebinding).
        """
        if self._token is not None or self._hosts is not None:
            return True
        peer = "" if request.client is None else request.client.host
        return _is_loopback(peer) and _is_loopback(_host_of(request.headers.get("host", "")))

    def is_token(self, given: str) -> bool:
        """True if the text is the token. Compared in constant time."""
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())

    def login(self) -> str:
        """Return the value of the login cookie. The token cannot be derived from it."""
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
    """Return a request's path relative to the root of the inspector."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(root) else path


def set_cookie(answer: Response, request: Request, name: str, value: str) -> None:
    """Set a cookie that scripts cannot read and other sites cannot send."""
    secure = request.url.scheme == "https"
    path = quote(request.scope.get("root_path") or "/")  # quoted as browsers do it
    answer.set_cookie(name, value, path=path, httponly=True, samesite="strict", secure=secure)


def form_token(request: Request) -> str:
    """Return the token that this browser's forms carry: the one in its cookie, or a new one."""
    return request.cookies.get(FORM) or token_urlsafe(24)


def check_form_token(request: Request, given: Iterable[str]) -> None:
    """Raise `Refusal` unless the form carries the token of the browser's cookie."""
    kept = request.cookies.get(FORM, "")
    if not kept or not any(hmac.compare_digest(kept.encode(), token.encode()) for token in given):
        raise Refusal(403, "foreign_form", "the form is not of this browser; load the page again")


def _check_origin(request: Request) -> None:
    """Raise `Refusal` for a write that another site sent, or whose origin is unknown."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    same = site == "same-origin"
    if origin is not None:
        scheme, host = _scheme_and_host(origin)
        if site is None:  # browsers send Sec-Fetch-Site to every https address, also behind a proxy
            same = scheme == request.url.scheme
        same = same and host == request.headers.get("host", "").lower() != ""
    if not same:
        raise Refusal(403, "foreign_origin", "a form must be sent from a page of the inspector")


def _scheme_and_host(origin: str) -> tuple[str, str]:
    """Return the scheme, and the host with its port, of an Origin header."""
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
    """Return the host name of a Host header, without its port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
