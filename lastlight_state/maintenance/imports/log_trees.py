"""Reads the event logs of another program's agents: which files there are, and where each is stored by this library.

::

    projects/<slug>/<session id>.jsonl                      the log of a session
    projects/<slug>/agent-*.jsonl                           the log of a sub-agent
    projects/<slug>/<session id>/subagents/agent-*.jsonl    the same
    projects/<slug>/<session id>/raw/<sha256>.txt           a whole tool result

A log that has grown is continued. A stored log with more lines than the source is kept and counted. Different bytes, an
unsafe name and a link are refused. At every moment, a stored log is missing or equals the beginning of its source.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, InvalidValue, StateError, UnsafePath
from lastlight_state.files.agent_log import paths as agent_log_paths, raw
from lastlight_state.files.agent_log.tree import PROJECTS, LogTree
from lastlight_state.files.jsonl import files
from lastlight_state.files.run_log import paths, storage
from lastlight_state.files.run_log.states import INDEX
from lastlight_state.files.run_log.tree import RunTree
from lastlight_state.maintenance.imports import foreign, pieces
from lastlight_state.maintenance.imports.foreign import is_sqlite, open_file, readable
from lastlight_state.maintenance.imports.lenient import as_text
from lastlight_state.maintenance.imports.pieces import ImportTarget, ImportUnit, Kind, SourceUnit, UnitLookup, key_of
from lastlight_state.maintenance.imports.run_logs import TABLE, LogPiece, indexed_piece, single
from lastlight_state.special_files import DIRECTORY

# Imported log files: how a file is compared with the stored file, and copied byte for byte.

#: The kind of the imported record, and the name under which it is counted.
_RECORD, _COUNTED = "agent_log", "agent_logs"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_APPEND = os.O_RDWR | os.O_APPEND


class CopyPiece:
    """A log file as it is at one moment. Lines that are appended later are left for the next import."""

    kept_differences: Sequence[str] = ()

    def __init__(self, name: str, source: Path, projects: Path, tree: LogTree, target: Path) -> None:
        self._source, self._projects, self._tree, self._path = source, projects, tree, target
        self.target = (_RECORD, name)
        self._there: int | None = None
        with _open_regular(source) as file:
            found = os.fstat(file.fileno())
            self._size, self._changed = found.st_size, found.st_mtime_ns
            self.digest = foreign.range_digest(file, self._size)

    def compare(self, look: UnitLookup) -> tuple[str, Counter[str], Counter[str]]:
        """Return the outcome of the file. A stored file that has more lines than the source is kept.

        Raises `AlreadyExists` for a file that is stored with other bytes.
        """
        self._there, known = self._common(), pieces.known_digest(look)
        if self._there is None and pieces.is_brought(look.view, self.target):
            self._follow()
        is_new, is_removed = known is None, self._there is None and pieces.is_removed(look, self)
        if is_removed and not (is_new and any(self._elsewhere())):
            self.kept_differences = ("was removed here under another name",) if is_new else ()
            return "pruned", Counter(), Counter()
        if self._there is not None and self._there >= self._size:
            return "imported" if is_new else "unchanged", Counter(), Counter(kept=int(known != self.digest))
        return "imported" if self._there is None else "grown", Counter({_COUNTED: 1}), Counter()

    def _elsewhere(self) -> Iterator[Path]:
        """Yield paths in other projects' folders at which the file is stored, for a project renamed in the source."""
        within = self._path.relative_to(self._tree.projects).parts[1:]
        names = (Path(slug, *within) for slug in self._tree.slugs()[0])
        return (one for one in names if os.path.lexists(self._tree.projects / one))

    def _follow(self) -> None:
        """Continue the stored file of a project that was renamed in the source.

        The stored file has the old name and the same beginning, and the source has no file under the old name any more.
        """
        own = self._path
        for one in self._elsewhere():
            if not self._there and not os.path.lexists(self._projects / one):
                self._path = self._tree.projects / one
                with suppress(AlreadyExists):
                    self._there = self._common()
        if not self._there:
            self._path, self._there = own, None

    def store(self, _: Unit, outcome: str) -> None:
        """Copy the file, or append its new lines.

        At every moment the path has no file, or a beginning of the source.
        """
        try:
            with files.open_directory(self._path.parent, base=files.ROOT, create=True) as (held, changed):
                self._clear(held)
                if self._there is None:
                    self._create(held)
                elif self._there < self._size:
                    self._append(self._there)
                files.sync(held)
            for directory in changed:
                files.sync_directory(directory)
        except OSError as error:
            raise files.failure(error, self._path) from error

    def _common(self) -> int | None:
        """Return the size of the stored file in bytes, or None if there is no stored file.

        Raises `AlreadyExists` if the stored bytes differ from those of the source.
        """
        try:
            with _open_regular(self._path) as there, _open_regular(self._source) as here:
                size = os.fstat(there.fileno()).st_size
                common = min(size, self._size)
                if foreign.range_digest(there, common) != foreign.range_digest(here, common):
                    raise AlreadyExists(*self.target, problem="is stored with other lines")
                return size
        except FileNotFoundError:
            return None

    @property
    def _temporary_name(self) -> str:
        """Return the temporary name of the file while it is being written."""
        return f".{hashlib.sha256(os.fsencode(self._path.name)).hexdigest()}.tmp"

    def _clear(self, held: int) -> None:
        """Remove the temporary name. After a killed import it may be a second link to a log, so never write to it."""
        with suppress(FileNotFoundError):
            os.unlink(self._temporary_name, dir_fd=held)

    def _create(self, held: int) -> None:
        """Write the file under its temporary name, then link it to its final name. Raises `Conflict` if that exists."""
        name = self._temporary_name
        try:
            with os.fdopen(files.opened_file(self._path.with_name(name), _NEW, base=files.ROOT), "wb") as to:
                self._write(to, 0)
            os.link(name, self._path.name, src_dir_fd=held, dst_dir_fd=held)
        except FileExistsError:
            raise self._write_conflict() from None
        finally:
            self._clear(held)

    def _append(self, begin: int) -> None:
        """Append the new lines while holding the file's lock, so that no writer of the log can append meanwhile."""
        with os.fdopen(files.opened_file(self._path, _APPEND, base=files.ROOT), "ab") as to:
            files.acquire(to.fileno(), self._path, files.LOCK_TIMEOUT)
            if os.fstat(to.fileno()).st_size != begin:
                raise self._write_conflict()
            self._write(to, begin)

    def _write(self, to: BinaryIO, begin: int) -> None:
        with _open_regular(self._source) as file:
            foreign.copy(file, to, begin, self._size, self.digest)
        to.flush()
        os.utime(to.fileno(), ns=(self._changed, self._changed))
        os.fsync(to.fileno())

    def _write_conflict(self) -> Conflict:
        return Conflict(f"{self.target[1]!r:.200} was written meanwhile", code="unique")


