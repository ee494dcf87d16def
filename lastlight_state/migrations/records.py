"""Records that the functions of `lastlight_state.migrations` return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["empty", "unversioned", "behind", "current", "ahead", "incompatible", "unreleased", "foreign"]


#: Kinds of objects that hold values. No statement restores the values of a lost one.
HOLDING = ("table", "column")
#: Advice for lost values, and for a SQLite table that was rebuilt without one of its keys or constraints.
RESTORE = "tables and columns held values: restore a backup"
REMAKE = "SQLite adds no key or constraint to a table: make the table anew with it, or restore a backup"


@dataclass(frozen=True, order=True)
class Absent:
    """An object that a current schema lacks, or that is switched off.

    ``found`` is None if it is missing, ``off`` if it is switched off, ``other`` for an index that is unique and must
    not be, or the reverse. ``is_needed`` means that an invariant depends on it, or that statements fail without it.
    ``is_final`` means that no statement can restore it.
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
        """Return the object's kind and name as one text."""
        return f"{self.kind} {'.'.join(part for part in (self.table, self.name) if part)}"

    @property
    def line(self) -> str:
        """Return one line that describes what is wrong with the object."""
        told = {"off": "switched off", "other": "not unique" if self.is_unique else "unique", None: "missing"}
        return f"{self.place} is {told[self.found]}"


@dataclass(frozen=True)
class SchemaState:
    """The state of a database's schema.

    ``state``: ``empty`` (no tables of ours), ``unversioned`` (our tables, no version), ``behind``, ``current``,
    ``ahead`` (newer, but this library may work on it), ``incompatible`` (newer, and this library may not work on it),
    ``unreleased`` (a version from before the first release), ``foreign`` (another program's version). ``revision`` is
    the recorded one, or None. ``min_reader`` is read only when ahead. ``absent`` are the objects that a current schema
    should have and lacks.
    """

    state: State
    revision: str | None
    head: str
    min_reader: str | None = None
    unfinished_copy: bool = False
    absent: tuple[Absent, ...] = ()

    @property
    def remedy(self) -> str | None:
        """Describe what a person must do about lost objects that no statement can restore.

        Return None if there are none.
        """
        kinds = {one.kind for one in self.absent if one.is_final}
        return None if not kinds else RESTORE if kinds.intersection(HOLDING) else REMAKE

    @property
    def lacking(self) -> tuple[str, ...]:
        """Return one line for each missing object without which no store can be opened.

        These are tables, columns, guards, keys and unique indexes. On SQLite other indexes count, too, because
        statements name them and fail without them.
        """
        return tuple(one.line for one in self.absent if one.is_needed)


@dataclass(frozen=True)
class DataStep:
    """A revision's change of rows in a table.

    ``plan`` counts the rows before the change, ``report`` lists their keys afterwards.
    """

    table: str
    columns: tuple[str, ...]
    what: str
    plan: str
    report: str


@dataclass(frozen=True)
class Revision:
    """A revision: its name, its predecessor's name, and the first paragraph of its docstring."""

    revision: str
    down_revision: str | None
    summary: str


@dataclass(frozen=True)
class MigrationResult:
    """The result of a migration. ``revisions`` are those that this call applied; none if another process did it first.

    ``state`` is the schema's current state: ``current``, ``behind`` (an older revision was requested), or ``ahead``.
    ``adopted`` is true if this call adopted a database of the original program. ``mended`` names the lost parts that
    this call restored.
    """

    state: State
    from_revision: str | None
    to_revision: str
    revisions: tuple[str, ...]
    adopted: bool = False
    mended: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rewrite:
    """The number of rows that a revision would change now: ``rows`` of ``table``, which form ``groups``."""

    table: str
    columns: tuple[str, ...]
    what: str
    rows: int
    groups: int


@dataclass(frozen=True)
class PlannedRevision:
    """A revision that would be applied: its description's first line, and the rows it changes (mostly none)."""

    revision: str
    summary: str
    rewrites: tuple[Rewrite, ...]


@dataclass(frozen=True)
class Adoption:
    """The plan for adopting a database of the original program, before its first upgrade.

    ``rewrites`` are tables that are rebuilt. ``indexes``, ``tables`` and ``columns`` are added, because that version of
    the program did not create them. ``remarks`` describe unusual values in its rows, which are not changed.
    """

    rewrites: tuple[Rewrite, ...]
    indexes: tuple[str, ...]
    remarks: tuple[str, ...]
    tables: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The current plan of ``migrate``, with the lock that it would hold.

    A database with tables but no version has an ``adoption``, or ``differences`` that prevent one. For a current
    database, ``differences`` are its missing and different parts. For one that is empty or behind, they are names of
    ours that another program uses. ``actual`` is the schema's real revision, if another one or none is recorded: a
    stamp corrects it. ``mending`` are the statements with which `migrate` restores lost parts of a current schema.
    """

    state: SchemaState
    revisions: tuple[PlannedRevision, ...]
    lock: str
    adoption: Adoption | None = None
    differences: tuple[str, ...] = ()
    actual: str | None = None
    mending: tuple[str, ...] = ()
