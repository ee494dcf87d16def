"""One row of each table damaged by plain SQL, column by column, and all that shows the table looked at each time.

The damage is done inside a transaction that is undone, so that nothing has to be put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from support.filled_store import AT, ROWS, scene
from support.guards import without_guards
from support.shown import bundles, lists, looks

from lastlight_state import StateStore
from lastlight_state.db.rows.records import Page
from lastlight_state.db.schema import columns
from lastlight_state.errors import CorruptData, NotFound
from lastlight_state.testing import Database

#: Tables of which no list or look-up shows rows.
UNREAD = frozenset(
    "copy_progress import_ledger invocation_kinds lastlight_meta maintenance_permits maintenance_receipts "
    "message_types progression_links progressions run_sequences source_kinds tombstones".split()
)

#: What damage there is, by database and what a column is.
TEXT = ["CAST(x'61ff' AS TEXT)", "x'00ff'"]
VALUES: Mapping[str, Mapping[type, list[str]]] = {
    "sqlite": {
        columns.IsoTimestamp: ["'soon'", "5", "x'00'", "CAST(x'ff' AS TEXT)", "'9999-99-99T00:00:00.000Z'", "''"],
        columns.TextJson: ["'{'", "'[1]'", "'{\"a\": 1}'", "'5'", "x'00'", "CAST(x'ff' AS TEXT)", "7", "'NaN'"],
        columns.TextDecimal: ["'much'", "x'00'"],
        columns.IntegerFlag: ["'x'", "x'00'", "CAST(x'ff' AS TEXT)"],
        columns.NumericFlag: ["'x'", "x'00'"],
        sa.Integer: ["'many'", "x'00'", "CAST(x'ff' AS TEXT)", "1.5"],
        sa.Float: ["'much'", "x'00'", "9e999"],
        sa.Text: TEXT,
    },
    "postgresql": {
        columns.UtcTimestamp: ["'infinity'", "'-infinity'", "'0044-03-15 00:00:00 BC'"],
        columns.BinaryJson: ["'[1]'", "'{\"a\": 1}'", "'5'", "'1e400'", "'null'"],
        columns.ExactNumeric: ["'NaN'"],
        sa.Float: ["'NaN'", "'Infinity'"],
    },
}


@dataclass(frozen=True)
class Damage:
    """A value that does not belong into a column of a row."""

    table: sa.Table
    column: str
    value: str

    def __str__(self) -> str:
        return f"{self.table.name}.{self.column} = {self.value}"


def damages(store: StateStore, tables: list[sa.Table]) -> Iterator[Damage]:
    """Yield every column of every table with every value that it may not hold."""
    name = store._context.scope.backend.dialect.name
    for table in tables:
        for column in table.columns:
            kind = column.type._variant_mapping.get(name, column.type)
            values = next((values for ours, values in VALUES[name].items() if isinstance(kind, ours)), [])
            yield from (Damage(table, column.name, value) for value in values)


class Undone(Exception):
    """Ends a transaction that nobody wants to keep."""


def undo() -> None:
    raise Undone


class Attack:
    """What a store shows while all is sound, and what is wrong with what it shows while a cell is damaged."""

    def __init__(self, database: Database) -> None:
        self.store, self.tables = scene(database)
        self._sqlite = database.name == "sqlite"
        if self._sqlite:
            without_guards(database.raw())
        self._sound: dict[str, Any] = {}
        self._sound = self._shown(None)
        #: How many cells the database would not damage, and how many damaged ones were named by a list or look-up.
        self.refused = self.named = 0

    def problems(self, damage: Damage) -> list[str]:
        """Return what does not hold: one row is not shown, or named as damaged; all others are as before."""
        before = self.store.metrics.damaged_rows
        found = self._shown(damage)
        refused = any(isinstance(now, CorruptData) for now in found.values())
        self.named += refused or self.store.metrics.damaged_rows > before
        wrong = []
        for name, sound in self._sound.items() if found else ():
            now = found[name]
            if isinstance(now, Exception):
                is_named = isinstance(now, CorruptData | NotFound) and name.endswith(f" {AT}")
                wrong += [] if is_named else [f"{name}: {type(now).__name__}: {now}"]
                continue
            lost = isinstance(sound, list) and len(set(sound) - set(now)) > 1
            if lost or (name.endswith(" 0") and now != sound):
                wrong.append(f"{name}: {sound} -> {now}")
        return wrong

    def _shown(self, damage: Damage | None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        try:
            with self.store.transaction() as tx:
                if damage is None or self._done(tx.connection, damage):
                    self._look(tx, found)
                undo()
        except Undone:
            pass
        return found

    def _done(self, connection: sa.Connection, damage: Damage) -> bool:
        table = damage.table
        key = list(table.primary_key) or [table.c.run_id, table.c.node_id]  # of an output table
        order = [table.c.node_id] if table.name == "output_cache" else key  # whose keys are digests
        rows = connection.execute(sa.select(*key).order_by(*order)).all()
        if not rows:
            return False
        chosen = sa.and_(*(column == value for column, value in zip(key, rows[min(AT, len(rows) - 1)], strict=True)))
        run = connection.exec_driver_sql
        on, off = (
            ("PRAGMA ignore_check_constraints = ON", "PRAGMA ignore_check_constraints = OFF")
            if self._sqlite
            else ("SET LOCAL session_replication_role = replica", "SET LOCAL session_replication_role = origin")
        )
        run("SAVEPOINT damage")
        run(on)
        if self._sqlite:
            run("PRAGMA defer_foreign_keys = ON")
        try:
            connection.execute(sa.update(table).where(chosen).values({damage.column: sa.text(damage.value)}))
        except sa.exc.DBAPIError:
            run("ROLLBACK TO SAVEPOINT damage")
            self.refused += 1
            return False
        finally:
            run(off)
        return True

    def _look(self, tx: Any, found: dict[str, Any]) -> None:
        for name, (page, key) in lists(tx).items():  # of which one, the claimable runs, expires overdue questions
            tx.connection.exec_driver_sql("SAVEPOINT list")
            found[name] = outcome(lambda page=page, key=key: all_keys(page, key))  # type: ignore[misc]
            tx.connection.exec_driver_sql("ROLLBACK TO SAVEPOINT list")
        for n in range(ROWS - 1):
            for name, look in looks(tx, n).items():
                found[f"{name} {n}"] = outcome(lambda look=look: repr(look()))  # type: ignore[misc]
        for name, (call, key) in bundles(tx).items():
            tx.connection.exec_driver_sql("SAVEPOINT bundle")
            found[name] = outcome(lambda call=call, key=key: [key(item) for item in call()])  # type: ignore[misc]
            tx.connection.exec_driver_sql("ROLLBACK TO SAVEPOINT bundle")


def outcome(look: Callable[[], Any]) -> Any:
    """Return what it gives, or what it raises."""
    try:
        return look()
    except Exception as error:  # noqa: BLE001 - which the attack judges
        return error


def all_keys(page: Callable[..., Page[Any]], key: Callable[[Any], Any], limit: int = 2) -> list[Any]:
    """Return the names of all items, page after page."""
    found: list[Any] = []
    token = None
    for _ in range(100):
        shown = page(limit=limit, page_token=token)
        found += map(key, shown)
        token = shown.next_page_token
        if token is None:
            return found
    raise AssertionError("the list has no end")
