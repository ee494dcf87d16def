from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from support.each import with_each

from lastlight_state.db.rows.records import Record
from lastlight_state.plain import plain

MOMENT = datetime(2026, 2, 3, 12, 34, 56, 789_000, tzinfo=UTC)


@dataclass(frozen=True)
class Sized:
    size: int


class Dated(Record):
    at: datetime
    parts: tuple[Sized, ...]


@with_each(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (MOMENT, "2026-02-03T12:34:56.789Z"),
        (timedelta(minutes=1), 60.0),
        (Decimal("0.100000"), "0.1"),
        (Decimal("1E+6"), "1000000"),
        (Decimal("0.000000"), "0"),
        (b"\xff", "/w=="),
        (Path("a/b"), "a/b"),
        ({1: (2, 3)}, {"1": [2, 3]}),
        ({"x"}, ["x"]),
        (Dated(at=MOMENT, parts=(Sized(1),)), {"at": "2026-02-03T12:34:56.789Z", "parts": [{"size": 1}]}),
    ],
)
def test_values_become_json_types(value: Any, expected: Any) -> None:
    """maintenance OP-71."""
    assert plain(value) == expected
