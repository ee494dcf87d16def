"""`inspector`: the ASGI application for all pages. It negotiates content types, shows errors, and receives forms."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route as Address
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from lastlight_state.aio import AsyncStateStore
from lastlight_state.backends import urls
from lastlight_state.clock import SYSTEM_CLOCK, Clock, iso_text
from lastlight_state.errors import InvalidValue, StateError
from lastlight_state.inspector import guard, pictures
from lastlight_state.inspector.guard import Guard, Refusal
from lastlight_state.inspector.live import Events, Topics
from lastlight_state.inspector.page import Ask, Download, Moved, Page, Route, View, status_of, values
from lastlight_state.inspector.pages import PAGES
from lastlight_state.inspector.rendering import (
    PERSONAL,
    csv_text,
    environment,
    json_text,
    of_segment,
    redact_data,
)
from lastlight_state.redaction import Secrets
from lastlight_state.store import StateStore

#: The acting person: a name, or a function that returns the name of a request's sender (None: may only look).
Person = str | Callable[[Request], str | None]

#: Most pages that are made at a time, so that a service which mounts the inspector keeps its other connections.
THREADS = 4
JSON, HTML, EVENTS = "application/json", "text/html", "text/event-stream"
_NO_LOGIN = (
    "without a login only this machine may act, by a name of its own: give inspector() a token or hosts, "
    "or a function as person that returns who sent a request"
)
_log = logging.getLogger("lastlight_state.inspector")


def inspector(
    store: StateStore | AsyncStateStore,
    *,
    token: str | None = None,
    hosts: Collection[str] | None = None,
    person: Person | None = None,
    acting: bool = False,
    hide_personal: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> ASGIApp:
    """Return an ASGI application that shows what is in the store. It may be mounted below any path.

    Its pages load nothing from elsewhere. No answer holds the token, or the password of a URL, wherever it is stored.
    ``hide_personal`` hides names, and what people wrote, everywhere.

    With a ``token`` each request must carry it, as ``Authorization: Bearer`` or in the cookie of the login page.
    Without a token, everybody who can reach the application can read all pages, so mount it behind a login. ``hosts``
    are the host names for which the application answers. With ``acting``, questions can be answered and runs cancelled,
    paused and resumed, in the name of ``person``. If ``person`` is a fixed name, and neither a token nor ``hosts`` are
    given, only requests from this machine may act. Raises `InvalidValue` for ``acting`` without a ``person`` or on a
    read-only store, and for an empty token.
    """
    sync = store.sync_store if isinstance(store, AsyncStateStore) else store
    if acting and (person is None or person == ""):
        raise InvalidValue("person", "must be given when acting=True")
    if acting and sync.settings.read_only:
        raise InvalidValue("acting", "the store is open for reading only")
    if token is not None and not token.strip():
        raise InvalidValue("token", "must not be empty")
    return _Inspector(sync, token, hosts, person if acting else None, hide_personal, clock).app


class _Inspector:
    """The application's routes, and the state they share."""

    def __init__(
        self,
        store: StateStore,
        token: str | None,
        hosts: Collection[str] | None,
        person: Person | None,
        hide_personal: bool,
        clock: Clock,
    ) -> None:
        self._store, self._person, self._hide, self._clock = store, person, hide_personal, clock
        self._has_token = token is not None
        self._secrets = Secrets()
        for secret in (*urls.passwords(store.settings.url), *([token] if token else ())):
            self._secrets.learn(secret)
        self._topics = Topics()
        self._threads: CapacityLimiter | None = None
        assets = StaticFiles(directory=Path(__file__).with_name("assets"))
        self._guard = Guard(self._build_routes(assets), token, hosts, self._answer_refusal)
        self.app: ASGIApp = self._guard

    def _build_routes(self, assets: ASGIApp) -> ASGIApp:
        by_path: dict[str, tuple[Page, list[Route]]] = {}
        for page in PAGES:
            for route in page.routes:
                by_path.setdefault(route.path, (page, []))[1].append(route)
        routes: list[Any] = [
            Address(path or "/", partial(self._answer, page, own), methods=_methods(own))
            for path, (page, own) in by_path.items()
        ]
        routes += [
            Address("/login", self._login, methods=["GET", "POST"]),
            Address("/personal", self._personal, methods=["POST"]),
            Mount("/assets", assets),
        ]
        return Starlette(routes=routes, exception_handlers={404: self._answer_not_found, 405: self._answer_not_found})

    async def _answer(self, page: Page, routes: list[Route], request: Request) -> Response:
        acts = request.method == "POST"
        route = next(route for route in routes if route.acts is acts)
        try:
            ask = await self._ask(request, acts)
            if route.live:
                ask = ask.only(route.takes)
            if not acts and wanted_type(request) == EVENTS:
                return self._live(page, route, ask, request)
            answer: Response = await self._on_a_thread(partial(self._answer_route, page, route, ask, request))
        except Refusal as refusal:
            return self._answer_refusal(request, refusal)
        except Exception as error:  # noqa: BLE001 whatever it is, a page says so, and the log has it whole
            return self._answer_refusal(request, refusal_of(error))
        return answer

    def _answer_route(self, page: Page, route: Route, ask: Ask, request: Request) -> Response:
        found = route.answer(ask)
        if isinstance(found, Moved):
            return RedirectResponse(request.scope.get("root_path", "") + found.path, status_code=303)
        if isinstance(found, Download):
            kept = {"content-disposition": f'attachment; filename="{found.name}"'}
            rows = redact_data(found.rows, self._secrets, hidden=_hidden_fields(page, self._hides(request)))
            return Response(csv_text(rows), headers=kept, media_type="text/csv; charset=utf-8")
        return self._render_view(request, page, found)

    async def _ask(self, request: Request, acts: bool) -> Ask:
        query = values(request.url.query)
        path = {name: of_segment(part) for name, part in request.path_params.items()}
        ask = Ask(self._store, self._clock, path, query, person=self._acting_person(request))
        if not acts:
            return ask
        form = await _form(request)
        if isinstance(self._person, str) and not self._guard.knows_its_visitors(request):
            raise Refusal(403, "no_login", _NO_LOGIN)
        if ask.person is None:
            raise Refusal(403, "only_looking", "acting is not switched on here")
        return replace(ask, form=form)

    def _acting_person(self, request: Request) -> str | None:
        if callable(self._person):
            return self._person(request) or None
        return (self._person or None) if self._guard.knows_its_visitors(request) else None

    async def _on_a_thread(self, work: Callable[[], Any]) -> Any:
        if self._threads is None:
            self._threads = CapacityLimiter(THREADS)
        return await to_thread.run_sync(work, limiter=self._threads)

    def _live(self, page: Page, route: Route, ask: Ask, request: Request) -> Response:
        """Stream a page's content at each change.

        The content has no forms, because every viewer gets the same content.
        """
        hide = self._hides(request)
        key = (request.url.path, json_text(ask.query), hide)
        if not route.live:
            raise Refusal(406, "not_live", "this page is not live")
        if self._topics.is_full_for(key):
            raise Refusal(503, "too_many_topics", "too many different pages are live")
        neutral, root = replace(ask, person=None), request.scope.get("root_path", "")
        before: list[Hashable] = []

        def render_content() -> str | None:
            mark = None if route.mark is None else route.mark(neutral)
            if before and mark is not None and before == [mark]:
                return None
            view = route.answer(neutral)
            if not isinstance(view, View):
                return None
            before[:] = [mark]
            shown = redact_data(view.data, self._secrets, hidden=_hidden_fields(page, hide))
            common = self._common(root, page, ask.query, only_content=True)
            more = self._beside(view)
            return environment().get_template(view.template).render({**common, **more, "data": shown})

        stream = self._topics.stream(key, partial(self._on_a_thread, render_content))
        return Events(stream)

    def _render_view(self, request: Request, page: Page | None, view: View) -> Response:
        hide = self._hides(request)
        data = redact_data(view.data, self._secrets, hidden=_hidden_fields(page, hide))
        if wanted_type(request) == JSON:
            return Response(json_text(data), view.status, media_type=JSON)
        token = guard.form_token(request)
        query = {} if page is None else values(request.url.query)  # the query of a failed request may itself be invalid
        common = self._common(request.scope.get("root_path", ""), page, query)
        person = None if page is None else self._acting_person(request)
        text = (
            environment()
            .get_template(view.template)
            .render(
                {
                    **common,
                    **self._beside(view),
                    "data": data,
                    "title": self._secrets.redact(view.title),
                    "person": person,
                    "hides": hide,
                    "form_token": token,
                    "live": page is not None and view.live and _is_live(page, request),
                }
            )
        )
        answer = HTMLResponse(text.encode("utf-8", "backslashreplace"), view.status)
        if request.cookies.get(guard.FORM) != token:
            guard.set_cookie(answer, request, guard.FORM, token)
        return answer

    def _beside(self, view: View) -> dict[str, Any]:
        """Return the template's extra values. Secrets in the texts of diagrams are hidden."""
        kinds = pictures.Axis | pictures.Columns | pictures.Order
        hidden = self._secrets.redact
        more = view.more.items()
        return {name: pictures.with_texts(one, hidden) if isinstance(one, kinds) else one for name, one in more}

    def _common(
        self, root: str, page: Page | None, query: Mapping[str, Any], *, only_content: bool = False
    ) -> dict[str, Any]:
        return {
            "only_content": only_content,
            "now": iso_text(self._clock.now()),
            "root": root,
            "page": page,
            "pages": PAGES,
            "query": dict(query),
            "always_hides": self._hide,
            "has_token": self._has_token,
        }

    def _hides(self, request: Request) -> bool:
        return self._hide or request.cookies.get(guard.PERSONAL) == "hidden"

    def _answer_refusal(self, request: Request, refusal: Refusal) -> Response:
        error = {"code": refusal.code, "message": self._secrets.redact(refusal.message)}
        template = "login.html" if refusal.status == 401 else "error.html"
        to = guard.path_of(request.scope) if request.method == "GET" else "/"
        view = View(template, {"error": error}, error["message"], more={"to": to}, status=refusal.status)
        answer = self._render_view(request, None, view)
        if refusal.status == 401:
            answer.headers["www-authenticate"] = "Bearer"
        return answer

    async def _answer_not_found(self, request: Request, _: Exception) -> Response:
        return self._answer_refusal(request, Refusal(404, "not_found", "there is no such page"))

    async def _login(self, request: Request) -> Response:
        """Show the login form, or check the token that was sent and set the login cookie."""
        to = request.query_params.get("to", "/")
        if request.method == "GET":
            return self._render_view(request, None, View("login.html", {}, "Token", more={"to": to}))
        try:
            form = await _form(request)
        except Refusal as refusal:
            return self._answer_refusal(request, refusal)
        if not any(map(self._guard.is_token, form.get("token", ()))):
            return self._answer_refusal(request, Refusal(401, "unauthorized", "that is not the token"))
        answer = self._back(request, to)
        guard.set_cookie(answer, request, guard.LOGIN, self._guard.login())
        return answer

    async def _personal(self, request: Request) -> Response:
        """Set a cookie that tells the pages to hide personal data in this browser, or to show it again."""
        try:
            form = await _form(request)
        except Refusal as refusal:
            return self._answer_refusal(request, refusal)
        answer = self._back(request, form.get("to", ["/"])[0])
        guard.set_cookie(answer, request, guard.PERSONAL, "hidden" if "hide" in form else "shown")
        return answer

    def _back(self, request: Request, to: str) -> Response:
        """Redirect to a path within the inspector, never to another site."""
        inside = to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable()
        return RedirectResponse(request.scope.get("root_path", "") + (to if inside else "/"), status_code=303)


