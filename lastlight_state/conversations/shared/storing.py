"""Storing messages: new messages are inserted, changed messages are revised, and equal messages are left alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations import checks, similarity, words
from lastlight_state.conversations.arguments import NewMessage
from lastlight_state.conversations.drafts import MessageDraft
from lastlight_state.conversations.records import Message, MessageSummary, MessageType
from lastlight_state.conversations.tables import MESSAGES, TYPES
from lastlight_state.conversations.words import UNKNOWN_CLASS, UNKNOWN_TYPE
from lastlight_state.db import valid
from lastlight_state.db.rows import statements
from lastlight_state.db.rows.statements import RowT, Statement, Values, bind, number, statement_of
from lastlight_state.db.rows.writes import as_list, elements_table
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.schema.indexes import AmongFew
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, InvalidValue, NotFound, PayloadTooLarge

# Numbers of message classes: a class gets its number in the transaction that stores the first message of the class.
#
# A store caches numbers only after the commit, so a message that is rolled back leaves no number in the cache.

_types = TYPES.c
_LOCK = "conversation_message_types"

_KNOWN = statement_of(
    sa.select(*statements.every_column_of(MessageType, TYPES)).where(
        AmongFew(_types.lion_class, sa.select(member_of(elements_table("names").c.value, "name")))
    ),
    MessageType,
)
_ADD = statement_of(
    sa.insert(TYPES)
    .from_select(
        ["type_id", "lion_class"],
        sa.select(sa.func.max(_types.type_id) + number(1), bind("lion_class", _types.lion_class)),
        include_defaults=False,
    )
    .returning(_types.type_id)
)


class KnownClasses:
    """A store's cache of the numbers of message classes."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {UNKNOWN_CLASS: UNKNOWN_TYPE}


def numbers_of(unit: Unit, known: KnownClasses, names: Iterable[str]) -> dict[str, int]:
    """Return the number of each message class. A new class gets the next number, under a lock."""
    found = {name: known.numbers.get(name) for name in names}
    missing = sorted(name for name, type_id in found.items() if type_id is None)
    if missing:
        learned = _stored_type_ids(unit, missing)
        if len(learned) < len(missing):
            unit.named_lock(_LOCK)
            learned = _stored_type_ids(unit, missing)
            learned |= {name: unit.value(_ADD, {"lion_class": name}) for name in missing if name not in learned}
        unit.after_commit(lambda: known.numbers.update(learned))
        found |= learned
    return {name: type_id for name, type_id in found.items() if type_id is not None}


def _stored_type_ids(unit: Unit, names: Iterable[str]) -> dict[str, int]:
    found = unit.rows(_KNOWN, {"names": as_list([{"name": name} for name in names])})
    return {one.lion_class: one.type_id for one in found}


_LIMITS, _TYPE = limits_of(MESSAGES), limits_of(TYPES)

T = TypeVar("T")

_c = MESSAGES.c
_JSON = ("node_metadata", "extra", "content")
#: The text columns by which two messages of one id are compared.
_TEXTS = ("sender", "recipient", "channel", "role", "lion_class")
_REPLACED = ("sender", "recipient", "channel", "role", "lion_class", "embedding_model", *_JSON, "embedding")
#: Most attempts of a transaction that conflicts with another, which stored a message of the same id.
_ATTEMPTS = 5

#: By its key, and not by a join, with which SQLite's planner may begin.
_CLASS = sa.select(TYPES.c.lion_class).where(TYPES.c.type_id == _c.lion_class).scalar_subquery().label("lion_class")


def _with_class(columns: Iterable[sa.Column[Any]]) -> list[sa.ColumnElement[Any]]:
    """Return these columns, the class by its name."""
    return [_CLASS if column is _c.lion_class else column for column in columns]


#: The columns of a `MessageSummary` and of a `Message`.
SUMMARY = _with_class(statements.columns_of(MessageSummary, MESSAGES))
COLUMNS = _with_class(statements.every_column_of(Message, MESSAGES))

_wanted = AmongFew(_c.id, sa.select(member_of(elements_table("ids").c.value, "id")))

GET = statement_of(sa.select(*COLUMNS).where(_c.id == bind("id", _c.id)), Message)
MANY = statement_of(sa.select(*COLUMNS).where(_wanted), Message)
#: In the order of their ids, as messages are inserted. Does not wait for those who only refer to them (foreign keys).
_LOCKED = statement_of(
    sa.select(*COLUMNS).where(_wanted).order_by(_c.id).with_for_update(of=MESSAGES, key_share=True), Message
)
_THERE = statement_of(sa.select(_c.id).where(_wanted))
_INSERT = statement_of(
    sa.insert(MESSAGES).values({column.name: bind(column.name, column) for column in MESSAGES.columns})
)
_REVISE = statement_of(
    sa.update(MESSAGES)
    .where(_c.id == bind("id", _c.id))
    .values(
        **{name: bind(name, _c[name]) for name in _REPLACED},
        revision=_c.revision + number(1),
        revised_at=bind("revised_at", _c.revised_at),
    )
)


