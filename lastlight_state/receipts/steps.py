"""Steps of a receipt's owner inside a unit. For maintenance that does other work in the same transaction."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state import codec, progress
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import (
    Statement,
    Values,
    bind,
    columns_of,
    constant,
    every_column_of,
    statement_of,
)
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import ClaimLost, Conflict
from lastlight_state.receipts import models
from lastlight_state.receipts.models import RECEIPTS
from lastlight_state.receipts.records import Receipt, ReceiptSummary

# The statements of receipts. A write by the work's owner has the receipt's epoch among its conditions.


class Rival(NamedTuple):
    """The receipt of work that is under way."""

    id: str
    owner: str
    epoch: int
    updated_at: datetime


_c = RECEIPTS.c
_COLUMNS = every_column_of(Receipt, RECEIPTS)

_THIS = _c.id == bind("receipt_id", _c.id)
_RUNNING = _c.state == constant("running")
_OWN = sa.and_(_THIS, _c.epoch == bind("at_epoch", _c.epoch), _RUNNING)

_NEW = ("id", "kind", "scope", "state", "owner", "actor", "library_version", "started_at", "updated_at", "counts")
_LARGE = ("cursor", "policy")

GET = statement_of(sa.select(*_COLUMNS).where(_THIS), Receipt)

LOCK = statement_of(sa.select(*_COLUMNS).where(_THIS).with_for_update(), Receipt)

#: The running receipt of a kind and scope. There is at most one.
RIVAL = statement_of(
    sa.select(_c.id, _c.owner, _c.epoch, _c.updated_at)
    .where(_c.kind == bind("kind", _c.kind), _c.scope == bind("scope", _c.scope), _RUNNING)
    .with_for_update(),
    Rival,
)

#: Inserts nothing if another receipt of the kind and scope runs.
INSERT = statement_of(
    insert(RECEIPTS)
    .values({name: bind(name, _c[name]) for name in (*_NEW, *_LARGE)})
    .on_conflict_do_nothing()
    .returning(*_COLUMNS),
    Receipt,
)


def _receipt_update(condition: sa.ColumnElement[bool], *names: str, **values: Any) -> Statement[Receipt]:
    given = {name: bind(name, _c[name]) for name in names}
    changed = sa.update(RECEIPTS).where(condition).values(**given, **values).returning(*_COLUMNS)
    return statement_of(changed, Receipt)


#: Gives a locked receipt to a new owner. Holders of an earlier epoch have lost the work.
TAKE = _receipt_update(_THIS, "owner", "updated_at", epoch=_c.epoch + 1, state=constant("running"), error=sa.null())

#: Interrupts the work of a silent owner, so that new work of the kind can begin.
INTERRUPT = _receipt_update(_OWN, "error", epoch=_c.epoch + 1, state=constant("interrupted"))

STEP = _receipt_update(_OWN, "counts", "cursor", "updated_at")

FINISH = _receipt_update(_OWN, "state", "updated_at", "finished_at", "error")

LIST = Listing(
    "receipts",
    columns_of(ReceiptSummary, RECEIPTS),
    order=(_c.started_at, _c.id),
    filters={"kind": _c.kind == bind("kind", _c.kind), "state": _c.state == bind("state", _c.state)},
    row=ReceiptSummary,
)


# Names of processes in receipts, and whether a process has ended.
#
# The kernel of this machine is asked, so a positive answer is certain. A process of another machine or container, or
# from before a restart of this machine, is never known to have ended.

_PROC = Path("/proc")
#: Fields of `/proc/PID/stat`, counted after the name: the state, and when the process began, in ticks since the boot.
_STATE, _BEGAN = 0, 19
_GONE = ("Z", "X")  # killed, and not yet collected by its parent


def this_process() -> str:
    """Return a name of this process: host and process id; on Linux also a digest of kernel boot and start time."""
    pid = os.getpid()
    name = f"{socket.gethostname()[:200]}:{pid}"
    kernel, began = _kernel(), _began(pid)
    return f"{name}:{kernel}:{began}" if kernel and began else name


def has_ended(owner: str) -> bool:
    """True if the owner is a process that has certainly ended. False means that this is unknown."""
    host, *rest = owner.rsplit(":", 3)
    if len(rest) != 3 or host != socket.gethostname()[:200] or rest[1] != _kernel() or not rest[0].isdecimal():
        return False
    pid, _, began = rest
    try:
        os.kill(int(pid), 0)  # only checks, sends no signal
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # another user's process, or an invalid process id
        pass
    found = _began(int(pid))
    return found is not None and found != began


def _kernel() -> str | None:
    """Return a digest that identifies this boot of the machine and this namespace of process ids.

    Return None if unreadable.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text()
        return hashlib.sha256(f"{boot}{(_PROC / 'self/ns/pid').readlink()}".encode()).hexdigest()[:12]
    except OSError:
        return None


