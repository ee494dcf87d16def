"""Puts the files of a backup in place: each whole or not at all, and nowhere where something stands."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lastlight_state.errors import AlreadyExists
from lastlight_state.jsonl.files import make_directory, sync_directory, translated
from lastlight_state.mailbox.folder import INBOUND_DB, INBOX, OUTBOX
from lastlight_state.maintenance.backup.line_copies import make_private
from lastlight_state.maintenance.backup.records import LINES, MAILBOXES, Manifest

_CHUNK = 1024 * 1024
#: The modes of directories and of files.
Modes = tuple[int, int]
_PRIVATE: Modes = (0o700, 0o600)
#: Where a store looks in its state directory for what a folder of a backup holds.
_FOLDERS = {LINES[0]: "agent-sessions", LINES[1]: "sessions", MAILBOXES: "v2-sessions"}

#: Whether a file is that of a mailbox which every session has: its group and session are the folders above.
_IS_MAILBOX = re.compile(rf"[^/]+/[^/]+/{re.escape(INBOUND_DB)}").fullmatch


def refuse_present(path: Path) -> None:
    """Raise `AlreadyExists` if anything is there."""
    if os.path.lexists(path):
        raise AlreadyExists("file", str(path))


def refuse_database(target: Path) -> None:
    """Raise for a database that is there, and for a log that was left of one: SQLite would play it into this one."""
    for suffix in ("", "-wal", "-journal"):
        refuse_present(target.with_name(target.name + suffix))


def place_file(file: Path, target: Path) -> None:
    """Copy the file to a path where nothing is."""
    refuse_database(target)
    made = _temporary(target)
    make_directory(target.parent.absolute())
    try:
        _copy(file, made, 0o600)
        try:
            os.link(made, target)  # fails where a file has appeared meanwhile; rename would replace it
        except FileExistsError as error:
            raise AlreadyExists("file", str(target)) from error
        sync_directory(target.parent)
    finally:
        with suppress(FileNotFoundError):
            made.unlink()


@contextmanager
def put_back(backup: Path, manifest: Manifest, state_dir: Path, modes: Modes) -> Iterator[None]:
    """Put line files and mailboxes where a store looks for them; take them away again if the block fails.

    ``modes`` are those of mailboxes, which an agent of another user may have to write; logs are private. Raises
    `AlreadyExists` for a name that is anything but an empty folder.
    """
    with translated(state_dir):
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
    """The files of a backup below one of its folders, by their paths in there."""
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
        if _IS_MAILBOX(name):  # a mailbox, of which no empty folder is in the manifest
            for inner in (INBOX, OUTBOX):
                make_private((made / name).with_name(inner))
    for folder, _, _ in os.walk(made):
        if Path(folder) != made:
            Path(folder).chmod(modes[0])
        sync_directory(Path(folder))


def _rename(made: Path, target: Path) -> None:
    made.rename(target)  # onto an empty folder or nothing
    sync_directory(target.parent)


def _copy(file: Path, target: Path, mode: int) -> None:
    with file.open("rb") as reading, target.open("xb") as writing:
        os.fchmod(writing.fileno(), mode)
        shutil.copyfileobj(reading, writing, _CHUNK)
        writing.flush()
        os.fsync(writing.fileno())


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
