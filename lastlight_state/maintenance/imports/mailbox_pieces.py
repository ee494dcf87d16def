"""Imported mailboxes: comparing a mailbox with the stored one, copying it, or adopting it in place."""

from __future__ import annotations

import errno
import hashlib
import os
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, InvalidValue, StateError, UnsafePath
from lastlight_state.files.jsonl import files, files as line_files
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.face import MODES, Mailboxes, fill
from lastlight_state.files.mailbox.folder import HEARTBEAT, INBOUND_DB, INBOX, OUTBOUND_DB, OUTBOX, Place, creation
from lastlight_state.files.mailbox.models import MAILBOX
from lastlight_state.files.mailbox.shared import files as shared_files, queries
from lastlight_state.maintenance.imports import foreign, mailbox_sources as sources, pieces
from lastlight_state.maintenance.imports.pieces import ImportTarget, ImportUnit, Kind, SourceUnit, UnitLookup, key_of
from lastlight_state.special_files import DIRECTORY

# Attachments of another program's mailbox: found with their digests, and copied byte for byte.
#
# Its agent may write what it likes into these folders. Each directory is opened relative to the one above, no link is
# followed, and nothing but regular files is read.

_BOXES = (INBOX, OUTBOX)
#: The files and folders of a mailbox. Other entries of its folder are not imported.
_OURS = frozenset(
    [HEARTBEAT, *_BOXES]
    + [name + ending for name in (INBOUND_DB, OUTBOUND_DB) for ending in ("", "-journal", "-wal", "-shm")]
)
#: Errors of the system for a link, folder, FIFO or socket in place of a file, or for a file in place of a folder.
_ODD = (errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.ENOTDIR)
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY


class AttachmentFacts(NamedTuple):
    """An attachment: its box, message folder and name, and its size in bytes, digest, and time of change."""

    names: tuple[str, str, str]
    size: int
    digest: str
    changed: int


class Attachments:
    """The attachments of a session. ``others`` counts entries of the session's folder that belong to no mailbox.

    Raises `UnsafePath` for a link in place of a box, and OSError for a file that may not be read.
    """

    def __init__(self, session: Path) -> None:
        self._session = session
        self.others = sum(name not in _OURS and not _is_empty(session / name) for name in os.listdir(session))  # noqa: PTH208
        self.found = [self._read_facts(*names) for names in self._files()]

    def copy(self, into: Path, directory_mode: int, file_mode: int) -> None:
        """Copy the attachments into a new session folder that nobody uses yet. Raises `Conflict` if one has changed."""
        folders = [into / box for box in _BOXES]
        folders += dict.fromkeys(into.joinpath(*one.names[:2]) for one in self.found)
        for folder in folders:
            folder.mkdir(mode=files.PRIVATE_DIRECTORY)
            folder.chmod(directory_mode)
        for one in self.found:
            with self._open_file(one.names) as file, _create_file(into.joinpath(*one.names), file_mode) as to:
                foreign.copy(file, to, 0, one.size, one.digest)
                to.flush()
                os.utime(to.fileno(), ns=(one.changed, one.changed))
                os.fsync(to.fileno())
        for folder in folders:
            line_files.sync_directory(folder)

    def _files(self) -> Iterator[tuple[str, str, str]]:
        for box in _BOXES:
            for message in self._list_names(box):
                for name in self._list_names(box, message):
                    if self._is_file(box, message, name):
                        yield box, message, name

    def _list_names(self, *names: str) -> list[str]:
        """Return the sorted names in a folder. None if it is missing, or if a file is in place of a message's folder.

        Raises `UnsafePath` if a box is not a folder.
        """
        path = self._session.joinpath(*names)
        try:
            held = files.listable(path, base=self._session)
        except FileNotFoundError:
            return []
        except OSError as error:
            if error.errno not in _ODD:
                raise
            if len(names) == 1:
                raise UnsafePath(str(path), "expected a folder, found something else or a symbolic link") from error
            self.others += 1
            return []
        try:
            return sorted(os.listdir(held))  # noqa: PTH208 - of a descriptor
        finally:
            os.close(held)

    def _is_file(self, *names: str) -> bool:
        try:
            self._open_file(names).close()
        except OSError as error:
            if error.errno not in _ODD:
                raise
            self.others += 1
            return False
        return True

    def _read_facts(self, *names: str) -> AttachmentFacts:
        with self._open_file(names) as file:
            status = os.fstat(file.fileno())
            digest = foreign.range_digest(file, status.st_size)
        return AttachmentFacts((names[0], names[1], names[2]), status.st_size, digest, status.st_mtime_ns)

    def _open_file(self, names: tuple[str, ...]) -> BinaryIO:
        path = self._session.joinpath(*names)
        return os.fdopen(files.opened_file(path, os.O_RDONLY, base=self._session), "rb")


