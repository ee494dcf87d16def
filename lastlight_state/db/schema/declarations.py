"""Facts declared with tables and columns: personal data, limits, vocabularies, and when rows are removed.

A model declares a fact once, with the column. Checks of arguments, erasure, redaction, doctor, bundles and
``docs/schema.py`` read it here, so no list of columns or limits is kept anywhere else.

A column is *personal* if it can hold what a person said, what was said about a person, or a person's name. Every column
of text, JSON or bytes declares whether it is personal; there is no default. Every column of text or JSON also declares
the most bytes that a caller may store in it, or None. None means that no limit is checked, because the library makes
the value itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import sqlalchemy as sa
from sqlalchemy.orm import MappedColumn, mapped_column

from lastlight_state import codec
from lastlight_state.db.schema import columns, sealing
from lastlight_state.db.schema.sealing import Binding

COMMENT_PREFIX = "lastlight_state: "

#: The ways in which `erase` treats rows that belong to the person: it empties their personal columns, or removes them.
#: Rows of a run are removed with the run, when it is pruned.
Erased = Literal["emptied", "removed", "with_run"]

_LIMITED = (sa.String, sa.JSON, columns.BinaryJson)
_ASKED = (*_LIMITED, *columns.BYTES)
_FACTS = "facts"

KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True)
class Setting:
    """A limit that the caller may set: a name of `lastlight_state.settings.Limits`."""

    name: str


Most: TypeAlias = "int | Setting | None"
"""The most bytes that a caller may store in a column (of text and JSON as UTF-8), or None for no limit."""


class UndeclaredColumn(TypeError):
    """Raised for a model that leaves out a required fact about a table or column."""


@dataclass(frozen=True)
class TableFacts:
    """The facts that a table declares.

    ``pruned_as`` are the kinds of prune that remove rows; ``kept`` states why rows stay if no kind removes them.
    ``erased`` describes how `erase` treats the rows of a person; ``stays`` states why personal columns keep their
    values if it does nothing. ``newest`` names columns with times that lie in the past when a row is written.
    ``storage`` are storage parameters for Postgres, such as a fillfactor that leaves room for heap-only updates.
    """

    pruned_as: tuple[str, ...] = ()
    kept: str = ""
    erased: Erased | None = None
    stays: str = ""
    newest: tuple[str, ...] = ()
    storage: str = ""


def describe_table(
    holds: str,
    *,
    pruned_as: Collection[str] = (),
    kept: str = "",
    erased: Erased | None = None,
    stays: str = "",
    newest: Collection[str] = (),
    storage: str = "",
    **options: Any,
) -> dict[str, Any]:
    """Return the ``__table_args__`` of a table: a comment for readers on Postgres, and its `TableFacts`."""
    facts = TableFacts(tuple(pruned_as), kept, erased, stays, tuple(newest), storage)
    return {"comment": f"{COMMENT_PREFIX}{holds}", "info": {_FACTS: facts}, **options}


def text_column(most: Most, *arguments: Any, personal: bool, **options: Any) -> MappedColumn[Any]:
    """Return a column of text, of at most ``most`` bytes of UTF-8."""
    return mapped_column(columns.Text, *arguments, info={"personal": personal, "most": most}, **options)


def word_column(words: Collection[str], *arguments: Any, **options: Any) -> MappedColumn[Any]:
    """Return a column of words from a vocabulary, which ``words`` lists as this version knows it.

    Guards refuse other words (`guards.keep_words`). A word of a later version, or one stored before the guards existed,
    can still be read.
    """
    info = {"personal": False, "most": None, "words": frozenset(words)}
    return mapped_column(columns.Text, *arguments, info=info, **options)


def person_column(most: Most, *arguments: Any, **options: Any) -> MappedColumn[Any]:
    """Return a text column for the name by which `erase` finds a person. `erase` clears this name and no other."""
    return mapped_column(columns.Text, *arguments, info={"personal": True, "person": True, "most": most}, **options)


def json_column(
    most: Most,
    *,
    personal: bool,
    depth: int = codec.MAX_DEPTH,
    redacted: bool = True,
    shape: type | None = None,
    sealed: Binding | None = None,
    **options: Any,
) -> MappedColumn[Any]:
    """Return a column of JSON, of at most ``most`` bytes as text and ``depth`` levels of objects and arrays.

    With ``sealed``, a store's codec seals the column's values. Statements must then not look into the values. They must
    also show and store the columns to which a value is bound. With ``shape``, which is dict or list, a value of another
    shape counts as damage. With ``redacted=False``, a personal column keeps its value when `redact` empties the row;
    `erase` still empties it.
    """
    info = {"personal": personal, "redacted": redacted, "most": most, "depth": depth}
    shaped = {} if shape is None else {"shape": shape}
    return mapped_column(
        columns.Json if sealed is None else sealing.sealed_json(sealed), info={**info, **shaped}, **options
    )


def bytes_column(
    *, personal: bool, most: Most = None, sealed: Binding | None = None, **options: Any
) -> MappedColumn[Any]:
    """Return a column of bytes, at most ``most`` of them. An embedding reveals the text from which it was made.

    ``sealed`` has the same meaning as in `json_column`.
    """
    kind = columns.Bytes if sealed is None else sealing.sealed_bytes(sealed)
    return mapped_column(kind, info={"personal": personal, "most": most}, **options)


def facts_of(table: sa.Table) -> TableFacts:
    """Return the facts that a table declares."""
    found: TableFacts = table.info[_FACTS]
    return found


class ColumnLimits(SimpleNamespace):
    """The limits in bytes of a table's columns. Each is an attribute with the name of its column.

    A column without a fixed limit has no attribute.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> int: ...


