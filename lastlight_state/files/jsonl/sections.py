"""Classifies every byte of a line file: records, recovered records, and damage.

The sections of a file follow one another without gap or overlap, so their lengths add up to its size. A newline belongs
to the section before it.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from lastlight_state.errors import AlreadyExists, BackendBusy
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.reader import LineReader, RawLine
from lastlight_state.files.jsonl.recovery import Accepts, Reason, judge, reason_of

# Incomplete files: they have a temporary name, and their writer holds a lock on them.
#
# A killed writer leaves them. The next process that makes the same file sees by the free lock that nobody writes them
# any more, and deletes them.


def of(path: Path) -> Path:
    """Return the temporary name that a file has while it is incomplete."""
    return path.with_name(f".{path.name}.half")


def hold(descriptor: int) -> None:
    """Hold a file's lock until the file is closed. Does nothing on a file system without locks."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def complete(names: Sequence[Path], folder: int) -> None:
    """Give complete files their final names, the first one last. If the first exists, all exist.

    Raises `AlreadyExists`.
    """
    given: list[Path] = []
    for name in reversed(names):
        try:
            os.link(of(name).name, name.name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            for one in given:
                os.unlink(one.name, dir_fd=folder)
            if isinstance(error, FileExistsError):
                raise AlreadyExists("file", str(name)) from error
            raise
        given.append(name)
    files.sync(folder)


def forget(names: Sequence[Path], folder: int) -> None:
    """Delete the incomplete files of these names that a killed writer left.

    Raises `BackendBusy` while another process writes one of them.
    """
    is_whole = _is_same(of(names[0]).name, names[0].name, folder)
    for name in names:
        half = of(name).name
        with _dead(half, folder) as is_there:
            if not is_there:
                continue
            if not is_whole and _is_same(half, name.name, folder):
                os.unlink(name.name, dir_fd=folder)
            os.unlink(half, dir_fd=folder)


def forget_replaced(path: Path, suffix: str, rejects: str, folder: int) -> None:
    """Delete the files that killed replacements left: clean copies, rejects, and second names of the unreplaced file.

    ``suffix`` is that of a second name. All second names of a file have the same suffix up to its first hyphen.
    """
    begin, end = f".{path.name}{suffix.partition('-')[0]}-", ".tmp"
    for name in _names(path.parent):
        if not (name.startswith(begin) and name.endswith(end)):
            continue
        with suppress(BackendBusy), _dead(name, folder) as is_there:  # a file still being written is left alone
            if is_there:
                _remove_replacement(name, name[1 : -len(end)], rejects, path, folder)


def _remove_replacement(clean: str, second: str, rejects: str, path: Path, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(second + rejects, dir_fd=folder)
    if _is_same(second, path.name, folder):
        os.unlink(second, dir_fd=folder)
    os.unlink(clean, dir_fd=folder)


def _names(folder: Path) -> list[str]:
    descriptor = files.listable(folder, base=files.ROOT)
    try:
        return sorted(os.listdir(descriptor))  # noqa: PTH208 - of a descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _dead(name: str, folder: int) -> Iterator[bool]:
    """Yield True if a file exists that no process writes. The file's lock is held until the block ends."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BackendBusy(f"{name} is being written by another call") from error
        yield _is_named(descriptor, name, folder)  # not deleted or created again before the lock
    finally:
        os.close(descriptor)


def _is_named(descriptor: int, name: str, folder: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _is_same(first: str, second: str, folder: int) -> bool:
    try:
        one, other = (os.stat(name, dir_fd=folder, follow_symlinks=False) for name in (first, second))
    except FileNotFoundError:
        return False
    return os.path.samestat(one, other)


#: The kinds: a whole record, one in a damaged line, one of several in a line, a blank line, an unterminated end,
#: damage.
SectionKind: TypeAlias = Literal["record", "recovered", "glued", "blank", "torn_tail"] | Reason

SOUND = frozenset({"record", "blank"})
KINDS: tuple[str, ...] = tuple(dict.fromkeys(word for part in get_args(SectionKind) for word in get_args(part)))
SAMPLES = 1_000


class Section(NamedTuple):
    """A part of a file. ``raw`` holds a record's bytes without the newline, and is None for any other part."""

    offset: int
    length: int
    kind: SectionKind
    raw: bytes | None = None


class Part(NamedTuple):
    """The position and kind of a damaged part of a file, or of a recovered record."""

    offset: int
    length: int
    kind: SectionKind


@dataclass
class Account:
    """The contents of a file: sections and bytes of each kind, and the first 1,000 parts that are not sound."""

    sections: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    parts: list[Part] = field(default_factory=list)

    def add(self, section: Section) -> None:
        """Count a section of the file by its kind."""
        self.sections[section.kind] += 1
        self.bytes[section.kind] += section.length
        if section.kind not in SOUND and len(self.parts) < SAMPLES:
            self.parts.append(Part(*section[:3]))

    @property
    def is_sound(self) -> bool:
        """True if the file has no damage."""
        return self.sections.keys() <= SOUND

    @property
    def size(self) -> int:
        """Return the total bytes of all sections."""
        return sum(self.bytes.values())


def line_sections(reader: LineReader[Any], accepts: Accepts, size: int) -> Iterator[Section]:
    """Yield the sections of the complete lines that are unread and within the file's first ``size`` bytes."""
    for line in reader.raw_lines(size):
        yield from _of_line(line, accepts, newline=1)


def tail_sections(reader: LineReader[Any], accepts: Accepts) -> Iterator[Section]:
    """Yield the sections of the bytes that were read after the last newline."""
    line = reader.raw_tail()
    if line is not None:
        yield from _of_line(line, accepts, newline=0)


def _of_line(line: RawLine, accepts: Accepts, *, newline: int) -> Iterator[Section]:
    offset, length, raw = line
    end = offset + length + newline
    if raw is None:
        yield Section(offset, end - offset, "oversize")
        return
    verdict = judge(raw, accepts)
    kept: SectionKind = {None: "record", "glued": "glued"}.get(verdict.reason, "recovered")  # type: ignore[assignment]
    at = offset
    for piece in verdict.pieces:
        begins, stops = offset + piece.start, offset + piece.end
        if begins > at:
            yield Section(at, begins - at, _kind_of(raw[at - offset : piece.start], verdict.reason, newline))
        at = end if stops == offset + length else stops
        yield Section(begins, at - begins, kept, piece.raw)
    if at < end:
        yield Section(at, end - at, _kind_of(raw[at - offset :], verdict.reason, newline))


def _kind_of(gap: bytes, reason: Reason | None, newline: int) -> SectionKind:
    """Return the kind of a part of a line that contains no record."""
    if not gap.strip(b" \t\r"):
        return "blank"
    if not newline:
        return "torn_tail"
    return "not_object" if reason == "not_object" else reason_of(gap)
