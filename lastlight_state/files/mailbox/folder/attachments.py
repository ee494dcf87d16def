"""Files of messages: they are synced to disk before their message is stored, and are then found through it.

Other users of the folder may be hostile. So every directory is opened relative to the one above, no link is followed,
files are created only under new names, and only regular files are read or deleted.
"""

from __future__ import annotations

import base64
import errno
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue, PayloadTooLarge, UnsafePath
from lastlight_state.files.jsonl import files as jsonl_files, files as line_files
from lastlight_state.files.mailbox.arguments import Attachment
from lastlight_state.files.mailbox.folder import message_folder
from lastlight_state.files.mailbox.records import OutboxFile, OutboxFiles
from lastlight_state.ids import new_id
from lastlight_state.reprs import repr_of
from lastlight_state.settings import Limits
from lastlight_state.special_files import mismatch, open_binary, open_regular

# The files with which a message is sent: their names, and their entries in the content.

_NAME_BYTES = 200
_DRIVE = 2
#: The longest file extension that is kept when a name is replaced.
_ENDING = 10


def check_attachment(attachment: Any) -> Attachment:
    """Check a caller's attachment, and return it."""
    given = valid.argument_group("attachment", attachment, Attachment)
    if not isinstance(given.data, bytes | Path):
        raise InvalidValue("attachment.data", f"expected bytes or a path, got {type(given.data).__name__}")
    valid.optional("attachment.mime", given.mime)
    return given


def refuse_large(files: Sequence[Attachment], limits: Limits) -> None:
    """Refuse attachments that exceed the limits of a message in number, size or total size."""
    if len(files) > limits.attachments:
        raise PayloadTooLarge("attachments", limit=limits.attachments, actual=len(files), unit="files")
    sizes = [_size(file) for file in files]
    largest, size = max(sizes, default=0), sum(sizes)
    if largest > limits.attachment:
        raise PayloadTooLarge("attachment.data", limit=limits.attachment, actual=largest)
    if size > limits.attachments_total:
        raise PayloadTooLarge("attachments", limit=limits.attachments_total, actual=size)


def is_safe(name: Any) -> bool:
    """True if a file may have this name on all common systems."""
    if not isinstance(name, str) or name in {"", ".", ".."} or name != name.strip():
        return False
    if any(character in "/\\" or not character.isprintable() for character in name):
        return False
    return len(name.encode()) <= _NAME_BYTES and name[1:_DRIVE] != ":"


def names(wished: Iterable[Any]) -> list[tuple[str, bool]]:
    """Return the name under which each file is stored, and True if it is the desired name. All names differ."""
    found: list[tuple[str, bool]] = []
    taken: set[str] = set()
    for number, wish in enumerate(wished, 1):
        name = wish if is_safe(wish) else f"attachment-{number}{_safe_extension(wish)}"
        unique = _unique(name, taken)
        taken.add(unique.casefold())
        found.append((unique, unique == wish))
    return found


def with_files(content: Any, found: Sequence[str]) -> dict[str, Any]:
    """Return the content of an outbound message, with the names of its files."""
    if not isinstance(content, dict):
        raise InvalidValue("content", "must be an object when the message has files")
    return {**content, "files": [*found]}


def embedded_files(content: Any) -> list[tuple[int, Attachment]]:
    """Return the files that an inbound message's content holds as base64, each with its index in the content's list."""
    entries = content.get("attachments") if isinstance(content, dict) else None
    found = []
    for place, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict) and "data" in entry:
            found.append((place, Attachment(entry.get("name"), _decode_data(place, entry["data"]))))  # type: ignore[arg-type]
    return found


