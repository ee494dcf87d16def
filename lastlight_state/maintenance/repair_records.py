"""What callers of repairs get."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lastlight_state.db.records import Record


class DamagedPart(Record):
    """A part of a line file that is damaged, or a record found beside damage."""

    offset: int
    length: int
    kind: str


class LineFileScan(Record):
    """What a line file consists of: sections and bytes by kind. The bytes add up to its size.

    Kinds: ``record``, ``recovered`` and ``glued`` (records in damaged lines), ``blank``, ``torn_tail``, and the damage:
    ``torn``, ``nul_bytes``, ``bad_utf8``, ``bad_json``, ``not_object``, ``oversize``. ``samples`` are the first 20
    parts that are not sound.
    """

    path: Path
    size: int
    sound: bool
    sections: Mapping[str, int]
    section_bytes: Mapping[str, int]
    samples: tuple[DamagedPart, ...]


class Repaired(Record):
    """What was done about a file. Of a sound one there is no ``copy``, and nothing was written.

    ``rejects`` holds what is in no record, None where that is nothing. ``damaged`` is the second name of a file that
    was replaced; then ``copy`` is its path.
    """

    scan: LineFileScan
    copy_path: Path | None
    rejects: Path | None
    damaged: Path | None
