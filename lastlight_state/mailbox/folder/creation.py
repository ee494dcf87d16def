"""Making the folder of a session: whole under another name first, so that nobody meets half of one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lastlight_state.errors import AlreadyExists
from lastlight_state.ids import new_id
from lastlight_state.jsonl import files, places
from lastlight_state.mailbox.folder import INBOUND_DB, INBOX, MADE, OUTBOUND_DB, OUTBOX, Place, is_regular
from lastlight_state.mailbox.words import MAILBOX

#: Makes the tables in an empty file that is to have a name.
Fill = Callable[[Path, str], None]


def create(place: Place, fill: Fill, *, directory_mode: int, file_mode: int) -> None:
    """Make the folder with both files, and bring it to disk. Raises `AlreadyExists`, `BackendUnavailable`.

    ``fill`` makes the tables of a database file.
    """
    appear(place, lambda made: _fill(made, fill, directory_mode, file_mode))


def appear(place: Place, furnish: Callable[[Path], object]) -> None:
    """Make the folder with what ``furnish`` puts into it under another name. Raises as `create`."""
    if os.path.lexists(place.path):
        raise AlreadyExists(MAILBOX, place.key)
    group = place.path.parent
    made = group / f"{MADE}{new_id()}"
    try:
        with places.directory(group, create=True) as (_, changed):
            made.mkdir(mode=places.PRIVATE_DIRECTORY)
        try:
            furnish(made)
            made.rename(place.path)  # onto an empty folder or nothing
            for directory in (group, *changed):
                files.sync_directory(directory)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        if os.path.lexists(place.path):
            raise AlreadyExists(MAILBOX, place.key) from error
        raise files.failure(error, place.path) from error


def complete(place: Place, fill: Fill, *, directory_mode: int, file_mode: int) -> None:
    """Add the files and folders that a session lacks. Those that are there are left alone."""
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
    path.mkdir(mode=places.PRIVATE_DIRECTORY)
    path.chmod(mode)  # of which the process's mask would take a part away


def _add_database(folder: Path, name: str, fill: Fill, file_mode: int) -> None:
    """A database that appears whole: another process may add the same one."""
    made = folder / f"{MADE}{new_id()}"
    _empty_file(made, file_mode)
    try:
        fill(made, name)
        with suppress(FileExistsError):
            os.link(made, folder / name)
    finally:
        made.unlink()


def _empty_file(path: Path, mode: int) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, places.PRIVATE_FILE)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
