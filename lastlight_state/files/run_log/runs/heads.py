"""The first and last lines of logs, from which lists describe the runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any, NamedTuple

from lastlight_state.db.rows.records import Page, Record
from lastlight_state.files.jsonl import recovery
from lastlight_state.files.jsonl.cursor import read_tail
from lastlight_state.files.jsonl.reader import Line, LineKind, read_at
from lastlight_state.files.run_log import paths, storage
from lastlight_state.files.run_log.fields import JsonObject
from lastlight_state.files.run_log.paths import RunState
from lastlight_state.files.run_log.reading import Damage
from lastlight_state.files.run_log.records import RunRecord, accepts, is_custom
from lastlight_state.files.run_log.tree import RunFile, RunTree, open_run

# Facts about runs that are found without reading whole logs.


class RunEntry(Record):
    """A run in a list, described by the first and last lines of its log.

    ``state`` is ``ended`` if the log has a ``run.end``. Otherwise it is ``running`` while the run's writer is alive,
    else ``crashed``. ``outcome`` is taken from ``run.end``; ``input_preview`` has at most 200 characters.
    ``size_bytes`` is the log's size before packing. ``schema_version`` is None without a header.
    """

    run_id: str
    session_id: str | None
    started_at: datetime
    last_ts: datetime | None
    state: RunState
    outcome: str | None
    model_name: str | None
    input_preview: str | None
    size_bytes: int
    schema_version: Any
    path: Path


class RunPage(Page[RunEntry]):
    """A page of runs. ``skipped`` counts logs that could not be opened."""

    skipped: int = 0


class PruneReport(Record):
    """The logs that were deleted, or would be with ``dry_run``, and their bytes on disk.

    ``skipped`` counts logs that could not be read, and logs that were being written.
    """

    run_ids: tuple[str, ...]
    size_bytes: int
    skipped: int
    dry_run: bool


class TailChunk(Record):
    """A chunk of a run's records. Pass ``cursor`` as ``after`` to `tail` for the next chunk.

    Pass ``before`` as ``before`` to `last` for the chunk before.

    ``live`` is True while the run's writer is alive; ``ended`` is True if the log has its ``run.end``. ``at_end`` is
    True if nothing followed this chunk. ``reset`` is True if the cursor belonged to another or a truncated file, so
    that this chunk begins at the start.
    """

    records: tuple[RunRecord, ...]
    cursor: str
    before: str
    live: bool
    ended: bool
    at_end: bool
    reset: bool
    damage: tuple[Damage, ...] = ()


PREVIEW = 200
#: The most cached heads. Headers are never rewritten.
_KEPT = 20_000
_BLOCK_BYTES = 16 * 1024
#: The most bytes that are unpacked of a packed log for its first lines.
_USUAL_HEAD = 256 * 1024
_LARGEST_HEAD = 4 * 1024 * 1024
#: The most lines read for the input, which follows the header, and the lines checked if they exist.
_USUAL_LINES, _FIRST_LINES = 2, 4
STATES: dict[storage.Liveness, RunState] = {"held": "running", "free": "crashed", "unknown": "unknown"}


class Head(NamedTuple):
    """The facts about a run that the first lines of its log contain."""

    session_id: str | None
    started_at: datetime
    model_name: str | None
    schema_version: Any
    preview: str | None


class End(NamedTuple):
    """The end of a log: the time of its last line, and the run's outcome if the run has ended."""

    last_ts: datetime | None
    is_ended: bool
    outcome: str | None


class Heads:
    """Reads the first lines of logs, and caches the results that are complete."""

    def __init__(self, tree: RunTree) -> None:
        self._tree = tree
        self._known: dict[tuple[Path, int], Head] = {}
        self._packed: dict[tuple[Path, int], RunEntry] = {}

    def of(self, file: RunFile) -> Head:
        """Return the head of a log. Raises `NotFound` if the log has vanished, `BackendUnavailable`."""
        key = file.path, file.inode
        known = self._known.get(key)
        if known is not None:
            return known
        head, is_complete = _read_head(file, _USUAL_HEAD if file.is_packed else None)
        if file.is_packed and not is_complete:
            head, is_complete = _read_head(file, None)
        if is_complete:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = head
        return head

    def entry(self, file: RunFile) -> RunEntry:
        """Return the run's entry in lists. Raises as `of`. A packed log is read only once, because it never changes."""
        if not file.is_packed:
            return self._entry(file)
        key = file.path, file.inode
        known = self._packed.get(key)
        if known is None:
            if len(self._packed) >= _KEPT:
                self._packed.clear()
            known = self._packed[key] = self._entry(file)
        return known

    def _entry(self, file: RunFile) -> RunEntry:
        head = self.of(file)
        descriptor = open_run(file)
        try:
            size = os.fstat(descriptor).st_size
            end = end_of(descriptor, file, size)
        finally:
            os.close(descriptor)
        state = "ended" if end.is_ended else STATES[storage.liveness(self._tree.lock_path(file.run_id))]
        return RunEntry(
            run_id=file.run_id,
            session_id=head.session_id,
            started_at=head.started_at,
            last_ts=end.last_ts,
            state=state,
            outcome=end.outcome,
            model_name=head.model_name,
            input_preview=head.preview,
            size_bytes=size,
            schema_version=head.schema_version,
            path=file.path.relative_to(self._tree.root),
        )


