"""Imported teams: how the inboxes of one are compared with what is stored, and stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations import words
from lastlight_state.conversations.arguments import NewMessage
from lastlight_state.conversations.exchange import sending, statements as exchange
from lastlight_state.conversations.kernel import storing
from lastlight_state.conversations.tables import DELIVERIES, INBOXES, MEMBERS
from lastlight_state.db.indexes import AmongFew
from lastlight_state.db.listed import as_list, listed
from lastlight_state.db.statements import bind, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict
from lastlight_state.maintenance.imports import comparing, ledger
from lastlight_state.maintenance.imports.pieces import STORED, Into, Look

Row = dict[str, Any]

_i, _d, _m = INBOXES.c, DELIVERIES.c, MEMBERS.c
_owners = listed("owners")

#: Members of a channel, those who have left included: an import does not bring them back.
_MEMBERS = prepared(sa.select(_m.member).where(_m.channel == bind("channel", _m.channel)))
_JOIN = prepared(
    insert(MEMBERS)
    .values({name: bind(name, _m[name]) for name in ("channel", "member", "joined_at")})
    .on_conflict_do_nothing()
)
_DELIVERED = prepared(
    sa.select(_d.message_id, _d.owner, _d.ord, _d.acked_at, _d.taken_by).where(
        AmongFew(_d.message_id, sa.select(member_of(listed("ids").c.value, "id")))
    )
)
_count = sa.cast(member_of(_owners.c.value, "count"), _i.next_ord.type)
_reserved = insert(INBOXES).from_select(
    ["owner", "next_ord", "created_at"],
    sa.select(member_of(_owners.c.value, "id"), _count, bind("at", _i.created_at))
    .select_from(_owners)
    .where(sa.true()),  # without it, SQLite takes ON CONFLICT for the condition of a join
)
#: Takes the next positions of each of these inboxes, as many as it says, and begins those that are not there.
_RESERVE = prepared(
    _reserved.on_conflict_do_update(
        index_elements=[_i.owner], set_={"next_ord": _i.next_ord + _reserved.excluded.next_ord}
    ).returning(_i.owner, _i.next_ord)
)
#: Not what a reader has taken here: it is the reader's to acknowledge.
_ACK = prepared(
    sa.update(DELIVERIES)
    .where(
        _d.owner == bind("owner", _d.owner),
        _d.ord == bind("ord", _d.ord),
        _d.acked_at.is_(None),
        _d.taken_by.is_(None),
    )
    .values(acked_at=bind("acked_at", _d.acked_at), acked_by=bind("acked_by", _d.acked_by))
)


@dataclass(frozen=True)
class Letter:
    """A message, the inboxes that it is in, and when it was read there."""

    message: NewMessage
    owners: tuple[str, ...]
    read: Mapping[str, datetime]


@dataclass(frozen=True)
class Team:
    """A team that was read. ``members`` are the names of their inboxes."""

    id: str
    members: tuple[str, ...]
    began: datetime
    letters: tuple[Letter, ...]
    digest: str
    noticed: Counter[str]


class TeamPiece:
    """A team that was read and checked."""

    def __init__(self, team: Team, into: Into) -> None:
        self._team, self._into = team, into
        self.digest = team.digest
        self.target = ("team", team.id)
        drafts = [storing.draft(f"messages[{i}]", one.message, into.now) for i, one in enumerate(team.letters)]
        self._bodies = {body["id"]: body for body in drafts}
        self._joining: list[str] = []
        self._sent: list[Row] = []
        self._read: list[Row] = []

    def compared(self, look: Look) -> tuple[str, Counter[str], Counter[str]]:
        """Its outcome, the rows that are added, and what is noticed."""
        team, is_same = self._team, ledger.known_target(look) == self._team.id
        stored = {row["member"] for row in look.view.rows(_MEMBERS, {"channel": team.id})}
        if not is_same and (stored or team.id in look.planned["teams"]):
            raise AlreadyExists("team", team.id, problem="is stored, and was not imported from such a source")
        found = ledger.outcome(look, self, is_stored=is_same)
        if found not in STORED:
            return found, Counter(), Counter()
        look.planned["teams"][team.id] = team.digest
        new = comparing.new_messages(look.view, self._bodies, look.planned["messages"])
        self._joining = [one for one in team.members if one not in stored]
        self._deliveries(self._there(look.view, new))
        rows = Counter(
            messages=len(new.keys() - look.planned["messages"].keys()),
            exchange_members=len(self._joining),
            exchange_deliveries=len(self._sent),
        )
        look.planned["messages"].update(new)
        return found, rows, Counter(team.noticed)

    def store(self, view: Unit, outcome: str) -> None:
        """Add what is new of it, and acknowledge what was read."""
        team, known = self._team, self._into.known_classes
        bodies = list(self._bodies.values())
        for at in range(0, len(bodies), words.BATCH):
            if storing.put_all(view, known, bodies[at : at + words.BATCH], team.began)[1]:
                # stored by somebody else after the look: the unit begins again, and is refused
                raise Conflict(f"a message of team {team.id!r:.80} was changed meanwhile", code="unique")
        for one in self._joining:
            view.change(_JOIN, {"channel": team.id, "member": one, "joined_at": team.began})
        if self._sent:
            view.insert(DELIVERIES, exchange.DELIVER, self._placed(view))
        for row in self._read:
            view.change(_ACK, row)

    def _there(self, view: Unit, new: Mapping[str, Any]) -> dict[tuple[str, str], Row]:
        """The stored deliveries of these messages, by owner and message."""
        found: dict[tuple[str, str], Row] = {}
        ids = [one for one in self._bodies if one not in new]
        for at in range(0, len(ids), words.BATCH):
            rows = view.rows(_DELIVERED, {"ids": as_list([{"id": one} for one in ids[at : at + words.BATCH]])})
            found.update(((row["owner"], row["message_id"]), row) for row in rows)
        return found

    def _deliveries(self, there: Mapping[tuple[str, str], Row]) -> None:
        """Those that are to be made, in the order of the file, and those that are to be acknowledged."""
        self._sent, self._read = [], []
        for letter in self._team.letters:
            body = self._bodies[letter.message.id]
            for owner in letter.owners:
                stored, read = there.get((owner, body["id"])), letter.read.get(owner)
                acked = {"acked_at": read, "acked_by": None if read is None else owner}
                if stored is None:
                    self._sent.append({**sending.delivery(owner, 0, body, body["created_at"]), **acked})
                elif read is not None and stored["acked_at"] is None:
                    self._read.append({"owner": owner, "ord": stored["ord"], **acked})

    def _placed(self, view: Unit) -> list[Row]:
        """The new deliveries at the ends of their inboxes, which are locked in the order of their owners."""
        counts = Counter(row["owner"] for row in self._sent)
        owners = [{"id": one, "count": counts[one]} for one in sending.ordered(counts)]
        ends = view.rows(_RESERVE, {"owners": as_list(owners), "at": self._team.began})
        free = {row["owner"]: row["next_ord"] - counts[row["owner"]] for row in ends}
        placed = []
        for row in self._sent:
            placed.append({**row, "ord": free[row["owner"]]})
            free[row["owner"]] += 1
        return placed
