"""What the page on history in partitions tells operators to run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.filled_store import scene

from lastlight_state import StateStore
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.messaging import ConversationKey
from lastlight_state.migrations import check
from lastlight_state.testing import Database
from lastlight_state.testing.postgres import connect
from lastlight_state.workflows import Trigger

GUIDES = Path(__file__).parents[2] / "docs/guides"
HELPERS = (GUIDES / "partitions.sql").read_text("utf-8")
DIVIDE, NEXT, STAYING, DROP = re.findall(r"```sql\n(.*?)```", (GUIDES / "partitions.md").read_text("utf-8"), re.DOTALL)
BOUND = "pg_temp.id_at('2027-01-01Z')"
TRIGGER = Trigger("t", type="cli")
DIVIDED = {"run_events": "run_id", "messages": "id", "messaging_messages": "id"}


def run(raw: Any, sql: str) -> None:
    """Run several statements of a page."""
    raw.execute(sql)


@contextmanager
def divided(database: Database, *tables: str, until: str = "NULL") -> Iterator[Any]:
    with closing(connect(database.url)) as raw:
        run(raw, HELPERS)
        for table in tables:
            run(raw, f"CALL pg_temp.divide('{table}', '{DIVIDED[table]}', {until})")
        yield raw


@pytest.mark.parametrize("table", DIVIDED)
def test_a_table_with_rows_is_divided_as_the_page_says(postgres_database: Database, table: str) -> None:
    """cluster CL-30: its rows stay, and the schema is as its revision makes it."""
    store, _ = scene(postgres_database)
    with closing(connect(postgres_database.url)) as raw:
        [before] = raw.execute(f"SELECT count(*) FROM {table}").fetchone()  # type: ignore[misc]
    assert before
    with divided(postgres_database, table) as raw:
        assert raw.execute(f"SELECT count(*) FROM {table}").fetchone() == (before,)
        kind = raw.execute("SELECT relkind::text FROM pg_class WHERE oid = %s::regclass", (table,)).fetchone()
        assert kind == ("p",)
    assert check(store.backend).differences == ()


def test_a_store_works_on_tables_that_were_divided(postgres_database: Database, tmp_path: Path) -> None:
    """cluster CL-30: it writes, lists, examines, copies, backs up and prunes."""
    store, _ = scene(postgres_database)
    with divided(postgres_database, *DIVIDED):
        pass
    run_id = store.workflows.runs.create("w", trigger=TRIGGER, phase="p").id
    numbers = [store.journal.events.append(run_id, "e", {"n": number}).seq for number in range(3)]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    session = store.messaging.sessions.resume(ConversationKey("slack", "c", "u")).session
    for word in ("a", "b"):
        store.messaging.messages.append(session.id, role="user", content=word)
    said = store.messaging.messages.history(session.id)
    assert [message.content for message in said] == ["a", "b"]
    assert said[0].id < said[1].id
    sizes = {table.name: table.rows for table in store.maintenance.stats.collect().tables}
    assert all(sizes[table] for table in DIVIDED)
    assert [found for found in store.maintenance.doctor.examine().findings if found.subject in DIVIDED] == []
    target = tmp_path / "copied.db"
    store.maintenance.copy.run(target, migrate=True)
    with StateStore.open(target, state_dir=tmp_path) as copied:
        assert copied.journal.events.list(run_id).items == store.journal.events.list(run_id).items
    made = store.maintenance.backup.create(tmp_path / "backup")
    assert store.maintenance.backup.verify(tmp_path / "backup") == made
    store.maintenance.backup.restore(tmp_path / "backup", tmp_path / "restored.db")
    with StateStore.open(tmp_path / "restored.db", state_dir=tmp_path) as restored:
        assert restored.journal.events.list(run_id).items == store.journal.events.list(run_id).items
        assert restored.messaging.messages.history(session.id) == said


def test_a_month_of_events_is_dropped_and_its_runs_are_pruned(postgres_database: Database) -> None:
    """cluster CL-31: runs that would stay are named before."""
    with postgres_database.open() as store, divided(postgres_database, "run_events", until=BOUND) as raw:
        gone, stays = (store.workflows.runs.create("w", trigger=TRIGGER, phase="p").id for _ in range(2))
        for run_id in (gone, stays):
            store.journal.events.append(run_id, "e", {"n": 1})
        store.workflows.runs.finish(gone, "succeeded")
        staying = STAYING.replace("2027-01-01Z", "2020-01-01Z").replace("2027-02-01Z", "2027-01-01Z")
        assert {row[0] for row in raw.execute(staying).fetchall()} == {stays}
        raw.execute("ALTER TABLE run_events DETACH PARTITION run_events_before")
        raw.execute("DROP TABLE run_events_before")
        run(raw, NEXT)
        run(raw, DROP)
        assert len(store.journal.events.list(gone)) == 0
        later = store.workflows.runs.create("w", trigger=TRIGGER, phase="p").id
        store.journal.events.append(later, "e", {"n": 1})
        store.workflows.runs.finish(later, "succeeded")
        postgres_database.clock.advance(seconds=400 * 86_400)
        assert store.maintenance.prune.run(PrunePolicy("runs", keep_days=30, keep_n=0)).state == "done"
        assert raw.execute("SELECT id FROM workflow_runs").fetchall() == [(stays,)]
        assert raw.execute("SELECT DISTINCT run_id FROM run_events").fetchall() == []
        store.journal.events.append(stays, "e", {"n": 2})
        assert [event.payload for event in store.journal.events.list(stays)][-1] == {"n": 2}


def test_the_page_calls_what_it_defines() -> None:
    assert "CALL pg_temp.divide('run_events', 'run_id'" in DIVIDE
