"""The rights that the deploying page gives to a service are enough to work, and too few to do harm."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from docs.pages import ROOT, blocks
from sqlalchemy.engine import make_url

from lastlight_state import StateStore
from lastlight_state.messaging import ConversationKey
from lastlight_state.testing import ThrowawayPostgres
from lastlight_state.testing.postgres import connect
from lastlight_state.workflows import Failure, Gate, NodeRef, PhaseEntry, Trigger

SCHEMA, ROLE = "agents", "agents_service"
[GRANTS] = blocks(ROOT / "docs" / "deploying.md", "sql")

HARM = (
    "DELETE FROM agents.executions",
    "TRUNCATE agents.run_transitions",
    "INSERT INTO agents.maintenance_permits VALUES ('reset')",
    "UPDATE agents.lastlight_state_version SET version_num = '0001'",
    "CREATE TABLE agents.mine (n int)",
    "DROP TRIGGER executions_no_delete ON agents.executions",
)


@pytest.fixture(scope="module")
def service_url(postgres_server: ThrowawayPostgres) -> Iterator[str]:
    """A migrated database, as a role sees it that has the rights of the page."""
    role, password = f"{ROLE}_{uuid4().hex[:8]}", uuid4().hex
    with postgres_server.database() as url, connect(url) as owner:
        StateStore.open(url, schema=SCHEMA, migrate=True).close()
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
        try:
            owner.execute(GRANTS.text.replace(ROLE, role))
            yield make_url(url).set(username=role, password=password).render_as_string(hide_password=False)
        finally:
            owner.execute(f"DROP OWNED BY {role}")
            owner.execute(f"DROP ROLE {role}")


def test_the_grants_are_enough_to_work(service_url: str) -> None:
    """packaging-and-tests §4."""
    with StateStore.open(service_url, schema=SCHEMA) as store:
        runs, executions, approvals = store.workflows.runs, store.workflows.executions, store.workflows.approvals
        run = runs.ensure("once", "review", trigger=Trigger("t-1", type="cli"), phase="plan").run
        runs.append_phase(run.id, PhaseEntry("plan", success=True), scratch={"files": 2})
        execution = executions.start("review:plan", run_id=run.id, node=NodeRef("plan"))
        executions.save_output(execution.id, "text", loop="plan")
        executions.finish(execution.id, "succeeded")
        approvals.answer(approvals.pause(run.id, Gate("merge", "Merge?")).id, "approved", by="ana")
        runs.finish(run.id, "failed", failure=Failure("no"))
        runs.restart(run.id, by="ana", reason="again")
        store.workflows.overrides.put("review", enabled=False)
        store.workflows.overrides.clear("review")
        session = store.messaging.sessions.resume(ConversationKey("slack", "C1", "U1")).session
        store.messaging.messages.append(session.id, role="user", content="hi", platform_message_id="m1")
        store.messaging.sessions.close(session.id)
        assert {table.name for table in store.maintenance.stats.collect().tables} >= {"workflow_runs", "executions"}


def test_the_grants_permit_no_harm(service_url: str) -> None:
    with connect(service_url) as service:
        for statement in HARM:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                service.execute(statement)