@contextmanager
def _open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading, without following links. Raises `UnsafePath` for a link, and OSError."""
    try:
        descriptor = files.opened_file(path, os.O_RDONLY, base=files.ROOT)
    except OSError:
        if path.is_symlink():
            raise UnsafePath(str(path), "must not be a symbolic link") from None
        raise
    with os.fdopen(descriptor, "rb") as found:
        yield found


# Reads the home of another program: logs of runs, and snapshots of sessions in both its layouts. Writes nothing there.
#
# ::
#
#     sessions/YYYY/MM/DD/<run id>.jsonl     one run
#     sessions/state/<session id>.json       the snapshot of a session, in the older layout
#     sessions/state.db                      the same in the later layout, but for the messages
#     sessions/messages/<session id>.jsonl   the messages of a snapshot in the later layout

_LOGS = (paths.LOG_SUFFIX, paths.LOG_SUFFIX + storage.SUFFIX)


def is_home(path: Path) -> bool:
    """True if a path is the home of the other program, or the folder ``sessions`` in it."""
    tree = _home_tree(path)
    return next(tree.days(), None) is not None or bool(_home_names(tree.states)) or is_sqlite(tree.sessions / INDEX)


def home_parts(path: Path) -> Generator[SourceUnit]:
    """Yield the logs of a home, the oldest first, and then the snapshots.

    A snapshot in the older layout is ignored if the later layout has a snapshot of the same session.
    """
    tree = _home_tree(path)
    for _, folder in reversed(list(tree.days())):
        for name in _home_names(folder, _LOGS):
            file = folder / name
            key = _text(os.path.relpath(file, tree.sessions)).removesuffix(
                storage.SUFFIX
            )  # a log keeps its key when it is packed later
            yield SourceUnit(key, partial(LogPiece, file))
    newer: set[str] = set()
    index = tree.sessions / INDEX
    if os.path.lexists(index):
        yield from _snapshot_parts(tree, index, newer)
    for name in _home_names(tree.states, (paths.STATE_SUFFIX,)):
        key = f"{paths.STATE}/{_text(name.removesuffix(paths.STATE_SUFFIX))}"
        yield SourceUnit(key, None if key in newer else partial(single, tree.states / name))


def _snapshot_parts(tree: RunTree, index: Path, seen: set[str]) -> Generator[SourceUnit]:
    """Yield the snapshots of the later layout. If its database is unreadable, yield one unit that fails."""
    try:
        if index.is_symlink():
            raise UnsafePath(str(index), "must not be a symbolic link")
        with readable(INDEX), open_file(index, follow=False) as source:
            for row in source.rows(TABLE, "ORDER BY session_id"):
                key = f"{paths.STATE}/{as_text(row.get('session_id'))}"
                seen.add(key)
                yield SourceUnit(key, partial(indexed_piece, tree, source, row))
            yield from foreign.unread_tables(source, {TABLE})
    except StateError as error:
        yield SourceUnit(INDEX, partial(_raise_error, error))


def _raise_error(error: StateError, _: ImportTarget) -> ImportUnit:
    raise error


def _home_tree(path: Path) -> RunTree:
    """Return the files of a home. The path may also be the folder ``sessions`` in a home."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 - "..", and no link
    is_inner = path.name == paths.SESSIONS and not (path / paths.SESSIONS).is_dir()
    return RunTree(path.parent if is_inner else path)


