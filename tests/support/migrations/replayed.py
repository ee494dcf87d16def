"""New databases in a fraction of the time: the statements of a process's first migration, run again by the others.

Alembic and the revisions take most of a second to make the same statements. The tests of migrations run the revisions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Connection

from lastlight_state.migrations import apply, scripts

Kept = list[tuple[str, Any, bool]]

_upgrade = apply._upgrade
_data_steps = apply.data_steps
_kept: dict[tuple[Any, ...], Kept] = {}
#: The beginnings of statements that change nothing.
_READS = ("SELECT", "PRAGMA")


def install() -> None:
    """Let all migrations of new databases in this process run kept statements."""
    apply._upgrade = _replayed
    apply.data_steps = cache(_data_steps)


def remove() -> None:
    """Let all migrations run the revisions, as they do in a program."""
    apply._upgrade = _upgrade
    apply.data_steps = _data_steps


def _replayed(connection: Connection, target: str, present: Collection[Any]) -> None:
    if present or apply.version(connection) is not None:
        _upgrade(connection, target, present)
        return
    of = (connection.dialect.name, connection.dialect.driver, connection.dialect.server_version_info, target)
    key = (*of, scripts.folder())
    if key not in _kept:
        with _statements_of(connection) as said:
            _upgrade(connection, target, present)
        _kept[key] = said
        return
    with apply.environment_kept():
        for statement, parameters, many in _kept[key]:
            connection.exec_driver_sql(statement, parameters if many or parameters else None)


@contextmanager
def _statements_of(connection: Connection) -> Iterator[Kept]:
    """Note the statements of the block on a connection that change something."""
    said: Kept = []

    def note(_: object, __: object, statement: str, parameters: Any, ___: object, many: bool) -> None:
        if not statement.lstrip().startswith(_READS):
            said.append((statement, parameters, many))

    event.listen(connection, "before_cursor_execute", note)
    try:
        yield said
    finally:
        event.remove(connection, "before_cursor_execute", note)
