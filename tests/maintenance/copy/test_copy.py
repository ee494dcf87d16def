"""Copies between databases: everything arrives, and what cannot arrive is named before anything is written."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic import create_model
from support.filled_store import TRIGGER, scene
from support.maintenance import killed_copy
from support.maintenance.attached import attach_without_a_column
from support.outputs.shapes import a_run
from support.preloaded import run_program
from support.stored_words import unguarded_words
from support.workflows.steps import Raw

from lastlight_state import AsyncStateStore, StateStore, codec
from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Options
from lastlight_state.conversations import NewBranch, NewMessage, NewSession
from lastlight_state.errors import Conflict, InvalidValue, NotFound, NotMigrated, SchemaMismatch
from lastlight_state.maintenance import CopyPlan, CopyProgress, CopyReport
from lastlight_state.maintenance.copy.contents import content
from lastlight_state.maintenance.copy.tables import APART, DEPTHS, SEEDED, subjects
from lastlight_state.messaging import MessageDraft
from lastlight_state.migrations import migrate
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import WorkflowRun

DIRECTIONS = ("sqlite to postgresql", "postgresql to sqlite", "sqlite to sqlite")
#: Values that databases keep in different ways.
EDGES = {
    "float": [1e16, -0.0, 1.5e-10, 1e300, 1.2345678901234567e18, 0.1],
    "integer": [2**63 - 1, -(2**63), 0],
    "text": ["", "😀", "\u2028", "a\nb\t\\", '{"a": 1}', "\\u0041"],
    "nothing": [None, {}, [], False],
}


@pytest.fixture(params=DIRECTIONS)
def direction(request: pytest.FixtureRequest) -> Iterator[tuple[Database, str]]:
    """A source database, and the URL of an empty one of the same schema."""
    name: str = request.param
    source = request.getfixturevalue(f"{'postgres' if name.startswith('postgres') else 'sqlite'}_database")
    if name.endswith("postgresql"):
        yield source, request.getfixturevalue("postgres_database").url
    else:
        folder: Path = request.getfixturevalue("tmp_path")
        with StateStore.open(folder / "target.db"):
            yield source, str(folder / "target.db")


def test_rows_are_read_alike_from_the_beginning_and_from_any_key(every_backend: StateStore) -> None:
    """maintenance OP-53, OP-56: JSON as the text that the database keeps, so that a copy that goes on is the same."""
    for name in "abc":
        every_backend.workflows.runs.create(name, trigger=TRIGGER, phase="p", context={"a": [1.5, {}]})
    [runs] = [one for one in subjects([]) if one.name == "workflow_runs"]
    whole = every_backend._scope.read(lambda unit: list(runs.stream(unit)))
    rest = every_backend._scope.read(lambda unit: list(runs.stream(unit, runs.key(whole[0]))))
    assert [list(row) for row in rest] == [list(row) for row in whole[1:]]
    assert isinstance(rest[0][runs.names.index("context")], str)


def test_a_copy_and_a_bundle_carry_leases_as_they_were_last_renewed(
    direction: tuple[Database, str], tmp_path: Path
) -> None:
    """workflows W-155: the run's own row says what its take wrote, and the copy's row what is so."""
    source, target = direction
    store = source.open()
    claims, run_id = store.workflows.claims, store.workflows.runs.create("w", trigger=TRIGGER, phase="p").id
    claim = claims.take(run_id, owner="a")
    source.clock.advance(seconds=20)
    renewed = claims.heartbeat(claim)
    bundle = tmp_path / "run.tar"
    store.maintenance.bundles.export("run", run_id, bundle)
    store.maintenance.copy.run(target)
    with StateStore.open(target, clock=source.clock) as copied, StateStore.open(tmp_path / "new.db") as loaded:
        loaded.maintenance.bundles.load(bundle)
        for other in (copied, loaded):
            run = other.workflows.runs.get(run_id)
            assert (run.heartbeat_at, run.lease_expires_at) == (source.clock.now(), renewed.lease_expires_at)
        source.clock.advance(seconds=29)
        assert copied.workflows.claims.take_next(owner="b") == ()
        assert copied.workflows.claims.heartbeat(claim).epoch == claim.epoch
        source.clock.advance(seconds=31)
        assert [taken.run_id for taken in copied.workflows.claims.take_next(owner="b")] == [run_id]


@pytest.fixture
def here(sqlite_database: Database) -> StateStore:
    """A store with a few runs, whose copy goes to a file."""
    store = sqlite_database.open()
    for n in range(5):
        store.workflows.runs.create(f"workflow-{n}", trigger=TRIGGER, phase="p", context={"n": n})
    return store


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there.db"


def canonical(run: WorkflowRun) -> bytes:
    """By value: Postgres keeps 1e16 as an integer."""
    return codec.canonical(run.model_dump(mode="json"))


def contents(report: CopyReport | CopyPlan) -> set[tuple[str, int, str]]:
    return {(table.name, table.rows, table.digest) for table in report.tables if table.name != "maintenance_receipts"}


def stopping(at: int) -> Callable[[CopyProgress], None]:
    """Interrupts the copy with the batch of this number."""
    batches = count(1)

    def stop(progress: CopyProgress) -> None:
        if progress.phase == "copied" and next(batches) == at:
            raise KeyboardInterrupt

    return stop


def test_every_table_arrives_on_any_database(direction: tuple[Database, str], frozen_clock: FrozenClock) -> None:
    """maintenance OP-52, OP-53, OP-54, case 37: and what is written next gets numbers of its own."""
    source, target = direction
    store, _ = scene(source)
    store.workflows.runs.create("edges", trigger=TRIGGER, phase="p", context=EDGES)
    report = store.maintenance.copy.run(target, batch_rows=7)
    empty = {table.name for table in report.tables if not table.rows}
    assert empty <= {"maintenance_receipts", "tombstones", "import_ledger", "second", "third"}
    with StateStore.open(target, clock=frozen_clock) as copied:
        assert copied.receipts.get(report.receipt_id).state == "done"
        for run in store.workflows.runs.list(limit=100):
            assert canonical(copied.workflows.runs.get(run.id)) == canonical(store.workflows.runs.get(run.id))
        again = copied.maintenance.copy.plan(source.state_dir / "unmade.db")
        assert contents(again) == contents(report)
        known = {message.id for n in range(3) for message in copied.messaging.messages.list(f"ms-{n}")}
        [appended] = copied.messaging.messages.append_many("ms-0", [MessageDraft("user", "next")])
        assert appended.message.id not in known


def test_a_copy_can_go_to_another_schema_of_the_same_database(postgres_database: Database) -> None:
    """maintenance OP-50, OP-51."""
    store = postgres_database.open()
    store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
    report = store.maintenance.copy.run(postgres_database.url, schema="other", migrate=True)
    with postgres_database.open(schema="other") as other:
        assert [run.workflow_name for run in other.workflows.runs.list()] == ["w"]
    assert {table.name for table in report.tables if table.rows} == {"workflow_runs", "run_transitions", *SEEDED}


def test_coroutines_copy_too(here: StateStore, sqlite_database: Database, there: Path) -> None:
    """maintenance OP-50."""

    async def work() -> CopyReport:
        async with await AsyncStateStore.open(sqlite_database.url) as store:
            return await store.maintenance.copy.run(there, migrate=True)

    assert contents(asyncio.run(work())) == contents(here.maintenance.copy.plan(there.with_name("x.db")))


@pytest.mark.parametrize("batch_rows", [1, 2, 5_000])
def test_the_size_of_a_batch_changes_nothing(here: StateStore, there: Path, batch_rows: int) -> None:
    """maintenance OP-53, OP-54."""
    said: list[CopyProgress] = []
    plan = here.maintenance.copy.plan(there)
    report = here.maintenance.copy.run(there, migrate=True, batch_rows=batch_rows, on_progress=said.append)
    assert (contents(report), plan.rows) == (contents(plan), report.rows)
    copied = [step for step in said if step.phase == "copied" and step.table == "workflow_runs"]
    assert [step.rows for step in copied] == [*range(batch_rows, 5, batch_rows), 5, 5]
    assert {step.total for step in copied} == {5}


def test_a_dry_run_writes_to_neither_side(here: StateStore, there: Path) -> None:
    """maintenance OP-50: the target is not even made."""
    plan = here.maintenance.copy.plan(there)
    assert {table.name: table.rows for table in plan.tables}["workflow_runs"] == 5
    assert (there.exists(), plan.problems, here.receipts.list().items) == (False, (), ())


def test_a_target_that_holds_anything_is_refused(here: StateStore, there: Path) -> None:
    """maintenance OP-51: each table with rows is named."""
    with StateStore.open(there) as target:
        target.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        before = target.maintenance.copy.plan(there.with_name("x.db"))
    for attempt in (here.maintenance.copy.run, here.maintenance.copy.plan):
        with pytest.raises(Conflict, match=r"workflow_runs \(1 rows\)") as refused:
            attempt(there)
        assert refused.value.code == "target_not_empty"
        assert set(refused.value.details["tables"]) == {"workflow_runs", "run_transitions"}
    told: list[CopyProgress] = []
    with pytest.raises(Conflict, match="not empty"):
        here.maintenance.copy.run(there, migrate=True, on_progress=told.append)
    assert told == [], "it is refused before the source is read"
    with StateStore.open(there) as target:
        assert contents(target.maintenance.copy.plan(there.with_name("x.db"))) == contents(before)


def test_a_target_that_was_filled_while_the_source_was_read_is_refused_and_can_be_opened(
    here: StateStore, there: Path
) -> None:
    """maintenance OP-51."""

    def fill(progress: CopyProgress) -> None:
        if progress.table == "cron_fires":
            target.workflows.overrides.put("live", enabled=False, by="ana")

    with StateStore.open(there) as target, pytest.raises(Conflict, match="not empty"):
        here.maintenance.copy.run(there, on_progress=fill)
    with StateStore.open(there) as target:
        assert [override.name for override in target.workflows.overrides.list()] == ["live"]


def test_a_target_that_somebody_makes_meanwhile_is_not_migrated(here: StateStore, there: Path) -> None:
    """maintenance OP-51."""

    def make(_progress: CopyProgress) -> None:
        with closing(open_backend(there, Options())) as backend:
            migrate(backend, "0001")

    with pytest.raises(NotMigrated):
        here.maintenance.copy.run(there, migrate=True, on_progress=make)


def test_a_target_that_nobody_else_can_see_is_refused(here: StateStore, there: Path) -> None:
    """maintenance OP-50: and without a copy there is none to resume."""
    with pytest.raises(InvalidValue, match="it would not stay"):
        here.maintenance.copy.run(":memory:", migrate=True)
    with pytest.raises(NotFound, match="unfinished copy"):
        here.maintenance.copy.resume(there)
    assert not there.exists()


def test_a_word_more_than_the_revisions_bring_is_a_row_too(here: StateStore, there: Path) -> None:
    """maintenance OP-51."""
    with StateStore.open(there) as target:
        target.conversations.messages.create(NewMessage(role="user", content="c", lion_class="their.Message"))
    with pytest.raises(Conflict, match=r"message_types \(7 rows\)"):
        here.maintenance.copy.run(there)


def test_the_source_itself_is_no_target(here: StateStore, sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-50: by whatever name."""
    link = tmp_path / "link.db"
    link.symlink_to(sqlite_database.url)
    for name in (sqlite_database.url, link):
        with pytest.raises(InvalidValue, match="another database"):
            here.maintenance.copy.run(name)


