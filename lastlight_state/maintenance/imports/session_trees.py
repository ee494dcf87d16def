"""Imported sessions: how one is compared with what is stored, and stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from lastlight_state.conversations import words
from lastlight_state.conversations.kernel import orders, sessions, statuses, storing
from lastlight_state.conversations.kernel.feeds import news
from lastlight_state.conversations.trees.plans import Plan, plan_of
from lastlight_state.conversations.trees.saving import Saving
from lastlight_state.db.listed import as_list
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict
from lastlight_state.maintenance.imports import comparing, ledger, statements as sql
from lastlight_state.maintenance.imports.drafts import Change, Draft
from lastlight_state.maintenance.imports.lenient import fitting
from lastlight_state.maintenance.imports.pieces import STORED, Into, Look, Read

Row = dict[str, Any]


def piece_of(read: Callable[[bool], Draft]) -> Read:
    """How the session that ``read`` reads becomes a piece; it is told whether it is to be lenient."""
    return partial(_piece, read)


def _piece(read: Callable[[bool], Draft], into: Into) -> SessionPiece:
    draft = read(into.lenient)
    return SessionPiece(fitting(draft, into.now) if into.lenient else draft, into)


def _checked(where: str, change: Change) -> tuple[Change, Row]:
    return change, statuses.reason(where, change.why, change.status)


def kept_orders(view: Unit, plan: Plan, *, is_new: bool) -> Plan:
    """The plan with the orders that it names, which are made; one whose id is taken gets another."""
    heads = {row["id"] for row in view.rows(sql.HEADS, {"ids": _ids(one.row["id"] for one in plan.branches)})}
    new = [one.row for one in plan.branches if one.row["id"] not in heads]
    rows = [row for row in (*([plan.session] if is_new else []), *new) if row["progression_id"] is not None]
    taken = {row["id"] for row in view.rows(sql.ORDERS_THERE, {"ids": _ids(row["progression_id"] for row in rows)})}
    made: set[str] = set()
    for row in rows:
        if row["progression_id"] not in taken:
            orders.create(view, orders.fresh(row["progression_id"], (row["created_at"], row["created_at_unix"])))
            made.add(row["progression_id"])
            taken.add(row["progression_id"])  # of two that name the same, the first has it
    return replace(
        plan,
        session=_ordered(plan.session, made),
        branches=[replace(one, row=_ordered(one.row, made)) for one in plan.branches],
    )


def _ordered(row: Row, made: Collection[str]) -> Row:
    return {**row, "progression_id": row["progression_id"] if row["progression_id"] in made else None}


def _ids(found: Iterable[str]) -> str:
    return as_list([{"id": one} for one in found])


class SessionPiece:
    """A session that was read and checked."""

    def __init__(self, draft: Draft, into: Into) -> None:
        self._draft, self._into = draft, into
        self.digest = draft.digest
        self.plan: Plan = plan_of(draft.tree, draft.updated_at)
        self.target = (words.SESSION, self.plan.session["id"])
        drafts = [storing.draft(f"messages[{i}]", one, into.now) for i, one in enumerate(draft.loose)]
        self._loose = {body["id"]: body for body in drafts}
        self._bodies = dict(self._loose)
        for branch in self.plan.branches:
            self._bodies.update(branch.bodies)
        self._history = [_checked(f"history[{i}]", one) for i, one in enumerate(draft.history)]
        self._ends = {one: _checked(f"branches[{one!r:.80}]", to) for one, to in draft.branch_statuses.items()}
        self._stored: Any = None  # its row, once it was compared
        self._locks = sessions.Locks()

    def compared(self, look: Look) -> tuple[str, Counter[str], Counter[str]]:
        """Its outcome, the rows that are added, and what is noticed."""
        self._stored = look.view.row(sql.SESSION, {"session_id": self.plan.session["id"]})
        found = ledger.outcome(look, self, is_stored=self._stored is not None)
        if found not in STORED:
            return found, Counter(), Counter()
        noticed = Counter(self._draft.noticed)
        if self._stored is not None:
            kept = self._stored["status"]
            noticed["status_kept"] += kept in words.TERMINAL and kept != self.plan.session["status"]
        rows = comparing.added(look, self.plan, self._bodies)
        rows["sessions"] += found == "imported"
        return found, rows, noticed

    def store(self, view: Unit, outcome: str) -> None:
        """Add what is new of it, and move its status."""
        last = self.plan.session["last_message_at"] or self.plan.session["created_at"]
        listeners, known = self._into.listeners, self._into.known_classes
        plan = kept_orders(view, self.plan, is_new=outcome == "imported")
        if self._history:  # it tells the status of a new session; that of a stored one stays here
            plan = replace(plan, session={**plan.session, "status": None, "status_reason": None, "transition_seq": 0})
        saving = Saving(plan, listeners, known, last, replaces=False, only_adds=True)
        done = saving.part(view, plan.branches, self._locks)[1]
        session_id = self.plan.session["id"]
        _, revised = storing.put_all(view, known, list(self._loose.values()), last)
        if revised or done["messages_revised"] or bool(done["session_created"]) != (outcome == "imported"):
            # stored by somebody else after the look: the unit begins again, and is refused
            raise Conflict(f"session {session_id!r:.80} was changed meanwhile", code="unique")
        self._pool(view, last)
        if outcome == "imported":
            self._tell(view)
        else:
            self._move(view)
        if self._stored is not None:
            at = max(self._draft.updated_at, self._stored["updated_at"])
            view.change(sql.TOUCH, {"session_id": session_id, "at": at})

    def _pool(self, view: Unit, last: Any) -> None:
        """The messages that no branch has, in the pool of the session."""
        if not self._loose:
            return
        session_id = self.plan.session["id"]
        new = sessions.pool_messages(view, sessions.locked(view, session_id), list(self._loose))
        if new:
            told = news("messages.appended", count=len(new))
            sessions.move(view, self._into.listeners, session_id, last, told)

    def _tell(self, view: Unit) -> None:
        """The history of a new session, and the statuses of its branches."""
        session, listeners = self.plan.session, self._into.listeners
        kept = ("started_at", "ended_at", "ended_at_is_approximate", "last_message_at")
        last = {name: session[name] for name in kept}
        for left, (change, why) in zip(range(len(self._history) - 1, -1, -1), self._history, strict=True):
            row = view.row(statuses.LOCK, {"session_id": session["id"]}) or {}
            statuses.move(view, listeners, row, change.status, why, change.at, **({} if left else last))
        for branch_id, (change, why) in self._ends.items():
            row = view.row(statuses.LOCK, {"session_id": session["id"]}) or {}
            branch = view.row(statuses.BRANCH, {"branch_id": branch_id}) or {}
            times = {"started_at": change.started_at} if change.started_at else {}
            statuses.move_branch(view, listeners, row, branch, change.status, why, change.at, **times)

    def _move(self, view: Unit) -> None:
        """The status of a session that is stored already, if it went on."""
        session = self.plan.session
        row = view.row(statuses.LOCK, {"session_id": session["id"]}) or {}
        status, ended = session["status"], session["ended_at"] or self._draft.updated_at
        if row["status"] not in words.TERMINAL and status in words.TERMINAL:
            sets = {"ended_at": ended, "ended_at_is_approximate": session["ended_at_is_approximate"]}
            statuses.move(view, self._into.listeners, row, status, session["why"], ended, **sets)
        elif row["status"] == "pending" and status == words.RUNNING:
            statuses.move(view, self._into.listeners, row, status, session["why"], self._draft.updated_at)
