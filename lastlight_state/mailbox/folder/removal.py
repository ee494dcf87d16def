"""Removing the folder of a session, and folders that calls left which were killed."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from lastlight_state.ids import new_id
from lastlight_state.jsonl import files
from lastlight_state.mailbox.folder import GONE, MADE, Place

#: After this time a hidden folder was left by somebody who is dead.
_LONG = timedelta(hours=1)


def size(place: Place) -> int:
    """The bytes of all regular files of the session. No link is followed; what vanishes meanwhile counts nothing."""
    total = 0
    for folder, _, names in os.walk(place.path):
        for name in names:
            with suppress(FileNotFoundError):
                found = os.lstat(Path(folder, name))
                total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


def remove(place: Place) -> None:
    """Remove the folder: it is gone under its name at once, then file by file. Raises `BackendUnavailable`.

    A call that is killed in between leaves a hidden folder, which `remove_leftovers` takes away.
    """
    gone = place.path.with_name(f"{GONE}{new_id()}")
    try:
        place.path.rename(gone)
        files.sync_directory(gone.parent)
        shutil.rmtree(gone)
    except OSError as error:
        raise files.failure(error, place.path) from error


def remove_leftovers(group: Path, now: datetime) -> None:
    """Remove what killed calls left in the folder of a group, as far as possible, once it is an hour old."""
    before = (now - _LONG).timestamp()
    with suppress(OSError):  # another call removes the same
        for path in group.iterdir():
            if path.name.startswith((MADE, GONE)) and not path.is_symlink() and path.lstat().st_mtime < before:
                shutil.rmtree(path, ignore_errors=True)
