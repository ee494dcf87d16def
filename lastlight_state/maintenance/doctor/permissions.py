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
from lastlight_state.maintenance.doctor.check import MOST, Check, Look, found
from lastlight_state.maintenance.doctor.records import Finding

PERMISSIONS = "DOC-05"

_OTHERS = 0o077
_SHARED = "group"
_FAULTS = _LINK, _OWNER, _FOLDER, _FILE = "link", "owner", "folder", "file"


@dataclass(frozen=True)
class _Area:
    """Paths under one rule: the modes of folders and of files, and their owner, None where any user may own them."""

    subject: str
    paths: Iterable[Path]
    modes: tuple[int, int]
    owner: int | None

    def faults(self, path: Path) -> Iterator[str]:
        """What is wrong with what is at the path. Nothing, if that is missing, or not to be seen."""
        status = _status(path)
        if status is None:
            return
        if stat.S_ISLNK(status.st_mode):
            yield _LINK
            return
        if self.owner not in (None, status.st_uid):
            yield _OWNER
        fault, mode = (_FOLDER, self.modes[0]) if stat.S_ISDIR(status.st_mode) else (_FILE, self.modes[1])
        if status.st_mode & _OTHERS & ~mode:
            yield fault

    def finding(self, fault: str, samples: list[str]) -> Finding:
        """The finding for the paths with this fault."""
        folders, files = self.modes
        message, helps = {
            _LINK: ("links stand where files and folders should, and none is followed", None),
            _OWNER: (
                f"another user than number {self.owner} owns them, and decides who may use them",
                ("chown", str(self.owner)),
            ),
            _FOLDER: (f"others may use these folders: their modes should be {folders:04o}", ("chmod", f"{folders:o}")),
            _FILE: (f"others may use these files: their modes should be {files:04o}", ("chmod", f"{files:o}")),
        }[fault]
        remedy = None if helps is None else shlex.join([*helps, samples[0]])
        return found(PERMISSIONS, "warning", self.subject, message, samples, remedy)


def _permissions(look: Look) -> Iterator[Finding]:
    for area in _areas(look):
        paths: dict[str, list[str]] = {fault: [] for fault in _FAULTS}
        for path in area.paths:
            for fault in area.faults(path):
                if len(paths[fault]) < MOST:
                    paths[fault].append(str(path))
        yield from (area.finding(fault, samples) for fault, samples in paths.items() if samples)


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


CHECKS = (Check(PERMISSIONS, files=_permissions),)
