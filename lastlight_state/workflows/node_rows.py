"""The rows of a run's nodes, and the statements that set a node's state on behalf of something else.

Executions, gates, questions to people and the end of a run all move nodes, and all of them do it here, under the run's
lock, which they hold already. A node that does not wait has nothing that it waits for: every statement that leaves a
waiting state clears it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.base import later_of, table_of
from lastlight_state.db.statements import among, constant, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.models import RunNodeModel
from lastlight_state.workflows.words import WAITING_NODE, NodeState

NODES = table_of(RunNodeModel)
COLUMNS = tuple(NODES.c)
KEY = (NODES.c.run_id, NODES.c.node_id, NODES.c.iteration)
WAIT = ("wake_at", "waiting_for", "correlation_id")
"""The columns that say what a waiting node waits for."""


def param(name: str) -> sa.BindParameter[Any]:
    """The parameter of a column."""
    return sa.bindparam(name, type_=NODES.c[name].type)


HERE = tuple(column == param(column.name) for column in KEY)
AT = sa.bindparam("at", type_=NODES.c.updated_at.type)
NO_WAIT: dict[str, Any] = dict.fromkeys(WAIT)
TOUCHED = {"updated_at": later_of(NODES.c.updated_at, AT)}


def waits(state: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Whether a node in this state waits for something."""
    return among(state, WAITING_NODE)


def _set_state() -> sa.Executable:
    row = insert(NODES).values(
        **{name: param(name) for name in ("run_id", "node_id", "iteration", "state")}, updated_at=AT
    )
    kept = {name: sa.case((waits(row.excluded.state), NODES.c[name])) for name in WAIT}
    return row.on_conflict_do_update(index_elements=KEY, set_={"state": row.excluded.state, **kept, **TOUCHED})


_SET_STATE = prepared(_set_state())
_WAKE = prepared(
    sa.update(NODES)
    .where(*HERE, NODES.c.state == sa.bindparam("waiting"))
    .values(state=param("state"), **NO_WAIT, **TOUCHED)
)
_CLOSE = prepared(
    sa.update(NODES)
    .where(NODES.c.run_id == param("run_id"), sa.or_(NODES.c.state == constant("running"), waits(NODES.c.state)))
    .values(state="cancelled", **NO_WAIT, **TOUCHED)
)


def set_state(unit: Unit, run_id: str, node: NodeRef, state: NodeState, at: datetime) -> None:
    """Set the state of a node of a locked run, whatever it was; a node that was never put is made."""
    unit.change(_SET_STATE, {**_key(run_id, node), "state": state, "at": at})


def wake(unit: Unit, run_id: str, node: NodeRef, state: NodeState, at: datetime, *, waiting: NodeState) -> None:
    """Move a node of a locked run on from the state in which it waits. One that has moved on already stays."""
    unit.change(_WAKE, {**_key(run_id, node), "state": state, "at": at, "waiting": waiting})


def close_all(unit: Unit, run_id: str, at: datetime) -> None:
    """Cancel the nodes of a run that has ended which are running or waiting; those that never began stay pending."""
    unit.change(_CLOSE, {"run_id": run_id, "at": at})


def _key(run_id: str, node: NodeRef) -> dict[str, Any]:
    return {"run_id": run_id, "node_id": node.node_id, "iteration": node.iteration}
