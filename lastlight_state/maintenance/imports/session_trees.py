"""Imported sessions: comparing a session with the stored one, and storing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lastlight_state.clock import iso_text
from lastlight_state.conversations import checks, sessions as session_sql, words
from lastlight_state.conversations.arguments import Reason
from lastlight_state.conversations.drafts import MessageDraft
from lastlight_state.conversations.records import ConversationSession
from lastlight_state.conversations.sessions.checks import SessionDraft
from lastlight_state.conversations.shared import orders, sessions, statuses, storing
from lastlight_state.conversations.shared.branching import BranchDraft
from lastlight_state.conversations.shared.feeds import entry_parameters
from lastlight_state.conversations.trees.plans import Plan, plan_of
from lastlight_state.conversations.trees.saving import ImportExtras, TreeSave
from lastlight_state.db.rows.statements import Row, Values
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict
from lastlight_state.maintenance.imports import brought, comparing, drafts as sql, growing, origins, pieces
from lastlight_state.maintenance.imports.comparing import SessionDifference
from lastlight_state.maintenance.imports.drafts import DIFFERS, Change, Draft, ImportedVersions
from lastlight_state.maintenance.imports.lenient import fit_draft
from lastlight_state.maintenance.imports.pieces import STORED, ImportTarget, Read, UnitLookup


def piece_of(read: Callable[[bool], Draft]) -> Read:
    """Return a function that makes a unit from the session that ``read`` returns.

    ``read`` is called with ``lenient``.
    """
    return partial(_piece, read)


def _piece(read: Callable[[bool], Draft], into: ImportTarget) -> SessionPiece:
    draft = read(into.lenient)
    return SessionPiece(fit_draft(draft, into.now) if into.lenient else draft, into)


def _check_change(where: str, change: Change) -> comparing.Checked:
    return change, statuses.reason(where, change.why, change.status)


def kept_orders(view: Unit, plan: Plan, begun: Mapping[str, tuple[Any, float | None]], *, is_new: bool) -> Plan:
    """Create the orders that a plan names, and return the plan. If an order's id is taken, the order gets another id.

    ``begun`` has the creation times of orders, if known.
    """
    heads = {head.id for head in view.rows(sql.HEADS, {"ids": _ids(one.row["id"] for one in plan.branches)})}
    new = [one.row for one in plan.branches if one.row["id"] not in heads]
    named = [
        (row["progression_id"], (row["created_at"], row["created_at_unix"]))
        for row in (*([plan.session] if is_new else []), *new)
        if row["progression_id"] is not None
    ]
    taken = set(view.values(sql.ORDERS_THERE, {"ids": _ids(name for name, _ in named)}))
    made: set[str] = set()
    for name, created in named:
        if name not in taken:
            orders.create(view, orders.fresh(name, begun.get(name, created)))
            made.add(name)
            taken.add(name)  # if two rows name the same order, the first row gets it
    session: SessionDraft = {**plan.session, "progression_id": _of(plan.session["progression_id"], made)}
    return replace(
        plan, session=session, branches=[replace(one, row=_row_with_order(one.row, made)) for one in plan.branches]
    )


def _row_with_order(row: BranchDraft, made: Collection[str]) -> BranchDraft:
    return {**row, "progression_id": _of(row["progression_id"], made)}


def _of(name: str | None, made: Collection[str]) -> str | None:
    """Return the id of an order if the order was created. If it is None, another order is created."""
    return name if name in made else None


def _ids(found: Iterable[str]) -> str:
    return as_list([{"id": one} for one in found])


class SessionPiece:
    """A session that was read and checked."""

    def __init__(self, draft: Draft, into: ImportTarget) -> None:
        self._draft, self._into = draft, into
        self.digest = draft.digest
        self.kept_differences: Sequence[str] = ()
        self.plan: Plan = plan_of(draft.tree, draft.updated_at)
        self.target = (words.SESSION, self.plan.session["id"])
        drafts = [storing.draft(f"messages[{i}]", one, into.now) for i, one in enumerate(draft.loose)]
        self._loose = {body["id"]: body for body in drafts}
        self._bodies = dict(self._loose)
        for branch in self.plan.branches:
            self._bodies.update(branch.bodies)
        self._history = [_check_change(f"history[{i}]", one) for i, one in enumerate(draft.history)]
        self._ends = {one: _check_change(f"branches[{one!r:.80}]", to) for one, to in draft.branch_statuses.items()}
        begun = draft.begun.items()
        self._begun = {
            one: checks.creation_time(f"progressions {one!r:.80}.created_at", at, into.now) for one, at in begun
        }
        self._locks = sessions.Locks()
        self._look: UnitLookup
        self._stored: ConversationSession | None = None  # the session's row, set by `compare`
        self._base = ImportedVersions("")
        self._found = SessionDifference()
        self._changes: Row = {}
        self._branch_changes: dict[str, Row] = {}
        self._fields_kept: list[str] = []
        self._is_changed_here = False  # since the last import, or before it

    def compare(self, look: UnitLookup) -> tuple[str, Counter[str], Counter[str]]:
        """Return the outcome of the session, the number of rows to add by table, and counts for ``noticed``."""
        self.digest, self.kept_differences, self._look = self._draft.digest, (), look
        self._stored = look.view.row(session_sql.GET, {"session_id": self.plan.session["id"]})
        found = pieces.outcome(look, self, is_stored=self._stored is not None)
        self._base = (
            ImportedVersions.of(pieces.known_digest(look)) if self._stored is not None else ImportedVersions("")
        )
        if found == "imported" and look.planned["sessions"].get(self.plan.session["id"]) == self.digest:
            found = "unchanged"  # a copy in the same plan
        if found not in STORED:
            return found, Counter(), Counter()
        noticed = Counter(self._draft.noticed)
        if self._draft.gave_later is not None and self._stored is not None:
            gave_later = self._draft.gave_later
            self._found = growing.compare_session(look, self, self.plan, self._stored, self._bodies, gave_later)
        else:
            self._refuse_older(look)
            self._found = comparing.compare_session(look, self.plan, self._bodies, self._draft.pool, self._stored)
        if self._is_copy():
            left = ", ".join(f"{count} {name}" for name, count in sorted((+self._found.rows).items()))
            self.kept_differences = [f"session: {left} of a copy beside"] if left else ()
            return "unchanged", Counter(), Counter(conflicts=len(self.kept_differences))
        kept = list(self._found.kept)
        if self._stored is not None:
            self._fields_kept = self._compare_fields(look.view, self._stored)
            kept += self._fields_kept
            if self._keeps_status(self._stored):
                noticed["status_kept"] += 1
                kept.append("session: status")
        self._found.rows["sessions"] += found == "imported"
        if found == "grown" and pieces.is_same(look, self) and not self._found.rows.total():
            return "unchanged", Counter(), Counter()  # nothing of the session was removed here
        look.planned["sessions"].setdefault(self.plan.session["id"], self._draft.digest)
        self.kept_differences = kept
        noticed["conflicts"] += len(kept)
        noticed["removed_here"] += len(self._found.gone) + len(self._found.removed_messages)
        return found, self._found.rows, noticed

    def _refuse_older(self, look: UnitLookup) -> None:
        """Raise `AlreadyExists` for a copy of the session from another place that is older than the last import."""
        if self._base.at > iso_text(self._draft.updated_at) and not origins.is_from_here(look):
            pieces.refuse_other(self, f"is older here than at its last import, from {origins.last_source(look)!r:.200}")

    def _is_copy(self) -> bool:
        """True if this folder is an older copy of the folder of the last import, which still exists next to it.

        A folder with the same time is a copy if it has no new rows.
        """
        folder, base = self._draft.folder, self._base
        if folder is None or not base.folder or folder.mark == base.folder[0]:
            return False
        now, before = (folder.told, iso_text(self._draft.updated_at)), (base.folder[1], base.at)
        is_older = now < before or (now == before and not self._found.rows.total())
        return is_older and folder.stands(base.folder[0])

    def _compare_fields(self, view: Unit, stored: ConversationSession) -> list[str]:
        """Find the fields to update from the source. Return the names of differing fields that stay."""
        session_id = self.plan.session["id"]
        pointers = self._marks()
        self._changes = comparing.differences(stored, self.plan.session, pointers)
        self._branch_changes = comparing.branch_differences(view, session_id, self.plan.branches)
        if stored.version == self._base.version:
            self._is_changed_here = False
            return []
        self._is_changed_here = not self._look.revives
        told = {"session": self._changes, **{f"branch {one}": row for one, row in self._branch_changes.items()}}
        self._changes, self._branch_changes = {}, {}
        return [f"{what}: {', '.join(sorted(row))}" for what, row in told.items() if row]

    def _marks(self) -> Row:
        """Return ``first_msg_id`` and ``last_msg_id`` of the session.

        If that message was removed, take the order's end.
        """
        pool, gone = self._draft.pool, self._found.removed_messages
        if pool is not None:
            first, last = (None if one in gone else one for one in (pool.first, pool.last))
            pool = replace(pool, first=first, last=last)
        return comparing.marks(pool, self._found.pool)

    def _keeps_status(self, stored: ConversationSession) -> bool:
        """Return whether the session's status was changed here, and differs from the status in the source."""
        seq = self._base.seq
        is_told_here = stored.status in words.TERMINAL if seq is None else stored.transition_seq != seq
        return is_told_here and stored.status != self.plan.session["status"]

    def store(self, view: Unit, outcome: str) -> None:
        """Add the new rows of the session, and update the stored rows from the source."""
        last = self.plan.session["last_message_at"] or self.plan.session["created_at"]
        session_id, is_new = self.plan.session["id"], outcome == "imported"
        listeners, known = self._into.listeners, self._into.known_classes
        if self._stored is not None:
            self._refuse_changed(view, self._stored)
        plan = kept_orders(view, self._reduced_plan(), self._begun, is_new=is_new)
        placed = {one for branch in plan.branches for one in branch.bodies}
        loose = self._unless_kept({one: body for one, body in self._bodies.items() if one not in placed})
        beside = ImportExtras(loose, self._found.revised, self._found.pool, self._into.now)
        saving = TreeSave(plan, listeners, known, last, replaces=not is_new, following=beside)
        done = saving.part(view, plan.branches, self._locks)[1]
        if bool(done["session_created"]) != is_new:
            # stored by another call since the comparison: the unit begins again, and is refused
            raise Conflict(f"session {session_id!r:.80} was changed meanwhile", code="unique")
        if self._draft.pool is None:
            self._pool(view, last)
        self._follow(view, is_new=is_new)
        self._leave(view)

    def _refuse_changed(self, view: Unit, stored: ConversationSession) -> None:
        """Lock a stored session. Raises `Conflict` if it was changed since the comparison: the unit begins again."""
        self._locks.first(view, stored.id)
        version: int | None = view.value(session_sql.LOCK, {"session_id": stored.id})
        if version != stored.version:
            raise Conflict(f"session {stored.id!r:.80} was changed meanwhile", code="unique")

    def _reduced_plan(self) -> Plan:
        """Return the plan with only those orders and messages that must be stored."""
        branches = [
            replace(one, order=self._found.orders[one.row["id"]], bodies=self._unless_kept(one.bodies))
            for one in self.plan.branches
            if one.row["id"] not in self._found.gone
        ]
        session = self.plan.session
        if self._history:  # the history sets the status of a new session
            session = {**session, "status": None, "status_reason": None, "transition_seq": 0}
        return replace(self.plan, session=session, branches=branches)

    def _unless_kept(self, bodies: Mapping[str, MessageDraft]) -> dict[str, MessageDraft]:
        return {one: body for one, body in bodies.items() if one not in self._found.kept_messages}

    def _pool(self, view: Unit, last: Any) -> None:
        """Append messages that are in no branch to the session's order of all messages."""
        session_id = self.plan.session["id"]
        pool, listeners = sessions.lock_session(view, session_id), self._into.listeners
        new = sessions.pool_messages(view, listeners, session_id, pool, list(self._loose), last, locks=self._locks)
        if new:
            told = entry_parameters("messages.appended", count=len(new))
            sessions.record_change(view, listeners, session_id, last, told)

    def _follow(self, view: Unit, *, is_new: bool) -> None:
        """Write the new values of fields and statuses of the session and its branches."""
        session, listeners = self.plan.session, self._into.listeners
        session_id, at = session["id"], self._draft.updated_at
        changes = self._changes
        if is_new:
            changes = self._marks()
        comparing.change(view, listeners, session_id, changes, at)
        comparing.change_branches(view, listeners, session_id, self._branch_changes, at)
        pending = self._pending_changes(view)
        kept = ("started_at", "ended_at", "ended_at_is_approximate", *(["last_message_at"] if is_new else ()))
        ids = self._free_ids(view, pending)
        columns: Values = session
        comparing.tell(view, listeners, session_id, pending, ids, {name: columns[name] for name in kept})
        ends = {one: to for one, to in self._ends.items() if one not in self._found.gone}
        comparing.tell_branches(view, listeners, session_id, ends)
        if self._stored is not None:
            view.change(sql.TOUCH, {"session_id": session_id, "at": max(at, self._stored.updated_at)})

    def _pending_changes(self, view: Unit) -> list[comparing.Checked]:
        """Return the changes of the session's status that are still to be written."""
        if self._stored is None:
            return self._history
        if self._keeps_status(self._stored):
            return []
        here = _changes_there(view, self._history)
        new = [one for one in self._history if one[0].id is not None and one[0].id not in here]
        pending = new if self._base.seq is not None else []
        session = self.plan.session
        status = pending[-1][0].status if pending else self._stored.status
        if session["status"] not in (status, None):
            ended = session["ended_at"] if session["status"] in words.TERMINAL else None
            at = ended or self._draft.updated_at
            pending = [*pending, (Change(session["status"], at, Reason()), session["why"])]
        return pending

    def _free_ids(self, view: Unit, pending: Sequence[comparing.Checked]) -> list[str | None]:
        """Return the ids that the source gives to changes, or None for an id that is taken in the store."""
        taken = _changes_there(view, pending)
        return [None if one.id in taken else one.id for one, _ in pending]

    def _leave(self, view: Unit) -> None:
        """Record the versions for the comparison by the next import.

        Parts that stayed different are marked as different.
        """
        [session] = view.rows(session_sql.GET, {"session_id": self.plan.session["id"]})
        heads = view.rows(sql.HEADS, {"ids": _ids(one.row["id"] for one in self.plan.branches)})
        names = [session.progression_id, *(head.progression_id for head in heads)]
        versions = {name: order.version for name, order in orders.lock_orders(view, names).items()}
        kept = self._found.kept_orders
        differs = dict.fromkeys(kept | self._found.changed_orders, DIFFERS)
        keeps_status = self._stored is not None and self._keeps_status(self._stored)
        self.digest = ImportedVersions(
            self._draft.digest,
            DIFFERS if self._fields_kept or self._is_changed_here else session.version,
            DIFFERS if keeps_status else session.transition_seq,
            {**versions, **differs},
            self._source({head.id for head in heads if head.progression_id in kept}),
            iso_text(self._draft.updated_at),
            () if self._draft.folder is None else (self._draft.folder.mark, self._draft.folder.told),
        ).text()
        for message_id, seen in self._found.revised.items():
            pieces.note_revision(self._look, message_id, seen + 1, self._into.now)

    def _source(self, kept: Collection[str]) -> dict[str, Sequence[Any]]:
        """Return the summaries of the source's orders.

        An order keeps its earlier summary if the store's order was ``kept``, or if the source's order is shorter now.
        """
        if self._draft.gave_later is not None:
            [branch] = self.plan.branches
            return {branch.row["id"]: growing.ledger_record(self.plan, self._base.source.get(branch.row["id"]))}
        before, pool = self._base.source, self._draft.pool
        found = {branch.row["id"]: brought.order(branch.order) for branch in self.plan.branches}
        if pool is not None:
            found[""] = brought.order(pool.ids)
        longer = {one: had for one, had in before.items() if one not in found or had[0] > found[one][0]}
        return found | longer | {one: before.get(one, brought.order([])) for one in kept}


def _changes_there(view: Unit, changes: Iterable[comparing.Checked]) -> set[str]:
    """Return which ids of these changes are taken in the store, by any session."""
    ids = _ids(one.id for one, _ in changes if one.id is not None)
    return set(view.values(sql.CHANGES_THERE, {"ids": ids}))
