"""The statements of receipts. A write of the work's owner has the receipt's epoch among its conditions."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import Statement, bind, constant, prepared
from lastlight_state.receipts.records import ReceiptSummary, ReceiptSummaryRow
from lastlight_state.receipts.rows import MaintenanceReceiptRow
from lastlight_state.receipts.tables import RECEIPTS


class Rival(TypedDict):
    """The receipt of work that is under way."""

    id: str
    owner: str
    epoch: int
    updated_at: datetime


_c = RECEIPTS.c

_THIS = _c.id == bind("receipt_id", _c.id)
_RUNNING = _c.state == constant("running")
_OWN = sa.and_(_THIS, _c.epoch == bind("at_epoch", _c.epoch), _RUNNING)

_NEW = ("id", "kind", "scope", "state", "owner", "actor", "library_version", "started_at", "updated_at", "counts")
_LARGE = ("cursor", "policy")

GET = prepared(sa.select(*_c).where(_THIS), MaintenanceReceiptRow)

LOCK = prepared(sa.select(*_c).where(_THIS).with_for_update(), MaintenanceReceiptRow)

#: The running receipt of a kind and scope. There is at most one.
RIVAL = prepared(
    sa.select(_c.id, _c.owner, _c.epoch, _c.updated_at)
    .where(_c.kind == bind("kind", _c.kind), _c.scope == bind("scope", _c.scope), _RUNNING)
    .with_for_update(),
    Rival,
)

#: Inserts nothing if another receipt of the kind and scope runs.
INSERT = prepared(
    insert(RECEIPTS)
    .values({name: bind(name, _c[name]) for name in (*_NEW, *_LARGE)})
    .on_conflict_do_nothing()
    .returning(*_c),
    MaintenanceReceiptRow,
)


def _changed(condition: sa.ColumnElement[bool], *names: str, **values: Any) -> Statement[MaintenanceReceiptRow]:
    given = {name: bind(name, _c[name]) for name in names}
    changed = sa.update(RECEIPTS).where(condition).values(**given, **values).returning(*_c)
    return prepared(changed, MaintenanceReceiptRow)


#: Of a receipt that is locked. Whoever holds an earlier epoch has lost the work.
TAKE = _changed(_THIS, "owner", "updated_at", epoch=_c.epoch + 1, state=constant("running"), error=sa.null())

#: Ends the work of an owner that is silent, so that new work of the kind can begin.
INTERRUPT = _changed(_OWN, "error", epoch=_c.epoch + 1, state=constant("interrupted"))

STEP = _changed(_OWN, "counts", "cursor", "updated_at")

FINISH = _changed(_OWN, "state", "updated_at", "finished_at", "error")

LIST = Listing(
    "receipts",
    [_c[name] for name in ReceiptSummary.model_fields],
    order=(_c.started_at, _c.id),
    filters={"kind": _c.kind == bind("kind", _c.kind), "state": _c.state == bind("state", _c.state)},
    row=ReceiptSummaryRow,
)
