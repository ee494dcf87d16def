"""Packed rows: what one statement brings of the registry, the input and every table, as lists of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.db import columns
from lastlight_state.db.columns import parse_time
from lastlight_state.db.rows import UNREADABLE
from lastlight_state.db.statements import Row, Statement, number
from lastlight_state.errors import CorruptData
from lastlight_state.outputs import inputs
from lastlight_state.outputs.catalog.registry import Registered
from lastlight_state.outputs.records import RunInput
from lastlight_state.outputs.results.statements import statements_of
from lastlight_state.outputs.shown import PackRow
from lastlight_state.outputs.table import OutputTable

#: What the rows of a packed statement are, where they are not of the table of that number.
REGISTRY_ROWS, INPUT_ROWS = -2, -1
STAMP = ("key", "table_name", "kind", "signature", "model_digest", "created_at", "updated_at", "columns")
_TIMES = ("created_at", "updated_at")


class Seen:
    """The registry as this store has last seen it, and the statements that were made for it, by the keys asked for."""

    def __init__(self, stamps: tuple[Any, ...] = ()) -> None:
        self.stamps = stamps
        self.registered = tuple(map(_registered, stamps))
        #: Of every column that the registry knows, whatever this process has defined.
        self.handles = tuple(found.handle() for found in self.registered)
        self.statements: dict[frozenset[str] | None, Statement[PackRow]] = {}


class Known:
    """What a store last saw of the registry, and the untyped handles that it made, each with its registry row."""

    def __init__(self) -> None:
        self.latest = Seen()
        self._untyped: dict[str, tuple[Registered, OutputTable[Any]]] = {}

    def handle(self, found: Registered) -> OutputTable[Any]:
        """The untyped handle of this row, made anew when the row has changed."""
        kept = self._untyped.get(found.key)
        if kept is None or kept[0] != found:
            kept = self._untyped[found.key] = found, found.handle()
        return kept[1]


def _registered(stamp: tuple[Any, ...]) -> Registered:
    row = dict(zip(STAMP, stamp, strict=True))
    times = {name: parse_time(codec.decode(row[name])) for name in _TIMES}
    values: Any = {**row, **times, "columns": codec.decode(row["columns"])}
    return Registered.of(values)


def input_of(texts: Sequence[Any]) -> RunInput:
    row = dict(zip((column.name for column in inputs.FULL), texts, strict=True))
    created = parse_time(codec.decode(row["created_at"]))
    changed = {"revision": int(row["revision"]), "created_at": created, "payload": codec.decode_jsonb(row["payload"])}
    values: Any = {**row, **changed}
    return RunInput.of(values)


def row_of(table: OutputTable[Any], texts: Sequence[Any]) -> Row:
    """Return the row that a list of texts stands for. Raises `CorruptData` where one cannot be read."""
    row: Row = {}
    for (name, token), text in zip(statements_of(table).shown, texts, strict=True):
        try:
            row[name] = None if text is None else _READ[token](text)
        except UNREADABLE as error:
            raise CorruptData(table.table_name, tuple(row.values())[:3], name) from error
    return row


def _time(text: str) -> datetime:
    return parse_time(codec.decode(text))


_READ: dict[str, Callable[[str], Any]] = {
    "text": str,
    "integer": int,
    "real": float,
    "boolean": lambda text: text == "true",
    "decimal": Decimal,
    "timestamp": _time,
    "json": codec.decode_jsonb,
    "blob": lambda text: bytes.fromhex(text.removeprefix("\\x")),
}


def within_the_limit(packs: sa.CTE) -> sa.Select[Any]:
    """All packs with their sizes, and with their content only if the tables together are within the limit."""
    of_a_table = packs.c.source >= number(0)
    total = sa.select(sa.func.coalesce(sa.func.sum(packs.c.size), number(0))).where(of_a_table).scalar_subquery()
    few = sa.or_(~of_a_table, total <= sa.bindparam("max_bytes", type_=columns.Integer))
    return sa.select(packs.c.source, sa.case((few, packs.c.data)).label("data"), packs.c.size)


def sizes_of(packs: Sequence[PackRow], seen: Seen) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for pack in packs:
        if pack["source"] >= 0:
            sizes[seen.handles[pack["source"]].table_name] += pack["size"]
    return dict(sizes)
