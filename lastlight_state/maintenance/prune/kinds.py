"""What can be pruned: each kind of record with its age, what goes with it, and what protects it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import sqlalchemy as sa

from lastlight_state.conversations.kernel.references import PROTECTIONS
from lastlight_state.conversations.kernel.threads import Threads
from lastlight_state.conversations.tables import BRANCHES, CHANGES, SESSIONS as SESSION_ROWS
from lastlight_state.conversations.words import SESSION
from lastlight_state.db.lists.filters import IdRow
from lastlight_state.db.rows.statements import Family, among, constant, number, prepared
from lastlight_state.db.schema.indexes import unindexed
from lastlight_state.db.units.unit import Unit
from lastlight_state.maintenance.run_tables import RUN_TABLES
from lastlight_state.messaging.models import MESSAGES, SESSIONS, is_active
from lastlight_state.schedules.models import FIRES, IS_RUNNING, SCHEDULES
from lastlight_state.workflows.executions.lists import POINTER
from lastlight_state.workflows.indexes import EXECUTION_ENDED_AT, RUN_ENDED_AT
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, REQUESTS, RUNS
from lastlight_state.workflows.words import LIVE, TERMINAL

# A kind of record that can be pruned, as data.


class Shared(Protocol):
    """What several records of a kind refer to, and which goes with the last of them."""

    #: The tables that `release` removes rows of.
    tables: tuple[str, ...]

    def waits(self, unit: Unit, keys: Sequence[str]) -> dict[str, set[str]]:
        """Return the other records that must be gone before each of these may go."""

    def lock(self, unit: Unit, keys: Sequence[str]) -> None:
        """Keep others from referring to what belongs to these records, until the unit ends."""

    def sizes(self, unit: Unit, keys: Sequence[str]) -> dict[str, int]:
        """Return about how many shared rows go with each record, which bounds a batch."""

    def count(self, unit: Unit, keys: Sequence[str]) -> Counter[str]:
        """Return how many shared rows go with all these records together, by table."""

    def hold(self, unit: Unit, keys: Sequence[str]) -> None:
        """Keep what these records refer to as it is, until the unit ends."""

    def held(self, unit: Unit, keys: Sequence[str]) -> Any:
        """Return what these records refer to, for `release`."""

    def release(self, unit: Unit, held: Any) -> Counter[str]:
        """Remove what nobody refers to any more, after the records are gone. Returns the rows by table."""


@dataclass(frozen=True)
class Kind:
    """A table of records with one key column, and the tables whose rows go with them.

    ``age``          when a record ended; in this order, then by key, prune walks through ``index``
    ``ended``        the records that prune looks at, the predicate of that index
    ``open``         records that are as old and have not ended: never removed, only counted, as ``not_ended``. None for
                     a kind whose ``protections`` tell them
    ``children``     for each table the column that holds the key of the record that its rows belong to
    ``has_outputs``  rows of output tables go, too; they hold the key in ``run_id``
    ``protections``  conditions under which a record stays, by the reason
    ``in_use``       keys that stay because something refers to them that only a program can follow
    ``record``       what `NotFound` calls one, and its tombstone
    ``shared``       what records refer to together
    ``buried``       whether a tombstone keeps an import from bringing it back
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
        """Return the table of the records themselves."""
        table: sa.Table = self.key.table
        return table

    @property
    def table_name(self) -> str:
        """Return the name of that table."""
        return str(self.table.name)


# Chat sessions that are over, with their messages.

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


# Fires of crons that are over.

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
    #: A backfill reaches back 31 days, and goes by the fires that are there.
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


# Runs with all that belongs to them, and executions that belong to no run.

_child, _parent = RUNS.alias("child"), RUNS.alias("parent")
_is_live = among(RUNS.c.status, LIVE)
_alone = EXECUTIONS.c.workflow_run_id.is_(None)
_finished = sa.or_(EXECUTIONS.c.finished_at.is_not(None), EXECUTIONS.c.success.is_not(None))
_pending = constant("pending")


class Pointing(IdRow):
    """A live run, and its scratch."""

    scratch: Any


class RunOf(IdRow):
    """The run of an execution."""

    workflow_run_id: str | None


#: Live runs whose scratch names an execution whose output they read.
_POINTING = prepared(
    sa.select(RUNS.c.id, RUNS.c.scratch).where(
        _is_live, sa.cast(RUNS.c.scratch, sa.Text).like(sa.literal_column(f"'%{POINTER}%'"))
    ),
    Pointing,
)
_RUN_OF = Family(
    "execution",
    lambda ids: sa.select(EXECUTIONS.c.id, EXECUTIONS.c.workflow_run_id).where(EXECUTIONS.c.id.in_(ids)),
    RunOf,
)


def pointers(unit: Unit) -> dict[str, list[str]]:
    """Return the executions whose output live runs will read, as their scratch says. A damaged scratch names none."""
    found: dict[str, list[str]] = {}
    for row in unit.sound(_POINTING)[0]:
        scratch = row["scratch"]
        for value in scratch.values() if isinstance(scratch, dict) else ():
            pointer = value.get(POINTER) if isinstance(value, dict) else None
            if isinstance(pointer, str):
                found.setdefault(row["id"], []).append(pointer)
    return found


def executions_in_use(unit: Unit) -> frozenset[str]:
    """Return the executions whose output live runs will read."""
    return frozenset(name for names in pointers(unit).values() for name in names)


def runs_in_use(unit: Unit) -> frozenset[str]:
    """Return the runs of these executions."""
    names = sorted(executions_in_use(unit))
    found: set[Any] = set()
    for at in range(0, len(names), 200):
        found.update(row["workflow_run_id"] for row in unit.rows(*_RUN_OF.of(names[at : at + 200])))
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
        "live_child": _exists(_child.c.parent_run_id == RUNS.c.id, unindexed(among(_child.c.status, LIVE))),
        "live_parent": _exists(_parent.c.id == RUNS.c.parent_run_id, unindexed(among(_parent.c.status, LIVE))),
        "pending_approval": _exists(
            APPROVALS.c.workflow_run_id == RUNS.c.id, unindexed(APPROVALS.c.status == _pending)
        ),
        "pending_question": _exists(REQUESTS.c.run_id == RUNS.c.id, unindexed(REQUESTS.c.status == _pending)),
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


# Conversation sessions, with their branches, orders, and the messages that nothing else refers to.

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
