"""Messages: each is stored once, and any number of message orders refer to it by its id. A message has no owner."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations import checks, words
from lastlight_state.conversations.arguments import MessageFilter, NewMessage, Search, Within
from lastlight_state.conversations.messages import similar
from lastlight_state.conversations.records import NO_ORD, Message, MessageHit, MessageSummary, MessageUse
from lastlight_state.conversations.shared import searching, sessions, storing
from lastlight_state.conversations.shared.storing import SUMMARY, KnownClasses
from lastlight_state.conversations.tables import BRANCHES, LINKS, MESSAGES, SESSIONS, TYPES
from lastlight_state.db import valid
from lastlight_state.db.lists import pages
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.lists.pages import keyed_rows, window
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, bind, number, statement_of
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, InvalidValue, NotFound

# Statements that list messages, and that find the rows which refer to a message.

_LIMITS, _TYPE = limits_of(MESSAGES), limits_of(TYPES)
_NAMES = checks.of(MESSAGES, "sender", "recipient", "channel")

_c = MESSAGES.c

_class = sa.select(TYPES.c.type_id).where(TYPES.c.lion_class == bind("lion_class", TYPES.c.lion_class))

LIST = Listing(
    "messages",
    SUMMARY,
    row=MessageSummary,
    order=(_c.created_at, _c.id),
    filters={
        **{name: _c[name] == bind(name, _c[name]) for name in ("sender", "recipient", "channel")},
        "lion_class": _c.lion_class == _class.scalar_subquery(),
        "since": _c.created_at >= bind("since", _c.created_at),
        "until": _c.created_at < bind("until", _c.created_at),
    },
    spread={"roles": _c.role},
    walked=("roles",),
)

THERE = statement_of(sa.select(_c.id).where(_c.id == bind("id", _c.id)))
EMBED = statement_of(
    sa.update(MESSAGES)
    .where(_c.id == bind("id", _c.id))
    .values({name: bind(name, _c[name]) for name in ("embedding", "embedding_model")})
)


def filters(where: MessageFilter | None) -> Row:
    """Check a `MessageFilter`, and return its values by the names of `LIST`'s filters."""
    asked = MessageFilter() if where is None else valid.argument_group("where", where, MessageFilter)
    roles = None if asked.roles is None else valid.several("where.roles", asked.roles)
    return {
        **checks.fields("where", asked, _NAMES),
        "lion_class": checks.name("where.lion_class", asked.lion_class, _TYPE.lion_class),
        "roles": None if roles is None else [valid.identifier("where.roles", one, _LIMITS.role) for one in roles],
        "since": checks.optional_time("where.since", asked.since),
        "until": checks.optional_time("where.until", asked.until),
    }


def _select_pointers(kind: str, table: sa.Table, column: str) -> sa.Select[Any]:
    return sa.select(_word(kind), table.c.id.label("id"), number(NO_ORD).label("ord")).where(
        table.c[column] == bind("message_id", table.c[column])
    )


def _word(kind: str) -> Any:
    return sa.literal_column(f"'{kind}'", columns.Text).label("kind")


def _uses() -> Any:
    """Return a query for the links and pointers that refer to a message. Each is found by an index."""
    links = sa.select(_word("progression"), LINKS.c.progression_id.label("id"), LINKS.c.ord.label("ord")).where(
        LINKS.c.message_id == bind("message_id", LINKS.c.message_id)
    )
    held = sa.union_all(
        links,
        _select_pointers("system_msg", BRANCHES, "system_msg_id"),
        _select_pointers("first_msg", SESSIONS, "first_msg_id"),
        _select_pointers("last_msg", SESSIONS, "last_msg_id"),
    ).subquery("held")
    order = (columns.in_code_points(held.c.kind), columns.in_code_points(held.c.id), held.c.ord)
    after = sa.tuple_(*order) > sa.tuple_(
        bind("after_kind", held.c.kind), bind("after_id", held.c.id), bind("after_ord", LINKS.c.ord)
    )
    return sa.select(*held.c).where(after).order_by(*order).limit(sa.bindparam("limit", type_=sa.Integer))


USES = statement_of(_uses(), MessageUse)


_MOST = limits_of(MESSAGES)

_EXACT = Search()


