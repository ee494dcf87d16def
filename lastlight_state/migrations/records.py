"""What callers of the migrations get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["empty", "unversioned", "behind", "current", "ahead", "incompatible", "unreleased", "foreign"]


#: Kinds of things that hold values. No statement brings back what was in a lost one.
HOLDING = ("table", "column")
#: What to do for those, and for a table of SQLite that was made anew without one of its keys or constraints.
RESTORE = "tables and columns held values: restore a backup"
REMAKE = "SQLite adds no key or constraint to a table: make the table anew with it, or restore a backup"


@dataclass(frozen=True, order=True)
class Absent:
    """One thing that a current schema lacks, or has without effect.

    ``found`` is None where it is missing, ``off`` where it is switched off, ``other`` for an index that is unique and
    must not be, or the other way round. ``is_needed``: an invariant stands on it, or statements fail without it.
    ``is_final``: no statement brings it back.
    """

    kind: str
    table: str
    name: str
    found: Literal["off", "other"] | None
    is_unique: bool
    is_needed: bool
    is_final: bool = False

    @property
    def place(self) -> str:
        """Return its kind and its name."""
        return f"{self.kind} {'.'.join(part for part in (self.table, self.name) if part)}"

    @property
    def line(self) -> str:
        """Return what is wrong with it."""
        told = {"off": "switched off", "other": "not unique" if self.is_unique else "unique", None: "missing"}
        return f"{self.place} is {told[self.found]}"


@dataclass(frozen=True)
class SchemaState:
    """The state of a database's schema.

    ``state``: ``empty`` (nothing of ours), ``unversioned`` (tables of ours, no version), ``behind``, ``current``,
    ``ahead`` (newer, and this library may work on it), ``incompatible`` (newer, and it may not), ``unreleased`` (of a
    version from before the first release), ``foreign`` (a version of another program). ``revision`` is the stored one,
    or None. ``min_reader`` is read only when ahead. ``absent`` is what a current schema should have and has not.
    """

    state: State
    revision: str | None
    head: str
    min_reader: str | None = None
    unfinished_copy: bool = False
    absent: tuple[Absent, ...] = ()

    @property
    def remedy(self) -> str | None:
        """Return what a person has to do for what no statement brings back; None where nothing of that kind is lost."""
        kinds = {one.kind for one in self.absent if one.is_final}
        return None if not kinds else RESTORE if kinds.intersection(HOLDING) else REMAKE

    @property
    def lacking(self) -> tuple[str, ...]:
        """Return one line for each thing without which no store opens: tables, columns, guards, keys, unique indexes.

        On SQLite other indexes, too: statements name them there, and fail without them.
        """
        return tuple(one.line for one in self.absent if one.is_needed)


@dataclass(frozen=True)
class DataStep:
    """Rows of a table that a revision changes; ``plan`` counts them before, ``report`` lists their keys afterwards."""

    table: str
    columns: tuple[str, ...]
    what: str
    plan: str
    report: str


@dataclass(frozen=True)
class Revision:
    """One revision: its name, its predecessor's, and the first paragraph of its text."""

    revision: str
    down_revision: str | None
    summary: str


@dataclass(frozen=True)
class MigrationResult:
    """The result of a migration. ``revisions`` are those that this call applied; none when another process was faster.

    ``state`` is what the schema is now: ``current``, ``behind`` (an older revision was asked for), or ``ahead``.
    ``adopted``: this call took over a database of the original program. ``mended`` names what this call put back into a
    schema that had lost it.
    """

    state: State
    from_revision: str | None
    to_revision: str
    revisions: tuple[str, ...]
    adopted: bool = False
    mended: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rewrite:
    """Rows that a revision changes: ``rows`` of ``table``, in ``groups`` that belong together, as things stand now."""

    table: str
    columns: tuple[str, ...]
    what: str
    rows: int
    groups: int


@dataclass(frozen=True)
class PlannedRevision:
    """A revision that would be applied: its first line, and the rows that it changes. Most change none."""

    revision: str
    summary: str
    rewrites: tuple[Rewrite, ...]


@dataclass(frozen=True)
class Adoption:
    """The plan for taking over a database of the original program, before its first upgrade.

    ``rewrites`` are tables that are rebuilt; ``indexes``, ``tables`` and ``columns`` are those that the version of the
    program did not make, and are added; ``remarks`` name unusual values in its rows, which are not changed.
    """

    rewrites: tuple[Rewrite, ...]
    indexes: tuple[str, ...]
    remarks: tuple[str, ...]
    tables: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The plan of ``migrate`` as of now, with the lock that it would hold.

    A database with tables and no version has an ``adoption``, or ``differences`` for which it is not taken over. Those
    of a current database are what it lacks of its revision, or has otherwise; those of an empty one, or of one that is
    behind, are names of ours that another program has taken. ``actual`` is the revision that the
    schema is at where its version says another one, or nothing: a stamp corrects it. ``mending`` are the statements by
    which `migrate` puts back what a current schema has lost.
    """

    state: SchemaState
    revisions: tuple[PlannedRevision, ...]
    lock: str
    adoption: Adoption | None = None
    differences: tuple[str, ...] = ()
    actual: str | None = None
    mending: tuple[str, ...] = ()
