"""What the two kinds of questions have in common: gates (`approvals`) and requests to people (`human_requests`).

A question belongs to a run, is opened beside it or together with its pause, and ends once: answered, cancelled or
expired. The run's row is locked before its question is looked at, so of any number of people one comes first and all
others find what that one did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.db import columns, valid
from lastlight_state.db.indexes import through
from lastlight_state.db.statements import Family, bind, constant, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyAnswered, AlreadyExists, Conflict, LostRace, NotFound
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.kernel import nodes as node_rows, questions as open_questions
from lastlight_state.workflows.kernel.rows import locking
from lastlight_state.workflows.questions.records import AskedQuestion
from lastlight_state.workflows.tables import RUNS
from lastlight_state.workflows.words import NodeState

Q = TypeVar("Q", bound=AskedQuestion)


@dataclass(frozen=True)
class Shape:
    """How one kind of question is stored, and how errors speak of it.

    ``name``, ``code``, ``argument``: in errors, at the head of their codes, as callers give it
    ``given``     the columns that a new row states; the rest is of its end
    ``same``      the columns that two openings of one question have in common
    ``end``       the columns that an end writes, by the names of the parameters
    ``answers``   the statuses that are answers; ``refusals`` those that fail the question's node
    ``waiting``   the node's state until then
    ``policy``    the column that says what an expiry does to the run; ``title`` the one that names the question
    """

    name: str
    code: str
    argument: str
    table: sa.Table
    run_id: sa.Column[str]
    given: Sequence[str]
    same: Sequence[str]
    end: Mapping[str, str]
    answers: frozenset[str]
    refusals: frozenset[str]
    waiting: NodeState
    policy: sa.Column[str]
    title: sa.Column[str]
    due_index: str


class Questions(Generic[Q]):
    """The rows of one kind of question."""

    def __init__(self, record: type[Q], shape: Shape) -> None:
        table, every = shape.table, tuple(shape.table.c)
        this_one = table.c.id == sa.bindparam("question_id")
        is_due = table.c.expires_at <= bind("at", table.c.expires_at)
        pending = table.c.status == constant("pending")
        self.name = shape.name
        self.argument = shape.argument
        self._record: type[Q] = record
        self._shape = shape
        self._get = prepared(sa.select(*every).where(this_one))
        self._lock = locking(run=sa.select(shape.run_id).where(this_one).scalar_subquery())
        self._insert = prepared(
            sa.insert(table)
            .values(status="pending", **{name: bind(name, table.c[name]) for name in shape.given})
            .returning(*every)
        )
        self._close = prepared(
            sa.update(table)
            .where(this_one, pending)
            .values(status=sa.bindparam("status"), **{name: bind(by, table.c[name]) for by, name in shape.end.items()})
            .returning(*every)
        )
        self.due_statement = prepared(
            through(sa.select(table.c.id, shape.run_id.label("run_id")), table, shape.due_index)
            .where(pending, table.c.expires_at.is_not(None), is_due, sa.exists().where(RUNS.c.id == shape.run_id))
            .order_by(table.c.expires_at)
            .limit(sa.bindparam("limit", type_=sa.Integer))
        )
        self.expire_statement = Family("question", lambda ids: self._expiring(ids, is_due))

    def find(self, unit: Unit, question_id: str) -> Q | None:
        """The whole question, or None."""
        return unit.find(self._record, self._get, {"question_id": question_id})

    def get(self, unit: Unit, question_id: str) -> Q:
        """The whole question. Raises `NotFound`."""
        found = self.find(unit, question_id)
        if found is None:
            raise valid.not_found(self._shape.name, question_id)
        return found

    def locked(self, unit: Unit, question_id: str) -> tuple[dict[str, Any], Q]:
        """A question, looked at after its run's row was locked, and that row. Raises `NotFound`.

        A question never changes its run, so the lock needs no look before.
        """
        row = unit.row(self._lock, {"question_id": question_id})
        question = self.get(unit, question_id)
        if row is None:
            raise NotFound("workflow_run", self._run_of(question))
        return row, question

    def stored(self, unit: Unit, values: Mapping[str, Any]) -> Q | None:
        """The question of this id, if it is there and the same. Raises `AlreadyExists` for another content."""
        stored = self.find(unit, values["id"])
        if stored is None:
            return None
        if any(not self._is_same(name, getattr(stored, name), values[name]) for name in self._shape.same):
            raise AlreadyExists(self._shape.name, values["id"], problem="already exists with another content")
        return stored

    def insert(self, unit: Unit, values: Mapping[str, Any], at: datetime) -> Q:
        """Store a new question. Its node, if it has one, waits from then on."""
        [question] = unit.all(self._record, self._insert, values)
        self.hold_node(unit, question, at)
        return question

    def hold_node(self, unit: Unit, question: Q, at: datetime) -> None:
        """Let a question's node, if it has one, wait for its end."""
        if question.node_id is not None:
            node = NodeRef(question.node_id, question.iteration)
            node_rows.set_state(unit, self._run_of(question), node, self._shape.waiting, at)

    def takes(self, question: Q, at: datetime, *, repeated: Callable[[], bool]) -> bool:
        """Whether the question takes an answer now; False if it has this very one. Raises `Conflict` else."""
        if question.status != "pending":
            if not repeated():
                raise self.closed(question)
            return False
        if question.expires_at is not None and question.expires_at <= at:
            raise self._closed_as(question, "expired")
        return True

    def close(self, unit: Unit, question: Q, status: str, *, at: datetime, **facts: Any) -> Q:
        """Give a pending question, whose run is locked, its end. ``facts`` are parameters of ``Shape.end``."""
        values = {**dict.fromkeys(self._shape.end), "at": at, **facts}
        found = unit.find(self._record, self._close, {"question_id": question.id, "status": status, **values})
        if found is None:
            raise LostRace(f"{self._shape.name} {question.id!r} is not pending any more", expected="pending")
        if question.node_id is not None:
            refused = status in self._shape.refusals
            self._wake_node(unit, self._run_of(question), question.node_id, question.iteration, refused, at)
        return found

    def closed(self, question: Q) -> Conflict:
        """The error for a question that takes no answer any more; `AlreadyAnswered` carries it if it has one."""
        if question.status in self._shape.answers:
            return AlreadyAnswered(self._shape.name, question.id, winner=question)
        return self._closed_as(question, question.status)

    def due(self, unit: Unit, now: datetime, limit: int) -> dict[str, list[str]]:
        """The ids of at most ``limit`` questions that are due, the longest overdue first, by run in ascending id.

        One whose run is missing is never due, or it would fill the limit for ever.
        """
        found: dict[str, list[str]] = {}
        for row in unit.rows(self.due_statement, {"at": now, "limit": limit}):
            found.setdefault(row["run_id"], []).append(row["id"])
        return dict(sorted(found.items()))

    def expire(self, unit: Unit, run_id: str, ids: Sequence[str], now: datetime) -> list[dict[str, Any]]:
        """Expire those of a locked run's questions that are due; their id, title, policy and time, oldest first."""
        statement, values = self.expire_statement.of(ids)
        expired = unit.rows(statement, {**values, "run_id": run_id, "at": now})
        for row in expired:
            if row["node_id"] is not None:
                refused = row["policy"] == "fail" or "expired" in self._shape.refusals
                self._wake_node(unit, run_id, row["node_id"], row["iteration"], refused, now)
        return sorted(expired, key=lambda row: (row["expires_at"], row["id"]))

    def _wake_node(self, unit: Unit, run_id: str, node_id: str, iteration: int, refused: bool, at: datetime) -> None:
        state: NodeState = "failed" if refused else "pending"
        node_rows.wake(unit, run_id, NodeRef(node_id, iteration), state, at, waiting=self._shape.waiting)

    def _run_of(self, question: Q) -> str:
        run_id: str = getattr(question, self._shape.run_id.name)
        return run_id

    def _expiring(self, ids: Sequence[sa.BindParameter[Any]], is_due: sa.ColumnElement[bool]) -> sa.Executable:
        shape, table = self._shape, self._shape.table
        return (
            sa.update(table)
            .where(table.c.id.in_(ids), shape.run_id == sa.bindparam("run_id"), open_questions.pending(table), is_due)
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

    def _closed_as(self, question: Q, status: str) -> Conflict:
        shape = self._shape
        return Conflict(f"{shape.name} {question.id!r} is {status}", code=f"{shape.code}_{status}", found=status)

    def _is_same(self, name: str, stored: Any, given: Any) -> bool:
        """Documents are given as text, and equal by value: numbers as JSON has them, true is not 1."""
        if stored is None or given is None or not isinstance(self._shape.table.c[name].type, columns.JSON_TYPES):
            return bool(stored == given)
        return codec.canonical(stored) == codec.canonical(codec.decode(given))
