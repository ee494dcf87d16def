"""The victims of a prune as bundles: each is written, synced, read again and named before its rows are removed.

The removal is committed when every bundle of the batch was loaded and has brought back what it was made of. A bundle's
name ends with the beginning of its digest. So a batch that is repeated, because it was killed before its commit, finds
the file there; and one whose record has changed meanwhile gets another name.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

from lastlight_state import codec
from lastlight_state.conversations.kernel.storing import KnownClasses
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, CorruptData, StateError
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.files import sync_directory, translated
from lastlight_state.maintenance.bundles import selection
from lastlight_state.maintenance.bundles.archive import OpenBundle, link, opened
from lastlight_state.maintenance.bundles.loading import Loading
from lastlight_state.maintenance.bundles.records import Bundle
from lastlight_state.maintenance.bundles.writing import written
from lastlight_state.maintenance.copy.contents import shown
from lastlight_state.maintenance.copy.tables import Subject
from lastlight_state.outputs.models import REGISTRY
from lastlight_state.settings import Settings

# The proof that a bundle brings its record back: it is loaded, compared cell by cell, and what it stored is undone.
#
# The database that removed the rows takes them again, in the same transaction. So whatever could refuse or change a
# value later has its say now: the types of columns, the guards, the driver.

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
    """Return the error for a row that does not come back as it was. It names the cell, and no value."""
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


#: What a bundle of each kind of record is.
BUNDLES = {"runs": "run", "sessions": "session"}
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,120}")
_DIGITS = 16


@dataclass(frozen=True)
class Archiver:
    """Writes bundles of one kind into a folder. ``revision`` is that of the schema.

    ``with_logs`` says that the logs in them go after their records.
    """

    kind: str
    folder: Path
    revision: str
    settings: Settings
    with_logs: bool = False

    def archive(self, unit: Unit, keys: Sequence[str]) -> tuple[dict[str, str], Counter[str]]:
        """Write these records; the digest of each one's bundle, and the rows of all by table.

        A run that cannot be read is left out. A session that cannot be read is `CorruptData`: others share its rows.
        Raises `Conflict` ``unregistered_columns`` where tables hold more than a bundle would.
        """
        digests: dict[str, str] = {}
        rows: Counter[str] = Counter()
        if keys:
            self._refuse_more(unit)
        with translated(self.folder):
            for key in keys:
                try:
                    digests[key], bundle = self._written(unit, key)
                except CorruptData:
                    if self.kind != "run":
                        raise
                    continue
                rows.update(_rows(bundle))
        return digests, rows

    def _refuse_more(self, unit: Unit) -> None:
        if self.kind == "run":
            selection.refuse_unregistered(unit)
        for column in selection.left_columns(unit, self.kind):
            raise Conflict(
                f"{column} was added by another program, and no bundle has it: keep its values elsewhere and empty it",
                code="unregistered_columns",
            )

    def name_of(self, key: str, digest: str) -> str:
        """Return the name of a record's bundle in the folder."""
        return f"{self.kind}-{_name(key)}-{digest[:_DIGITS]}.zip"

    def prove(self, unit: Unit, digests: Mapping[str, str], at: datetime) -> None:
        """Load the bundle of each of these records, which are removed, compare it, and undo that.

        Raises `Conflict` ``archive_differs``, or what refuses the bundle; then nothing may be removed.
        """
        with translated(self.folder), undone(unit):
            for key, digest in digests.items():
                prove(unit, self.folder / self.name_of(key, digest), at)

    def refuse_other(self, archived: Counter[str], removed: Counter[str]) -> None:
        """Raise `Conflict` if more was removed than archived: somebody added rows to one of the records meanwhile.

        What is removed of sessions is less: they share orders and messages with those that stay.
        """
        if removed - archived:
            raise Conflict(
                f"a {self.kind} got more rows while it was archived: go on with the prune", code="changed_meanwhile"
            )

    def _written(self, unit: Unit, key: str) -> tuple[str, Bundle]:
        made = self.folder / f".{secrets.token_hex(8)}.tmp"
        try:
            with made.open("xb") as file:
                os.fchmod(file.fileno(), 0o600)
                chosen = selection.selected(unit, self.kind, key)
                written(file, unit, (self.kind, key, self.revision), chosen, self.settings)
                file.flush()
                os.fsync(file.fileno())
            with opened(made) as found, made.open("rb") as file:
                digest, bundle = hashlib.file_digest(file, "sha256").hexdigest(), found.bundle
            _put(made, self.folder / self.name_of(key, digest), digest)
        finally:
            with suppress(FileNotFoundError):
                made.unlink()
        return digest, bundle


def _put(made: Path, target: Path, digest: str) -> None:
    """Give a bundle its name. One that is there already, of a batch that was killed, must have the same bytes."""
    try:
        link(made, target)
    except AlreadyExists:
        with os.fdopen(files.opened_file(target, os.O_RDONLY), "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise Conflict(f"{target} is another file than the archive of this record", code="other_file") from None
            os.fsync(file.fileno())
        sync_directory(target.parent)


def _name(key: str) -> str:
    return key if _PLAIN.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()[:32]


def _rows(bundle: Bundle) -> dict[str, int]:
    """Return the rows of the record itself by table: an output table's entry in the registry stays."""
    tables = {name: part.rows for name, part in bundle.tables.items() if name != REGISTRY.name}
    return {name: rows for name, rows in tables.items() if rows is not None}
