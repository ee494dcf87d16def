"""What is done with tenants: made, listed, migrated, exported, erased, moved."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.tenants import make_tenants

from lastlight_state import AsyncTenants, Settings, StateStore, Tenants, migrations
from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Options
from lastlight_state.errors import Conflict, InvalidValue, NotFound, NotSupported, SchemaError, StoreClosed
from lastlight_state.migrations import apply
from lastlight_state.schedules import CronSpec
from lastlight_state.tenants import work
from lastlight_state.testing import FrozenClock
from lastlight_state.testing.postgres import connect
from lastlight_state.workflows import Gate, RunOptions, Trigger

TRIGGER = Trigger(type="cli", id="t")


def names(tenants: Tenants) -> list[str]:
    return [tenant.name for tenant in tenants.list()]


def create(store: StateStore, run_id: str) -> None:
    store.workflows.runs.create("w", trigger=TRIGGER, phase="p", options=RunOptions(id=run_id))


def execute(url: str, *statements: str) -> None:
    with connect(url) as driver:
        for statement in statements:
            driver.execute(statement)


def has_schema(url: str, name: str) -> bool:
    with connect(url) as driver:
        return driver.execute("SELECT FROM pg_namespace WHERE nspname = %s", (name,)).fetchone() is not None


def test_many_callers_make_one_tenant(tenants: Tenants) -> None:
    """tenants TN-10, TN-16: and others at the same time."""
    with ThreadPoolExecutor(6) as threads:
        made = list(threads.map(tenants.create, ["a", "b", "a", "a", "b", "a"]))
    assert sum(bool(result.revisions) for result in made) == 2
    assert {result.state for result in made} == {"current"}
    assert names(tenants) == ["a", "b"]
    with tenants.store("a") as store:
        create(store, "1")


def test_a_schema_of_others_is_not_made_a_tenant(url: str, tenants: Tenants) -> None:
    """tenants TN-10."""
    execute(url, "CREATE SCHEMA theirs", "CREATE TABLE theirs.t (n int)", "CREATE SCHEMA vacant")
    with pytest.raises(Conflict, match="not this library's") as raised:
        tenants.create("theirs")
    assert raised.value.code == "not_empty"
    assert tenants.create("vacant").revisions
    assert names(tenants) == ["vacant"]


def test_tenants_are_listed_with_their_revisions_and_sizes(url: str, tenants: Tenants) -> None:
    """tenants TN-11."""
    make_tenants(url, ["b", "a", "Not-A-Name", "old"])
    execute(url, "UPDATE old.lastlight_state_version SET version_num = '0001'")
    with StateStore.open(url, migrate=True):  # in the schema public
        pass
    found = tenants.list()
    assert [(tenant.name, tenant.state, tenant.size_bytes) for tenant in found] == [
        ("a", "current", None),
        ("b", "current", None),
        ("old", "behind", None),
    ]
    assert all((tenant.size_bytes or 0) > 100_000 for tenant in tenants.list(sizes=True))


def test_a_tenant_that_goes_while_all_are_listed_is_left_out(tenants: Tenants, url: str) -> None:
    """tenants TN-11."""
    make_tenants(url, ["a", "b"])
    found = tenants._names_of(None)
    tenants.erase("a", confirm="a")
    assert set(tenants._revisions(found)) == {"b"}


def test_all_tenants_are_migrated_and_a_broken_one_holds_up_none(url: str, tenants: Tenants) -> None:
    """tenants TN-12, TN-16."""
    make_tenants(url, ["broken", "fine", "mended"])
    execute(
        url,
        "DROP TABLE broken.workflow_runs CASCADE",
        "DROP INDEX mended.ix_workflow_runs_waiting",
    )
    report = tenants.migrate()
    assert report.migrated == ("mended",)
    assert report.current == ("fine",)
    assert [(failed.name, failed.code) for failed in report.failed] == [("broken", "damaged")]
    assert "workflow_runs" in report.failed[0].error
    assert tenants.migrate().current == ("fine", "mended")
    report = tenants.migrate(["nobody", "fine"], workers=2)
    assert report.current == ("fine",)
    assert [(failed.name, failed.code) for failed in report.failed] == [("nobody", "not_found")]
    assert not has_schema(url, "nobody")


def test_a_migration_that_waits_for_another_fails_by_name(url: str, tenants: Tenants) -> None:
    """tenants TN-12: a lock that somebody holds is told, and the others go on."""
    make_tenants(url, ["held", "free"])
    execute(url, *(f"DROP INDEX {name}.ix_workflow_runs_waiting" for name in ("held", "free")))
    with (
        closing(open_backend(url, Options(schema="held"))) as backend,
        backend.migration(1.0),
    ):
        report = tenants.migrate(["held", "free"], lock_timeout=0.1)
    assert report.migrated == ("free",)
    assert [failed.name for failed in report.failed] == ["held"]
    assert "another migration" in report.failed[0].error


def test_an_exported_tenant_is_restored_as_another(url: str, tenants: Tenants, tmp_path: Path) -> None:
    """tenants TN-13: with its files, and without those of others."""
    make_tenants(url, ["a", "b"])
    for name in ("a", "b"):
        with tenants.store(name) as store:
            create(store, f"of-{name}")
        logs = tmp_path / "state" / "_tenants" / name / "agent-sessions"
        logs.mkdir(parents=True)
        (logs / f"{name}.jsonl").write_text("{}\n")
    manifest = tenants.export("a", tmp_path / "backup")
    assert [file.path for file in manifest.files if file.path.endswith(".jsonl")] == ["logs/agent-sessions/a.jsonl"]
    with tenants.store("b") as store:
        store.maintenance.backup.restore(tmp_path / "backup", url, schema="c")
        store.maintenance.backup.restore(tmp_path / "backup", tmp_path / "file.db")
    with tenants.store("c") as restored, StateStore.open(tmp_path / "file.db") as file:
        for each in (restored, file):
            assert [run.id for run in each.workflows.runs.list().items] == ["of-a"]
    with pytest.raises(NotFound):
        tenants.export("nobody", tmp_path / "nothing")


def test_a_tenant_is_erased_when_its_name_is_said_again(url: str, tenants: Tenants, tmp_path: Path) -> None:
    """tenants TN-14: with its output tables and its files, and nothing of others."""
    make_tenants(url, ["a", "b"])
    with StateStore.open(url, schema="a", migrate=True) as store:
        create(store, "1")
        store.outputs.define("notes", list[int])
    for name in ("a", "b"):
        (tmp_path / "state" / "_tenants" / name / "agent-sessions").mkdir(parents=True)
        (tmp_path / "state" / "_tenants" / name / "agent-sessions" / "x.jsonl").write_text("{}\n")
    planned = tenants.erase("a")
    assert (planned.erased, planned.files) == (False, 1)
    assert planned.size_bytes > 100_000
    with pytest.raises(InvalidValue, match="confirm"):
        tenants.erase("a", confirm="b")
    assert names(tenants) == ["a", "b"]
    assert tenants.erase("a", confirm="a").erased
    assert names(tenants) == ["b"]
    assert not has_schema(url, "a")
    assert not (tmp_path / "state" / "_tenants" / "a").exists()
    assert (tmp_path / "state" / "_tenants" / "b" / "agent-sessions" / "x.jsonl").exists()
    with pytest.raises(NotFound):
        tenants.erase("a", confirm="a")


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ("CREATE TABLE a.theirs (n int)", "theirs"),
        ("CREATE FUNCTION a.theirs() RETURNS int LANGUAGE sql AS 'SELECT 1'", "theirs"),
        ("CREATE TABLE theirs (id text REFERENCES a.workflow_runs (id))", "theirs"),
        ("CREATE VIEW theirs AS SELECT id FROM a.workflow_runs", "theirs"),
    ],
)
def test_what_is_not_the_librarys_is_named_and_nothing_goes(
    url: str, tenants: Tenants, tmp_path: Path, made: str, named: str
) -> None:
    """tenants TN-14."""
    make_tenants(url, ["a"])
    execute(url, made)
    (tmp_path / "state" / "_tenants" / "a" / "agent-sessions").mkdir(parents=True)
    with pytest.raises(Conflict, match=named) as raised:
        tenants.erase("a", confirm="a")
    assert raised.value.code == "not_ours"
    assert (tmp_path / "state" / "_tenants" / "a" / "agent-sessions").exists()
    with tenants.store("a") as store:
        create(store, "1")


def test_a_schema_of_others_is_not_erased(url: str, tenants: Tenants) -> None:
    """tenants TN-14."""
    execute(url, "CREATE SCHEMA theirs", "CREATE TABLE theirs.workflow_runs (n int)")
    with pytest.raises(NotFound, match="version table"):
        tenants.erase("theirs", confirm="theirs")
    assert has_schema(url, "theirs")


def test_two_erasures_of_one_tenant_have_one_winner(url: str, tenants: Tenants) -> None:
    """tenants TN-14: and the schema does not come again."""
    make_tenants(url, ["a"])

    def erase(_: int) -> str:
        try:
            return str(tenants.erase("a", confirm="a").erased)
        except NotFound:
            return "gone"

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(erase, range(4))) == ["True", "gone", "gone", "gone"]
    assert not has_schema(url, "a")


def test_one_connection_is_enough_to_make_and_erase_tenants(url: str, tmp_path: Path) -> None:
    """tenants TN-1: neither waits for a second one while it has the only one."""
    settings = Settings(pool_size=1, pool_timeout=0.5, state_dir=tmp_path / "state")
    with Tenants.open(url, settings=settings) as tenants:
        tenants.create("a")
        assert tenants.migrate().current == ("a",)
        assert tenants.due() == ()
        assert tenants.erase("a", confirm="a").erased


def test_only_citus_moves_a_tenant(url: str, tenants: Tenants) -> None:
    """tenants TN-15."""
    make_tenants(url, ["a"])
    with pytest.raises(NotSupported, match=r"lastlight-state copy .*--schema a"):
        tenants.move("a", "other.example", 5432)
    with pytest.raises(NotFound):
        tenants.move("nobody", "other.example", 5432)


def test_threads_migrate_schemas_at_once(url: str) -> None:
    """tenants TN-16: with stores and URLs of their own, too."""

    def made(name: str) -> str:
        with StateStore.open(url, schema=name, migrate=True) as store:
            create(store, name)
            return migrations.read_state(store.backend).state

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(made, ["a", "b", "c", "d"])) == {"current"}


def test_a_migration_that_waits_for_another_thread_is_not_idle(url: str, tmp_path: Path) -> None:
    """tenants TN-16: a server that ends idle transactions lets it go on."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND now() - state_change > '1s'"
    with connect(url) as driver:
        execute(url, f"ALTER DATABASE {driver.info.dbname} SET idle_in_transaction_session_timeout = '500ms'")
        with Tenants.open(url, state_dir=tmp_path) as tenants, ThreadPoolExecutor(1) as threads:
            with apply.environment_kept():
                made = threads.submit(tenants.create, "a")
                for _ in range(20_000):
                    if made.done() or driver.execute(waits).fetchone() == (1,):
                        break
            assert made.result().revisions


