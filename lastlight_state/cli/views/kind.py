"""What a kind of record is to the commands that list and show: how it is read, and which columns people see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

from lastlight_state.cli.tables import Column
from lastlight_state.db.records import Page
from lastlight_state.domains import View
from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore

Store = StateStore | View

_REFUSALS = {
    "run": "are not listed by run",
    "since": "are not listed by their start",
    "status": "have none",
}


@dataclass(frozen=True)
class Filters:
    """What a list is to show. None filters nothing; the repository judges the words."""

    statuses: Sequence[Any] | None
    since: datetime | None
    limit: int
    page_token: str | None
    run_id: str | None = None
    project: str | None = None
    workflow: str | None = None
    repo: str | None = None

    @property
    def paging(self) -> dict[str, Any]:
        return {"limit": self.limit, "page_token": self.page_token}

    @property
    def workflows(self) -> list[str] | None:
        return None if self.workflow is None else [self.workflow]

    @property
    def status(self) -> Any:
        """The only status, or None. Raises `InvalidValue` for several."""
        if self.statuses is None:
            return None
        if len(self.statuses) != 1:
            raise InvalidValue("--status", f"expected one status, got {len(self.statuses)}")
        return self.statuses[0]

    def refuse(self, kind: str, *flags: str) -> None:
        """Raise `InvalidValue` for the first of these flags that is given, because the kind is not listed by it."""
        given = {"run": self.run_id, "since": self.since, "status": self.statuses}
        for flag in flags:
            if given[flag] is not None:
                raise InvalidValue(f"--{flag}", f"{kind} {_REFUSALS[flag]}")

    def run(self, kind: str) -> str:
        """Return the run. Raises `InvalidValue` without one."""
        return needed_run(kind, self.run_id)


@dataclass(frozen=True)
class Kind:
    """How to list a kind, and to get one with its children. ``name`` is its singular, as `show` takes it.

    ``get`` finds one by its key alone, ``part`` one of a run by the run and its key there. A kind with neither can
    only be listed. ``by`` names the other flags that
    narrow its list: ``project``, ``workflow``, ``repo``.
    """

    name: str
    columns: tuple[Column, ...]
    page: Callable[[StateStore, Filters], Page[Any]]
    empty: str
    get: Callable[[Store, str], Any] | None = None
    part: Callable[[Store, str, str], Any] | None = None
    children: Callable[[Store, Any], Mapping[str, Page[Any]]] = lambda _, __: {}
    by: tuple[str, ...] = ()


def needed_run(kind: str, run_id: str | None) -> str:
    """Return the run. Raises `InvalidValue` without one."""
    if run_id is None:
        raise InvalidValue("--run", f"must be given: {kind} belong to a run")
    return run_id


def column(title: str, field: str | None = None, **options: Any) -> Column:
    """Return a column of a field, that of the title's name unless given."""
    return Column(title, attrgetter(field or title.lower()), **options)
