"""The feed of a session: each change of it adds an entry, whose number is taken under the lock of its row.

So numbers have no gaps and are in the order of the commits: who has read number n finds what is committed next at n+1.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.conversations import words
from lastlight_state.conversations.records import Change
from lastlight_state.conversations.tables import CHANGES
from lastlight_state.db.chains import Chain, from_head, inserted
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.statements import Values, bind
from lastlight_state.db.unit import Unit

Row = dict[str, Any]

#: What those are told who subscribe to changes.
TOPIC = "conversations.changes"

_c = CHANGES.c
_ABOUT = ("branch_id", "progression_id", "message_id", "ord", "count")


def fed(head: Any) -> Chain:
    """The chain of ``head``, which changes a session and returns its id and ``change_seq``, and of the entry."""
    told = ("kind", *_ABOUT, "details")
    values: dict[str, sa.ColumnElement[Any]] = {name: bind(f"told_{name}", _c[name]) for name in told}
    sessions = {"session_id": from_head("id"), "seq": from_head("change_seq")}
    return Chain(head, into=CHANGES, values={**sessions, **values, "at": bind("at", _c.at)}, returning=tuple(_c))


def news(kind: words.ChangeKind, *, details: dict[str, Any] | None = None, **about: Any) -> Row:
    """Return what an entry says: the parameters of `fed`."""
    told = {"kind": kind, **dict.fromkeys(_ABOUT), **about}
    text = None if details is None else codec.encode("details", details, max_bytes=words.DETAILS)
    return {**{f"told_{name}": value for name, value in told.items()}, "told_details": text}


def feed(unit: Unit, listeners: Listeners, change: Chain, values: Values, told: Row) -> Row | None:
    """Run the chain; what its head returned. Those who subscribed are told after the commit."""
    head = unit.chain(change, {**values, **told})
    if head is None:
        return None
    entry = Change.of(inserted(head))
    unit.after_commit(lambda: listeners.notify(TOPIC, entry))
    return head
