"""Backup: everything at one moment, in a folder that can be checked and restored, taken while others write.

On SQLite the folder holds a copy of the file, on Postgres a SQLite file with the same rows, compared by value. Line
files are copied after the database, so that the logs of all its rows are there. Mailboxes are not.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Checkout, Mode, Options
from lastlight_state.db import valid
from lastlight_state.db.repository import Context, Repository
from lastlight_state.errors import AlreadyExists, Conflict, InvalidValue
from lastlight_state.jsonl.files import failure, sync_directory
from lastlight_state.maintenance.backup import line_copies, manifests
from lastlight_state.maintenance.backup.records import Manifest
from lastlight_state.maintenance.copy import Copy
from lastlight_state.maintenance.copy.target import opened
from lastlight_state.migrations import read_state
from lastlight_state.migrations.verification import refuse

DATABASE, LOGS = "lastlight.db", "logs"


class Backup(Repository):
    """``store.maintenance.backup``"""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._context = context

    def create(self, folder: str | Path, *, with_logs: bool = True) -> Manifest:
        """Write everything into a new folder, and return its manifest.

        The database is copied at one moment, while others read and write it; the copy is examined before the folder
        gets its name. Raises `AlreadyExists` if the folder is there, `InvalidValue` if it is below the line files,
        `Conflict` ``damaged_backup`` for a database that is damaged itself, and `BackendUnavailable` where the folder
        cannot be written, or a folder of line files not be read.
        """
        place = Path(folder).absolute()
        valid.flag("with_logs", with_logs)
        self._refuse_among_logs(place)
        _refuse_present(place)
        with _translated(place), _made(place) as made:
            self._copy_database(made / DATABASE)
            _examine(made / DATABASE)
            if with_logs:
                line_copies.copy_all(self._settings.line_directories, made / LOGS)
            manifest = Manifest(
                created_at=self._now(),
                library_version=version("lastlight-state"),
                source=self._backend.location,
                revision=read_state(self._backend).revision,
                database=DATABASE,
                files=tuple(manifests.described(made)),
            )
            manifests.write(made, manifest)
        return manifest

    def verify(self, folder: str | Path) -> Manifest:
        """The manifest of a backup whose files are all as they were written. Needs no database.

        Raises `NotFound`, and `Conflict` ``damaged_backup`` naming the first file that differs.
        """
        place = Path(folder)
        with _translated(place):
            manifest = manifests.read(place)
            manifests.compare(place, manifest)
        return manifest

    def restore(self, folder: str | Path, to: str | Path, *, schema: str | None = None) -> Manifest:
        """Make the database of a backup anew: a SQLite file that is not there yet, or an empty schema of Postgres.

        The backup is verified before anything is written. Its logs stay in the folder's ``logs``. An older schema is
        restored as it is, and `migrate` brings it up to date. Raises `AlreadyExists` for a file that is there, or for
        the ``-wal`` or ``-journal`` of one that was; `NewerSchema` for a backup of a newer version; and as `verify`
        and as `Copy.run`.
        """
        place = Path(folder)
        manifest = self.verify(place)
        file = place / manifest.database
        target = _file_of(to)
        with opened(file, None, self._settings, self._clock, read_only=True) as source:
            backend = source.scope.backend
            refuse(backend, read_state(backend))
            if target is None:
                Copy(source).run(to, schema=schema, migrate=True)
            else:
                with _translated(target):
                    _place(file, target)
        return manifest

    def _refuse_among_logs(self, place: Path) -> None:
        """Raise for a folder below the line files: the backup would be a part of itself."""
        if "\0" in str(place):
            raise InvalidValue("folder", "contains a NUL character")
        whole = place.resolve()
        if any(whole.is_relative_to(root.resolve()) for root in self._settings.line_directories):
            raise InvalidValue("folder", "must not be below the directories of line files")

    def _copy_database(self, path: Path) -> None:
        if not self._reading(lambda unit: unit.backend.snapshot(unit.checkout, path)):
            Copy(self._context).run(path, migrate=True)
        if self._backend.disturbed:
            raise Conflict("another process wrote to the file meanwhile", code="source_changed")


def _examine(path: Path) -> None:
    """Raise for a copy of a damaged database."""
    options = Options(read_only=True, glance=True)
    with closing(open_backend(path, options)) as backend, Checkout(Mode.READ, backend) as checkout:
        found = backend.damages(checkout, deep=True)
    if found:
        raise Conflict(f"the database is damaged: {found[0]}", code="damaged_backup", problems=found)


def _file_of(url: str | Path) -> Path | None:
    """The file of a database, which need not be there; None for a server."""
    with closing(open_backend(url, Options())) as backend:
        return backend.files[0] if backend.files else None


def _refuse_present(path: Path) -> None:
    if os.path.lexists(path):
        raise AlreadyExists("file", str(path))


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise failure(error, path) from error


@contextmanager
def _made(place: Path) -> Iterator[Path]:
    """A folder beside the place, private to its owner, that gets its name if all goes well, and else is removed."""
    made = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
    made.mkdir(mode=0o700, parents=True)
    try:
        yield made
        for folder, _, _ in os.walk(made):
            sync_directory(Path(folder))
        made.rename(place)
        sync_directory(place.parent)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _place(file: Path, target: Path) -> None:
    """Copy the file to a path where nothing is: whole, or not at all.

    A log that was left of another file of this name is refused, too: SQLite would play it into this one.
    """
    for suffix in ("", "-wal", "-journal"):
        _refuse_present(target.with_name(target.name + suffix))
    made = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with file.open("rb") as reading, made.open("xb") as writing:
            os.fchmod(writing.fileno(), 0o600)
            shutil.copyfileobj(reading, writing)
            writing.flush()
            os.fsync(writing.fileno())
        try:
            os.link(made, target)  # fails where a file has appeared meanwhile; rename would replace it
        except FileExistsError as error:
            raise AlreadyExists("file", str(target)) from error
        sync_directory(target.parent)
    finally:
        with suppress(FileNotFoundError):
            made.unlink()
