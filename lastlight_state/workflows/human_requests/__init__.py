"""Human requests: questions of a node to a person, answered with text, a yes or no, a choice or a form.

A request is answered once, with a value of its kind, and not after its expiry. `reopen` clears an answer that the
engine cannot use. Opening, answering and ending a request move its run and its node in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from lastlight_state.db import valid
from lastlight_state.db.rows.records import Page
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.workflows.arguments import Claim, PhaseEntry, Question
from lastlight_state.workflows.human_requests import checks, statements, statements as sql
from lastlight_state.workflows.human_requests.records import (
    AnsweredRequest,
    HumanRequest,
    HumanRequestSummary,
    PendingRequest,
)
from lastlight_state.workflows.human_requests.statements import RequestAnswer
from lastlight_state.workflows.questions.repository import Opening, QuestionRepository
from lastlight_state.workflows.tables import REQUESTS, TRANSITIONS

_LIMITS, _TRANSITION = limits_of(REQUESTS), limits_of(TRANSITIONS)


class HumanRequests(QuestionRepository[HumanRequest]):
    """``store.workflows.human_requests``: open, answer, reopen and list requests to people."""

    _questions = sql.QUESTIONS

    def create(self, run_id: str, question: Question, *, claim: Claim | None = None) -> HumanRequest:
        """Ask a person without pausing the run. The run must be running or paused. The node becomes ``waiting_person``.

        The default id is ``human:<run>:<node>:<iteration>``, or the SHA-256 of that text if it is longer than 256
        bytes. Repeat-safe: the same id and content, including the expiry, returns the stored request in any status;
        other content raises `AlreadyExists`. Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``, `InvalidValue`
        for an invalid question, `MisuseError` for a form without the extra ``forms``.
        """
        return self._beside(self._request_opening(run_id, question, blocks_run=False), claim)

    def pause(
        self,
        run_id: str,
        question: Question,
        *,
        marker: PhaseEntry | None = None,
        scratch: dict[str, Any] | None = None,
        claim: Claim | None = None,
    ) -> HumanRequest:
        """Ask a person and pause the running run until the answer, in one transaction with ``marker`` and ``scratch``.

        The claim ends: nobody holds a paused run. Errors and repeats are those of `create`; an error stores nothing.
        """
        return self._open_with_pause(self._request_opening(run_id, question, blocks_run=True), marker, scratch, claim)

    def answer(self, request_id: str, response: Any, *, by: str | None = None) -> AnsweredRequest:
        """Answer a request with JSON of at most 64 KiB. Its run goes on once no question blocks it.

        ``text`` takes text that is not blank, ``confirm`` True or False, ``select`` one of the options, ``form`` a
        value that fits the schema. Anything else is `InvalidValue`, for a form with the path and text of its
        ``problems``.

        The first answer wins. The same answer by the same person again returns it as ``repeated``; any other raises
        `AlreadyAnswered` with the winner. An expired or cancelled request raises `Conflict` ``request_expired`` or
        ``request_cancelled``.
        """
        now, responder = self._now(), valid.optional("by", by, _LIMITS.answered_by)
        asked = self._reading(lambda unit: sql.QUESTIONS.get(unit, request_id))
        text = checks.response(asked, response)  # before the lock: a large form takes its time
        answer = RequestAnswer(request_id, text, responder, now)
        return self._writing(lambda unit: statements.record(unit, answer), repeatable=True)

    def cancel(self, request_id: str, *, by: str, reason: str) -> HumanRequest:
        """End a pending request without an answer; its run goes on as after an answer. Repeat-safe.

        Raises `AlreadyAnswered` for an answered request, `Conflict` ``request_expired`` for an expired one.
        """
        return self._cancel(request_id, by, reason)

    def reopen(self, request_id: str, *, reason: str, claim: Claim | None = None) -> HumanRequest:
        """Clear an answer that the engine cannot use: the request is pending again, with its old expiry.

        The run keeps its status; ``waits.pause(gates=[request_id])`` pauses it for the request. Raises `ClaimLost`,
        `Conflict` ``request_<status>`` for a request that is not answered, and `Conflict` ``run_status`` unless the
        run is running or paused.
        """
        now, why = self._now(), valid.content("reason", reason, _TRANSITION.detail)
        return self._writing(lambda unit: statements.reopen(unit, request_id, why, now, claim))

    def expire_due(self, *, limit: int = 500, workflow_names: Sequence[str] | None = None) -> tuple[str, ...]:
        """Expire overdue requests; their runs go on or fail by ``on_expiry``. Returns the ids of changed requests.

        Looks at up to ``limit`` requests, of ``workflow_names`` or of all workflows, the longest overdue first. Each
        run takes one transaction.
        """
        return self._expire_due(self._now(), limit, workflow_names)

    def get(self, request_id: str) -> HumanRequest:
        """Return the whole request; an overdue one reads as expired. Raises `NotFound`."""
        return self._get(request_id)

    def find(self, request_id: str) -> HumanRequest | None:
        """Return the whole request as `get` does, or None for an unknown id."""
        key = valid.lookup_text("request_id", request_id)
        found = self._reading(lambda unit: sql.QUESTIONS.find(unit, key))
        return None if found is None else self._current_question(found)

    def list_for_run(self, run_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[HumanRequestSummary]:
        """Return a page of the requests of a run in every status, oldest first, overdue ones as expired.

        Raises `NotFound` for an unknown run.
        """
        return self._page_of_run(sql.OF_RUN, run_id, limit, page_token)

    def list_pending(
        self,
        *,
        run_id: str | None = None,
        kind: str | None = None,
        order: Literal["newest", "oldest"] = "newest",
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[PendingRequest]:
        """Return a page of the inbox: pending requests of live runs, without overdue ones, with the run's status."""
        return self._page_of_inbox(sql.INBOX, run_id, kind, order, limit, page_token)

    def count_pending(self) -> int:
        """Return the number of requests in the inbox."""
        return self._count_open(sql.INBOX)

    def _request_opening(self, run_id: str, question: Question, *, blocks_run: bool) -> Opening[HumanRequest]:
        now = self._now()
        row = checks.new_request(run_id, question, now, blocks_run=blocks_run)
        return Opening(sql.QUESTIONS, row, run_id, now)
