"""DOC-05: who owns the database file, line files and mailboxes, what others may do with them, and links among them."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lastlight_state.jsonl import places
from lastlight_state.mailbox.face import MODES
from lastlight_state.mailbox.folder import INBOUND_DB, OUTBOUND_DB, is_name
from lastlight_state.maintenance.doctor.check import Check, Look, found
from lastlight_state.maintenance.doctor.records import Finding

PERMISSIONS = "DOC-05"

_OTHERS = 0o077
_SHARED = "group"


@dataclass(frozen=True)
class _Area:
    """Paths under one rule: the modes of folders and of files, and their owner, None where any user may own them."""

    subject: str
    paths: Iterable[Path]
    modes: tuple[int, int]
    owner: int | None


def _permissions(look: Look) -> Iterator[Finding]:
    for area in _areas(look):
        there = [(path, status) for path in area.paths if (status := _status(path)) is not None]
        yield from _links(area, [path for path, status in there if stat.S_ISLNK(status.st_mode)])
        real = [(path, status) for path, status in there if not stat.S_ISLNK(status.st_mode)]
        yield from _owners(area, real)
        yield from _modes(area, real)


def _areas(look: Look) -> Iterator[_Area]:
    owner, private = _owner(look), MODES["private"]
    mode = look.settings.mailbox_mode
    yield _Area("database", _database(look), private, owner)
    lines = (path for root in look.settings.line_directories for path in _tree(root))
    yield _Area("line files", lines, private, owner)
    mailboxes = _mailboxes(look.settings.mailboxes)
    yield _Area("mailboxes", mailboxes, MODES[mode], None if mode == _SHARED else owner)


def _owner(look: Look) -> int:
    """The user who should own everything: the one who looks, or whose files root looks at."""
    user = os.geteuid()
    for path in () if user else (*look.backend.files[:1], look.settings.state_dir):
        with suppress(OSError):
            return path.stat().st_uid
    return user


def _database(look: Look) -> Iterator[Path]:
    """The file that a link of the operator's leads to, and what SQLite keeps beside it."""
    yield from map(places.real, look.backend.files[:1])
    yield from look.backend.files[1:]


def _mailboxes(root: Path) -> Iterator[Path]:
    """The folders of groups, and whole mailboxes in them. What else a group has is left alone."""
    if root.is_dir():
        yield places.real(root)
    for group in _folders(root):
        yield group
        for session in [] if group.is_symlink() else _folders(group):
            if any(os.path.lexists(session / name) for name in (INBOUND_DB, OUTBOUND_DB)):
                yield from [session] if session.is_symlink() else _tree(session)


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder that may be groups or sessions, with links to folders."""
    _, names, _ = next(os.walk(folder), ("", [], []))
    return [folder / name for name in sorted(names) if is_name(name)]


def _tree(root: Path) -> Iterator[Path]:
    """A folder and all that is below it. The folder may be reached through a link; below it none is followed."""
    root = places.real(root)
    yield root
    for folder, folders, names in os.walk(root):
        yield from (Path(folder, name) for name in (*folders, *names))


def _status(path: Path) -> os.stat_result | None:
    """What is at the path, which may be a link; None if that is missing, or not to be seen."""
    with suppress(OSError):
        return path.lstat()
    return None


def _links(area: _Area, links: list[Path]) -> Iterator[Finding]:
    if links:
        message = "links stand where files and folders should, and none is followed"
        yield found(PERMISSIONS, "warning", area.subject, message, map(str, links))


def _owners(area: _Area, there: list[tuple[Path, os.stat_result]]) -> Iterator[Finding]:
    foreign = [str(path) for path, status in there if area.owner not in (None, status.st_uid)]
    if foreign:
        message = f"another user than number {area.owner} owns them, and decides who may use them"
        remedy = shlex.join(["chown", str(area.owner), foreign[0]])
        yield found(PERMISSIONS, "warning", area.subject, message, foreign, remedy)


def _modes(area: _Area, there: list[tuple[Path, os.stat_result]]) -> Iterator[Finding]:
    kinds = zip(("folders", "files"), area.modes, (True, False), strict=True)
    for kind, mode, is_folder in kinds:
        open_to_others = [
            str(path)
            for path, status in there
            if stat.S_ISDIR(status.st_mode) is is_folder and status.st_mode & _OTHERS & ~mode
        ]
        if open_to_others:
            message = f"others may use these {kind}: their modes should be {mode:04o}"
            remedy = shlex.join(["chmod", f"{mode:o}", open_to_others[0]])
            yield found(PERMISSIONS, "warning", area.subject, message, open_to_others, remedy)


CHECKS = (Check(PERMISSIONS, files=_permissions),)
