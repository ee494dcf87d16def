"""Chat sessions of the first original system: how one with its messages is compared with what is stored, and stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.statements import bind, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import StaleVersion
from lastlight_state.maintenance import placing
from lastlight_state.maintenance.imports.pieces import STORED, Into, Look
from lastlight_state.maintenance.imports.row_pieces import Growth, Row, RowDraft, RowPiece
from lastlight_state.messaging import words
from lastlight_state.messaging.rows import MessagingMessageRow
from lastlight_state.messaging.tables import MESSAGES, SESSIONS, is_active

_s, _m = SESSIONS.c, MESSAGES.c

#: What a message says, whatever its number.
_TOLD = ("role", "content", "timestamp", "platform_message_id")

_MESSAGES = prepared(
    sa.select(*_m).where(_m.session_id == bind("session_id", _m.session_id)).order_by(_m.session_id, _m.id),
    MessagingMessageRow,
)
_METADATA = prepared(sa.select(_s.metadata).where(_s.id == bind("id", _s.id)))
_RIVAL = prepared(
    sa.select(_s.id).where(
        is_active(),
        *(_s[name] == bind(name, _s[name]) for name in ("platform", "channel_id", "user_id")),
        sa.func.coalesce(_s.thread_id, sa.literal_column("''")) == bind("thread", _s.thread_id),
        _s.id != bind("id", _s.id),
    )
)
_SAY = prepared(
    sa.insert(MESSAGES).values({column.name: bind(column.name, column) for column in _m if column.name != "id"})
)
_more = sa.bindparam("more", type_=_s.message_count.type)
_COUNT = prepared(
    sa.update(SESSIONS)
    .where(_s.id == bind("session_id", _s.id))
    .values(message_count=sa.func.coalesce(_s.message_count, 0) + _more)
)


class ChatPiece(RowPiece):
    """A chat session that was read and checked, with its messages in their order.

    Its messages keep their numbers where nobody here has them, and all come after those that are stored of it.
    """

    def __init__(self, draft: RowDraft, messages: Sequence[Row], growths: Mapping[str, Growth], into: Into) -> None:
        super().__init__(draft, growths, into)
        self._messages, self._new = messages, messages
        self._keeps_numbers = True

    def compared(self, look: Look) -> tuple[str, Counter[str], Counter[str]]:
        """Its outcome, the rows that are added, and what is noticed."""
        [session] = self.draft.given["messaging_sessions"]
        rival = {**session, "thread": session["thread_id"] or ""}
        is_rival = bool(session["active"]) and look.view.row(_RIVAL, rival) is not None
        if "metadata" in session:  # what was said here since is kept beside it
            stored = look.view.value(_METADATA, {"id": session["id"]})
            session = {**session, "metadata": {**(stored or {}), **session["metadata"]}}
        self._given = {"messaging_sessions": [retired(session) if is_rival else session]}
        found, rows, noticed = super().compared(look)
        if found not in STORED:
            return found, rows, noticed
        noticed["active_retired"] += bool(is_rival) and found == "imported"
        known = look.view.rows(_MESSAGES, {"session_id": session["id"]})
        self._new = self._not_stored(known)
        self._keeps_numbers = not any(placing.beside(look.view, {"messaging_messages": self._new}))
        return found, rows + Counter(messaging_messages=len(self._new)), noticed

    def _not_stored(self, stored: Sequence[Row]) -> Sequence[Row]:
        """The messages that follow those which are stored."""
        for here, there in zip(stored, self._messages, strict=False):
            if any(here[name] != there[name] for name in _TOLD):
                raise StaleVersion(
                    words.SESSION, self.target[1], expected=f"message {there['id']}", found=f"message {here['id']}"
                )
        return self._messages[len(stored) :]

    def store(self, view: Unit, outcome: str) -> None:
        """Add what is new of it."""
        super().store(view, outcome)
        if not self._new:
            return
        if self._keeps_numbers and self._in_order(view):
            placing.place(view, {"messaging_messages": self._new})
        else:
            view.insert(MESSAGES, _SAY, [{name: row[name] for name in ("session_id", *_TOLD)} for row in self._new])
        if outcome == "grown":
            view.change(_COUNT, {"session_id": self.target[1], "more": len(self._new)})

    def _in_order(self, view: Unit) -> bool:
        stored = view.rows(_MESSAGES, {"session_id": self.target[1]})
        return not stored or bool(stored[-1]["id"] < self._new[0]["id"])


def retired(session: Row) -> dict[str, Any]:
    """The session as one that ended because another has its place."""
    ended = {"deactivated_at": session["last_activity_at"], "deactivated_reason": "duplicate"}
    return {**session, "active": False, **ended}
