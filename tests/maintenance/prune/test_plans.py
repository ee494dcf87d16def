"""What a prune costs: it grows with what goes, and not with what stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.each import with_each
from support.maintenance.rows import insert, run_row
from support.workflows.plans import plan_of

from lastlight_state.db.rows.statements import Family, Statement
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.maintenance.prune import archived_logs, candidates as sql, files
from lastlight_state.maintenance.prune.kinds import KINDS
from lastlight_state.maintenance.shared import run_tables
from lastlight_state.testing import Database, racing

SCALE = [
    pytest.param(300, 900, id="300 of 1200"),
    pytest.param(40_000, 100_000, id="40000 of 140000", marks=pytest.mark.soak),
]


def of_a_batch(kind: str) -> list[Statement[Any]]:
    """The statements of a plan and of a batch."""
    found = sql.STATEMENTS[kind]
    families: list[Family[Any]] = [
        found.known,
        found.chosen,
        found.lock_chosen,
        found.own,
        found.bury,
        *found.children.values(),
    ]
    families += [found.measured] if KINDS[kind].children else []
    families += [found.protected] if KINDS[kind].protections else []
    return [found.look, found.lock, found.boundary, *(family.of(["a", "b"])[0] for family in families)]


@with_each("kind", KINDS)
def test_every_statement_of_a_batch_finds_its_rows_by_an_index(database: Database, kind: str) -> None:
    """maintenance OP-28, OP-76."""
    store, now = database.open(), database.clock.now()
    values: dict[str, Any] = {
        **dict.fromkeys(("after_age", "until_age", "at"), now),
        **dict.fromkeys(("after_key", "until_key", "receipt_id", "key_0", "key_1"), "k"),
        "kept": 5,
    }
    for statement in of_a_batch(kind):
        plan = plan_of(database, store, statement, values, in_order=True)
        assert not plan.scans_the_table, plan
        if statement in (sql.STATEMENTS[kind].look, sql.STATEMENTS[kind].lock):
            assert not plan.sorts_the_table, plan


@with_each("made", [*files.USING, *run_tables.NAMING.values(), *archived_logs.NAMED_BY.values()])
def test_who_needs_a_log_is_found_by_an_index(database: Database, made: Family) -> None:
    """maintenance OP-76."""
    plan = plan_of(database, database.open(), made.of(["a", "b"])[0], {"key_0": "a", "key_1": "b"}, in_order=True)
    assert not plan.scans_the_table, plan


@pytest.mark.parametrize(("victims", "survivors"), SCALE)
def test_many_go_beside_many_that_stay_in_batches_of_bounded_size(
    fresh_database: Database, victims: int, survivors: int
) -> None:
    """maintenance OP-28."""
    raw, now = fresh_database.raw(), fresh_database.clock.now()
    for count, days, name in ((victims, 40, "v"), (survivors, 1, "s")):
        insert(raw, "workflow_runs", *(run_row(f"{name}{n}", now - timedelta(days=days)) for n in range(count)))
    store = fresh_database.open()
    with racing(store) as race:
        receipt = store.maintenance.prune.run(PrunePolicy("runs", batch_rows=150))
    assert receipt.counts == {"workflow_runs": victims}
    batches = sum(text.startswith("INSERT INTO maintenance_permits") for text in race.statements)
    assert batches >= victims / 150
    assert raw.execute("SELECT count(*) FROM workflow_runs").fetchone()[0] == survivors
