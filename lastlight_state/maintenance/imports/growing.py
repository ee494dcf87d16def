"""Compares a session whose ids consist of names with the stored one. Such a session only grows, and has one source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.clock import iso_text
from lastlight_state.conversations.drafts import MessageDraft
from lastlight_state.conversations.records import ConversationSession, Message
from lastlight_state.conversations.shared import branching
from lastlight_state.conversations.trees.plans import BranchPlan, Plan
from lastlight_state.db.rows.writes import as_list
from lastlight_state.maintenance.imports import brought, comparing, drafts as sql, origins, pieces
from lastlight_state.maintenance.imports.comparing import SessionDifference
from lastlight_state.maintenance.imports.drafts import GaveLater, ImportedVersions
from lastlight_state.maintenance.imports.pieces import ImportUnit, UnitLookup

# A source file numbers its messages itself. So two files can have the same ids for different messages, and so can a
# file that was begun anew. A session belongs to the source if it began at the same time, if both have a message in
# common, and if all common messages are equal. If the source took back every message, the session goes on with higher
# numbers than the last import had: a file gives no number twice, and a file that was begun anew gave the lower numbers
# later. In this case it must be the file of the last import.

_BESIDE = ": a scope keeps both"
_ELSE = f"is stored with other messages{_BESIDE}"
_ANEW = f"is stored, and began at another time{_BESIDE}"
_BOTH = "went on here, and in its source: with a scope, that of the source stands beside it"


@dataclass(frozen=True)
class LastImport:
    """A session as its last import recorded it in the ledger.

    ``order`` is the length and digest of the order that the source had; ``began`` is the session's beginning.
    ``number`` and ``at`` belong to the last message that the source has had at any import.
    """

    order: Sequence[Any]
    began: str
    number: int
    at: str

    @classmethod
    def of(cls, known: Sequence[Any] | None, stored: ConversationSession) -> LastImport:
        """Return the ledger's record of the last import. Without one, make it from the stored session."""
        return cls(known[:2], *known[2:5]) if known else cls((0, ""), iso_text(stored.created_at), -1, "")


def ledger_record(plan: Plan, known: Sequence[Any] | None) -> Sequence[Any]:
    """Return the session's new record for the ledger. ``known`` is the previous record."""
    [branch] = plan.branches
    number, at = known[3:5] if known else (-1, "")
    if branch.order and _number(branch, branch.order[-1]) >= number:
        number, at = _number(branch, branch.order[-1]), iso_text(branch.bodies[branch.order[-1]]["created_at"])
    return [*brought.order(_message_digests(branch))[:2], iso_text(plan.session["created_at"]), number, at]


def compare_session(
    look: UnitLookup,
    piece: ImportUnit,
    plan: Plan,
    stored: ConversationSession,
    bodies: Mapping[str, MessageDraft],
    gave_later: GaveLater,
) -> SessionDifference:
    """Return what the stored session lacks of the session in the source. The source must be that of the last import.

    Raises `AlreadyExists` for a session of another source, and for a session that changed both in the store and in its
    source.
    """
    found, [branch] = SessionDifference(), plan.branches
    branch_id, base = branch.row["id"], ImportedVersions.of(pieces.known_digest(look))
    last = LastImport.of(base.source.get(branch_id), stored)
    is_here = bool(look.view.rows(sql.HEADS, {"ids": as_list([{"id": branch_id}])}))
    order = branching.whole_order(look.view, branch_id) if is_here else []
    goes_on = bool(last.at) and not gave_later(last.number, datetime.fromisoformat(last.at))
    _refuse_other(look, piece, plan, last, order, may_go_on=goes_on)
    if not is_here and branch_id in base.source and not look.revives:  # deleted here
        found.gone, found.kept_messages = {branch_id}, set(bodies)
        return found
    new = _new_ids(look, piece, branch, order, last)
    removed = set(branch.order) - {*order, *new}

    def is_same(row: Message, _: MessageDraft) -> bool:
        return row.revision > 0  # revised here: the row stays, and the report names it

    absent = comparing.messages(look, found, {one: body for one, body in bodies.items() if one not in removed}, is_same)
    found.orders[branch_id] = branch.order if look.revives and set(order) <= set(branch.order) else [*order, *new]
    found.kept_messages |= removed
    found.removed_messages = removed
    found.rows.update(messages=len(absent), progression_links=len(new), branches=not is_here)
    return found


def _refuse_other(
    look: UnitLookup, piece: ImportUnit, plan: Plan, last: LastImport, stored: Sequence[str], *, may_go_on: bool
) -> None:
    """Raise `AlreadyExists` if the session is not the one of the last import."""
    [branch], began = plan.branches, iso_text(plan.session["created_at"])
    goes_on = (
        may_go_on
        and all(_number(branch, one) > last.number for one in branch.order)
        and (began == last.began or began >= last.at)
        and origins.is_of_file(look)
    )
    if goes_on:
        return
    if branch.order and not last.order[0] and set(stored).isdisjoint(branch.order) and not origins.is_of_file(look):
        pieces.refuse_other(piece, f"had no messages at its last import, and {origins.came_from(look)}{_BESIDE}")
    if began != last.began:
        pieces.refuse_other(piece, _ANEW)
    is_told = not last.order[0] or bool(brought.leading_ids(_message_digests(branch), last.order))
    if branch.order and set(stored).isdisjoint(branch.order) and (stored or not is_told):
        pieces.refuse_other(piece, _ELSE)


def _new_ids(
    look: UnitLookup, piece: ImportUnit, branch: BranchPlan, stored: Sequence[str], last: LastImport
) -> Sequence[str]:
    """Return the ids of the source's messages to add.

    If the session is revived, messages removed in the store are included.
    """
    both = set(stored) & set(branch.order)
    here = max((at for at, one in enumerate(stored) if one in both), default=-1)
    if stored[here + 1 :] and not origins.is_from_here(look):
        pieces.refuse_other(piece, _ELSE)
    end = last.number if last.at else max((_number(branch, one) for one in stored), default=-1)
    new = [one for one in branch.order if one not in both and (look.revives or _number(branch, one) > end)]
    if new and not all(0 <= _number(branch, one) <= end for one in stored):
        pieces.refuse_other(piece, _BOTH)
    return new


def _number(branch: BranchPlan, message_id: str) -> int:
    """Return the number of a message in its source, or -1 for a message that was appended in the store."""
    name, _, number = message_id.rpartition("/")
    return int(number) if name == branch.row["id"] and number.isascii() and number.isdecimal() else -1


def _message_digests(branch: BranchPlan) -> list[str]:
    """Return the ids of a branch's messages, each with a digest of its content."""
    return [f"{one} {codec.digest(branch.bodies[one]['content'])}" for one in branch.order]
