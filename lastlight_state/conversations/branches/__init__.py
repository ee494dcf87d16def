"""Branches: each is a message order within a session, with the configuration of an agent.

Positions count through the whole history of a branch. A fork's own messages follow its inherited messages.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from lastlight_state import codec
from lastlight_state.conversations import checks, words
from lastlight_state.conversations.arguments import BranchPatch, NewBranch, NewMessage
from lastlight_state.conversations.branches import statements, statements as sql
from lastlight_state.conversations.records import (
    Appended,
    Branch,
    BranchLink,
    BranchMessage,
    BranchSummary,
)
from lastlight_state.conversations.shared import branching, deleting, sessions, storing
from lastlight_state.conversations.shared.feeds import entry_parameters
from lastlight_state.conversations.shared.sessions import refuse_fork_keys
from lastlight_state.conversations.shared.storing import KnownClasses
from lastlight_state.conversations.tables import BRANCHES
from lastlight_state.db import valid
from lastlight_state.db.lists import pages
from lastlight_state.db.lists.pages import split_damaged
from lastlight_state.db.repository import UNSET, Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, RowT, Statement, Values
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, CorruptData

_LIMITS = limits_of(BRANCHES)

#: A branch of which nothing is known.
_PLAIN = NewBranch()
_CHANGED = {**checks.of(BRANCHES, "name", "user", "extra"), **branching.HINT_CHECKS}


class Branches(Repository):
    """``store.conversations.branches``

    The parent of a branch, and the position where it was forked, never change, in columns and metadata.
    """

    def create(self, session_id: str, branch: NewBranch = _PLAIN) -> Branch:
        """Create a branch of a session. Its system message is stored, and added to the session's pool.

        The branch is a fork if its metadata name a ``parent_branch_id`` and ``forked_at_ord``. Raises `NotFound`, and
        `AlreadyExists` if the branch's id is stored, in this or another session.
        """
        now = self._now()
        row, system = statements.row_of(session_id, branch, now)
        known, locks = self._remember(KnownClasses), sessions.Locks()
        return storing.retry_storing(
            lambda: self._writing(
                lambda unit: statements.insert_branch(unit, self._listeners, known, row, system, now, locks=locks)
            )
        )

    def ensure(self, session_id: str, branch: NewBranch) -> Branch:
        """Create a branch unless its id is stored, and return the stored branch, unchanged.

        Raises `AlreadyExists` if the stored branch differs in a field that the caller gives, or belongs to another
        session. The error's ``fields`` name the differences.
        """
        now = self._now()
        row, system = statements.row_of(session_id, branch, now)
        known, locks = self._remember(KnownClasses), sessions.Locks()

        def look(unit: Unit) -> Branch:
            found = unit.row(branching.GET, {"branch_id": row["id"]})
            if found is None:
                return statements.insert_branch(unit, self._listeners, known, row, system, now, locks=locks)
            if fields := _differing_fields(found, row):
                problem = f"already exists with another {', '.join(fields)}"
                raise AlreadyExists(words.BRANCH, row["id"], problem=problem, fields=tuple(fields))
            return found

        return storing.ensure_row(lambda: storing.retry_storing(lambda: self._writing(look, repeatable=True)))

    def get(self, branch_id: str) -> Branch:
        """Return the branch. Raises `NotFound`."""
        values = {"branch_id": valid.lookup_text("branch_id", branch_id)}
        return self._get_row(branching.GET, values, kind=words.BRANCH, key=branch_id)

    def find(self, branch_id: str) -> Branch | None:
        """Return the branch, or None."""
        return self._find(branching.GET, {"branch_id": valid.lookup_text("branch_id", branch_id)})

    def list(self, session_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[BranchSummary]:
        """Return a page of a session's branches, the oldest first."""
        given = {"session_id": valid.lookup_text("session_id", session_id)}
        return self._page(sql.LIST, given, limit, page_token)

    def update(self, branch_id: str, patch: BranchPatch) -> Branch:
        """Set the given fields of a branch; None clears a field. The metadata's fork keys stay. Raises `NotFound`."""
        found, given = valid.lookup_text("branch_id", branch_id), valid.argument_group("patch", patch, BranchPatch)
        named = {name: check for name, check in _CHANGED.items() if getattr(given, name) is not UNSET}
        changes = checks.fields("patch", given, named)
        metadata = given.node_metadata
        if metadata is UNSET:
            return self._change(found, lambda _stored: changes)
        checks.encode_object("patch.node_metadata", metadata, _LIMITS.node_metadata)
        refuse_fork_keys("patch.node_metadata", metadata or {})
        return self._change(
            found, lambda stored: {**changes, "node_metadata": statements.keep_fork_keys(stored, metadata)}
        )

    def append(
        self, branch_id: str, messages: Sequence[NewMessage | str], *, on_repeat: words.OnRepeat = "skip"
    ) -> Appended:
        """Append at most 1,000 messages to a branch, all or none: messages to store, or ids of stored messages.

        A message that is already in the branch's history (inherited messages included) is skipped, or with ``"keep"``
        added again. A message with a stored id and other content revises the stored message. Messages that are not in
        the session's pool are added to it. Raises `NotFound`, `InvalidValue` with the position of a bad message, and
        `PayloadTooLarge` past 32 MiB.
        """
        found, now = valid.lookup_text("branch_id", branch_id), self._now()
        given = storing.drafts("messages", messages, now)
        skips = valid.word("on_repeat", on_repeat, words.ON_REPEAT) == "skip"
        known, locks = self._remember(KnownClasses), sessions.Locks()

        def append(unit: Unit) -> Appended:
            return statements.append(unit, self._listeners, known, found, given, skips=skips, now=now, locks=locks)

        return storing.retry_storing(lambda: self._writing(append, repeatable=skips))

    def pop(self, branch_id: str, count: int = 1) -> builtins.list[BranchMessage]:
        """Remove the last ``count`` (1 to 500) messages from a branch's history, and return them in order.

        A shorter history is emptied. The messages stay stored, and in the session's pool unless the pool is the
        branch's own order. Raises `NotFound`, `CorruptData` for a message that cannot be read, and `Conflict`
        ``fork_prefix`` for messages that the branch, or a fork of it, has inherited; then nothing is removed. The
        number of statements does not depend on the history's length.
        """
        found, most = (
            valid.lookup_text("branch_id", branch_id),
            valid.number("count", count, least=1, most=valid.PAGE_LIMIT),
        )
        now, locks = self._now(), sessions.Locks()

        def pop(unit: Unit) -> builtins.list[BranchMessage]:
            order = statements.locked_order(unit, found, locks)
            first = deleting.first_of_last(order, most)
            own = branching.Segment(found, order.id, order.start_ord, order.next_ord)
            wanted = branching.positions([own], first, order.next_ord)
            rows = unit.rows(sql.BODIES, branching.position_parameters(wanted)) if wanted else []
            branching.refuse_gaps(found, wanted, len(rows))
            deleting.cut(unit, self._listeners, order, first, now, locks=locks, branch_id=found)
            return rows

        return storing.retry_storing(lambda: self._writing(pop))

    def truncate(self, branch_id: str, from_ord: int) -> Branch:
        """Remove all messages at and after position ``from_ord`` from a branch's history.

        A shorter history is unchanged. The messages stay stored, and in the session's pool unless the pool is the
        branch's own order. Raises `NotFound`, and `Conflict` ``fork_prefix`` for messages that the branch, or a fork of
        it, has inherited. The number of statements does not depend on the history's length.
        """
        found, first = valid.lookup_text("branch_id", branch_id), valid.number("from_ord", from_ord)
        now, locks = self._now(), sessions.Locks()

        def truncate(unit: Unit) -> Branch:
            order = statements.locked_order(unit, found, locks)
            deleting.cut(unit, self._listeners, order, first, now, locks=locks, branch_id=found)
            return branching.get(unit, found)

        return storing.retry_storing(lambda: self._writing(truncate))

    def delete(self, branch_id: str) -> bool:
        """Delete a branch permanently.

        Its message order is deleted, too, unless another branch or a session has that order. The branch's messages stay
        in the session's pool; messages that nothing refers to are deleted. Returns False if the branch does not exist.
        Raises `Conflict`: ``not_ended`` while the branch is pending or running, ``held`` if its session is held, or
        ``forked`` while the branch has forks.
        """
        found, now = valid.lookup_text("branch_id", branch_id), self._now()
        return self._writing(lambda unit: deleting.branch(unit, self._listeners, found, now))

    def replace_system(self, branch_id: str, message: NewMessage | str) -> Branch:
        """Replace a branch's system message by a new message, or by a stored message of this id.

        The old system message stays stored, and in the session's pool. If the branch's own order begins with the old
        message, the new message takes that position. Raises `Conflict` ``fork_prefix`` if a fork has inherited the
        position.
        """
        found, now = valid.lookup_text("branch_id", branch_id), self._now()
        [given] = storing.drafts("message", [message], now)
        known, locks = self._remember(KnownClasses), sessions.Locks()

        def replace(unit: Unit) -> Branch:
            return statements.system_replaced(unit, self._listeners, known, found, given, now, locks=locks)

        return storing.retry_storing(lambda: self._writing(replace))

    def history(
        self, branch_id: str, *, from_ord: int = 0, limit: int = 50, page_token: str | None = None
    ) -> Page[BranchMessage]:
        """Return a page of a branch's history with its messages, oldest first, inherited messages included.

        The cost grows with the page's size and the number of ancestors, not with the history's length. Raises
        `NotFound`, and `CorruptData` if the ancestors form a cycle or a position is missing.
        """
        return self._pages(sql.BODIES, branch_id, from_ord, limit, page_token)

    def order(
        self, branch_id: str, *, from_ord: int = 0, limit: int = 50, page_token: str | None = None
    ) -> Page[BranchLink]:
        """Return the same without the messages: which message stands where."""
        return self._pages(branching.ORDER, branch_id, from_ord, limit, page_token)

    def tail(self, branch_id: str, limit: int = 50) -> builtins.list[BranchMessage]:
        """Return the last ``limit`` messages of a branch's history, oldest first.

        Raises `NotFound`, and `CorruptData` for a message that cannot be read.
        """
        found = valid.lookup_text("branch_id", branch_id)
        valid.page_limit(limit)

        def read(unit: Unit) -> builtins.list[BranchMessage]:
            length = unit.value(sql.LENGTH, {"branch_id": found}) or 0
            line = branching.line_of(unit, found, max(length - limit, 0))
            wanted = branching.positions(line, max(length - limit, 0), length)
            rows = unit.rows(sql.BODIES, branching.position_parameters(wanted)) if wanted else []
            branching.refuse_gaps(found, wanted, len(rows))
            return rows

        return self._viewing(read)

    def _contents(self, branch_id: str, first: int, until: int) -> builtins.list[Any]:
        """Return only the contents of the messages at positions ``first`` to ``until - 1``.

        For adapters, which read whole histories. An unreadable message is logged and left out.
        """

        def read(unit: Unit) -> builtins.list[Any]:
            found: builtins.list[Any] = []
            count = 0
            statement = sql.CONTENTS[unit.backend.sealing is not None]
            for one in reversed(branching.line_of(unit, branch_id, first)):
                given = {"start": max(first, one.start), "until": min(until, one.until)}
                rows = unit.rows_or_errors(statement, {"progression_id": one.progression_id, **given}).rows
                found.extend([row[-1] for row in unit.without_damaged(rows)])
                count += len(rows)
            branching.refuse_missing(branch_id, until - first, count)
            return found

        return self._viewing(read)

    def _pages(
        self,
        statement: Statement[RowT],
        branch_id: str,
        from_ord: int,
        limit: int,
        page_token: str | None,
    ) -> Page[RowT]:
        found = valid.lookup_text("branch_id", branch_id)
        valid.page_limit(limit)
        asked = ["branches.history", found, valid.number("from_ord", from_ord)]
        [first] = pages.key(asked, page_token, (range(2**63),)) or [from_ord]

        def read(unit: Unit) -> Page[RowT]:
            line = branching.line_of(unit, found, first)
            until = min(first + limit, branching.length_of(line))
            wanted = branching.positions(line, first, until)
            rows = (
                unit.rows_or_errors(statement, branching.position_parameters(wanted)).rows
                if wanted
                else list[RowT | CorruptData]()
            )
            branching.refuse_gaps(found, wanted, len(rows))
            items, damaged = split_damaged(rows)
            token = pages.encode_token(asked, [until]) if until < branching.length_of(line) else None
            return Page(items=items, next_page_token=token, damaged=damaged)

        return self._viewing(read)

    def _change(self, branch_id: str, changed: Callable[[Any], Row]) -> Branch:
        """Set the columns that ``changed`` computes from the stored metadata, and write an entry to the feed."""
        now = self._now()

        def change(unit: Unit) -> Branch:
            session_id = statements.head(unit, branch_id).session_id
            sessions.lock_session(unit, session_id)
            _, metadata = unit.row(sql.STATE, {"branch_id": branch_id}) or (None, None)
            changes = changed(metadata)
            if changes:
                unit.row(sql.update(frozenset(changes)), {**changes, "branch_id": branch_id})
                sessions.record_change(
                    unit, self._listeners, session_id, now, entry_parameters("branch.updated", branch_id=branch_id)
                )
            return branching.get(unit, branch_id)

        return self._writing(change, repeatable=True)


def _differing_fields(found: Branch, row: Values) -> builtins.list[str]:
    """Return the names of the given fields whose stored values differ. Fields given as None are not compared."""
    given = ("session_id", "user", "name", "progression_id", "system_msg_id", *branching.HINTS)
    fields = [name for name in given if row[name] is not None and getattr(found, name) != row[name]]
    extra = None if row["extra"] is None else codec.decode(row["extra"])
    compared = (("node_metadata", row["node_metadata"]), ("extra", extra))
    return fields + [
        name
        for name, value in compared
        if value is not None and codec.canonical(getattr(found, name)) != codec.canonical(value)
    ]
