"""The building blocks of pages: addresses, requests, and answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import parse_qs

from lastlight_state.clock import Clock, iso_time
from lastlight_state.errors import BackendError, Conflict, InvalidValue, NotFound, StateError
from lastlight_state.store import StateStore

#: Records that a list shows: the default and the maximum.
ROWS, MOST_ROWS = 50, 500
_LONG_AGO = re.compile(r"(\d{1,4})\s*(m|h|d|w)\Z")
_LENGTHS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True)
class View:
    """A page's answer: a template, the data it shows, and the window's title.

    ``data`` is also the JSON answer. ``more`` holds what only the template needs, such as pictures of the data. With
    ``live=False`` this answer is not updated in the browser, even if its address is live.
    """

    template: str
    data: Mapping[str, Any]
    title: str
    more: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    live: bool = True


@dataclass(frozen=True)
class Moved:
    """A redirect after a form was sent. ``path`` is relative to the root of the inspector."""

    path: str


@dataclass(frozen=True)
class Ask:
    """A request for a page.

    ``person`` is the acting person's name, which is stored with each action. It is None if the sender may only read.
    ``form`` holds the values of a form. It is empty if no form was sent.
    """

    store: StateStore
    clock: Clock
    path: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    person: str | None = None
    form: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def only(self, names: Collection[str]) -> Ask:
        """Return a copy of the request with only these query values. Ignored values must not create more live pages."""
        return replace(self, query={name: values for name, values in sorted(self.query.items()) if name in names})

    def text(self, name: str) -> str | None:
        """Return a query value, stripped. None if it is missing or blank."""
        return next(iter(self.texts(name)), None)

    def texts(self, name: str) -> list[str]:
        """Return all query values with this name, stripped, without blank ones."""
        return [text for value in self.query.get(name, ()) if (text := value.strip())]

    def number(self, name: str, default: int, *, most: int) -> int:
        """Return a query value as a number from 1 to ``most``. Raises `InvalidValue` for any other value."""
        text = self.text(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
            raise InvalidValue(name, f"expected a number from 1 to {most}")
        return int(text)

    def moment(self, name: str) -> datetime | None:
        """Parse a time of the query: ``2026-06-30``, ``2026-06-30T09:00`` in UTC, or ``24h``, ``7d``, ``2w`` ago.

        Raises `InvalidValue` for any other value.
        """
        text = self.text(name)
        if text is None:
            return None
        if ago := _LONG_AGO.match(text):
            return self.clock.now() - timedelta(**{_LENGTHS[ago[2]]: int(ago[1])})
        try:
            found = iso_time(text)
        except ValueError:
            raise InvalidValue(name, "expected a day such as 2026-06-30, or a time ago such as 24h or 7d") from None
        return found.replace(tzinfo=found.tzinfo or UTC)

    @property
    def part(self) -> dict[str, Any]:
        """Return the query's ``limit`` and ``page_token``, as keyword arguments of a list call."""
        return {"limit": self.number("limit", ROWS, most=MOST_ROWS), "page_token": self.text("page_token")}

    def form_value(self, name: str) -> str | None:
        """Return the value of a form's field without stripping it. None if it is empty or missing."""
        values = self.form.get(name, ())
        return values[0] if values and values[0] != "" else None


@dataclass(frozen=True)
class Download:
    """A table to download as a CSV file. All its rows have the same fields."""

    name: str
    rows: Sequence[Any]


#: A function that answers a request: with a page, a redirect after a form, or a download.
Answers = Callable[[Ask], View | Moved | Download]
AnswersT = TypeVar("AnswersT", bound=Answers)
#: A cheap query. A live page is made again only when its result has changed.
Mark = Callable[[Ask], Hashable]


@dataclass(frozen=True)
class Route:
    """An address of a page. With ``live`` its content is sent again after changes.

    ``takes`` are the query values that a live page reads. Others are ignored.
    """

    path: str
    answer: Answers
    acts: bool = False
    live: bool = False
    mark: Mark | None = None
    takes: frozenset[str] = frozenset()


@dataclass
class Page:
    """A page of the navigation, with the addresses below it. The keys ``g`` and then ``key`` lead to it.

    ``personal`` names further fields that hold personal data on this page, in addition to the fields that do on every
    page.
    """

    name: str
    title: str
    path: str
    key: str
    personal: frozenset[str] = frozenset()
    routes: list[Route] = field(default_factory=list)

    def look(
        self, path: str = "", *, live: bool = False, mark: Mark | None = None, takes: str = ""
    ) -> Callable[[AnswersT], AnswersT]:
        """Decorate a function that answers a read-only address. ``takes`` are query names, separated by spaces."""

        def add_route(answer: AnswersT) -> AnswersT:
            names = frozenset(takes.split())
            self.routes.append(Route(self.path + path, answer, live=live, mark=mark, takes=names))
            return answer

        return add_route

    def act(self, path: str) -> Callable[[AnswersT], AnswersT]:
        """Decorate a function that answers a form sent to an address. It is called only if the sender may act."""

        def add_route(answer: AnswersT) -> AnswersT:
            self.routes.append(Route(self.path + path, answer, acts=True))
            return answer

        return add_route


def status_of(error: StateError) -> int:
    """Return the HTTP status for an error of the library."""
    statuses = {NotFound: 404, InvalidValue: 400, Conflict: 409, BackendError: 503}
    return next((status for kind, status in statuses.items() if isinstance(error, kind)), 500)


def values(text: str) -> dict[str, list[str]]:
    """Return the values of a query or form by name. Raises `InvalidValue` for more than 1000 values."""
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=1_000, errors="replace")
    except ValueError:
        raise InvalidValue("query", "more than 1000 values") from None
