"""Forks and ancestors of branches. A fork copies nothing: it costs the same for every length and depth of history."""

from __future__ import annotations

import builtins
from typing import Any

from lastlight_state.conversations import checks
from lastlight_state.conversations.records import Ancestor, Branch, BranchSummary
from lastlight_state.conversations.shared import branching, branching as lines
from lastlight_state.conversations.tables import BRANCHES
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import bind
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.ids import new_id

_LIMITS = limits_of(BRANCHES)

_b = BRANCHES.c

FORKS = Listing(
    "branches.forks",
    branching.SUMMARY,
    row=BranchSummary,
    order=(_b.created_at, _b.id),
    filters={"parent_branch_id": _b.parent_branch_id == bind("parent_branch_id", _b.parent_branch_id)},
    descending=False,
)


class Lineage(Repository):
    """``store.conversations.lineage``"""

    def fork(
        self,
        parent_branch_id: str,
        *,
        at: int | None = None,
        branch_id: str | None = None,
        name: str | None = None,
        session_id: str | None = None,
        node_metadata: dict[str, Any] | None = None,
    ) -> Branch:
        """Create a branch that inherits the first ``at`` positions of the parent's history (None: all current ones).

        Later changes of the parent do not appear in the fork. The fork has the parent's system message, and is in the
        parent's session unless another is named. Raises `NotFound`, `AlreadyExists`, and `InvalidValue` for a position
        past the parent's length or for more than 1,000 ancestors.
        """
        now = self._now()
        checks.encode_object("node_metadata", node_metadata, _LIMITS.node_metadata)
        given = branching.origin_in("node_metadata", node_metadata)
        branching.refuse_other_origin("node_metadata", given, parent_branch_id, at)
        row: branching.ForkDraft = {
            "id": new_id() if branch_id is None else valid.identifier("branch_id", branch_id, _LIMITS.id),
            "created_at": now,
            "created_at_unix": None,
            "user": None,
            "name": checks.name("name", name, _LIMITS.name),
            "session_id": checks.name("session_id", session_id, _LIMITS.session_id),
            "progression_id": None,
            "system_msg_id": None,
            "parent_branch_id": valid.lookup_text("parent_branch_id", parent_branch_id),
            "forked_at_ord": None,
            "fork_depth": 0,
            "status": None,
            "started_at": None,
            "ended_at": None,
            "node_metadata": node_metadata,
            "extra": None,
            **branching.hints(node_metadata),
        }
        start = None if at is None else valid.number("at", at)
        return self._writing(lambda unit: branching.fork(unit, self._listeners, row, at=start, where="at", now=now))

    def ancestors(self, branch_id: str) -> builtins.list[Ancestor]:
        """Return a branch's ancestors from parent to root, with the positions that each contributes to the history.

        Raises `NotFound`, and `CorruptData` if the ancestors form a cycle.
        """
        found = valid.lookup_text("branch_id", branch_id)
        line = self._reading(lambda unit: lines.line_of(unit, found))
        return [
            Ancestor.of({"branch_id": one.branch_id, "from_ord": min(one.start, one.until), "until_ord": one.until})
            for one in line[1:]
        ]

    def forks(self, branch_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[BranchSummary]:
        """Return a page of the direct forks of a branch, the oldest first."""
        given = {"parent_branch_id": valid.lookup_text("branch_id", branch_id)}
        return self._page(FORKS, given, limit, page_token)
