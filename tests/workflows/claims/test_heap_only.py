"""Heartbeats on Postgres: a new version of the row in the same page, and no new entry in any index."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
import sqlalchemy as sa
from support.workflows.steps import Raw, started

from lastlight_state import StateStore, Transaction
from lastlight_state.testing import Database

SHARE, ROUNDS = 0.95, 20
#: The columns that renewing a claim on a run or on a fire changes.
RENEWED = {"run_leases": {"heartbeat_at", "lease_expires_at"}, "cron_fires": {"lease_until"}}


def test_no_index_holds_a_column_that_a_heartbeat_changes(database: Database, raw: Raw) -> None:
    """workflows W-102."""
    catalogue = "sqlite_master" if database.name == "sqlite" else "pg_indexes"
    table, text = ("tbl_name", "sql") if database.name == "sqlite" else ("tablename", "indexdef")
    for name, columns in RENEWED.items():
        defined = raw(f"SELECT {text} FROM {catalogue} WHERE {table} = ?", name)
        indexes = [definition for (definition,) in defined if definition and "INDEX" in definition.split("(")[0]]
        assert indexes
        assert not columns & set(re.findall(r"\w+", " ".join(indexes)))


@pytest.mark.plain_postgres("reads statistics of tables, which the shards keep")
@pytest.mark.parametrize("size", [200, 2_000, pytest.param(262_000, marks=pytest.mark.soak)])
def test_heartbeats_are_heap_only_updates(postgres_database: Database, size: int) -> None:
    """workflows W-102: one by one and many at once, whatever the context; at least 95 in 100.

    Postgres keeps old versions while another session of the server begins, so one round of several is undisturbed.
    With an index on a column that they change, none is heap-only in any round.
    """
    body = {"body": "".join(f"{number:x}" for number in range(size))[:size]}
    with postgres_database.open() as store:
        claims = store.workflows.claims
        runs = [started(store, context=body) for _ in range(100)]
        held = [claims.take(run.id, owner="a", lease=timedelta(days=1)) for run in runs]
        shares = []
        for _ in range(ROUNDS):
            updates = _Updates(store, postgres_database, "run_leases")
            updates.of(lambda tx: tx.workflows.claims.heartbeat_many(held))
            for claim in held:
                updates.of(lambda tx, claim=claim: tx.workflows.claims.heartbeat(claim))  # type: ignore[misc]
            updates.end()
            assert updates.all == 2 * len(held)
            shares.append(updates.heap_only / updates.all)
            if shares[-1] >= SHARE:
                break
    assert max(shares) >= SHARE, shares


class _Updates:
    """Counts what transactions update in a table, and how much of that Postgres could do in place."""

    def __init__(self, store: StateStore, database: Database, table: str) -> None:
        self._store = store
        self._clock = database.clock
        self._engine = sa.create_engine(database.url)
        self._table = table
        self.all = self.heap_only = 0

    def of(self, call: Callable[[Transaction], object]) -> None:
        """Run this in a transaction of its own, and count."""
        self._clock.advance(timedelta(seconds=1))
        with self._engine.begin() as connection:
            before = self._counted(connection)
            with self._store.transaction(connection=connection) as tx:
                call(tx)
            after = self._counted(connection)
        self.all += after[0] - before[0]
        self.heap_only += after[1] - before[1]

    def _counted(self, connection: sa.Connection) -> tuple[int, int]:
        """What this session has counted and not yet told the server: no other session's work is in it."""
        counted = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = :name"
        row = connection.execute(sa.text(counted), {"name": self._table}).one()
        return row[0], row[1]

    def end(self) -> None:
        self._engine.dispose()
