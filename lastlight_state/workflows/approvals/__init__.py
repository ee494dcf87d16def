"""Gates: questions to people that a run waits for, each with one answer.

Opening a gate and pausing its run is one transaction, as is answering it and moving the run. Of any number of
responders one wins; the same answer by the same person again is repeated, not refused. A gate that asks leave for an
action is approved for that action alone, and consumed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.workflows import words
from lastlight_state.workflows.approvals import (
    answers as approval_answers,
    answers as approval_opening,
    checks as approval_checks,
    statements as approval_inbox,
    statements as sql,
    use as approval_use,
)
from lastlight_state.workflows.approvals.records import Answered, Approval, ApprovalSummary, PendingApproval
from lastlight_state.workflows.arguments import Claim, Gate, PhaseEntry
from lastlight_state.workflows.questions.repository import QuestionRepository


class Approvals(QuestionRepository[Approval]):
    """``store.workflows.approvals``"""

    _questions = sql.QUESTIONS

    def create(self, run_id: str, gate: Gate, *, claim: Claim | None = None) -> Approval:
        """Ask without stopping the run, which is running or paused.

        Repeat-safe for the same ``gate.id`` and content. Raises `AlreadyExists` for another content, or while a gate
        of the same request key is pending (``error.approval``); `NotFound`, `ClaimLost`, `Conflict` ``run_status``.
        """
        row = approval_checks.new_approval(run_id, gate, self._now(), blocks_run=False)
        return self._beside(approval_opening.opening(row), claim)

    def pause(
        self,
        run_id: str,
        gate: Gate,
        *,
        marker: PhaseEntry | None = None,
        scratch: dict[str, Any] | None = None,
        claim: Claim | None = None,
    ) -> Approval:
        """Ask and pause the running run until the answer: marker, scratch, gate and status in one transaction.

        The claim ends: nobody holds a paused run. Errors and repeats as for `create`; then nothing of it is stored.
        """
        row = approval_checks.new_approval(run_id, gate, self._now(), blocks_run=True)
        return self._pausing(approval_opening.opening(row), marker, scratch, claim)

    def answer(
        self,
        approval_id: str,
        decision: Literal["approved", "rejected", "replied"],
        *,
        by: str,
        response: str | None = None,
        digest: str | None = None,
        scratch: dict[str, Any] | None = None,
        via: words.AnsweredVia = "person",
    ) -> Answered:
        """Answer a gate and move its run, in one transaction with a merge of ``scratch``.

        Kind ``approve`` takes approved or rejected, kind ``reply`` takes replied with its text in ``response``. A
        gate with an action is approved only with the ``digest`` of that action, else `InvalidValue` or
        `StaleVersion`. A rejection fails the run where the gate says so; otherwise a run that is paused for gates
        goes on, unclaimed, when no gate that blocks it is left.

        The first answer stands: the same again is ``repeated``, any other is `AlreadyAnswered` with the winner. A
        gate that has ended otherwise is `Conflict` ``approval_expired`` or ``approval_cancelled``.
        """
        answer = approval_checks.answer(approval_id, decision, by, response, digest, scratch, via, self._now())
        limits = self._settings.limits
        return self._writing(
            lambda unit: approval_answers.record(unit, self._listeners, limits, answer), repeatable=True
        )

    def consume(self, approval_id: str, *, action: Any, execution_id: str, claim: Claim | None = None) -> Approval:
        """Use an approved gate for its action, once: call it before acting.

        Repeat-safe for the same execution; for another one `Conflict` ``approval_consumed``. Raises `StaleVersion` when
        ``action`` is not the one that was approved, `Conflict` ``approval_<status>`` when none was.
        """
        use = approval_checks.use(approval_id, action, execution_id, self._now())
        return self._writing(lambda unit: approval_use.consume(unit, use, claim), repeatable=True)

    def cancel(self, approval_id: str, *, by: str, reason: str) -> Approval:
        """End a pending gate without an answer; its run goes on as after one. Repeat-safe.

        Raises `AlreadyAnswered` for an answered gate, `Conflict` ``approval_expired`` for an expired one.
        """
        return self._cancel(approval_id, by, reason)

    def expire_due(self, *, limit: int = 500) -> tuple[str, ...]:
        """Expire the gates whose time has come, which counts as a rejection; the ids that changed.

        Looks at ``limit`` gates, the longest overdue first, and takes one transaction for each of their runs.
        """
        valid.page_limit(limit)
        return self._expire_due(self._now(), limit)

    def get(self, approval_id: str) -> Approval:
        """The whole gate. Raises `NotFound`."""
        return self._reading(lambda unit: sql.QUESTIONS.get(unit, approval_id))

    def list_for_run(self, run_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[ApprovalSummary]:
        """The gates of a run in every status, oldest first. Raises `NotFound` for an unknown run."""
        return self._page_of_run(sql.OF_RUN, ApprovalSummary.of, run_id, limit, page_token)

    def list(
        self,
        *,
        statuses: Sequence[words.ApprovalStatus] | None = None,
        trigger_id: str | None = None,
        artifact: str | None = None,
        gate: str | None = None,
        kind: str | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[ApprovalSummary]:
        """A page of gates of all runs, newest first. An empty sequence of statuses matches nothing."""
        given = approval_checks.list_filters(statuses, trigger_id, artifact, gate, kind)
        valid.page_limit(limit)
        return self._reading(
            lambda unit: sql.LIST.page(unit, ApprovalSummary.of, limit=limit, page_token=page_token, given=given)
        )

    def list_pending(
        self,
        *,
        run_id: str | None = None,
        kind: str | None = None,
        order: Literal["newest", "oldest"] = "newest",
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[PendingApproval]:
        """The inbox: open gates of all live runs, with what is asked for and where the run stands; none overdue."""
        given = approval_checks.inbox_filters(run_id, kind)
        work = self._page_of_inbox(approval_inbox.INBOX, PendingApproval.of, given, order, limit, page_token)
        return self._reading(work)

    def count_pending(self) -> int:
        """How many gates the inbox shows."""
        return self._count_open(approval_inbox.INBOX)

    def list_history(
        self,
        workflow_name: str,
        *,
        gate: str | None = None,
        node_id: str | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[ApprovalSummary]:
        """The answered gates of a workflow's runs, newest first, each with how it was answered (``answered_via``)."""
        given = approval_checks.history_filters(workflow_name, gate, node_id)
        valid.page_limit(limit)
        return self._reading(
            lambda unit: sql.HISTORY.page(unit, ApprovalSummary.of, limit=limit, page_token=page_token, given=given)
        )
