"""Files of messages: brought to disk before their message is stored, and found there afterwards.

Whoever shares the folder may be hostile. Every directory is opened relative to the one above, no link is followed,
files are made under new names only, and nothing but regular files is read or removed.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lastlight_state.errors import UnsafePath
from lastlight_state.ids import new_id
from lastlight_state.jsonl import files as line_files, places
from lastlight_state.mailbox.arguments import Attachment
from lastlight_state.mailbox.folder import message_folder, wishes
from lastlight_state.mailbox.records import OutboxFile, OutboxFiles
from lastlight_state.reprs import shown
from lastlight_state.settings import Limits

_log = logging.getLogger("lastlight_state.mailbox")

_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY
_STAGED = ".new-"


@dataclass(frozen=True)
class MessageFolder:
    """The folder of one message's files, below the folder of its session."""

    session: Path
    box: str
    name: str

    @property
    def path(self) -> Path:
        """Its path."""
        return self.session / self.box / self.name


def folder(session: Path, box: str, message_id: str, *, strict: bool = False) -> MessageFolder:
    """The folder of a message. With ``strict`` an id that is no safe name is `UnsafePath`."""
    name = message_folder(message_id)
    if strict and name != message_id:
        raise UnsafePath("id", f"must be a safe name when the message has files: {shown(message_id, 80)}")
    return MessageFolder(session, box, name)


class Staged:
    """Files on disk under names that nobody looks for. They are put into place while their message is stored."""

    def __init__(self, target: MessageFolder, names: Sequence[tuple[str, str]]) -> None:
        self._target = target
        self._names = names
        self._placed: list[str] = []

    def place(self, undo: list[Callable[[], None]] | None) -> None:
        """Give the files their names. Those that a killed call left there are replaced.

        Call it with the lock of the message's file. ``undo`` gets what to do if the transaction is rolled back.
        """
        if undo is not None:
            undo.append(self.withdraw)
        self.withdraw()
        try:
            with places.directory(self._target.path, base=self._target.session) as (held, _):
                for hidden, name in self._names:
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=held)
                    os.link(hidden, name, src_dir_fd=held, dst_dir_fd=held, follow_symlinks=False)
                    self._placed.append(name)
                places.sync(held)
        except OSError as error:
            raise line_files.failure(error, self._target.path) from error

    def withdraw(self) -> None:
        """Remove the names that were given."""
        names, self._placed = self._placed, []
        if names:
            _remove(self._target, names)

    def discard(self) -> None:
        """Remove the hidden names, and the folder if nothing is left in it."""
        _remove(self._target, [hidden for hidden, _ in self._names])


@contextmanager
def staged(target: MessageFolder, wanted: Sequence[tuple[str, Attachment]]) -> Iterator[Staged]:
    """Bring the files to disk, each with the name that it is to have. On an exception nothing of them is left."""
    made = Staged(target, [(f"{_STAGED}{new_id()}", name) for name, _ in wanted])
    try:
        _write(made, target, [file for _, file in wanted])
        yield made
    except BaseException:
        made.withdraw()
        raise
    finally:
        made.discard()


def stored(target: MessageFolder, listed: Sequence[object], limits: Limits) -> OutboxFiles:
    """The files of a message that its content lists. What is missing, a link or no file is skipped, with the reason."""
    found: list[OutboxFile] = []
    skipped: list[tuple[str, str]] = []
    for name in listed[: limits.attachments]:
        problem = None if wishes.is_safe(name) else "not a safe name"
        try:
            if problem is None:
                found.append(_read(target, str(name), limits.attachment))
                continue
        except OSError as error:
            problem = "a symbolic link" if error.errno == errno.ELOOP else str(error.strerror)
        skipped.append((shown(name, 80), str(problem)))
    if len(listed) > limits.attachments:
        skipped.append((f"{len(listed) - limits.attachments} more", f"more than {limits.attachments} files"))
    return OutboxFiles(files=tuple(found), skipped=tuple(skipped))


def clear(target: MessageFolder, *, staged: bool = True) -> None:
    """Remove a message's files and its folder as far as possible. A failure is logged.

    Without ``staged``, files stay that a call is about to store.
    """
    try:
        with places.directory(target.path, base=target.session) as (held, _):
            names = [name for name in _listed(held) if _is_regular(held, name)]
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("the files of a message are left: %s", error)
        return
    _remove(target, [name for name in names if staged or not name.startswith(_STAGED)])


def size(target: MessageFolder) -> int:
    """The bytes of a message's files; 0 where they cannot be read."""
    try:
        with places.directory(target.path, base=target.session) as (held, _):
            found = [os.stat(name, dir_fd=held, follow_symlinks=False) for name in _listed(held)]
    except OSError:
        return 0
    return sum(status.st_size for status in found if stat.S_ISREG(status.st_mode))


def _write(made: Staged, target: MessageFolder, files: Sequence[Attachment]) -> None:
    try:
        with places.directory(target.path, base=target.session, create=True) as (held, changed):
            for (hidden, _name), file in zip(made._names, files, strict=True):
                with os.fdopen(os.open(hidden, _NEW, places.PRIVATE_FILE, dir_fd=held), "wb") as written:
                    _fill(written, file)
                    written.flush()
                    os.fsync(written.fileno())
            for directory in changed:
                line_files.sync_directory(directory)
    except OSError as error:
        raise line_files.failure(error, target.path) from error


def _fill(written: BinaryIO, file: Attachment) -> None:
    if isinstance(file.data, bytes):
        written.write(file.data)
        return
    with file.data.open("rb") as source:
        shutil.copyfileobj(source, written)


def _read(target: MessageFolder, name: str, most: int) -> OutboxFile:
    with places.directory(target.path, base=target.session) as (held, _):
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=held)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as source:  # refuses a directory, and would leave it open
            data = source.read(most + 1)
    finally:
        os.close(descriptor)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"more than {most} bytes")
    return OutboxFile(name=name, size=len(data), data=data)


def _remove(target: MessageFolder, names: Sequence[str]) -> None:
    try:
        with places.directory(target.path, base=target.session) as (held, _):
            for name in names:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=held)
        with places.directory(target.path.parent, base=target.session) as (held, _), suppress(OSError):
            os.rmdir(target.name, dir_fd=held)  # unless something else is in it
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("files of a message are left: %s", error)


def _listed(held: int) -> list[str]:
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=held)
    try:
        return os.listdir(descriptor)  # noqa: PTH208 - of a descriptor
    finally:
        os.close(descriptor)


def _is_regular(held: int, name: str) -> bool:
    return stat.S_ISREG(os.stat(name, dir_fd=held, follow_symlinks=False).st_mode)