def test_the_source_itself_is_no_target_on_a_server(postgres_database: Database) -> None:
    """maintenance OP-50."""
    with pytest.raises(InvalidValue, match="another database"):
        postgres_database.open().maintenance.copy.run(postgres_database.url)


def test_both_must_have_the_same_schema(here: StateStore, there: Path) -> None:
    """maintenance OP-51: the command that helps is in the error."""
    with pytest.raises(NotMigrated, match="lastlight-state migrate"):
        here.maintenance.copy.run(there)
    with closing(open_backend(there, Options())) as backend:
        migrate(backend, "0001")
    with pytest.raises(NotMigrated, match="lastlight-state migrate"):
        here.maintenance.copy.run(there, migrate=True)


def test_a_source_that_has_lost_a_table_is_refused(fresh_database: Database, there: Path) -> None:
    """maintenance OP-51: since its store was opened, too."""
    store = fresh_database.open()
    StateStore.open(there).close()
    fresh_database.raw().execute("DROP TABLE vectors")
    for attempt in (store.maintenance.copy.plan, store.maintenance.copy.run):
        with pytest.raises(SchemaMismatch, match="vectors"):
            attempt(there)


def test_a_target_of_a_later_version_is_refused(here: StateStore, there: Path) -> None:
    """maintenance OP-51: also where this version may work on it."""
    StateStore.open(there).close()
    with closing(sqlite3.connect(there)) as raw:
        raw.execute("UPDATE lastlight_state_version SET version_num = '9999'")
        raw.commit()
    for attempt in (here.maintenance.copy.plan, here.maintenance.copy.run):
        with pytest.raises(SchemaMismatch, match="the target at 9999: migrate one"):
            attempt(there)


