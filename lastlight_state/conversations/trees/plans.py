"""A tree as its caller gives it, checked and as statements name it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lastlight_state.conversations import checks, words
from lastlight_state.conversations.arguments import BranchTree, NewMessage, SessionTree
from lastlight_state.conversations.branches import making
from lastlight_state.conversations.kernel import branching, storing
from lastlight_state.conversations.kernel.branching import BranchDraft
from lastlight_state.conversations.sessions import checks as session_checks
from lastlight_state.conversations.sessions.checks import SessionDraft
from lastlight_state.conversations.shown import MessageDraft
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue


@dataclass(frozen=True)
class BranchPlan:
    """A branch: its row, the id of its system message, its whole order, and the messages that it brings."""

    row: BranchDraft
    origin: tuple[str, int] | None
    system: str | None
    order: list[str]
    bodies: dict[str, MessageDraft]


@dataclass(frozen=True)
class Plan:
    """A session, and its branches, parents before their forks."""

    session: SessionDraft
    branches: list[BranchPlan] = field(default_factory=list)

    def parts(self, most: int) -> Iterator[list[BranchPlan]]:
        """Return what is saved at once: all, or each branch by itself where there are more messages than ``most``."""
        if sum(len(branch.order) for branch in self.branches) <= most:
            yield self.branches
        else:
            yield from ([branch] for branch in self.branches)


def plan_of(tree: Any, now: datetime) -> Plan:
    """The tree, checked. Raises `InvalidValue` with the place of what is wrong."""
    given = valid.group("tree", tree, SessionTree)
    session = session_checks.row(given.session, now)
    if given.session.id is None:
        raise InvalidValue("tree.session.id", "must be given")
    branches = checks.batch("tree.branches", given.branches, words.TREE_BRANCHES)
    drafted: dict[str, tuple[NewMessage, MessageDraft]] = {}
    plans: dict[str, BranchPlan] = {}
    for i, branch in enumerate(branches):
        one = _branch(f"tree.branches[{i}]", branch, session["id"], drafted, now)
        if plans.setdefault(one.row["id"], one) is not one:
            raise InvalidValue(f"tree.branches[{i}].branch.id", "stands twice in one tree")
    total = sum(len(one.order) for one in plans.values())
    if total > words.TREE:
        raise InvalidValue("tree", f"{total} messages, more than the limit of {words.TREE}", limit=words.TREE)
    return Plan(session, _parents_first(plans))


def _branch(
    where: str, branch: Any, session_id: str, drafted: dict[str, tuple[NewMessage, MessageDraft]], now: datetime
) -> BranchPlan:
    given = valid.group(where, branch, BranchTree)
    row, _ = making.row_of(session_id, given.branch, now, f"{where}.branch")
    if given.branch.id is None:
        raise InvalidValue(f"{where}.branch.id", "must be given")
    messages = checks.batch(f"{where}.messages", given.messages, words.TREE)
    said = [_draft(f"{where}.messages[{i}]", one, drafted, now) for i, one in enumerate(messages)]
    bodies = {one["id"]: one for one in said}
    system = given.branch.system
    if isinstance(system, NewMessage):
        first = _draft(f"{where}.branch.system", system, drafted, now)
        bodies[first["id"]] = first
    origin = branching.origin_in(f"{where}.branch.node_metadata", given.branch.node_metadata)
    return BranchPlan(row, origin, row["system_msg_id"], [one["id"] for one in said], bodies)


def _draft(where: str, new: Any, drafted: dict[str, tuple[NewMessage, MessageDraft]], now: datetime) -> MessageDraft:
    """Return the parameters of a message. The same one may stand in several places."""
    seen = drafted.get(new.id) if isinstance(new, NewMessage) and isinstance(new.id, str) else None
    if seen is not None and seen[0] is new:
        return seen[1]
    row = storing.draft(where, new, now)
    if seen is not None and seen[1] != row:
        raise InvalidValue(where, f"another message of the id {row['id']!r:.80} stands in the tree")
    return drafted.setdefault(row["id"], (new, row))[1]


def _parents_first(plans: dict[str, BranchPlan]) -> list[BranchPlan]:
    found: dict[str, BranchPlan] = {}
    for one in plans.values():
        line: list[BranchPlan] = []
        at: BranchPlan | None = one
        while at is not None and at.row["id"] not in found:
            if len(line) > len(plans):
                raise InvalidValue("tree.branches", "must not be forks of one another in a circle")
            line.append(at)
            at = plans.get(at.origin[0]) if at.origin else None
        found.update((plan.row["id"], plan) for plan in reversed(line))
    return list(found.values())
