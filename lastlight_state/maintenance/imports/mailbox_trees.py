"""Finds the mailboxes of another program: a folder for each session, below one for each group of agents.

::

    v2-sessions/<agent group>/<session>/inbound.db     what its host writes
    v2-sessions/<agent group>/<session>/outbound.db    what its agent writes
    v2-sessions/<agent group>/<session>/inbox/         attachments, and outbox/
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from lastlight_state.errors import Conflict, UnsafePath
from lastlight_state.mailbox.folder import INBOUND_DB
from lastlight_state.maintenance.imports.mailbox_pieces import piece
from lastlight_state.maintenance.imports.pieces import Into, Kind, Part, Piece, key_of

#: Where the folders of groups may be, below the path that is given.
_PLACES = ("", "v2-sessions", "data/v2-sessions")
#: How the names of folders begin that are no session: those of a whole group, and of mailboxes being made.
_HIDDEN = "."


def found_at(path: Path) -> bool:
    """Whether there is the folder of a session at this path or below."""
    return _is_session(path) or _root(path) is not None


def parts(path: Path) -> Generator[Part]:
    """The sessions, by group. Other folders are left out."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 - "..", and no link
    if _is_session(path):
        yield _part(path.parent.parent, path.parent.name, path.name)
        return
    root = _root(path)
    if root is None:
        raise Conflict(f"{str(path)!r:.200} has no folder with {INBOUND_DB}", code="unknown_source")
    for group in _folders(root):
        if (root / group).is_symlink():
            yield Part(key_of((group,)), partial(_failed, UnsafePath(str(root / group), "a symbolic link")))
            continue
        try:
            sessions = _folders(root / group)
        except OSError as error:
            yield Part(key_of((group,)), partial(_failed, error))
            continue
        for session in sessions:
            yield _part(root, group, session) if _is_session(root / group / session) else Part("", None)


def _part(root: Path, group: str, session: str) -> Part:
    return Part(key_of((group, session)), partial(piece, root, group, session))


def _failed(error: Exception, _: Into) -> Piece:
    raise error


def _root(path: Path) -> Path | None:
    """The folder of the groups."""
    return next((path / name for name in _PLACES if any(_sessions(path / name))), None)


def _sessions(root: Path) -> Iterator[Path]:
    """The folders of sessions. Groups that may not be read are passed over."""
    for group in _folders(root):
        with suppress(OSError):
            yield from (root / group / name for name in _folders(root / group) if _is_session(root / group / name))


def _is_session(folder: Path) -> bool:
    return os.path.lexists(folder / INBOUND_DB)


def _folders(path: Path) -> list[str]:
    """The folders in a folder, in the order of their names; none if it is missing or no folder."""
    if not path.is_dir():
        return []
    return sorted(one.name for one in path.iterdir() if not one.name.startswith(_HIDDEN) and one.is_dir())


#: The kind of source.
KIND = Kind("nanoclaw", f"<agent group>/<session>/{INBOUND_DB}", found_at, parts)
