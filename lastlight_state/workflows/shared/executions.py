"""Parts that statements about executions share: columns, the outcome, sums, and the states of nodes.

Programs before this library stored no outcome, so it is derived from their other columns. The rule is written twice:
as a condition in SQL (`OUTCOME`), and in Python for rows already read (`outcome_of`). SQL alone is not enough, because
writes return plain columns: SQLite since 3.38 answers ``IS NULL`` wrongly in RETURNING.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.backends.sql.expressions import millis_between, nearest
from lastlight_state.backends.sql.json import object_of
from lastlight_state.db.lists.covering import Covering, NarrowIndex, SelfJoin
from lastlight_state.db.rows.statements import Row, among, bind, constant, every_column_of, number, statement_of
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.base import later_of
from lastlight_state.db.schema.indexes import AmongFew
from lastlight_state.db.units.unit import Unit
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.records import Node
from lastlight_state.workflows.tables import EXECUTIONS, NODES
from lastlight_state.workflows.words import (
    FINE,
    MILLION,
    MOST_MIRRORED,
    MOST_REPORTED,
    WAITING_NODE,
    NodeState,
    Outcome,
    dollars_of,
)

# The rows of a run's nodes, and how executions, questions and the end of a run set their states.
#
# Callers hold the lock of the run's row. Only waiting nodes have a time or signal to wait for: each statement that ends
# a waiting state clears these columns.

_ANY = NODES.alias("node")
_LATER = NODES.alias("later")

#: The columns of a `Node`.
NODE_COLUMNS = every_column_of(Node, NODES)
#: The columns of the primary key.
KEY = (NODES.c.run_id, NODES.c.node_id, NODES.c.iteration)
#: The columns that say what a waiting node waits for.
WAIT = ("wake_at", "waiting_for", "correlation_id")


def param(name: str) -> sa.BindParameter[Any]:
    """Return a bound parameter with the name and type of a column of nodes."""
    return bind(name, NODES.c[name])


#: The conditions on the node with ``:run_id``, ``:node_id`` and ``:iteration``.
NODE_HERE = tuple(column == param(column.name) for column in KEY)
AT = bind("at", NODES.c.updated_at)
#: The values of the columns `WAIT` for a node that waits for nothing.
NO_WAIT: Mapping[str, None] = dict.fromkeys(WAIT)
#: The new ``updated_at`` of a changed node, which never moves back.
TOUCHED = {"updated_at": later_of(NODES.c.updated_at, AT)}


def waits(state: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a node's state is one of the waiting states."""
    return among(state, WAITING_NODE)


def _set_state() -> sa.Executable:
    row = insert(NODES).values(
        **{name: param(name) for name in ("run_id", "node_id", "iteration", "state")}, updated_at=AT
    )
    kept = {name: sa.case((waits(row.excluded.state), NODES.c[name])) for name in WAIT}
    return row.on_conflict_do_update(index_elements=KEY, set_={"state": row.excluded.state, **kept, **TOUCHED})


_SET_STATE = statement_of(_set_state())
_WAKE = statement_of(
    sa.update(NODES)
    .where(*NODE_HERE, NODES.c.state == sa.bindparam("waiting"))
    .values(state=param("state"), **NO_WAIT, **TOUCHED)
)
#: Cancels the running and waiting nodes of ``:run_id``.
NODE_CLOSE = statement_of(
    sa.update(NODES)
    .where(NODES.c.run_id == param("run_id"), sa.or_(NODES.c.state == constant("running"), waits(NODES.c.state)))
    .values(state="cancelled", **NO_WAIT, **TOUCHED)
)


def label_of(
    run_id: sa.ColumnElement[str], node_id: sa.ColumnElement[Any], iteration: sa.ColumnElement[int]
) -> sa.ColumnElement[str | None]:
    """Return a subquery for a node's label, NULL without a row. The arguments are columns of the outer query."""
    here = (_ANY.c.run_id == run_id, _ANY.c.node_id == node_id, _ANY.c.iteration == iteration)
    return sa.select(_ANY.c.label).where(*here).scalar_subquery().label("label")


def states_of(run_id: sa.ColumnElement[str]) -> sa.ColumnElement[Any]:
    """Return a subquery for the latest state of each node of a run, as JSON. ``run_id`` is an outer column."""
    later = sa.exists().where(
        _LATER.c.run_id == _ANY.c.run_id, _LATER.c.node_id == _ANY.c.node_id, _LATER.c.iteration > _ANY.c.iteration
    )
    states = sa.type_coerce(object_of(_ANY.c.node_id, _ANY.c.state), columns.Json)
    return sa.select(states).where(_ANY.c.run_id == run_id, ~later).scalar_subquery().label("node_states")


