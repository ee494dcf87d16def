"""What the database refuses about receipts and tombstones, asked through a plain driver connection."""

from __future__ import annotations

from typing import Any

import pytest
from support.each import with_each
from support.refusal import refused

from lastlight_state.testing.databases import Database

AT = "'2026-02-03T12:34:56.789Z'"
PERMITS = "INSERT INTO maintenance_permits (receipt_id) VALUES ('{}')"


@pytest.fixture
def raw(database: Database) -> Any:
    """A plain connection to a database with receipts in every state, and one tombstone."""
    connection = database.raw()
    for state in ("running", "interrupted", "done", "failed"):
        connection.execute(
            "INSERT INTO maintenance_receipts (id, kind, state, owner, library_version, started_at, updated_at, policy)"
            f" VALUES ('{state}', 'prune', '{state}', 'me', '1', {AT}, {AT}, '{{}}')"
        )
    connection.execute(f"INSERT INTO tombstones (kind, id, receipt_id, deleted_at) VALUES ('run', 'r', 'done', {AT})")
    return connection


@with_each("state", ["done", "failed"])
@with_each("permit", [None, "r1"])
def test_a_finished_receipt_never_changes(raw: Any, state: str, permit: str | None) -> None:
    """maintenance OP-8: no permit of ordinary maintenance opens this guard."""
    raw.execute("BEGIN")
    if permit:
        raw.execute(PERMITS.format(permit))
    with refused():
        raw.execute(f"UPDATE maintenance_receipts SET counts = '{{}}' WHERE id = '{state}'")
    raw.execute("ROLLBACK")


@pytest.mark.parametrize("state", ["running", "interrupted"])
def test_a_receipt_that_can_go_on_may_change(raw: Any, state: str) -> None:
    """maintenance OP-7, OP-31: steps, take-over, resume."""
    raw.execute(f"UPDATE maintenance_receipts SET epoch = 2 WHERE id = '{state}'")
    assert raw.execute(f"SELECT epoch FROM maintenance_receipts WHERE id = '{state}'").fetchone() == (2,)


@with_each("table", ["maintenance_receipts", "tombstones"])
@with_each("permit", [None, "r1"])
def test_receipts_and_tombstones_are_not_deleted(raw: Any, table: str, permit: str | None) -> None:
    """maintenance OP-8."""
    raw.execute("BEGIN")
    if permit:
        raw.execute(PERMITS.format(permit))
    with refused():
        raw.execute(f"DELETE FROM {table}")
    raw.execute("ROLLBACK")


@pytest.mark.parametrize("table", ["maintenance_receipts", "tombstones"])
def test_receipts_and_tombstones_are_not_truncated(database: Database, raw: Any, table: str) -> None:
    """maintenance OP-8: Postgres has a statement for it, SQLite takes DELETE without WHERE for it."""
    raw.execute("BEGIN")
    raw.execute(PERMITS.format("r1"))
    with refused():
        raw.execute(f"TRUNCATE {table}" if database.name == "postgresql" else f"DELETE FROM {table}")
    raw.execute("ROLLBACK")


def test_the_permit_of_tests_empties_them(raw: Any) -> None:
    """maintenance OP-8: ``reset``, which the test plugin alone writes."""
    raw.execute("BEGIN")
    raw.execute(PERMITS.format("reset"))
    raw.execute("UPDATE maintenance_receipts SET error = 'x'")
    raw.execute("DELETE FROM maintenance_receipts")
    raw.execute("DELETE FROM tombstones")
    raw.execute("DELETE FROM maintenance_permits")
    raw.execute("COMMIT")
    assert raw.execute("SELECT count(*) FROM tombstones").fetchone() == (0,)


def test_two_receipts_of_one_kind_and_scope_do_not_run_at_once(raw: Any) -> None:
    """maintenance OP-7."""
    with pytest.raises(Exception, match=r"(?i)unique"):
        raw.execute("UPDATE maintenance_receipts SET state = 'running' WHERE id = 'interrupted'")
