"""What the two repositories of questions do alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Generic

from lastlight_state.db import valid
from lastlight_state.db.listing import Listing
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict
from lastlight_state.workflows import checks as shared
from lastlight_state.workflows.arguments import Claim, PhaseEntry
from lastlight_state.workflows.kernel import rows as run_rows, sweeps
from lastlight_state.workflows.kernel.progress import Step
from lastlight_state.workflows.questions import endings as question_endings, opening as question_opening
from lastlight_state.workflows.questions.inbox import Inbox
from lastlight_state.workflows.questions.opening import Opening
from lastlight_state.workflows.questions.rows import Q, Questions


class QuestionRepository(Repository, Generic[Q]):
    """Base of `approvals` and `human_requests`."""

    _questions: ClassVar[Questions[Any]]

    def _beside(self, opening: Opening[Q], claim: Claim | None) -> Q:
        return self._open(opening, lambda unit: question_opening.beside(unit, opening, claim))

    def _pausing(
        self, opening: Opening[Q], marker: PhaseEntry | None, scratch: dict[str, Any] | None, claim: Claim | None
    ) -> Q:
        now = opening.at
        entry = None if marker is None else shared.phase_entry(marker, now)
        step = Step(opening.run_id, now, entry, shared.scratch_patch(scratch))
        limits = self._settings.limits
        return self._open(opening, lambda unit: question_opening.pausing(unit, opening, step, limits, claim))

    def _open(self, opening: Opening[Q], work: Callable[[Unit], Q]) -> Q:
        try:
            return self._writing(work, repeatable=True)
        except Conflict as error:
            if error.code == "unique":  # another run took the id in this very moment
                raise AlreadyExists(self._questions.name, opening.values["id"]) from error
            raise

    def _cancel(self, question_id: str, by: str, reason: str) -> Q:
        now, said = self._now(), shared.operator(by, reason)
        work: Callable[[Unit], Q] = partial(
            question_endings.cancel,
            questions=self._questions,
            question_id=question_id,
            by=said["actor"],
            reason=said["detail"],
            at=now,
        )
        return self._writing(work, repeatable=True)

    def _expire_due(self, now: datetime, limit: int) -> tuple[str, ...]:
        """One transaction for each run that has something due, and none where nothing is."""
        due = self._reading(lambda unit: self._questions.due(unit, now, limit))
        swept = sweeps.over(due, lambda run_id: self._expire(run_id, due[run_id], now))
        return tuple(question_id for _, expired in swept for question_id in expired)

    def _expire(self, run_id: str, ids: Sequence[str], now: datetime) -> list[str]:
        return self._writing(
            lambda unit: question_endings.expire(unit, self._listeners, self._questions, run_id, ids, now)
        )

    def _page_of_run(
        self,
        listing: Listing,
        make: Callable[[dict[str, Any]], Any],
        run_id: str,
        limit: int,
        page_token: str | None,
    ) -> Page[Any]:
        """A page of a run's questions. Raises `NotFound` for an unknown run."""
        valid.page_limit(limit)
        return self._reading(lambda unit: run_rows.page_of(unit, listing, make, limit, page_token, run_id=run_id))

    def _page_of_inbox(
        self,
        inbox: Inbox,
        make: Callable[[dict[str, Any]], Any],
        given: Mapping[str, Any],
        order: str,
        limit: int,
        page_token: str | None,
    ) -> Callable[[Unit], Page[Any]]:
        """The work that reads a page of an inbox, its words checked."""
        lists = inbox.orders if given["run_id"] is None else inbox.of_run
        listing = lists[valid.word("order", order, lists)]
        valid.page_limit(limit)
        also = {"now": self._now()}
        return lambda unit: listing.page(unit, make, limit=limit, page_token=page_token, given=given, also=also)

    def _count_open(self, inbox: Inbox) -> int:
        now = self._now()
        return int(self._reading(lambda unit: unit.value(inbox.count, {"now": now})))
