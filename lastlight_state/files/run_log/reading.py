"""Reading the records of one log in file order, with an account of missing records.

Every whole record is returned. Everything else is skipped, counted and located; no content of a file makes the reading
raise. Memory depends on the longest line, never on the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Literal, TypeAlias

from lastlight_state.db.rows.records import Record
from lastlight_state.errors import NewerSchema
from lastlight_state.files.jsonl import recovery
from lastlight_state.files.jsonl.cursor import BLOCK_BYTES, in_blocks
from lastlight_state.files.jsonl.reader import Line, LineKind, LineReader, RawLine
from lastlight_state.files.jsonl.recovery import Reason
from lastlight_state.files.run_log import paths, storage
from lastlight_state.files.run_log.records import RunEnd, RunHeader, RunRecord, accepts, record_of_piece
from lastlight_state.files.run_log.storage import Liveness
from lastlight_state.files.run_log.tree import RunFile, RunTree, openings

DamageReason: TypeAlias = Reason | Literal["no_type", "duplicate_header"]

#: The most damaged places that a reading lists; all are counted.
DAMAGES_KEPT = 1_000


class Damage(Record):
    """A part of a log that contains no record: its offset and length, and its line if reading began at line 1."""

    reason: DamageReason
    line: int | None
    offset: int
    length: int


class Placed:
    """A record with its position. ``line`` counts from 1."""

    __slots__ = ("line", "offset", "record")

    def __init__(self, record: RunRecord, line: int, offset: int) -> None:
        self.record = record
        self.line = line
        self.offset = offset


class RunReading:
    """The records of a run. Iterate over this object to read; its attributes are complete after the iteration.

    ``header`` is None if its line is missing or damaged; ``run_id`` and ``started_at`` then come from the file's name
    and directory. ``supported`` is True if this library knows the version. ``counts`` has the number of records by
    type. ``damage`` are the first 1,000 of ``damage_count`` places without a record. ``misfits`` counts known records
    with a field that does not fit, ``bad_times`` records whose ``ts`` cannot be parsed, ``recovered`` records found
    inside damaged lines. ``torn`` is True if the file ends in the middle of a line, which begins at ``torn_at``. That
    is damage unless the run's writer is alive.
    """

    def __init__(
        self, tree: RunTree, file: RunFile, *, types: Collection[str] | None = None, strict_version: bool = False
    ) -> None:
        self.run_id = file.run_id
        self.path: Path = file.path
        self.header: RunHeader | None = None
        self.counts: Counter[str] = Counter()
        self.damage: list[Damage] = []
        self.damage_count = 0
        self.misfits = 0
        self.bad_times = 0
        self.recovered = 0
        self.torn = False
        self.torn_at: int | None = None
        self.ended = False
        self.size = 0
        self._tree = tree
        self._file = file
        self._types = None if types is None else frozenset([types] if isinstance(types, str) else types)
        self._strict_version = strict_version
        self._accepts = accepts(file.run_id)
        self._line = 0

    @property
    def supported(self) -> bool:
        """True if the header has the version that this library knows. False for a file without a header."""
        return self.header is not None and is_supported(self.header)

    @property
    def started_at(self) -> datetime:
        """Return the start of the run from its header, or else the beginning of the day of the log's directory."""
        told = self.header.started_at if self.header else None
        return told or datetime.combine(self._file.day, time(), UTC)

    def liveness(self) -> Liveness:
        """Return the state of the run's lock: ``held`` while its writer is alive, ``free`` or ``unknown``."""
        return storage.liveness(self._tree.lock_path(self.run_id))

    def __iter__(self) -> Iterator[RunRecord]:
        """Yield the records of the requested types. Each iteration reads the file again."""
        types = self._types
        for placed in self.placed():
            if types is None or placed.record.type in types:
                yield placed.record

    def placed(self) -> Iterator[Placed]:
        """Yield all records, with their positions."""
        self._begin()
        reader = LineReader(-1, self.path, LineKind(Line, self._accepts), block_bytes=BLOCK_BYTES)
        with openings(self._file) as opened:
            for raw in in_blocks(self.path, opened, reader.raw_batch):
                yield from self._judge_line(raw)
        tail = reader.raw_tail()
        if tail is not None:
            yield from self._tail(tail)
        self.size = reader.position

    def _begin(self) -> None:
        self.counts = Counter()
        self.damage = []
        self.damage_count = self.misfits = self.bad_times = self.recovered = self._line = 0
        self.torn = self.ended = False
        self.torn_at = self.header = None

    def _judge_line(self, line: RawLine) -> Iterator[Placed]:
        self._line += 1
        if line.raw is None:
            self._report("oversize", line.offset, line.length)
            return
        pieces, reason = recovery.judge(line.raw, self._accepts)
        if reason is not None:
            self._report(reason, line.offset, line.length)
        for piece in pieces:
            placed = self._place_record(piece, line.offset + piece.start, recovered=reason is not None)
            if placed is not None:
                yield placed

    def _tail(self, line: RawLine) -> Iterator[Placed]:
        """Yield the last line without a newline if it is a whole object. A part of an object can never be parsed."""
        verdict = recovery.Verdict((), "oversize") if line.raw is None else recovery.judge(line.raw, self._accepts)
        if verdict.reason is None:
            yield from self._judge_line(line)
            return
        self.torn, self.torn_at = True, line.offset
        if self.liveness() != "held":
            yield from self._judge_line(line)

    def _place_record(self, piece: recovery.Piece, offset: int, *, recovered: bool) -> Placed | None:
        """Return the record and position of an object; None for an object that is not a record."""
        kind = piece.value.get("type")
        if not isinstance(kind, str):
            self._report("no_type", offset, len(piece.raw))
            return None
        if kind == "header" and self.header is not None:
            self._report("duplicate_header", offset, len(piece.raw))
            return None
        record = record_of_piece(piece, recovered=recovered)
        self.recovered += recovered
        self._count(record)
        return Placed(record, self._line, offset)

    def _count(self, record: RunRecord) -> None:
        self.counts[record.type] += 1
        if self._strict_version and self.header is None and not _says_version(record):
            raise newer(f"run {self.run_id}", getattr(record, "schema_version", None))
        if isinstance(record, RunHeader):
            self.header = record
        elif record.problem is not None:
            self.misfits += 1
        elif record.ts is None:
            self.bad_times += 1
        if isinstance(record, RunEnd):
            self.ended = True

    def _report(self, reason: DamageReason, offset: int, length: int) -> None:
        self.damage_count += 1
        if len(self.damage) < DAMAGES_KEPT:
            self.damage.append(Damage(reason=reason, line=self._line, offset=offset, length=length))


def is_supported(header: RunHeader) -> bool:
    """True if a header's format version is the one that this library knows."""
    version = header.schema_version
    return "schema_version" in header.model_fields_set and type(version) is int and version == paths.VERSION


def _says_version(record: RunRecord) -> bool:
    return isinstance(record, RunHeader) and is_supported(record)


def newer(what: str, found: object) -> NewerSchema:
    """Return the error for a file of an unsupported version."""
    return NewerSchema(found=str(found), head=str(paths.VERSION), min_reader=str(found), what=what)
