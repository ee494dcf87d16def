"""Databases that are not as the original program makes them are not taken over, and stay as they are."""

from __future__ import annotations

import pytest
from support.each import with_each
from support.migrations.originals import ROWS, SEED, dump, original
from support.migrations.support import Place

from lastlight_state.errors import BackendUnavailable, SchemaMismatch
from lastlight_state.migrations import check, current, migrate, verify

ONE_ACTIVE = (
    "create unique index idx_msg_sessions_unique_active on messaging_sessions"
    " ( platform , channel_id , thread_id , user_id ) where active = "
)
REFERENCE = "REFERENCES messaging_sessions (id) ON UPDATE NO ACTION ON DELETE NO ACTION"
ONE_RUN = "create unique index one_run on workflow_runs ( trigger_id )"
STATUS = "TEXT NOT NULL DEFAULT 'pending'"
SWITCHED = "TEXT PRIMARY KEY,\n  enabled INTEGER NOT NULL DEFAULT 1,\n  schedule"

DIFFERENT = {  # what is written otherwise, how, and what is said of it; nothing at all: written at the end
    "a column that every row has is missing": (
        "  gate TEXT NOT NULL,",
        "  door TEXT,",
        "column workflow_approvals.gate is missing, expected 'TEXT NOT NULL'",
    ),
    "a column has another type": (
        "cost_usd REAL",
        "cost_usd TEXT",
        "column executions.cost_usd is 'TEXT', expected 'REAL'",
    ),
    "a column may not be NULL": (
        "turns INTEGER",
        "turns INTEGER NOT NULL",
        "column executions.turns is 'INTEGER NOT NULL', expected 'INTEGER'",
    ),
    "a column has another default": (
        STATUS,
        "TEXT NOT NULL DEFAULT 'open'",
        f"column workflow_approvals.status is 'TEXT NOT NULL DEFAULT 'open'', expected '{STATUS}'",
    ),
    "a key is none": (
        SWITCHED,
        SWITCHED.replace("PRIMARY KEY", "NOT NULL"),
        "primary key of cron_overrides is nothing, expected 'name'",
    ),
    "an index has another predicate": (
        "WHERE active = 1",
        "WHERE active = 0",
        f"index idx_msg_sessions_unique_active of messaging_sessions is '{ONE_ACTIVE}0', expected '{ONE_ACTIVE}1'",
    ),
    "a reference is missing": (
        " REFERENCES messaging_sessions(id)",
        "",
        f"foreign key (session_id) of messaging_messages is missing, expected '{REFERENCE}'",
    ),
    "ids of messages may be used again": (
        " AUTOINCREMENT",
        "",
        "table messaging_messages is nothing, expected 'autoincrement'",
    ),
    "rows are checked": (
        STATUS,
        f"{STATUS} CHECK (status <> '')",
        "table workflow_approvals is 'check', expected nothing",
    ),
    "an extra column must be given": (
        "  schedule TEXT, ",
        "  schedule TEXT,\n  owner TEXT NOT NULL, ",
        "column cron_overrides.owner is 'TEXT NOT NULL', which may refuse what this library writes",
    ),
    "an extra index is unique": (
        "",
        f"{ONE_RUN};",
        f"index one_run of workflow_runs is '{ONE_RUN}', which may refuse what this library writes",
    ),
    "an extra column has the name of a later one": (
        "",
        "ALTER TABLE workflow_runs ADD COLUMN claim_epoch TEXT;",
        "column workflow_runs.claim_epoch is there already, and a later revision makes one",
    ),
    "an extra table has the name of a later one": (
        "",
        "CREATE TABLE run_transitions (id TEXT);",
        "table run_transitions is there already, and a later revision makes one",
    ),
}


@with_each("kind", DIFFERENT)
def test_a_difference_refuses_it_and_is_named(sqlite_place: Place, kind: str) -> None:
    """migrations MG-43: refused with the list of differences."""
    old, new, difference = DIFFERENT[kind]
    raw = original(sqlite_place, SEED.replace(old, new) if old else SEED + new)
    before = dump(raw)
    with pytest.raises(SchemaMismatch, match="not as the original program makes them") as caught:
        migrate(sqlite_place.backend())
    assert caught.value.differences == (difference,)
    assert dump(raw) == before


def test_all_differences_are_named_at_once(sqlite_place: Place) -> None:
    """migrations MG-43."""
    original(sqlite_place, SEED.replace(SWITCHED, "TEXT, x TEXT, schedule").replace("turns INTEGER", "turns TEXT"))
    plan = check(sqlite_place.backend())
    assert plan.differences == (
        "column cron_overrides.name is 'TEXT', expected 'TEXT NOT NULL'",
        "column executions.turns is 'TEXT', expected 'INTEGER'",
        "primary key of cron_overrides is nothing, expected 'name'",
    )
    assert (plan.adoption, plan.revisions) == (None, ())


def test_a_database_of_ours_that_lost_its_version_is_not_taken_for_the_originals(sqlite_place: Place) -> None:
    """migrations MG-43, MG-58: its schema says its revision; where it is that of none, its later tables say so."""
    backend = sqlite_place.at()
    sqlite_place.raw().execute("DROP TABLE lastlight_state_version")
    with pytest.raises(SchemaMismatch, match="run: lastlight-state stamp --to 0002_lastlight_state "):
        verify(backend)
    sqlite_place.raw().execute("DROP INDEX ix_workflow_runs_parent")
    with pytest.raises(SchemaMismatch) as caught:
        verify(backend)
    assert "table run_transitions is there already, and a later revision makes one" in caught.value.differences
    assert current(backend) is None


def test_a_damaged_file_is_not_taken_over(sqlite_place: Place) -> None:
    """migrations MG-43: the integrity check."""
    needed = "skill TEXT NOT NULL"
    raw = original(sqlite_place, SEED.replace(needed, "skill TEXT"), ROWS, "UPDATE executions SET skill = NULL")
    raw.execute("PRAGMA writable_schema = ON")
    raw.execute(f"UPDATE sqlite_master SET sql = replace(sql, 'skill TEXT', '{needed}') WHERE name = 'executions'")
    raw.close()
    with pytest.raises(SchemaMismatch) as caught:
        migrate(sqlite_place.backend())
    assert caught.value.differences == ("damaged: NULL value in executions.skill",) * 2
    assert current(sqlite_place.backend()) is None


def test_a_file_that_is_no_database_stays_what_it_is(sqlite_place: Place) -> None:
    sqlite_place.path.write_text("a letter to somebody\n" * 100)
    with pytest.raises(BackendUnavailable, match="not a sound SQLite database"):
        migrate(sqlite_place.backend())
    assert sqlite_place.path.read_text() == "a letter to somebody\n" * 100
