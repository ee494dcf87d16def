"""Descriptions of kinds of records for list and show commands: how a kind is read, and which columns people see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from lastlight_state import codec
from lastlight_state.cli.output import Answer
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.db.rows.records import Page
from lastlight_state.domains import View
from lastlight_state.errors import InvalidValue
from lastlight_state.plain import plain
from lastlight_state.store import StateStore

Store = StateStore | View

_REFUSALS = {
    "run": "are not listed by run",
    "since": "are not listed by their start",
    "status": "have none",
}


@dataclass(frozen=True)
class Filters:
    """The filters of a list. None means no filter. The repository validates their values."""

    statuses: Sequence[Any] | None
    since: datetime | None
    limit: int
    page_token: str | None
    run_id: str | None = None
    project: str | None = None
    workflow: str | None = None
    repo: str | None = None
    by: str | None = None
    until: datetime | None = None

    @property
    def page_arguments(self) -> dict[str, Any]:
        return {"limit": self.limit, "page_token": self.page_token}

    @property
    def workflows(self) -> list[str] | None:
        return None if self.workflow is None else [self.workflow]

    @property
    def status(self) -> Any:
        """Return the single status, or None. Raises `InvalidValue` for several."""
        if self.statuses is None:
            return None
        if len(self.statuses) != 1:
            raise InvalidValue("--status", f"expected one status, got {len(self.statuses)}")
        return self.statuses[0]

    def refuse(self, kind: str, *flags: str) -> None:
        """Raise `InvalidValue` for the first of these flags that is given. Lists of this kind have no such filter."""
        given = {"run": self.run_id, "since": self.since, "status": self.statuses}
        for flag in flags:
            if given[flag] is not None:
                raise InvalidValue(f"--{flag}", f"{kind} {_REFUSALS[flag]}")

    def run(self, kind: str) -> str:
        """Return the run's id. Raises `InvalidValue` if none is given."""
        return needed_run(kind, self.run_id)


@dataclass(frozen=True)
class Kind:
    """A kind of record: how records are listed, and how one is read with its children. ``name`` is its word in `show`.

    ``get`` reads a record by its key. ``part`` reads a record of a run by the run's id and the key within it. A kind
    without ``get`` and ``part`` can only be listed. ``by`` names the other flags that filter its list: ``project``,
    ``workflow``, ``repo``, ``by``, ``until``.
    """

    name: str
    columns: tuple[Column[Any], ...]
    page: Callable[[StateStore, Filters], Page[Any]]
    empty: str
    get: Callable[[Store, str], Any] | None = None
    part: Callable[[Store, str, str], Any] | None = None
    children: Callable[[Store, Any], Mapping[str, Page[Any]]] = lambda _, __: {}
    by: tuple[str, ...] = ()


def needed_run(kind: str, run_id: str | None) -> str:
    """Return the run's id. Raises `InvalidValue` if it is None."""
    if run_id is None:
        raise InvalidValue("--run", f"must be given: {kind} belong to a run")
    return run_id


# Lists of records, a page at a time: their flags, and pages as tables.

LIMIT = click.option("--limit", metavar="N", default=50, help="The number of records on a page, 1 to 500.")
STATUS = click.option("--status", metavar="WORD", multiple=True, help="Only these; may be given several times.")
PAGE_TOKEN = click.option("--page-token", metavar="TOKEN", help="Go on where the page before ended.")


def words(given: Sequence[str]) -> list[str] | None:
    """Return the statuses from repeated flags, or from one flag with commas. Return None if no flag is given."""
    return [word.strip() for words in given for word in words.split(",")] if given else None


def answer(kind: Kind, page: Page[Any]) -> Answer:
    """Return the command's answer for a page of records."""
    data = {"items": page.items, "next_page_token": page.next_page_token, "damaged": page.damaged}
    return Answer(data, lambda screen: _lines(kind, page, screen))


def _lines(kind: Kind, page: Page[Any], screen: Screen) -> Iterator[Any]:
    if not page.items:
        yield kind.empty
    else:
        yield from screen.table(kind.columns, page.items)
    for row in page.damaged:
        yield f"cannot be read: {row.problem}"
    if page.next_page_token is not None:
        yield f"more: --page-token {page.next_page_token}"


# A single record: its fields, and below them the texts that are too long to stand beside a name.

#: Most characters of a text that are shown without ``--full``.
SHORT = 200


def lines(record: Any, screen: Screen, *, full: bool, more: Mapping[str, str]) -> Iterator[Any]:
    """Yield the lines of a record, and of the texts in ``more``.

    With ``full``, long texts are not cut, and empty fields are included.
    """
    values = {name: getattr(record, name) for name in _ordered_names(type(record).model_fields)}
    long = {name: text for name, value in values.items() if (text := _long(value))}
    shown = {name: value for name, value in values.items() if name not in long and (full or value is not None)}
    yield from screen.fields(shown)
    for name, text in {**long, **more}.items():
        yield from _text(name, text, screen, full)


def _ordered_names(names: Iterable[str]) -> list[str]:
    """Return the names of fields in their order, but with a repository's owner right before the repository's name."""
    found = list(names)
    if "owner" in found and "repo" in found:
        found.remove("owner")
        found.insert(found.index("repo"), "owner")
    return found


def _long(value: Any) -> str | None:
    """Return a value's text if it is too long to print next to its name, else None."""
    if isinstance(value, str):
        return value if len(value) > SHORT or "\n" in value else None
    if isinstance(value, dict | list):
        text = codec.encode_sound(plain(value), indented=True).decode()
        return text if len(text) > SHORT else None
    return None


def _text(name: str, text: str, screen: Screen, full: bool) -> Iterator[Any]:
    yield ""
    yield screen.heading(name)
    if full or len(text) <= SHORT:
        yield text
        return
    yield f"{text[:SHORT]}…"
    yield f"[{len(text):,} characters; --full shows all]"
