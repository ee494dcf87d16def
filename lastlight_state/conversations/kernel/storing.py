"""Storing messages: those that are new are inserted, those that have changed are revised, equal ones are left alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations import checks, words
from lastlight_state.conversations.arguments import NewMessage
from lastlight_state.conversations.projections import MessageDraft, WholeMessageRow
from lastlight_state.conversations.records import Message
from lastlight_state.conversations.rows import MessageTypeRow
from lastlight_state.conversations.tables import MESSAGES, TYPES
from lastlight_state.conversations.words import UNKNOWN_CLASS, UNKNOWN_TYPE
from lastlight_state.db import valid
from lastlight_state.db.rows.statements import RowT, Statement, Values, bind, number, prepared
from lastlight_state.db.rows.writes import as_list, listed
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.schema.indexes import AmongFew
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, InvalidValue, NotFound, PayloadTooLarge

# The numbers of message classes: a class gets its number in the transaction of the first message that has it.
#
# A store remembers numbers only after their commit, so a message that is rolled back leaves no number behind.

_types = TYPES.c
_LOCK = "conversation_message_types"

_KNOWN = prepared(
    sa.select(_types.type_id, _types.lion_class).where(
        AmongFew(_types.lion_class, sa.select(member_of(listed("names").c.value, "name")))
    ),
    MessageTypeRow,
)
_ADD = prepared(
    sa.insert(TYPES)
    .from_select(
        ["type_id", "lion_class"],
        sa.select(sa.func.max(_types.type_id) + number(1), bind("lion_class", _types.lion_class)),
        include_defaults=False,
    )
    .returning(_types.type_id)
)


class KnownClasses:
    """The numbers that a store has learned."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {UNKNOWN_CLASS: UNKNOWN_TYPE}


def numbers_of(unit: Unit, known: KnownClasses, names: Iterable[str]) -> dict[str, int]:
    """Return the number of each class. New ones are given the next numbers, by one unit at a time."""
    found = {name: known.numbers.get(name) for name in names}
    missing = sorted(name for name, type_id in found.items() if type_id is None)
    if missing:
        learned = _stored(unit, missing)
        if len(learned) < len(missing):
            unit.named_lock(_LOCK)
            learned = _stored(unit, missing)
            learned |= {name: unit.value(_ADD, {"lion_class": name}) for name in missing if name not in learned}
        unit.after_commit(lambda: known.numbers.update(learned))
        found |= learned
    return {name: type_id for name, type_id in found.items() if type_id is not None}


def _stored(unit: Unit, names: Iterable[str]) -> dict[str, int]:
    rows = unit.rows(_KNOWN, {"names": as_list([{"name": name} for name in names])})
    return {row["lion_class"]: row["type_id"] for row in rows}


_MOST, _TYPE = limits_of(MESSAGES), limits_of(TYPES)

T = TypeVar("T")

_c = MESSAGES.c
_JSON = ("node_metadata", "extra", "content")
#: In what two messages of one id differ that are not equal.
_TEXTS = ("sender", "recipient", "channel", "role", "lion_class")
_REPLACED = ("sender", "recipient", "channel", "role", "lion_class", "embedding_model", *_JSON, "embedding")
#: How often a unit is repeated that lost to another one, which stored a message of the same id.
_ATTEMPTS = 5

_NARROW = [column for column in MESSAGES.columns if column.name not in ("embedding_model", *_JSON, "embedding")]
_WIDE = [MESSAGES.c[name] for name in ("embedding_model", *_JSON, "embedding")]


#: By its key, and not by a join, with which SQLite's planner may begin.
_CLASS = sa.select(TYPES.c.lion_class).where(TYPES.c.type_id == _c.lion_class).scalar_subquery().label("lion_class")

#: The columns of a `MessageSummary` and of a `Message`, the class by its name.
SUMMARY = [_CLASS if column is _c.lion_class else column for column in _NARROW]
COLUMNS = [*SUMMARY, *_WIDE]

_wanted = AmongFew(_c.id, sa.select(member_of(listed("ids").c.value, "id")))

