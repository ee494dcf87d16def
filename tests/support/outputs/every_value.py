"""Output tables with every type of field, each with values that some database, driver or format could change."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from itertools import count, islice
from pathlib import PurePosixPath
from typing import Any, Literal
from uuid import UUID

import sqlalchemy as sa
from pydantic import AwareDatetime, BaseModel, NaiveDatetime, create_model

from lastlight_state import StateStore
from lastlight_state.testing import Database
from lastlight_state.workflows import RunOptions, Trigger


class Level(Enum):
    LOW = "low"
    ODD = "ö\n\t\\N"


class Rank(IntEnum):
    FIRST = 1
    LAST = 2**62


class Mixed(Enum):
    TEXT = "a"
    NUMBER = 1


class Inner(BaseModel):
    """A model inside a model."""

    text: str
    more: list[Inner] = []
    exact: Decimal = Decimal("1.10")
    at: datetime = datetime(2026, 1, 1, 1, 2, 3, tzinfo=UTC)


_TEXTS = [
    *("", " ", "\\N", "\\.", "\\", "\t\n\r\b\f\v", "\x01\x7f\x85", "\u2028\u2029\ufeff", "ä😀\U0010ffff", "e\u0301"),
    *('{"a": 1.0}', "\\u0041", "null", "None", "NaN", "1e5", "x" * 70_000, "'; --", '"', "$1 %s :x ?", "\ue000\uffff"),
]
_DECIMALS = [
    *("19.90", "0", "0.00", "-0.10", "1E+5", "1E-20", "1.0E-400", "123456789012345678901234567890.123456789"),
    *("9" * 1_000, "-" + "1" * 500 + ".0", "0." + "0" * 400 + "1", "100", "1e2", "12345678901234567890123456789"),
]
_FLOATS = [0.1, 1e300, 5e-324, 1.7976931348623157e308, 2.0, 1e16, 123456789012345.67, -1.5, 0.1 + 0.2, 2.0**63, 1e-7]
_WHOLE = [0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1]
_TIMES = [
    datetime(2026, 7, 27, 23, 0, tzinfo=UTC),
    datetime(2026, 3, 29, 2, 30, 0, 123_000, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    datetime(1, 1, 2, tzinfo=UTC),
    datetime(9999, 12, 30, 23, 59, 59, 999_000, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 1_000, tzinfo=timezone(-timedelta(hours=11))),
]
_JSON: list[Any] = [
    *({}, [], "", "null", False, 0, 1.5, "text"),
    *(
        [None, [None, {}]],
        {"": {"ключ": "\u2028"}},
        [2**63 - 1, -(2**63)],
        [1e300, 5e-324, 0.1],
        {"b": 1, "a": {"z": [], "y": 2}},
    ),
    *({"deep": [[[[[[[[[["x"]]]]]]]]]]}, ["\\u0041", "\\", '"'], {"a.b": 1, "a b": 2, "$": 3}),
]

#: For each field its type and values. None is tried wherever it is permitted.
FIELDS: dict[str, tuple[Any, list[Any]]] = {
    "text": (str, _TEXTS),
    "whole": (int, _WHOLE),
    "number": (float, _FLOATS),
    "either_number": (int | float, [1, 1.5, 2**53]),
    "flag": (bool, [True, False]),
    "exact": (Decimal, [Decimal(text) for text in _DECIMALS]),
    "moment": (datetime, _TIMES),
    "aware": (AwareDatetime, _TIMES),
    "naive": (NaiveDatetime, [datetime(2026, 1, 2, 3, 4, 5, 678_901), datetime(1, 1, 1)]),  # noqa: DTZ001
    "day": (date, [date(2026, 2, 28), date(1, 1, 1), date(9999, 12, 31)]),
    "clock_time": (time, [time(23, 59, 59, 999_999), time(0), time(1, 2, tzinfo=UTC)]),
    "duration": (timedelta, [timedelta(0), timedelta(days=-1, microseconds=1), timedelta(days=40, seconds=3)]),
    "uuid": (UUID, [UUID(int=0), UUID(int=2**128 - 1)]),
    "path": (PurePosixPath, [PurePosixPath("/a b/ü"), PurePosixPath(".")]),
    "level": (Level, list(Level)),
    "rank": (Rank, list(Rank)),
    "mixed": (Mixed, list(Mixed)),
    "word": (Literal["a", "b\\"], ["a", "b\\"]),
    "digit": (Literal[1, 2], [1, 2]),
    "odd": (Literal["a", 1], ["a", 1]),
    "inner": (Inner, [Inner(text="x"), Inner(text="\\N", more=[Inner(text="\t", exact=Decimal("0.00"))])]),
    "texts": (list[str], [[], _TEXTS[:-6]]),
    "decimals": (list[Decimal], [[], [Decimal(text) for text in _DECIMALS[:8]]]),
    "moments": (dict[str, datetime], [{}, {"a": _TIMES[0], "b": _TIMES[1]}]),
    "numbers": (tuple[int, float, str], [(1, 1.5, "x"), (2**63 - 1, 1e300, "")]),
    "several": (set[str], [set(), {"b", "a", "c"}]),
    "frozen": (frozenset[int], [frozenset(), frozenset({3, 1, 2})]),
    "inners": (dict[str, list[Inner]], [{}, {"a": [Inner(text="y")]}]),
    "union": (int | str | list[int], [1, "1", [1]]),
    "anything": (Any, _JSON),
}
#: Types whose tables have one column, the payload.
PAYLOADS: dict[str, tuple[Any, list[Any]]] = {
    "whole_json": (Any, _JSON),
    "whole_text": (str, _TEXTS),
    "whole_decimals": (list[Decimal], [[Decimal(text)] for text in _DECIMALS]),
    "whole_none": (int | None, [None, 1]),
    "whole_inner": (list[Inner], [[Inner(text="x")], []]),
}
#: Columns of a table of a service's own, as Postgres and as SQLite name their types. SQLite has no exact numbers.
_OWN: dict[str, tuple[sa.types.TypeEngine[Any], str, str | None, list[Any]]] = {
    "blob": (sa.LargeBinary(), "bytea", "blob", [b"", b"\0\xff\\x", bytes(range(256))]),
    "number": (sa.Double(), "double precision", "real", _FLOATS),
    "flag": (sa.Boolean(), "boolean", "boolean", [True, False]),
    "text": (sa.Text(), "text", "text", _TEXTS),
    "facts": (sa.JSON(), "jsonb", "text", [{"a": [1.5, None]}, [1], "x"]),
    "exact": (
        sa.Numeric(),
        "numeric(20, 4)",
        None,
        [Decimal("19.90"), Decimal("0.0001"), Decimal(-1234567890123456)],
    ),
    "moment": (sa.DateTime(timezone=True), "timestamptz", None, _TIMES[:2]),
}
_NEEDED: dict[str, Any] = {name: (kind | None, ...) for name, (kind, _) in FIELDS.items()}
_GIVEN: dict[str, Any] = {name: (kind | None, values[0]) for name, (kind, values) in FIELDS.items()}
WHOLE: Any = create_model("Whole", **_NEEDED)
DEFAULTS: Any = create_model("Defaults", **_GIVEN)


def define(store: StateStore) -> None:
    """Define the output tables; what the models say is known to this process alone."""
    store.outputs.catalog.define_all(
        {"every_field": WHOLE, "every_default": DEFAULTS, **{key: kind for key, (kind, _) in PAYLOADS.items()}}
    )


def attach(store: StateStore, database: Database) -> None:
    """Attach a table of a service's own, ``own``, with a type that only such tables have."""
    place = 1 if database.name == "postgresql" else 2
    there = {name: kinds for name, kinds in _OWN.items() if kinds[place] is not None}
    declared = "".join(f", {name} {kinds[place]}" for name, kinds in there.items())
    database.raw().execute(f"CREATE TABLE own (run_id text, node_id text{declared}, PRIMARY KEY (run_id, node_id))")
    keys = [sa.Column(name, sa.Text, primary_key=True) for name in ("run_id", "node_id")]
    columns = [sa.Column(name, kinds[0]) for name, kinds in there.items()]
    store.outputs.catalog.attach("own", sa.Table("own", sa.MetaData(), *keys, *columns))


