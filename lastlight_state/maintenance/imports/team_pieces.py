"""Imported teams: comparing a team's inboxes with the stored ones, and storing them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations import words
from lastlight_state.conversations.arguments import NewMessage
from lastlight_state.conversations.drafts import MessageDraft
from lastlight_state.conversations.exchange import statements, statements as exchange
from lastlight_state.conversations.records import Message
from lastlight_state.conversations.shared import storing
from lastlight_state.conversations.tables import DELIVERIES, INBOXES, MEMBERS
from lastlight_state.db.rows.statements import Row, Statement, bind, statement_of
from lastlight_state.db.rows.writes import as_list, elements_table
from lastlight_state.db.schema.indexes import AmongFew
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists
from lastlight_state.maintenance.imports import brought, comparing, origins, pieces
from lastlight_state.maintenance.imports.pieces import STORED, ImportTarget, UnitLookup


class StoredDelivery(NamedTuple):
    """A stored delivery, with the owner of its inbox."""

    message_id: str
    owner: str
    ord: int
    acked_at: datetime | None
    taken_by: str | None


_i, _d, _m = INBOXES.c, DELIVERIES.c, MEMBERS.c
_owners = elements_table("owners")

#: Finds members of a channel, also those who have left: an import does not bring them back.
_MEMBERS = statement_of(sa.select(_m.member).where(_m.channel == bind("channel", _m.channel)))
_JOIN = statement_of(
    insert(MEMBERS)
    .values({name: bind(name, _m[name]) for name in ("channel", "member", "joined_at")})
    .on_conflict_do_nothing()
)
_DELIVERED = statement_of(
    sa.select(_d.message_id, _d.owner, _d.ord, _d.acked_at, _d.taken_by).where(
        AmongFew(_d.message_id, sa.select(member_of(elements_table("ids").c.value, "id")))
    ),
    StoredDelivery,
)
_INBOXES = statement_of(
    sa.select(_i.owner).where(AmongFew(_i.owner, sa.select(member_of(elements_table("ids").c.value, "id"))))
)
_count = sa.cast(member_of(_owners.c.value, "count"), _i.next_ord.type)
_reserved = insert(INBOXES).from_select(
    ["owner", "next_ord", "created_at"],
    sa.select(member_of(_owners.c.value, "id"), _count, bind("at", _i.created_at))
    .select_from(_owners)
    .where(sa.true()),  # otherwise SQLite reads ON CONFLICT as the condition of a join
)
#: Reserves the next positions of each of these inboxes, as many as its ``count``. Creates missing inboxes.
_RESERVE: Statement[tuple[str, int]] = statement_of(
    _reserved.on_conflict_do_update(
        index_elements=[_i.owner], set_={"next_ord": _i.next_ord + _reserved.excluded.next_ord}
    ).returning(_i.owner, _i.next_ord),
    tuple,
)
#: Acknowledges a delivery, unless a reader has taken it here: then the reader is to acknowledge it.
_ACK = statement_of(
    sa.update(DELIVERIES)
    .where(
        _d.owner == bind("owner", _d.owner),
        _d.ord == bind("ord", _d.ord),
        _d.acked_at.is_(None),
        _d.taken_by.is_(None),
    )
    .values(acked_at=bind("acked_at", _d.acked_at), acked_by=bind("acked_by", _d.acked_by))
)


#: The kind of source whose teams may have a scope.
_WITH_SCOPES = "lionagi-teams"


@dataclass(frozen=True)
class Letter:
    """A message, its inboxes, the times at which it was read in them, and values of the source that never change."""

    message: NewMessage
    owners: tuple[str, ...]
    read: Mapping[str, datetime]
    said: str


@dataclass(frozen=True)
class Team:
    """A team that was read. ``members`` are the names of its inboxes. ``seed`` has the team's id and creation time."""

    id: str
    members: tuple[str, ...]
    began: datetime
    letters: tuple[Letter, ...]
    digest: str
    noticed: Counter[str]
    seed: str