def _began(pid: int) -> str | None:
    """Return a process's start time as text: empty for a killed process, None if it cannot be read."""
    try:
        told = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return "" if told[_STATE] in _GONE else told[_BEGAN]
    except (OSError, IndexError):
        return None


_LIMITS = limits_of(RECEIPTS)


def confirm(unit: Unit, receipt: Receipt) -> None:
    """Lock the receipt, so that nobody takes its work over before this unit ends. Raises `ClaimLost`."""
    found = unit.row(LOCK, {"receipt_id": receipt.id})
    if found is None or found.epoch != receipt.epoch or found.state != "running":
        raise _lost_error(receipt, found)


def step(unit: Unit, receipt: Receipt, *, counts: Mapping[str, int], cursor: Any, at: datetime) -> Receipt:
    """Store the progress of the work.

    Raises `ClaimLost` if another owner has taken over the work, or if it has ended.
    """
    progress.tell(receipt.kind, sum(counts.values()))
    values = {
        "counts": codec.encode("counts", dict(counts), max_bytes=_LIMITS.counts),
        "cursor": optional_json("cursor", cursor, _LIMITS.cursor),
    }
    return _own(unit, STEP, receipt, {**values, "updated_at": at})


def finish(unit: Unit, receipt: Receipt, state: str, *, error: str | None, at: datetime) -> Receipt:
    """End the work, or interrupt it so that it can continue later. Raises `ClaimLost`."""
    ended = None if state == "interrupted" else at
    return _own(unit, FINISH, receipt, {"state": state, "error": error, "updated_at": at, "finished_at": ended})


def take(unit: Unit, receipt_id: str, *, owner: str, at: datetime) -> Receipt:
    """Continue work that was interrupted, or whose owner has ended or has reported nothing for ten minutes.

    Raises `NotFound`, and `Conflict` for work that has ended or is still being done.
    """
    found = unit.row(LOCK, {"receipt_id": receipt_id})
    if found is None:
        raise valid.not_found(models.RECEIPT, receipt_id)
    if found.state not in ("running", "interrupted"):
        raise Conflict(f"receipt {receipt_id!r} is {found.state}: nothing is left to do", code="receipt_finished")
    if found.state == "running" and is_alive(found, at):
        raise under_way(found.kind, found.scope, found, at)
    rival = unit.row(RIVAL, {"kind": found.kind, "scope": found.scope})
    if rival is not None and rival.id != receipt_id:
        raise under_way(found.kind, found.scope, rival, at)
    values = {"receipt_id": receipt_id, "owner": owner, "updated_at": at}
    return _sure(receipt_id, unit.row(TAKE, values))


def is_alive(running: Rival | Receipt, now: datetime) -> bool:
    """True if the owner of a running receipt may still be at work."""
    return bool(now - running.updated_at < models.SILENCE) and not has_ended(running.owner)


def under_way(kind: str, scope: str, running: Rival | Receipt, now: datetime) -> Conflict:
    """Return the error for work that somebody is doing."""
    silent = int((now - running.updated_at).total_seconds())
    what = f"{kind} of {scope}" if scope else kind
    text = f"a {what} is running already: receipt {running.id!r} of {running.owner!r}, last step {silent} s ago"
    return Conflict(text, code="already_running", receipt_id=running.id, owner=running.owner, silent_seconds=silent)


def optional_json(where: str, value: Any, max_bytes: int) -> str | None:
    """Return a value as JSON text, or None for NULL."""
    return None if value is None else codec.encode(where, value, max_bytes=max_bytes)


def _own(unit: Unit, statement: Statement[Receipt], receipt: Receipt, values: Values) -> Receipt:
    changed = unit.row(statement, {"receipt_id": receipt.id, "at_epoch": receipt.epoch, **values})
    if changed is None:
        raise _lost_error(receipt, unit.row(GET, {"receipt_id": receipt.id}))
    return changed


def _sure(receipt_id: str, found: Receipt | None) -> Receipt:
    if found is None:  # its row is locked
        raise valid.not_found(models.RECEIPT, receipt_id)
    return found


def _lost_error(receipt: Receipt, found: Receipt | None) -> Exception:
    if found is None:
        return valid.not_found(models.RECEIPT, receipt.id)
    return ClaimLost(
        receipt.id,
        presented=receipt.epoch,
        current_epoch=found.epoch,
        held_by=found.owner,
        status=found.state,
        kind="receipt",
    )
