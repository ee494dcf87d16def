"""The rows that an agent stores: its instance, its values, and its acknowledgements.

One process at a time may write these rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.clock import iso_text
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import (
    Family,
    Row,
    bind,
    columns_of,
    constant,
    every_column_of,
    number,
    statement_of,
)
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import ClaimLost, NotFound
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.models import STATE
from lastlight_state.files.mailbox.projections import Ack, Head
from lastlight_state.files.mailbox.records import MessageOut, MessageOutSummary, StateEntry
from lastlight_state.files.mailbox.reports import StartReport
from lastlight_state.files.mailbox.shared import messages, queries
from lastlight_state.files.mailbox.shared.pair import MailboxPart, Pair
from lastlight_state.ids import new_id

# Deletion of acknowledgements whose messages the host has settled or removed, so that their number follows the live
# work.

#: The most rows that one call deletes, and the rows checked for each settled message: more than it adds.
_MOST, _EACH = 200, 7

_ack = models.ACKS.c
_SETTLED = statement_of(sa.select(*_ack).where(_ack.status != constant("processing")).limit(number(_MOST)), Ack)
_EARLIER = (
    sa.select(*_ack)
    .where(_ack.status != constant("processing"), _ack.message_id > bind("after", _ack.message_id))
    .order_by(_ack.message_id)
    .limit(bind("limit", sa.column("limit", sa.Integer)))
    .subquery()
)
#: The acknowledgements of these messages, and settled ones after a key.
_WITH_EARLIER = Family(
    "id",
    lambda ids: sa.union_all(sa.select(*_ack).where(_ack.message_id.in_(ids)), sa.select(*_EARLIER.c)),
    Ack,
)
#: The key reached so far, for the case that none of its rows can be read.
_LAST = statement_of(sa.select(sa.func.max(_EARLIER.c.message_id)))
_DELETE = Family("id", lambda ids: sa.delete(models.ACKS).where(_ack.message_id.in_(ids)))


def tidy(unit: Unit, pair: Pair) -> int:
    """Delete at most 200 unneeded acknowledgements. Returns their number, or 0 while the host's file cannot be read."""
    found = unit.readable_rows(_SETTLED)[0]
    if not found:
        return 0
    pair.own.tidied_to = ""
    ids = [ack.message_id for ack in found]
    heads = pair.other.look_if_sound(lambda look: look.rows_by_key(messages.HEADS_BY_ID, ids), None)
    if heads is None:
        return 0
    gone = unneeded_ids(found, {head.id: head for head in heads})
    forget(unit, gone)
    return len(gone)


def with_earlier(unit: Unit, pair: Pair, ids: Sequence[str]) -> tuple[dict[str, Ack], list[Ack]]:
    """Return the acknowledgements of these messages by id, and a few settled ones of others, other ones each time."""
    after, limit = pair.own.tidied_to or "", min(_EACH * len(ids), _MOST)
    statement, values = _WITH_EARLIER.of(ids)
    found, in_all = unit.readable_rows(statement, {**values, "after": after, "limit": limit})
    of_these = {ack.message_id: ack for ack in found if ack.message_id in ids}
    earlier = [ack for ack in found if ack.message_id not in of_these]
    place = max((ack.message_id for ack in earlier), default=None)
    if in_all < limit:
        place = ""  # at the end, start again at the beginning
    elif place is None:
        place = unit.value(_LAST, {"after": after, "limit": limit})
    pair.own.tidied_to = place if isinstance(place, str) else ""
    return of_these, earlier


def unneeded_ids(acks: Sequence[Ack], heads: Mapping[str, Head]) -> list[str]:
    """Return the messages among these that the host has settled or removed, by their ids."""
    return [
        ack.message_id
        for ack in acks
        if (head := heads.get(ack.message_id)) is None or head.status in models.ENDED or not messages.is_of(ack, head)
    ]


def forget(unit: Unit, ids: Sequence[str]) -> None:
    """Delete the acknowledgements of these messages."""
    if ids:
        unit.change(*_DELETE.of(ids))


