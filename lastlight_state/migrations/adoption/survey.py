"""Checks whether a database of the original program can be adopted, and what that would change. Never writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.engine import Connection

from lastlight_state.backends.base import Backend, Checkout, Mode
from lastlight_state.backends.facts import Catalogue, Entry, Form, Malformed, Original
from lastlight_state.db.schema.columns import form_of
from lastlight_state.errors import BackendUnavailable, MisuseError, NotSupported
from lastlight_state.migrations import scripts
from lastlight_state.migrations.adoption import fit
from lastlight_state.migrations.adoption.fit import blueprints, without_version
from lastlight_state.migrations.failures import translated_errors
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.migrations.records import Adoption, Rewrite
from lastlight_state.migrations.state import IMPORTED, SEED_TABLES

# Finds values in the original program's tables that have another form than this library stores.
#
# Statements compare stored values as they stand. A time or flag in another spelling would be read correctly but
# compared wrongly, so it is converted, or named in the refusal. Numbers and JSON in a wrong form cannot be read at all.
# They stay, and their rows are reported as damaged.

_MEANT: dict[Form, str] = {"time": "as times are here, like 2026-02-03T12:34:56.789Z", "flag": "as 0 or 1"}


@dataclass(frozen=True)
class Misspelt:
    """A column's values that are stored in another form than the column's."""

    table: str
    column: str
    form: Form
    found: Malformed

    @property
    def change(self) -> str:
        """Return a sentence that says that an adoption converts these values."""
        return f"writes {self.column} {_MEANT[self.form]}; found {self._samples}"

    @property
    def remark(self) -> str:
        """Return a sentence that says that these values stay unchanged."""
        return (
            f"{self.found.values} values of {self.table}.{self.column} are no {self.form}, such as {self._samples}; "
            "lists mark their rows as damaged"
        )

    @property
    def refusals(self) -> tuple[str, ...]:
        """Return one line for each value that cannot be converted and so prevents the adoption."""
        return tuple(
            f"{self.table}.{self.column} is {lost}, which is no {self.form} that can be read: correct it, then repeat"
            for lost in self.found.lost
        )

    @property
    def _samples(self) -> str:
        return ", ".join(map(repr, self.found.samples))


def misspelt_values(original: Original, found: Catalogue) -> Iterator[Misspelt]:
    """Return the malformed values in all of the original program's columns that the database has."""
    for table in SEED_TABLES:
        key = [column.name for column in METADATA.tables[table].primary_key.columns]
        for column in METADATA.tables[table].columns:
            form = form_of(column)
            if form is None or ("column", table, column.name) not in found:
                continue
            there = original.malformed_values(table, key, column.name, form)
            if there.values:
                yield Misspelt(table, column.name, form, there)


FIRST = scripts.FIRST
SESSIONS = "messaging_sessions"
KEY = ("platform", "channel_id", "thread_id", "user_id")
#: A constraint of early versions of the original program, which allowed only one session per key, ended ones included.
TOO_STRICT: Entry = ("constraint", SESSIONS, f"unique ({', '.join(sorted(KEY))})")
ONE_ACTIVE: Entry = ("index", SESSIONS, "idx_msg_sessions_unique_active")

_SHARED = (
    f"SELECT {', '.join(KEY)} FROM {SESSIONS} WHERE CAST(active AS INTEGER) = 1 AND thread_id IS NOT NULL "
    f"GROUP BY {', '.join(KEY)} HAVING count(*) > 1 ORDER BY {', '.join(KEY)} LIMIT 20"
)


@dataclass(frozen=True)
class Promised:
    """The shape that the original program's tables should have at revision 0001, and at the newest revision."""

    first: Catalogue
    newest: Catalogue


@dataclass(frozen=True)
class Survey:
    """The findings of a survey. If there are no ``differences``, the database can be adopted as revision 0001.

    ``lacking`` are the parts of 0001 that the database lacks. ``present`` are the parts that revisions need not create.
    ``shared_keys`` are keys with several active sessions: the unique index is created only after the next revision has
    retired them. ``misspelt`` values are converted to the form of their columns.
    """

    differences: tuple[str, ...]
    lacking: tuple[Entry, ...]
    present: frozenset[Entry]
    too_strict: bool
    sessions: int
    shared_keys: tuple[str, ...]
    remarks: tuple[str, ...]
    misspelt: tuple[Misspelt, ...]

    @property
    def adoption(self) -> Adoption:
        """Return the changes that an adoption would make to this database, for a plan."""
        rebuilt = Rewrite(SESSIONS, (), "rebuilds the table without its UNIQUE over the whole key", self.sessions, 1)
        respelt = (Rewrite(one.table, (one.column,), one.change, one.found.values, 1) for one in self.misspelt)
        return Adoption(
            (*((rebuilt,) if self.too_strict else ()), *respelt),
            tuple(name for kind, _, name in self.lacking if kind == "index"),
            self.remarks,
            tuple(table for kind, table, _ in self.lacking if kind == "table"),
            tuple(f"{table}.{name}" for kind, table, name in self.lacking if kind == "column"),
        )