class TeamPiece:
    """A team that was read and checked.

    Its line in the ledger has the team's digest, the digest of its messages, and its inboxes. The digest of messages
    shows the next import which messages this one brought in. A file that does not begin with these messages is another
    file, or was created again. Parts that the line has and the store lacks were removed in the store, and are not
    imported again.
    """

    def __init__(self, team: Team, into: ImportTarget, is_there: Callable[[str], bool]) -> None:
        self._team, self._into, self._is_there = team, into, is_there
        self._marks = list(_marks(team.seed, team.letters))
        self._owners = dict.fromkeys([*team.members, *(one for letter in team.letters for one in letter.owners)])
        self.digest = self._line(())
        self.target = ("team", team.id)
        drafts = [storing.draft(f"messages[{i}]", one.message, into.now) for i, one in enumerate(team.letters)]
        self._bodies = {body["id"]: body for body in drafts}
        self._removed: AbstractSet[str] = frozenset()  # messages that were imported before and were removed here
        self._gone: AbstractSet[str] = frozenset()  # names of inboxes that were removed here
        self._joining: list[str] = []
        self._sent: list[Row] = []
        self._read: list[Row] = []
        self._found = comparing.SessionDifference()
        self._look: UnitLookup
        self._takes_scope = False

    @property
    def kept_differences(self) -> Sequence[str]:
        """Return the messages that were changed in the store, too."""
        return self._found.kept

    def compare(self, look: UnitLookup) -> tuple[str, Counter[str], Counter[str]]:
        """Return the outcome of the unit, the number of rows to add by table, and counts for ``noticed``."""
        team, self._takes_scope = self._team, look.kind.partition(" ")[0] == _WITH_SCOPES
        look = self._earlier_lookup(look)
        is_same = pieces.known_target(look) == team.id
        if is_same and not look.revives and self._is_earlier(look):
            return "unchanged", Counter(), Counter()
        if is_same:
            self._refuse_other(look)
        stored = set(look.view.values(_MEMBERS, {"channel": team.id}))
        if not is_same and (stored or team.id in look.planned["teams"] or pieces.keys(look, self)):
            raise AlreadyExists("team", team.id, problem="was stored already, and came from elsewhere")
        found = pieces.outcome(look, self, is_stored=is_same)
        if found not in STORED:
            return found, Counter(), Counter()
        look.planned["teams"][team.id] = team.digest
        self.digest = self._line(brought.told_by(pieces.known_digest(look)).get("owners", ()) if is_same else ())
        noted = pieces.known_digest(look) if is_same and not look.revives else None
        self._gone = self._removed_inboxes(look.view, noted, stored)
        rows, left = self._rows_to_add(look, stored, self._imported_before(noted))
        if found == "grown" and pieces.is_same(look, self) and not rows.total():
            return "unchanged", Counter(), Counter()  # nothing of the team was removed here
        noticed = Counter(removed_here=left, conflicts=len(self._found.kept))
        return found, rows, team.noticed + noticed

    def _line(self, before: Collection[str]) -> str:
        """Return the team's line for the ledger.

        It includes the inboxes ``before``, which the source may have again.
        """
        told = {"owners": sorted({*before, *map(brought.mark, self._owners)})}
        return brought.line(f"{self._team.digest} {self._marks[-1]}", told)

    def _earlier_lookup(self, look: UnitLookup) -> UnitLookup:
        """Return the lookup under the name that the team had at its last import.

        That name differs if the team's file was renamed, or if the team has moved from a file into a database. A copy
        next to the old file is another team.
        """
        found = pieces.keys(look, self)
        others = [one for one in found if one != (look.kind, look.key)]
        files = (key for kind, key in others if kind == look.kind)
        if any(self._is_there(one.removesuffix(f"/{self.target[1]}")) for one in files):
            return look
        kind, key = found[0] if others else (look.kind, look.key)
        return replace(look, kind=kind, key=key)

    def _removed_inboxes(self, view: Unit, noted: str | None, members: AbstractSet[str]) -> frozenset[str]:
        """Return the inboxes of the last import that the store has no more, neither as inboxes nor as members."""
        known = set(brought.told_by(noted).get("owners", ()))
        named = [one for one in self._owners if one not in members and brought.mark(one) in known]
        here = view.values(_INBOXES, {"ids": as_list([{"id": one} for one in named])}) if named else []
        return frozenset(named) - {*here}

    def _rows_to_add(
        self, look: UnitLookup, members: AbstractSet[str], before: AbstractSet[str]
    ) -> tuple[Counter[str], int]:
        """Return the rows to add, and how many removed deliveries of messages imported ``before`` are not added."""
        planned = look.planned["messages"]
        self._found, self._look = comparing.SessionDifference(), look
        absent = comparing.messages(look, self._found, self._bodies, _is_changed_here)
        unread = {body for body, owners in self._letters() if owners and self._gone >= set(owners)}
        self._removed = (before | unread) & absent.keys()
        new = {one: told for one, told in absent.items() if one not in self._removed}
        self._joining = [one for one in self._team.members if one not in members and one not in self._gone]
        left = self._deliveries(self._there(look.view, absent), before)
        rows = Counter(
            messages=len(new.keys() - planned.keys()),
            exchange_members=len(self._joining),
            exchange_deliveries=len(self._sent),
        )
        planned.update(new)
        return rows, left

    def store(self, view: Unit, outcome: str) -> None:
        """Add the new rows of the team, and acknowledge the deliveries that the source states as read."""
        team, known = self._team, self._into.known_classes
        left = self._removed | self._found.kept_messages
        bodies = [body for one, body in self._bodies.items() if one not in left]
        for at in range(0, len(bodies), words.BATCH):
            storing.put_all(view, known, bodies[at : at + words.BATCH], self._into.now, seen=self._found.revised)
        for one, seen in self._found.revised.items():
            pieces.note_revision(self._look, one, seen + 1, self._into.now)
        for one in self._joining:
            view.change(_JOIN, {"channel": team.id, "member": one, "joined_at": team.began})
        if self._sent:
            view.insert(DELIVERIES, exchange.DELIVER, self._place_deliveries(view))
        for row in self._read:
            view.change(_ACK, row)

    def _imported_before(self, digest: str | None) -> frozenset[str]:
        """Return the ids of the messages of the last import, or none if the team was never imported."""
        count = 0 if digest is None else self._marks.index(_mark_in(digest))
        return frozenset(one.message.id for one in self._team.letters[:count])

    def _is_earlier(self, look: UnitLookup) -> bool:
        """True if the source has other messages than the team's last import, and all of them are stored.

        Then the source is an older copy, or the old file of a team that has moved into a database.
        """
        if _mark_in(pieces.known_digest(look) or "") in self._marks:
            return False
        with suppress(AlreadyExists):
            return not comparing.messages(look, comparing.SessionDifference(), self._bodies, _is_changed_here)
        return False

    def _refuse_other(self, look: UnitLookup) -> None:
        mark, both = _mark_in(pieces.known_digest(look) or ""), ": a scope keeps both" if self._takes_scope else ""
        if mark not in self._marks:
            pieces.refuse_other(self, f"is stored with other messages than those with which this source begins{both}")
        if mark == self._marks[0] and not pieces.is_same(look, self) and not origins.is_of_source(look):
            pieces.refuse_other(self, f"is stored, was empty at its last import, and {origins.came_from(look)}{both}")

    def _there(self, view: Unit, new: Mapping[str, Any]) -> dict[tuple[str, str], StoredDelivery]:
        """Return the stored deliveries of the messages that are not ``new``, by owner and message."""
        found: dict[tuple[str, str], StoredDelivery] = {}
        ids = [one for one in self._bodies if one not in new]
        for at in range(0, len(ids), words.BATCH):
            rows = view.rows(_DELIVERED, {"ids": as_list([{"id": one} for one in ids[at : at + words.BATCH]])})
            found.update(((row.owner, row.message_id), row) for row in rows)
        return found

    def _deliveries(self, there: Mapping[tuple[str, str], StoredDelivery], before: AbstractSet[str]) -> int:
        """Find deliveries to add, in the file's order, and to acknowledge.

        Return the number of removed deliveries that are not added again. A message that was imported ``before`` is
        delivered only to new members, if it is still stored.
        """
        self._sent, self._read, left = [], [], 0
        for letter in self._team.letters:
            body = self._bodies[letter.message.id]
            for owner in letter.owners:
                stored, read = there.get((owner, body["id"])), letter.read.get(owner)
                reader = None if read is None else owner
                is_told = body["id"] in self._removed or owner not in self._joining
                is_removed = owner in self._gone or (body["id"] in before and is_told)
                if stored is None and is_removed:
                    left += 1
                elif stored is None:
                    placed = statements.delivery(owner, 0, body, body["created_at"])
                    self._sent.append({**placed, "acked_at": read, "acked_by": reader})
                elif read is not None and stored.acked_at is None:
                    self._read.append({"owner": owner, "ord": stored.ord, "acked_at": read, "acked_by": owner})
        return left

    def _letters(self) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the id of each message with its inboxes."""
        yield from ((body, letter.owners) for body, letter in zip(self._bodies, self._team.letters, strict=True))

    def _place_deliveries(self, view: Unit) -> list[Row]:
        """Return the new deliveries with positions at the ends of their inboxes. Locks inboxes in the owners' order."""
        counts = Counter(row["owner"] for row in self._sent)
        owners = [{"id": one, "count": counts[one]} for one in statements.sorted_names(counts)]
        ends = view.rows(_RESERVE, {"owners": as_list(owners), "at": self._team.began})
        free = {owner: next_ord - counts[owner] for owner, next_ord in ends}
        placed: list[Row] = []
        for row in self._sent:
            placed.append({**row, "ord": free[row["owner"]]})
            free[row["owner"]] += 1
        return placed


def _is_changed_here(stored: Message, body: MessageDraft) -> bool:
    return stored.channel == body["channel"] and stored.revision > 0


def _mark_in(noted: str) -> str:
    """Return the digest of the messages that a line of the ledger contains."""
    return noted.partition(" {")[0].rpartition(" ")[2]


def _marks(seed: str, letters: Sequence[Letter]) -> Iterator[str]:
    """Yield a digest of the seed, then with the first message added, then with the first two, and so on."""
    seen = hashlib.sha256(seed.encode())
    yield seen.hexdigest()
    for letter in letters:
        seen.update(f"{len(letter.said)} {letter.said} ".encode())
        yield seen.hexdigest()