# The statements of the agent's own file.

_acks, _out, _state = models.ACKS.c, models.MESSAGES_OUT.c, models.SESSION_STATE.c

_ACK_NAMES = ("status", "status_changed", "message_seq", "message_tries", "claimed_by", "error")
_upsert_ack = insert(models.ACKS).values(**{column.name: bind(column.name, column) for column in _acks})
PUT_ACK = statement_of(
    _upsert_ack.on_conflict_do_update(
        index_elements=[_acks.message_id], set_={name: _upsert_ack.excluded[name] for name in _ACK_NAMES}
    )
)
RELEASE = statement_of(
    sa.delete(models.ACKS).where(
        _acks.message_id == bind("message_id", _acks.message_id),
        _acks.status == constant("processing"),
        _acks.claimed_by.is_not_distinct_from(bind("claimed_by", _acks.claimed_by)),
    )
)

#: Inserts nothing if the id is taken.
INSERT = statement_of(
    insert(models.MESSAGES_OUT)
    .values(**{column.name: bind(column.name, column) for column in _out})
    .on_conflict_do_nothing(index_elements=[_out.id])
    .returning(*every_column_of(MessageOut, models.MESSAGES_OUT)),
    MessageOut,
)
LIST = Listing(
    "messages_out",
    [*columns_of(MessageOutSummary, models.MESSAGES_OUT), models.OUT_PLACE.label(models.PLACE)],
    order=(models.OUT_PLACE, _out.id),
    row=MessageOutSummary,
)

_put_state = insert(models.SESSION_STATE).values(**{column.name: bind(column.name, column) for column in _state})
PUT_STATE = statement_of(
    _put_state.on_conflict_do_update(
        index_elements=[_state.key],
        set_={"value": _put_state.excluded.value, "updated_at": _put_state.excluded.updated_at},
    )
)
_entry = every_column_of(StateEntry, models.SESSION_STATE)
GET_STATE = statement_of(sa.select(*_entry).where(_state.key == bind("key", _state.key)), StateEntry)
LIST_STATE = statement_of(sa.select(*_entry).order_by(_state.key), StateEntry)
DELETE_STATE = statement_of(sa.delete(models.SESSION_STATE).where(_state.key == bind("key", _state.key)))


# Values that an agent keeps over restarts, such as the conversation that it continues.

#: The key under which the original program kept its only conversation.
_LEGACY = "sdk_session_id"


class AgentState(MailboxPart):
    """The agent's stored values: ``agent.state``."""

    def get(self, key: str) -> str:
        """Return the value stored under this key. Raises `NotFound`."""
        found = self.find(key)
        if found is None:
            raise NotFound(STATE, key)
        return found

    def find(self, key: str) -> str | None:
        """Return the value, or None."""
        found = self._find(GET_STATE, {"key": valid.lookup_text("key", key)})
        return None if found is None else found.value

    def put(self, key: str, value: str) -> None:
        """Store a value of at most 256 KiB under this key."""
        row = self._row(valid.identifier("key", key, models.STATE_KEY_BYTES), value)
        self._writing(lambda unit: unit.change(PUT_STATE, row), repeatable=True)

    def clear(self, key: str) -> bool:
        """Delete the value stored under this key. Returns True if there was one."""
        asked = {"key": valid.lookup_text("key", key)}
        return self._writing(lambda unit: unit.change(DELETE_STATE, asked)) > 0

    def list(self) -> Sequence[StateEntry]:
        """Return all values, by key."""
        return self._list_rows(LIST_STATE)

    def continuation(self, provider: str) -> str | None:
        """Return the conversation with this provider that is to be continued, or None.

        A conversation that the original program stored is given to the first provider for which this is called. If that
        provider has a conversation already, the old one is dropped.
        """
        slot = _slot(provider)
        if self.find(_LEGACY) is not None:
            now = iso_text(self._now())
            self._writing(lambda unit: _adopt(unit, slot, now))
        return self.find(slot)

    def put_continuation(self, provider: str, value: str) -> None:
        """Store the id of the conversation with this provider."""
        self.put(_slot(provider), value)

    def clear_continuation(self, provider: str) -> bool:
        """Delete the conversation with this provider. Returns True if there was one."""
        return self.clear(_slot(provider))

    def _row(self, key: str, value: str) -> Row:
        text = valid.content("value", value, self._settings.limits.agent_state)
        return {"key": key, "value": text, "updated_at": iso_text(self._now())}


