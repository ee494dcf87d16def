"""Sweeps orders without an owner, with their links, then messages without references, such as those of these orders.

A writer may store a message or an order first, and store the reference later. So rows younger than a day always stay,
and so do locked rows. If a row was removed before the reference is stored, a foreign key refuses the reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations.shared.references import HOLDERS, OWNING, REFERRING, links
from lastlight_state.conversations.tables import LINKS, MESSAGES, PROGRESSIONS
from lastlight_state.conversations.words import MESSAGE, PROGRESSION
from lastlight_state.db.lists.filters import family, rows
from lastlight_state.db.rows.statements import Family, bind, number
from lastlight_state.db.schema.indexes import hide_from_indexes
from lastlight_state.db.units.unit import Unit
from lastlight_state.maintenance.prune.sweeps.sweep import CandidatePage, Keys, Removal, Tally, Terms, cutoff

#: The days after which no writer is expected to refer to a stored row.
LEAST_DAYS = 1


def _old_and_alone(table: sa.Table, referring: Iterable[sa.Column[Any]]) -> Family:
    """Return a `Family` of statements that find rows that are old enough and to which none of these columns refers."""
    key, made = table.c.id, table.c.created_at
    old = hide_from_indexes(made < bind("cutoff", made))
    # One index probe for each row and column. For NOT EXISTS, Postgres may read the whole referring table.
    probes = (sa.select(number(1)).where(column == key).limit(number(1)).scalar_subquery() for column in referring)
    alone = [probe.is_(None) for probe in probes]
    return family(lambda keys: sa.select(key.label("key")).where(key.in_(keys), old, *alone).order_by(key))


class Stage:
    """The rows of a table that are old and have no reference. Rows that they own are removed with them."""

    def __init__(
        self, table: sa.Table, referring: Iterable[sa.Column[Any]], owned: Sequence[sa.Column[Any]] = ()
    ) -> None:
        self.keys = Keys(table.c.id)
        self.judge = _old_and_alone(table, referring)
        self.measures = {str(column.table.name): _sizes(column) for column in owned}
        self.removals = {str(column.table.name): _removal(column) for column in (*owned, table.c.id)}

    @property
    def table(self) -> str:
        """Return the name of the table."""
        return [*self.removals][-1]

    def look(self, unit: Unit, terms: Terms, after: str | None) -> CandidatePage:
        """Return the removable rows among the next rows after a key."""
        keys, ends = self.keys.next(unit, terms, after)
        return CandidatePage(self.removable_keys(unit, terms, keys), ends)

    def removable_keys(self, unit: Unit, terms: Terms, keys: Iterable[str]) -> list[str]:
        """Return those of these keys that may be removed."""
        return [row["key"] for row in rows(unit, self.judge, keys, {"cutoff": cutoff(terms)})]

    def remove(self, unit: Unit, terms: Terms, keys: list[str], most: int) -> Removal:
        """Remove about ``most`` of these rows with the rows that they own.

        Rows that are locked or no longer removable stay.
        """
        going = self.removable_keys(unit, terms, self.keys.lock_rows(unit, keys))
        taken = self._first(unit, going, most)
        counts: Counter[str] = Counter()
        for table, removal in self.removals.items() if taken else ():
            counts[table] += unit.change(*removal.of(taken))
        return Removal(+counts, len(taken) < len(going))

    def removable_batches(self, unit: Unit, terms: Terms) -> Iterator[list[str]]:
        """Yield all removable rows of this table, in batches."""
        look = CandidatePage([], "")
        while look.after is not None:
            look = self.look(unit, terms, look.after)
            yield look.keys

    def removal_counts(self, unit: Unit, keys: Sequence[str]) -> Counter[str]:
        """Return how many rows, by table, would be removed together with these rows."""
        counts = Counter({self.table: len(keys)})
        for table, sizes in self.measures.items():
            counts[table] += sum(row["rows"] for row in rows(unit, sizes, keys))
        return +counts

    def _first(self, unit: Unit, keys: list[str], most: int) -> list[str]:
        """Return the first keys that together have at most ``most`` rows, but at least one key."""
        sizes = dict.fromkeys(keys, 1)
        for measure in self.measures.values():
            for row in rows(unit, measure, keys):
                sizes[row["key"]] += row["rows"]
        return [key for key, rows in zip(keys, accumulate(sizes.values()), strict=True) if rows <= most] or keys[:1]


def _sizes(column: sa.Column[Any]) -> Family:
    found = sa.select(column.label("key"), sa.func.count().label("rows"))
    return family(lambda keys: found.where(column.in_(keys)).group_by(column))


def _removal(column: sa.Column[Any]) -> Family:
    return family(lambda keys: sa.delete(column.table).where(column.in_(keys)))


ORDERS = Stage(PROGRESSIONS, OWNING, owned=[LINKS.c.progression_id])
ALONE = Stage(MESSAGES, REFERRING)
#: Finds which of these messages could be removed if no order had them.
LOOSE = _old_and_alone(MESSAGES, [column for column in REFERRING if column.table is not LINKS])


class Orphans:
    """The kind ``orphans``. Orders are removed first, because some messages are only in orders that are removed."""

    name = "orphans"
    record = f"{MESSAGE} or {PROGRESSION}"
    stages = (ORDERS, ALONE)
    tables = tuple(table for stage in stages for table in stage.removals)
    keep_days = 30
    keep_n = None

    def existing_keys(self, unit: Unit, keys: Iterable[str]) -> set[str]:
        """Return those of these keys that belong to existing orders or messages."""
        asked = list(keys)
        return {key for stage in self.stages for key in stage.keys.among(unit, asked)}

    def bounded_terms(self, _unit: Unit, terms: Terms) -> Terms:
        """Return the terms unchanged, because orphans are removed only by their age."""
        return terms

    def tally(self, unit: Unit, terms: Terms) -> Tally:
        """Return the orders and messages that would be removed, including messages that are only in these orders."""
        found, orders = Tally(), set[str]()
        for keys in ORDERS.removable_batches(unit, terms):
            found.add(keys)
            found.counts += ORDERS.removal_counts(unit, keys)
            orders.update(keys)
        for keys in chain(ALONE.removable_batches(unit, terms), [_freed_messages(unit, terms, orders)]):
            found.add(keys)
            found.counts += ALONE.removal_counts(unit, keys)
        return found


def _freed_messages(unit: Unit, terms: Terms, orders: set[str]) -> list[str]:
    """Return the messages that may be removed once these orders are removed."""
    held = {message for order in orders for _, message in links(unit, order)}
    if terms["ids"] is not None:
        held &= set(terms["ids"])
    loose = {row["key"] for row in rows(unit, LOOSE, held, {"cutoff": cutoff(terms)})}
    elsewhere = {message for message, order in rows(unit, HOLDERS, loose) if order not in orders}
    return sorted(loose - elsewhere)


ORPHANS = Orphans()
