"""What a caller says about runs, nodes and iterations, checked and as statements name it."""

from __future__ import annotations

from typing import Any, TypedDict

from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.outputs import words
from lastlight_state.outputs.tables import HISTORY

#: Output tables have the keys of their history; reasons are those of inputs, too.
_MOST = limits_of(HISTORY)


class Place(TypedDict):
    """The key of a row."""

    run_id: str
    node_id: str
    iteration: int


def run_id(value: Any) -> str:
    """The id of a run to write for."""
    return valid.identifier("run_id", value, _MOST.run_id)


def place(run: Any, node_id: Any, iteration: Any) -> Place:
    """Return the key of a row to write."""
    return {
        "run_id": valid.identifier("run_id", run, _MOST.run_id),
        "node_id": valid.identifier("node_id", node_id, _MOST.node_id),
        "iteration": valid.number("iteration", iteration, most=words.LAST_ITERATION),
    }


def sought(run: Any, node_id: Any, iteration: Any) -> Place:
    """Return the key of a row to look for."""
    return {
        "run_id": valid.sought("run_id", run),
        "node_id": valid.sought("node_id", node_id),
        "iteration": valid.number("iteration", iteration),
    }


def reason(value: Any) -> str:
    """Why something is changed: text for people, which must not be empty."""
    text = valid.content("reason", value, _MOST.reason)
    if not text.strip():
        raise InvalidValue("reason", "must say why")
    return text
