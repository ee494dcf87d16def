"""The rows of questions, of both kinds: gates (`approvals`) and requests to people (`human_requests`).

A question belongs to a run and ends once: answered, cancelled or expired. The run's row is locked before its question
is read, so the first of several people wins, and the others find what that person did.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.db.lists.filters import Filtered
from lastlight_state.db.rows.statements import Family, bind, constant, statement_of
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.indexes import hide_from_indexes, through
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyAnswered, AlreadyExists, Conflict, LostRace, NotFound
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.questions.records import AskedQuestion
from lastlight_state.workflows.shared import executions
from lastlight_state.workflows.shared.questions import is_pending
from lastlight_state.workflows.shared.run_rows import LockedRun, lock_statement
from lastlight_state.workflows.tables import RECORD_NAMES, RUNS, every_column_for
from lastlight_state.workflows.words import NodeState

Q = TypeVar("Q", bound=AskedQuestion)


class ExpiredQuestion(NamedTuple):
    """A question that has expired: its node, its name, and what its expiry does to the run."""

    id: str
    node_id: str | None
    iteration: int
    expires_at: datetime
    title: str
    policy: str


@dataclass(frozen=True)
class Shape:
    """How one kind of question is stored, and what errors call it.

    ``name``      its name in errors; ``prefix`` the beginning of their codes; ``argument`` the name of the argument
    ``kinds``     the words of its column ``kind``
    ``order``     the columns by which lists are ordered: the time of the question, and its id
    ``given``     the columns that a new row sets
    ``same``      the columns by which two openings of one question are compared
    ``end``       the columns that an end sets, by the names of their parameters
    ``answers``   the statuses that are answers; ``refusals`` the statuses that fail the question's node
    ``waiting``   the state of the node while the question is pending
    ``policy``    the column that says what an expiry does to the run; ``title`` the column that names the question
    """

    name: str
    prefix: str
    argument: str
    table: sa.Table
    kinds: Collection[str]
    run_id: sa.Column[str]
    order: tuple[sa.Column[Any], sa.Column[Any]]
    given: Sequence[str]
    same: Sequence[str]
    end: Mapping[str, str]
    answers: frozenset[str]
    refusals: frozenset[str]
    waiting: NodeState
    policy: sa.Column[str]
    title: sa.Column[str]
    due_index: str


class QuestionRows(Generic[Q]):
    """The rows of one kind of question, which are records of this type."""

    def __init__(self, row: type[Q], shape: Shape) -> None:
        table, every = shape.table, every_column_for(row, shape.table)
        this_one = table.c.id == sa.bindparam("question_id")
        is_due = table.c.expires_at <= bind("at", table.c.expires_at)
        pending = table.c.status == constant("pending")
        self.name = shape.name
        self.argument = shape.argument
        self.shape = shape
        self._get = statement_of(sa.select(*every).where(this_one), row)
        self._lock = lock_statement(LockedRun, run=sa.select(shape.run_id).where(this_one).scalar_subquery())
        self._insert = statement_of(
            sa.insert(table)
            .values(status="pending", **{name: bind(name, table.c[name]) for name in shape.given})
            .returning(*every),
            row,
        )
        self._close = statement_of(
            sa.update(table)
            .where(this_one, pending)
            .values(status=sa.bindparam("status"), **{name: bind(by, table.c[name]) for by, name in shape.end.items()})
            .returning(*every),
            row,
        )
        #: Its filter is ``workflow_name``, of the question's run.
        self.due_statements: Filtered[tuple[str, str]] = Filtered(
            lambda named: (
                through(sa.select(table.c.id, shape.run_id.label("run_id")), table, shape.due_index)
                .where(pending, is_due)
                .where(sa.exists().where(RUNS.c.id == shape.run_id, *map(hide_from_indexes, named)))
                .order_by(table.c.expires_at)
                .limit(sa.bindparam("limit", type_=sa.Integer))
            ),
            None,
            tuple,
            workflow_name=RUNS.c.workflow_name.in_,
        )
        self.expire_statement = Family("question", lambda ids: self._expire_update(ids, is_due), ExpiredQuestion)

    def find(self, unit: Unit, question_id: str) -> Q | None:
        """Return the whole question, or None."""
        return unit.row(self._get, {"question_id": question_id})

    def get(self, unit: Unit, question_id: str) -> Q:
        """Return the whole question. Raises `NotFound`."""
        found = self.find(unit, question_id)
        if found is None:
            raise valid.not_found(self.shape.name, question_id)
        return found

    def lock_run_of(self, unit: Unit, question_id: str) -> tuple[LockedRun, Q]:
        """Return the locked row of a question's run, and the question read after that lock. Raises `NotFound`.

        The run of a question never changes, so the lock may find it in a subquery.
        """
        row = unit.row(self._lock, {"question_id": question_id})
        question = self.get(unit, question_id)
        if row is None:
            raise NotFound("workflow_run", question.run_id)
        return row, question

    def stored_question(self, unit: Unit, values: Mapping[str, Any]) -> Q | None:
        """Return the stored question of this id, or None. Raises `AlreadyExists` if its content differs."""
        stored = self.find(unit, values["id"])
        if stored is None:
            return None
        if not all(self._is_same(name, stored, values[name]) for name in self.shape.same):
            raise AlreadyExists(self.shape.name, values["id"], problem="already exists with another content")
        return stored

    def insert(self, unit: Unit, values: Mapping[str, Any], at: datetime) -> Q:
        """Store a new question. Its node, if it has one, waits for the answer."""
        [question] = unit.rows(self._insert, values)
        self.hold_node(unit, question, at)
        return question

    def transition_detail(self, question: Q | ExpiredQuestion, happened: str) -> str:
        """Return what happened to a question, for the transition of its run."""
        title = "title" if isinstance(question, ExpiredQuestion) else self.shape.title.name
        return f"{self.shape.name} {getattr(question, title)}: {happened}"

    def hold_node(self, unit: Unit, question: Q, at: datetime) -> None:
        """Set the node of a question, if it has one, to its waiting state."""
        if question.node_id is not None:
            node = NodeRef(question.node_id, question.iteration)
            executions.set_state(unit, question.run_id, node, self.shape.waiting, at)

    def takes(self, question: Q, at: datetime, *, repeated: Callable[[], bool]) -> bool:
        """True if the question may be answered now, False if it has the same answer. Otherwise raises `Conflict`."""
        if question.status != "pending":
            if not repeated():
                raise self.closed_error(question)
            return False
        if question.expires_at is not None and question.expires_at <= at:
            raise self._closed_as(question, "expired")
        return True

    def close(self, unit: Unit, question: Q, status: str, *, at: datetime, **facts: Any) -> Q:
        """End a pending question of a locked run. ``facts`` are parameters of ``Shape.end``."""
        values = {**dict.fromkeys(self.shape.end), "at": at, **facts}
        found = unit.row(self._close, {"question_id": question.id, "status": status, **values})
        if found is None:
            raise LostRace(f"{self.shape.name} {question.id!r} is no longer pending", expected="pending")
        if question.node_id is not None:
            refused = status in self.shape.refusals
            self._wake_node(unit, question.run_id, question.node_id, question.iteration, refused, at)
        return found

    def expect(self, question: Q, status: str) -> None:
        """Raise `Conflict` if the question does not have this status."""
        if question.status != status:
            raise self._closed_as(question, question.status, allowed=(status,))

    def closed_error(self, question: Q) -> Conflict:
        """Return the error for a question that has ended: `AlreadyAnswered` with its answer, or `Conflict`."""
        if question.status in self.shape.answers:
            return AlreadyAnswered(self.shape.name, question.id, winner=question)
        return self._closed_as(question, question.status)

    def due_ids(
        self, unit: Unit, now: datetime, limit: int, names: Sequence[str] | None
    ) -> tuple[dict[str, list[str]], int]:
        """Return the ids of the ``limit`` longest overdue questions, by run, and the number of all overdue ones.

        Of all workflows, or of these.

        Questions whose run is missing are left out, or they would fill the limit forever. Those that cannot be read
        are counted only.
        """
        found: dict[str, list[str]] = {}
        statement, given = self.due_statements.of({"workflow_name": names})
        rows, in_all = unit.readable_rows(statement, {**given, "at": now, "limit": limit})
        for question_id, run_id in rows:
            found.setdefault(run_id, []).append(question_id)
        return found, in_all

    def expire(self, unit: Unit, run_id: str, ids: Sequence[str], now: datetime) -> list[ExpiredQuestion]:
        """Expire the overdue among these questions of a locked run. Returns their rows, the longest overdue first."""
        statement, values = self.expire_statement.of(ids)
        expired = unit.rows(statement, {**values, "run_id": run_id, "at": now})
        for row in expired:
            if row.node_id is not None:
                refused = row.policy == "fail" or "expired" in self.shape.refusals
                self._wake_node(unit, run_id, row.node_id, row.iteration, refused, now)
        return sorted(expired, key=lambda row: (row.expires_at, row.id))

    def _wake_node(self, unit: Unit, run_id: str, node_id: str, iteration: int, refused: bool, at: datetime) -> None:
        state: NodeState = "failed" if refused else "pending"
        executions.wake(unit, run_id, NodeRef(node_id, iteration), state, at, waiting=self.shape.waiting)

    def _expire_update(self, ids: Sequence[sa.BindParameter[Any]], is_due: sa.ColumnElement[bool]) -> sa.Executable:
        shape, table = self.shape, self.shape.table
        return (
            sa.update(table)
            .where(table.c.id.in_(ids), shape.run_id == sa.bindparam("run_id"), is_pending(table), is_due)
            .values(status="expired", closed_reason="gate.expired")
            .returning(
                table.c.id,
                table.c.node_id,
                table.c.iteration,
                table.c.expires_at,
                shape.title.label("title"),
                shape.policy.label("policy"),
            )
        )

    def _closed_as(self, question: Q, status: str, **more: Any) -> Conflict:
        text = f"{self.shape.name} {question.id!r} is {status}"
        return Conflict(text, code=f"{self.shape.prefix}_{status}", found=status, **more)

    def _is_same(self, name: str, question: Q, given: Any) -> bool:
        """Return whether two contents are equal. JSON is given as text and compared by value; true is not 1."""
        stored = getattr(question, RECORD_NAMES.get(name, name))
        if stored is None or given is None or not isinstance(self.shape.table.c[name].type, columns.JSON_TYPES):
            return bool(stored == given)
        return codec.canonical(stored) == codec.canonical(codec.decode(given))
