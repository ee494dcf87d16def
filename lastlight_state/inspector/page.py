"""What a page is made of: its addresses, what is asked of it, and what it answers."""

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

#: How many records a list shows unless it is asked for more, and the most of them.
ROWS, MOST_ROWS = 50, 500
_LONG_AGO = re.compile(r"(\d{1,4})\s*(m|h|d|w)\Z")
_LENGTHS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True)
class View:
    """What a page answers: a template, the data that it shows, and the title of the window.

    ``data`` is what JSON has, too. What a template needs beside it, such as pictures of the data, is in ``more``.
    Without ``live`` the page is not sent again, though its address is that of a live one.
    """

    template: str
    data: Mapping[str, Any]
    title: str
    more: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    live: bool = True


@dataclass(frozen=True)
class Moved:
    """Where to look after a form was sent, below the root of the inspector."""

    path: str


@dataclass(frozen=True)
class Ask:
    """What is asked of a page.

    ``person`` is who acts, by the name that is stored with what they do; None for somebody who may only look.
    ``form`` is what was filled in, empty for a page that is looked at.
    """

    store: StateStore
    clock: Clock
    path: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    person: str | None = None
    form: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def only(self, names: Collection[str]) -> Ask:
        """Return the same with these values of the query alone, so that nothing else makes it another page."""
        return replace(self, query={name: values for name, values in sorted(self.query.items()) if name in names})

    def text(self, name: str) -> str | None:
        """Return a value of the query without the space around it. None for one that is missing or blank."""
        return next(iter(self.texts(name)), None)

    def texts(self, name: str) -> list[str]:
        """Return the values of the query with this name, without blank ones."""
        return [text for value in self.query.get(name, ()) if (text := value.strip())]

    def number(self, name: str, default: int, *, most: int) -> int:
        """Return a number of the query, from 1 to ``most``. Raises `InvalidValue` for anything else."""
        text = self.text(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
            raise InvalidValue(name, f"expected a number from 1 to {most}")
        return int(text)

    def moment(self, name: str) -> datetime | None:
        """Return a time of the query: ``2026-06-30``, ``2026-06-30T09:00`` in UTC, or ``24h``, ``7d``, ``2w`` ago.

        Raises `InvalidValue` for anything else.
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
        """Return which part of a list is asked for, as its verb takes it."""
        return {"limit": self.number("limit", ROWS, most=MOST_ROWS), "page_token": self.text("page_token")}

    def filled(self, name: str) -> str | None:
        """Return what was filled into a field of the form, as it is. None for nothing."""
        values = self.form.get(name, ())
        return values[0] if values and values[0] != "" else None


@dataclass(frozen=True)
class Download:
    """A table to keep as a file of CSV: its records, which all have the same fields."""

    name: str
    rows: Sequence[Any]


#: What answers an address: a page, or after a form where to go.
Answers = Callable[[Ask], View | Moved | Download]
AnswersT = TypeVar("AnswersT", bound=Answers)
#: A cheap look: the page is made again only when this has changed.
Mark = Callable[[Ask], Hashable]


@dataclass(frozen=True)
class Route:
    """An address of a page. With ``live`` it is shown again and again.

    ``takes`` are the values of the query that a live page reads. Any other is ignored.
    """

    path: str
    answer: Answers
    acts: bool = False
    live: bool = False
    mark: Mark | None = None
    takes: frozenset[str] = frozenset()


@dataclass
class Page:
    """A page of the navigation and the addresses below it. ``key`` is a letter that goes there, after ``g``.

    ``personal`` are fields that hold personal data on this page, beside those that do so everywhere.
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
        """Let a function answer an address, which it only reads for. ``takes`` are names with spaces between them."""

        def added(answer: AnswersT) -> AnswersT:
            names = frozenset(takes.split())
            self.routes.append(Route(self.path + path, answer, live=live, mark=mark, takes=names))
            return answer

        return added

    def act(self, path: str) -> Callable[[AnswersT], AnswersT]:
        """Let a function answer a form that is sent to an address. It is called only for somebody who may act."""

        def added(answer: AnswersT) -> AnswersT:
            self.routes.append(Route(self.path + path, answer, acts=True))
            return answer

        return added


def status_of(error: StateError) -> int:
    """Return the status of HTTP for an error of the library."""
    statuses = {NotFound: 404, InvalidValue: 400, Conflict: 409, BackendError: 503}
    return next((status for kind, status in statuses.items() if isinstance(error, kind)), 500)


def values(text: str) -> dict[str, list[str]]:
    """Return the values of a query or form by name. Raises `InvalidValue` for too many."""
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=1_000, errors="replace")
    except ValueError:
        raise InvalidValue("query", "more than 1000 values") from None