def _hidden_fields(page: Page | None, hide: bool) -> Collection[str]:
    """Return the names of the fields to hide on a page. An error has no page and so no personal data to hide."""
    return PERSONAL | page.personal if hide and page is not None else ()


def wanted_type(request: Request) -> str:
    """Return the content type that the Accept header prefers. If several have the same weight, the first counts."""
    best, weight = HTML, 0.0
    for part in request.headers.get("accept", "").split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        found = next((_weight(text[2:]) for text in parameters if text.startswith("q=")), 1.0)
        if kind in (JSON, HTML, EVENTS) and found > weight:
            best, weight = kind, found
    return best


def refusal_of(error: Exception) -> Refusal:
    """Convert an exception of a page to a refusal: HTTP status, code and text."""
    if isinstance(error, StateError):
        return Refusal(status_of(error), error.code, str(error))
    _log.exception("a page failed", exc_info=error)
    return Refusal(500, "internal", f"a defect of this program: {type(error).__name__}; the log has more")


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _methods(routes: list[Route]) -> list[str]:
    return ["POST" if route.acts else "GET" for route in routes]


def _is_live(page: Page, request: Request) -> bool:
    route = request.scope.get("route")
    path = "" if route is None else route.path
    return any(own.live and (own.path or "/") == path for own in page.routes)


async def _form(request: Request) -> dict[str, list[str]]:
    """Return the values of a form by field. Raises `Refusal` if it is cut off, too large, or sent by another site."""
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > guard.MOST_FORM:
                raise Refusal(413, "payload_too_large", f"a form has at most {guard.MOST_FORM} bytes")
        form = values(body.decode("utf-8", "replace"))
    except ClientDisconnect:
        raise Refusal(400, "cut_off", "the browser went before it had sent the form") from None
    except InvalidValue as error:
        raise refusal_of(error) from None
    guard.check_form_token(request, form.pop("form_token", ()))
    return form
