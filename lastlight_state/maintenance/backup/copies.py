"""Copies for a backup: databases, line files up to their last whole line, and mailboxes."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO

from lastlight_state import progress
from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Checkout, Mode, Options
from lastlight_state.backends.facts import FORBIDDEN, NOT_REGULAR
from lastlight_state.db.lists.pages import iterate
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import BackendBusy, BackendUnavailable
from lastlight_state.files.jsonl import files
from lastlight_state.files.mailbox import Mailboxes
from lastlight_state.files.mailbox.folder import INBOUND_DB, INBOX, OUTBOUND_DB, OUTBOX, Place, is_regular
from lastlight_state.files.mailbox.shared.files import OtherFile, deadline
from lastlight_state.files.run_log.storage import SUFFIX as PACKED_SUFFIX
from lastlight_state.metrics import Metrics
from lastlight_state.settings import Settings
from lastlight_state.special_files import open_binary

# Copies of SQLite files in one snapshot, and checks for damage.


def snapshot(unit: Unit, path: Path) -> bool:
    """Copy the whole database to a new file in one snapshot. Returns False if the database does not support this.

    A partial copy that an earlier attempt left, because the database was busy, is removed first.
    """
    path.unlink(missing_ok=True)
    progress.tell("copying the database", 0)
    return unit.backend.snapshot(unit, path)


#: Options to read a copy. No file is left beside it.
AT_REST = Options(read_only=True, glance=True)


def damages(path: Path, options: Options = AT_REST) -> list[str]:
    """Return the damage that a check by the database finds in a copy, one text for each fault."""
    progress.tell("examining the copy", 0)
    with closing(open_backend(path, options)) as backend, Checkout(Mode.READ, backend) as checkout:
        return backend.damages(checkout, deep=True)


_LINES = ".jsonl"
_CHUNK = 1024 * 1024
#: The reason for leaving out a file whose name cannot be in a manifest.
NOT_TEXT = "the name is not UTF-8"
#: The reason for leaving out a file or folder below more than `MOST_FOLDERS`, or with a path longer than `MOST_BYTES`.
TOO_DEEP = "lies too deep, or its path is too long"
MOST_FOLDERS, MOST_BYTES = 64, 2000

_NOT_REGULAR = "is not a regular file"
#: Errors on opening a FIFO or device, a link that was put there, and a socket.
_NO_FILE = frozenset({errno.EINVAL, errno.ELOOP, errno.ENXIO})


def copy_line_files(root: Path, into: Path) -> Iterator[tuple[str, str]]:
    """Copy every file below the directory into a folder of a backup, except links and temporary files.

    A file that is pruned meanwhile is left out. A file that is packed or moved meanwhile is copied under its new name.
    Yields the other files that are left out, with the reason: not a regular file, a name that is not UTF-8, or a path
    that is too deep.
    """
    known: set[str] = set()
    told: dict[str, str] = {}
    for listing in count():  # at least twice: a file that moves during a listing may be missing in it
        found, too_deep = _list_files(root)
        fresh = [name for name in found if known.isdisjoint((name, _unpacked_name(name)))]
        gone = set[str]()
        for done, name in enumerate(fresh):
            progress.tell("copying line files", len(known) + done, len(known) + len(fresh), unit="files")
            if not _copy_line_file(root, name, into, told):
                gone.add(name)
        told.update(dict.fromkeys(too_deep, TOO_DEEP))
        known |= set(fresh) - gone
        if listing and not gone:
            break
    yield from told.items()


def _copy_line_file(root: Path, name: str, into: Path, told: dict[str, str]) -> bool:
    """Copy the file, or record why it is left out. Returns False if the file no longer exists."""
    if name_text(name) != name:
        told[name_text(name)] = NOT_TEXT
        return True
    try:
        reading = files.opened_file(root / name, os.O_RDONLY, base=root)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        told[name] = _NOT_REGULAR
        return True
    with os.fdopen(reading, "rb") as source:
        target = into / name
        make_private(target.parent)
        _copy(source, target)
    return True


def _unpacked_name(name: str) -> str:
    """Return the name that a log had before it was packed."""
    return name.removesuffix(PACKED_SUFFIX)


def name_text(name: str) -> str:
    """Return the name as text. Bytes that are not UTF-8 are written with backslashes."""
    return os.fsencode(name).decode(errors="backslashreplace")


def too_deep(path: Path) -> bool:
    """True if a path is too deep for backups, whose files must be restorable on any machine."""
    return len(path.parts) > MOST_FOLDERS or len(os.fsencode(path)) > MOST_BYTES


def _list_files(root: Path) -> tuple[list[str], list[str]]:
    """Return the files below the directory, and the paths that are too deep.

    All paths are relative to the directory.
    """
    found: list[str] = []
    deep: list[str] = []
    for folder, folders, names in os.walk(root, onerror=_refuse_unread):
        inside = Path(folder).relative_to(root)
        for name in [name for name in folders if too_deep(inside / name)]:
            folders.remove(name)
            deep.append(str(inside / name))
        for name in names:
            if not Path(folder, name).is_symlink() and not name.endswith((".tmp", ".lock")):
                (deep if too_deep(inside / name) else found).append(str(inside / name))
    return found, [name_text(name) for name in deep]


def _refuse_unread(error: OSError) -> None:
    """Raise the error of an unreadable folder, so that no file is left out silently.

    A folder that vanished is no error.
    """
    if not isinstance(error, FileNotFoundError):
        raise error


def make_private(folder: Path) -> None:
    """Create the folder and its missing parents, accessible to their owner only."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700)


