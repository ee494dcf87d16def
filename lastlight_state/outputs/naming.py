"""From keys and field names to names of tables and columns, and the names that nobody may take."""

from __future__ import annotations

import re
from typing import Any

from lastlight_state.db.base import RESERVED_NAMES, RESERVED_PREFIXES
from lastlight_state.db.declarations import limits_of
from lastlight_state.errors import InvalidValue, ReservedName
from lastlight_state.outputs import words
from lastlight_state.outputs.tables import REGISTRY

_MOST = limits_of(REGISTRY)

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TABLE = re.compile(r"[a-z][a-z0-9_]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Between a small letter or digit and a capital, and before the last of several capitals that a small letter follows.
_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_INPUT_KEYS = frozenset({"input", "inputs"})
_FOREIGN_PREFIXES = ("alembic_", "sqlite_", "pg_")
_FIELD_PREFIXES = ("row_", "lastlight_")
#: Postgres gives every table columns of these names.
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})


def snake_case(name: str) -> str:
    """``codeReview`` as ``code_review``, ``parseHTML`` as ``parse_html``; what is snake case already stays."""
    return _WORD_BOUNDARY.sub("_", name).lower()


def key(value: Any) -> str:
    """A schema key: an ASCII letter, then letters, digits and underscores, at most 48 characters."""
    if type(value) is not str or not _KEY.fullmatch(value) or len(value) > _MOST.key:
        raise InvalidValue("key", f"must be 1 to {_MOST.key} ASCII letters, digits or underscores, a letter first")
    if value in _INPUT_KEYS:
        raise ReservedName("key", f"{value!r} means the run's input: name the output otherwise")
    return value


def table_name(where: str, value: Any) -> str:
    """A table name of the right form: small ASCII letters, digits and underscores, at most 48 characters."""
    if type(value) is not str or not _TABLE.fullmatch(value) or len(value) > _MOST.table_name:
        raise InvalidValue(
            where, f"must be 1 to {_MOST.table_name} small ASCII letters, digits or underscores, a letter first"
        )
    return value


def any_table_name(where: str, value: Any) -> str:
    """The name of a table of the caller's making."""
    if not isinstance(value, str) or not _NAME.fullmatch(value) or len(value) > words.COLUMN_NAME:
        raise InvalidValue(where, f"must be at most {words.COLUMN_NAME} ASCII letters, digits or underscores")
    return str(value)


def is_reserved(table: str) -> bool:
    """Whether the library keeps this table name for itself, or a tool does."""
    return table in RESERVED_NAMES or table.startswith((*RESERVED_PREFIXES, *_FOREIGN_PREFIXES))


def column(field: str) -> str:
    """The column name of a field. Raises `ReservedName` for names of bookkeeping columns."""
    name = snake_case(field)
    if not _NAME.fullmatch(field) or len(name) > words.COLUMN_NAME:
        raise InvalidValue(field, f"must be at most {words.COLUMN_NAME} ASCII letters, digits or underscores")
    if name in words.BOOKKEEPING or name in _SYSTEM_COLUMNS or name.startswith(_FIELD_PREFIXES):
        raise ReservedName(field, f"the column {name!r} is the library's or the database's own: rename the field")
    return name
