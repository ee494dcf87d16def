"""Orders of messages. An order is changed at its end, or replaced whole; what forks have inherited of it stays."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lastlight_state.conversations import checks, words
from lastlight_state.conversations.kernel import orders, sessions, storing
from lastlight_state.conversations.kernel.classes import KnownClasses
from lastlight_state.conversations.kernel.feeds import news
from lastlight_state.conversations.progressions import statements as sql
from lastlight_state.conversations.records import Appended, Link, Progression, ProgressionUse
from lastlight_state.conversations.tables import PROGRESSIONS
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, PayloadTooLarge, StaleVersion
from lastlight_state.ids import new_id

_MOST = limits_of(PROGRESSIONS)


class Progressions(Repository):
    """``store.conversations.progressions``"""

    def create(
        self,
        progression_id: str | None = None,
        message_ids: Sequence[str] = (),
        *,
        name: str | None = None,
        created_at: datetime | float | None = None,
        node_metadata: dict[str, Any] | None = None,
    ) -> Progression:
        """Make an order of at most 1,000 stored messages; more are appended. Raises `AlreadyExists`, `NotFound`."""
        row = self._row(progression_id, name, created_at, node_metadata)
        ids = checks.message_ids("message_ids", message_ids, words.BATCH)
        return storing.settled(lambda: self._writing(lambda unit: self._created(unit, row, ids)))

    def ensure(self, progression_id: str, message_ids: Sequence[str] = ()) -> Progression:
        """The order of this id, made unless it is there. An existing one with another order is `AlreadyExists`.

        Without ``message_ids``, an existing one is returned whatever its order.
        """
        row = self._row(progression_id, None, None, None)
        ids = checks.message_ids("message_ids", message_ids, words.BATCH)

        def look(unit: Unit) -> Progression:
            found = unit.find(Progression.of, sql.GET, {"progression_id": row["id"]})
            if found is None:
                return self._created(unit, row, ids)
            if ids and _ids(unit, row["id"]) != ids:
                raise AlreadyExists(words.PROGRESSION, row["id"], problem="already exists with another order")
            return found

        return storing.settled(lambda: self._writing(look, repeatable=True))

    def get(self, progression_id: str) -> Progression:
        """The order, without its links. Raises `NotFound`."""
        values = {"progression_id": valid.sought("progression_id", progression_id)}
        return self._one(Progression.of, sql.GET, values, kind=words.PROGRESSION, key=progression_id)

    def find(self, progression_id: str) -> Progression | None:
        """The order, without its links, or None."""
        return self._find(Progression.of, sql.GET, {"progression_id": valid.sought("progression_id", progression_id)})

    def ids(
        self, progression_id: str, *, after_ord: int | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[Link]:
        """A page of an order's own links, after a position. Raises `NotFound`."""
        given = {
            "progression_id": valid.sought("progression_id", progression_id),
            "after_ord": None if after_ord is None else valid.number("after_ord", after_ord, least=-1),
        }
        found = self._page(sql.LINKED, Link.of, given, limit, page_token)
        if not found.items and not found.damaged:
            self.get(progression_id)
        return found

    def collection(self, progression_id: str) -> list[str]:
        """The ids of an order's own links, at most 10,000, repetitions included.

        Raises `NotFound`, and `PayloadTooLarge` for a longer order: `lastlight_state.iterate` reads the pages of `ids`.
        """
        found = self._reading(lambda unit: _ids(unit, valid.sought("progression_id", progression_id)))
        if not found:
            self.get(progression_id)
        if len(found) > words.MANY:
            hint = "use ids(), page by page"
            raise PayloadTooLarge("collection", limit=words.MANY, actual=len(found), unit="ids", hint=hint)
        return found

    def append(
        self, progression_id: str, message_ids: Sequence[str], *, on_repeat: words.OnRepeat = "skip"
    ) -> Appended:
        """Add at most 1,000 stored messages to the end; those that its own links hold are skipped, or kept.

        Raises `NotFound` for an unknown order or message; then nothing is added. A constant number of statements,
        whatever the length.
        """
        found = valid.sought("progression_id", progression_id)
        ids = checks.message_ids("message_ids", message_ids, words.BATCH)
        skips = valid.word("on_repeat", on_repeat, words.ON_REPEAT) == "skip"

        now = self._now()

        def append(unit: Unit) -> Appended:
            owners = _owners(unit, found)
            order = orders.locked(unit, [found])
            there, _ = storing.put_all(unit, self._remember(KnownClasses), ids, now)
            held = orders.held(unit, {found: order[found]["next_ord"]}, sorted(there)) if skips else {}
            new = orders.unheld(ids, held.get(found, set())) if skips else ids
            orders.extend(unit, order, {found: new})
            if new and owners:
                sessions.point(unit, found)
            told = news("messages.appended", progression_id=found, first=order[found]["next_ord"], count=len(new))
            for owner in owners if new else ():
                sessions.move(unit, self._listeners, owner, now, told)
            return orders.appended(order[found], new, ids)

        return storing.settled(lambda: self._writing(append, repeatable=skips))

    def replace(self, progression_id: str, message_ids: Sequence[str], *, expect_version: int) -> Progression:
        """Put at most 10,000 stored messages in place of an order's own links, if it still has this version.

        Only what differs is written. The session whose pool it is points to the new first and last message. Raises
        `StaleVersion`, `NotFound`, and `Conflict` ``fork_prefix`` for a change of what a fork of its branch has
        inherited.
        """
        found = valid.sought("progression_id", progression_id)
        ids = checks.message_ids("message_ids", message_ids, words.MANY)
        version = valid.number("expect_version", expect_version)
        now = self._now()

        def replace(unit: Unit) -> Progression:
            owners = _owners(unit, found)
            order = orders.locked(unit, [found])[found]
            if order["version"] != version:
                raise StaleVersion(words.PROGRESSION, found, expected=version, found=order["version"])
            return replaced(unit, self._listeners, order, ids, owners, now)

        return storing.settled(lambda: self._writing(replace))

    def containing(self, message_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[ProgressionUse]:
        """A page of the orders that hold a message, and where. An unknown message is in none."""
        given = {"message_id": valid.sought("message_id", message_id)}
        return self._page(sql.CONTAINING, ProgressionUse.of, given, limit, page_token)

    def _row(self, progression_id: Any, name: Any, created_at: Any, node_metadata: Any) -> orders.NewOrder:
        return orders.fresh(
            new_id() if progression_id is None else valid.identifier("progression_id", progression_id, _MOST.id),
            checks.created("created_at", created_at, self._now()),
            name=checks.name("name", name, _MOST.name),
            node_metadata=checks.encoded("node_metadata", node_metadata, _MOST.node_metadata),
        )

    def _created(self, unit: Unit, row: orders.NewOrder, ids: Sequence[str]) -> Progression:
        if unit.row(sql.GET, {"progression_id": row["id"]}) is not None:
            raise AlreadyExists(words.PROGRESSION, row["id"])
        storing.put_all(unit, self._remember(KnownClasses), ids, row["created_at"])
        orders.create(unit, {**row, "next_ord": len(ids)})
        orders.link(unit, {row["id"]: (0, ids)})
        return _stored(unit, row["id"])


def _owners(unit: Unit, progression_id: str) -> list[str]:
    """The sessions that have this order, locked."""
    owners = sessions.owners_of(unit, progression_id)
    sessions.lock_all(unit, owners)
    return sorted(owners)


def replaced(
    unit: Unit,
    listeners: Listeners,
    order: orders.OrderHead,
    ids: Sequence[str],
    owners: Sequence[str],
    now: datetime,
) -> Progression:
    """Put stored messages in place of the own links of an order that is locked, as are the sessions that have it."""
    progression_id = order["id"]
    stored = [row["message_id"] for row in unit.rows(orders.LINKED, {"progression_id": progression_id})]
    same = next((i for i, pair in enumerate(zip(stored, ids, strict=False)) if pair[0] != pair[1]), None)
    kept = min(len(stored), len(ids)) if same is None else same
    first = order["start_ord"] + kept
    inherited = unit.value(orders.INHERITED, {"progression_id": progression_id}) or 0
    if kept == len(stored) == len(ids):
        return _stored(unit, progression_id)
    if first < min(inherited, order["next_ord"]):
        problem = f"forks have inherited its positions below {inherited}: position {first} must stay"
        raise Conflict(f"progression {progression_id!r}: {problem}", code=words.FORK_PREFIX, ord=first)
    storing.refuse_unknown(unit, ids[kept:])
    unit.change(sql.TAKE_OUT, {"progression_id": progression_id, "from_ord": first})
    unit.change(sql.DROP, {"progression_id": progression_id})
    orders.link(unit, {progression_id: (first, ids[kept:])})
    if owners:
        sessions.point(unit, progression_id)
    values = {"progression_id": progression_id, "next_ord": order["start_ord"] + len(ids)}
    for owner in sorted(owners):
        sessions.move(unit, listeners, owner, now, news("progression.replaced", progression_id=progression_id))
    [changed] = unit.all(Progression.of, sql.REPLACE, values)
    return changed


def _stored(unit: Unit, progression_id: str) -> Progression:
    [found] = unit.all(Progression.of, sql.GET, {"progression_id": progression_id})
    return found


def _ids(unit: Unit, progression_id: str) -> list[str]:
    return [row["message_id"] for row in unit.rows(sql.COLLECTION, {"progression_id": progression_id})]