def end_of(descriptor: int, file: RunFile, size: int) -> End:
    """Return the end of a log. Reads backwards, past late outputs and custom records after ``run.end``."""
    kind = LineKind(Line, accepts(file.run_id))
    last_ts: datetime | None = None
    before, is_first = size, True
    while lines := read_tail(descriptor, file.path, kind, n=1, before=before).lines:
        line = lines[0]
        if is_first:
            last_ts, is_first = paths.moment_of(line.value.get("ts")), False
        kind_of_line = line.value.get("type")
        if kind_of_line == "run.end":
            outcome = line.value.get("outcome")
            return End(last_ts, True, outcome if isinstance(outcome, str) else None)
        if not (isinstance(kind_of_line, str) and (kind_of_line == "tool.output" or is_custom(kind_of_line))):
            break
        before = line.offset
    return End(last_ts, False, None)


def _read_head(file: RunFile, most: int | None) -> tuple[Head, bool]:
    descriptor = open_run(file, most)
    try:
        return _head(file, list(_first_lines(descriptor, file)))
    finally:
        os.close(descriptor)


def _first_lines(descriptor: int, file: RunFile) -> Iterator[JsonObject]:
    """Yield the JSON objects of a log's first lines, up to the first line that is not one."""
    data, is_all = b"", False
    size = _BLOCK_BYTES
    while data.count(b"\n") < _USUAL_LINES and len(data) < _LARGEST_HEAD and not is_all:
        block = read_at(descriptor, file.path, size, len(data))
        is_all = not block
        data += block
        size *= 2
    for raw in data.split(b"\n")[: _FIRST_LINES if is_all else -1][:_FIRST_LINES]:
        for piece in recovery.judge(raw, accepts(file.run_id)).pieces:
            yield piece.value


def _head(file: RunFile, lines: list[JsonObject]) -> tuple[Head, bool]:
    header = next((line for line in lines if line.get("type") == "header"), {})
    start = next((line for line in lines if line.get("type") == "run.start"), None)
    model = header.get("model")
    session_id = header.get("session_id") or (start or {}).get("session_id")
    head = Head(
        session_id if isinstance(session_id, str) else None,
        paths.moment_of(header.get("started_at")) or datetime.combine(file.day, time(), UTC),
        _text(model.get("name")) if isinstance(model, dict) else None,
        header.get("schema_version"),
        None if start is None else preview_of(start.get("input")),
    )
    return head, start is not None  # the header comes before it, or not at all


def preview_of(given: Any, most: int = PREVIEW) -> str | None:
    """Return the first characters of a run's input. Images in its parts are shown as ``[image]``."""
    text = input_text(given)
    return None if text is None else text[:most]


def input_text(given: Any) -> str | None:
    """Return the text of a run's input: its ``text``, or its parts joined."""
    if not isinstance(given, dict):
        return None
    if isinstance(given.get("text"), str):
        return str(given["text"])
    parts = given.get("parts")
    return parts_text(parts) if isinstance(parts, list) else None


def parts_text(parts: list[Any]) -> str:
    """Return the parts of a message as one text, joined without a separator, as the original program joins them.

    A part that is not text is shown by its kind: ``[image]``, ``[document]``, ``[other:…]``.
    """
    return "".join(_part_text(part) for part in parts)


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return "[other]"
    if isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type")
    if isinstance(kind, str) and kind.startswith("image"):
        return "[image]"
    if kind in ("document", "file"):
        return "[document]"
    return f"[other:{kind}]" if isinstance(kind, str) else "[other]"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