def _slot(provider: str) -> str:
    return f"continuation:{valid.identifier('provider', provider, models.STATE_KEY_BYTES - 13).lower()}"


def _adopt(unit: Unit, slot: str, now: str) -> None:
    legacy = unit.row(GET_STATE, {"key": _LEGACY})
    if legacy is None:
        return
    if unit.row(GET_STATE, {"key": slot}) is None:
        unit.change(PUT_STATE, {"key": slot, "value": legacy.value, "updated_at": now})
    unit.change(DELETE_STATE, {"key": _LEGACY})


_INSTANCE = "agent_instance"
_FREE = statement_of(sa.delete(models.ACKS).where(models.ACKS.c.status == constant("processing")))

_tool = models.CONTAINER_STATE.c
_NAMES = ("current_tool", "tool_declared_timeout_ms", "tool_started_at", "updated_at")
_put = insert(models.CONTAINER_STATE).values(id=number(1), **{name: bind(name, _tool[name]) for name in _NAMES})
_PUT_TOOL = statement_of(
    _put.on_conflict_do_update(index_elements=[_tool.id], set_={name: _put.excluded[name] for name in _NAMES})
)


def bind_instance(pair: Pair, instance: str | None) -> Pair:
    """Return the files of a mailbox. Their writes are refused once another agent instance replaces this one."""
    pair.instance = None if instance is None else valid.identifier("instance", instance)
    pair.own.admit = lambda unit: _admit(unit, pair)
    return pair


def start(pair: Pair) -> StartReport:
    """Begin a new instance. All later writes of earlier instances are refused."""

    def work(unit: Unit) -> tuple[str, int]:
        lives = _number(queries.find(unit, pair.declared, _INSTANCE)) + 1
        instance = f"{lives}-{new_id()}"
        queries.put(unit, pair.declared, _INSTANCE, instance)
        return instance, unit.change(_FREE)

    pair.instance = None
    pair.instance, freed = pair.own.write(work)
    pair.first_poll = True
    tidied = pair.own.write(lambda unit: tidy(unit, pair))
    return StartReport(instance=pair.instance, freed=freed, tidied=tidied)


def tool_started(pair: Pair, name: str, timeout: timedelta | None) -> None:
    """Record which tool the agent is using."""
    millis = None if timeout is None else int(valid.duration("timeout", timeout) / timedelta(milliseconds=1))
    now = iso_text(pair.clock.now())
    tool = valid.identifier("name", name)
    _put_tool(pair, current_tool=tool, tool_declared_timeout_ms=millis, tool_started_at=now, updated_at=now)


def tool_finished(pair: Pair) -> None:
    """Record that the agent is using no tool."""
    now = iso_text(pair.clock.now())
    _put_tool(pair, current_tool=None, tool_declared_timeout_ms=None, tool_started_at=None, updated_at=now)


def _put_tool(pair: Pair, **values: object) -> None:
    pair.context.scope.write(lambda unit: unit.change(_PUT_TOOL, values))


def _admit(unit: Unit, pair: Pair) -> None:
    """Raise `ClaimLost` if the writing agent instance has been replaced by another."""
    if pair.instance is None:
        return
    stored = queries.find(unit, pair.declared, _INSTANCE)
    if stored != pair.instance:
        raise ClaimLost(
            pair.place.key,
            presented=_number(pair.instance),
            current_epoch=_number(stored),
            held_by=stored,
            status="replaced",
            kind="agent",
        )


def _number(instance: str | None) -> int:
    """Return the number of an agent instance, or 0 if another program stored anything that is no number."""
    first = (instance or "").partition("-")[0]
    return int(first) if first.isascii() and first.isdigit() else 0
