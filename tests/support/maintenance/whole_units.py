"""What an import stores, unit by unit: every state in which a killed one may leave a database and its line files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from support.maintenance.dying_imports import bring_in
from support.maintenance.rows import counts
from support.maintenance.sources import BUNDLE

from lastlight_state import StateStore
from lastlight_state.testing import Database


class Stored(NamedTuple):
    """The rows of every table but receipts, and the bytes of every line file."""

    rows: dict[str, int]
    files: dict[str, bytes]

    @classmethod
    def of(cls, database: Database, store: StateStore) -> Stored:
        """What is stored now, but for receipts and what is locked or unfinished."""
        rows = {name: many for name, many in counts(database).items() if name != "maintenance_receipts"}
        found = (path for root in store.settings.line_directories for path in root.rglob("*") if path.is_file())
        kept = (one for one in found if ".locks" not in one.parts and not one.name.endswith(".tmp"))
        return cls(rows, {str(one.relative_to(database.state_dir)): one.read_bytes() for one in kept})

    def is_between(self, before: Stored, after: Stored) -> bool:
        """Whether no row is here that is not noted. Files come before the row that notes them, and may have grown."""
        return (
            self.rows == before.rows
            and before.files.keys() <= self.files.keys() <= after.files.keys()
            and all(
                data in (before.files.get(name), after.files[name])
                or (data.startswith(before.files.get(name, b"")) and after.files[name].startswith(data))
                for name, data in self.files.items()
            )
        )


def steps_of(database: Database, kind: str, path: Path) -> list[Stored]:
    """What is stored before the import, and after each of its units."""
    store = database.open()
    found = [Stored.of(database, store)]
    while kind != BUNDLE and (done := store.maintenance.imports.run(path, limit=1)).rows:
        assert done.failures == ()
        found.append(Stored.of(database, store))
    if kind == BUNDLE:
        bring_in(store, kind, path)
        found.append(Stored.of(database, store))
    return [*found, found[-1]]
