"""How the stories of a run are told: several statements of one moment, each from an index on the run."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.statements import bind, constant, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.executions.records import ExecutionSummary
from lastlight_state.workflows.executions.statements import SUMMARY
from lastlight_state.workflows.kernel import rows as run_rows
from lastlight_state.workflows.lookups.records import TaskStory, TaskWait
from lastlight_state.workflows.nodes import checks as node_checks
from lastlight_state.workflows.nodes.records import Node
from lastlight_state.workflows.nodes.statements import FIND
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, NODES, REQUESTS

_e = EXECUTIONS.c
_run_id = bind("run_id", NODES.c.run_id)
_node = (bind("node_id", NODES.c.node_id), bind("iteration", NODES.c.iteration))

ATTEMPTS = prepared(
    sa.select(*SUMMARY, sa.func.count().over().label("attempt_count"))
    .where(_e.workflow_run_id == _run_id, _e.node_id == _node[0], _e.iteration == _node[1])
    .order_by(_e.attempt.desc())
    .limit(sa.literal_column("500"))
)
LATEST_ITERATION = prepared(
    sa.select(sa.func.max(NODES.c.iteration).label("iteration")).where(
        NODES.c.run_id == _run_id, NODES.c.node_id == _node[0]
    )
)


def _asked(table: sa.Table, kind: str, run_id: str, asked_at: str, answered: tuple[str, str]) -> sa.Select[Any]:
    c = table.c
    columns = {"id": c.id, "status": c.status, "asked_at": c[asked_at], "expires_at": c.expires_at}
    columns |= {"answered_at": c[answered[0]], "answered_by": c[answered[1]]}
    shown = (column.label(name) for name, column in columns.items())
    return sa.select(constant(kind).label("kind"), *shown).where(
        c[run_id] == _run_id, c.node_id == _node[0], c.iteration == _node[1]
    )


_waits = sa.union_all(
    _asked(APPROVALS, "approval", "workflow_run_id", "created_at", ("responded_at", "responded_by")),
    _asked(REQUESTS, "human_request", "run_id", "requested_at", ("answered_at", "answered_by")),
).subquery()
WAITS = prepared(
    sa.select(*_waits.c).order_by(_waits.c.asked_at.desc(), _waits.c.id.desc()).limit(sa.literal_column("100"))
)


def task(unit: Unit, run_id: str, ref: NodeRef) -> TaskStory:
    """The story of a node. Raises `NotFound`."""
    key = node_checks.key(run_id, ref)
    node = unit.find(Node, FIND, key)
    attempts = unit.rows(ATTEMPTS, key)
    if node is None and not attempts:
        run_rows.expect_one(unit, run_id)
        raise valid.not_found("run_node", ref.node_id)
    count = attempts[0]["attempt_count"] if attempts else 0
    for row in attempts:
        del row["attempt_count"]
    told = [ExecutionSummary.of(row) for row in reversed(attempts)]
    return TaskStory(
        run_id=run_id,
        node_id=ref.node_id,
        iteration=ref.iteration,
        node=node,
        latest_iteration=unit.value(LATEST_ITERATION, key),
        attempts=tuple(told),
        attempt_count=count,
        cached=bool(told) and told[-1].cached,
        started_at=told[0].started_at if told else None,
        finished_at=told[-1].finished_at if told else None,
        waits=tuple(reversed(unit.all(TaskWait, WAITS, key))),
    )