GET = prepared(sa.select(*COLUMNS).where(_c.id == bind("id", _c.id)), WholeMessageRow)
MANY = prepared(sa.select(*COLUMNS).where(_wanted), WholeMessageRow)
#: In the order of their ids, as messages are inserted. Does not wait for those who only refer to them (foreign keys).
_LOCKED = prepared(
    sa.select(*COLUMNS).where(_wanted).order_by(_c.id).with_for_update(of=MESSAGES, key_share=True), WholeMessageRow
)
_THERE = prepared(sa.select(_c.id).where(_wanted))
_INSERT = prepared(sa.insert(MESSAGES).values({column.name: bind(column.name, column) for column in MESSAGES.columns}))
_REVISE = prepared(
    sa.update(MESSAGES)
    .where(_c.id == bind("id", _c.id))
    .values(
        **{name: bind(name, _c[name]) for name in _REPLACED},
        revision=_c.revision + number(1),
        revised_at=bind("revised_at", _c.revised_at),
    )
)


def draft(where: str, given: NewMessage, now: datetime) -> MessageDraft:
    """Return the parameters of a message, its class by its name."""
    new = valid.group(where, given, NewMessage)
    moment, exact = checks.created(f"{where}.created_at", new.created_at, now)
    return {
        "id": valid.identifier(f"{where}.id", new.id, _MOST.id),
        "created_at": moment,
        "created_at_unix": exact,
        "sender": checks.name(f"{where}.sender", new.sender, _MOST.sender),
        "recipient": checks.name(f"{where}.recipient", new.recipient, _MOST.recipient),
        "channel": checks.name(f"{where}.channel", new.channel, _MOST.channel),
        "role": valid.identifier(f"{where}.role", new.role, _MOST.role),
        "lion_class": _class_of(where, new),
        "revision": 0,
        "revised_at": None,
        "embedding_model": None,
        "node_metadata": checks.encoded(f"{where}.node_metadata", new.node_metadata, _MOST.node_metadata),
        "extra": checks.encoded(f"{where}.extra", new.extra, _MOST.extra),
        "content": checks.content(f"{where}.content", new.content),
        "embedding": checks.embedding(f"{where}.embedding", new.embedding),
    }


def drafts(where: str, given: Sequence[NewMessage | str], now: datetime) -> list[MessageDraft | str]:
    """Return the parameters of messages, and the ids of those that are stored already, in their order."""
    found: list[MessageDraft | str] = [
        valid.identifier(f"{where}[{i}]", one, _MOST.id) if isinstance(one, str) else draft(f"{where}[{i}]", one, now)
        for i, one in enumerate(checks.batch(where, given, words.BATCH))
    ]
    _refuse_large(where, [one for one in found if not isinstance(one, str)])
    return found


def new_drafts(where: str, given: Sequence[NewMessage], now: datetime) -> list[MessageDraft]:
    """Return the parameters of messages in their order. Raises `InvalidValue` for two different messages of one id."""
    found = [draft(f"{where}[{i}]", one, now) for i, one in enumerate(checks.batch(where, given, words.BATCH))]
    _refuse_large(where, found)
    _by_id(found)
    return found


def _refuse_large(where: str, found: Sequence[MessageDraft]) -> None:
    size = sum(_bytes(one["content"]) + _bytes(one["extra"]) for one in found)
    if size > words.BATCH_BYTES:
        raise PayloadTooLarge(where, limit=words.BATCH_BYTES, actual=size)


def id_of(one: MessageDraft | str) -> str:
    """Return the id of a draft, or of a message that is stored already."""
    return one if isinstance(one, str) else one["id"]


class RestartUnit(Exception):
    """Raised by a unit that needs a lock which comes before those that it holds. The next attempt locks it first."""


def retry_storing(store: Callable[[], T]) -> T:
    """Call ``store`` and return its result. Retry if another unit has stored a message that ``store`` found missing.

    After `RestartUnit` it is called again without a limit.
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


def ensured(make: Callable[[], T]) -> T:
    """Call ``make``, which makes a row unless it exists, and return its result.

    Calls it once more if another caller made the row after ``make`` had looked: the second call finds the row. An
    `AlreadyExists` that names the ``fields`` that differ is raised as it is.
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
    """Store the given messages. Return the ids that were stored already, and the ids of those that this call changed.

    With ``seen`` a stored message may change only if its revision is the one there. Otherwise `Conflict` is raised, and
    the unit is retried.
    Raises `NotFound` for an id without a message, `InvalidValue` for two different messages of one id.
    """
    bodies = _by_id([one for one in given if not isinstance(one, str)])
    referred = {one for one in given if isinstance(one, str)} - set(bodies)
    stored = {row["id"]: row for row in _rows(unit, _LOCKED, bodies)} if bodies else {}
    there = refuse_unknown(unit, [one for one in given if isinstance(one, str) and one in referred])
    new = [bodies[message_id] for message_id in sorted(bodies) if message_id not in stored]
    changed = [
        body for message_id, body in bodies.items() if message_id in stored and differs(stored[message_id], body)
    ]
    if seen is not None and any(seen.get(one["id"]) != stored[one["id"]]["revision"] for one in changed):
        raise Conflict("a message was changed meanwhile", code="unique")
    numbers = numbers_of(unit, known, {body["lion_class"] for body in (*new, *changed)})
    _insert(unit, [{**body, "lion_class": numbers[body["lion_class"]]} for body in new])
    for body in changed:
        unit.change(_REVISE, {**body, "lion_class": numbers[body["lion_class"]], "revised_at": now})
    return there | set(stored), [body["id"] for body in changed]