@cache
def limits_of(table: sa.Table) -> ColumnLimits:
    """Return the limits of a table's columns, for checks of arguments. Read them when the module is loaded."""
    most = {column.name: column.info.get("most") for column in table.columns}
    return ColumnLimits(**{name: limit for name, limit in most.items() if isinstance(limit, int)})


def depth_of(column: sa.Column[Any]) -> int:
    """Return the deepest nesting of objects and arrays that a column of JSON accepts."""
    depth: int = column.info["depth"]
    return depth


def is_personal(column: sa.Column[Any]) -> bool:
    """True if the column holds personal data."""
    return bool(column.info.get("personal"))


def names(table: sa.Table) -> tuple[sa.Column[Any], ...]:
    """Return the nullable columns that hold the name of a person."""
    return tuple(one for one in table.columns if one.info.get("person") and one.nullable)


def contents(table: sa.Table, *, but: Collection[str] = (), redacted: bool = False) -> tuple[sa.Column[Any], ...]:
    """Return the personal columns that become NULL when a row is emptied: all except those of `names`.

    The columns in ``but`` are left out, because they are emptied in another way. With ``redacted``, return only the
    columns that `redact` empties. Raises `UndeclaredColumn` for a column that must become NULL but cannot.
    """
    found = [one for one in table.columns if is_personal(one) and not one.info.get("person") and one.name not in but]
    for one in found:
        if not one.nullable:
            raise UndeclaredColumn(f"{one} is personal and cannot be NULL: say how it is emptied")
    return tuple(one for one in found if not redacted or one.info.get("redacted", True))


def empty_values(given: Iterable[sa.Column[Any]]) -> dict[str, Any]:
    """Return the values of an UPDATE that sets these columns to NULL or to their empty value."""
    return {one.name: sa.null() for one in given}


def values_without_person(table: sa.Table, person: sa.ColumnElement[str]) -> dict[str, Any]:
    """Return the values of an UPDATE that clears a person's name from the columns that `names` returns."""
    return {one.name: sa.func.nullif(one, person) for one in names(table)}


def vocabularies(tables: Iterable[sa.Table]) -> Iterator[tuple[sa.Column[Any], Collection[str]]]:
    """Return the columns that hold words of a vocabulary, each with the words that this version knows.

    Guards refuse other words. Yet a later version may store further words, and files of the original program may hold
    others.
    """
    for table in tables:
        for column in table.columns:
            if "words" in column.info:
                yield column, column.info["words"]


def shaped_columns(tables: Iterable[sa.Table]) -> Iterator[tuple[sa.Column[Any], type]]:
    """Return the JSON columns whose values must all be dicts or all be lists, each with that type."""
    for table in tables:
        for column in table.columns:
            if "shape" in column.info:
                yield column, column.info["shape"]


def confirm(table: sa.Table) -> None:
    """Raise `UndeclaredColumn` if a table leaves out a required fact."""
    for column in table.columns:
        if isinstance(column.type, _ASKED) and "personal" not in column.info:
            raise UndeclaredColumn(f"{column} must say whether it is personal: personal=True or personal=False")
        if isinstance(column.type, _LIMITED) and "most" not in column.info:
            raise UndeclaredColumn(f"{column} must say how many bytes it may have: a number, a Setting or None")
    facts: TableFacts | None = table.info.get(_FACTS)
    if facts is None:
        raise UndeclaredColumn(f"{table.name} must say what it holds: described(...)")
    if bool(facts.pruned_as) is bool(facts.kept):
        raise UndeclaredColumn(
            f"{table.name} must say either which prune removes its rows (pruned_as=) or why they stay (kept=)"
        )
    said = (facts.erased is not None) + bool(facts.stays)
    if said != any(map(is_personal, table.columns)):
        raise UndeclaredColumn(f"{table.name} must say what erase does with its personal columns, or why they stay")
    _confirm_names(table, facts.newest)


def _confirm_names(table: sa.Table, given: Iterable[str]) -> None:
    for name in given:
        if name not in table.columns:
            raise UndeclaredColumn(f"{table.name} has no column {name}")
