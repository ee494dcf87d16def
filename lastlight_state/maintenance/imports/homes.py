"""Reads the home of another program: logs of runs, and snapshots of sessions in both its layouts. Writes nothing there.

::

    sessions/YYYY/MM/DD/<run id>.jsonl     one run
    sessions/state/<session id>.json       the snapshot of a session, in the older layout
    sessions/state.db                      the same in the later layout, but for the messages
    sessions/messages/<session id>.jsonl   the messages of a snapshot in the later layout
"""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import partial
from pathlib import Path

from lastlight_state.errors import StateError, UnsafePath
from lastlight_state.maintenance.imports.foreign import is_sqlite, opened, readable
from lastlight_state.maintenance.imports.lenient import as_text
from lastlight_state.maintenance.imports.pieces import Into, Kind, Part, Piece
from lastlight_state.maintenance.imports.run_logs import LogPiece
from lastlight_state.maintenance.imports.snapshots import INDEX, TABLE, indexed, single
from lastlight_state.run_log import packed, paths
from lastlight_state.run_log.tree import RunTree

_LOGS = (paths.LOG_SUFFIX, paths.LOG_SUFFIX + packed.SUFFIX)


def found_at(path: Path) -> bool:
    """Whether this is such a home, or the ``sessions`` in it."""
    tree = _tree(path)
    return next(tree.days(), None) is not None or bool(_names(tree.states)) or is_sqlite(tree.sessions / INDEX)


def parts(path: Path) -> Generator[Part]:
    """The logs, the oldest first, and then the snapshots. A snapshot of the older layout gives way to a later one."""
    tree = _tree(path)
    for _, folder in reversed(list(tree.days())):
        for name in _names(folder, _LOGS):
            file = folder / name
            yield Part(_text(os.path.relpath(file, tree.sessions)), partial(LogPiece, file))
    newer: set[str] = set()
    index = tree.sessions / INDEX
    if os.path.lexists(index):
        yield from _indexed(tree, index, newer)
    for name in _names(tree.states, (paths.STATE_SUFFIX,)):
        key = f"{paths.STATE}/{_text(name.removesuffix(paths.STATE_SUFFIX))}"
        yield Part(key, None if key in newer else partial(single, tree.states / name))


def _indexed(tree: RunTree, index: Path, seen: set[str]) -> Generator[Part]:
    """The snapshots of the later layout. A database that cannot be read to its end is one unit, which fails."""
    try:
        if index.is_symlink():
            raise UnsafePath(str(index), "a symbolic link")
        with readable(INDEX), opened(index, follow=False) as source:
            for row in source.rows(TABLE, "ORDER BY session_id"):
                key = f"{paths.STATE}/{as_text(row.get('session_id'))}"
                seen.add(key)
                yield Part(key, partial(indexed, tree, source, row))
    except StateError as error:
        yield Part(INDEX, partial(_refused, error))


def _refused(error: StateError, _: Into) -> Piece:
    raise error


def _tree(path: Path) -> RunTree:
    """The files of a home. The folder ``sessions`` itself may be named."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 - "..", and no link
    is_inner = path.name == paths.SESSIONS and not (path / paths.SESSIONS).is_dir()
    return RunTree(path.parent if is_inner else path)


def _names(folder: Path, endings: tuple[str, ...] = (paths.STATE_SUFFIX,)) -> list[str]:
    """The names in a folder that end so, in their order; none if it is missing, or a link."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(one.name for one in folder.iterdir() if one.name.endswith(endings))


def _text(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


#: The kind of source.
KIND = Kind("codelia", "sessions/YYYY/MM/DD, sessions/state/*.json or sessions/state.db", found_at, parts)