def promised_shapes(backend: Backend) -> Promised:
    """Return the shapes that revisions create on that server. The revisions are run in a temporary schema or file.

    Call this outside transactions.
    """
    return Promised(*blueprints(backend, FIRST, scripts.head()))


def read_survey(backend: Backend) -> Survey | None:
    """Return the survey of a database, read in one snapshot.

    Return None if revisions cannot be tried on this product.
    """
    try:
        with translated_errors(backend):
            expected = promised_shapes(backend)
    except (BackendUnavailable, MisuseError, NotSupported):  # the role lacks the right, or the server is read-only
        return None
    with Checkout(Mode.SNAPSHOT, backend) as checkout:
        try:
            with translated_errors(backend):
                backend.enter(checkout)
                connection = backend.connection(checkout)
                original = backend.original(connection)
                with nullcontext() if original is None else original.time_limit():
                    return make_survey(backend, connection, expected)
        finally:
            backend.rollback(checkout)


def make_survey(backend: Backend, connection: Connection, expected: Promised) -> Survey | None:
    """Return the survey, made on a connection that is already inside a transaction."""
    original = backend.original(connection)
    if original is None:
        return None
    first, newest = expected.first, expected.newest
    found = dict(without_version(backend.shape(connection)))
    too_strict = found.pop(TOO_STRICT, None) is not None
    later = fit.present(found, first, newest)
    rest = {entry: definition for entry, definition in found.items() if entry not in later}
    differences = [*fit.misfits(rest, first, additive=True), *fit.clashes(rest, first, newest)]
    differences += original.displacing_objects({table for _, table, _ in newest})
    if differences and _has_other_times(found, first):
        differences = [IMPORTED]
    if not differences:
        differences = [f"damaged: {line}" for line in original.damages()]
    odd = [] if differences else list(misspelt_values(original, found))
    differences += [line for one in odd for line in one.refusals]
    sound = not differences
    shared_keys = _shared_keys(connection, found) if sound else ()
    return Survey(
        tuple(differences),
        tuple(fit.missing_entries(found, first)),
        later | (found.keys() & first.keys()) | ({ONE_ACTIVE} if shared_keys else frozenset()),
        too_strict,
        _count(connection) if too_strict else 0,
        shared_keys,
        (
            *(one.remark for one in odd if not one.found.mends),
            *_remarks(connection, original, found),
            *(
                f"{one} runs at every write"
                for one in original.unknown_triggers(SEED_TABLES, first.keys() | newest.keys())
            ),
        )
        if sound
        else (),
        tuple(one for one in odd if one.found.mends) if sound else (),
    )


def _has_other_times(found: Catalogue, first: Catalogue) -> bool:
    """True if the original program's tables exist and all their time columns have another type than this library's."""
    times: list[Entry] = [
        ("column", table, column.name)
        for table in SEED_TABLES
        for column in METADATA.tables[table].columns
        if form_of(column) == "time"
    ]
    there = [one for one in times if one in found and one in first]
    return len({table for _, table, _ in there}) > 1 and all(found[one] != first[one] for one in there)


def _count(connection: Connection) -> int:
    return int(connection.execute(text(f"SELECT count(*) FROM {SESSIONS}")).scalar_one())


def _shared_keys(connection: Connection, found: Catalogue) -> tuple[str, ...]:
    if ONE_ACTIVE in found or not all(("column", SESSIONS, name) in found for name in (*KEY, "active")):
        return ()
    rows = connection.execute(text(_SHARED)).all()
    return tuple(", ".join(repr(value) for value in row) for row in rows)


def _remarks(connection: Connection, original: Original, found: Catalogue) -> Iterator[str]:
    """Yield remarks about parts that stay unchanged and may surprise the user later."""
    for table in SEED_TABLES:
        if ("table", table, "") not in found:
            continue
        for key in METADATA.tables[table].primary_key.columns:
            missing = connection.execute(text(f'SELECT count(*) FROM {table} WHERE "{key.name}" IS NULL')).scalar_one()
            if missing:
                yield f"{missing} rows of {table} have no {key.name}"
    yield from original.orphans()
