"""Approvals: gates at which a run asks a person for a yes, a no or a reply, and gets one answer.

Opening a gate and pausing its run is one transaction; answering a gate and moving its run is one, too. The first
answer wins. The same answer by the same person again returns the first as ``repeated``, any other is refused. The
approval of a gate with an action holds for that action only and can be used once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from lastlight_state.db import valid
from lastlight_state.db.rows.records import Page
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists
from lastlight_state.workflows import checks as shared, words
from lastlight_state.workflows.approvals import checks, statements as sql
from lastlight_state.workflows.approvals.checks import consume
from lastlight_state.workflows.approvals.records import Answered, Approval, ApprovalSummary, PendingApproval
from lastlight_state.workflows.arguments import Claim, Gate, NodeRef, PhaseEntry
from lastlight_state.workflows.questions.repository import Opening, QuestionRepository
from lastlight_state.workflows.tables import APPROVALS

_LIMITS = limits_of(APPROVALS)


class Approvals(QuestionRepository[Approval]):
    """``store.workflows.approvals``: open, answer, use and list gates."""

    _questions = sql.QUESTIONS

    def create(self, run_id: str, gate: Gate, *, claim: Claim | None = None) -> Approval:
        """Open a gate without pausing its run. The run must be running or paused.

        Repeat-safe for the same ``gate.id`` and content. Raises `AlreadyExists` if the id is used with other content,
        or while another gate with the same request key is pending (``error.approval``); also `NotFound`, `ClaimLost`
        and `Conflict` ``run_status``.
        """
        row = checks.new_approval(run_id, gate, self._now(), blocks_run=False)
        return self._beside(_gate_opening(row), claim)

    def pause(
        self,
        run_id: str,
        gate: Gate,
        *,
        marker: PhaseEntry | None = None,
        scratch: dict[str, Any] | None = None,
        claim: Claim | None = None,
    ) -> Approval:
        """Open a gate and pause its running run until the answer, in one transaction with ``marker`` and ``scratch``.

        The claim ends: nobody holds a paused run. Errors and repeats are those of `create`; an error stores nothing.
        """
        row = checks.new_approval(run_id, gate, self._now(), blocks_run=True)
        return self._open_with_pause(_gate_opening(row), marker, scratch, claim)

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

        A gate of kind ``approve`` takes ``approved`` or ``rejected``, one of kind ``reply`` takes ``replied`` with the
        text in ``response``. To approve a gate with an action, give the ``digest`` of that action: without one raises
        `InvalidValue`, with another one `StaleVersion`. A rejection fails the run if the gate's ``on_reject`` says so.
        Otherwise a run that is paused for gates runs again, offered to any worker, once no question blocks it.

        The first answer wins. The same answer by the same responder again returns it as ``repeated``; any other raises
        `AlreadyAnswered` with the winner. A gate that ended without an answer raises `Conflict` ``approval_expired``
        or ``approval_cancelled``.
        """
        answer = checks.answer(approval_id, decision, by, response, digest, scratch, via, self._now())
        limits = self._settings.limits
        return self._writing(lambda unit: checks.record(unit, self._listeners, limits, answer), repeatable=True)

    def consume(self, approval_id: str, *, action: Any, execution_id: str, claim: Claim | None = None) -> Approval:
        """Mark an approved gate as used for its action, once. Call this before doing the action.

        Repeat-safe for the same execution; another execution raises `Conflict` ``approval_consumed``. Raises
        `StaleVersion` if ``action`` is not the approved action, `Conflict` ``approval_<status>`` if the gate is not
        approved.
        """
        use = checks.use(approval_id, action, execution_id, self._now())
        return self._writing(lambda unit: consume(unit, use, claim), repeatable=True)

    def cancel(self, approval_id: str, *, by: str, reason: str) -> Approval:
        """End a pending gate without an answer; its run goes on as after an answer. Repeat-safe.

        Raises `AlreadyAnswered` for an answered gate, `Conflict` ``approval_expired`` for an expired one.
        """
        return self._cancel(approval_id, by, reason)

    def expire_due(self, *, limit: int = 500, workflow_names: Sequence[str] | None = None) -> tuple[str, ...]:
        """Expire overdue gates; expiry counts as a rejection. Returns the ids of the gates that changed.

        Looks at up to ``limit`` gates, of ``workflow_names`` or of all workflows, the longest overdue first. Each run
        takes one transaction.
        """
        return self._expire_due(self._now(), limit, workflow_names)

    def get(self, approval_id: str) -> Approval:
        """Return the whole gate; an overdue one reads as expired. Raises `NotFound`."""
        return self._get(approval_id)

    def find(self, run_id: str, gate: str, *, node: NodeRef | None = None) -> Approval | None:
        """Return the newest gate with this name in a run, whatever its status, or None if the run has none.

        ``node`` limits the search to gates of that node.
        """
        values = {
            "run_id": valid.lookup_text("run_id", run_id),
            "gate": valid.identifier("gate", gate, _LIMITS.gate),
            **shared.node_columns(node),
        }
        found = self._find(sql.NEWEST_OF_GATE, values)
        return None if found is None else self._current_question(found)

    def list_for_run(self, run_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[ApprovalSummary]:
        """Return a page of the gates of a run in every status, oldest first, overdue ones as expired.

        Raises `NotFound` for an unknown run.
        """
        return self._page_of_run(sql.OF_RUN, run_id, limit, page_token)

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
        """Return a page of gates of all runs, newest first, overdue ones as expired.

        An empty sequence of statuses matches nothing. Only ``artifact`` has an index: a search for a rare status, gate
        or kind may read every gate.
        """
        given = checks.list_filters(statuses, trigger_id, artifact, gate, kind)
        return self._page_as(sql.LIST, self._as_of_now(), given, limit, page_token, also={"now": self._now()})

    def list_pending(
        self,
        *,
        run_id: str | None = None,
        kind: str | None = None,
        order: Literal["newest", "oldest"] = "newest",
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[PendingApproval]:
        """Return a page of the inbox: pending gates of live runs, with short actions and the run's state.

        Overdue gates are expired first. In a view or a read-only store they are left out instead.
        """
        return self._page_of_inbox(sql.INBOX, run_id, kind, order, limit, page_token)

    def count_pending(self) -> int:
        """Return the number of gates in the inbox."""
        return self._count_open(sql.INBOX)

    def list_history(
        self,
        workflow_name: str,
        *,
        gate: str | None = None,
        node_id: str | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[ApprovalSummary]:
        """Return a page of a workflow's answered gates, newest first; ``answered_via`` says how each was answered."""
        given = checks.history_filters(workflow_name, gate, node_id)
        return self._page(sql.HISTORY, given, limit, page_token)


def _gate_opening(gate: sql.NewApproval) -> Opening[Approval]:
    """Return the `Opening` of a gate.

    Storing it raises `AlreadyExists` if the run has a pending gate with the same request key.
    """

    def refuse(unit: Unit) -> None:
        pending = unit.row(sql.FIND_PENDING_KEY, gate)
        if pending is not None:
            raise AlreadyExists(
                "approval", pending.id, problem="is pending with the same request key in this run", approval=pending
            )

    return Opening(sql.QUESTIONS, gate, gate["workflow_run_id"], gate["created_at"], refuse)
