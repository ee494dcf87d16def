"""Copies of mailboxes that hosts and agents write meanwhile.

The agent's file is copied before the host's, and both before their attachments, so that what a copied row names is
there. No link is followed: agents write in these folders.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lastlight_state.db.iterating import iterate
from lastlight_state.errors import BackendUnavailable
from lastlight_state.mailbox import Mailboxes
from lastlight_state.mailbox.folder import INBOUND_DB, INBOX, OUTBOUND_DB, OUTBOX, Place, is_regular
from lastlight_state.mailbox.kernel.files import OtherFile
from lastlight_state.maintenance.backup import databases
from lastlight_state.maintenance.backup.line_copies import make_private
from lastlight_state.metrics import Metrics
from lastlight_state.settings import Settings

_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def copy_all(settings: Settings, into: Path) -> Iterator[tuple[str, str]]:
    """Copy every mailbox into a folder. Gives each database file that is damaged, which is left out, and the reason.

    A session or file that vanishes meanwhile, because somebody prunes it, is left out without a word.
    """
    for found in iterate(Mailboxes(settings.mailboxes).list, limit=500):
        place = Place(found.path.parent.parent, found.group, found.session)
        folder = into / found.group / found.session
        make_private(folder, below=into.parent)
        for name in (OUTBOUND_DB, INBOUND_DB):
            problem = _copy_database(place, name, folder / name, settings)
            if problem is not None:
                yield f"{place.key}/{name}", problem
        for name in (INBOX, OUTBOX):
            with suppress(FileNotFoundError):
                _copy_files(place.path / name, folder / name)


def _copy_database(place: Place, name: str, target: Path, settings: Settings) -> str | None:
    """Copy one moment of the file; why it was left out, if it was because of its damage."""
    if not is_regular(place.path / name):
        return None
    file = OtherFile(place, place.path / name, settings, Metrics())
    try:
        file.scope.viewing(lambda unit: databases.snapshot(unit, target))
        found = databases.damages(target)
    except BackendUnavailable as error:
        target.unlink(missing_ok=True)
        if not is_regular(place.path / name):
            return None
        if error.details.get("reason") != "not_a_database":
            raise
        return "is no database"
    if found:
        target.unlink()
    return found[0] if found else None


def _copy_files(source: Path, target: Path) -> None:
    """The regular files below a folder of attachments."""
    for folder, _, names, held in os.fwalk(source, follow_symlinks=False):
        there = target / Path(folder).relative_to(source)
        make_private(there, below=target.parent)
        for name in names:
            with suppress(FileNotFoundError):
                _copy_file(held, name, there / name)


def _copy_file(held: int, name: str, target: Path) -> None:
    if not stat.S_ISREG(os.stat(name, dir_fd=held, follow_symlinks=False).st_mode):
        return
    with os.fdopen(os.open(name, _TO_READ, dir_fd=held), "rb") as reading, target.open("xb") as writing:
        os.fchmod(writing.fileno(), 0o600)
        shutil.copyfileobj(reading, writing)
        writing.flush()
        os.fsync(writing.fileno())