def test_acts_are_there_for_coroutines(url: str, tmp_path: Path) -> None:
    """tenants TN-10, TN-11, TN-12, TN-13, TN-14."""

    async def act() -> Any:
        async with await AsyncTenants.open(url, settings=Settings(state_dir=tmp_path / "state")) as tenants:
            await asyncio.gather(tenants.create("a"), tenants.create("b"))
            assert (await tenants.migrate()).current == ("a", "b")
            await tenants.export("a", tmp_path / "backup")
            assert (await tenants.erase("a", confirm="a")).erased
            with pytest.raises(SchemaError):
                await tenants.store("a")
            return [tenant.name for tenant in await tenants.list()]

    assert asyncio.run(act()) == ["b"]


@pytest.mark.slow
def test_tenants_with_work_are_found_together(url: str, tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    """tenants TN-20: several by each statement."""
    monkeypatch.setattr(work, "TOGETHER", 4)
    make_tenants(url, [f"t{number}" for number in range(10)])
    assert tenants.due() == ()
    with tenants.store("t3") as store:
        store.workflows.runs.create("w", trigger=TRIGGER, phase="p", options=RunOptions(id="q", status="queued"))
    with tenants.store("t4") as store:
        store.workflows.runs.create("v", trigger=TRIGGER, phase="p", options=RunOptions(id="o", offered=True))
        store.workflows.runs.create("v", trigger=TRIGGER, phase="p", options=RunOptions(id="mine"))
    with tenants.store("t9") as store:
        store.schedules.crons.put("every", CronSpec("* * * * *", target="w"))
    assert tenants.due() == ("t3", "t4")
    assert tenants.due(["w"]) == ("t3",)
    assert tenants.due([]) == ()
    with tenants.store("t4") as store:
        [claim] = store.workflows.claims.take_next(owner="me", limit=1)
        assert tenants.due() == ("t3",)
        store.workflows.waits.pause(claim.run_id, until=store._context.clock.now(), claim=claim)
    assert tenants.due(["v"]) == ("t4",)
    tenants.erase("t3", confirm="t3")
    assert tenants.due() == ("t4",)


def test_looks_have_one_connection_beside_the_pool(url: str, tenants: Tenants) -> None:
    """tenants TN-20: which ends with the others."""
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    make_tenants(url, ["a", "b"])
    with connect(url) as driver:
        for _ in range(3):
            with tenants.store("a") as store:
                assert not store.workflows.runs.list().items
            assert tenants.due() == ()
        assert driver.execute(sessions).fetchone() == (2,)
        tenants.close()
        for _ in range(500):
            if driver.execute(sessions).fetchone() == (0,):
                break
        else:
            pytest.fail("connections are left")
    with pytest.raises(StoreClosed):
        tenants.due()


def test_a_cron_and_an_overdue_question_are_work(url: str, tmp_path: Path) -> None:
    """tenants TN-20."""
    make_tenants(url, ["cron", "gate"])
    clock = FrozenClock()
    with Tenants.open(url, state_dir=tmp_path / "state", clock=clock) as tenants:
        with tenants.store("cron") as store:
            store.schedules.crons.put("every", CronSpec("* * * * *", target="w"))
        with tenants.store("gate") as store:
            create(store, "1")
            expires = clock.now() + timedelta(minutes=5)
            store.workflows.approvals.pause("1", Gate("ship", "Ship it?", expires_at=expires))
        assert tenants.due() == ()
        clock.advance(timedelta(minutes=1))
        assert tenants.due(["w"]) == ("cron",)
        clock.advance(timedelta(minutes=5))
        assert tenants.due() == ("cron", "gate")
        with tenants.store("cron") as store:
            assert store.schedules.crons.take_due(owner="me")
        assert tenants.due() == ("gate",)


def test_one_statement_asks_about_many_tenants() -> None:
    """tenants TN-20: they stay as they are when a tenant comes, but for one."""
    names = [f"tenant-{number}" for number in range(1000)]
    before = work.statements(names, filtered=False)
    assert len(before) < 100
    after = work.statements([*names, "another"], filtered=False)
    assert len(after.keys() - before.keys()) == 1


def test_every_name_of_tenants_is_there_for_coroutines() -> None:
    """backends B-70."""
    assert {name for name in vars(Tenants) if not name.startswith("_")} <= set(dir(AsyncTenants))
