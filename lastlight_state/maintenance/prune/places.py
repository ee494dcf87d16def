"""Places in an order of records by a time and a key, such as that of their ends; as receipts keep them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypedDict

from lastlight_state.clock import exact_iso_text
from lastlight_state.db.columns import parse_time
from lastlight_state.db.statements import Row, Statement
from lastlight_state.db.unit import Unit

#: The time of a record, and its key.
Place = tuple[datetime, str]


class Ended(TypedDict):
    """A record, and the time of its place."""

    key: str
    age: datetime


#: Before every record.
START: Place = (datetime(1, 1, 1, tzinfo=UTC), "")


def written(place: Place) -> list[str]:
    """A place as JSON."""
    return [exact_iso_text(place[0]), place[1]]


def read(value: list[str]) -> Place:
    """A place that was `written`."""
    moment, key = value
    return parse_time(moment), key


def bounded(unit: Unit, boundary: Statement[Ended], terms: Mapping[str, Any], **values: Any) -> Row:
    """Return the terms with the place ``until`` which records may go: old enough, and not among the newest.

    ``boundary`` finds the ``age`` and the ``key`` of the record before which ``kept`` others are newer.
    """
    until = read([terms["cutoff"], ""])
    if terms["keep_n"]:
        last_kept = unit.row(boundary, {"kept": terms["keep_n"] - 1, **values})
        until = START if last_kept is None else min(until, (last_kept["age"], last_kept["key"]))
    return {**terms, "until": written(until)}