def describe_files(
    content: Any, embedded_at: Sequence[int], given: Sequence[Attachment], kept: Sequence[tuple[str, bool]], folder: str
) -> Any:
    """Return the content of an inbound message, in which each file has a name and a path instead of its bytes.

    ``kept`` are the names of the embedded files, followed by those of the given files.
    """
    if not kept:
        return content
    if not isinstance(content, dict):
        raise InvalidValue("content", "must be an object when the message has attachments")
    entries = list(content.get("attachments") or [])
    for place, (name, as_wished) in zip(embedded_at, kept, strict=False):
        entries[place] = _entry(entries[place], name, as_wished, folder)
    for file, (name, as_wished) in zip(given, kept[len(embedded_at) :], strict=True):
        entry = {"name": file.name} | ({} if file.mime is None else {"mimeType": file.mime})
        entries.append(_entry(entry, name, as_wished, folder))
    return {**content, "attachments": entries}


def _entry(entry: dict[str, Any], name: str, as_wished: bool, folder: str) -> dict[str, Any]:
    rest = {key: value for key, value in entry.items() if key != "data"}
    wished = {} if as_wished or rest.get("name") is None else {"originalName": rest["name"]}
    return {**rest, **wished, "name": name, "localPath": f"{folder}/{name}"}


def _size(file: Attachment) -> int:
    if isinstance(file.data, bytes):
        return len(file.data)
    try:
        found = file.data.stat()
    except OSError as error:
        raise InvalidValue("attachment.data", f"{file.data} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise InvalidValue("attachment.data", f"{file.data}: {mismatch(found.st_mode)}")
    return found.st_size


def _decode_data(place: int, data: Any) -> bytes:
    where = f"content.attachments[{place}].data"
    if not isinstance(data, str):
        raise InvalidValue(where, f"expected base64 text, got {type(data).__name__}")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise InvalidValue(where, "must be base64") from None


def _safe_extension(wish: Any) -> str:
    """Return the extension of a file name that is not safe, or an empty text if the extension is not harmless."""
    ending = PurePosixPath(wish).suffix if isinstance(wish, str) else ""
    return ending if len(ending) <= _ENDING and ending[1:].isascii() and ending[1:].isalnum() else ""


def _unique(name: str, taken: set[str]) -> str:
    path, number, found = PurePosixPath(name), 1, name
    while found.casefold() in taken:
        number += 1
        found = f"{path.stem}-{number}{path.suffix}"
    return found


_log = logging.getLogger("lastlight_state.files.mailbox")

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
        """Return the path of the folder of the message's files."""
        return self.session / self.box / self.name


def folder(session: Path, box: str, message_id: str, *, strict: bool = False) -> MessageFolder:
    """Return the folder of a message. With ``strict``, an id that is not a safe name raises `UnsafePath`."""
    name = message_folder(message_id)
    if strict and name != message_id:
        raise UnsafePath("id", f"must be a safe name when the message has files: {repr_of(message_id, 80)}")
    return MessageFolder(session, box, name)


class Staged:
    """Files on disk under temporary names. They are renamed while their message is stored."""

    def __init__(self, target: MessageFolder, names: Sequence[tuple[str, str]]) -> None:
        self._target = target
        self._names = names
        self._placed: list[str] = []

    def place(self, undo: list[Callable[[], None]] | None) -> None:
        """Rename the files to their final names. Replaces files with these names that a killed call left.

        Call this while holding the lock of the database file that stores the message. ``undo`` collects the callbacks
        for a rollback of the transaction.
        """
        if undo is not None:
            undo.append(self.withdraw)
        self.withdraw()
        try:
            with jsonl_files.open_directory(self._target.path, base=self._target.session) as (held, _):
                for hidden, name in self._names:
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=held)
                    os.link(hidden, name, src_dir_fd=held, dst_dir_fd=held, follow_symlinks=False)
                    self._placed.append(name)
                jsonl_files.sync(held)
        except OSError as error:
            raise line_files.failure(error, self._target.path) from error

    def withdraw(self) -> None:
        """Delete the files that were given their final names."""
        names, self._placed = self._placed, []
        if names:
            _remove(self._target, names)

    def discard(self) -> None:
        """Delete the files that have temporary names, and the folder if it is then empty."""
        _remove(self._target, [hidden for hidden, _ in self._names])


