"""The kinds of records that can be pruned: when a record ended, its other rows, and what protects it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import sqlalchemy as sa

from lastlight_state.conversations.shared.references import PROTECTIONS
from lastlight_state.conversations.shared.threads import Threads
from lastlight_state.conversations.tables import BRANCHES, CHANGES, SESSIONS as SESSION_ROWS
from lastlight_state.conversations.words import SESSION
from lastlight_state.db.rows.statements import Family, Statement, among, constant, number, statement_of
from lastlight_state.db.schema.indexes import hide_from_indexes
from lastlight_state.db.units.unit import Unit
from lastlight_state.maintenance.shared.run_tables import RUN_TABLES
from lastlight_state.messaging.models import MESSAGES, SESSIONS, is_active
from lastlight_state.schedules.models import FIRES, IS_RUNNING, SCHEDULES
from lastlight_state.workflows.executions.lists import POINTER
from lastlight_state.workflows.indexes import EXECUTION_ENDED_AT, RUN_ENDED_AT
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, REQUESTS, RUNS
from lastlight_state.workflows.words import LIVE, TERMINAL

# A kind of record that can be pruned, declared as data.


class Shared(Protocol):
    """Rows that several records of a kind share. They are removed with the last of these records."""

    #: The tables that `release` removes rows from.
    tables: tuple[str, ...]

    def waits(self, unit: Unit, keys: Sequence[str]) -> dict[str, set[str]]:
        """Return, for each record, the other records that must be removed before it."""

    def lock(self, unit: Unit, keys: Sequence[str]) -> None:
        """Lock these records, so that no call can add references to their rows until the unit ends."""

    def sizes(self, unit: Unit, keys: Sequence[str]) -> dict[str, int]:
        """Return, for each record, an estimate of the shared rows to remove with it. The estimate limits a batch."""

    def count(self, unit: Unit, keys: Sequence[str]) -> Counter[str]:
        """Return how many shared rows, by table, are removed if all these records are removed together."""

    def hold(self, unit: Unit, keys: Sequence[str]) -> None:
        """Lock the rows that these records refer to, so that they do not change until the unit ends."""

    def referenced_keys(self, unit: Unit, keys: Sequence[str]) -> Any:
        """Return the keys of the rows that these records refer to, for `release`."""

    def release(self, unit: Unit, held: Any) -> Counter[str]:
        """Remove the rows to which no reference is left after the records were removed. Returns the rows by table."""


@dataclass(frozen=True)
class Kind:
    """A table of records with one key column, and the tables whose rows go with them.

    ``age``          when a record ended. Prune walks by age and key through ``index``
    ``ended``        the condition for records that prune reads; the predicate of that index
    ``open``         the condition for records that have not ended. Old ones are only counted, as ``not_ended``. None
                     if ``protections`` cover them
    ``children``     the column with the record's key, for each table with rows of the records
    ``has_outputs``  whether rows of output tables are removed, too; they have the key in ``run_id``
    ``protections``  conditions under which a record stays, by reason
    ``in_use``       returns keys that stay because of references that only a program can follow
    ``record``       the name of a record in `NotFound` and in tombstones
    ``shared``       rows that several records refer to
    ``buried``       whether a tombstone stops imports from restoring a record
    """

    name: str
    record: str
    key: sa.Column[Any]
    age: sa.ColumnElement[Any]
    ended: sa.ColumnElement[bool]
    index: str
    open: sa.ColumnElement[bool] | None = None
    open_age: sa.ColumnElement[Any] | None = None
    keep_days: int = 30
    keep_n: int = 100
    children: tuple[sa.Column[Any], ...] = ()
    has_outputs: bool = False
    protections: Mapping[str, sa.ColumnElement[bool]] = field(default_factory=dict)
    in_use: Callable[[Unit], frozenset[str]] | None = None
    shared: Shared | None = None
    buried: bool = True

    @property
    def table(self) -> sa.Table:
        """Return the table that contains the records."""
        table: sa.Table = self.key.table
        return table

    @property
    def table_name(self) -> str:
        """Return the name of the table that contains the records."""
        return str(self.table.name)


# Chat sessions that have ended, with their messages.

CHATS = Kind(
    name="messaging",
    record="messaging_session",
    key=SESSIONS.c.id,
    age=SESSIONS.c.last_activity_at,
    ended=sa.or_(SESSIONS.c.active == sa.false(), SESSIONS.c.active.is_(None)),
    open=is_active(),
    open_age=SESSIONS.c.last_activity_at,
    index="ix_messaging_sessions_activity",
    keep_days=7,
    keep_n=0,
    children=(MESSAGES.c.session_id,),
)


# Fires of crons that have ended.

_later = FIRES.alias("later")

FIRES_KIND = Kind(
    name="fires",
    record="cron_fire",
    key=FIRES.c.id,
    age=FIRES.c.started_at,
    ended=FIRES.c.status != constant("running"),
    open=IS_RUNNING,
    open_age=FIRES.c.started_at,
    index="ix_cron_fires_newest",
    #: A backfill reaches back 31 days, and depends on the existing fires.
    keep_days=35,
    keep_n=0,
    buried=False,
    protections={
        "newest_of_its_cron": sa.not_(
            sa.exists(
                sa.select(number(1)).where(
                    _later.c.cron_name == FIRES.c.cron_name,
                    sa.tuple_(_later.c.started_at, _later.c.id) > sa.tuple_(FIRES.c.started_at, FIRES.c.id),
                )
            )
        ),
        "last_of_its_cron": sa.exists(
            sa.select(number(1)).where(SCHEDULES.c.name == FIRES.c.cron_name, SCHEDULES.c.last_fire_id == FIRES.c.id)
        ),
    },
)


# Runs with all their rows, and executions without a run.

_child, _parent = RUNS.alias("child"), RUNS.alias("parent")
_is_live = among(RUNS.c.status, LIVE)
_alone = EXECUTIONS.c.workflow_run_id.is_(None)
_finished = sa.or_(EXECUTIONS.c.finished_at.is_not(None), EXECUTIONS.c.success.is_not(None))
_pending = constant("pending")


#: Finds live runs whose scratch names an execution with an output that they will read.
_POINTING: Statement[tuple[str, Any]] = statement_of(
    sa.select(RUNS.c.id, RUNS.c.scratch).where(
        _is_live, sa.cast(RUNS.c.scratch, sa.Text).like(sa.literal_column(f"'%{POINTER}%'"))
    ),
    tuple,
)
_RUN_OF: Family[tuple[str, str | None]] = Family(
    "execution",
    lambda ids: sa.select(EXECUTIONS.c.id, EXECUTIONS.c.workflow_run_id).where(EXECUTIONS.c.id.in_(ids)),
    tuple,
)


def pointers(unit: Unit) -> dict[str, list[str]]:
    """Return, by live run, the executions whose output the run will read. An unreadable scratch names none."""
    found: dict[str, list[str]] = {}
    for run_id, scratch in unit.readable_rows(_POINTING)[0]:
        for value in scratch.values() if isinstance(scratch, dict) else ():
            pointer = value.get(POINTER) if isinstance(value, dict) else None
            if isinstance(pointer, str):
                found.setdefault(run_id, []).append(pointer)
    return found


def executions_in_use(unit: Unit) -> frozenset[str]:
    """Return the executions whose output any live run will read."""
    return frozenset(name for names in pointers(unit).values() for name in names)


def runs_in_use(unit: Unit) -> frozenset[str]:
    """Return the runs to which executions belong whose output any live run will read."""
    names = sorted(executions_in_use(unit))
    found: set[Any] = set()
    for at in range(0, len(names), 200):
        found.update(run_id for _, run_id in unit.rows(*_RUN_OF.of(names[at : at + 200])))
    return frozenset(found - {None})


def _exists(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.exists(sa.select(number(1)).where(*conditions))


RUNS_KIND = Kind(
    name="runs",
    record="workflow_run",
    key=RUNS.c.id,
    age=RUN_ENDED_AT,
    ended=among(RUNS.c.status, TERMINAL),
    open=_is_live,
    open_age=RUNS.c.started_at,
    index="ix_workflow_runs_ended",
    children=RUN_TABLES,
    has_outputs=True,
    protections={
        "live_child": _exists(_child.c.parent_run_id == RUNS.c.id, hide_from_indexes(among(_child.c.status, LIVE))),
        "live_parent": _exists(_parent.c.id == RUNS.c.parent_run_id, hide_from_indexes(among(_parent.c.status, LIVE))),
        "pending_approval": _exists(
            APPROVALS.c.workflow_run_id == RUNS.c.id, hide_from_indexes(APPROVALS.c.status == _pending)
        ),
        "pending_question": _exists(REQUESTS.c.run_id == RUNS.c.id, hide_from_indexes(REQUESTS.c.status == _pending)),
    },
    in_use=runs_in_use,
)

EXECUTIONS_KIND = Kind(
    name="executions",
    record="execution",
    key=EXECUTIONS.c.id,
    age=EXECUTION_ENDED_AT,
    ended=sa.and_(_alone, _finished),
    open=sa.and_(_alone, EXECUTIONS.c.finished_at.is_(None), EXECUTIONS.c.success.is_(None)),
    open_age=EXECUTIONS.c.started_at,
    index="ix_executions_alone",
    in_use=executions_in_use,
)


# Conversation sessions with their branches, their orders, and messages without other references.

SESSIONS_KIND = Kind(
    name="sessions",
    record=SESSION,
    key=SESSION_ROWS.c.id,
    age=SESSION_ROWS.c.updated_at,
    ended=sa.true(),
    index="ix_sessions_newest",
    protections=PROTECTIONS,
    children=(BRANCHES.c.session_id, CHANGES.c.session_id),
    shared=Threads(),
)


KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (SESSIONS_KIND, RUNS_KIND, EXECUTIONS_KIND, CHATS, FIRES_KIND)}
