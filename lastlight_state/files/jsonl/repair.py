"""Repair of line files, with an account of every byte.

A clean copy gets every whole or recovered record, byte for byte and in order, each on a separate line. All other bytes
go to a file of rejects in the same directory, one JSON object for each part: offset, length, reason, and the bytes in
base64. So every byte of the source is in one of the two files. No record is invented, merged or reordered, and the
source is never changed. New files are made in the directory that was opened at the beginning, through its descriptor.
If a link is put in the directory's place meanwhile, nothing is written through it.

A file is replaced while its lock for appends is held: the damaged file gets a second name, which stays, and then the
clean copy is renamed to the path. After a crash the path leads to one of the two files. Memory depends on the longest
line, never on the file.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from lastlight_state.codec import dump_line
from lastlight_state.errors import AlreadyExists, LostRace
from lastlight_state.files.jsonl import files, sections
from lastlight_state.files.jsonl.reader import Line, LineKind, LineReader, read_at
from lastlight_state.files.jsonl.recovery import Accepts
from lastlight_state.files.jsonl.sections import Account, Section, line_sections, tail_sections
from lastlight_state.files.jsonl.writer import LineWriter

REJECTS = ".rejects"
_ENTRY_BYTES = 768 * 1024
_PRIVATE = 0o600
_FEW_BYTES = 1024 * 1024


class Salvage(NamedTuple):
    """The result of a repair. If there was no damage, ``copy`` is None and nothing was written.

    ``rejects`` is None if nothing was rejected; ``damaged`` is the second name of a replaced file.
    """

    account: Account
    copy: Path | None = None
    rejects: Path | None = None
    damaged: Path | None = None


def scan(path: Path, accepts: Accepts) -> Account:
    """Classify every byte of the file, even while others write to it. Reads it once, and writes nothing.

    Raises OSError.
    """
    account = Account()
    with _open_file(path) as descriptor:
        reader = _reader(descriptor, path, accepts)
        for section in line_sections(reader, accepts, os.fstat(descriptor).st_size):
            account.add(section)
        for section in tail_sections(reader, accepts):
            account.add(section)
    return account


def seal(path: Path) -> bool:
    """End a torn last line with a newline, under the lock of appends.

    Returns True if there was one. Errors as in `append`. No other change is ever made to a file in use.
    """
    with LineWriter(path, on_removed="raise") as writer:
        return writer.seal()


def salvage(path: Path, accepts: Accepts, *, to: Path) -> Salvage:
    """Write a clean copy to ``to``, and all other bytes to a file of rejects next to it.

    Raises OSError, `AlreadyExists`.
    """
    found = scan(path, accepts)
    if found.is_sound:
        return Salvage(found)
    files.make_directory(to.parent)
    with files.open_directory(to.parent) as (folder, _), _open_file(path) as descriptor:
        names = to, _beside(to, REJECTS)
        sections.forget(names, folder)
        clean, rejects = map(sections.of, names)
        _refuse_there(names, folder)
        with _Copy(descriptor, path, accepts, folder, clean, rejects) as copy:
            copy.take_lines()
            copy.take_tail()
            copy.flush()
            made = [name for name, half in zip(names, (clean, copy.rejects), strict=True) if half is not None]
            sections.complete(made, folder)
    return Salvage(copy.account, to, None if copy.rejects is None else names[1])


def replace(path: Path, accepts: Accepts, *, suffix: str) -> Salvage:
    """Replace the file by a clean copy; the old file stays under the second name ``<name><suffix>``.

    Most lines are copied before other writers are locked out, so that they wait only for the last lines. Raises
    OSError, `BackendBusy`, `AlreadyExists`, and `LostRace` if another process replaced the file meanwhile.
    """
    damaged = _beside(path, suffix)
    clean = path.with_name(f".{path.name}{suffix}.tmp")
    with ExitStack() as stack:
        folder, _ = stack.enter_context(files.open_directory(path.parent))
        found = scan(path, accepts)
        if found.is_sound:
            return Salvage(found)
        sections.forget_replaced(path, suffix, REJECTS, folder)
        descriptor = stack.enter_context(_open_file(path))
        writer = stack.enter_context(LineWriter(path, on_removed="raise"))
        copy = stack.enter_context(_Copy(descriptor, path, accepts, folder, clean, _beside(damaged, REJECTS)))
        copy.catch_up()
        with writer.hold_lock():
            if not _is_named(descriptor, path, folder):
                raise LostRace(f"{path}: replaced by another meanwhile", path=str(path))
            copy.take_lines()
            copy.take_tail()
            copy.flush()
            _give_name(path, damaged, folder)
            os.rename(clean.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            copy.keep()
            files.sync(folder)
    return Salvage(copy.account, path, copy.rejects, damaged)


class _Copy:
    """A clean copy and its rejects while they are written. Both files are deleted unless `keep` is called."""

    def __init__(self, descriptor: int, path: Path, accepts: Accepts, folder: int, clean: Path, rejects: Path) -> None:
        self.account = Account()
        self.rejects: Path | None = None
        self._descriptor = descriptor
        self._path = path
        self._accepts = accepts
        self._reader = _reader(descriptor, path, accepts)
        self._folder = folder
        self._names = clean, rejects
        self._made: list[Path] = []
        self._files: list[IO[bytes]] = []
        self._is_kept = False

    def __enter__(self) -> Self:
        _refuse_there(self._names, self._folder)
        self._make(self._names[0])
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            with suppress(OSError):  # the buffered rest finds no room; files to keep were flushed before
                file.close()
        if not self._is_kept:
            for name in self._made:
                with suppress(FileNotFoundError):
                    os.unlink(name.name, dir_fd=self._folder)

    def catch_up(self) -> None:
        """Copy lines while other processes write.

        Ends when few are left, or they write over half as fast as this copies.
        """
        left = self._bytes_left()
        while left >= _FEW_BYTES:
            self.take_lines()
            before, left = left, self._bytes_left()
            if left > before // 2:  # chasing such a writer would only lengthen the time under the lock
                return

    def _bytes_left(self) -> int:
        """Return the number of bytes that are not copied yet."""
        return os.fstat(self._descriptor).st_size - self._reader.position

    def take_lines(self) -> None:
        """Copy the complete lines that were appended since the last call."""
        for section in line_sections(self._reader, self._accepts, os.fstat(self._descriptor).st_size):
            self._take(section)

    def take_tail(self) -> None:
        """Copy the bytes after the last newline."""
        for section in tail_sections(self._reader, self._accepts):
            self._take(section)

    def keep(self) -> None:
        """Keep the clean copy and its rejects when the block ends. Otherwise they are deleted."""
        self._is_kept = True

    def flush(self) -> None:
        """Sync both files to disk, with the mode of the source."""
        mode = os.fstat(self._descriptor).st_mode & 0o777
        for file in self._files:
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        files.sync(self._folder)

    def _take(self, section: Section) -> None:
        self.account.add(section)
        if section.raw is not None:
            self._files[0].write(section.raw + b"\n")
            return
        if self.rejects is None:
            self.rejects = self._names[1]
            self._make(self.rejects)
        for offset in range(section.offset, section.offset + section.length, _ENTRY_BYTES):
            length = min(_ENTRY_BYTES, section.offset + section.length - offset)
            self._files[1].write(dump_line(self._rejected_part(offset, length, section.kind)))

    def _rejected_part(self, offset: int, length: int, reason: str) -> dict[str, Any]:
        data = read_at(self._descriptor, self._path, length, offset)
        return {"offset": offset, "length": length, "reason": reason, "base64": base64.b64encode(data).decode()}

    def _make(self, name: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(name.name, flags, _PRIVATE, dir_fd=self._folder)
        except FileExistsError as error:
            raise AlreadyExists("file", str(name)) from error
        sections.hold(descriptor)
        self._made.append(name)
        self._files.append(os.fdopen(descriptor, "wb"))


def _refuse_there(names: Iterable[Path], folder: int) -> None:
    for name in names:
        with suppress(FileNotFoundError):
            os.stat(name.name, dir_fd=folder, follow_symlinks=False)
            raise AlreadyExists("file", str(name))


def _reader(descriptor: int, path: Path, accepts: Accepts) -> LineReader[Line]:
    return LineReader(descriptor, path, LineKind(Line, accepts))


@contextmanager
def _open_file(path: Path) -> Iterator[int]:
    descriptor = files.open_to_read(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_named(descriptor: int, path: Path, folder: int) -> bool:
    """True if the path, and the name in the open directory, both lead to the open file."""
    ours = os.fstat(descriptor)
    inside = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    return os.path.samestat(ours, inside) and os.path.samestat(ours, path.lstat())


def _give_name(path: Path, second: Path, folder: int) -> None:
    try:
        os.link(path.name, second.name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError as error:
        raise AlreadyExists("file", str(second)) from error


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