def set_state(unit: Unit, run_id: str, node: NodeRef, state: NodeState, at: datetime) -> None:
    """Set the state of a node of a locked run, whatever its state was. Inserts the node if it is missing."""
    unit.change(_SET_STATE, {**_key(run_id, node), "state": state, "at": at})


def wake(unit: Unit, run_id: str, node: NodeRef, state: NodeState, at: datetime, *, waiting: NodeState) -> None:
    """Set the state of a node of a locked run, but only if the node is still in the state ``waiting``."""
    unit.change(_WAKE, {**_key(run_id, node), "state": state, "at": at, "waiting": waiting})


def close_all(unit: Unit, run_id: str, at: datetime) -> None:
    """Cancel the running and waiting nodes of a run that has ended. Pending nodes stay pending."""
    unit.change(NODE_CLOSE, {"run_id": run_id, "at": at})


def _key(run_id: str, node: NodeRef) -> Row:
    return {"run_id": run_id, "node_id": node.node_id, "iteration": node.iteration}


_c = EXECUTIONS.c

#: The execution ``:execution_id``.
HERE = _c.id == sa.bindparam("execution_id")

#: The condition that an execution has not ended.
IN_FLIGHT = sa.and_(_c.finished_at.is_(None), _c.success.is_(None))

#: The index that finds the executions of a run. All of them are read and then sorted.
BY_RUN = NarrowIndex("idx_executions_workflow_run", ("workflow_run_id",), ordered=False)

_each = EXECUTIONS.alias("each")
_first_type = sa.select(sa.func.min(_each.c.trigger_type).label("word")).cte(recursive=True)
_next_type = sa.select(sa.func.min(_each.c.trigger_type)).where(_each.c.trigger_type > _first_type.c.word)
_types = _first_type.union_all(sa.select(_next_type.scalar_subquery()).where(_first_type.c.word.is_not(None)))
_known_types = sa.select(_types.c.word).where(_types.c.word.is_not(None))

#: The condition on executions of ``:trigger_id``, whatever its type. The index begins with the type: the few types
#: that exist are read from the index, one after the other.
OF_TRIGGER = sa.and_(AmongFew(_c.trigger_type, _known_types), _c.trigger_id == bind("trigger_id", _c.trigger_id))


def usage_covering(narrow: NarrowIndex) -> Covering:
    """Return the covering index of executions, for databases that keep large values inside the rows."""
    return Covering("ix_executions_usage", ("started_at", "id"), {"": narrow})


def of_runs(
    shown: Sequence[sa.ColumnElement[Any]], *conditions: sa.ColumnElement[bool], by_run: bool = False
) -> tuple[sa.Select[Any], sa.Select[Any]]:
    """Return two SELECTs of the executions of some runs: a plain one, and one that uses the covering index.

    With ``by_run``, both are grouped by run.
    """
    finding = SelfJoin(usage_covering(BY_RUN), BY_RUN, (_c.started_at, _c.id))
    plain, beside = sa.select(*shown).where(*conditions), finding.select(shown, conditions)
    if not by_run:
        return plain, beside
    return plain.group_by(_c.workflow_run_id), beside.group_by(finding.rewrite_element(_c.workflow_run_id))


_SAID_BY_STOP_REASON = {"skipped": "skipped", "error_quota": "deferred"}

#: The stored outcome of an execution, or else the outcome derived from its other columns.
OUTCOME = sa.case(
    (_c.outcome != constant("running"), _c.outcome),
    (_c.success == sa.true(), constant("succeeded")),
    *(
        (sa.and_(_c.success == sa.false(), _c.stop_reason == constant(reason)), constant(outcome))
        for reason, outcome in _SAID_BY_STOP_REASON.items()
    ),
    (IN_FLIGHT, constant("running")),
    else_=constant("failed"),
).label("outcome")


def outcome_of(row: Row) -> str:
    """Return `OUTCOME` of a row that was read."""
    stored, success = row["outcome"], row["success"]
    if stored is not None and stored != "running":
        return str(stored)
    if success:
        return "succeeded"
    if success is None:
        return "running" if row["finished_at"] is None else "failed"
    return _SAID_BY_STOP_REASON.get(row["stop_reason"] or "", "failed")


