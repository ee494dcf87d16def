"""Reads the event logs of another program's agents: which files there are, and where each belongs here.

::

    projects/<slug>/<session id>.jsonl                      the log of a session
    projects/<slug>/agent-*.jsonl                           the log of a sub-agent
    projects/<slug>/<session id>/subagents/agent-*.jsonl    the same
    projects/<slug>/<session id>/raw/<sha256>.txt           a whole tool result
"""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import partial
from pathlib import Path

from lastlight_state.agent_log import paths, raw_files
from lastlight_state.agent_log.tree import PROJECTS, LogTree
from lastlight_state.errors import Conflict, InvalidValue, UnsafePath
from lastlight_state.maintenance.imports.log_copies import CopyPiece
from lastlight_state.maintenance.imports.pieces import Into, Kind, Part, key_of

#: Folders that may hold the logs, below the path that is given.
_PLACES = ("", "agent-sessions")


def found_at(path: Path) -> bool:
    """Whether there is a log below this path."""
    tree = _tree(path)
    return tree is not None and any(tree.logs(slug)[0] for slug in tree.slugs()[0])


def parts(path: Path) -> Generator[Part]:
    """The files, each session's own before its log, so that no line names a file that is missing."""
    tree = _tree(path)
    if tree is None:
        raise Conflict(f"{str(path)!r:.200} has no folder {PROJECTS}", code="unknown_source")
    slugs, others = tree.slugs()
    yield from (Part("", None) for _ in range(others))
    for slug in slugs:
        for name in _names(tree.projects / slug):
            if name.endswith(paths.LOG_SUFFIX):
                is_log = _is_agent(name) or paths.session_of(name) is not None
                yield _part(tree, (slug, name)) if is_log else Part("", None)
            else:
                yield from _companions(tree, slug, name)


def _companions(tree: LogTree, slug: str, session_id: str) -> Generator[Part]:
    """The files in the folder of a session; one without such files is left out."""
    folder = tree.projects / slug / session_id
    found = [(paths.SUBAGENTS, name) for name in _names(folder / paths.SUBAGENTS) if _is_agent(name)]
    found += [(paths.RAW, name) for name in _names(folder / paths.RAW) if _is_raw(name)]
    yield from (_part(tree, (slug, session_id, *one)) for one in found)
    if not found:
        yield Part("", None)


def _part(tree: LogTree, names: tuple[str, ...]) -> Part:
    key = key_of(names)
    return Part(key, partial(_piece, tree, names, key))


def _piece(tree: LogTree, names: tuple[str, ...], key: str, into: Into) -> CopyPiece:
    here = LogTree(into.settings.agent_sessions)
    if here.projects == tree.projects:
        raise InvalidValue("path", "must not be the folder of logs that is imported into")
    return CopyPiece(key, tree.projects.joinpath(*names), _target(here, *names))


def _target(tree: LogTree, slug: str, name: str, *inner: str) -> Path:
    """Where a file belongs. Raises `UnsafePath` for names under which nothing is written."""
    if inner:
        return tree.path_to_write(slug, name).with_suffix("").joinpath(*inner)
    session_id = name.removesuffix(paths.LOG_SUFFIX)
    if not _is_agent(name):
        return tree.path_to_write(slug, session_id)
    if not paths.is_safe_id(session_id):
        raise UnsafePath("name", "must be 1 to 200 of A-Z a-z 0-9 _ -")
    return tree.directory_to_write(slug) / name


def _tree(path: Path) -> LogTree | None:
    """The logs at a path, which may also be the folder that holds them."""
    found = (LogTree(path / name) for name in _PLACES)
    return next((tree for tree in found if tree.projects.is_dir()), None)


def _names(folder: Path) -> list[str]:
    """The names in a folder in their order; none if it is missing, no folder, or a link."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(os.listdir(folder))  # noqa: PTH208 - names are needed, not paths


def _is_agent(name: str) -> bool:
    return name.startswith(paths.AGENT_PREFIX) and name.endswith(paths.LOG_SUFFIX)


def _is_raw(name: str) -> bool:
    return name.endswith(raw_files.SUFFIX) and raw_files.is_digest(name.removesuffix(raw_files.SUFFIX))


#: The kind of source.
KIND = Kind("lastlight-logs", "projects/<slug>/<session id>.jsonl", found_at, parts)
