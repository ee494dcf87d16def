"""How a prune goes through the records of a kind: which of them may go, and what goes with each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lastlight_state.db import reconcile
from lastlight_state.db.statements import Row
from lastlight_state.db.unit import Unit
from lastlight_state.maintenance import work
from lastlight_state.maintenance.prune import places, statements as sql
from lastlight_state.maintenance.prune.kinds.kind import Kind
from lastlight_state.maintenance.prune.places import START, Place


@dataclass(frozen=True)
class Range:
    """Which records a prune looks at: those before ``until``, of these keys if any are given."""

    kind: Kind
    until: Place
    keys: tuple[str, ...] | None

    @classmethod
    def of(cls, kind: Kind, terms: Mapping[str, Any]) -> Range:
        """The range of terms that are `bounded`."""
        return cls(kind, places.read(terms["until"]), None if terms["ids"] is None else tuple(terms["ids"]))

    @property
    def statements(self) -> sql.Statements:
        """The statements of the kind."""
        return sql.STATEMENTS[self.kind.name]

    def next(self, unit: Unit, after: Place, *, locked: bool) -> list[Place]:
        """The next records after a place, at most `LOOK`. ``locked``: locks them, and passes over locked ones."""
        if self.keys == ():
            return []
        values = {"after_age": after[0], "after_key": after[1], "until_age": self.until[0], "until_key": self.until[1]}
        if self.keys is None:
            found = unit.rows(self.statements.lock if locked else self.statements.look, values)
        else:
            family = self.statements.lock_chosen if locked else self.statements.chosen
            statement, keys = family.of(self.keys)
            found = unit.rows(statement, {**values, **keys})
        following = [(row["age"], row["key"]) for row in found]
        if following and self.keys is None:
            work.confirm_after(following[-1], after)
        return following

    def held(self, unit: Unit) -> list[str]:
        """Return those of at most `LOOK` given records that are in the range, locked so that others may refer to them.

        Those that somebody has locked are passed over.
        """
        if not self.keys:
            return []
        statement, keys = self.statements.hold_chosen.of(self.keys)
        values = {"after_key": "", "until_age": self.until[0], "until_key": self.until[1]}
        return [row["key"] for row in unit.rows(statement, {**values, **keys})]


def bounded(unit: Unit, kind: Kind, terms: Mapping[str, Any]) -> Row:
    """Return the terms with the place ``until`` which records are looked at."""
    return places.bounded(unit, sql.STATEMENTS[kind.name].boundary, terms)


def not_ended(unit: Unit, kind: Kind, cutoff: datetime) -> int:
    """Return how many records are as old and have not ended."""
    found = sql.STATEMENTS[kind.name].open
    return 0 if found is None else int(unit.value(found, {"cutoff": cutoff}))


def protected(unit: Unit, kind: Kind, keys: Sequence[str], in_use: frozenset[str]) -> dict[str, str]:
    """Return those of these records that must stay, each with the first reason."""
    found = {key: "in_use" for key in keys if key in in_use}
    if kind.protections:
        for row in unit.rows(*sql.STATEMENTS[kind.name].protected.of(keys)):
            key = row.pop("key")
            reason = next((reason for reason, holds in row.items() if holds), None)
            if reason is not None:
                found[key] = reason
    return found


def sizes(unit: Unit, kind: Kind, keys: Sequence[str], outputs: Sequence[str]) -> dict[str, Counter[str]]:
    """For each of these records, its rows by table."""
    found = {key: Counter({kind.table_name: 1}) for key in keys}
    for at in range(0, len(keys), sql.LOOK):
        some = keys[at : at + sql.LOOK]
        if kind.children:
            for row in unit.rows(*sql.STATEMENTS[kind.name].measured.of(some)):
                found[row["key"]][row["name"]] += row["rows"]
        for table in outputs:
            for counted in unit.rows(*sql.output_counts(table).of(some)):
                found[counted["key"]][table] += counted["rows"]
    return found


def waits(unit: Unit, kind: Kind, keys: Sequence[str]) -> dict[str, set[str]]:
    """The other records that must be gone before each of these may go."""
    return kind.shared.waits(unit, keys) if kind.shared is not None else {}


def free(keys: Sequence[str], waits: dict[str, set[str]]) -> list[str]:
    """Return the records whose blockers may all be removed too, in the given order.

    Records that wait for one another are not free.
    """
    left = {key: set(waits.get(key, ())) for key in keys}
    waiting: dict[str, list[str]] = {}
    for key, others in left.items():
        for other in others:
            waiting.setdefault(other, []).append(key)
    ready = [key for key, others in left.items() if not others]
    for gone in ready:  # grows
        for key in waiting.get(gone, ()):
            left[key].discard(gone)
            if not left[key]:
                ready.append(key)
    found = set(ready)
    return [key for key in keys if key in found]


def hold(unit: Unit, kind: Kind, keys: Sequence[str], outputs: Sequence[str]) -> None:
    """Keep everything that goes with these records as it is until the unit ends."""
    if not keys:
        return
    for family in sql.STATEMENTS[kind.name].held:
        unit.rows(*family.of(keys))
    for table in outputs:
        unit.rows(*sql.output_holding(table).of(keys))
    if kind.shared is not None:
        kind.shared.hold(unit, keys)


def outputs_of(unit: Unit, kind: Kind) -> list[str]:
    """The output tables whose rows go with the records. One that was dropped behind the registry is passed over."""
    if not kind.has_outputs:
        return []
    names = [row["table_name"] for row in unit.rows(sql.OUTPUTS)]
    return reconcile.existing(unit, names) if names else []


def in_use(unit: Unit, kind: Kind) -> frozenset[str]:
    """The records that something refers to which only a program can follow."""
    return kind.in_use(unit) if kind.in_use is not None else frozenset()


def walk(unit: Unit, found: Range) -> Iterator[list[Place]]:
    """All records of the range, a look at a time."""
    after = START
    while following := found.next(unit, after, locked=False):
        yield following
        after = following[-1]
