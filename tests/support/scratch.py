"""Tables that no domain knows, for tests of what all domains are made of."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from lastlight_state import StateStore
from lastlight_state.db.schema import columns

SCRATCH = sa.MetaData()
THINGS = sa.Table(
    "scratch_things",
    SCRATCH,
    sa.Column("id", columns.Text, primary_key=True),
    sa.Column("at", columns.Timestamp, nullable=False),
    sa.Column("kind", columns.Text),
    sa.Column("number", columns.Integer),
    sa.Column("real", columns.Real),
    sa.Column("flag", columns.Flag),
    sa.Column("json", columns.Json),
)
NOTES = sa.Table(
    "scratch_notes",
    SCRATCH,
    sa.Column("number", columns.Integer, sa.Identity(), primary_key=True),
    sa.Column("thing_id", columns.Text, sa.ForeignKey("scratch_things.id"), nullable=False),
    sa.Column("at", columns.Timestamp),
    sa.Column("text", columns.Text),
)


@contextmanager
def scratch_tables(store: StateStore) -> Iterator[None]:
    """The tables, for as long as the block lasts."""
    with store.transaction() as tx:
        SCRATCH.create_all(tx.connection)
    yield
    with store.transaction() as tx:
        SCRATCH.drop_all(tx.connection)
