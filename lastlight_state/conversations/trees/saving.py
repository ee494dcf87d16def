"""Saves a session tree. Each transaction reads what is stored, and writes what is missing.

Locks are taken in the same order as in all transactions: first the session, then the orders of its branches and of
their parents, then messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations import sessions as session_sql, words
from lastlight_state.conversations.branches import statements, statements as branch_sql
from lastlight_state.conversations.drafts import MessageDraft
from lastlight_state.conversations.progressions import replace_links
from lastlight_state.conversations.records import Branch
from lastlight_state.conversations.sessions import insert_session
from lastlight_state.conversations.shared import branching, orders, sessions, storing
from lastlight_state.conversations.shared.branching import BranchDraft
from lastlight_state.conversations.shared.feeds import entry_parameters, write_entry
from lastlight_state.conversations.shared.storing import KnownClasses
from lastlight_state.conversations.tables import BRANCHES
from lastlight_state.conversations.trees.plans import BranchPlan, Plan
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.rows.statements import Row, Values, statement_of
from lastlight_state.db.rows.writes import as_list, elements_table
from lastlight_state.db.schema.indexes import AmongFew
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, StaleVersion

_TEXTS, _JSON = ("name", "user"), ("node_metadata", "extra")
_HEADS = statement_of(
    sa.select(*branching.COLUMNS).where(
        AmongFew(BRANCHES.c.id, sa.select(member_of(elements_table("ids").c.value, "id")))
    ),
    Branch,
)


@dataclass(frozen=True)
class ImportExtras:
    """Facts of an imported session that its tree does not contain.

    ``loose`` are messages, by id, that no branch has. ``seen`` maps the ids of messages that may change to their
    expected revisions. ``pool`` is the order of all message ids, or None if the pool grows with the branches. ``at`` is
    the time of the changes.
    """

    loose: Mapping[str, MessageDraft]
    seen: Mapping[str, int]
    pool: list[str] | None
    at: datetime


class TreeSave:
    """The state shared by all transactions of one save.

    With ``following`` (an import), the fields of stored sessions and branches are not changed.
    """

    def __init__(
        self,
        plan: Plan,
        listeners: Listeners,
        known: KnownClasses,
        now: datetime,
        *,
        replaces: bool,
        following: ImportExtras | None = None,
    ) -> None:
        self.plan = plan
        self.listeners = listeners
        self.known = known
        self.now = now
        self.replaces = replaces
        self.following = following

    def part(self, unit: Unit, some: list[BranchPlan], locks: sessions.Locks) -> tuple[str, Counter[str]]:
        """Save the session and some of its branches. Return the session's id, and counts of the rows written."""
        return _Part(self, unit, locks).save(some)


