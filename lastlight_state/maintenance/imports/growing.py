"""Compares a session whose ids are names with what is stored: it only grows, and is never another source's."""

from __future__ import annotations

from collections.abc import Mapping

from lastlight_state.conversations.kernel import branching
from lastlight_state.conversations.projections import MessageDraft, WholeMessageRow, WholeSessionRow
from lastlight_state.conversations.trees.plans import BranchPlan, Plan
from lastlight_state.db.rows.writes import as_list
from lastlight_state.maintenance.imports import comparing, drafts as sql, pieces
from lastlight_state.maintenance.imports.comparing import SessionDifference
from lastlight_state.maintenance.imports.drafts import ImportedVersions
from lastlight_state.maintenance.imports.pieces import Piece, UnitLookup

# A file of the source has numbers of its own, so two files have the same names for different things, and a file that
# was begun anew has them again. A session is that of the source if it began at the same time, if both have a message,
# and if all that both have are equal.


def compared(
    look: UnitLookup, piece: Piece, plan: Plan, stored: WholeSessionRow, bodies: Mapping[str, MessageDraft]
) -> SessionDifference:
    """Return what a session of the same source has more than the stored one.

    Raises `AlreadyExists` for a session of another source, and for one that went on here and in its source.
    """
    found, [branch] = SessionDifference(), plan.branches
    if stored["created_at"] != plan.session["created_at"]:
        pieces.refuse_other(piece, "is stored, and began at another time: a scope keeps both")

    def is_same(row: WholeMessageRow, _: MessageDraft) -> bool:
        return row["revision"] > 0  # changed here: it stays, and is named

    order = branching.whole_order(look.view, branch.row["id"])
    new = _following(look, piece, branch, order)
    removed = set(branch.order) - {*order, *new}
    comparing.messages(look, found, {one: body for one, body in bodies.items() if one not in removed}, is_same)
    found.orders[branch.row["id"]] = [*order, *new]
    found.kept_messages |= removed
    found.rows.update(messages=len(new), progression_links=len(new))
    return found


def _following(look: UnitLookup, piece: Piece, branch: BranchPlan, stored: list[str]) -> list[str]:
    """Return the messages of the source that come after those which are stored."""
    both = set(stored) & set(branch.order)
    if stored and branch.order and not both:
        pieces.refuse_other(piece, "is stored with other messages: a scope keeps both")
    last = max((at for at, one in enumerate(branch.order) if one in both), default=-1)
    here = max((at for at, one in enumerate(stored) if one in both), default=-1)
    if stored[here + 1 :] and not pieces.is_from_here(look):
        pieces.refuse_other(piece, "is stored with other messages: a scope keeps both")
    new = branch.order[last + 1 :]
    base = ImportedVersions.of(pieces.known(look))
    heads = look.view.rows(sql.HEADS, {"ids": as_list([{"id": branch.row["id"]}])})  # none for a branch deleted here
    if new and not any(comparing.is_as_left(look.view, head["progression_id"], base) for head in heads):
        pieces.refuse_other(piece, "went on here, and in its source")
    return new
