"""The input of a run, as its first revision."""

from __future__ import annotations

from typing import Any

from lastlight_state import codec
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.imports.cells import Row
from lastlight_state.maintenance.imports.node_databases.found import Found, Terms
from lastlight_state.outputs import words

#: The table of the inputs, keyed by the run alone.
TABLE = "input"
_PAYLOAD = "payload"


def revision(terms: Terms, run: Row, row: Row) -> Row:
    """Revision 0. NULL in place of the payload is what a run without input has."""
    found = Found(terms, TABLE, row, "run_id")
    if set(row) != {"run_id", _PAYLOAD}:
        raise InvalidValue(TABLE, "its columns must be run_id and payload")
    payload = _of_one_column(found)
    codec.encode(f"input {run['id']:.80}", payload, max_bytes=words.INPUT, max_depth=words.INPUT_DEPTH)
    return {
        "run_id": run["id"],
        "revision": 0,
        "created_at": run["started_at"],
        "created_by": None,
        "reason": None,
        "payload": payload,
        "given": None,
    }


def _of_one_column(found: Found) -> Any:
    payload = found.json(_PAYLOAD, words.INPUT)
    if payload is not None and not isinstance(payload, dict):
        raise InvalidValue(f"input.{_PAYLOAD}", f"must be an object, not {type(payload).__name__}")
    return payload or {}
