"""Finds out whether a unit was imported from the source that is read now, by its path and the identity of the file.

A unit with the name of a stored unit but other content is refused, and nothing is written. So is a unit that changed
both in the store and in its source. A file that was deleted and created again counts as another source, even at the
same path.

A copy of a session or run at another place continues the stored session or run if it has everything that the last
import stored. A chat continues if its source begins with the messages of the last import. An empty session, chat or
team, or a run without events and executions, cannot be recognised by content. It continues only from the same file or
folder.

A unit of one row (an override, a cron, a cached result) is updated from the file of its last import, but not from a
file that was created again at that path. It is updated from a file that was moved or rewritten if another unit in the
file is unchanged and no other file is at the old path. Otherwise the error explains what to do. A namespace of chunks
belongs to the file from which it was created.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.rows.statements import bind, statement_of
from lastlight_state.maintenance.imports.pieces import ImportUnit, UnitLookup
from lastlight_state.receipts.models import LEDGER, RECEIPTS

_l = LEDGER.c
_policies = sa.select(RECEIPTS.c.policy).select_from(LEDGER.join(RECEIPTS, RECEIPTS.c.id == _l.receipt_id))
_POLICY = statement_of(_policies.where(*(_l[name] == bind(name, _l[name]) for name in ("source_kind", "source_key"))))
_BROUGHT_BY = statement_of(
    _policies.where(*(_l[name] == bind(name, _l[name]) for name in ("target_kind", "target_id")))
    .order_by(_l.imported_at.desc())
    .limit(1)
)


def removed_of_another(look: UnitLookup, piece: ImportUnit) -> Sequence[str]:
    """Return the report's text for a unit that another source had and that was removed in the store.

    Otherwise nothing.
    """
    target_kind, target_id = piece.target
    policy = look.view.value(_BROUGHT_BY, {"target_kind": target_kind, "target_id": target_id})
    where = policy.get("source") if isinstance(policy, dict) else None
    if where is None or where in {look.source, *look.moved}:
        return ()
    return (f"was removed here, and came from {where!r:.200}",)


def is_from_here(look: UnitLookup) -> bool:
    """True if the last import of the unit read the same path or server."""
    return last_source(look) == look.source


def is_of_source(look: UnitLookup) -> bool:
    """True if the last import of the unit read this source, at this path or at one from which the source has moved."""
    return last_source(look) in {look.source, *look.moved}


def is_of_file(look: UnitLookup) -> bool:
    """True if the unit belongs to this source, and its file was not created again since the last import."""
    policy = _last_policy(look)
    where = policy.get("source")
    return where in look.moved or (where == look.source and _is_file(policy.get("file") or (), look.file))


def is_shown(look: UnitLookup) -> bool:
    """True if the unit provably belongs to this file. In WAL mode, a matching inode is not enough as proof."""
    return is_of_file(look) and (last_source(look) in look.moved or not any(look.file[3:]))


def _is_file(before: Sequence[int], now: Sequence[int]) -> bool:
    """True if a file is the file of an earlier import, and its count of changes has not decreased.

    A folder is identified only by its path.
    """
    return not before or (before[:2] == now[:2] and before[2] <= now[2])


def is_moved(look: UnitLookup) -> bool:
    """True if the source was moved to this path since the last import, or is another file at the same path."""
    policy = _last_policy(look)
    where, file = policy.get("source"), policy.get("file") or ()
    return where in look.moved and (where != look.source or list(file[:2]) != list(look.file[:2]))


def came_from(look: UnitLookup) -> str:
    """Return a phrase for error messages that states what source the last import of the unit read."""
    where = last_source(look)
    if where == look.source:
        return f"came from {'this' if is_of_file(look) else 'another'} file at {where!r:.200}"
    return f"came from {where!r:.200}"


def last_source(look: UnitLookup) -> str | None:
    """Return the path or server of the unit's last import, or None if the unit was never imported."""
    return _last_policy(look).get("source")


def _last_policy(look: UnitLookup) -> dict[str, Any]:
    policy = look.view.value(_POLICY, {"source_kind": look.kind, "source_key": look.key})
    return policy if isinstance(policy, dict) else {}


def note_moved(look: UnitLookup) -> None:
    """Record that the source was moved to this path or rewritten in place. An unchanged unit is the proof."""
    found = last_source(look)
    if found is not None and (found == look.source or (found.startswith(os.sep) and not os.path.lexists(found))):
        look.moved.add(found)
