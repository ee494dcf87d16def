"""The input of a run, as its first revision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lastlight_state import codec
from lastlight_state.db.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.imports.cells import Row
from lastlight_state.maintenance.imports.node_databases.found import Found, Terms
from lastlight_state.outputs import columned
from lastlight_state.outputs.tables import INPUTS

_MOST = limits_of(INPUTS)

#: The table of the inputs, keyed by the run alone.
TABLE = "input"
#: The table that may have the input of a run as it was passed, and how its first row is found.
SNAPSHOTS = "_smithers_snapshots"
FIRST_SNAPSHOT = "WHERE run_id = ? AND input_json <> '' ORDER BY frame_no LIMIT 1"
_PAYLOAD = "payload"


def revision(terms: Terms, run: Row, row: Row, snapshots: Sequence[Row]) -> Row:
    """Revision 0. NULL in place of the payload is what a run without input has.

    Typed columns forget how their values were passed: a snapshot that agrees with them tells it.
    """
    found = Found(terms, TABLE, row, "run_id")
    payload = _of_one_column(found)
    is_typed = set(row) != {"run_id", _PAYLOAD}
    if is_typed:
        payload = _told(payload | _of_columns(row), snapshots)
    codec.encode(f"input {run['id']:.80}", payload, max_bytes=_MOST.payload)
    return {
        "run_id": run["id"],
        "revision": 0,
        "created_at": run["started_at"],
        "created_by": None,
        "reason": columned.REASON if is_typed else None,
        "payload": payload,
        "given": None,
    }


def _of_one_column(found: Found) -> Row:
    payload = found.json(_PAYLOAD, _MOST.payload)
    if payload is not None and not isinstance(payload, dict):
        raise InvalidValue(f"input.{_PAYLOAD}", f"must be an object, not {type(payload).__name__}")
    return payload or {}


def _of_columns(row: Row) -> Row:
    """The values of typed columns. NULL stays null."""
    return {name: _value(value) for name, value in row.items() if name not in ("run_id", _PAYLOAD)}


def _value(value: Any) -> Any:
    """The list or object of a text that holds one, and any other value as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return codec.decode(value)
        except ValueError:
            return value
    return value


def _told(payload: Row, snapshots: Sequence[Row]) -> Row:
    """The payload as a snapshot has it, if the columns would hold the same of it."""
    for snapshot in snapshots:
        told = _value(snapshot["input_json"])
        if isinstance(told, dict) and columned.folded(told) == columned.folded(payload):
            return told
    return payload
