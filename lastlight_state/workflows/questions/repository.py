"""The base of the repositories `approvals` and `human_requests`: open, cancel, expire and list questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Generic, TypedDict, TypeVar

from lastlight_state.backends import waiting
from lastlight_state.clock import iso_text
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.lists.pages import map_page
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page, Record
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, BackendBusy, Conflict, InvalidValue
from lastlight_state.settings import Limits
from lastlight_state.workflows import checks as shared, words
from lastlight_state.workflows.arguments import Claim, PhaseEntry
from lastlight_state.workflows.questions.inbox import Inbox
from lastlight_state.workflows.questions.question_rows import ExpiredQuestion, Q, QuestionRows
from lastlight_state.workflows.questions.records import AskedQuestion, as_of
from lastlight_state.workflows.records import WorkflowRun
from lastlight_state.workflows.shared import overdue, progress, run_rows, transitions
from lastlight_state.workflows.shared.progress import Step
from lastlight_state.workflows.shared.questions import blocking_ids
from lastlight_state.workflows.shared.run_rows import LockedRun
from lastlight_state.workflows.shared.transitions import TransitionParameters
from lastlight_state.workflows.tables import RUNS, TRANSITIONS

# How a question is opened: without pausing its run, or together with a pause of the run.


def _refuse_nothing(_: Unit) -> None:
    return None


class NewQuestion(TypedDict):
    """What is read of the row of any new question."""

    id: str
    expires_at: datetime | None


@dataclass(frozen=True)
class Opening(Generic[Q]):
    """A question to open: its row, its run and the time.

    The callback ``refuse`` is called before the row is stored and may raise.
    """

    questions: QuestionRows[Q]
    values: NewQuestion
    run_id: str
    at: datetime
    refuse: Callable[[Unit], None] = _refuse_nothing


def beside(unit: Unit, opening: Opening[Q], claim: Claim | None) -> Q:
    """Store a question without pausing its run. If the question is stored already, return the stored one.

    The stored question is looked up before the fence is checked. Otherwise a repeated `pause` would fail, because the
    first one ended the claim.
    """
    row = run_rows.lock(unit, opening.run_id)
    stored = opening.questions.stored_question(unit, opening.values)
    if stored is not None:
        return stored
    question = _insert(unit, row, opening, ("running", "paused"), claim)
    transitions.move(
        unit, transitions.QUESTION, row, row.status, reason=words.QUESTION_ASKED, at=opening.at, source="engine",
        detail=opening.questions.transition_detail(question, "asked"), presented_epoch=claim.epoch if claim else None,
    )  # fmt: skip
    return question


def open_with_pause(unit: Unit, opening: Opening[Q], step: Step, limits: Limits, claim: Claim | None) -> Q:
    """Store a question and pause its run, which ends the claim.

    If the question is stored already, return the stored one.
    """
    row = progress.lock(unit, step)
    stored = opening.questions.stored_question(unit, opening.values)
    if stored is not None:
        return stored
    question = _insert(unit, row, opening, ("running",), claim)
    progress.add(unit, row, step, limits)
    transitions.pause(
        unit, row, "gate", at=step.at, claim=claim, detail=opening.questions.transition_detail(question, "asked")
    )
    return question


def _insert(unit: Unit, row: LockedRun, opening: Opening[Q], allowed: Sequence[str], claim: Claim | None) -> Q:
    run_rows.check(row, claim)
    run_rows.expect(row, allowed)
    expires_at = opening.values["expires_at"]
    if expires_at is not None and expires_at <= opening.at:
        raise InvalidValue(f"{opening.questions.argument}.expires_at", f"{iso_text(expires_at)} must be in the future")
    opening.refuse(unit)
    return opening.questions.insert(unit, opening.values, opening.at)


# How a question ends without an answer, and what any end of a question does to its run (workflows W-85).
#
# Callers hold the run's lock, and pending questions are counted after it was taken: two people who close the last two
# questions at the same instant cannot leave the run paused without a pending question.

_RUN, _TRANSITION = limits_of(RUNS), limits_of(TRANSITIONS)


def go_on(unit: Unit, row: LockedRun, said: TransitionParameters, *, reason: str) -> WorkflowRun:
    """Offer a run to any worker if it was paused for gates and no question blocks it.

    Any other run keeps its status; a note with ``reason`` is recorded in its transitions.
    """
    waits = row.status == "paused" and row.pause_reason in (None, "gate")
    if not waits or blocking_ids(unit, row.id):
        return transitions.move(unit, transitions.QUESTION, row, row.status, reason=reason, **said)
    return transitions.move(unit, transitions.RESUME, row, "running", reason="run.resumed.gate", **said)


def fail(
    unit: Unit, listeners: Listeners, row: LockedRun, error: str, *, reason: str, said: TransitionParameters
) -> WorkflowRun:
    """Fail a live run because of a question. This also ends its executions, nodes, other questions and claim."""
    return transitions.end(unit, listeners, row, "failed", error=_cut(error, _RUN.error), reason=reason, **said)


def _cut(text: str, limit: int) -> str:
    """Return the longest prefix of the text that has at most ``limit`` bytes in UTF-8."""
    return text.encode()[:limit].decode(errors="ignore")


def cancel(unit: Unit, questions: QuestionRows[Q], question_id: str, *, by: str, reason: str, at: datetime) -> Q:
    """Cancel a pending question; its run goes on as after an answer. A repeated cancel changes nothing."""
    row, question = questions.lock_run_of(unit, question_id)
    if question.status == "cancelled":
        return question
    if question.status != "pending":
        raise questions.closed_error(question)
    run_rows.expect(row, words.LIVE)
    cancelled = questions.close(unit, question, "cancelled", by=by, at=at, closed_reason=reason)
    said: TransitionParameters = {
        "at": at,
        "source": "operator",
        "actor": by,
        "detail": questions.transition_detail(question, "cancelled"),
    }
    go_on(unit, row, said, reason=words.QUESTION_CANCELLED)
    return cancelled


def expire(
    unit: Unit, listeners: Listeners, questions: QuestionRows[Q], run_id: str, ids: Sequence[str], now: datetime
) -> list[str]:
    """Expire those questions of a run in ``ids`` that are overdue; the run then fails or goes on.

    Returns the ids of the expired questions.
    """
    row = run_rows.lock(unit, run_id)
    expired = questions.expire(unit, run_id, ids, now)
    if expired and row.status in words.LIVE:
        told = _cut(
            "; ".join(questions.transition_detail(question, "expired") for question in expired), _TRANSITION.detail
        )
        _after(unit, listeners, row, expired, {"at": now, "source": "system", "actor": None, "detail": told})
    return [question.id for question in expired]


def _after(
    unit: Unit, listeners: Listeners, row: LockedRun, expired: list[ExpiredQuestion], said: TransitionParameters
) -> None:
    failing = next((question for question in expired if question.policy == "fail"), None)
    if failing is None:
        go_on(unit, row, said, reason=words.QUESTION_EXPIRED)
        return
    error = f"Expired: {failing.title} was not answered by {iso_text(failing.expires_at)}"
    fail(unit, listeners, row, error, reason="gate.expired", said=said)


A = TypeVar("A", bound=AskedQuestion)
R = TypeVar("R", bound=Record)


class QuestionRepository(Repository, Generic[Q]):
    """Base class of the repositories `approvals` and `human_requests`."""

    _questions: ClassVar[QuestionRows[Any]]

    def _beside(self, asked: Opening[Q], claim: Claim | None) -> Q:
        return self._open(asked, lambda unit: beside(unit, asked, claim))

    def _open_with_pause(
        self, asked: Opening[Q], marker: PhaseEntry | None, scratch: dict[str, Any] | None, claim: Claim | None
    ) -> Q:
        now = asked.at
        entry = None if marker is None else shared.phase_entry(marker, now)
        step = Step(asked.run_id, now, entry, shared.scratch_patch(scratch))
        limits = self._settings.limits
        return self._open(asked, lambda unit: open_with_pause(unit, asked, step, limits, claim))

    def _open(self, asked: Opening[Q], work: Callable[[Unit], Q]) -> Q:
        try:
            return self._current_question(self._writing(work, repeatable=True))
        except Conflict as error:
            if error.code == "unique":  # a question of another run took the id meanwhile
                raise AlreadyExists(self._questions.name, asked.values["id"]) from error
            raise

    def _get(self, question_id: str) -> Q:
        return self._current_question(self._reading(lambda unit: self._questions.get(unit, question_id)))

    def _current_question(self, question: Q) -> Q:
        """Return the question as it reads now: an overdue one has expired."""
        return as_of(question, self._now())

    def _as_of_now(self) -> Callable[[A], A]:
        """Return the function that returns a question as it reads now."""
        now = self._now()
        return lambda question: as_of(question, now)

    def _cancel(self, question_id: str, by: str, reason: str) -> Q:
        now, said = self._now(), shared.operator(by, reason)
        work: Callable[[Unit], Q] = partial(
            cancel,
            questions=self._questions,
            question_id=question_id,
            by=said["actor"],
            reason=said["detail"],
            at=now,
        )
        return self._writing(work, repeatable=True)

    def _expire_due(self, now: datetime, limit: int, workflow_names: Sequence[str] | None) -> tuple[str, ...]:
        """Expire overdue questions in one transaction for each run. Returns the ids of the expired questions."""
        valid.page_limit(limit)
        names = shared.some_workflows(workflow_names)
        if names == []:
            return ()
        due: dict[str, list[str]] = {}

        def read(size: int) -> overdue.DueRuns:
            found, rows = self._reading(lambda unit: self._questions.due_ids(unit, now, size, names))
            due.update(found)
            return overdue.DueRuns(tuple(found), rows)

        swept = overdue.expire_in_batches(read, limit, lambda run_id: self._expire(run_id, due[run_id][:limit], now))
        return tuple(question_id for _, expired in swept for question_id in expired)

    def _expire(self, run_id: str, ids: Sequence[str], now: datetime) -> list[str]:
        return self._writing(lambda unit: expire(unit, self._listeners, self._questions, run_id, ids, now))

    def _page_of_run(self, listing: Listing[A], run_id: str, limit: int, page_token: str | None) -> Page[A]:
        """Return a page of a run's questions. Raises `NotFound` for an unknown run."""
        read = run_rows.page_of(listing, limit, page_token, run_id=run_id)
        return map_page(self._reading(read), self._as_of_now())

    def _page_of_inbox(
        self,
        inbox: Inbox[R],
        run_id: str | None,
        kind: str | None,
        order: str,
        limit: int,
        page_token: str | None,
    ) -> Page[R]:
        """Return a page of an inbox, of all runs or of one run.

        Overdue questions are expired first, except in a view. If another process holds a lock, the list does not wait
        for it: it only leaves out overdue questions, and a later call expires them.
        """
        shape = self._questions.shape
        most = getattr(limits_of(shape.table), shape.run_id.name)
        given = {
            "run_id": valid.optional("run_id", run_id, most),
            "kind": None if kind is None else valid.word("kind", kind, shape.kinds),
        }
        lists = inbox.orders if run_id is None else inbox.of_run
        listing = lists[valid.word("order", order, lists)]

        def page() -> Page[R]:
            if self._scope.may_write:
                with suppress(BackendBusy), waiting.NoPatience():
                    self._expire_due(self._now(), valid.PAGE_LIMIT, None)
            return self._page(listing, given, limit, page_token, also={"now": self._now()})

        return self._scope.together(page)

    def _count_open(self, inbox: Inbox[Any]) -> int:
        now = self._now()
        return int(self._value(inbox.count, {"now": now}))
