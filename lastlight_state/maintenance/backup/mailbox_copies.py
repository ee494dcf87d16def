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

from lastlight_state.backends.base import Options
from lastlight_state.backends.facts import FORBIDDEN, NOT_REGULAR
from lastlight_state.db.iterating import iterate
from lastlight_state.errors import BackendBusy, BackendUnavailable
from lastlight_state.mailbox import Mailboxes
from lastlight_state.mailbox.folder import INBOUND_DB, INBOX, OUTBOUND_DB, OUTBOX, Place, is_regular
from lastlight_state.mailbox.kernel.files import OtherFile, deadline
from lastlight_state.maintenance.backup import databases
from lastlight_state.maintenance.backup.line_copies import NOT_TEXT, TOO_DEEP, make_private, shown, too_deep
from lastlight_state.metrics import Metrics
from lastlight_state.settings import Settings

#: For the copy of a file that another party wrote.
_FOREIGN = Options(read_only=True, glance=True, across_mounts=True, read_seconds=60.0)
#: What a file is that holds up no backup, by the reason of the error.
_LEFT_OUT = {
    "not_a_database": "is no database",
    NOT_REGULAR: "expected regular files here and beside it, found something else",
    FORBIDDEN: "holds more than tables",
    "statement_timeout": "takes too long to read",
    "replaced": "is replaced again and again",
}
_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def copy_all(settings: Settings, into: Path) -> Iterator[tuple[str, str]]:
    """Copy every mailbox into a folder. Gives each file or folder that is left out, and the reason.

    Left out is a database file that is damaged, stays locked, holds more than tables or takes too long to read, and
    what cannot be opened, lies too deep, or has a name that is not UTF-8.

    A session or file that vanishes meanwhile, because somebody prunes it, is left out without a word.
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
    """Copy one moment of the file; why it was left out, if whoever writes it made that necessary."""
    if not is_regular(place.path / name):
        return None
    file = OtherFile(place, place.path / name, settings, Metrics())
    try:
        with deadline(settings):
            file.scope.viewing(lambda unit: databases.snapshot(unit, target))
        found = databases.damages(target, _FOREIGN)
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
    """Copy the regular files of a mailbox's attachments. Gives what is left out, and the reason."""
    unopened: set[Path] = set()
    for path, folders, names, held in os.fwalk(source, follow_symlinks=False):
        folder = Path(path).relative_to(source)
        unopened.discard(folder)
        if path == str(source):
            folders[:], names[:] = [name for name in folders if name in (INBOX, OUTBOX)], []
        make_private(target / folder)
        for name, refused in [(name, found) for name in (*folders, *names) if (found := _refused(folder / name))]:
            (folders if name in folders else names).remove(name)
            yield shown(str(folder / name)), refused
        unopened.update(folder / name for name in folders)
        for name in names:
            problem = _copy_file(held, name, target / folder / name)
            if problem is not None:
                yield str(folder / name), problem
    for folder in sorted(unopened):
        there = source / folder
        if there.is_dir() and not there.is_symlink():  # the others are links, or gone
            yield str(folder), "cannot be opened"


def _refused(path: Path) -> str | None:
    """Return why no backup takes what has this path in its mailbox; None if it does."""
    if shown(str(path)) != str(path):
        return NOT_TEXT
    return TOO_DEEP if too_deep(path) else None


def _copy_file(held: int, name: str, target: Path) -> str | None:
    """Copy the file, if it is a regular one and still there; why it was left out, if it cannot be opened."""
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
