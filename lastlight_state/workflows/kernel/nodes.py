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

from lastlight_state.backends.sql.json import object_of
from lastlight_state.db import columns
from lastlight_state.db.base import later_of
from lastlight_state.db.statements import among, constant, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.tables import NODES
from lastlight_state.workflows.words import WAITING_NODE, NodeState

COLUMNS = tuple(NODES.c)
_ANY = NODES.alias("node")
_LATER = NODES.alias("later")
KEY = (NODES.c.run_id, NODES.c.node_id, NODES.c.iteration)
#: The columns that say what a waiting node waits for.
WAIT = ("wake_at", "waiting_for", "correlation_id")


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
CLOSE = prepared(
    sa.update(NODES)
    .where(NODES.c.run_id == param("run_id"), sa.or_(NODES.c.state == constant("running"), waits(NODES.c.state)))
    .values(state="cancelled", **NO_WAIT, **TOUCHED)
)


def label_of(
    run_id: sa.ColumnElement[str], node_id: sa.ColumnElement[Any], iteration: sa.ColumnElement[int]
) -> sa.ColumnElement[str | None]:
    """The label of the node that the columns of the statement around it name; NULL where there is no such node."""
    here = (_ANY.c.run_id == run_id, _ANY.c.node_id == node_id, _ANY.c.iteration == iteration)
    return sa.select(_ANY.c.label).where(*here).scalar_subquery().label("label")


def states_of(run_id: sa.ColumnElement[str]) -> sa.ColumnElement[Any]:
    """The nodes of the run that the statement around it names, each with the state of its highest iteration."""
    later = sa.exists().where(
        _LATER.c.run_id == _ANY.c.run_id, _LATER.c.node_id == _ANY.c.node_id, _LATER.c.iteration > _ANY.c.iteration
    )
    states = sa.type_coerce(object_of(_ANY.c.node_id, _ANY.c.state), columns.Json)
    return sa.select(states).where(_ANY.c.run_id == run_id, ~later).scalar_subquery().label("node_states")


def set_state(unit: Unit, run_id: str, node: NodeRef, state: NodeState, at: datetime) -> None:
    """Set the state of a node of a locked run, whatever it was; a node that was never put is made."""
    unit.change(_SET_STATE, {**_key(run_id, node), "state": state, "at": at})


def wake(unit: Unit, run_id: str, node: NodeRef, state: NodeState, at: datetime, *, waiting: NodeState) -> None:
    """Move a node of a locked run on from the state in which it waits. One that has moved on already stays."""
    unit.change(_WAKE, {**_key(run_id, node), "state": state, "at": at, "waiting": waiting})


def close_all(unit: Unit, run_id: str, at: datetime) -> None:
    """Cancel the nodes of a run that has ended which are running or waiting; those that never began stay pending."""
    unit.change(CLOSE, {"run_id": run_id, "at": at})


def _key(run_id: str, node: NodeRef) -> dict[str, Any]:
    return {"run_id": run_id, "node_id": node.node_id, "iteration": node.iteration}