def draft(where: str, given: NewMessage, now: datetime) -> MessageDraft:
    """Check a new message and return its columns, with the class's name for its number. Raises `InvalidValue`."""
    new = valid.argument_group(where, given, NewMessage)
    moment, exact = checks.creation_time(f"{where}.created_at", new.created_at, now)
    return {
        "id": valid.identifier(f"{where}.id", new.id, _LIMITS.id),
        "created_at": moment,
        "created_at_unix": exact,
        "sender": checks.name(f"{where}.sender", new.sender, _LIMITS.sender),
        "recipient": checks.name(f"{where}.recipient", new.recipient, _LIMITS.recipient),
        "channel": checks.name(f"{where}.channel", new.channel, _LIMITS.channel),
        "role": valid.identifier(f"{where}.role", new.role, _LIMITS.role),
        "lion_class": _class_of(where, new),
        "revision": 0,
        "revised_at": None,
        "embedding_model": None,
        "node_metadata": checks.encode_object(f"{where}.node_metadata", new.node_metadata, _LIMITS.node_metadata),
        "extra": checks.encode_object(f"{where}.extra", new.extra, _LIMITS.extra),
        "content": checks.content(f"{where}.content", new.content),
        "embedding": checks.embedding(f"{where}.embedding", new.embedding),
    }


def drafts(where: str, given: Sequence[NewMessage | str], now: datetime) -> list[MessageDraft | str]:
    """Check a batch, in which each item is a new message or the id of a stored one.

    Return the drafts and the ids in order. Raises `InvalidValue`, and `PayloadTooLarge` for a batch above
    `words.BATCH_BYTES`.
    """
    found: list[MessageDraft | str] = [
        valid.identifier(f"{where}[{i}]", one, _LIMITS.id) if isinstance(one, str) else draft(f"{where}[{i}]", one, now)
        for i, one in enumerate(checks.batch(where, given, words.BATCH))
    ]
    _refuse_large(where, [one for one in found if not isinstance(one, str)])
    return found


def _refuse_large(where: str, found: Sequence[MessageDraft]) -> None:
    size = sum(_bytes(one["content"]) + _bytes(one["extra"]) for one in found)
    if size > words.BATCH_BYTES:
        raise PayloadTooLarge(where, limit=words.BATCH_BYTES, actual=size)


def id_of(one: MessageDraft | str) -> str:
    """Return the id of a message that is given as a draft or by its id."""
    return one if isinstance(one, str) else one["id"]


class RestartUnit(Exception):
    """Raised by a transaction that would take a lock out of order. The retried call takes that lock first."""


def retry_storing(store: Callable[[], T]) -> T:
    """Call ``store`` and return its result.

    Retry if another transaction meanwhile stored a message that ``store`` found missing. At most `_ATTEMPTS` such calls
    are made. After `RestartUnit`, ``store`` is called again without a limit.
    """
    left = _ATTEMPTS
    while True:
        try:
            return store()
        except RestartUnit:
            continue
        except Conflict as error:
            left -= 1
            if not left or error.code not in ("unique", "foreign_key"):
                raise


def ensure_row(make: Callable[[], T]) -> T:
    """Call ``make``, which inserts a row unless it exists, and return its result.

    If another caller inserts the row after ``make`` found it missing, ``make`` is called once more and finds it. An
    `AlreadyExists` that names differing ``fields`` is not retried.
    """
    try:
        return make()
    except AlreadyExists as error:
        if error.details.get("fields"):
            raise
        return make()


