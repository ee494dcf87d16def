"""What an import would add of a session, or why it is refused. Reads only."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lastlight_state import codec
from lastlight_state.conversations import words
from lastlight_state.conversations.kernel import lineage, storing
from lastlight_state.conversations.trees.plans import Plan
from lastlight_state.db.listed import as_list
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, StaleVersion
from lastlight_state.maintenance.imports import statements as sql
from lastlight_state.maintenance.imports.pieces import Look

Row = dict[str, Any]

#: By which two messages of one source are compared.
_TOLD = ("sender", "recipient", "channel", "role", "lion_class", "node_metadata", "extra", "content")


def added(look: Look, plan: Plan, bodies: dict[str, Row]) -> Counter[str]:
    """The rows that the unit would add, by table.

    Raises `AlreadyExists` for a branch of another session and for a message that is stored otherwise, and
    `StaleVersion` for an order that does not continue the stored one.
    """
    unit, branches, messages = look.view, look.planned["branches"], look.planned["messages"]
    ids = as_list([{"id": branch.row["id"]} for branch in plan.branches])
    heads = {row["id"]: row["session_id"] for row in unit.rows(sql.HEADS, {"ids": ids})}
    digests = new_messages(unit, bodies, messages)
    found = Counter(messages=len(digests.keys() - messages.keys()))
    session_id = plan.session["id"]
    for branch in plan.branches:
        branch_id = branch.row["id"]
        owner = heads.get(branch_id) or branches.get(branch_id, session_id)
        if owner != session_id:
            raise AlreadyExists(words.BRANCH, branch_id, problem=f"belongs to session {owner!r:.80}", session_id=owner)
        stored = lineage.whole_order(unit, branch_id) if branch_id in heads else []
        if branch.order[: len(stored)] != stored:
            raise StaleVersion(words.BRANCH, branch_id, expected=len(branch.order), found=len(stored))
        found["branches"] += branch_id not in heads
        found["progression_links"] += len(branch.order) - len(stored)
    messages.update(digests)
    branches.update((branch.row["id"], session_id) for branch in plan.branches)
    return found


def new_messages(unit: Unit, bodies: dict[str, Row], planned: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """The messages that are not stored yet, by id, each with the digests of its fields."""
    new: dict[str, tuple[str, ...]] = {}
    for at in range(0, len(bodies), words.BATCH):
        some = list(bodies)[at : at + words.BATCH]
        rows = unit.rows(sql.MESSAGES_THERE, {"ids": as_list([{"id": one} for one in some])})
        stored = {row["id"]: row for row in rows}
        for one in some:
            if one in stored:
                _refuse(one, storing.differs(stored[one], bodies[one]))
            else:
                new[one] = tuple(codec.digest(bodies[one][name]) for name in _TOLD)
                earlier = zip(_TOLD, planned.get(one, new[one]), new[one], strict=True)
                _refuse(one, [name for name, first, second in earlier if first != second])
    return new


def _refuse(message_id: str, differing: list[str]) -> None:
    if differing:
        problem = f"is stored already with another {', '.join(differing)}"
        raise AlreadyExists(words.MESSAGE, message_id, problem=problem, fields=tuple(differing))