def test_a_copy_that_was_interrupted_cannot_be_opened_and_is_resumed(
    direction: tuple[Database, str], frozen_clock: FrozenClock
) -> None:
    """maintenance OP-55, OP-56: between any two batches."""
    source, target = direction
    store, _ = scene(source)
    copy = store.maintenance.copy
    batches: list[CopyProgress] = []
    with pytest.raises(KeyboardInterrupt):
        copy.run(target, batch_rows=5, on_progress=stopping(1))
    for at in (4, 11, 7):
        with pytest.raises(KeyboardInterrupt):
            copy.resume(target, batch_rows=5, on_progress=stopping(at))
        with pytest.raises(SchemaMismatch, match="unfinished copy") as refused:
            StateStore.open(target)
        assert refused.value.code == "unfinished_copy"
        with pytest.raises(SchemaMismatch, match="unfinished copy"):
            copy.run(target)
    report = copy.resume(target, on_progress=batches.append)
    assert contents(report) == contents(copy.plan(source.state_dir / "unmade.db"))
    copied = [step.table for step in batches if step.phase == "copied"]
    assert "cron_fires" not in copied
    with StateStore.open(target, clock=frozen_clock) as opened:
        assert len(opened.workflows.runs.list(limit=100).items) == 13
    with pytest.raises(NotFound, match="unfinished copy"):
        copy.resume(target)


