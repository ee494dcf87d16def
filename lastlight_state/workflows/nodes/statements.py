"""The SQL statements of `nodes`."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.backends.sql.expressions import time_from_iso
from lastlight_state.backends.sql.json import elements_of, member_of
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import AnyOf, Statement, among, bind, constant, statement_of
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.indexes import Leading
from lastlight_state.workflows.records import Node
from lastlight_state.workflows.shared.executions import AT, KEY, NODE_COLUMNS, NODE_HERE, TOUCHED, WAIT, param, waits
from lastlight_state.workflows.shared.run_rows import PERMITTED, PERMITTED_RUN, through_live_index
from lastlight_state.workflows.tables import NODES, RUNS
from lastlight_state.workflows.words import LIVE, NODE_STATES

_c = NODES.c

#: The fields that a put may leave out. The parameter ``kept_<field>`` lists the nodes that leave the field out.
FIELDS = ("state", "label", "output_table", "wait")

_MEMBERS = ("node_id", "iteration", "state", "output_table", "label", *WAIT)


def _rows(parameter: str) -> Any:
    return elements_of(sa.bindparam(parameter, type_=columns.Text)).table_valued(sa.column("value"), name=parameter)


def _member(rows: Any, name: str) -> sa.ColumnElement[Any]:
    return sa.cast(member_of(rows.c.value, name), _c[name].type)


def _put() -> sa.Executable:
    given = _rows("nodes")
    given_time = member_of(given.c.value, "wake_at")
    row = {name: _member(given, name) for name in _MEMBERS} | {"wake_at": time_from_iso(given_time)}
    row |= {"run_id": RUNS.c.id, "state": sa.func.coalesce(row["state"], constant("pending")), "updated_at": AT}
    permitted = sa.select(*row.values()).join_from(RUNS, given, sa.true()).where(PERMITTED)
    new = insert(NODES).from_select(list(row), permitted.with_for_update(key_share=True, of=RUNS))
    return new.on_conflict_do_update(index_elements=KEY, set_=_replaced_values(new.excluded)).returning(*NODE_COLUMNS)


def _replaced_values(new: Any) -> dict[str, sa.ColumnElement[Any]]:
    """Return the new values of a stored node: the fields given, and the stored values of all other fields."""
    kept = {field: _is_kept(new, field) for field in FIELDS}
    values = {name: sa.case((kept[name], _c[name]), else_=new[name]) for name in ("state", "label", "output_table")}
    for name in WAIT:
        values[name] = sa.case((~waits(values["state"]), sa.null()), (kept["wait"], _c[name]), else_=new[name])
    return {**values, **TOUCHED}


def _is_kept(new: Any, field: str) -> sa.ColumnElement[bool]:
    rows = _rows(f"kept_{field}")
    listed = sa.select(_member(rows, "node_id"), _member(rows, "iteration"))
    return sa.tuple_(new.node_id, new.iteration).in_(listed)


#: Inserts or changes nodes of a live run.
PUT = statement_of(_put(), Node)

UPDATE = statement_of(
    sa.update(NODES)
    .where(
        _c.run_id == PERMITTED_RUN,
        _c.node_id == param("node_id"),
        _c.iteration == param("iteration"),
        _c.state == sa.bindparam("expected"),
    )
    .values(state=param("state"), **{name: sa.case((waits(param("state")), _c[name])) for name in WAIT}, **TOUCHED)
    .returning(*NODE_COLUMNS),
    Node,
)

FIND = statement_of(sa.select(*NODE_COLUMNS).where(*NODE_HERE), Node)
#: The number of a run's nodes with each state.
COUNTS: Statement[tuple[str, int]] = statement_of(
    sa.select(_c.state, sa.func.count().label("nodes")).where(_c.run_id == param("run_id")).group_by(_c.state), tuple
)

#: The filter by one or more states.
ANY_STATE = AnyOf("state", _c.state, len(NODE_STATES))

_filters = {
    "run_id": _c.run_id == param("run_id"),
    "node_id": _c.node_id == param("node_id"),
    "states": ANY_STATE.condition,
}
LIST = Listing("nodes", NODE_COLUMNS, order=(_c.node_id, _c.iteration), descending=False, filters=_filters, row=Node)

_of_live_run = sa.exists(through_live_index(sa.select(RUNS.c.id))).where(
    RUNS.c.id == _c.run_id, among(RUNS.c.status, LIVE)
)

DUE = Listing(
    "nodes_due",
    NODE_COLUMNS,
    order=(_c.wake_at, *KEY),
    descending=False,
    always=(_c.wake_at.is_not(None), _c.wake_at <= bind("now", _c.wake_at), _of_live_run),
    spread={"states": _c.state},
    worded=("states",),
    through="ix_run_nodes_wake",
    row=Node,
)
WAITING = Listing(
    "nodes_waiting",
    NODE_COLUMNS,
    order=(_c.waiting_for, *KEY),
    descending=False,
    always=(_c.state == constant("waiting_signal"), _of_live_run),
    filters={
        "signal": Leading(_c.waiting_for, bind("signal", _c.waiting_for)),
        "correlation_id": _c.correlation_id == param("correlation_id"),
    },
    through="ix_run_nodes_waiting",
    row=Node,
)
