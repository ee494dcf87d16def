"""Message orders (progressions). They are changed at their end or replaced whole. Positions inherited by forks stay."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations import checks, words
from lastlight_state.conversations.arguments import NewMessage
from lastlight_state.conversations.records import Appended, Link, Progression, ProgressionUse
from lastlight_state.conversations.shared import deleting, orders, sessions, storing
from lastlight_state.conversations.shared.feeds import entry_parameters
from lastlight_state.conversations.shared.storing import KnownClasses
from lastlight_state.conversations.tables import LINKS, PROGRESSIONS
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import bind, columns_of, every_column_of, number, statement_of
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, PayloadTooLarge, StaleVersion
from lastlight_state.ids import new_id

# Statements that read and replace message orders.

_p, _l = PROGRESSIONS.c, LINKS.c
_THIS = _p.id == bind("progression_id", _p.id)
_ITS = _l.progression_id == bind("progression_id", _l.progression_id)

_COLUMNS = every_column_of(Progression, PROGRESSIONS)
#: The columns of a `Link`, and of a `ProgressionUse`.
_LINK = every_column_of(Link, LINKS, hidden={"progression_id"})
_USE = columns_of(ProgressionUse, LINKS)

GET = statement_of(sa.select(*_COLUMNS).where(_THIS), Progression)
#: All ids in their order; one more than a caller may have.
COLLECTION = statement_of(sa.select(_l.message_id).where(_ITS).order_by(_l.ord).limit(number(words.MANY + 1)))

LINKED = Listing(
    "progressions.ids",
    _LINK,
    row=Link,
    order=(_l.ord,),
    filters={"progression_id": _ITS, "after_ord": _l.ord > bind("after_ord", _l.ord)},
    descending=False,
)
CONTAINING = Listing(
    "progressions.containing",
    _USE,
    row=ProgressionUse,
    order=(_l.progression_id, _l.ord),
    filters={"message_id": _l.message_id == bind("message_id", _l.message_id)},
    descending=False,
)
TAIL = statement_of(sa.select(*_LINK).where(_ITS, _l.ord >= bind("from_ord", _l.ord)).order_by(_l.ord), Link)
REPLACE = statement_of(
    sa.update(PROGRESSIONS)
    .where(_THIS)
    .values(next_ord=bind("next_ord", _p.next_ord), version=_p.version + number(1))
    .returning(*_COLUMNS),
    Progression,
)


_LIMITS = limits_of(PROGRESSIONS)


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
        """Create a message order from at most 1,000 ids of stored messages. To add more, use `append`.

        Raises `AlreadyExists` for a stored ``progression_id``, and `NotFound` for an unknown message.
        """
        row = self._row(progression_id, name, created_at, node_metadata)
        ids = checks.message_ids("message_ids", message_ids, words.BATCH)
        return storing.retry_storing(lambda: self._writing(lambda unit: self._insert_order(unit, row, ids)))

    def ensure(self, progression_id: str, message_ids: Sequence[str] = ()) -> Progression:
        """Create a message order unless its id is stored, and return the stored order.

        Raises `AlreadyExists` if ``message_ids`` are given and the stored order has others. Raises `NotFound`.
        """
        row = self._row(progression_id, None, None, None)
        ids = checks.message_ids("message_ids", message_ids, words.BATCH)

        def look(unit: Unit) -> Progression:
            found = unit.row(GET, {"progression_id": row["id"]})
            if found is None:
                return self._insert_order(unit, row, ids)
            if ids and _ids(unit, row["id"]) != ids:
                raise AlreadyExists(words.PROGRESSION, row["id"], problem="already exists with another order")
            return found

        return storing.retry_storing(lambda: self._writing(look, repeatable=True))

    def get(self, progression_id: str) -> Progression:
        """Return a message order without its links. Raises `NotFound`."""
        values = {"progression_id": valid.lookup_text("progression_id", progression_id)}
        return self._get_row(GET, values, kind=words.PROGRESSION, key=progression_id)

    def find(self, progression_id: str) -> Progression | None:
        """Return the order, without its links, or None."""
        return self._find(GET, {"progression_id": valid.lookup_text("progression_id", progression_id)})

    def ids(
        self, progression_id: str, *, after_ord: int | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[Link]:
        """Return a page of a message order's own links (position and message id), after position ``after_ord``.

        Raises `NotFound`.
        """
        given = {
            "progression_id": valid.lookup_text("progression_id", progression_id),
            "after_ord": None if after_ord is None else valid.number("after_ord", after_ord, least=-1),
        }
        found = self._page(LINKED, given, limit, page_token)
        if not found.items and not found.damaged:
            self.get(progression_id)
        return found

    def collection(self, progression_id: str) -> list[str]:
        """Return all message ids of a message order's own links, at most 10,000, repetitions included.

        Raises `NotFound`. Raises `PayloadTooLarge` for a longer order: read it by `lastlight_state.iterate` over `ids`.
        """
        found = self._reading(lambda unit: _ids(unit, valid.lookup_text("progression_id", progression_id)))
        if not found:
            self.get(progression_id)
        if len(found) > words.MANY:
            hint = "use ids(), page by page"
            raise PayloadTooLarge("collection", limit=words.MANY, actual=len(found), unit="ids", hint=hint)
        return found

    def append(
        self, progression_id: str, messages: Sequence[NewMessage | str], *, on_repeat: words.OnRepeat = "skip"
    ) -> Appended:
        """Append at most 1,000 messages to a message order, all or none: new messages, or ids of stored messages.

        Messages that are already among the order's own links are skipped, or with ``"keep"`` added again. A message
        with a stored id and other content revises the stored message. Raises `NotFound` for an unknown order or
        message, `InvalidValue` with the position of a bad message, and `PayloadTooLarge` past 32 MiB. The number of
        statements does not depend on the order's length.
        """
        found, now = valid.lookup_text("progression_id", progression_id), self._now()
        given = storing.drafts("messages", messages, now)
        skips = valid.word("on_repeat", on_repeat, words.ON_REPEAT) == "skip"
        known, locks = self._remember(KnownClasses), sessions.Locks()

        def append(unit: Unit) -> Appended:
            owners = sessions.owners_locked(unit, locks, found)
            order = orders.lock_orders(unit, [found])
            there, _ = sessions.put_all(unit, self._listeners, known, given, now, locks=locks)
            ids = [storing.id_of(one) for one in given]
            held = orders.held_messages(unit, {found: order[found].next_ord}, sorted(there)) if skips else {}
            new = orders.unheld(ids, held.get(found, set())) if skips else ids
            shared = orders.extend(unit, order, {found: new}, owners[0] if owners else "")
            told = entry_parameters(
                "messages.appended", progression_id=found, first=order[found].next_ord, count=len(new)
            )
            if shared or (new and owners):
                sessions.record_for_owners(unit, self._listeners, found, now, told, locks=locks)
            return orders.append_result(order[found], new, ids)

        return storing.retry_storing(lambda: self._writing(append, repeatable=skips))

    def replace(self, progression_id: str, message_ids: Sequence[str], *, expect_version: int) -> Progression:
        """Replace an order's own links by at most 10,000 stored messages, if the order has version ``expect_version``.

        Only links that differ are written. A session whose pool is this order gets the new first and last message.
        Raises `StaleVersion`, `NotFound`, and `Conflict` ``fork_prefix`` for a change of positions that a fork of the
        order's branch has inherited.
        """
        found = valid.lookup_text("progression_id", progression_id)
        ids = checks.message_ids("message_ids", message_ids, words.MANY)
        version = valid.number("expect_version", expect_version)
        now, locks = self._now(), sessions.Locks()

        def replace(unit: Unit) -> Progression:
            order = _lock_order(unit, locks, found, version)
            return replace_links(unit, self._listeners, order, ids, now, locks=locks)

        return storing.retry_storing(lambda: self._writing(replace))

    def pop(self, progression_id: str, count: int = 1, *, expect_version: int | None = None) -> list[Link]:
        """Remove the last ``count`` (1 to 10,000) messages from a message order, and return their links in order.

        A shorter order is emptied. The messages stay stored. Raises `NotFound`, `StaleVersion` if the order does not
        have version ``expect_version``, and `Conflict` ``fork_prefix`` for positions that the order's branch, or a fork
        of it, has inherited; then nothing is removed. The number of statements does not depend on the order's length.
        """
        found = valid.lookup_text("progression_id", progression_id)
        most = valid.number("count", count, least=1, most=words.MANY)
        version = None if expect_version is None else valid.number("expect_version", expect_version)
        now, locks = self._now(), sessions.Locks()

        def pop(unit: Unit) -> list[Link]:
            order = _lock_order(unit, locks, found, version)
            first = deleting.first_of_last(order, most)
            taken = unit.rows(TAIL, {"progression_id": found, "from_ord": first})
            deleting.cut(unit, self._listeners, order, first, now, locks=locks)
            return taken

        return storing.retry_storing(lambda: self._writing(pop))

    def truncate(self, progression_id: str, from_ord: int, *, expect_version: int | None = None) -> Progression:
        """Remove all messages at and after position ``from_ord`` from a message order. A shorter order is unchanged.

        The messages stay stored. Raises `NotFound`, `StaleVersion` if the order does not have version
        ``expect_version``, and `Conflict` ``fork_prefix`` for positions that the order's branch, or a fork of it, has
        inherited. The number of statements does not depend on the order's length.
        """
        found, first = valid.lookup_text("progression_id", progression_id), valid.number("from_ord", from_ord)
        version = None if expect_version is None else valid.number("expect_version", expect_version)
        now, locks = self._now(), sessions.Locks()

        def truncate(unit: Unit) -> Progression:
            order = _lock_order(unit, locks, found, version)
            deleting.cut(unit, self._listeners, order, first, now, locks=locks)
            return _stored_progression(unit, found)

        return storing.retry_storing(lambda: self._writing(truncate))

    def containing(self, message_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[ProgressionUse]:
        """Return a page of the message orders that hold a message, with its positions. Empty for an unknown message."""
        given = {"message_id": valid.lookup_text("message_id", message_id)}
        return self._page(CONTAINING, given, limit, page_token)

    def _row(self, progression_id: Any, name: Any, created_at: Any, node_metadata: Any) -> orders.NewOrder:
        return orders.fresh(
            new_id() if progression_id is None else valid.identifier("progression_id", progression_id, _LIMITS.id),
            checks.creation_time("created_at", created_at, self._now()),
            name=checks.name("name", name, _LIMITS.name),
            node_metadata=checks.encode_object("node_metadata", node_metadata, _LIMITS.node_metadata),
        )

    def _insert_order(self, unit: Unit, row: orders.NewOrder, ids: Sequence[str]) -> Progression:
        if unit.row(GET, {"progression_id": row["id"]}) is not None:
            raise AlreadyExists(words.PROGRESSION, row["id"])
        storing.put_all(unit, self._remember(KnownClasses), ids, row["created_at"])
        orders.create(unit, {**row, "next_ord": len(ids)})
        orders.link(unit, {row["id"]: (0, ids)})
        return _stored_progression(unit, row["id"])


def _lock_order(unit: Unit, locks: sessions.Locks, progression_id: str, version: int | None) -> orders.OrderHead:
    """Lock the sessions that have a message order, then the order.

    Raises `StaleVersion` if the order has another version.
    """
    sessions.owners_locked(unit, locks, progression_id)
    order = orders.lock_orders(unit, [progression_id])[progression_id]
    if version not in (None, order.version):
        raise StaleVersion(words.PROGRESSION, progression_id, expected=version, found=order.version)
    return order


def replace_links(
    unit: Unit,
    listeners: Listeners,
    order: orders.OrderHead,
    ids: Sequence[str],
    now: datetime,
    *,
    locks: sessions.Locks,
) -> Progression:
    """Put stored messages in place of the own links of an order that is locked, as are the sessions that have it."""
    progression_id = order.id
    stored = unit.values(orders.LINKED, {"progression_id": progression_id})
    same = next((i for i, pair in enumerate(zip(stored, ids, strict=False)) if pair[0] != pair[1]), None)
    kept = min(len(stored), len(ids)) if same is None else same
    first = order.start_ord + kept
    if kept == len(stored) == len(ids):
        return _stored_progression(unit, progression_id)
    deleting.refuse_inherited(unit, order, first)
    storing.refuse_unknown(unit, ids[kept:])
    deleting.drop(unit, progression_id, first)
    orders.link(unit, {progression_id: (first, ids[kept:])})
    told = entry_parameters("progression.replaced", progression_id=progression_id)
    sessions.record_for_owners(unit, listeners, progression_id, now, told, locks=locks)
    values = {"progression_id": progression_id, "next_ord": order.start_ord + len(ids)}
    [changed] = unit.rows(REPLACE, values)
    return changed


def _stored_progression(unit: Unit, progression_id: str) -> Progression:
    [found] = unit.rows(GET, {"progression_id": progression_id})
    return found


def _ids(unit: Unit, progression_id: str) -> list[str]:
    return unit.values(COLLECTION, {"progression_id": progression_id})