def fill(store: StateStore, run_id: str) -> None:
    """Make an ended run with a row for each value of every field."""
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id=run_id))
    put = store.outputs.results.put
    for n, row in enumerate(_rows(FIELDS)):
        put("every_field", run_id, f"n{n}", row)
    put("every_field", run_id, "none", dict.fromkeys(FIELDS))
    put("every_default", run_id, "default", {})
    put("every_default", run_id, "none", dict.fromkeys(FIELDS))
    for key, (_, values) in PAYLOADS.items():
        for n, value in enumerate(values):
            put(key, run_id, f"n{n}", value)
    own = {column.name for column in store.outputs.catalog.get("own").domain}
    for n, row in enumerate(_rows({name: (kinds[0], kinds[3]) for name, kinds in _OWN.items() if name in own})):
        put("own", run_id, f"n{n}", row)
    put("whole_json", run_id, "n0", {"replaced": ["19.90"]})  # what it held is in the history
    store.workflows.runs.finish(run_id, "succeeded")


def found(store: StateStore, run_id: str) -> dict[tuple[str, str], str]:
    """What every row of the run gives back, spelt out so that types, digits and zones are compared, too."""
    everything: dict[tuple[str, str], str] = {}
    for key in ("every_field", "every_default", *PAYLOADS):
        for row in _pages(store, key, run_id):
            data = row.data if key.startswith("every") else {"payload": row.data}
            everything |= {(f"{key} {row.node_id}", name): _spelt(value) for name, value in data.items()}
            everything[f"{key} {row.node_id}", "value"] = _spelt(row.value)
            everything[f"{key} {row.node_id}", "times"] = repr((row.created_at, row.updated_at))
    for row in _pages(store, "own", run_id):
        everything |= {(f"own {row.node_id}", name): _spelt(value) for name, value in row.data.items()}
    history = store.outputs.results.history("whole_json", run_id, "n0").items
    everything["history", ""] = _spelt([(one.revision, one.value, one.removed_at) for one in history])
    return everything


def differing(was: dict[Any, str], now: dict[Any, str]) -> dict[Any, tuple[str | None, str | None]]:
    """What is not as it was, by its place."""
    return {place: (was.get(place), now.get(place)) for place in was | now if was.get(place) != now.get(place)}


def _rows(fields: dict[str, tuple[Any, list[Any]]]) -> Iterator[dict[str, Any]]:
    """As many rows as the longest list of values has."""
    most = max(len(values) for _, values in fields.values())
    for n in islice(count(), most):
        yield {name: values[n % len(values)] for name, (_, values) in fields.items()}


def _pages(store: StateStore, key: str, run_id: str) -> Iterator[Any]:
    token: str | None = None
    while True:
        page: Any = store.outputs.results.load(key, run_id, page_token=token)
        yield from page.items
        token = page.next_page_token
        if token is None:
            return


def _spelt(value: Any) -> str:
    """A value with its type, digits and zone. Objects and sets have no order, and numbers inside JSON no scale."""
    return repr(value) if isinstance(value, float) else repr(_in_order(value))


def _in_order(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _in_order(dict(value))
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value)}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [_in_order(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