def _create_file(path: Path, mode: int) -> BinaryIO:
    file = os.fdopen(os.open(path, _NEW, files.PRIVATE_FILE), "wb")
    os.fchmod(file.fileno(), mode)
    return file


def _is_empty(path: Path) -> bool:
    """True if a path is an empty folder. Mounts into an agent's folder leave such folders behind."""
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


#: The key under which a copied mailbox notes the digest of its source, and the name under which mailboxes are counted.
_IMPORTED, _COUNTED = "imported", "mailboxes"


def piece(root: Path, group: str, session: str, into: ImportTarget) -> CopyPiece | AdoptedPiece:
    """Return the mailbox of a session as a unit: to adopt if it is below the store's own root, else to copy.

    Raises `UnsafePath` for links, and for names that a mailbox may not have.
    """
    place = Place.below(root, group, session)
    named = group if into.scope is None else f"{into.scope}.{group}"
    target = Place.below(into.settings.mailboxes, named, session)
    if place.root == target.root and into.scope is not None:
        raise InvalidValue("scope", "must not be given for mailboxes that are adopted where they stand")
    return AdoptedPiece(place, into) if place.root == target.root else CopyPiece(place, target, into)


class CopyPiece:
    """A mailbox from another place. It is copied once. A mailbox that exists in the store is never overwritten."""

    kept_differences: Sequence[str] = ()

    def __init__(self, place: Place, target: Place, into: ImportTarget) -> None:
        self._source, self._into, self._there = place.path, into, target
        with sources.open_files(place.path, sources.AT_REST) as files:
            self._contents = sources.contents(files)
        self._attachments = Attachments(place.path)
        self.target = (MAILBOX, target.key)
        self.digest = _digest([self._contents.sums, [one[:3] for one in self._attachments.found]])
        self._is_there = False

    def compare(self, look: UnitLookup) -> tuple[str, Counter[str], Counter[str]]:
        """Return the outcome of the mailbox. Raises `AlreadyExists` if another is stored or the source has changed."""
        known, self._is_there = pieces.known_digest(look), os.path.lexists(self._there.path)
        noticed = self._contents.noticed + Counter(other_files=self._attachments.others)
        if not self._is_there and pieces.is_removed(look, self):
            return "pruned", Counter(), Counter()
        if not self._is_there:
            rows = self._contents.rows + Counter(attachments=len(self._attachments.found))
            return "imported", rows + Counter({_COUNTED: 1}), noticed
        if known == self.digest:
            return "unchanged", Counter(), Counter()
        if _noted_digest(self._there) != self.digest:
            why = "was not imported from this source" if known is None else "its source has changed since the import"
            raise AlreadyExists(*self.target, problem=f"is here, and {why}; it is left as it is")
        return "imported", Counter(), noticed + Counter(kept=1)

    def store(self, _: Unit, __: str) -> None:
        """Copy the mailbox under a temporary name, compare the copy with the source, rename it, and adopt it."""
        if not self._is_there:
            creation.remove_leftovers(self._there.path.parent, self._into.now)
            creation.appear(self._there, self._furnish)
        _ensure(self._there, self._into)

    def _furnish(self, made: Path) -> None:
        directory_mode, file_mode = MODES[self._into.settings.mailbox_mode]
        with sources.open_files(self._source, sources.AT_REST) as files:
            for name, file in files.items():
                file.unit.backend.snapshot(file.unit, made / name)
        for name in files:
            fill(made / name, name, **({_IMPORTED: self.digest} if name == INBOUND_DB else {}))
            (made / name).chmod(file_mode)
        self._refuse_differing(made)
        self._attachments.copy(made, directory_mode, file_mode)
        self._keep_heartbeat(made, file_mode)
        made.chmod(directory_mode)
        line_files.sync_directory(made)

    def _refuse_differing(self, made: Path) -> None:
        """Raise `Conflict` if the copied rows differ from the rows that were read, in the columns of the source."""
        with sources.open_files(made, sources.AT_REST) as files:
            copied = {
                name: sources.file_checksum(file, self._contents.shapes.get(name, {})) for name, file in files.items()
            }
        if copied != self._contents.sums:
            raise Conflict("the source was changed while it was read: import it again", code="damaged_source")

    def _keep_heartbeat(self, made: Path, file_mode: int) -> None:
        with suppress(OSError), os.fdopen(files.opened_file(self._source / HEARTBEAT, os.O_RDONLY), "rb") as beaten:
            changed = os.fstat(beaten.fileno()).st_mtime_ns
            (made / HEARTBEAT).touch(mode=file_mode)
            os.utime(made / HEARTBEAT, ns=(changed, changed))