def put_all(
    unit: Unit,
    known: KnownClasses,
    given: Sequence[MessageDraft | str],
    now: datetime,
    *,
    seen: Mapping[str, int] | None = None,
) -> tuple[set[str], list[str]]:
    """Store the given messages. Return the ids that were stored before, and the ids of the messages that were revised.

    ``seen`` maps ids to revisions. With it, a stored message is revised only if it still has that revision. Otherwise
    `Conflict` is raised, and the transaction is retried. Raises `NotFound` for an id without a message, `InvalidValue`
    for two different messages of one id.
    """
    bodies = _by_id([one for one in given if not isinstance(one, str)])
    referred = {one for one in given if isinstance(one, str)} - set(bodies)
    stored = {one.id: one for one in _rows(unit, _LOCKED, bodies)} if bodies else {}
    there = refuse_unknown(unit, [one for one in given if isinstance(one, str) and one in referred])
    new = [bodies[message_id] for message_id in sorted(bodies) if message_id not in stored]
    changed = [
        body for message_id, body in bodies.items() if message_id in stored and differs(stored[message_id], body)
    ]
    if seen is not None and any(seen.get(one["id"]) != stored[one["id"]].revision for one in changed):
        raise Conflict("a message was changed meanwhile", code="unique")
    numbers = numbers_of(unit, known, {body["lion_class"] for body in (*new, *changed)})
    _insert(unit, [{**body, "lion_class": numbers[body["lion_class"]]} for body in new])
    for body in changed:
        unit.change(_REVISE, {**body, "lion_class": numbers[body["lion_class"]], "revised_at": now})
    return there | set(stored), [body["id"] for body in changed]


def refuse_unknown(unit: Unit, ids: Sequence[str]) -> set[str]:
    """Return these ids as a set. Raises `NotFound` for the first id without a stored message."""
    there = _stored_ids(unit, set(ids))
    for one in ids:
        if one not in there:
            raise NotFound(words.MESSAGE, one)
    return there


def ensure(unit: Unit, known: KnownClasses, body: MessageDraft, *, but: Collection[str] = ()) -> Message:
    """Store the message unless an equal one is stored, and return the stored message.

    Fields named in ``but`` are not compared. Raises `AlreadyExists` with the differing fields.
    """
    stored = unit.row(GET, body)
    if stored is None:
        numbers = numbers_of(unit, known, [body["lion_class"]])
        _insert(unit, [{**body, "lion_class": numbers[body["lion_class"]]}])
        [made] = unit.rows(GET, body)
        return made
    if fields := [name for name in differs(stored, body, given_only=True) if name not in but]:
        problem = f"already exists with another {', '.join(fields)}"
        raise AlreadyExists(words.MESSAGE, body["id"], problem=problem, fields=tuple(fields))
    return stored


def differs(stored: Message, body: Values, *, given_only: bool = False) -> list[str]:
    """Return the fields in which a message differs from the stored one.

    The embedding is compared only if the message has one. With ``given_only``, the same is true of every other field.
    """
    here = vars(stored)
    fields = [name for name in _TEXTS if here[name] != body[name] and not (given_only and _is_left_out(name, body))]
    fields += [
        name
        for name in _JSON
        if not (given_only and body[name] is None)
        and codec.canonical(here[name]) != codec.canonical(None if body[name] is None else codec.decode(body[name]))
    ]
    if body["embedding"] is not None:
        embedding = None if stored.embedding is None else similarity.pack(stored.embedding)
        if embedding != body["embedding"]:
            fields.append("embedding")
    return fields


def _insert(unit: Unit, rows: Sequence[Values]) -> None:
    if len(rows) == 1:
        unit.change(_INSERT, rows[0])
    elif rows:
        unit.insert(MESSAGES, _INSERT, rows)


def _bytes(text: str | None) -> int:
    return 0 if text is None else len(text) if text.isascii() else len(text.encode())


def _is_left_out(name: str, body: Values) -> bool:
    return body[name] in (None, words.UNKNOWN_CLASS)


def _class_of(where: str, new: NewMessage) -> str:
    """Return the class named by a message or its metadata, or the default class."""
    told = new.lion_class
    if told is None and isinstance(new.node_metadata, dict):
        inside = new.node_metadata.get("lion_class")
        told = inside if isinstance(inside, str) else None
    if told is None or told == "":
        return words.UNKNOWN_CLASS
    return valid.identifier(f"{where}.lion_class", told, _TYPE.lion_class)


def _by_id(bodies: Sequence[MessageDraft]) -> dict[str, MessageDraft]:
    """Return messages by id. An equal message may occur twice.

    Raises `InvalidValue` for two different messages of one id.
    """
    found: dict[str, MessageDraft] = {}
    for body in bodies:
        if found.setdefault(body["id"], body) != body:
            raise InvalidValue("messages", f"two different messages of the id {body['id']!r:.80}")
    return found


def _stored_ids(unit: Unit, ids: Collection[str]) -> set[str]:
    """Return those of these ids that have a message."""
    return set(unit.values(_THERE, _id_parameters(ids))) if ids else set()


def _rows(unit: Unit, statement: Statement[RowT], ids: Iterable[str]) -> list[RowT]:
    return unit.rows(statement, _id_parameters(ids))


def _id_parameters(ids: Iterable[str]) -> dict[str, str]:
    return {"ids": as_list([{"id": one} for one in sorted(ids)])}
