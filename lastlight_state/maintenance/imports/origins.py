"""Finds whether a unit came from the source that is read now, by the path and by the identity of the file there.

A unit of the same name with other content is refused by name and writes nothing. So is a unit that changed both here
and in its source. A file that was begun anew is another source, even at the same path.

A copy of a session or run at another place continues the stored one if it has all that the last import brought in. A
chat continues if its source begins with the messages of the last import. An empty session, chat or team, or a run
without events and executions, has nothing by which it is known. It continues only from the same file or folder.

A unit of one row (an override, a cron, a cached result) follows the file of its last import, but not a file that was
begun anew in its place. It follows a file that was moved or written anew if another unit in the file is unchanged and
nothing else stands at the old path. Otherwise the error says what to do. A namespace of chunks belongs to the file that
began it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.rows.statements import bind, prepared
from lastlight_state.maintenance.imports.pieces import Piece, UnitLookup
from lastlight_state.receipts.models import LEDGER, RECEIPTS

_l = LEDGER.c
_policies = sa.select(RECEIPTS.c.policy).select_from(LEDGER.join(RECEIPTS, RECEIPTS.c.id == _l.receipt_id))
_POLICY = prepared(_policies.where(*(_l[name] == bind(name, _l[name]) for name in ("source_kind", "source_key"))))
_BROUGHT_BY = prepared(
    _policies.where(*(_l[name] == bind(name, _l[name]) for name in ("target_kind", "target_id")))
    .order_by(_l.imported_at.desc())
    .limit(1)
)


def removed_of_another(look: UnitLookup, piece: Piece) -> Sequence[str]:
    """Return the report's text for a unit that another source brought in and that was removed here; else nothing."""
    target_kind, target_id = piece.target
    policy = look.view.value(_BROUGHT_BY, {"target_kind": target_kind, "target_id": target_id})
    where = policy.get("source") if isinstance(policy, dict) else None
    if where is None or where in {look.source, *look.moved}:
        return ()
    return (f"was removed here, and came from {where!r:.200}",)


def is_from_here(look: UnitLookup) -> bool:
    """Return whether the last import of the unit read the same path or server."""
    return last_source(look) == look.source


def is_of_source(look: UnitLookup) -> bool:
    """Return whether the last import of the unit read this source, here or at a path from which it has moved."""
    return last_source(look) in {look.source, *look.moved}


def is_of_file(look: UnitLookup) -> bool:
    """Return whether the unit is of this source, and the file there was not begun anew since."""
    policy = _last_policy(look)
    where = policy.get("source")
    return where in look.moved or (where == look.source and _is_file(policy.get("file") or (), look.file))


def is_shown(look: UnitLookup) -> bool:
    """Return whether the unit is provably of this file. The inode alone, as in WAL mode, is no proof."""
    return is_of_file(look) and (last_source(look) in look.moved or not any(look.file[3:]))


def _is_file(before: Sequence[int], now: Sequence[int]) -> bool:
    """Return whether a file is the one of an earlier import, with as many changes or more.

    A folder is known by its path alone.
    """
    return not before or (before[:2] == now[:2] and before[2] <= now[2])


def is_moved(look: UnitLookup) -> bool:
    """Return whether the source has moved here since the last import, or is another file at the same path."""
    policy = _last_policy(look)
    where, file = policy.get("source"), policy.get("file") or ()
    return where in look.moved and (where != look.source or list(file[:2]) != list(look.file[:2]))


def came_from(look: UnitLookup) -> str:
    """Return where the last import of the unit read, worded for a refusal."""
    where = last_source(look)
    if where == look.source:
        return f"came from {'this' if is_of_file(look) else 'another'} file at {where!r:.200}"
    return f"came from {where!r:.200}"


def last_source(look: UnitLookup) -> str | None:
    """Return the path or server of the unit's last import, None if the unit was never imported."""
    return _last_policy(look).get("source")


def _last_policy(look: UnitLookup) -> dict[str, Any]:
    policy = look.view.value(_POLICY, {"source_kind": look.kind, "source_key": look.key})
    return policy if isinstance(policy, dict) else {}


def note_moved(look: UnitLookup) -> None:
    """Note that the source was moved here or written anew in its place. An unchanged unit is the proof."""
    found = last_source(look)
    if found is not None and (found == look.source or (found.startswith(os.sep) and not os.path.lexists(found))):
        look.moved.add(found)
