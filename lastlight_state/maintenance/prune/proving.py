"""The proof that a bundle brings its record back: it is loaded, compared cell by cell, and what it stored is undone.

The database that removed the rows takes them again, in the same transaction. So whatever could refuse or change a value
later has its say now: the types of columns, the guards, the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

from lastlight_state import codec
from lastlight_state.conversations.kernel.classes import KnownClasses
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict, StateError
from lastlight_state.maintenance.bundles import selection
from lastlight_state.maintenance.bundles.loading import Loading
from lastlight_state.maintenance.bundles.opened import OpenBundle, opened
from lastlight_state.maintenance.copy.contents import shown
from lastlight_state.maintenance.copy.subjects import Subject

_SAVEPOINT = "lastlight_proof"


@contextmanager
def undone(unit: Unit) -> Iterator[None]:
    """Undo everything that the block stored. A block that raises leaves that to the transaction, which is lost."""
    unit.plain(f"SAVEPOINT {_SAVEPOINT}")
    yield
    unit.plain(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
    unit.plain(f"RELEASE SAVEPOINT {_SAVEPOINT}")


def prove(unit: Unit, file: Path, now: datetime) -> None:
    """Load a bundle whose record was removed, and compare.

    Raises `Conflict` ``archive_differs`` with the first cell, and what the load raises.
    """
    with opened(file) as found:
        try:
            Loading(found, KnownClasses(), "refuse", now, allow_unknown_words=True).store(unit)
        except StateError as error:
            error.add_note(f"the archive {file} cannot be loaded, so nothing was removed")
            raise
        for subject, reading, keys in selection.selected(unit, found.bundle.kind, found.bundle.id).rows:
            lines = selection.rows_of(unit, subject, reading, keys)
            for archived, loaded in zip_longest(_archived(found, subject), lines):
                if archived != loaded:
                    raise _different(file, subject, archived, loaded)


def _archived(bundle: OpenBundle, subject: Subject) -> Iterator[bytes]:
    part = bundle.tables.get(subject.name)
    return iter(()) if part is None else bundle.lines(part)


def _different(file: Path, subject: Subject, archived: bytes | None, loaded: bytes | None) -> Conflict:
    """The error for a row that does not come back as it was. It names the cell, and no value."""
    was, now = (_row(line) for line in (archived, loaded))
    row = was or now
    key = shown([row.get(column.name) for column in subject.table.primary_key])
    cells = [name for name in subject.names if was.get(name) != now.get(name)] if was and now else []
    column = cells[0] if cells else None
    cell = f"{subject.name} {key}" + ("" if column is None else f", column {column},")
    return Conflict(
        f"{cell} does not come back from the archive {file} as it was, so nothing was removed",
        code="archive_differs",
        table=subject.name,
        key=key,
        column=column,
    )


def _row(line: bytes | None) -> dict[str, Any]:
    return {} if line is None else codec.decode(line)
