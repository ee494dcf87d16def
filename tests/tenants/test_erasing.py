"""What goes with a tenant that is erased, and what stays."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.tenants import make_tenants

from lastlight_state import Settings, StateStore, Tenants, migrations
from lastlight_state.errors import Conflict, StateError
from lastlight_state.migrations import scripts
from lastlight_state.testing.postgres import connect
from lastlight_state.workflows import RunOptions, Trigger

TRIGGER = Trigger(type="cli", id="t")


def execute(url: str, *statements: str) -> None:
    with connect(url) as driver:
        for statement in statements:
            driver.execute(statement)


def test_mailboxes_and_logs_of_a_store_that_shares_the_directories_stay(url: str, tmp_path: Path) -> None:
    """tenants TN-5, TN-14: also those of an agent group with the name of the tenant."""
    given: dict[str, Any] = {
        name: tmp_path / name for name in ("state_dir", "agent_log_dir", "run_log_root", "mailbox_root")
    }
    settings = Settings(**given)
    with StateStore.open(tmp_path / "x.db", settings=settings) as store:
        store.mailbox.create("acme", "s-1")
        for folder in (*store.settings.line_directories, *given.values()):
            (folder / "acme").mkdir(parents=True, exist_ok=True)
            (folder / "acme" / "x.jsonl").write_text("{}\n")
        kept = sorted(tmp_path.rglob("*"))
        with Tenants.open(url, settings=settings) as tenants:
            tenants.create("acme")
            with tenants.store("acme") as tenant:
                tenant.mailbox.create("acme", "s-1")
            assert tenants.erase("acme", confirm="acme").files
        assert [info.session for info in store.mailbox.list().items] == ["s-1"]
        assert set(kept) <= set(tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ("ALTER TABLE a.workflow_runs ADD COLUMN billing_ref text", "column workflow_runs.billing_ref"),
        ("ALTER TABLE a.lastlight_state_version ADD COLUMN billing_ref text", "billing_ref"),
        ("CREATE FUNCTION a.lastlight_refuse(n int) RETURNS int LANGUAGE sql AS 'SELECT 1'", "lastlight_refuse"),
        (
            """DROP FUNCTION a.lastlight_refuse() CASCADE;
            CREATE PROCEDURE a.lastlight_refuse() LANGUAGE sql AS 'SELECT 1'""",
            "lastlight_refuse",
        ),
        ("DROP TABLE a.run_frames CASCADE; CREATE VIEW a.run_frames AS SELECT 1 AS n", "run_frames"),
        ("CREATE TYPE a.theirs AS ENUM ('x')", "theirs"),
    ],
)
def test_what_others_have_added_is_named_and_nothing_goes(url: str, tenants: Tenants, made: str, named: str) -> None:
    """tenants TN-14: also what bears a name of this library."""
    make_tenants(url, ["a"])
    execute(url, made, "CREATE INDEX theirs ON a.workflow_runs (id)")
    with pytest.raises(Conflict, match=named) as raised:
        tenants.erase("a", confirm="a")
    assert raised.value.code == "not_ours"
    assert [tenant.name for tenant in tenants.list()] == ["a"]


def test_a_tenant_at_any_revision_is_erased(tenants: Tenants) -> None:
    """tenants TN-14: its own columns are known, whatever its revision is."""
    for number, revision in enumerate(scripts.revisions()):
        with closing(tenants.backend.beside(f"t{number}")) as backend:
            migrations.migrate(backend, to=revision)
        assert tenants.erase(f"t{number}", confirm=f"t{number}").erased
    assert not tenants.list()


def test_a_tenant_in_use_is_erased(url: str, tenants: Tenants) -> None:
    """tenants TN-14: calls in it take its tables in other orders than the erasure does."""
    make_tenants(url, ["a", "b"])
    stopping = threading.Event()
    failed: list[StateError] = []

    def work(name: str) -> None:
        with tenants.store(name) as store:
            while not stopping.is_set():
                try:
                    store.workflows.runs.create("w", trigger=TRIGGER, phase="p", options=RunOptions(status="queued"))
                    store.workflows.queue.admit_next(cap=10**6, owner="o", limit=2)
                    store.workflows.runs.list()
                except StateError as error:
                    if name == "b":
                        failed.append(error)

    threads = [threading.Thread(target=work, args=[name]) for name in ("a", "a", "a", "b")]
    for thread in threads:
        thread.start()
    try:
        assert tenants.erase("a", confirm="a").erased
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    assert not failed
    assert [tenant.name for tenant in tenants.list()] == ["b"]