def test_a_copy_that_was_killed_is_resumed_at_once(direction: tuple[Database, str], frozen_clock: FrozenClock) -> None:
    """maintenance OP-7, OP-56: each row is there once."""
    source, target = direction
    store, _ = scene(source)
    program = [sys.executable, "-W", "error", killed_copy.__file__, source.url, target]
    killed = run_program([*program, "3", "8", "5"], capture_output=True, text=True, check=False)
    assert (killed.returncode, killed.stderr) == (0, "")
    frozen_clock.set(killed_copy.START)
    report = store.maintenance.copy.resume(target)
    with StateStore.open(target, clock=frozen_clock) as there:
        assert len(there.workflows.runs.list(limit=100).items) == 13
        assert there.receipts.get(report.receipt_id).counts["workflow_runs"] == 13


def test_a_source_that_changed_between_two_parts_of_a_copy_is_named(
    here: StateStore, there: Path, sqlite_database: Database
) -> None:
    """maintenance OP-54, OP-56: by table and key, and the target stays unfinished."""
    wanted = here.workflows.runs.list().items[2].id

    source = sqlite_database.raw()
    with pytest.raises(KeyboardInterrupt):
        here.maintenance.copy.run(there, migrate=True, on_progress=stopping(30))
    source.execute("UPDATE workflow_runs SET scratch = '{}' WHERE id = ?", [wanted])
    with pytest.raises(Conflict, match="differs from its source") as refused:
        here.maintenance.copy.resume(there)
    assert refused.value.code == "copies_differ"
    assert refused.value.details["differences"] == {"workflow_runs": [repr(wanted)]}
    with pytest.raises(SchemaMismatch, match="unfinished copy"):
        StateStore.open(there)


