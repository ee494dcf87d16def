"""What a caller says about signals, checked and as statements name it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.statements import Row
from lastlight_state.errors import InvalidValue
from lastlight_state.journal.arguments import ANY, SignalFilter
from lastlight_state.journal.tables import SIGNALS

_MOST = limits_of(SIGNALS)


class SignalDraft(TypedDict):
    """The row of a signal to store, which has no number yet."""

    run_id: str
    signal_name: str
    correlation_id: str | None
    received_at: datetime
    received_by: str | None
    signal_id: str | None
    payload: str


def signal(
    run_id: str,
    name: Any,
    payload: Any,
    correlation_id: Any,
    at: datetime | None,
    received_by: str | None,
    signal_id: str | None,
    now: datetime,
) -> SignalDraft:
    """Return the parameters of a signal."""
    return {
        "run_id": valid.identifier("run_id", run_id, _MOST.run_id),
        "signal_name": trimmed_name("signal_name", name),
        "correlation_id": trimmed_correlation("correlation_id", correlation_id),
        "received_at": now if at is None else aware_utc("at", at),
        "received_by": valid.optional("received_by", received_by, _MOST.received_by),
        "signal_id": valid.optional("signal_id", signal_id, _MOST.signal_id),
        "payload": codec.encode("payload", payload, max_bytes=_MOST.payload),
    }


def trimmed_name(where: str, name: Any) -> str:
    """The name of a signal without blanks around it."""
    return valid.identifier(where, name.strip() if isinstance(name, str) else name, _MOST.signal_name)


def trimmed_correlation(where: str, correlation_id: Any) -> str | None:
    """A correlation id without blanks around it; a blank one is None."""
    found: str | None = valid.optional(
        where,
        (correlation_id.strip() or None) if isinstance(correlation_id, str) else correlation_id,
        _MOST.correlation_id,
    )
    return found


def filters(run_id: str, where: SignalFilter | None, after_seq: int | None, page_token: str | None = None) -> Row:
    """The filters of a list, by name."""
    asked = SignalFilter() if where is None else valid.group("where", where, SignalFilter)
    if after_seq is not None and page_token is not None:
        raise InvalidValue("page_token", "must not be given together with after_seq")
    name = asked.signal_name
    return {
        "run_id": valid.sought("run_id", run_id),
        "signal_name": None if name is None else trimmed_name("where.signal_name", name),
        **correlation("where.correlation_id", asked.correlation_id),
        "received_after": None
        if asked.received_after is None
        else aware_utc("where.received_after", asked.received_after),
        "after_seq": None if after_seq is None else valid.number("after_seq", after_seq, least=-1),
    }


def correlation(where: str, correlation_id: Any) -> Row:
    """The filter by a correlation id: one of the three, or none."""
    if correlation_id is ANY:
        return {}
    found = trimmed_correlation(where, correlation_id)
    return {"uncorrelated": {}} if found is None else {"correlation_id": found}