class _Part:
    """One transaction of a save."""

    def __init__(self, of: TreeSave, unit: Unit, locks: sessions.Locks) -> None:
        self.of = of
        self.unit = unit
        self.locks = locks
        self.done: Counter[str] = Counter()

    def save(self, some: list[BranchPlan]) -> tuple[str, Counter[str]]:
        session_id = self._session()
        self.locks.first(self.unit, session_id)
        pool = sessions.lock_session(self.unit, session_id)
        self._session_fields(session_id)
        parents = {one.origin[0] for one in some if one.origin is not None}
        there = _heads(self.unit, {*parents, *(one.row["id"] for one in some)})
        orders.lock_orders(
            self.unit, [pool, *(branch.progression_id for branch in there.values()), *_named_orders(some, there)]
        )
        self._messages(some, session_id)
        self._pool(session_id, pool)
        for one in some:
            self._branch(one, there.get(one.row["id"]), session_id)
        return session_id, self.done

    def _session(self) -> str:
        """Find the stored session by the tree's id or by any of its branches, or create it. Return its id."""
        row = self.of.plan.session
        session_id: str = row["id"]
        if self.unit.row(session_sql.GET, {"session_id": session_id}) is not None:
            return session_id
        for branch in _heads(self.unit, {one.row["id"] for one in self.of.plan.branches}).values():
            return branch.session_id
        try:
            insert_session(self.unit, self.of.listeners, row)
        except AlreadyExists as error:  # another transaction saved it in the meantime: `retry_storing` retries
            raise Conflict(str(error), code="unique") from error
        self.done["session_created"] += 1
        return session_id

    def _session_fields(self, session_id: str) -> None:
        row = self.of.plan.session
        if session_id != row["id"] or self.done["session_created"] or self.of.following is not None:
            return
        stored = self.unit.row(session_sql.GET, {"session_id": session_id})
        changes = _changes({} if stored is None else vars(stored), row)
        if changes:
            values = {**changes, "updated_at": self.of.now}
            chain = session_sql.update(frozenset(values), versioned=False)
            told = {**values, "session_id": session_id, "at": self.of.now}
            write_entry(self.unit, self.of.listeners, chain, told, entry_parameters("session.updated"))
            self.done["fields_changed"] += 1

    def _messages(self, some: list[BranchPlan], session_id: str) -> None:
        bodies = {message_id: body for one in some for message_id, body in one.bodies.items()}
        seen, at_time = None, self.of.now
        if self.of.following is not None:
            bodies |= self.of.following.loose
            seen, at_time = self.of.following.seen, self.of.following.at
        ids, revised = sorted(bodies), list[str]()
        for at in range(0, len(ids), words.BATCH):
            batch = [bodies[message_id] for message_id in ids[at : at + words.BATCH]]
            there, changed = storing.put_all(self.unit, self.of.known, batch, at_time, seen=seen)
            revised += changed
            self.done["messages_created"] += len(batch) - len(there)
        sessions.record_revisions(self.unit, self.of.listeners, revised, self.of.now, locks=self.locks, own=session_id)
        self.done["messages_revised"] += len(revised)

    def _pool(self, session_id: str, pool: str) -> None:
        """Set the pool's order as an import gives it, before branches append to the pool."""
        given = None if self.of.following is None else self.of.following.pool
        if given is None:
            return
        found = orders.lock_orders(self.unit, [pool])
        stored = self.unit.values(orders.LINKED, {"progression_id": pool})
        if given[: len(stored)] != stored:
            replace_links(self.unit, self.of.listeners, found[pool], given, self.of.now, locks=self.locks)
        elif new := given[len(stored) :]:
            shared = orders.extend(self.unit, found, {pool: new}, session_id)
            told = entry_parameters("messages.appended", progression_id=pool, count=len(new))
            sessions.record_append(self.unit, self.of.listeners, session_id, self.of.now, told)
            sessions.record_for_others(
                self.unit, self.of.listeners, shared, session_id, self.of.now, lambda _: told, locks=self.locks
            )

    def _branch(self, plan: BranchPlan, stored: Branch | None, session_id: str) -> None:
        if stored is None:
            row: BranchDraft = {**plan.row, "session_id": session_id}
            branch = statements.insert_branch(
                self.unit, self.of.listeners, self.of.known, row, plan.system, self.of.now, locks=self.locks
            )
            self.done["branches_created"] += 1
        else:
            _refuse_other(stored, plan, session_id)
            if self.of.following is None:
                self._branch_fields(stored, plan.row)
            branch = stored
        replaces_system = stored is None or self.of.following is None
        if replaces_system and plan.system is not None and branch.system_msg_id != plan.system:
            statements.system_replaced(
                self.unit, self.of.listeners, self.of.known, branch.id, plan.system, self.of.now, locks=self.locks
            )
            self.done["systems_replaced"] += 1
        self._order(branch, plan.order)

    def _branch_fields(self, stored: Branch, row: BranchDraft) -> None:
        given: Row = {**row, "node_metadata": None}
        if row["node_metadata"] is not None:
            given["node_metadata"] = statements.keep_fork_keys(stored.node_metadata, row["node_metadata"])
        changes = _changes(vars(stored), given)
        if changes:
            self.unit.row(branch_sql.update(frozenset(changes)), {**changes, "branch_id": stored.id})
            told = entry_parameters("branch.updated", branch_id=stored.id)
            sessions.record_change(self.unit, self.of.listeners, stored.session_id, self.of.now, told)
            self.done["fields_changed"] += 1

    def _order(self, branch: Branch, given: list[str]) -> None:
        stored = branching.whole_order(self.unit, branch.id)
        if given[: len(stored)] == stored:
            self._append(branch, given[len(stored) :])
            return
        at = next((i for i, (a, b) in enumerate(zip(stored, given, strict=False)) if a != b), len(given))
        start = branch.forked_at_ord or 0
        if not self.of.replaces or at < start:
            raise StaleVersion(words.BRANCH, branch.id, expected=_place(given, at), found=_place(stored, at))
        order = orders.lock_orders(self.unit, [branch.progression_id])[branch.progression_id]
        replace_links(self.unit, self.of.listeners, order, given[start:], self.of.now, locks=self.locks)
        pool = sessions.lock_session(self.unit, branch.session_id)
        ids = list(dict.fromkeys(given[at:]))
        new = sessions.pool_messages(
            self.unit, self.of.listeners, branch.session_id, pool, ids, self.of.now, locks=self.locks
        )
        if new:
            told = entry_parameters("messages.appended", progression_id=pool, count=len(new))
            sessions.record_append(self.unit, self.of.listeners, branch.session_id, self.of.now, told)
        self.done["orders_replaced"] += 1

    def _append(self, branch: Branch, ids: list[str]) -> None:
        for at in range(0, len(ids), words.BATCH):
            some = ids[at : at + words.BATCH]
            statements.append(
                self.unit,
                self.of.listeners,
                self.of.known,
                branch.id,
                some,
                skips=False,
                now=self.of.now,
                locks=self.locks,
            )
        self.done["links_added"] += len(ids)


