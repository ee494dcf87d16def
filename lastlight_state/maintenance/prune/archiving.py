"""Archives records for a prune: each bundle is written, synced, verified and renamed before rows are removed.

The removal is committed only after every bundle of the batch was loaded as a test, and has restored its record. A
bundle's name ends with the beginning of its digest. So if a batch was killed and is repeated, it finds the files that
it wrote. The bundle of a record that has changed meanwhile gets another name.
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
from lastlight_state.conversations.shared.storing import KnownClasses
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, CorruptData, StateError
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.files import sync_directory, translate_errors
from lastlight_state.maintenance.bundles import selection
from lastlight_state.maintenance.bundles.archive import OpenBundle, link, open_bundle
from lastlight_state.maintenance.bundles.loading import Loading
from lastlight_state.maintenance.bundles.records import Bundle
from lastlight_state.maintenance.bundles.writing import write_bundle
from lastlight_state.maintenance.copy.contents import key_text
from lastlight_state.maintenance.copy.tables import Subject
from lastlight_state.outputs.models import REGISTRY
from lastlight_state.settings import Settings

# Proves that a bundle restores its record: loads it, compares every cell, and rolls the load back. The same database
# takes the rows again in the transaction that removed them. So anything that could later refuse or change a value does
# so now: column types, guards, the driver.

_SAVEPOINT = "lastlight_proof"


@contextmanager
def undone(unit: Unit) -> Iterator[None]:
    """Roll back everything that the block stores. If the block raises, its transaction is rolled back in any case."""
    unit.control(f"SAVEPOINT {_SAVEPOINT}")
    yield
    unit.control(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
    unit.control(f"RELEASE SAVEPOINT {_SAVEPOINT}")


def prove(unit: Unit, file: Path, now: datetime) -> None:
    """Load the bundle of a removed record, and compare the loaded rows with it.

    Raises `Conflict` ``archive_differs`` with the first different cell, and the errors of the load.
    """
    with open_bundle(file) as found:
        try:
            Loading(found, KnownClasses(), "refuse", now, allow_unknown_words=True).store(unit)
        except StateError as error:
            error.add_note(f"the archive {file} cannot be loaded, so nothing was removed")
            raise
        for subject, reading, keys in selection.select_rows(unit, found.bundle.kind, found.bundle.id).rows:
            lines = selection.rows_of(unit, subject, reading, keys)
            for archived, loaded in zip_longest(_archived_lines(found, subject), lines):
                if archived != loaded:
                    raise _different(file, subject, archived, loaded)


def _archived_lines(bundle: OpenBundle, subject: Subject) -> Iterator[bytes]:
    part = bundle.tables.get(subject.name)
    return iter(()) if part is None else bundle.lines(part)


def _different(file: Path, subject: Subject, archived: bytes | None, loaded: bytes | None) -> Conflict:
    """Return the error for a row that a bundle does not restore exactly. It names the cell, but contains no value."""
    was, now = (_row(line) for line in (archived, loaded))
    row = was or now
    key = key_text([row.get(column.name) for column in subject.table.primary_key])
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


#: The kinds of bundles, by kind of record.
BUNDLES = {"runs": "run", "sessions": "session"}
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,120}")
_DIGITS = 16


@dataclass(frozen=True)
class Archiver:
    """Writes bundles of one kind into a folder. ``revision`` is the revision of the schema.

    ``with_logs`` is True if the logs in a bundle are to be removed after its record.
    """

    kind: str
    folder: Path
    revision: str
    settings: Settings
    with_logs: bool = False

    def archive(self, unit: Unit, keys: Sequence[str]) -> tuple[dict[str, str], Counter[str]]:
        """Write these records as bundles. Returns the digest of each bundle, and the total rows by table.

        A run that cannot be read is left out. A session that cannot be read raises `CorruptData`, because other
        sessions share its rows. Raises `Conflict` ``unregistered_columns`` if a bundle would lose values.
        """
        digests: dict[str, str] = {}
        rows: Counter[str] = Counter()
        if keys:
            self._refuse_more(unit)
        with translate_errors(self.folder):
            for key in keys:
                try:
                    digests[key], bundle = self._write_bundle(unit, key)
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
        """Return the file name of the bundle for a record."""
        return f"{self.kind}-{_name(key)}-{digest[:_DIGITS]}.zip"

    def prove(self, unit: Unit, digests: Mapping[str, str], at: datetime) -> None:
        """Load the bundles of these removed records, compare them, and roll the load back.

        Raises `Conflict` ``archive_differs``, or an error that refuses the bundle; then nothing may be removed.
        """
        with translate_errors(self.folder), undone(unit):
            for key, digest in digests.items():
                prove(unit, self.folder / self.name_of(key, digest), at)

    def refuse_other(self, archived: Counter[str], removed: Counter[str]) -> None:
        """Raise `Conflict` if more rows were removed than archived, because a call added rows to a record meanwhile.

        Fewer rows than archived may be removed from sessions, which share orders and messages with remaining sessions.
        """
        if removed - archived:
            raise Conflict(
                f"a {self.kind} got more rows while it was archived: go on with the prune", code="changed_meanwhile"
            )

    def _write_bundle(self, unit: Unit, key: str) -> tuple[str, Bundle]:
        made = self.folder / f".{secrets.token_hex(8)}.tmp"
        try:
            with made.open("xb") as file:
                os.fchmod(file.fileno(), 0o600)
                chosen = selection.select_rows(unit, self.kind, key)
                write_bundle(file, unit, (self.kind, key, self.revision), chosen, self.settings)
                file.flush()
                os.fsync(file.fileno())
            with open_bundle(made) as found, made.open("rb") as file:
                digest, bundle = hashlib.file_digest(file, "sha256").hexdigest(), found.bundle
            _put(made, self.folder / self.name_of(key, digest), digest)
        finally:
            with suppress(FileNotFoundError):
                made.unlink()
        return digest, bundle


def _put(made: Path, target: Path, digest: str) -> None:
    """Link a bundle to its name. If a killed batch left a file with this name, that file must have the same bytes."""
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
    """Return the number of the record's rows by table. Registry entries of output tables do not count: they stay."""
    tables = {name: part.rows for name, part in bundle.tables.items() if name != REGISTRY.name}
    return {name: rows for name, rows in tables.items() if rows is not None}
