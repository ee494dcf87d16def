"""Records in the ledger which threads were moved from another checkpointer, so that deleted threads stay deleted."""

from __future__ import annotations

from lastlight_state.db.repository import Context
from lastlight_state.db.units.unit import Unit
from lastlight_state.keys import compose_key
from lastlight_state.maintenance.imports import pieces
from lastlight_state.maintenance.imports.pieces import UnitLookup

_KIND, _TARGET = "langgraph", "thread"


def has(context: Context, key: str) -> bool:
    """True if a thread was ever moved from another checkpointer."""
    return context.scope.read(lambda unit: pieces.is_brought(unit, (_TARGET, key)))


def last(context: Context, key: str, namespace: str) -> str | None:
    """Return the id of the last checkpoint that was moved into a namespace of a thread, or None."""
    return context.scope.read(lambda unit: pieces.known_digest(_look(unit, key, namespace)))


def note(context: Context, key: str, namespace: str, checkpoint_id: str) -> None:
    """Record that a checkpoint was moved. A move has no receipt, because a checkpoint saver makes it."""
    at, target = context.clock.now(), (_TARGET, key)
    context.scope.write(
        lambda unit: pieces.note_unit(_look(unit, key, namespace), target, checkpoint_id, "imported", at),
        repeatable=True,
    )


def _look(unit: Unit, key: str, namespace: str) -> UnitLookup:
    return UnitLookup(unit, _KIND, compose_key(key, namespace), revives=False)