def create_all(unit: Unit, known: KnownClasses, given: Sequence[MessageDraft]) -> list[Message]:
    """Store new messages and return them in the given order. Raises `AlreadyExists` for the first id that is stored."""
    bodies = _by_id(given)
    there = {row["id"] for row in _rows(unit, _THERE, bodies)} if bodies else set()
    for one in bodies:
        if one in there:
            raise AlreadyExists(words.MESSAGE, one)
    numbers = numbers_of(unit, known, {body["lion_class"] for body in bodies.values()})
    _insert(unit, [{**bodies[one], "lion_class": numbers[bodies[one]["lion_class"]]} for one in sorted(bodies)])
    made = {row["id"]: Message.of(row) for row in _rows(unit, MANY, bodies)} if bodies else {}
    return [made[body["id"]] for body in given]


def refuse_unknown(unit: Unit, ids: Sequence[str]) -> set[str]:
    """Return these ids as a set. Raises `NotFound` for the first id without a stored message."""
    there = {row["id"] for row in _rows(unit, _THERE, set(ids))} if ids else set()
    for one in ids:
        if one not in there:
            raise NotFound(words.MESSAGE, one)
    return there


def ensure(unit: Unit, known: KnownClasses, body: MessageDraft, *, but: Collection[str] = ()) -> Message:
    """Store the message unless an equal one is stored, and return the stored one. The fields ``but`` are not compared.

    Raises `AlreadyExists` with the fields that differ.
    """
    stored = unit.row(GET, body)
    if stored is None:
        numbers = numbers_of(unit, known, [body["lion_class"]])
        _insert(unit, [{**body, "lion_class": numbers[body["lion_class"]]}])
        [made] = unit.all(Message.of, GET, body)
        return made
    if fields := [name for name in differs(stored, body, given_only=True) if name not in but]:
        problem = f"already exists with another {', '.join(fields)}"
        raise AlreadyExists(words.MESSAGE, body["id"], problem=problem, fields=tuple(fields))
    return Message.of(stored)


def differs(stored: Values, body: Values, *, given_only: bool = False) -> list[str]:
    """Return the fields in which a message differs from the stored one.

    An embedding is compared only if one is given. With ``given_only`` this goes for every field.
    """
    fields = [name for name in _TEXTS if stored[name] != body[name] and not (given_only and _is_left_out(name, body))]
    fields += [
        name
        for name in _JSON
        if not (given_only and body[name] is None)
        and codec.canonical(stored[name]) != codec.canonical(None if body[name] is None else codec.decode(body[name]))
    ]
    if body["embedding"] is not None and stored["embedding"] != body["embedding"]:
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
    """Return the class that a message names, or the default class where it names none."""
    told = new.lion_class
    if told is None and isinstance(new.node_metadata, dict):
        inside = new.node_metadata.get("lion_class")
        told = inside if isinstance(inside, str) else None
    if told is None or told == "":
        return words.UNKNOWN_CLASS
    return valid.identifier(f"{where}.lion_class", told, _TYPE.lion_class)


def _by_id(bodies: Sequence[MessageDraft]) -> dict[str, MessageDraft]:
    """Return messages by their ids. The same one may stand there twice."""
    found: dict[str, MessageDraft] = {}
    for body in bodies:
        if found.setdefault(body["id"], body) != body:
            raise InvalidValue("messages", f"two different messages of the id {body['id']!r:.80}")
    return found


def _rows(unit: Unit, statement: Statement[RowT], ids: Iterable[str]) -> list[RowT]:
    return unit.rows(statement, {"ids": as_list([{"id": one} for one in sorted(ids)])})