class AdoptedPiece:
    """A mailbox that is already below the store's root. Missing parts are added.

    Its later messages count as no change.
    """

    kept_differences: Sequence[str] = ()

    def __init__(self, place: Place, into: ImportTarget) -> None:
        self._there, self._into = place, into
        self.target = (MAILBOX, place.key)
        self.digest = _digest(["adopted", place.key])

    def compare(self, look: UnitLookup) -> tuple[str, Counter[str], Counter[str]]:
        """Return the outcome of the mailbox. Raises `InvalidValue` for files that cannot be completed."""
        with sources.open_files(self._there.path, sources.SHARED) as files:
            if pieces.known_digest(look) == self.digest and self._is_whole(files):
                return "unchanged", Counter(), Counter()
            return "imported", Counter({_COUNTED: 1}), sources.contents(files).noticed

    def store(self, _: Unit, __: str) -> None:
        """Add the missing parts of the mailbox."""
        _ensure(self._there, self._into)

    def _is_whole(self, files: sources.Files) -> bool:
        if OUTBOUND_DB not in files or not all((self._there.path / box).is_dir() for box in (INBOX, OUTBOX)):
            return False
        with foreign.readable(INBOUND_DB):
            return shared_files.is_complete(files[INBOUND_DB].unit, models.INBOUND)


def _ensure(place: Place, into: ImportTarget) -> None:
    Mailboxes(place.root, settings=into.settings).ensure(place.group, place.session)


def _noted_digest(place: Place) -> str | None:
    """Return the digest of the source from which a mailbox was copied. None if it is not a copy or is unreadable."""
    with suppress(StateError), foreign.open_file(place.inbound, sources.SHARED, follow=False) as file:
        return queries.find(file.unit, models.INBOUND, _IMPORTED)
    return None


def _digest(value: Any) -> str:
    return hashlib.sha256(ascii(value).encode()).hexdigest()  # names of files may not be UTF-8


# Finds the mailboxes of another program: a folder for each session, below one for each group of agents.
#
# ::
#
#     v2-sessions/<agent group>/<session>/inbound.db     what its host writes
#     v2-sessions/<agent group>/<session>/outbound.db    what its agent writes
#     v2-sessions/<agent group>/<session>/inbox/         attachments, and outbox/

#: Folders that may hold the groups' folders, relative to the given path.
_PLACES = ("", "v2-sessions", "data/v2-sessions")
#: The prefix of folders that are not sessions: they are of a whole group, or of a mailbox that is being made.
_HIDDEN = "."


def found_at(path: Path) -> bool:
    """True if the path is a session's folder, or has such a folder below it."""
    return _is_session(path) or _root(path) is not None


def parts(path: Path) -> Generator[SourceUnit]:
    """Yield the sessions, by group. Other folders are ignored."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 - "..", and no link
    if _is_session(path):
        yield _part(path.parent.parent, path.parent.name, path.name)
        return
    root = _root(path)
    if root is None:
        raise Conflict(f"{str(path)!r:.200} has no folder with {INBOUND_DB}", code="unknown_source")
    for group in _folders(root):
        if (root / group).is_symlink():
            yield SourceUnit(
                key_of((group,)), partial(_raise_error, UnsafePath(str(root / group), "must not be a symbolic link"))
            )
            continue
        try:
            sessions = _folders(root / group)
        except OSError as error:
            yield SourceUnit(key_of((group,)), partial(_raise_error, error))
            continue
        for session in sessions:
            yield _part(root, group, session) if _is_session(root / group / session) else SourceUnit("", None)


def _part(root: Path, group: str, session: str) -> SourceUnit:
    return SourceUnit(key_of((group, session)), partial(piece, root, group, session))


def _raise_error(error: Exception, _: ImportTarget) -> ImportUnit:
    raise error


def _root(path: Path) -> Path | None:
    """Return the folder that contains the groups, or None if there is none."""
    return next((path / name for name in _PLACES if any(_sessions(path / name))), None)


def _sessions(root: Path) -> Iterator[Path]:
    """Yield the folders of sessions. Groups that cannot be read are skipped."""
    for group in _folders(root):
        with suppress(OSError):
            yield from (root / group / name for name in _folders(root / group) if _is_session(root / group / name))


def _is_session(folder: Path) -> bool:
    return os.path.lexists(folder / INBOUND_DB)


def _folders(path: Path) -> list[str]:
    """Return the sorted names of the folders in a folder. Empty if it is missing or not a folder."""
    if not files.is_directory(path):
        return []
    return sorted(one.name for one in path.iterdir() if not one.name.startswith(_HIDDEN) and one.is_dir())


#: The kind of source.
KIND = Kind("nanoclaw", f"<agent group>/<session>/{INBOUND_DB}", found_at, parts, has_names=True, wants=DIRECTORY)
