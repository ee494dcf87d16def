"""Backs up everything that is stored at one moment into a folder, while others write.

A backup can be verified and restored. For SQLite, the folder has a copy of the database file. For Postgres, it has a
SQLite file with the same rows, which are compared by value. Line files and mailboxes are copied after the database, so
that the logs of all its rows are included.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib.metadata import version
from pathlib import Path

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Options
from lastlight_state.db import valid
from lastlight_state.db.repository import Context, Repository
from lastlight_state.errors import Conflict, InvalidValue, NewerSchema
from lastlight_state.files.jsonl.files import make_directory, real, sync_directory, translate_errors
from lastlight_state.files.mailbox.face import MODES
from lastlight_state.maintenance.backup import copies, restoring
from lastlight_state.maintenance.backup.restoring import LINES, MAILBOXES, Manifest
from lastlight_state.maintenance.copy import Copy
from lastlight_state.maintenance.copy.transfer import open_context
from lastlight_state.migrations import read_state
from lastlight_state.migrations.verification import refuse, refuse_damaged

DATABASE = "lastlight.db"


class Backup(Repository):
    """Creates, verifies and restores backups: ``store.maintenance.backup``."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._context = context

    def create(self, folder: str | Path, *, with_logs: bool = True) -> Manifest:
        """Write everything into a new folder, and return its manifest.

        The database is copied in one snapshot, while others read and write it; the copy is examined before the folder
        gets its name. Line files and mailboxes follow, unless ``with_logs`` is False. Raises `AlreadyExists` if the
        folder exists, `InvalidValue` if it is below the line files or mailboxes, `Conflict` ``damaged_backup`` for a
        damaged database, and `BackendUnavailable` if the folder cannot be written, or a folder to back up cannot be
        read.

        Some faults do not stop a backup. The manifest lists what is left out because of them. In mailboxes: a file that
        is damaged, stays locked or holds more than tables, and an attachment or folder that cannot be opened. Among
        line files: anything but regular files. In both: a file whose name is not UTF-8, and a path that is too deep (64
        folders, 2,000 bytes). On Postgres: columns that other programs added to tables of this library.
        """
        place = Path(folder).absolute()
        valid.flag("with_logs", with_logs)
        self._refuse_among_logs(place)
        restoring.refuse_present(place)
        with translate_errors(place), _new_folder(place) as made:
            left_out = self._copy_database(made / DATABASE)
            if with_logs:
                for inside, root in zip(LINES, self._settings.line_directories, strict=True):
                    for path, problem in copies.copy_line_files(root, made / inside):
                        left_out[f"{inside}/{path}"] = problem
                left_out.update(copies.copy_mailboxes(self._settings, made / MAILBOXES))
            manifest = Manifest(
                created_at=self._now(),
                library_version=version("lastlight-state"),
                source=self._backend.location,
                revision=read_state(self._backend).revision,
                database=DATABASE,
                files=tuple(restoring.describe_files(made)),
                left_out=left_out,
            )
            restoring.write(made, manifest)
        return manifest

    def verify(self, folder: str | Path) -> Manifest:
        """Return the manifest of a backup, after checking that no file has changed. Needs no database.

        Raises `NotFound`, `NewerSchema` for a newer format, and `Conflict` ``damaged_backup`` naming the first file
        that differs.
        """
        place = Path(folder)
        with translate_errors(place):
            manifest = restoring.read(place)
            restoring.compare(place, manifest)
        return manifest

    def restore(
        self,
        folder: str | Path,
        to: str | Path,
        *,
        schema: str | None = None,
        state_dir: str | Path | None = None,
        with_logs: bool = True,
    ) -> Manifest:
        """Restore the database of a backup into a new SQLite file, or an empty schema of Postgres.

        The backup is verified before the first write. Its line files and mailboxes are put where a store with this
        ``state_dir`` looks for them, by default next to the database file. For Postgres, and without ``with_logs``,
        they stay in the backup unless a ``state_dir`` is given. An older schema is restored as it is, and `migrate`
        brings it up to date. Raises `AlreadyExists` if any target exists, including the ``-wal`` or ``-journal`` file
        of an earlier database; and the errors of `verify` and `Copy.run`. Raises `NewerSchema` for a backup of a newer
        version, unless the target is a file and this version may read the schema.
        """
        place, flag = Path(folder), valid.flag("with_logs", with_logs)
        manifest = self.verify(place)
        file = place / manifest.database
        target = _file_of(to)
        beside = target.parent if target is not None and state_dir is None else state_dir
        with open_context(file, None, self._settings, self._clock, read_only=True) as source:
            backend = source.scope.backend
            state = read_state(backend)
            refuse(backend, state)
            refuse_damaged(backend, state)
            if target is None and state.state == "ahead":  # a copy by tables and columns that this version knows
                found, least = state.revision or "", state.min_reader or ""
                raise NewerSchema(found=found, head=state.head, min_reader=least, what="the backup")
            with ExitStack() as stack:
                if target is not None:
                    stack.enter_context(translate_errors(target))
                    restoring.refuse_database(target)
                if beside is not None and flag:
                    modes = MODES[self._settings.mailbox_mode]
                    stack.enter_context(restoring.put_back(place, manifest, Path(beside), modes))
                if target is None:
                    Copy(source).run(to, schema=schema, migrate=True)
                else:
                    restoring.place_file(file, target)
        return manifest

    def _refuse_among_logs(self, place: Path) -> None:
        """Raise `InvalidValue` for a folder below the line files or mailboxes: the backup would include itself."""
        if "\0" in str(place):
            raise InvalidValue("folder", "contains a NUL character")
        try:
            str(place).encode()
        except UnicodeEncodeError:  # SQLite cannot open such a file either
            raise InvalidValue("folder", "must be UTF-8") from None
        whole = real(place)
        own = (*self._settings.line_directories, self._settings.mailboxes)
        if any(whole.is_relative_to(real(root)) for root in own):
            raise InvalidValue("folder", "must not be below the directories of line files or mailboxes")

    def _copy_database(self, path: Path) -> dict[str, str]:
        """Copy the database to a file. Returns columns of other programs that the copy lacks, with the reason."""
        left: tuple[str, ...] = ()
        if not self._reading(lambda unit: copies.snapshot(unit, path)):
            left = Copy(self._context).run(path, migrate=True, leave_columns=None).left_columns
        if self._backend.is_disturbed:
            raise Conflict("another process wrote to the file meanwhile", code="source_changed")
        found = copies.damages(path)
        if found:
            raise Conflict(f"the database is damaged: {found[0]}", code="damaged_backup", problems=found)
        return dict.fromkeys(left, "a column that this library does not know")


def _file_of(url: str | Path) -> Path | None:
    """Return the path of a database's file, even if the file does not exist yet. Returns None for a server."""
    with closing(open_backend(url, Options())) as backend:
        return backend.files[0] if backend.files else None


@contextmanager
def _new_folder(place: Path) -> Iterator[Path]:
    """Yield a private folder next to the given place.

    It is renamed to that place on success, and removed on failure.
    """
    made = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
    make_directory(made)
    try:
        yield made
        for folder, _, _ in os.walk(made):
            sync_directory(Path(folder))
        made.rename(place)
        sync_directory(place.parent)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