def _copy(reading: BinaryIO, target: Path) -> None:
    with target.open("xb") as writing:
        os.fchmod(writing.fileno(), 0o600)
        shutil.copyfileobj(reading, writing, _CHUNK)
        writing.flush()
        if target.name.endswith(_LINES):
            writing.truncate(whole(target, writing.tell()))
        os.fsync(writing.fileno())


def whole(path: Path, size: int) -> int:
    """Return the size of the complete lines in the first ``size`` bytes of a file."""
    with open_binary(path) as file:
        end = size
        while end > 0:
            begin = max(0, end - _CHUNK)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
    return 0


# Copies of mailboxes while hosts and agents write them. The agent's file is copied before the host's, and both before
# their attachments, so that the attachments of all copied rows are included. No link is followed, because agents write
# in these folders.

#: Options for the copy of a file that another party wrote.
_FOREIGN = Options(read_only=True, glance=True, across_mounts=True, read_seconds=60.0)
#: The reason for leaving out a file, by the reason in the error.
_LEFT_OUT = {
    "not_a_database": "is no database",
    NOT_REGULAR: "expected regular files here and beside it, found something else",
    FORBIDDEN: "holds more than tables",
    "statement_timeout": "takes too long to read",
    "replaced": "is replaced again and again",
}
_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def copy_mailboxes(settings: Settings, into: Path) -> Iterator[tuple[str, str]]:
    """Copy every mailbox into a folder. Yields each file or folder that is left out, with the reason.

    A database file is left out if it is damaged, stays locked, holds more than tables or takes too long to read. Any
    file or folder is left out if it cannot be opened, is too deep, or has a name that is not UTF-8.

    A session or file that is pruned meanwhile is left out silently.
    """
    for found in iterate(Mailboxes(settings.mailboxes).list, limit=500):
        place = Place(found.path.parent.parent, found.group, found.session)
        folder = into / found.group / found.session
        make_private(folder)
        for name in (OUTBOUND_DB, INBOUND_DB):
            problem = _copy_database(place, name, folder / name, settings)
            if problem is not None:
                yield f"{place.key}/{name}", problem
        with suppress(FileNotFoundError):
            for path, problem in _copy_files(place.path, folder):
                yield f"{place.key}/{path}", problem


def _copy_database(place: Place, name: str, target: Path, settings: Settings) -> str | None:
    """Copy a mailbox's database file in one snapshot. Returns the reason if the file is left out, else None."""
    if not is_regular(place.path / name):
        return None
    file = OtherFile(place, place.path / name, settings, Metrics())
    try:
        with deadline(settings):
            file.scope.view(lambda unit: snapshot(unit, target))
        found = damages(target, _FOREIGN)
    except (BackendBusy, BackendUnavailable) as error:
        target.unlink(missing_ok=True)
        if not is_regular(place.path / name):
            return None
        reason = str(error.details.get("reason"))
        if reason not in _LEFT_OUT and isinstance(error, BackendUnavailable):
            raise
        return _LEFT_OUT.get(reason, "stays locked")
    if found:
        target.unlink()
    return found[0] if found else None


def _copy_files(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Copy the regular files of a mailbox's attachments. Yields what is left out, with the reason."""
    unopened: set[Path] = set()
    for path, folders, names, held in os.fwalk(source, follow_symlinks=False):
        folder = Path(path).relative_to(source)
        unopened.discard(folder)
        if path == str(source):
            folders[:], names[:] = [name for name in folders if name in (INBOX, OUTBOX)], []
        make_private(target / folder)
        for name, refused in [
            (name, found) for name in (*folders, *names) if (found := _omission_reason(folder / name))
        ]:
            (folders if name in folders else names).remove(name)
            yield name_text(str(folder / name)), refused
        unopened.update(folder / name for name in folders)
        for name in names:
            problem = _copy_file(held, name, target / folder / name)
            if problem is not None:
                yield str(folder / name), problem
    for folder in sorted(unopened):
        there = source / folder
        if there.is_dir() and not there.is_symlink():  # other folders are links, or gone
            yield str(folder), "cannot be opened"


def _omission_reason(path: Path) -> str | None:
    """Return the reason why backups leave out a path in a mailbox, or None if they do not."""
    if name_text(str(path)) != str(path):
        return NOT_TEXT
    return TOO_DEEP if too_deep(path) else None


def _copy_file(held: int, name: str, target: Path) -> str | None:
    """Copy a regular file if it still exists. Returns the reason if the file cannot be opened, else None."""
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=held, follow_symlinks=False).st_mode):
            return None
        opened = os.open(name, _TO_READ, dir_fd=held)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"cannot be opened: {error.strerror}"
    with os.fdopen(opened, "rb") as reading, target.open("xb") as writing:
        os.fchmod(writing.fileno(), 0o600)
        shutil.copyfileobj(reading, writing)
        writing.flush()
        os.fsync(writing.fileno())
    return None
