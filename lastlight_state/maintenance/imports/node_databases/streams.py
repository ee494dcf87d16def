"""Converts the rows of a run's streams: events, signals, tool calls, sandboxes, scores and frames."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from lastlight_state import codec as json_codec
from lastlight_state.db import valid
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.journal import models
from lastlight_state.journal.events import checks as event_checks
from lastlight_state.journal.frames import codec
from lastlight_state.journal.models import EVENTS, FRAMES, SANDBOXES, SCORES, SIGNALS, TOOL_CALLS
from lastlight_state.journal.signals import trimmed_correlation, trimmed_name
from lastlight_state.maintenance.imports import cells
from lastlight_state.maintenance.imports.cells import Row
from lastlight_state.maintenance.imports.node_databases.source_rows import (
    SourceRow,
    Terms,
    fit_text,
    id_of,
    map_word,
    moment,
)

# Converts events and signals, which keep their numbers.

_EVENT, _SIGNAL = limits_of(EVENTS), limits_of(SIGNALS)
_ID = cells.name(_EVENT.run_id)


def event(terms: Terms, row: Row) -> Row:
    """Convert an event. Its payload names the node."""
    found = SourceRow(terms, "_smithers_events", row, "seq", adapts=True)
    payload = found.json("payload_json", _EVENT.payload)
    if payload is not None and not isinstance(payload, dict):
        raise InvalidValue(f"_smithers_events {row['seq']!s:.80}.payload_json", "must be an object")
    payload = found.add_adapted(payload or {}, _EVENT.payload) or {}
    made = event_checks.row(
        found.must("run_id", _ID),
        found.must("type", cells.name(_EVENT.type)),
        payload,
        found.must("timestamp_ms", moment),
        None,
        None,
    )
    return {**made, "seq": found.must("seq", valid.number), "payload": payload}


def signal(terms: Terms, row: Row) -> Row:
    """Convert a signal. The source does not state who consumed it."""
    found = SourceRow(terms, "_smithers_signals", row, "seq")
    return {
        "run_id": found.must("run_id", _ID),
        "seq": found.must("seq", valid.number),
        "signal_name": found.must("signal_name", trimmed_name),
        "correlation_id": found.may("correlation_id", trimmed_correlation),
        "received_at": found.must("received_at_ms", moment),
        "received_by": found.may("received_by", cells.name(_SIGNAL.received_by)),
        "payload": found.json("payload_json", _SIGNAL.payload),
    }


def counters(run_id: str, numbers: Mapping[str, Sequence[int]]) -> Iterator[Row]:
    """Yield the counter of each stream. A counter's value is one above the highest number in the stream."""
    for stream, given in numbers.items():
        if given:
            yield {"run_id": run_id, "stream": stream, "next_seq": max(given) + 1}


def numbers(rows: Sequence[Row], column: str = "seq") -> list[Any]:
    """Return the numbers of these rows."""
    return [row[column] for row in rows]


# Converts what belongs to a run's attempts: tool calls, sandboxes and scores.

_CALL, _SANDBOX, _SCORE = limits_of(TOOL_CALLS), limits_of(SANDBOXES), limits_of(SCORES)

_NAME = cells.name(256)
_TOOL_STATUSES = {
    **dict.fromkeys(("success", "succeeded", "finished"), "succeeded"),
    **dict.fromkeys(("error", "failed"), "failed"),
    "cancelled": "cancelled",
    "running": models.RUNNING,
}
_SANDBOX_STATUSES = {**{word: word for word in models.SANDBOX_STATUSES}, "finished": "completed"}
_PLACED_SANDBOX = {
    *("run_id", "sandbox_id", "runtime", "remote_run_id", "workspace_id", "container_id", "config_json", "status"),
    *("shipped_at_ms", "completed_at_ms", "bundle_path"),
}
_SCORED = ("node_id", "iteration", "attempt", "scorer_id", "source")


def tool_call(terms: Terms, row: Row, executions: Collection[str]) -> Row:
    """Convert a tool call, without a number: the source numbers calls within an attempt, the library within the run.

    ``executions`` are the ids of all executions of the run.
    """
    found = SourceRow(terms, "_smithers_tool_calls", row, "seq")
    run_id, node = found.must("run_id", _NAME), found.must("node_id", _NAME)
    place = [found.must(name, valid.number) for name in ("iteration", "attempt", "seq")]
    begun, ended = found.must("started_at_ms", moment), found.may("finished_at_ms", moment)
    execution = id_of(run_id, node, *place[:2])
    return {
        "run_id": run_id,
        "node_id": node,
        "iteration": place[0],
        "attempt": place[1],
        "execution_id": execution if execution in executions else None,
        "call_id": fit_text(":".join(map(str, (node, *place))), 256),
        "tool_name": found.must("tool_name", _NAME),
        "status": found.must("status", partial(map_word, _TOOL_STATUSES)),
        "started_at": begun,
        "finished_at": ended,
        "duration_ms": None if ended is None else max(0, round((ended - begun).total_seconds() * 1000)),
        "output_ref": None,
        **{name: found.json(f"{name}_json", getattr(_CALL, name)) for name in ("input", "output", "error")},
    }