def _home_names(folder: Path, endings: tuple[str, ...] = (paths.STATE_SUFFIX,)) -> list[str]:
    """Return the sorted names in a folder with one of these endings. Empty if the folder is missing or a link."""
    if files.is_link(folder) or not files.is_directory(folder):
        return []
    return sorted(one.name for one in folder.iterdir() if one.name.endswith(endings))


def _text(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


#: The kind of source.
HOME_KIND = Kind(
    "codelia", "sessions/YYYY/MM/DD, sessions/state/*.json or sessions/state.db", is_home, home_parts, wants=DIRECTORY
)


#: Folders that may hold the logs, relative to the given path.
_PLACES = ("", "agent-sessions")


def found_at(path: Path) -> bool:
    """True if there is a log below a path."""
    tree = _tree(path)
    return tree is not None and any(tree.logs(slug)[0] for slug in tree.slugs()[0])


def parts(path: Path) -> Generator[SourceUnit]:
    """Yield the files. Files in a session's folder come before its log, so that no line names a missing file."""
    tree = _tree(path)
    if tree is None:
        raise Conflict(f"{str(path)!r:.200} has no folder {PROJECTS}", code="unknown_source")
    slugs, others = tree.slugs()
    yield from (SourceUnit("", None) for _ in range(others))
    for slug in slugs:
        for name in _names(tree.projects / slug):
            if name.endswith(agent_log_paths.LOG_SUFFIX):
                is_log = _is_agent(name) or agent_log_paths.session_of(name) is not None
                yield _part(tree, (slug, name)) if is_log else SourceUnit("", None)
            else:
                yield from _companions(tree, slug, name)


def _companions(tree: LogTree, slug: str, session_id: str) -> Generator[SourceUnit]:
    """Yield the files in the folder of a session. A folder without such files is ignored."""
    folder = tree.projects / slug / session_id
    found = [
        (agent_log_paths.SUBAGENTS, name) for name in _names(folder / agent_log_paths.SUBAGENTS) if _is_agent(name)
    ]
    found += [(agent_log_paths.RAW, name) for name in _names(folder / agent_log_paths.RAW) if _is_raw(name)]
    yield from (_part(tree, (slug, session_id, *one)) for one in found)
    if not found:
        yield SourceUnit("", None)


def _part(tree: LogTree, names: tuple[str, ...]) -> SourceUnit:
    key = key_of(names)
    return SourceUnit(key, partial(_piece, tree, names, key))


def _piece(tree: LogTree, names: tuple[str, ...], key: str, into: ImportTarget) -> CopyPiece:
    here = LogTree(into.settings.agent_sessions)
    if here.projects == tree.projects:
        raise InvalidValue("path", "must not be the folder of logs that is imported into")
    name = key if _is_agent(names[1]) else key_of(names[1:])  # a session is known by its id, in any project
    return CopyPiece(name, tree.projects.joinpath(*names), tree.projects, here, _target(here, *names))


def _target(tree: LogTree, slug: str, name: str, *inner: str) -> Path:
    """Return the path to store a file at. Raises `UnsafePath` for names that this library does not allow."""
    if inner:
        return tree.path_to_write(slug, name).with_suffix("").joinpath(*inner)
    session_id = name.removesuffix(agent_log_paths.LOG_SUFFIX)
    if not _is_agent(name):
        return tree.path_to_write(slug, session_id)
    if not agent_log_paths.is_safe_id(session_id):
        raise UnsafePath("name", "must be 1 to 200 of A-Z a-z 0-9 _ -")
    return tree.directory_to_write(slug) / name


def _tree(path: Path) -> LogTree | None:
    """Return the logs at a path. The path may also be the parent of ``agent-sessions``."""
    found = (LogTree(path / name) for name in _PLACES)
    return next((tree for tree in found if files.is_directory(tree.projects)), None)


def _names(folder: Path) -> list[str]:
    """Return the sorted names in a folder. Empty if the folder is missing, a link, or not a folder."""
    if files.is_link(folder) or not files.is_directory(folder):
        return []
    return sorted(os.listdir(folder))  # noqa: PTH208 - names are needed, not paths


def _is_agent(name: str) -> bool:
    return name.startswith(agent_log_paths.AGENT_PREFIX) and name.endswith(agent_log_paths.LOG_SUFFIX)


def _is_raw(name: str) -> bool:
    return name.endswith(raw.SUFFIX) and raw.is_digest(name.removesuffix(raw.SUFFIX))


#: The kind of source.
KIND = Kind("lastlight-logs", "projects/<slug>/<session id>.jsonl", found_at, parts, wants=DIRECTORY)
