"""The work of a receipt's owner inside a unit, for maintenance that does more in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.statements import Statement, Values
from lastlight_state.db.unit import Unit
from lastlight_state.errors import ClaimLost, Conflict
from lastlight_state.receipts import owners, statements as sql, words
from lastlight_state.receipts.records import Receipt
from lastlight_state.receipts.rows import MaintenanceReceiptRow
from lastlight_state.receipts.statements import Rival
from lastlight_state.receipts.tables import RECEIPTS

_MOST = limits_of(RECEIPTS)


def confirm(unit: Unit, receipt: Receipt) -> None:
    """Lock the receipt, so that nobody takes its work over before this unit ends. Raises `ClaimLost`."""
    found = unit.find(Receipt.of, sql.LOCK, {"receipt_id": receipt.id})
    if found is None or found.epoch != receipt.epoch or found.state != "running":
        raise _lost(receipt, found)


def step(unit: Unit, receipt: Receipt, *, counts: Mapping[str, int], cursor: Any, at: datetime) -> Receipt:
    """Store how far the work came. Raises `ClaimLost` if another owner has it, or it has ended."""
    values = {
        "counts": codec.encode("counts", dict(counts), max_bytes=_MOST.counts),
        "cursor": optional_json("cursor", cursor, _MOST.cursor),
    }
    return _own(unit, sql.STEP, receipt, {**values, "updated_at": at})


def finish(unit: Unit, receipt: Receipt, state: str, *, error: str | None, at: datetime) -> Receipt:
    """End the work. Work that was interrupted can go on later. Raises `ClaimLost`."""
    ended = None if state == "interrupted" else at
    return _own(unit, sql.FINISH, receipt, {"state": state, "error": error, "updated_at": at, "finished_at": ended})


def take(unit: Unit, receipt_id: str, *, owner: str, at: datetime) -> Receipt:
    """Go on with work that was interrupted, or whose owner has ended or has been silent for ten minutes.

    Raises `NotFound`, and `Conflict` for work that has ended, or that its owner is doing.
    """
    found = unit.find(Receipt.of, sql.LOCK, {"receipt_id": receipt_id})
    if found is None:
        raise valid.not_found(words.RECEIPT, receipt_id)
    if found.state not in ("running", "interrupted"):
        raise Conflict(f"receipt {receipt_id!r} is {found.state}: nothing is left to do", code="receipt_finished")
    held: Rival = {"id": found.id, "owner": found.owner, "epoch": found.epoch, "updated_at": found.updated_at}
    if found.state == "running" and is_alive(held, at):
        raise under_way(found.kind, found.scope, held, at)
    rival = unit.row(sql.RIVAL, {"kind": found.kind, "scope": found.scope})
    if rival is not None and rival["id"] != receipt_id:
        raise under_way(found.kind, found.scope, rival, at)
    values = {"receipt_id": receipt_id, "owner": owner, "updated_at": at}
    return _sure(receipt_id, unit.find(Receipt.of, sql.TAKE, values))


def is_alive(running: Rival, now: datetime) -> bool:
    """True if the owner of a running receipt may still be at work."""
    return bool(now - running["updated_at"] < words.SILENCE) and not owners.has_ended(running["owner"])


def under_way(kind: str, scope: str, running: Rival, now: datetime) -> Conflict:
    """Return the error for work that somebody is doing."""
    silent = int((now - running["updated_at"]).total_seconds())
    what = f"{kind} of {scope}" if scope else kind
    text = f"a {what} is running already: receipt {running['id']!r} of {running['owner']!r}, last step {silent} s ago"
    return Conflict(
        text, code="already_running", receipt_id=running["id"], owner=running["owner"], silent_seconds=silent
    )


def optional_json(where: str, value: Any, max_bytes: int) -> str | None:
    """A value as JSON text, None as NULL."""
    return None if value is None else codec.encode(where, value, max_bytes=max_bytes)


def _own(unit: Unit, statement: Statement[MaintenanceReceiptRow], receipt: Receipt, values: Values) -> Receipt:
    changed = unit.find(Receipt.of, statement, {"receipt_id": receipt.id, "at_epoch": receipt.epoch, **values})
    if changed is None:
        raise _lost(receipt, unit.find(Receipt.of, sql.GET, {"receipt_id": receipt.id}))
    return changed


def _sure(receipt_id: str, found: Receipt | None) -> Receipt:
    if found is None:  # its row is locked
        raise valid.not_found(words.RECEIPT, receipt_id)
    return found


def _lost(receipt: Receipt, found: Receipt | None) -> Exception:
    if found is None:
        return valid.not_found(words.RECEIPT, receipt.id)
    return ClaimLost(
        receipt.id,
        presented=receipt.epoch,
        current_epoch=found.epoch,
        held_by=found.owner,
        status=found.state,
        kind="receipt",
    )
