"""What happened in a run, as rows of ours: events and signals keep their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.journal.events import checks as event_checks
from lastlight_state.journal.signals.checks import trimmed_correlation, trimmed_name
from lastlight_state.journal.tables import EVENTS, SIGNALS
from lastlight_state.maintenance.imports import cells
from lastlight_state.maintenance.imports.cells import Row
from lastlight_state.maintenance.imports.node_databases.found import Found, Terms, moment

_EVENT, _SIGNAL = limits_of(EVENTS), limits_of(SIGNALS)
_ID = cells.name(_EVENT.run_id)


def event(terms: Terms, row: Row) -> Row:
    """An event. Its node is the one that its payload names."""
    found = Found(terms, "_smithers_events", row, "seq", adapts=True)
    payload = found.json("payload_json", _EVENT.payload)
    if payload is not None and not isinstance(payload, dict):
        raise InvalidValue(f"_smithers_events {row['seq']!s:.80}.payload_json", "must be an object")
    payload = found.kept(payload or {}, _EVENT.payload) or {}
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
    """A signal. The source does not say who took it."""
    found = Found(terms, "_smithers_signals", row, "seq")
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
    """The next number of each stream, behind those that were given."""
    for stream, given in numbers.items():
        if given:
            yield {"run_id": run_id, "stream": stream, "next_seq": max(given) + 1}


def numbers(rows: Sequence[Row], column: str = "seq") -> list[Any]:
    """The numbers of rows."""
    return [row[column] for row in rows]
