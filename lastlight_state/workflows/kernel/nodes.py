"""The rows of a run's nodes, and how executions, questions and the end of a run set their states.

Callers hold the lock of the run. Only a node that waits has a time or signal that it waits for: each statement that
leaves a waiting state clears them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.backends.sql.json import object_of
from lastlight_state.db import columns
from lastlight_state.db.base import later_of
from lastlight_state.db.statements import among, bind, constant, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.tables import NODES
from lastlight_state.workflows.words import WAITING_NODE, NodeState

_ANY = NODES.alias("node")
_LATER = NODES.alias("later")

#: The columns of a `Node`.
COLUMNS = tuple(NODES.c)
#: The columns of the primary key.
KEY = (NODES.c.run_id, NODES.c.node_id, NODES.c.iteration)
#: The columns that say what a waiting node waits for.
WAIT = ("wake_at", "waiting_for", "correlation_id")


def param(name: str) -> sa.BindParameter[Any]:
    """The parameter of a column."""
    return bind(name, NODES.c[name])


#: The node ``:run_id``, ``:node_id``, ``:iteration``.
HERE = tuple(column == param(column.name) for column in KEY)
AT = bind("at", NODES.c.updated_at)
#: A node that waits for nothing.
NO_WAIT: Mapping[str, None] = dict.fromkeys(WAIT)
#: The time of a change, which never moves back.
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
#: Cancels the running and waiting nodes of ``:run_id``.
CLOSE = prepared(
    sa.update(NODES)
    .where(NODES.c.run_id == param("run_id"), sa.or_(NODES.c.state == constant("running"), waits(NODES.c.state)))
    .values(state="cancelled", **NO_WAIT, **TOUCHED)
)


def label_of(
    run_id: sa.ColumnElement[str], node_id: sa.ColumnElement[Any], iteration: sa.ColumnElement[int]
) -> sa.ColumnElement[str | None]:
    """The label of a node, given as columns of the statement around it. NULL if there is no such node."""
    here = (_ANY.c.run_id == run_id, _ANY.c.node_id == node_id, _ANY.c.iteration == iteration)
    return sa.select(_ANY.c.label).where(*here).scalar_subquery().label("label")


def states_of(run_id: sa.ColumnElement[str]) -> sa.ColumnElement[Any]:
    """An object of the nodes of a run, given as a column of the statement around it: id to latest state."""
    later = sa.exists().where(
        _LATER.c.run_id == _ANY.c.run_id, _LATER.c.node_id == _ANY.c.node_id, _LATER.c.iteration > _ANY.c.iteration
    )
    states = sa.type_coerce(object_of(_ANY.c.node_id, _ANY.c.state), columns.Json)
    return sa.select(states).where(_ANY.c.run_id == run_id, ~later).scalar_subquery().label("node_states")


def set_state(unit: Unit, run_id: str, node: NodeRef, state: NodeState, at: datetime) -> None:
    """Set the state of a node of a locked run, whatever it was. Inserts the node if it is missing."""
    unit.change(_SET_STATE, {**_key(run_id, node), "state": state, "at": at})


def wake(unit: Unit, run_id: str, node: NodeRef, state: NodeState, at: datetime, *, waiting: NodeState) -> None:
    """Set the state of a node of a locked run if it still is in the state ``waiting``."""
    unit.change(_WAKE, {**_key(run_id, node), "state": state, "at": at, "waiting": waiting})


def close_all(unit: Unit, run_id: str, at: datetime) -> None:
    """Cancel the running and waiting nodes of a run that has ended. Pending nodes stay pending."""
    unit.change(CLOSE, {"run_id": run_id, "at": at})


class _Key(TypedDict):
    run_id: str
    node_id: str
    iteration: int


def _key(run_id: str, node: NodeRef) -> _Key:
    return {"run_id": run_id, "node_id": node.node_id, "iteration": node.iteration}
