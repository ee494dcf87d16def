"""Sweeps that remove a prefix of an owner's numbered rows: the oldest rows. The newest rows always stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations.shared.references import HOLDERS, POINTING, PROTECTIONS, REFERRED
from lastlight_state.conversations.shared.threads import removed_unused
from lastlight_state.conversations.tables import CHANGES, DELIVERIES, INBOXES, MESSAGES, SESSIONS
from lastlight_state.conversations.words import SESSION
from lastlight_state.db.lists.filters import family, rows
from lastlight_state.db.rows.statements import Family, Statement, bind, number, statement_of
from lastlight_state.db.schema.indexes import hide_from_indexes
from lastlight_state.db.units.unit import Unit
from lastlight_state.maintenance.prune.sweeps.sweep import CandidatePage, Keys, OneStage, Removal, Tally, Terms, cutoff
from lastlight_state.maintenance.upkeep.counters import CHANGES_COUNTER, INBOX_COUNTER, Counter as Numbering

#: How many rows of a prefix one statement reads.
_READ = 2_000
#: Larger than any number of rows and any row's number: no limit.
_ALL = 2**62
_MOST = sa.bindparam("most", type_=sa.BigInteger())


@dataclass(frozen=True)
class PrefixReferences:
    """References from rows of a prefix to other rows: the column, and functions to count and remove the other rows."""

    table: str
    column: sa.Column[Any]
    count: Callable[[Unit, set[str], Mapping[str, int]], int]
    remove: Callable[[Unit, set[str]], int]


@dataclass(frozen=True)
class Heads(OneStage):
    """The owners of numbered rows.

    ``key``          the key column in the table of owners
    ``owner``        the column of the rows with the owner's key; with ``number`` their primary key
    ``counter``      the counter of an owner's next number
    ``age``          the time since which a row is not needed; a row without one ends the prefix
    ``waits``        the condition for old rows without an age. An owner whose first row meets it counts as
                     ``not_ended``
    ``protections``  conditions under which all rows of an owner stay, by reason
    ``locks``        whether an owner is locked while its rows are removed
    ``freed``        rows that are removed with the last row that refers to them
    """

    name: str
    record: str
    key: sa.Column[Any]
    owner: sa.Column[Any]
    number: sa.Column[Any]
    counter: Numbering
    age: sa.Column[Any]
    waits: sa.ColumnElement[bool] | None = None
    protections: Mapping[str, sa.ColumnElement[bool]] = field(default_factory=dict)
    locks: bool = False
    freed: PrefixReferences | None = None
    keep_days: int = 30
    keep_n: int = 0

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the tables that rows are removed from."""
        return (self._table, *(() if self.freed is None else (self.freed.table,)))

    @property
    def _table(self) -> str:
        return str(self.owner.table.name)

    def existing_keys(self, unit: Unit, keys: Iterable[str]) -> set[str]:
        """Return those of these owners that exist."""
        return self.keys.among(unit, keys)

    def bounded_terms(self, _unit: Unit, terms: Terms) -> Terms:
        """Return the terms unchanged, because the rows to keep are counted separately for each owner."""
        return terms

    def look(self, unit: Unit, terms: Terms, after: str | None) -> CandidatePage:
        """Return the next owners after a key that have a removable prefix."""
        keys, ends = self.keys.next(unit, terms, after)
        judged = self._removable_owners(unit, terms, keys, Counter())
        found = [key for key, _ in self._removal_limits(unit, terms, judged, most=1)]
        return CandidatePage(found, ends)

    def remove(self, unit: Unit, terms: Terms, keys: list[str], most: int) -> Removal:
        """Remove about ``most`` rows from the prefixes of these owners, in the owners' order."""
        here = self.keys.lock_rows(unit, keys) if self.locks else keys
        left = most if self.freed is None else max(1, most // 2)
        counts: Counter[str] = Counter()
        held: set[str] = set()
        more = False
        judged = list(self._removable_owners(unit, terms, here, Counter()))
        self._settle(unit, judged)
        for key, limit in list(self._removal_limits(unit, terms, judged, most=left + 1)):
            if left <= 0:
                more = True
                break
            end = self._cut(unit, key, limit, left)
            held.update(self._referenced_keys(unit, key, end))
            gone = unit.change(self.statements.remove, {"owner": key, "limit": end})
            counts[self._table] += gone
            left -= gone
            more = more or end < limit
        if self.freed is not None:
            counts[self.freed.table] += self.freed.remove(unit, held)
        return Removal(+counts, more)

    def tally(self, unit: Unit, terms: Terms) -> Tally:
        """Return the owners that would lose a prefix, and counts by reason of owners whose old first row stays."""
        found, limits, after = Tally(), dict[str, int](), ""
        last: str | None = after
        while last is not None:
            keys, last = self.keys.next(unit, terms, last)
            limits.update(self._removal_limits(unit, terms, self._removable_owners(unit, terms, keys, found.protected)))
        found.add(limits)
        held: set[str] = set()
        for key, limit in limits.items():
            found.counts[self._table] += unit.value(self.statements.count, {"owner": key, "limit": limit})
            held.update(self._referenced_keys(unit, key, limit))
        if self.freed is not None:
            found.counts[self.freed.table] += self.freed.count(unit, held, limits)
        return found

    def _removable_owners(
        self, unit: Unit, terms: Terms, keys: Iterable[str], protected: Counter[str]
    ) -> Iterator[str]:
        """Yield the owners whose first row is old enough and that nothing protects.

        The others are counted by reason.
        """
        for row in rows(unit, self.statements.judge, keys, {"cutoff": cutoff(terms)}):
            key, old, waits = row.pop("key"), row.pop("old"), row.pop("waiting")
            reason = next((reason for reason, holds in row.items() if holds), None)
            if waits or (old and reason is not None):
                protected[reason or "not_ended"] += 1
            elif old:
                yield key

    def _removal_limits(
        self, unit: Unit, terms: Terms, keys: Iterable[str], most: int = _ALL
    ) -> Iterator[tuple[str, int]]:
        """Yield each owner with removable rows, and the number before which rows are removed. At most ``most`` each."""
        values = {"cutoff": cutoff(terms), "kept": max(terms["keep_n"], 1) - 1, "most": most}
        for row in rows(unit, self.statements.limits, keys, values):
            if row["newest"] is not None:
                limit = min(row[name] for name in ("newest", "stop", "cut") if row[name] is not None)
                if row["first"] < limit:
                    yield row["key"], limit

    def _settle(self, unit: Unit, keys: list[str]) -> None:
        """Raise the counters of these owners above all their numbers, so that no removed row's number is used again."""
        for row in rows(unit, self.statements.late, keys):
            unit.row(self.counter.mend, {"key": row["key"]})

    def _cut(self, unit: Unit, key: str, limit: int, most: int) -> int:
        """Return the number before which at most ``most`` rows are removed, limited to ``limit``."""
        found = unit.value(self.statements.cut, {"owner": key, "most": most})
        return limit if found is None else min(limit, found)

    def _referenced_keys(self, unit: Unit, key: str, limit: int) -> Iterator[str]:
        after = -1
        while self.freed is not None:
            found = unit.rows(self.statements.held, {"owner": key, "after": after, "limit": limit})
            yield from (row["held"] for row in found)
            if len(found) < _READ:
                return
            after = found[-1]["at"]

    @cached_property
    def keys(self) -> Keys:
        """Return the reader of the owners' keys."""
        return Keys(self.key)

    @cached_property
    def statements(self) -> Statements:
        """Return the prepared statements for this kind."""
        return Statements(self)


class Statements:
    """The statements of one kind. Each finds its rows by the primary key of the owners or of the rows."""

    def __init__(self, heads: Heads) -> None:
        at, this = heads.number, heads.owner == bind("owner", heads.owner)
        before = at < bind("limit", at)
        self.judge = _of_owners(heads, _first_rows(heads))
        self.limits = _of_owners(heads, _ends(heads))
        self.late = family(lambda keys: _late(heads.counter).where(heads.key.in_(keys)).order_by(heads.key))
        self.cut = statement_of(sa.select(at).where(this).order_by(at).limit(number(1)).offset(_MOST))
        self.count = statement_of(sa.select(sa.func.count()).select_from(at.table).where(this, before))
        self.remove = statement_of(sa.delete(at.table).where(this, before))
        self.held = _reference_statement(heads, this, before)


def _late(counter: Numbering) -> sa.Select[Any]:
    """Return a SELECT of the owners whose counter is behind the numbers of their rows.

    Another program inserted rows, or a row was restored by hand.
    """
    return sa.select(counter.key.label("key")).where(counter.behind)


def _of_owners(heads: Heads, values: Mapping[str, sa.ColumnElement[Any]]) -> Family:
    found = sa.select(heads.key.label("key"), *(value.label(name) for name, value in values.items()))
    return family(lambda keys: found.where(heads.key.in_(keys)).order_by(heads.key))


def _first_rows(heads: Heads) -> dict[str, sa.ColumnElement[Any]]:
    """Return expressions for an owner: whether its first row is old, whether that row waits, and each protection."""
    old = heads.age < bind("cutoff", heads.age)
    waiting = sa.false() if heads.waits is None else _first(heads, heads.waits)
    return {"old": _first(heads, old), "waiting": waiting, **heads.protections}


def _ends(heads: Heads) -> dict[str, sa.ColumnElement[Any]]:
    """Return expressions for an owner's first number, and for numbers that limit its prefix.

    ``cut`` is the end of a batch, ``stop`` the first row that is not old, and ``newest`` the first row to keep.
    """
    at, rows = heads.number, sa.select(heads.number).where(heads.owner == heads.key).limit(number(1))
    cut = rows.order_by(at).offset(_MOST).correlate(heads.key.table).scalar_subquery()
    young = hide_from_indexes(sa.or_(heads.age.is_(None), heads.age >= bind("cutoff", heads.age)))
    stop = rows.where(at < sa.func.coalesce(cut, number(_ALL)), young).order_by(at)
    newest = rows.order_by(at.desc()).offset(sa.bindparam("kept", type_=sa.Integer()))
    return {
        "first": _first(heads, at),
        "cut": cut,
        "stop": stop.scalar_subquery(),
        "newest": newest.scalar_subquery(),
    }


def _first(heads: Heads, value: Any) -> Any:
    found = sa.select(value).where(heads.owner == heads.key)
    return found.order_by(heads.number).limit(number(1)).scalar_subquery()


def _reference_statement(heads: Heads, *conditions: sa.ColumnElement[bool]) -> Statement:
    at, held = heads.number, heads.number if heads.freed is None else heads.freed.column
    found = sa.select(at.label("at"), held.label("held")).where(*conditions, at > bind("after", at))
    return statement_of(found.order_by(at).limit(number(_READ)))


# Prefixes of inboxes' deliveries, and of feeds' entries.

_d, _c = DELIVERIES.c, CHANGES.c


_DELIVERED: Family[tuple[str, str, int]] = family(
    lambda keys: sa.select(_d.message_id.label("key"), _d.owner, _d.ord).where(_d.message_id.in_(keys)), tuple
)


def _unused_count(unit: Unit, messages: set[str], limits: Mapping[str, int]) -> int:
    """Return how many of these messages lose their last reference with the deliveries before these positions."""
    staying = {message for message, _ in rows(unit, HOLDERS, messages)}
    staying.update(message for message, _ in rows(unit, POINTING, messages))
    for message_id, owner, ord_ in rows(unit, _DELIVERED, messages - staying):
        if ord_ >= limits.get(owner, 0):
            staying.add(message_id)
    return len(messages - staying)


EXCHANGE = Heads(
    name="exchange",
    record="inbox",
    key=INBOXES.c.owner,
    owner=_d.owner,
    number=_d.ord,
    counter=INBOX_COUNTER,
    age=_d.acked_at,
    waits=sa.and_(_d.acked_at.is_(None), _d.delivered_at < bind("cutoff", _d.delivered_at)),
    freed=PrefixReferences(
        str(MESSAGES.name),
        _d.message_id,
        _unused_count,
        lambda unit, messages: removed_unused(unit, messages, REFERRED),
    ),
)
CHANGES_SWEEP = Heads(
    name="changes",
    record=SESSION,
    key=SESSIONS.c.id,
    owner=_c.session_id,
    number=_c.seq,
    counter=CHANGES_COUNTER,
    age=_c.at,
    protections=PROTECTIONS,
    locks=True,
)