def report(session_id: str, done: Counter[str]) -> Row:
    """Return the fields of a `SaveReport` from the counts of a save."""
    names = ("branches_created", "fields_changed", "messages_created", "messages_revised", "links_added")
    counts = {name: done[name] for name in (*names, "systems_replaced", "orders_replaced")}
    return {"session_id": session_id, "session_created": bool(done["session_created"]), **counts}


def _named_orders(some: list[BranchPlan], there: Collection[str]) -> list[str]:
    """Return the ids of the orders that the caller gave for branches that are not stored yet."""
    given = (one.row["progression_id"] for one in some if one.row["id"] not in there)
    return [one for one in given if one is not None]


def _heads(unit: Unit, ids: Collection[str]) -> dict[str, Branch]:
    found = unit.rows(_HEADS, {"ids": as_list([{"id": one} for one in ids])})
    return {branch.id: branch for branch in found}


def _refuse_other(stored: Branch, plan: BranchPlan, session_id: str) -> None:
    if stored.session_id != session_id:
        raise AlreadyExists(words.BRANCH, stored.id, session_id=stored.session_id)
    if plan.origin is not None and plan.origin != (stored.parent_branch_id, stored.forked_at_ord):
        problem = "already exists with another origin"
        raise AlreadyExists(words.BRANCH, stored.id, problem=problem, fields=("node_metadata",))


def _changes(stored: Values, given: Values) -> Row:
    """Return the given fields whose stored values differ, with their new values."""
    changes = {name: given[name] for name in _TEXTS if given[name] not in (None, stored[name])}
    for name in _JSON:
        told = given[name]
        if told is not None and codec.canonical(codec.decode(told)) != codec.canonical(stored[name]):
            changes[name] = told
    return changes


def _place(order: list[str], at: int) -> str | None:
    return f"{order[at]} at {at}" if at < len(order) else None
