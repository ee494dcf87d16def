"""Every byte of a line file, classified: records, recovered records, and damage.

The sections of a file follow one another without gap or overlap, so their lengths add up to its size. A newline belongs
to the section that stands before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from lastlight_state.jsonl.reader import LineReader, RawLine
from lastlight_state.jsonl.recovery import Accepts, Reason, judge, reason_of

#: A whole record, one inside a damaged line, one of several on a line, a blank line, an unterminated end, and damage.
SectionKind: TypeAlias = Literal["record", "recovered", "glued", "blank", "torn_tail"] | Reason

SOUND = frozenset({"record", "blank"})
KINDS: tuple[str, ...] = tuple(dict.fromkeys(word for part in get_args(SectionKind) for word in get_args(part)))
SAMPLES = 1_000


class Section(NamedTuple):
    """A part of a file. ``raw`` are the bytes of a record, without the newline that may follow; else None."""

    offset: int
    length: int
    kind: SectionKind
    raw: bytes | None = None


class Part(NamedTuple):
    """The place and kind of a part of a file that is damaged, or of a recovered record."""

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
        """Count a section."""
        self.sections[section.kind] += 1
        self.bytes[section.kind] += section.length
        if section.kind not in SOUND and len(self.parts) < SAMPLES:
            self.parts.append(Part(*section[:3]))

    @property
    def is_sound(self) -> bool:
        """Whether the file has no damage."""
        return self.sections.keys() <= SOUND

    @property
    def size(self) -> int:
        """The bytes of all sections."""
        return sum(self.bytes.values())


def terminated(reader: LineReader[Any], accepts: Accepts, size: int) -> Iterator[Section]:
    """The sections of all terminated lines of the file's first ``size`` bytes that were not read before."""
    for line in reader.raw_lines(size):
        yield from _of_line(line, accepts, newline=1)


def unterminated(reader: LineReader[Any], accepts: Accepts) -> Iterator[Section]:
    """The sections after the last newline, as far as read."""
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
    """The kind of a part of a line that holds no record."""
    if not gap.strip(b" \t\r"):
        return "blank"
    if not newline:
        return "torn_tail"
    return "not_object" if reason == "not_object" else reason_of(gap)
