"""Checks of arguments about events, which become the parameters of statements."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import InvalidValue, StateError
from lastlight_state.journal import models
from lastlight_state.journal.arguments import EventFilter, NewEvent
from lastlight_state.journal.models import EVENTS

_LIMITS = limits_of(EVENTS)


class EventDraft(TypedDict):
    """The row of an event to store, which has no number yet."""

    run_id: str
    type: str
    occurred_at: datetime
    node_id: str | None
    event_id: str | None
    payload: str


def event(run_id: str, given: NewEvent, now: datetime, where: str = "") -> EventDraft:
    """Return the columns of a new event. Its time defaults to ``now``.

    ``where`` is the prefix of argument names in errors.
    """
    at = now if given.at is None else aware_utc(where + "at", given.at)
    return row(run_id, given.type, given.payload, at, given.event_id, given.node_id, where)


def row(
    run_id: str,
    kind: str,
    payload: dict[str, Any] | None,
    at: datetime,
    event_id: str | None,
    node_id: str | None,
    where: str = "",
) -> EventDraft:
    """Return the columns of a new event from separate arguments, so that callers need not build a `NewEvent`."""
    if payload is None:
        payload = {}
    elif not isinstance(payload, dict):
        raise InvalidValue(where + "payload", f"expected an object, got {type(payload).__name__}")
    return {
        "run_id": run_id,
        "type": valid.identifier(where + "type", kind, _LIMITS.type),
        "occurred_at": at,
        "node_id": _node(where, node_id, payload),
        "event_id": None if event_id is None else valid.identifier(where + "event_id", event_id, _LIMITS.event_id),
        "payload": codec.encode(where + "payload", payload, max_bytes=_LIMITS.payload),
    }


def events(run_id: str, given: Sequence[NewEvent], now: datetime) -> list[EventDraft]:
    """Return the columns of several new events. An error names an invalid event by its position."""
    try:
        return [event(run_id, one, now) for one in given]
    except StateError:
        return [event(run_id, one, now, f"events[{i}].") for i, one in enumerate(given)]


def is_replay(given: NewEvent) -> bool:
    """True if the event's content identifies the event, because the caller gives its time but no key."""
    return given.at is not None and given.event_id is None


def batch(given: Any) -> Sequence[NewEvent]:
    """Return the given events. Raises `InvalidValue` unless they are a sequence of 1 to 1,000 new events."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InvalidValue("events", f"expected a sequence of events, got {type(given).__name__}")
    valid.number("events", len(given), least=1, most=models.BATCH)
    for i, one in enumerate(given):
        if type(one) is not NewEvent:
            valid.argument_group(f"events[{i}]", one, NewEvent)
    return given


def filters(run_id: str, where: EventFilter | None, after_seq: int | None, page_token: str | None = None) -> Row:
    """Return the checked filters of a list of events, by name."""
    asked = EventFilter() if where is None else valid.argument_group("where", where, EventFilter)
    if after_seq is not None and page_token is not None:
        raise InvalidValue("page_token", "must not be given together with after_seq")
    types = valid.several("where.types", asked.types)
    valid.at_most("where.types", types, models.TYPES)
    return {
        "run_id": valid.lookup_text("run_id", run_id),
        "types": [valid.identifier("where.types", one, _LIMITS.type) for one in types] or None,
        "node_id": valid.optional("where.node_id", asked.node_id, _LIMITS.node_id),
        "since": None if asked.since is None else aware_utc("where.since", asked.since),
        "until": None if asked.until is None else aware_utc("where.until", asked.until),
        "after_seq": None if after_seq is None else valid.number("after_seq", after_seq, least=-1),
    }


def _node(where: str, argument: str | None, payload: dict[str, Any]) -> str | None:
    """Return an event's node: the argument, else the payload's value if that is a valid node id.

    The payload's key is ``nodeId`` if it is there, else ``node_id``. Raises `InvalidValue` if argument and payload
    differ.
    """
    told = payload["nodeId"] if "nodeId" in payload else payload.get("node_id")
    named = told if told is not None and valid.is_identifier(told, _LIMITS.node_id) else None
    if argument is None:
        return named
    node_id = valid.identifier(where + "node_id", argument, _LIMITS.node_id)
    if named not in (None, node_id):
        raise InvalidValue(where + "node_id", "must be the node that the payload names")
    return node_id