def sandbox(terms: Terms, row: Row, run: Row) -> Row:
    """Convert a sandbox. The source states when it was shipped and ended, but not when it was created."""
    found = SourceRow(terms, "_smithers_sandboxes", row, "sandbox_id", adapts=True)
    shipped, completed = (found.may(f"{name}_at_ms", moment) for name in ("shipped", "completed"))
    made: Row = {
        "run_id": found.must("run_id", _NAME),
        "sandbox_id": found.must("sandbox_id", _NAME),
        "runtime": found.must("runtime", _NAME),
        "status": found.must("status", partial(map_word, _SANDBOX_STATUSES)),
        **{name: found.may(name, _NAME) for name in ("remote_run_id", "workspace_id", "container_id")},
        "bundle_path": found.may("bundle_path", cells.name(_SANDBOX.bundle_path)),
        "shipped_at": shipped,
        "completed_at": completed,
        "created_at": run["started_at"],
        "updated_at": completed or shipped or run["started_at"],
    }
    config = found.json("config_json", _SANDBOX.config, dict) or {}
    return {**made, "config": {**config, **(found.other_values(_PLACED_SANDBOX, _SANDBOX.config) or {})}}


def scores(terms: Terms, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the scores, the oldest first. If one scorer gave several scores for one attempt, the last is current."""
    made = sorted((_score(terms, row) for row in rows), key=lambda one: (one["scored_at"], one["id"]))
    later: dict[tuple[Any, ...], datetime] = {}
    for one in reversed(made):
        place = tuple(one[name] for name in _SCORED)
        yield {**one, "superseded_at": later.get(place)}
        later[place] = one["scored_at"]


def _score(terms: Terms, row: Row) -> Row:
    found = SourceRow(terms, "_smithers_scorers", row, "id", adapts=True)
    made: Row = {
        "id": found.must("id", _NAME),
        "run_id": found.must("run_id", _NAME),
        **{name: found.must(name, _NAME) for name in ("node_id", "scorer_id", "scorer_name")},
        **{name: found.must(name, valid.number) for name in ("iteration", "attempt")},
        "source": found.must("source", partial(valid.word, vocabulary=models.SCORE_SOURCES)),
        "score": found.must("score", cells.real),
        **{name: found.may(name, cells.real) for name in ("latency_ms", "duration_ms")},
        "scored_at": found.must("scored_at_ms", moment),
        "reason": found.may("reason", cells.text(_SCORE.reason)),
        **{name: found.json(f"{name}_json", getattr(_SCORE, name)) for name in ("input", "output")},
        "expected": None,
    }
    meta = found.json("meta_json", _SCORE.meta)
    kept = found.add_adapted({}, _SCORE.meta)
    return {**made, "meta": meta if kept is None else {"meta": meta, **kept}}


_LIMITS = limits_of(FRAMES)

_ENCODINGS = {name: name for name in ("full", "keyframe", "delta")}
_DELTA = "delta"


def frames(terms: Terms, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the frames in their order. Each is decoded and encoded again, so that an unreadable frame is refused.

    A lenient import leaves out such a frame and the changes that follow from it, and counts them.
    """
    before: tuple[int, str] | None = None
    for row in rows:
        found = SourceRow(terms, "_smithers_frames", row, "frame_no")
        try:
            made, text = _frame(found, before)
        except InvalidValue:
            if not terms.lenient:
                raise
            terms.noticed["frame_unreadable"] += 1
            before = None
        else:
            before = made["frame_no"], text
            terms.noticed["xml_hash_left"] += row.get("xml_hash") not in (None, made["content_hash"])
            yield made


def _frame(found: SourceRow, before: tuple[int, str] | None) -> tuple[Row, str]:
    number = found.must("frame_no", valid.number)
    body = found.must("xml_json", cells.text(_LIMITS.body))
    encoding = map_word(_ENCODINGS, "encoding", found.row.get("encoding") or "full")
    text = _text(number, body, encoding, before)
    made = {
        "run_id": found.must("run_id", cells.name(_LIMITS.run_id)),
        "frame_no": number,
        "created_at": _creation_time(found),
        "encoding": encoding,
        "content_hash": codec.digest(text),
        "full_bytes": len(text.encode()),
        "note": found.may("note", cells.text(_LIMITS.note)),
        "mounted_task_ids": _ids(number, found.json("mounted_task_ids_json", _LIMITS.mounted_task_ids, list)),
        "task_index": _index(found.json("task_index_json", _LIMITS.task_index, (list, dict))),
        "body": body if encoding == _DELTA else text,
    }
    return made, text


def _creation_time(found: SourceRow) -> datetime:
    created: datetime = found.must("created_at_ms", moment)
    return created


def _text(number: int, body: str, encoding: str, before: tuple[int, str] | None) -> str:
    """Return the canonical text of a frame. Raises `InvalidValue` for a change to a frame that is missing."""
    where = f"_smithers_frames {number}.xml_json"
    is_change = encoding == _DELTA
    if is_change and (before is None or before[0] != number - 1):
        raise InvalidValue(where, "changes a frame that is not there")
    try:
        if before is None or not is_change:
            return codec.canonical(json_codec.decode(body))
        return codec.canonical(codec.replay_deltas(json_codec.decode(before[1]), [body]))
    except InvalidValue as error:
        raise InvalidValue(where, f"{error.where}: {error.problem}") from None
    except ValueError as error:
        raise InvalidValue(where, f"is not JSON: {error}") from None


def _ids(number: int, value: Any) -> Any:
    if value is not None and not all(isinstance(one, str) for one in value):
        raise InvalidValue(f"_smithers_frames {number}.mounted_task_ids_json", "must be a list of ids")
    return value


def _index(value: Any) -> Any:
    """Return the index of tasks as an object. If the source has a list, the list is put under the key ``tasks``."""
    return {"tasks": value} if isinstance(value, list) else value