def test_what_the_target_lost_or_was_given_meanwhile_is_named(direction: tuple[Database, str]) -> None:
    """maintenance OP-54: whichever side has more rows."""
    source, target = direction
    store = source.open()
    for n in range(3):
        store.workflows.overrides.put(f"workflow-{n}", enabled=False, by="ana")
    name = "postgresql" if target.startswith("postgres") else "sqlite"

    def tamper(progress: CopyProgress) -> None:
        if progress.phase == "copied" and progress.table == "branches":
            there = Database(target, name, source.clock, source.state_dir)
            there.raw().execute("UPDATE workflow_overrides SET name = 'workflow-9' WHERE name = 'workflow-1'")
            there.close()

    with pytest.raises(Conflict) as refused:
        store.maintenance.copy.run(target, on_progress=tamper)
    assert refused.value.details["differences"] == {"workflow_overrides": ["'workflow-1'", "'workflow-9'"]}


def test_only_json_is_judged_by_its_escapes(sqlite_database: Database, postgres_database: Database) -> None:
    """maintenance OP-57, case 83: in a text they are six characters, also where it looks like JSON."""
    store, raw = sqlite_database.open(), sqlite_database.raw()
    texts = ['{"out": "a\\u0000b"}', "[" * 40 + '"\\u0041"' + "]" * 40]
    for n, text in enumerate(texts):
        store.workflows.overrides.put(f"workflow-{n}", enabled=False, by="ana", reason=text)
    run = store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
    raw.execute("UPDATE workflow_runs SET scratch = ? WHERE id = ?", [' {"a": "\\u0000"}', run.id])
    [problem] = store.maintenance.copy.plan(postgres_database.url).problems
    assert run.id in problem
    raw.execute("UPDATE workflow_runs SET scratch = ? WHERE id = ?", [' {"a": "\\u0041"}', run.id])
    store.maintenance.copy.run(postgres_database.url)
    copied = postgres_database.open()
    assert [kept.reason for kept in copied.workflows.overrides.list()] == texts
    assert copied.workflows.runs.get(run.id).scratch == {"a": "A"}


def test_what_postgres_cannot_hold_is_named_before_anything_is_written(
    sqlite_database: Database, postgres_database: Database
) -> None:
    """maintenance OP-57: and what cannot be read at all."""
    store, raw = sqlite_database.open(), sqlite_database.raw()
    for n in range(5):
        store.workflows.overrides.put(f"workflow-{n}", enabled=False, by="ana")
    raw.execute("UPDATE workflow_overrides SET reason = 'a' || char(0) WHERE name = 'workflow-1'")
    raw.execute("UPDATE workflow_overrides SET updated_by = CAST(x'ff' AS TEXT) WHERE name = 'workflow-2'")
    raw.execute("UPDATE workflow_overrides SET updated_at = '2026-01-01T00:00:00.000Z' WHERE name = 'workflow-3'")
    raw.execute("UPDATE workflow_overrides SET reason = '[\"\\u0041 is no JSON' WHERE name = 'workflow-4'")
    run = store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
    raw.execute('UPDATE workflow_runs SET scratch = \'{"a": "\\u0000"}\' WHERE id = ?', [run.id])
    plan = store.maintenance.copy.plan(postgres_database.url)
    named = " ".join(plan.problems)
    assert [part in named for part in ("'workflow-1'", "'workflow-2'", "'workflow-3'", run.id)] == [True] * 2 + [
        False,
        True,
    ]
    assert len(plan.problems) == 3
    with pytest.raises(Conflict, match="3 things cannot be copied") as refused:
        store.maintenance.copy.run(postgres_database.url)
    assert (refused.value.code, refused.value.details["problems"]) == ("cannot_be_copied", list(plan.problems))
    assert postgres_database.open().receipts.list().items == ()
    assert store.maintenance.copy.plan(sqlite_database.state_dir / "x.db").problems
    raw.execute("UPDATE workflow_overrides SET reason = NULL, updated_by = 'ana'")
    raw.execute("UPDATE workflow_runs SET scratch = '{}'")
    store.maintenance.copy.run(postgres_database.url)
    found = {kept.name: kept.updated_at.isoformat() for kept in postgres_database.open().workflows.overrides.list()}
    assert found["workflow-3"] == "2026-01-01T00:00:00+00:00"


