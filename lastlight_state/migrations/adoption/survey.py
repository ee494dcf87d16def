"""Finds out whether a database of the original program can be taken over, and what that would do. Never writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.engine import Connection

from lastlight_state.backends.base import Backend, Checkout, Mode
from lastlight_state.backends.facts import Catalogue, Entry, Original
from lastlight_state.db import columns
from lastlight_state.migrations import scripts
from lastlight_state.migrations.adoption import fit
from lastlight_state.migrations.adoption.blueprint import blueprints, without_version
from lastlight_state.migrations.failures import translated
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.migrations.records import Adoption, Rewrite
from lastlight_state.migrations.state import SEED_TABLES

FIRST = "0001"
SESSIONS = "messaging_sessions"
KEY = ("platform", "channel_id", "thread_id", "user_id")
#: A constraint of early versions of the original, which allowed one session per key, ended ones included.
TOO_STRICT: Entry = ("constraint", SESSIONS, f"unique ({', '.join(sorted(KEY))})")
ONE_ACTIVE: Entry = ("index", SESSIONS, "idx_msg_sessions_unique_active")

_SHARED = (
    f"SELECT {', '.join(KEY)} FROM {SESSIONS} WHERE active = 1 AND thread_id IS NOT NULL "
    f"GROUP BY {', '.join(KEY)} HAVING count(*) > 1 ORDER BY {', '.join(KEY)} LIMIT 20"
)


@dataclass(frozen=True)
class Survey:
    """What was found. Without ``differences`` the database can be taken over as revision 0001.

    ``indexes`` are those of 0001 that are missing, each with its statement; ``present`` is what later revisions need
    not add; ``shared_keys`` have several active sessions: the unique index waits until revision 0004 retires them.
    """

    differences: tuple[str, ...]
    indexes: Mapping[Entry, str]
    present: frozenset[Entry]
    too_strict: bool
    sessions: int
    shared_keys: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def adoption(self) -> Adoption:
        """The same for a person who plans it."""
        rebuilt = Rewrite(SESSIONS, (), "rebuilds the table without its UNIQUE over the whole key", self.sessions, 1)
        return Adoption((rebuilt,) if self.too_strict else (), tuple(name for _, _, name in self.indexes), self.remarks)


def look(backend: Backend) -> Survey | None:
    """What an adoption would find, read in one snapshot. None on a product that the original does not use."""
    with Checkout(Mode.SNAPSHOT, backend) as checkout:
        try:
            with translated(backend):
                return surveyed(backend, backend.connection(checkout))
        finally:
            backend.rollback(checkout)


def surveyed(backend: Backend, connection: Connection) -> Survey | None:
    """The same on a connection that is inside a transaction."""
    original = backend.original(connection)
    if original is None:
        return None
    first, newest = blueprints(backend, FIRST, scripts.head())
    found = dict(without_version(backend.shape(connection)))
    too_strict = found.pop(TOO_STRICT, None) is not None
    there = fit.present(found, first, newest)
    rest = {entry: definition for entry, definition in found.items() if entry not in there}
    differences = [*fit.misfits(rest, first, optional=("index",)), *fit.clashes(rest, first, newest)]
    if not differences:
        differences = [f"damaged: {line}" for line in original.damages()]
    sound = not differences
    return Survey(
        tuple(differences),
        {entry: text for entry, text in first.items() if entry[0] == "index" and entry not in found},
        there,
        too_strict,
        _count(connection) if sound else 0,
        _shared_keys(connection, found) if sound else (),
        tuple(_remarks(connection, original, first)) if sound else (),
    )


def _count(connection: Connection) -> int:
    return int(connection.execute(text(f"SELECT count(*) FROM {SESSIONS}")).scalar_one())


def _shared_keys(connection: Connection, found: Catalogue) -> tuple[str, ...]:
    if ONE_ACTIVE in found:
        return ()
    rows = connection.execute(text(_SHARED)).all()
    return tuple(", ".join(repr(value) for value in row) for row in rows)


def _remarks(connection: Connection, original: Original, first: Catalogue) -> Iterator[str]:
    """What is kept as it is and may surprise later."""
    for table in SEED_TABLES:
        for key in METADATA.tables[table].primary_key.columns:
            missing = connection.execute(text(f'SELECT count(*) FROM {table} WHERE "{key.name}" IS NULL')).scalar_one()
            if missing:
                yield f"{missing} rows of {table} have no {key.name}"
        for column in METADATA.tables[table].columns:
            if isinstance(column.type, columns.UtcTimestamp) and ("column", table, column.name) in first:
                yield from _odd_times(original, table, column.name)
    yield from original.orphans()


def _odd_times(original: Original, table: str, column: str) -> Iterator[str]:
    count, samples = original.odd_times(table, column)
    if count:
        such = ", ".join(repr(sample) for sample in samples)
        yield f"{count} values of {table}.{column} are not written as times are here, such as {such}"
