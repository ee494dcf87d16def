"""The base of the two repositories of questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from lastlight_state.backends import patience
from lastlight_state.db import valid
from lastlight_state.db.listing import Listing
from lastlight_state.db.records import Page, Record
from lastlight_state.db.repository import Repository
from lastlight_state.db.statements import RowT
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, BackendBusy, Conflict
from lastlight_state.workflows import checks as shared
from lastlight_state.workflows.arguments import Claim, PhaseEntry
from lastlight_state.workflows.kernel import rows, sweeps
from lastlight_state.workflows.kernel.progress import Step
from lastlight_state.workflows.questions import endings, opening
from lastlight_state.workflows.questions.inbox import Inbox
from lastlight_state.workflows.questions.opening import Opening
from lastlight_state.workflows.questions.records import AskedQuestion, AskedT, as_of
from lastlight_state.workflows.questions.rows import Q, QuestionRows

A = TypeVar("A", bound=AskedQuestion)
R = TypeVar("R", bound=Record)


class QuestionRepository(Repository, Generic[Q]):
    """Base of `approvals` and `human_requests`."""

    _questions: ClassVar[QuestionRows[Any]]

    def _beside(self, asked: Opening[Q], claim: Claim | None) -> Q:
        return self._open(asked, lambda unit: opening.beside(unit, asked, claim))

    def _pausing(
        self, asked: Opening[Q], marker: PhaseEntry | None, scratch: dict[str, Any] | None, claim: Claim | None
    ) -> Q:
        now = asked.at
        entry = None if marker is None else shared.phase_entry(marker, now)
        step = Step(asked.run_id, now, entry, shared.scratch_patch(scratch))
        limits = self._settings.limits
        return self._open(asked, lambda unit: opening.pausing(unit, asked, step, limits, claim))

    def _open(self, asked: Opening[Q], work: Callable[[Unit], Q]) -> Q:
        try:
            return self._seen(self._writing(work, repeatable=True))
        except Conflict as error:
            if error.code == "unique":  # a question of another run took the id meanwhile
                raise AlreadyExists(self._questions.name, asked.values["id"]) from error
            raise

    def _get(self, question_id: str) -> Q:
        return self._seen(self._reading(lambda unit: self._questions.get(unit, question_id)))

    def _seen(self, question: Q) -> Q:
        """The question as it reads now: an overdue one has expired."""
        values: Any = vars(question)
        read = as_of(values, self._now())
        return question if read is values else type(question).of(read)

    def _as_of(self, read: Callable[[AskedT], A]) -> Callable[[AskedT], A]:
        """Return how a row becomes a record as it reads now."""
        now = self._now()
        return lambda row: read(as_of(row, now))

    def _cancel(self, question_id: str, by: str, reason: str) -> Q:
        now, said = self._now(), shared.operator(by, reason)
        work: Callable[[Unit], Q] = partial(
            endings.cancel,
            questions=self._questions,
            question_id=question_id,
            by=said["actor"],
            reason=said["detail"],
            at=now,
        )
        return self._writing(work, repeatable=True)

    def _expire_due(self, now: datetime, limit: int, workflow_names: Sequence[str] | None) -> tuple[str, ...]:
        """Expire overdue questions, one transaction for each run that has any."""
        valid.page_limit(limit)
        names = shared.some_workflows(workflow_names)
        if names == []:
            return ()
        due: dict[str, list[str]] = {}

        def read(size: int) -> sweeps.Found:
            found, rows = self._reading(lambda unit: self._questions.due(unit, now, size, names))
            due.update(found)
            return sweeps.Found(tuple(found), rows)

        swept = sweeps.over(read, limit, lambda run_id: self._expire(run_id, due[run_id][:limit], now))
        return tuple(question_id for _, expired in swept for question_id in expired)

    def _expire(self, run_id: str, ids: Sequence[str], now: datetime) -> list[str]:
        return self._writing(lambda unit: endings.expire(unit, self._listeners, self._questions, run_id, ids, now))

    def _page_of_run(
        self, listing: Listing[AskedT], read: Callable[[AskedT], A], run_id: str, limit: int, page_token: str | None
    ) -> Page[A]:
        """Return a page of a run's questions. Raises `NotFound` for an unknown run."""
        return self._reading(rows.page_of(listing, self._as_of(read), limit, page_token, run_id=run_id))

    def _page_of_inbox(
        self,
        inbox: Inbox[RowT],
        read: Callable[[RowT], R],
        given: Mapping[str, Any],
        order: str,
        limit: int,
        page_token: str | None,
    ) -> Page[R]:
        """Return a page of an inbox, over all runs or of one.

        What is overdue is expired first, which a view leaves to others. The list waits for nobody who writes: it never
        shows what is overdue, and a later call expires it.
        """
        if self._scope.may_write:
            with suppress(BackendBusy), patience.none():
                self._expire_due(self._now(), valid.PAGE_LIMIT, None)
        lists = inbox.orders if given["run_id"] is None else inbox.of_run
        listing = lists[valid.word("order", order, lists)]
        return self._page(listing, read, given, limit, page_token, also={"now": self._now()})

    def _count_open(self, inbox: Inbox[Any]) -> int:
        now = self._now()
        return int(self._value(inbox.count, {"now": now}))
