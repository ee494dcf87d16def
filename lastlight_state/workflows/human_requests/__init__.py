"""Requests to people: what a node of a run asks, in free text, as a confirmation, a choice or a form.

A request is answered once, with what its kind takes, and not after its expiry, whether a sweep has been there or not.
An answer that the engine cannot use is sent back with `reopen`. Opening, answering and ending move the run and the
node in the same transaction, as gates do (`approvals`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Claim, PhaseEntry, Question
from lastlight_state.workflows.human_requests import answers as human_answers, checks as human_checks, statements as sql
from lastlight_state.workflows.human_requests.answers import Answer
from lastlight_state.workflows.human_requests.records import (
    AnsweredRequest,
    HumanRequest,
    HumanRequestSummary,
    PendingRequest,
    as_of,
)
from lastlight_state.workflows.human_requests.statements import INBOX
from lastlight_state.workflows.questions.opening import Opening
from lastlight_state.workflows.questions.repository import QuestionRepository

MOST_EXPIRED_BY_A_LIST = 100


class HumanRequests(QuestionRepository[HumanRequest]):
    """``store.workflows.human_requests``"""

    _questions = sql.QUESTIONS

    def create(self, run_id: str, question: Question, *, claim: Claim | None = None) -> HumanRequest:
        """Ask without stopping the run, which is running or paused; the node becomes ``waiting_person``.

        The id is ``human:<run>:<node>:<iteration>`` (its SHA-256 past 256 bytes) unless given. Repeat-safe: the same
        id with equal content, the expiry included, is the stored request, whatever became of it; with other content
        `AlreadyExists`. Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``, `InvalidValue` for what cannot be
        asked, and `MisuseError` for a form without the extra ``forms``.
        """
        return self._beside(self._asked(run_id, question, blocks_run=False), claim)

    def pause(
        self,
        run_id: str,
        question: Question,
        *,
        marker: PhaseEntry | None = None,
        scratch: dict[str, Any] | None = None,
        claim: Claim | None = None,
    ) -> HumanRequest:
        """Ask and pause the running run until the answer: marker, scratch, request and status in one transaction.

        The claim ends: nobody holds a paused run. Errors and repeats as for `create`; then nothing of it is stored.
        """
        return self._pausing(self._asked(run_id, question, blocks_run=True), marker, scratch, claim)

    def answer(self, request_id: str, response: Any, *, by: str | None = None) -> AnsweredRequest:
        """Answer a request with JSON of at most 64 KiB, and let its run go on when nothing that blocks it is left.

        ``text`` takes text that is not blank, ``confirm`` a truth value, ``select`` one of the options, ``form`` what
        fits the schema; else `InvalidValue`, for a form with the path and text of its ``problems``.

        The first answer stands: the same by the same person again is ``repeated``, any other is `AlreadyAnswered`
        with the winner. Past its expiry, or ended otherwise, `Conflict` ``request_expired`` or ``request_cancelled``.
        """
        now, responder = self._now(), valid.optional("by", by, words.ACTOR)
        asked = self._reading(lambda unit: sql.QUESTIONS.get(unit, request_id))
        text = human_checks.response(asked, response)  # before the lock: a large form takes its time
        answer = Answer(request_id, text, responder, now)
        return self._writing(lambda unit: human_answers.record(unit, answer), repeatable=True)

    def cancel(self, request_id: str, *, by: str, reason: str) -> HumanRequest:
        """End a pending request without an answer; its run goes on as after one. Repeat-safe.

        Raises `AlreadyAnswered` for an answered one, `Conflict` ``request_expired`` for an expired one.
        """
        return self._cancel(request_id, by, reason)

    def reopen(self, request_id: str, *, reason: str, claim: Claim | None = None) -> HumanRequest:
        """Send an answer back that cannot be used: it is cleared, and the request pending again until its old expiry.

        The run's status stays; pause for it with ``waits.pause(gates=[request_id])``. Raises `ClaimLost`, and
        `Conflict` ``request_<status>`` for a request that is not answered, ``run_status`` unless the run is running or
        paused.
        """
        now, why = self._now(), valid.content("reason", reason, words.SUMMARY)
        return self._writing(lambda unit: human_answers.reopen(unit, request_id, why, now, claim))

    def expire_due(self, *, limit: int = 500) -> tuple[str, ...]:
        """Expire the requests whose time has come, and let their runs go on or fail as each says; the ids that changed.

        Looks at ``limit`` requests, the longest overdue first, and takes one transaction for each of their runs.
        """
        valid.page_limit(limit)
        return self._expire_due(self._now(), limit)

    def get(self, request_id: str) -> HumanRequest:
        """The whole request; an overdue one as expired, though nothing is written. Raises `NotFound`."""
        now = self._now()
        return _seen(self._reading(lambda unit: sql.QUESTIONS.get(unit, request_id)), now)

    def find(self, request_id: str) -> HumanRequest | None:
        """The whole request as `get` gives it, or None."""
        now, key = self._now(), valid.sought("request_id", request_id)
        found = self._reading(lambda unit: sql.QUESTIONS.find(unit, key))
        return None if found is None else _seen(found, now)

    def list_for_run(self, run_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[HumanRequestSummary]:
        """The requests of a run in every status, oldest first, overdue ones as expired.

        Raises `NotFound` for an unknown run.
        """
        now = self._now()
        return self._page_of_run(
            sql.OF_RUN, lambda row: HumanRequestSummary.of(as_of(row, now)), run_id, limit, page_token
        )

    def list_pending(
        self,
        *,
        run_id: str | None = None,
        kind: str | None = None,
        order: Literal["newest", "oldest"] = "newest",
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[PendingRequest]:
        """The inbox: open requests of all live runs, with what is asked and where the run stands; none overdue.

        Before that it expires what is due, at most 100 requests of any run, and writes only if there are any. In a
        view, and in a store opened for reading only, it writes nothing; nothing overdue is shown either way.
        """
        given = human_checks.inbox_filters(run_id, kind)
        work = self._page_of_inbox(INBOX, PendingRequest.of, given, order, limit, page_token)
        if self._scope.may_write:
            self._expire_due(self._now(), MOST_EXPIRED_BY_A_LIST)
        return self._reading(work)

    def count_pending(self) -> int:
        """How many requests the inbox shows."""
        return self._count_open(INBOX)

    def _asked(self, run_id: str, question: Question, *, blocks_run: bool) -> Opening[HumanRequest]:
        now = self._now()
        row = human_checks.new_request(run_id, question, now, blocks_run=blocks_run)
        return Opening(sql.QUESTIONS, row, run_id, now)


def _seen(request: HumanRequest, now: datetime) -> HumanRequest:
    return HumanRequest.of(as_of({**vars(request)}, now))
