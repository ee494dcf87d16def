"""Records of scans and repairs of line files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lastlight_state.db.records import Record


class DamagedPart(Record):
    """A part of a line file: damage, or a record that was found in a damaged line."""

    offset: int
    length: int
    kind: str


class LineFileScan(Record):
    """The contents of a line file: number of sections and of bytes, by kind. The bytes add up to the file's size.

    Kinds: ``record``; ``recovered`` and ``glued``, which are records in damaged lines; ``blank``; ``torn_tail``; and
    damage: ``torn``, ``nul_bytes``, ``bad_utf8``, ``bad_json``, ``not_object``, ``oversize``. ``samples`` are the first
    20 parts that are not sound. ``problem`` says why a file below a directory could not be read: such a file is not
    sound, and nothing is known of its sections.
    """

    path: Path
    size: int
    sound: bool
    sections: Mapping[str, int]
    section_bytes: Mapping[str, int]
    samples: tuple[DamagedPart, ...]
    problem: str | None = None


class Repaired(Record):
    """The result of a repair. For a sound file ``copy_path`` is None and nothing is written.

    ``copy_path`` is the clean copy; for a replaced file it is the file's own path, and ``damaged`` is the second name
    of the old one, and ``receipt_id`` its receipt if a database is at hand. ``rejects`` is the file with all bytes that
    belong to no record, or None if there are none.
    """

    scan: LineFileScan
    copy_path: Path | None
    rejects: Path | None
    damaged: Path | None
    receipt_id: str | None = None