def test_a_time_that_python_cannot_hold_is_named(postgres_database: Database, there: Path) -> None:
    """maintenance OP-57."""
    store = postgres_database.open()
    store.workflows.overrides.put("w", enabled=False, by="ana")
    postgres_database.raw().execute("UPDATE workflow_overrides SET updated_at = 'infinity'")
    [problem] = store.maintenance.copy.plan(there).problems
    assert problem.startswith("workflow_overrides: a value cannot be read")


def test_a_column_that_the_registry_does_not_know_is_no_silent_loss(sqlite_database: Database, there: Path) -> None:
    """maintenance OP-57."""
    store, _ = scene(sqlite_database)
    sqlite_database.raw().execute("ALTER TABLE report ADD COLUMN theirs TEXT")
    copy = store.maintenance.copy
    assert copy.plan(there).problems == ("report.theirs is not a column that this library knows",)
    sqlite_database.raw().execute("DROP TABLE report")
    assert copy.plan(there).problems == ("report is in the registry of output tables, and is not there",)
    with pytest.raises(Conflict, match="cannot be copied"):
        copy.run(there, migrate=True)
    assert not there.exists()


def test_columns_of_other_programs_stay_behind_only_if_they_are_named(fresh_database: Database, there: Path) -> None:
    """maintenance OP-57: of an adopted database there are such; NULL in every row loses nothing."""
    store = fresh_database.open()
    store.workflows.overrides.put("wf", enabled=True)
    for column, value in (("theirs", "'x'"), ("empty", "NULL")):
        fresh_database.raw().execute(f"ALTER TABLE workflow_overrides ADD COLUMN {column} text")
        fresh_database.raw().execute(f"UPDATE workflow_overrides SET {column} = {value}")
    copy, named = store.maintenance.copy, ("workflow_overrides.theirs",)
    with pytest.raises(Conflict, match="theirs is not a column that this library knows") as caught:
        copy.run(there, migrate=True)
    assert (caught.value.code, there.exists()) == ("cannot_be_copied", False)
    assert copy.plan(there, leave_columns=named).problems == ()
    with pytest.raises(RuntimeError, match="stop"):
        copy.run(there, migrate=True, leave_columns=named, batch_rows=1, on_progress=_stop_at_copied)
    report = copy.resume(there)
    assert (report.left_columns, copy.plan(there.with_name("other")).left_columns) == (named, named)
    with pytest.raises(InvalidValue, match="leave_columns"):
        copy.plan(there.with_name("other"), leave_columns="theirs")


def _stop_at_copied(progress: CopyProgress) -> None:
    if progress.phase == "copied":
        raise RuntimeError("stop")


def test_an_attached_table_with_a_column_that_nobody_declared_is_no_silent_loss(
    database: Database, tmp_path: Path
) -> None:
    """maintenance OP-57: nothing is written, so that the target is not there."""
    store = database.open()
    attach_without_a_column(store, database.raw(), "run")
    with pytest.raises(Conflict, match=r"mine\.hidden is not a column") as caught:
        store.maintenance.copy.run(tmp_path / "there.db", migrate=True)
    assert (caught.value.code, (tmp_path / "there.db").exists()) == ("cannot_be_copied", False)


