"""Insert or replace in one statement."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect
from support.each import with_each

from lastlight_state.db.rows.writes import upsert

TABLE = sa.Table(
    "switches",
    sa.MetaData(),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("state", sa.Text),
    sa.Column("changes", sa.Integer),
)

PUT = upsert(
    TABLE,
    ("name", "state"),
    key=("name",),
    replacing=lambda new: {"state": new.state, "changes": TABLE.c.changes + 1},
)


DIALECTS: list[Dialect] = [sqlite.dialect(), postgresql.dialect()]  # type: ignore[no-untyped-call]


@with_each("dialect", DIALECTS, ids=["sqlite", "postgresql"])
def test_every_product_gets_one_statement_with_both_ways_out(dialect: Dialect) -> None:
    """architecture, verbs: put inserts or replaces."""
    text = str(PUT.compile(dialect=dialect))
    assert text.startswith("INSERT INTO switches (name, state) VALUES (")
    assert "ON CONFLICT (name) DO UPDATE SET state = excluded.state, changes = (switches.changes + " in text
    assert "RETURNING" in text
