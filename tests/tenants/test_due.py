"""Which tenants have something to do, while some of them cannot be asked."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from support.tenants import make_tenants

from lastlight_state import Tenants, migrations
from lastlight_state.errors import StateError
from lastlight_state.schedules import CronSpec
from lastlight_state.testing import FrozenClock
from lastlight_state.testing.postgres import connect
from lastlight_state.workflows import Gate, NodeRef, Question, RunOptions, Trigger

TRIGGER = Trigger(type="cli", id="t")
NAMES = [f"t{number}" for number in range(4)]


@pytest.fixture
def working(url: str, tenants: Tenants) -> Tenants:
    """Tenants of which the first one and the last one have something to do."""
    make_tenants(url, NAMES)
    for name in (NAMES[0], NAMES[-1]):
        with tenants.store(name) as store:
            store.workflows.runs.create("w", trigger=TRIGGER, phase="p", options=RunOptions(id="q", status="queued"))
    return tenants


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage().split()[2] for record in caplog.records if "is left out of looks" in record.getMessage()
    ]


@pytest.mark.parametrize(
    "done",
    [
        "DROP TABLE t1.cron_fires",
        "ALTER TABLE t1.run_leases DROP COLUMN due_at CASCADE",
        "DROP SCHEMA t1 CASCADE; CREATE SCHEMA t1; CREATE TABLE t1.lastlight_state_version (version_num text)",
    ],
)
def test_a_broken_tenant_hides_no_other(
    url: str, working: Tenants, caplog: pytest.LogCaptureFixture, done: str
) -> None:
    """tenants TN-20: it is named once in the log, and asked again when it is mended."""
    assert working.due() == ("t0", "t3")
    with connect(url) as driver:
        driver.execute(done)
        assert [working.due() for _ in range(3)] == [("t0", "t3")] * 3
        assert warned(caplog) == ["t1"]
        driver.execute("DROP SCHEMA t1 CASCADE")
        assert working.due() == ("t0", "t3")
    working.create("t1")
    with working.store("t1") as store:
        store.workflows.runs.create("w", trigger=TRIGGER, phase="p", options=RunOptions(status="queued"))
    assert working.due() == ("t0", "t1", "t3")
    assert warned(caplog) == ["t1"]


def test_a_tenant_that_is_behind_hides_no_other(working: Tenants) -> None:
    """tenants TN-20."""
    migrations.migrate(working.backend.beside("behind"), to="0001")
    assert working.due() == ("t0", "t3")
    with pytest.raises(StateError):
        working.due(only=["behind"])


def test_a_table_that_somebody_locks_holds_up_no_other_tenant(url: str, working: Tenants) -> None:
    """tenants TN-20: as a migration of one tenant does."""
    with connect(url) as driver, driver.transaction():
        driver.execute("LOCK TABLE t3.workflow_runs IN ACCESS EXCLUSIVE MODE")
        assert [working.due() for _ in range(2)] == [("t0",)] * 2
    assert working.due() == ("t0", "t3")


def test_a_role_that_may_read_some_tenants_looks_for_their_work(
    url: str, working: Tenants, caplog: pytest.LogCaptureFixture
) -> None:
    """tenants TN-20."""
    with connect(url) as driver:
        driver.execute("CREATE ROLE looks_for_work LOGIN")
        try:
            driver.execute("GRANT USAGE ON SCHEMA t0, t3 TO looks_for_work")
            driver.execute("GRANT SELECT ON ALL TABLES IN SCHEMA t0 TO looks_for_work")
            driver.execute("GRANT SELECT ON t3.lastlight_state_version TO looks_for_work")
            limited = url.replace("//postgres@", "//looks_for_work@")
            with Tenants.open(limited, state_dir=working.settings.state_dir) as tenants:
                assert tenants.due() == ("t0",)
            assert warned(caplog) == ["t3"]
        finally:
            driver.execute("DROP OWNED BY looks_for_work")
            driver.execute("DROP ROLE looks_for_work")


def test_what_is_of_other_workflows_is_not_named(url: str, tmp_path: Path) -> None:
    """tenants TN-20: nor is an overdue question or a stale fire of them."""
    make_tenants(url, ["cron", "gate", "person"])
    clock = FrozenClock()
    with Tenants.open(url, state_dir=tmp_path / "state", clock=clock) as tenants:
        soon = clock.now() + timedelta(minutes=1)
        with tenants.store("cron") as store:
            store.schedules.crons.put("every", CronSpec("* * * * *", target="w"))
        for name in ("gate", "person"):
            with tenants.store(name) as store:
                store.workflows.runs.create("w", trigger=TRIGGER, phase="p", options=RunOptions(id="1"))
                if name == "gate":
                    store.workflows.approvals.pause("1", Gate("ship", "Ship?", expires_at=soon))
                else:
                    store.workflows.human_requests.pause("1", Question(NodeRef("ask"), "text", "Who?", expires_at=soon))
        clock.advance(timedelta(minutes=2))
        with tenants.store("cron") as store:
            [fire] = store.schedules.crons.take_due(owner="gone", lease=timedelta(minutes=1))
            store.schedules.crons.retire(fire.cron_name)
        clock.advance(timedelta(minutes=2))
        assert tenants.due() == tenants.due(["w"]) == ("cron", "gate", "person")
        assert tenants.due(["v"]) == ()


def test_some_tenants_are_asked_alone(working: Tenants) -> None:
    """tenants TN-20."""
    assert working.due(only=["t0", "t1", "nobody"]) == ("t0",)
    assert working.due(["w"], only=["t3"]) == ("t3",)
    assert working.due(only=[]) == ()