def test_the_first_twenty_rows_that_cannot_be_read_are_named(
    here: StateStore, sqlite_database: Database, there: Path
) -> None:
    """maintenance OP-52: all are counted."""
    for n in range(20):
        here.workflows.runs.create(f"more-{n}", trigger=TRIGGER, phase="p")
    sqlite_database.raw().execute("UPDATE workflow_runs SET scratch = '{'")
    plan = here.maintenance.copy.plan(there)
    assert ({table.name: table.rows for table in plan.tables}["workflow_runs"], len(plan.problems)) == (25, 20)


def test_a_defect_is_no_value_that_cannot_be_read(here: StateStore) -> None:
    """maintenance OP-52: it is raised as it is."""

    def judge(subject: object, row: object) -> str | None:
        raise RuntimeError("a defect")

    [runs] = [subject for subject in subjects([]) if subject.name == "workflow_runs"]
    with pytest.raises(RuntimeError, match="a defect"):
        here._scope.view(lambda unit: content(unit, runs, judge))


def test_forks_come_after_what_they_were_forked_from(sqlite_database: Database, postgres_database: Database) -> None:
    """maintenance OP-52: whatever the order of their ids; classes that a program added come along."""
    store = sqlite_database.open()
    store.conversations.sessions.create(NewSession("talk"))
    c = store.conversations.branches
    c.create("talk", NewBranch(id="9"))
    c.append("9", [NewMessage(role="user", content="hi", lion_class="their.Message")])
    for n in range(8, 0, -1):
        store.conversations.lineage.fork(str(n + 1), branch_id=str(n))
    store.maintenance.copy.run(postgres_database.url, batch_rows=1)
    there = postgres_database.open().conversations.branches
    assert there.get("1").fork_depth == 8
    assert [said.message.lion_class for said in there.history("1")] == ["their.Message"]


def test_each_table_is_copied_after_those_that_it_refers_to(here: StateStore) -> None:
    """maintenance OP-6, OP-52: a table that is added is in the order, or is left out with a reason."""
    order = [subject.name for subject in subjects([])]
    assert set(order) | APART == set(METADATA.tables)
    for place, subject in enumerate(subjects([])):
        referred = {key.column.table.name for key in subject.table.foreign_keys}
        assert referred - {subject.name} <= set(order[:place])
        assert (subject.name in referred) is (subject.name in DEPTHS)
    assert order.index("cron_overrides") < order.index("cron_schedules"), "else they would mark copied plans"


def test_the_rows_that_revisions_make_are_known(fresh_database: Database) -> None:
    """maintenance OP-51."""
    raw = fresh_database.raw()
    tables = [name for name in METADATA.tables if name not in APART]
    counts = {name: raw.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
    assert {name: found for name, found in counts.items() if found} == SEEDED


def test_decimals_of_an_output_arrive_with_their_digits(fresh_database: Database, tmp_path: Path) -> None:
    """maintenance OP-53: written out, however small or large they are."""
    model: Any = create_model("Price", amount=(Decimal, ...))
    store, there = fresh_database.open(migrate=True), tmp_path / "there.db"
    run_id, made = a_run(store), store.outputs.define("price", model)
    for iteration, amount in enumerate(("0.00000001", "1E+30", "12.50")):
        store.outputs.results.put(made, run_id, "n", {"amount": Decimal(amount)}, iteration=iteration)
    StateStore.open(there).close()
    store.maintenance.copy.run(there)
    with closing(sqlite3.connect(there)) as raw:
        found = raw.execute("SELECT amount FROM price ORDER BY iteration").fetchall()
    assert found == [("0.00000001",), ("1" + "0" * 30,), ("12.50",)]


def test_a_word_of_a_later_version_is_copied_past_the_guards(direction: tuple[Database, str]) -> None:
    """maintenance OP-50, house H-21: nothing of the source is left behind."""
    source, target = direction
    store = source.open()
    run = store.workflows.runs.create("build", trigger=TRIGGER, phase="plan")
    raw = Raw(source)
    with unguarded_words(raw.name, raw):
        raw("UPDATE workflow_runs SET status = 'hibernating' WHERE id = ?", run.id)
    store.maintenance.copy.run(target)
    with StateStore.open(target) as copied:
        assert copied.workflows.runs.get(run.id).status == "hibernating"