@contextmanager
def stage_files(target: MessageFolder, wanted: Sequence[tuple[str, Attachment]]) -> Iterator[Staged]:
    """Sync the files to disk, each with its final name. If the block raises an exception, all of them are deleted."""
    made = Staged(target, [(f"{_STAGED}{new_id()}", name) for name, _ in wanted])
    try:
        _write(made, target, [file for _, file in wanted])
        yield made
    except BaseException:
        made.withdraw()
        raise
    finally:
        made.discard()


def stored_files(target: MessageFolder, listed: Sequence[object], limits: Limits) -> OutboxFiles:
    """Return the files of a message that its content lists.

    A missing file, a link, or anything that is not a regular file is skipped, with the reason.
    """
    found: list[OutboxFile] = []
    skipped: list[tuple[str, str]] = []
    for name in listed[: limits.attachments]:
        problem = None if is_safe(name) else "not a safe name"
        try:
            if problem is None:
                found.append(_read(target, str(name), limits.attachment))
                continue
        except OSError as error:
            problem = "a symbolic link" if error.errno == errno.ELOOP else str(error.strerror)
        skipped.append((repr_of(name, 80), str(problem)))
    if len(listed) > limits.attachments:
        skipped.append((f"{len(listed) - limits.attachments} more", f"more than {limits.attachments} files"))
    return OutboxFiles(files=tuple(found), skipped=tuple(skipped))


def clear(target: MessageFolder, *, staged: bool = True) -> None:
    """Delete a message's files and its folder as far as possible. A failure is logged.

    Without ``staged``, files that a call is about to store are kept.
    """
    try:
        with jsonl_files.open_directory(target.path, base=target.session) as (held, _):
            names = [name for name in _names_in(held) if _is_regular(held, name)]
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("the files of a message are left: %s", error)
        return
    _remove(target, [name for name in names if staged or not name.startswith(_STAGED)])


def size(target: MessageFolder) -> int:
    """Return the bytes of a message's files; 0 if they cannot be read."""
    try:
        with jsonl_files.open_directory(target.path, base=target.session) as (held, _):
            found = [os.stat(name, dir_fd=held, follow_symlinks=False) for name in _names_in(held)]
    except OSError:
        return 0
    return sum(status.st_size for status in found if stat.S_ISREG(status.st_mode))


def _write(made: Staged, target: MessageFolder, files: Sequence[Attachment]) -> None:
    try:
        with jsonl_files.open_directory(target.path, base=target.session, create=True) as (held, changed):
            for (hidden, _name), file in zip(made._names, files, strict=True):
                with os.fdopen(os.open(hidden, _NEW, jsonl_files.PRIVATE_FILE, dir_fd=held), "wb") as written:
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
    with open_binary(file.data) as source:
        shutil.copyfileobj(source, written)


def _read(target: MessageFolder, name: str, most: int) -> OutboxFile:
    with jsonl_files.open_directory(target.path, base=target.session) as (held, _):
        descriptor = open_regular(name, os.O_RDONLY | os.O_NOFOLLOW, folder=held)
    with os.fdopen(descriptor, "rb") as source:
        data = source.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"more than {most} bytes")
    return OutboxFile(name=name, size=len(data), data=data)


def _remove(target: MessageFolder, names: Sequence[str]) -> None:
    try:
        with jsonl_files.open_directory(target.path, base=target.session) as (held, _):
            for name in names:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=held)
        with jsonl_files.open_directory(target.path.parent, base=target.session) as (held, _), suppress(OSError):
            os.rmdir(target.name, dir_fd=held)  # unless it contains other entries
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("files of a message are left: %s", error)


def _names_in(held: int) -> list[str]:
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=held)
    try:
        return os.listdir(descriptor)  # noqa: PTH208 - of a descriptor
    finally:
        os.close(descriptor)


def _is_regular(held: int, name: str) -> bool:
    return stat.S_ISREG(os.stat(name, dir_fd=held, follow_symlinks=False).st_mode)
