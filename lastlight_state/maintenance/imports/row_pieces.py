"""Units that consist of table rows: comparing such a unit with the stored rows, and storing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.db.rows.statements import Statement, bind, exactly, statement_of
from lastlight_state.db.rows.writes import cache_statements
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict
from lastlight_state.maintenance.copy import row_merge
from lastlight_state.maintenance.copy.tables import is_json
from lastlight_state.maintenance.imports import brought, origins, pieces
from lastlight_state.maintenance.imports.pieces import STORED, ImportTarget, UnitLookup

Row = Mapping[str, Any]
#: The advice for a source that nothing shows to be the source of the last import.
_REPLACED = "to follow this source instead, remove it here and revive it"
#: The rows that one unit stores, by table.
Given = Mapping[str, Sequence[Row]]


@dataclass(frozen=True)
class Growth:
    """The rule by which a stored row is updated from its source.

    ``fixed`` are the columns that must stay equal: a column that was imported empty stays empty, even if the source
    fills it in later. ``left`` are columns that are never updated. Other columns are updated while ``is_open``, called
    with the stored and the given row, returns that nobody in this store has continued the row. ``seen`` are the columns
    that must still have the values that were read when the change is written.
    """

    is_open: Callable[[Row, Row], bool]
    fixed: frozenset[str]
    seen: tuple[str, ...]
    left: frozenset[str] = frozenset()
    #: Writes the change of these columns from the stored to the given row, if `change` is not enough.
    write: Callable[[Unit, ImportTarget, Growth, Row, Row, list[str]], None] | None = None


@dataclass(frozen=True)
class RowDraft:
    """A unit to store. ``target`` is the kind and id of its first row, in the table ``head``.

    ``digest`` shows whether the source has changed. ``is_alone`` is True if the unit is a single row, whose name does
    not tell its source.
    """

    target: tuple[str, str]
    head: str
    digest: str
    given: Given
    noticed: Counter[str]
    is_alone: bool = False


class RowPiece:
    """A unit of rows that was read and checked."""

    #: The evidence that a unit from another file is the one of the last import.
    proof = "executions or events"

    def __init__(self, draft: RowDraft, growths: Mapping[str, Growth], into: ImportTarget) -> None:
        self.draft, self._growths, self._into = draft, growths, into
        self.digest, self.target = draft.digest, draft.target
        if draft.is_alone:
            self.digest += f" {self._row_digest(draft.given[draft.head][0])}"
        self.told: dict[str, Any] = {
            "executions": sorted(brought.mark(row["id"]) for row in draft.given.get("executions", ()))
        }
        if not draft.is_alone:
            self.digest = brought.line(draft.digest, self.told)
        self._given: Given = draft.given
        self._moves: list[tuple[sa.Table, Growth, Row, Row, list[str]]] = []
        self._kept: list[str] = []
        self._is_unproved = False  # nothing shows that the source is that of the last import

    @property
    def kept_differences(self) -> Sequence[str]:
        """Return the rows that differ from the source and stay unchanged, with the names of the columns."""
        return self._kept

    def compare(self, look: UnitLookup) -> tuple[str, Counter[str], Counter[str]]:
        """Return the outcome of the unit, the number of rows to add by table, and counts for ``noticed``."""
        head = {self.draft.head: self._given[self.draft.head][:1]}
        stored_head = [stored for _, _, stored in row_merge.stored_pairs(look.view, head)]
        found = pieces.outcome(look, self, is_stored=bool(stored_head))
        if found not in STORED:
            return found, Counter(), Counter()
        self._is_unproved = bool(stored_head) and not self._is_proved(look)
        noticed = Counter(self.draft.noticed)
        self._moves, self._kept = [], []
        for subject, row, stored in row_merge.stored_pairs(look.view, self._given):
            self._follow(look, subject.table, row, stored, noticed)
        added = row_merge.missing_rows(look.view, self._given, keeps=True)
        self._refuse_unproved(look, added)
        if (self._moves or added) and any(one.get("claim_epoch") for one in stored_head):
            pieces.refuse_other(self, "went on here, and in its source")
        if pieces.is_same(look, self) and found == "grown" and not (self._moves or added):
            self._kept = []
            return "unchanged", Counter(), Counter()
        return found, Counter({name: len(rows) for name, rows in added.items()}), noticed

    def _is_proved(self, look: UnitLookup) -> bool:
        """True if there is evidence that the source is the source of the last import.

        Raises `AlreadyExists` for another file that lacks executions or events of the last import.
        """
        before = brought.told_by(pieces.known_digest(look))
        if not before or origins.is_shown(look):
            return True
        has_all = self._has_all(before)
        if has_all is False:
            pieces.refuse_other(self, f"has {self.proof} that this source lacks, and {origins.came_from(look)}")
        if has_all:
            origins.note_moved(look)
        return has_all is True

    def _has_all(self, before: Mapping[str, Any]) -> bool | None:
        """True if the source has all executions and events of its last import. None if that import had none."""
        if not before.get("executions") and not before.get("run_events"):
            return None
        numbers = [row["seq"] for row in self.draft.given.get("run_events", ())]
        has_events = brought.extend_ranges(before.get("run_events", ()), numbers) == brought.extend_ranges((), numbers)
        return has_events and set(before.get("executions", ())) <= set(self.told["executions"])

    def _refuse_unproved(self, look: UnitLookup, added: Sized) -> None:
        """Raise `AlreadyExists` if rows would change without evidence that the source is that of the last import."""
        if self._is_unproved and (self._moves or added):
            pieces.refuse_other(self, f"is stored, and {origins.came_from(look)}: {_REPLACED}")

    def store(self, view: Unit, outcome: str) -> None:
        """Add the new rows of the unit, and update the changed rows."""
        for table, growth, stored, row, names in self._moves:
            if growth.write is None:
                change(view, growth, table, stored, row, names)
            else:
                growth.write(view, self._into, growth, stored, row, names)
        row_merge.insert_missing(view, self._given, keeps=True)

    def _follow(self, look: UnitLookup, table: sa.Table, row: Row, stored: Row, noticed: Counter[str]) -> None:
        growth = self._growths[table.name]
        names = [name for name in row_merge.differing_columns(row, stored) if name not in growth.left]
        fixed = [name for name in names if name in growth.fixed]
        if refused := [name for name in fixed if stored[name] is not None]:
            problem = f"is stored already with another {', '.join(refused)}"
            raise AlreadyExists(table.name, _key(table, row), problem=problem, fields=tuple(refused))
        names = [name for name in names if name not in fixed]
        if names and growth.is_open(stored, row) and self._may_follow(look, table, stored):
            self._moves.append((table, growth, stored, row, names))
            names = []
        if stays := [*fixed, *names]:
            self._keep(noticed, table, row, stays)

    def _keep(self, noticed: Counter[str], table: sa.Table, row: Row, names: Sequence[str]) -> None:
        """Record a row that differs from the source in these columns and stays unchanged."""
        noticed["row_kept"] += 1
        self._kept.append(f"{table.name} {_key(table, row)}: {', '.join(names)}")

    def _may_follow(self, look: UnitLookup, table: sa.Table, stored: Row) -> bool:
        """True if a single-row unit is still as its last import left it.

        Raises `AlreadyExists` for a row of another source.
        """
        if not self.draft.is_alone or table.name != self.draft.head:
            return True
        if not origins.is_shown(look):
            pieces.refuse_other(self, f"is stored, and {origins.came_from(look)}: {_REPLACED}")
        given = self.draft.given[self.draft.head][0]
        return (
            self._row_digest({name: stored[name] for name in given})
            == (pieces.known_digest(look) or "").partition(" ")[2]
        )

    def _row_digest(self, row: Row) -> str:
        """Return the digest of a row after an import.

        It tells the next import whether the row was changed in the store.
        """
        fixed = self._growths[self.draft.head].left
        return row_merge.digest({name: value for name, value in row.items() if name not in fixed})


def change(view: Unit, growth: Growth, table: sa.Table, stored: Row, row: Row, names: Sequence[str]) -> None:
    """Update these columns of a stored row. Raises `Conflict` ``unique`` if the row has changed since it was read."""
    values = {name: _parameter(table.c[name], row[name]) for name in names}
    keys = {f"key_{column.name}": row[column.name] for column in table.primary_key}
    seen = {f"seen_{name}": stored[name] for name in growth.seen}
    if names and not view.change(_guarded_update(table, tuple(names), growth.seen), {**values, **keys, **seen}):
        # the row was changed since the comparison: the unit begins again
        raise Conflict(f"a row of {table.name} was changed meanwhile", code="unique")


def _key(table: sa.Table, row: Row) -> Any:
    """Return the value of a row's key column, or a tuple of values if the key has several columns."""
    found = tuple(row[column.name] for column in table.primary_key)
    return found[0] if len(found) == 1 else found


def _parameter(column: sa.Column[Any], value: Any) -> Any:
    return codec.encode_bytes(column.name, value).decode() if is_json(column) and value is not None else value


@cache_statements
def _guarded_update(table: sa.Table, names: tuple[str, ...], seen: tuple[str, ...]) -> Statement:
    """Return an UPDATE that sets these columns of a row if the columns ``seen`` still have the values read before."""
    same = [column == bind(f"key_{column.name}", column) for column in table.primary_key]
    still = [table.c[name].is_not_distinct_from(exactly(f"seen_{name}", table.c[name])) for name in seen]
    return statement_of(
        sa.update(table).where(*same, *still).values({name: bind(name, table.c[name]) for name in names})
    )
