from __future__ import annotations

import pytest

from lastlight_state.backends.triggers import Guard, postgres_ddl, sqlite_ddl
from lastlight_state.db.guards import append_only, declare, declared_guards, no_replacement
from lastlight_state.migrations.metadata import GUARDS


def test_a_guard_is_declared_once() -> None:
    """workflows §2.5: trigger names are unique in a schema."""
    with pytest.raises(ValueError, match="workflow_runs_no_delete is declared twice"):
        declare(append_only("workflow_runs"))
    assert declared_guards() == GUARDS


def test_a_guard_for_one_product_renders_to_nothing_on_the_other() -> None:
    """workflows G-4: Postgres has no REPLACE."""
    (guard,) = no_replacement("runs")
    assert list(postgres_ddl(guard)) == []
    (sql,) = sqlite_ddl(guard)
    assert sql.startswith(
        "CREATE TRIGGER runs_no_replace BEFORE INSERT ON runs FOR EACH ROW WHEN EXISTS (SELECT 1 FROM "
    )


def test_a_permit_opens_a_guard_whose_condition_has_an_or() -> None:
    """maintenance OP-8: the permit stands beside the whole condition."""
    guard = Guard("g", "t", "update", "it's no", when="OLD.a = 1 OR OLD.b = 2", permit="any")
    (sql,) = sqlite_ddl(guard)
    assert "WHEN (OLD.a = 1 OR OLD.b = 2) AND NOT EXISTS (SELECT 1 FROM maintenance_permits) BEGIN" in sql
    assert "RAISE(ABORT, 'it''s no')" in sql
