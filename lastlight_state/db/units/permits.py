"""Permits to delete: guards let a unit delete rows while a permit row exists in its transaction.

The tables of permits belong to `lastlight_state.receipts`, which domains do not import. A service's database role may
not write these tables (`migrations.roles`), so on Postgres a method that deletes needs the rights of maintenance.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.rows.statements import bind, statement_of
from lastlight_state.db.schema import columns
from lastlight_state.db.units.unit import Unit
from lastlight_state.ids import new_id

_PERMITS = sa.Table("maintenance_permits", sa.MetaData(), sa.Column("receipt_id", columns.Text))
_TOMBSTONES = sa.Table(
    "tombstones",
    sa.MetaData(),
    sa.Column("kind", columns.Text),
    sa.Column("id", columns.Text),
    sa.Column("receipt_id", columns.Text),
    sa.Column("deleted_at", columns.Timestamp),
)
_permit = bind("receipt_id", _PERMITS.c.receipt_id)

_GRANT = statement_of(sa.insert(_PERMITS).values(receipt_id=_permit))
_REVOKE = statement_of(sa.delete(_PERMITS).where(_PERMITS.c.receipt_id == _permit))
_BURY = statement_of(
    insert(_TOMBSTONES)
    .values({column.name: bind(column.name, column) for column in _TOMBSTONES.columns})
    .on_conflict_do_nothing()
)


@contextmanager
def permit_deletion(unit: Unit, receipt_id: str | None = None) -> Iterator[str]:
    """Let the unit delete rows in this block.

    Yields the permit's name: the receipt's id, or a new id without a receipt. If the block raises, the unit must be
    rolled back, because the permit is then not revoked.
    """
    permit = {"receipt_id": receipt_id or new_id()}
    unit.change(_GRANT, permit)
    yield permit["receipt_id"]
    unit.change(_REVOKE, permit)


def bury(unit: Unit, kind: str, key: str, permit: str, at: datetime) -> None:
    """Insert a tombstone, so that an import does not restore the deleted row. An existing tombstone is kept."""
    unit.change(_BURY, {"kind": kind, "id": key, "receipt_id": permit, "deleted_at": at})