class Messages(Repository):
    """``store.conversations.messages``"""

    def create(self, message: NewMessage) -> Message:
        """Store a new message. Raises `AlreadyExists` if its id is stored."""
        body = storing.draft("message", message, self._now())
        known = self._remember(KnownClasses)

        def insert(unit: Unit) -> Message:
            if unit.row(storing.GET, body) is not None:
                raise AlreadyExists(words.MESSAGE, body["id"])
            return storing.ensure(unit, known, body)

        return storing.retry_storing(lambda: self._writing(insert))

    def ensure(self, message: NewMessage) -> Message:
        """Store a message unless its id is stored, and return the stored message.

        Raises `AlreadyExists` if the stored message differs in a field that the caller gives, except the time of
        creation. The error's ``fields`` name the differences.
        """
        body = storing.draft("message", message, self._now())
        known = self._remember(KnownClasses)
        return storing.retry_storing(
            lambda: self._writing(lambda unit: storing.ensure(unit, known, body), repeatable=True)
        )

    def put(self, message: NewMessage) -> Message:
        """Store a message, or replace every field of the stored message except its creation time.

        For a message that grows while it is generated. An equal message writes nothing; a change increments
        ``revision``. A stored embedding is kept if none is given and nothing else changes. Each running session that
        has the message gets a feed entry for the revision.
        """
        now = self._now()
        body = storing.draft("message", message, now)
        known, locks = self._remember(KnownClasses), sessions.Locks()

        def put(unit: Unit) -> Message:
            locks.first(unit)
            sessions.put_all(unit, self._listeners, known, [body], now, locks=locks)
            [stored] = unit.rows(storing.GET, body)
            return stored

        return storing.retry_storing(lambda: self._writing(put, repeatable=True))

    def get(self, message_id: str) -> Message:
        """Return the message. Raises `NotFound`."""
        values = {"id": valid.lookup_text("message_id", message_id)}
        return self._get_row(storing.GET, values, kind=words.MESSAGE, key=message_id)

    def find(self, message_id: str) -> Message | None:
        """Return the message, or None."""
        return self._find(storing.GET, {"id": valid.lookup_text("message_id", message_id)})

    def get_many(self, message_ids: Sequence[str]) -> dict[str, Message]:
        """Return the messages with these ids (at most 10,000), by id. Ids that are not stored are left out.

        A message that cannot be read is logged and left out; `get` raises its error.
        """
        ids = [{"id": one} for one in dict.fromkeys(checks.message_ids("message_ids", message_ids, words.MANY))]
        wanted = [as_list(ids[at : at + words.BATCH]) for at in range(0, len(ids), words.BATCH)]

        def read(unit: Unit) -> dict[str, Message]:
            found = [unit.readable_rows(storing.MANY, {"ids": some})[0] for some in wanted]
            return {message.id: message for several in found for message in several}

        return self._viewing(read)

    def list(
        self, *, where: MessageFilter | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[MessageSummary]:
        """Return a page of messages, newest first, without their contents.

        There is no index on roles and classes, so a search for rare ones scans many messages. To limit the scan, also
        filter by ``since``, or by sender, recipient or channel, which have indexes.
        """
        return self._page(LIST, filters(where), limit, page_token)

    def count(self, *, where: MessageFilter | None = None) -> int:
        """Return the number of messages that match the filter (None: all messages)."""
        given = filters(where)
        return self._reading(lambda unit: LIST.count(unit, given))

    def uses(self, message_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[MessageUse]:
        """Return a page of a message's references: positions in progressions, and pointers of branches and sessions.

        Raises `NotFound` for an unknown message.
        """
        found, asked = valid.lookup_text("message_id", message_id), ["messages.uses", message_id]
        valid.page_limit(limit)
        kind, key, at = pages.key(asked, page_token, (str, str, int)) or ("", "", -2)
        values = {"message_id": found, "after_kind": kind, "after_id": key, "after_ord": at}

        def read(unit: Unit) -> Page[MessageUse]:
            shown = window(
                lambda size: keyed_rows(unit.rows_or_errors(USES, {**values, "limit": size}), ["kind", "id", "ord"]),
                limit,
            )
            if not shown.rows and unit.row(THERE, {"id": found}) is None:
                raise NotFound(words.MESSAGE, message_id)
            return shown.page(asked)

        return self._viewing(read)

    def set_embedding(
        self, message_id: str, vector: Sequence[float] | bytes | None, *, model: str | None = None
    ) -> None:
        """Replace a message's embedding and the name of the model that computed it. None removes both.

        The message's ``revision`` does not change. Raises `NotFound`.
        """
        if vector is None and model is not None:
            raise InvalidValue("model", "must not be given without a vector")
        values = {
            "id": valid.lookup_text("message_id", message_id),
            "embedding": checks.embedding("vector", vector),
            "embedding_model": checks.name("model", model, _MOST.embedding_model),
        }
        if not self._once(lambda unit: unit.change(EMBED, values), repeatable=True):
            raise valid.not_found(words.MESSAGE, message_id)

    def similar(
        self,
        vector: Sequence[float] | bytes,
        *,
        within: Within | None = None,
        role: str | None = None,
        model: str | None = None,
        top_k: int = 10,
        how: Search = _EXACT,
    ) -> builtins.list[MessageHit]:
        """Return the ``top_k`` (1 to 1,000) messages with embeddings nearest to a vector, best first.

        Equal scores sort by id. Compares every message that has an embedding of the vector's length. ``within``
        restricts the search to a session's pool, a branch's whole history or a message order, ``role`` to a role, and
        ``model`` to the model that computed the embedding. Raises `NotFound` for an unknown session, branch or order,
        and `InvalidValue` for a zero vector with the cosine metric.
        """
        asked = searching.search_request(vector, top_k, how)
        place = similar.place("within", within)
        given = {
            "role": checks.name("role", role, _MOST.role),
            "model": checks.name("model", model, _MOST.embedding_model),
        }
        return self._viewing(lambda unit: similar.nearest_messages(unit, place, given, asked))
