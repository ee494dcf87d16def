"""Restores the files of a backup: each completely or not at all, and never over existing files."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path, PurePosixPath

from lastlight_state import codec
from lastlight_state.db.rows.records import Record
from lastlight_state.errors import AlreadyExists, Conflict, NewerSchema, NotFound
from lastlight_state.files.jsonl.files import make_directory, sync_directory, translate_errors
from lastlight_state.files.mailbox.folder import INBOUND_DB, INBOX, OUTBOX
from lastlight_state.maintenance.backup.copies import make_private
from lastlight_state.special_files import DIRECTORY, mismatch_at, open_binary

# Records of backups.

#: The folders of a backup with line files, of agents and of runs, and the folder with mailboxes.
LINES = ("logs/agent-sessions", "logs/sessions")
MAILBOXES = "mailboxes"


class BackedFile(Record):
    """A file of a backup: its path inside the backup, its size in bytes, and its SHA-256 as 64 hex digits."""

    path: str
    size_bytes: int
    sha256: str


class Manifest(Record):
    """The manifest of a backup, stored in the backup as ``manifest.json``. It is written last.

    ``source`` is the location of the database without its password. ``revision`` is the revision of its schema, or None
    for a file that has no version. ``database`` is the path of the database's copy inside the backup. ``left_out``
    names files and columns that are not in the backup, with the reason. In mailboxes these are damaged files, and files
    and folders that cannot be opened; among line files, anything but regular files. In both, they are paths that are
    too deep, and names that are not UTF-8, with other bytes written with backslashes. On Postgres, they are also
    columns that other programs added to tables of this library, as ``table.column``.
    """

    format: int = 1
    created_at: datetime
    library_version: str
    source: str
    revision: str | None
    database: str
    files: tuple[BackedFile, ...]
    left_out: Mapping[str, str] = {}

    @property
    def size_bytes(self) -> int:
        """Return the total size of all files in bytes."""
        return sum(file.size_bytes for file in self.files)


# Writes and reads the manifest of a backup, and compares it with the files.

NAME = "manifest.json"
#: The largest size of the manifest, in bytes.
_MOST_BYTES = 64 * 1024 * 1024
_FORMAT = 1


def describe_files(folder: Path) -> Iterator[BackedFile]:
    """Yield every file of a backup that has no manifest yet, in the order of the paths."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield _describe_file(folder, path)


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest and sync it to disk, after all other files."""
    text = codec.encode("manifest", manifest.model_dump(mode="json"), max_bytes=_MOST_BYTES)
    with (folder / NAME).open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read(folder: Path) -> Manifest:
    """Return the manifest of a backup.

    Raises `NotFound`, `NewerSchema` for a newer format, and `Conflict` ``damaged_backup`` for a manifest that cannot be
    read.
    """
    path = folder / NAME
    if not path.is_file():
        reason = mismatch_at(folder, DIRECTORY) or mismatch_at(path)
        raise NotFound("backup", str(folder), reason=reason)
    if path.stat().st_size > _MOST_BYTES:
        raise damaged_backup(NAME, "is too large")
    try:
        with open_binary(path) as file:
            told = codec.decode(file.read(_MOST_BYTES))
        number = told["format"]
        if type(number) is int and number > _FORMAT:
            raise NewerSchema(found=f"format {number}", head=f"format {_FORMAT}", min_reader="", what="the backup")
        found = Manifest.model_validate(told)
    except (ValueError, KeyError, TypeError) as error:
        raise damaged_backup(NAME, "cannot be read") from error
    if found.format != _FORMAT:
        raise damaged_backup(NAME, f"has the format {found.format}, which no version writes")
    names = [file.path for file in found.files]
    for name in (found.database, *names):
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts:
            raise damaged_backup(NAME, f"names a file outside the backup: {name!r}")
    if found.database not in names:
        raise damaged_backup(NAME, "does not list its database")
    return found


def compare(folder: Path, manifest: Manifest) -> None:
    """Raise `Conflict` ``damaged_backup`` for the first file that is missing or has changed."""
    for file in manifest.files:
        path = folder / file.path
        if path.is_symlink() or not path.is_file():
            raise damaged_backup(file.path, "is missing")
        if _describe_file(folder, path) != file:
            raise damaged_backup(file.path, "is not as it was written")


def damaged_backup(path: str, problem: str) -> Conflict:
    """Return a `Conflict` ``damaged_backup`` for a backup that must not be restored."""
    return Conflict(f"the backup is damaged: {path} {problem}", code="damaged_backup", path=path)


def _describe_file(folder: Path, path: Path) -> BackedFile:
    with open_binary(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()
    return BackedFile(path=path.relative_to(folder).as_posix(), size_bytes=size, sha256=digest)


_CHUNK = 1024 * 1024
#: The modes of directories and of files.
Modes = tuple[int, int]
_PRIVATE: Modes = (0o700, 0o600)
#: The folders of a store's state directory, by folder of a backup.
_FOLDERS = {LINES[0]: "agent-sessions", LINES[1]: "sessions", MAILBOXES: "v2-sessions"}

#: Matches the path of the mailbox file that every session has, below the folders of its group and session.
_IS_MAILBOX = re.compile(rf"[^/]+/[^/]+/{re.escape(INBOUND_DB)}").fullmatch


def refuse_present(path: Path) -> None:
    """Raise `AlreadyExists` if a file or folder is at the path."""
    if os.path.lexists(path):
        raise AlreadyExists("file", str(path))


def refuse_database(target: Path) -> None:
    """Raise `AlreadyExists` for an existing database, or an old log file, which SQLite would apply to the new file."""
    for suffix in ("", "-wal", "-journal"):
        refuse_present(target.with_name(target.name + suffix))


def place_file(file: Path, target: Path) -> None:
    """Copy the file to a path at which no file may exist."""
    refuse_database(target)
    made = _temporary(target)
    make_directory(target.parent.absolute())
    try:
        _copy(file, made, 0o600)
        try:
            os.link(made, target)  # a rename would replace a file that has appeared meanwhile
        except FileExistsError as error:
            raise AlreadyExists("file", str(target)) from error
        sync_directory(target.parent)
    finally:
        with suppress(FileNotFoundError):
            made.unlink()


@contextmanager
def put_back(backup: Path, manifest: Manifest, state_dir: Path, modes: Modes) -> Iterator[None]:
    """Put line files and mailboxes where a store looks for them. They are removed again if the block fails.

    ``modes`` are the file modes of mailboxes, into which an agent of another user may have to write. Logs are private.
    Raises `AlreadyExists` for a path that has anything but an empty folder.
    """
    with translate_errors(state_dir):
        found = {inside: list(_below(manifest, inside)) for inside in _FOLDERS}
        wanted = {inside: state_dir / name for inside, name in _FOLDERS.items() if found[inside]}
        made = {target: _temporary(target) for target in wanted.values()}
        for target in wanted.values():
            _refuse_filled(target)
        make_directory(state_dir.absolute())
        placed: list[Path] = []
        try:
            for inside, target in wanted.items():
                _stage(backup / inside, found[inside], made[target], modes if inside == MAILBOXES else _PRIVATE)
            for target in wanted.values():
                _rename(made[target], target)
                placed.append(target)
            yield
        except BaseException:
            for target in placed:
                shutil.rmtree(target, ignore_errors=True)
            raise
        finally:
            for path in made.values():
                shutil.rmtree(path, ignore_errors=True)


def _below(manifest: Manifest, inside: str) -> Iterator[str]:
    """Return the files of a backup below one of its folders, by their paths relative to that folder."""
    prefix = f"{inside}/"
    return (file.path.removeprefix(prefix) for file in manifest.files if file.path.startswith(prefix))


def _refuse_filled(target: Path) -> None:
    if os.path.lexists(target) and (target.is_symlink() or not target.is_dir() or any(target.iterdir())):
        raise AlreadyExists("folder", str(target), problem="holds files already: restore to another place")


def _stage(source: Path, names: list[str], made: Path, modes: Modes) -> None:
    made.mkdir(mode=0o700)
    for name in names:
        make_private((made / name).parent)
        _copy(source / name, made / name, modes[1])
        if _IS_MAILBOX(name):  # a mailbox: its empty folders are not in the manifest
            for inner in (INBOX, OUTBOX):
                make_private((made / name).with_name(inner))
    for folder, _, _ in os.walk(made):
        if Path(folder) != made:
            Path(folder).chmod(modes[0])
        sync_directory(Path(folder))


def _rename(made: Path, target: Path) -> None:
    made.rename(target)  # the target is missing, or an empty folder
    sync_directory(target.parent)


def _copy(file: Path, target: Path, mode: int) -> None:
    with open_binary(file) as reading, target.open("xb") as writing:
        os.fchmod(writing.fileno(), mode)
        shutil.copyfileobj(reading, writing, _CHUNK)
        writing.flush()
        os.fsync(writing.fileno())


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
