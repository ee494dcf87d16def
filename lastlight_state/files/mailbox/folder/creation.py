"""The folder of a session: creation under a temporary name, so that no process sees half of it; deletion; heartbeat."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from lastlight_state.clock import of_file
from lastlight_state.errors import AlreadyExists
from lastlight_state.files.jsonl import files
from lastlight_state.files.mailbox.folder import (
    DIGEST,
    GONE,
    HEARTBEAT,
    INBOUND_DB,
    INBOX,
    MADE,
    OUTBOUND_DB,
    OUTBOX,
    Place,
    attachments,
    is_regular,
)
from lastlight_state.files.mailbox.models import MAILBOX
from lastlight_state.ids import new_id

# Deleting the folder of a session, and folders that killed calls left.

#: The age at which a hidden folder counts as left by a killed call.
_LONG = timedelta(hours=1)


def size(place: Place) -> int:
    """Return the bytes of all regular files of the session.

    No link is followed; files that vanish meanwhile count as 0.
    """
    total = 0
    for folder, _, names in os.walk(place.path):
        for name in names:
            with suppress(FileNotFoundError):
                found = os.lstat(Path(folder, name))
                total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


def remove(place: Place) -> None:
    """Delete the folder: first its name, at once, then its files one by one. Raises `BackendUnavailable`.

    A call that is killed in between leaves a hidden folder, which `remove_leftovers` deletes.
    """
    gone = place.path.with_name(f"{GONE}{new_id()}")
    try:
        place.path.rename(gone)
        files.sync_directory(gone.parent)
        shutil.rmtree(gone)
    except OSError as error:
        raise files.failure(error, place.path) from error


def remove_leftovers(group: Path, now: datetime) -> None:
    """Delete the folders in a group's folder that killed calls left, as far as possible. They must be an hour old."""
    before = (now - _LONG).timestamp()
    with suppress(OSError):  # another call deletes the same folder
        for path in group.iterdir():
            if path.name.startswith((MADE, GONE)) and not path.is_symlink() and path.lstat().st_mtime < before:
                shutil.rmtree(path, ignore_errors=True)


# Folders of attachments whose message was never stored, because the writer was killed in between.


def old_folders(session: Path, before: datetime) -> list[str]:
    """Return the names of folders below ``inbox`` that have not changed since ``before``. Links are skipped.

    Folders named by a digest are skipped, too, because a digest does not tell to which message a folder belongs.
    """
    try:
        held = files.listable(session / INBOX, base=session)
    except OSError:
        return []
    try:
        names = sorted(os.listdir(held))  # noqa: PTH208 - of a descriptor
        return [name for name in names if not name.startswith(DIGEST) and _is_old(held, name, before)]
    finally:
        os.close(held)


def remove_leftover(session: Path, name: str) -> bool:
    """Delete the files in a leftover folder, and then the folder if it is empty. Returns True if it was deleted."""
    target = attachments.MessageFolder(session, INBOX, name)
    attachments.clear(target)
    return not os.path.lexists(target.path)


def _is_old(held: int, name: str, before: datetime) -> bool:
    try:
        found = os.stat(name, dir_fd=held, follow_symlinks=False)
    except OSError:  # deleted meanwhile
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_mtime < before.timestamp()


# The heartbeat: a file whose modification time the agent sets. It never writes to a database.


def beat(folder: Path, now: datetime) -> bool:
    """Set the heartbeat to ``now``. Returns False if that failed. Follows no link."""
    try:
        descriptor = files.opened_file(folder / HEARTBEAT, os.O_WRONLY | os.O_CREAT)
    except OSError:
        return False
    try:
        moment = int(now.timestamp() * 1000) * 1_000_000
        os.utime(descriptor, ns=(moment, moment))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def last_beat(folder: Path) -> datetime | None:
    """Return the time that the agent set last. None if it set none, or if the name is not that of a regular file."""
    try:
        found = (folder / HEARTBEAT).lstat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return of_file(found.st_mtime_ns)


#: A function that creates the tables in an empty file that is to get a name.
Fill = Callable[[Path, str], None]


def create(place: Place, fill: Fill, *, directory_mode: int, file_mode: int) -> None:
    """Create the folder with both database files, synced to disk. Raises `AlreadyExists`, `BackendUnavailable`.

    ``fill`` is called to create the tables of a database file.
    """
    appear(place, lambda made: _fill(made, fill, directory_mode, file_mode))


def appear(place: Place, furnish: Callable[[Path], object]) -> None:
    """Create the folder under a temporary name, call ``furnish`` to fill it, and rename it. Raises as `create`."""
    if os.path.lexists(place.path):
        raise AlreadyExists(MAILBOX, place.key)
    group = place.path.parent
    made = group / f"{MADE}{new_id()}"
    try:
        with files.open_directory(group, create=True) as (_, changed):
            made.mkdir(mode=files.PRIVATE_DIRECTORY)
        try:
            furnish(made)
            made.rename(place.path)  # replaces nothing, or an empty folder
            for directory in (group, *changed):
                files.sync_directory(directory)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        if os.path.lexists(place.path):
            raise AlreadyExists(MAILBOX, place.key) from error
        raise files.failure(error, place.path) from error


def complete(place: Place, fill: Fill, *, directory_mode: int, file_mode: int) -> None:
    """Add the files and folders that a session lacks. Existing files and folders stay unchanged."""
    try:
        for name in (OUTBOUND_DB, INBOUND_DB):
            if not is_regular(place.path / name):
                _add_database(place.path, name, fill, file_mode)
        for name in (INBOX, OUTBOX):
            with suppress(FileExistsError):
                _add_folder(place.path / name, directory_mode)
    except OSError as error:
        raise files.failure(error, place.path) from error


def _fill(folder: Path, fill: Fill, directory_mode: int, file_mode: int) -> None:
    for name in (OUTBOUND_DB, INBOUND_DB):
        _empty_file(folder / name, file_mode)
        fill(folder / name, name)
    for name in (INBOX, OUTBOX):
        _add_folder(folder / name, directory_mode)
    folder.chmod(directory_mode)
    files.sync_directory(folder)


def _add_folder(path: Path, mode: int) -> None:
    path.mkdir(mode=files.PRIVATE_DIRECTORY)
    path.chmod(mode)  # because the process's umask would remove a part of the mode


def _add_database(folder: Path, name: str, fill: Fill, file_mode: int) -> None:
    """Add a database file that is complete as soon as it appears. Another process may add the same file at once."""
    made = folder / f"{MADE}{new_id()}"
    _empty_file(made, file_mode)
    try:
        fill(made, name)
        with suppress(FileExistsError):
            os.link(made, folder / name)
    finally:
        made.unlink()


def _empty_file(path: Path, mode: int) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, files.PRIVATE_FILE)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