def duration(finished_at: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return the stored duration in milliseconds, or else the time from start to ``finished_at``, at least zero."""
    spent: sa.ColumnElement[Any] = millis_between(_c.started_at, finished_at)
    return sa.func.coalesce(_c.duration_ms, sa.case((spent < 0, number(0)), else_=spent))


_at = bind("at", _c.finished_at)
_skill = bind("skill", _c.skill)

#: Ends the executions of ``:run_id`` that are in flight, or those of one ``:skill``.
CLOSE = statement_of(
    sa.update(EXECUTIONS)
    .where(_c.workflow_run_id == sa.bindparam("run_id"), IN_FLIGHT, sa.or_(_skill.is_(None), _c.skill == _skill))
    .values(
        finished_at=_at,
        success=sa.false(),
        outcome=sa.bindparam("closed_as"),
        stop_reason=sa.bindparam("closed_as"),
        error=sa.func.coalesce(bind("closed_because", _c.error), _c.error),
        duration_ms=duration(_at),
    )
)


def close(
    unit: Unit, run_id: str, outcome: Outcome, *, at: datetime, because: str | None = None, skill: str | None = None
) -> int:
    """End the executions in flight of a locked run, all or those of one skill. Returns their number."""
    facts = {"run_id": run_id, "closed_as": outcome, "closed_because": because, "at": at, "skill": skill}
    return unit.change(CLOSE, facts)


def _divide_by_million(amount: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """Return an SQL expression for the amount divided by a million, rounded towards zero.

    Both databases round negative amounts so.
    """
    return amount.op("/", return_type=sa.BigInteger())(_million)


_million = number(MILLION)
_mirrored = nearest(_c.cost_usd * sa.literal_column("1000000.0"))
_finely = nearest(_c.cost_usd * sa.literal_column("1000000000000.0"))
_believable = sa.func.abs(_c.cost_usd) <= sa.literal_column(f"{MOST_MIRRORED!r}")
_is_fine = sa.func.abs(_c.cost_usd) < sa.literal_column(f"{FINE!r}")

#: The cost in whole micro-dollars. For rows that have only the float it is computed as by `money.stored_cost`.
MICROS: sa.ColumnElement[int] = sa.func.coalesce(
    _c.cost_micros, sa.case((_is_fine, _divide_by_million(_finely)), (_believable, _mirrored))
)

#: The rest of the cost below a micro-dollar, in picodollars.
PICOS: sa.ColumnElement[int] = sa.case(
    (_c.cost_micros.is_not(None), sa.func.coalesce(_c.cost_picos, number(0))),
    (_is_fine, _finely % _million),
    else_=number(0),
)

TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")

#: The name of the sum of cache reads that the input tokens include already.
INCLUDED = "included_cache_reads"

_BELIEVED = number(-MOST_REPORTED), number(MOST_REPORTED)

#: The condition that another program's row has a value greater than totals count.
OVERSTATED = sa.or_(
    sa.and_(_c.cost_micros.is_(None), sa.not_(_believable)),
    *(sa.not_(_c[name].between(*_BELIEVED)) for name in ("cost_micros", "cost_picos", *TOKENS)),
)


def _sum(column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    counted = sa.case((column.between(*_BELIEVED), column))
    return sa.cast(sa.func.coalesce(sa.func.sum(counted), number(0)), sa.BigInteger)


#: The sums of every total and rollup. NULL counts as 0, and so does a value that no call would have accepted. Sums of
#: integers are exact in any order.
SUMS = (
    sa.func.count().label("executions"),
    _sum(MICROS).label("cost_micros"),
    _sum(PICOS).label("cost_picos"),
    *(_sum(_c[name]).label(name) for name in TOKENS),
    _sum(sa.case((_c.input_includes_cache_reads == sa.true(), _c.cache_read_input_tokens))).label(INCLUDED),
)

#: The names of the sums.
COUNTED = ("executions", "cost_micros", "cost_picos", *TOKENS, INCLUDED)


def sums_of(row: Row) -> Row:
    """Return the sums of a row as totals have them: the cost in dollars."""
    micros, picos = int(row["cost_micros"]), int(row["cost_picos"])
    return {
        "executions": row["executions"],
        "cost_usd": dollars_of(micros, picos),
        **{name: row[name] for name in TOKENS},
    }


def total_tokens(row: Row) -> int:
    """Return the total number of tokens of a row. Tokens read from the cache count once."""
    read = row["input_tokens"] + row["output_tokens"] + row["cache_read_input_tokens"]
    return int(read - row[INCLUDED])
