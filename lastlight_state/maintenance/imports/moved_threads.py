"""The ledger lines of threads that were moved from another checkpointer: one that was deleted here stays deleted."""

from __future__ import annotations

from lastlight_state.db.repository import Context
from lastlight_state.maintenance.imports import pieces
from lastlight_state.maintenance.imports.pieces import UnitLookup

_KIND, _TARGET = "langgraph", "thread"


def has(context: Context, key: str) -> bool:
    """Return whether a thread was moved once."""
    return context.scope.reading(lambda unit: pieces.known(UnitLookup(unit, _KIND, key, revives=False)) is not None)


def note(context: Context, key: str) -> None:
    """Keep that a thread was moved. No receipt stands behind it: a move is a call of a saver."""
    at = context.clock.now()
    context.scope.writing(
        lambda unit: pieces.note_unit(UnitLookup(unit, _KIND, key, revives=False), (_TARGET, key), "", "imported", at),
        repeatable=True,
    )
