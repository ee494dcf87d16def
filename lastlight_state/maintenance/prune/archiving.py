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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, CorruptData
from lastlight_state.jsonl import places
from lastlight_state.jsonl.files import sync_directory, translated
from lastlight_state.maintenance.bundles import selection
from lastlight_state.maintenance.bundles.archive import link
from lastlight_state.maintenance.bundles.opened import opened
from lastlight_state.maintenance.bundles.records import Bundle
from lastlight_state.maintenance.bundles.writing import written
from lastlight_state.maintenance.prune import proving
from lastlight_state.outputs.tables import REGISTRY
from lastlight_state.settings import Settings

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
        """The name of a record's bundle in the folder."""
        return f"{self.kind}-{_name(key)}-{digest[:_DIGITS]}.zip"

    def prove(self, unit: Unit, digests: Mapping[str, str], at: datetime) -> None:
        """Load the bundle of each of these records, which are removed, compare it, and undo that.

        Raises `Conflict` ``archive_differs``, or what refuses the bundle; then nothing may be removed.
        """
        with translated(self.folder), proving.undone(unit):
            for key, digest in digests.items():
                proving.prove(unit, self.folder / self.name_of(key, digest), at)

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
        with os.fdopen(places.opened_file(target, os.O_RDONLY), "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise Conflict(f"{target} is another file than the archive of this record", code="other_file") from None
            os.fsync(file.fileno())
        sync_directory(target.parent)


def _name(key: str) -> str:
    return key if _PLAIN.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()[:32]


def _rows(bundle: Bundle) -> dict[str, int]:
    """The rows of the record itself by table: an output table's entry in the registry stays."""
    tables = {name: part.rows for name, part in bundle.tables.items() if name != REGISTRY.name}
    return {name: rows for name, rows in tables.items() if rows is not None}
