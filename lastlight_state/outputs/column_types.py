"""Conversion of type annotations to columns: the type's token, and whether the column admits None.

Optional, ``Annotated``, ``NewType`` and aliases are unwrapped first. A type that has no token is classified by its JSON
Schema. If the schema has no simple type, the column holds JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Annotated, Any, Literal, NewType, Protocol, Union, get_args, get_origin
from uuid import UUID

import pydantic
import sqlalchemy as sa
from pydantic import AwareDatetime, FutureDatetime, NaiveDatetime, PastDatetime, SecretBytes, SecretStr, TypeAdapter
from pydantic.errors import PydanticUserError

from lastlight_state.db.schema import columns
from lastlight_state.db.schema.base import RESERVED_NAMES, RESERVED_PREFIXES
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import InvalidValue, ReservedName
from lastlight_state.outputs import models
from lastlight_state.outputs.models import REGISTRY, Token

# How a schema is recognised: by the signature of its table, and by the digest of its model.
#
# The signature covers columns, and the digest covers validation: a smaller enum or a new bound changes only the digest.
# Custom validator functions change neither.

#: Keywords of JSON Schema that document and do not validate.
_DOCUMENTING = frozenset({"title", "description", "examples", "deprecated", "$comment"})
#: Keywords whose value maps names to schemas. Such a name may be equal to a documenting keyword.
_NAMING = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
#: Keywords whose value is data, not a schema.
_DATA = frozenset({"const", "default", "enum"})


class SignedColumn(Protocol):
    """The properties of a column that are part of a signature."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def nullable(self) -> bool: ...
    @property
    def primary_key(self) -> bool: ...


def signed_text(table_name: str, columns: Iterable[SignedColumn]) -> str:
    """Return the text to hash: ``analysis|iteration:integer:1:1|node_id:text:1:1|…``, sorted by column name.

    Each column is given by its name, its type, 1 if it is NOT NULL, and 1 if it is in the primary key.
    """
    ordered = sorted(columns, key=lambda column: column.name)
    parts = (f"{column.name}:{column.type}:{int(not column.nullable)}:{int(column.primary_key)}" for column in ordered)
    return "|".join((table_name, *parts))


def signature(table_name: str, columns: Iterable[SignedColumn]) -> str:
    """Return the SHA-256 digest of `signed_text` as 64 lower-case hex digits, the same on both databases."""
    return hashlib.sha256(signed_text(table_name, columns).encode()).hexdigest()


def model_digest(json_schema: Mapping[str, Any]) -> str:
    """Return the SHA-256 digest of a JSON Schema. Documentation and the order of fields do not change the digest."""
    plain = json.dumps(_bare_schema(json_schema), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


def _bare_schema(schema: Any) -> Any:
    """Return the schema without titles, descriptions and examples."""
    if isinstance(schema, list):
        return [_bare_schema(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {word: _part(word, part) for word, part in schema.items() if word not in _DOCUMENTING}


def _part(word: str, part: Any) -> Any:
    if word in _DATA:
        return part
    if word == "required":
        return sorted(part)
    if word in _NAMING:
        return {name: _bare_schema(schema) for name, schema in part.items()}
    return _bare_schema(part)


# From keys and field names to names of tables and columns, and the reserved names.

_LIMITS = limits_of(REGISTRY)

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TABLE = re.compile(r"[a-z][a-z0-9_]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Where a new word begins: between a small letter or digit and a capital, and before the last of several capitals if a
#: small letter follows it.
_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_INPUT_KEYS = frozenset({"input", "inputs"})
_FOREIGN_PREFIXES = ("alembic_", "sqlite_", "pg_")
#: Prefixes of names of indexes and constraints. Neither database allows a table with the name of one.
_INDEX_PREFIXES = ("idx_", "ix_", "uq_", "pk_", "fk_", "ck_")
_FIELD_PREFIXES = ("row_", "lastlight_")
#: Names of the system columns that Postgres gives every table.
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})


def snake_case(name: str) -> str:
    """Return a name in snake case: ``code_review`` for ``codeReview``, ``parse_html`` for ``parseHTML``."""
    return _WORD_BOUNDARY.sub("_", name).lower()


def key(value: Any) -> str:
    """Check a schema key, and return it: an ASCII letter, then letters, digits and underscores, up to 48 characters."""
    if type(value) is not str or not _KEY.fullmatch(value) or len(value) > _LIMITS.key:
        raise InvalidValue("key", f"must be 1 to {_LIMITS.key} ASCII letters, digits or underscores, a letter first")
    if value in _INPUT_KEYS:
        raise ReservedName("key", f"{value!r} means the run's input: name the output otherwise")
    return value


def table_name(where: str, value: Any) -> str:
    """Check a table name, and return it: lower-case ASCII letters, digits and underscores, at most 48 characters."""
    if type(value) is not str or not _TABLE.fullmatch(value) or len(value) > _LIMITS.table_name:
        raise InvalidValue(
            where, f"must be 1 to {_LIMITS.table_name} small ASCII letters, digits or underscores, a letter first"
        )
    return value


def any_table_name(where: str, value: Any) -> str:
    """Check the characters and length of the name of a caller's table, and return it."""
    if not isinstance(value, str) or not _NAME.fullmatch(value) or len(value) > models.COLUMN_NAME:
        raise InvalidValue(where, f"must be at most {models.COLUMN_NAME} ASCII letters, digits or underscores")
    return str(value)


def is_reserved(table: str) -> bool:
    """True if a table name is reserved for the library or for a tool."""
    return table in RESERVED_NAMES or table.startswith((*RESERVED_PREFIXES, *_FOREIGN_PREFIXES, *_INDEX_PREFIXES))


def column(field: str) -> str:
    """Return the column name of a field. Raises `ReservedName` for the names of bookkeeping and system columns."""
    name = snake_case(field)
    if not _NAME.fullmatch(field) or len(name) > models.COLUMN_NAME:
        raise InvalidValue(field, f"must be at most {models.COLUMN_NAME} ASCII letters, digits or underscores")
    if name in models.BOOKKEEPING or name in _SYSTEM_COLUMNS or name.startswith(_FIELD_PREFIXES):
        raise ReservedName(field, f"the column {name!r} is the library's or the database's own: rename the field")
    return name


#: The SQLAlchemy type of a column, by its token.
TYPES: dict[str, sa.types.TypeEngine[Any]] = {
    "text": columns.Text,
    "integer": columns.Integer,
    "real": columns.Real,
    "boolean": columns.Boolean,
    "decimal": columns.Exact,
    "timestamp": columns.SpelledTimestamp,
    "json": columns.Json,
    "blob": sa.LargeBinary(),
}

_NOTHING = type(None)
_AWARE = (AwareDatetime, PastDatetime, FutureDatetime)
#: Tokens by class; the first that fits counts, because booleans are integers too, and datetimes are dates.
_BY_CLASS: tuple[tuple[tuple[type, ...], Token], ...] = (
    ((bool,), "boolean"),
    ((str, UUID, PurePath), "text"),
    ((int,), "integer"),
    ((float,), "real"),
    ((Decimal,), "decimal"),
    ((datetime,), "timestamp"),
    ((date, time, timedelta), "text"),
)
_BY_SCHEMA: dict[Any, Token] = {"string": "text", "integer": "integer", "number": "real", "boolean": "boolean"}
_REFUSED: tuple[tuple[tuple[type, ...], str], ...] = (
    ((bytes, bytearray, memoryview), "bytes cannot be stored: store text, or a reference to a file"),
    ((SecretStr, SecretBytes), "secrets cannot be stored: they would be readable by everybody who reads the database"),
    ((pydantic.Json,), "pydantic.Json takes text and gives a value: use the type of the value"),
)


def peel_annotation(annotation: Any) -> tuple[Any, bool]:
    """Return the annotation without Optional, ``Annotated`` and aliases, and True if it admits None."""
    nullable = False
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = annotation.__origin__
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":  # of `typing` from Python 3.12 on, or of its backport
            annotation = annotation.__value__
        elif origin in (Union, types.UnionType) and _NOTHING in get_args(annotation):
            nullable = True
            rest = tuple(part for part in get_args(annotation) if part is not _NOTHING)
            annotation = Union[rest]  # noqa: UP007 - the parts are known at run time only
        else:
            return annotation, nullable or annotation in (Any, object, None, _NOTHING)


def token_of(annotation: Any) -> Token:
    """Return the column token of a field's annotation."""
    kind, _ = peel_annotation(annotation)
    origin = get_origin(kind)
    if origin is Literal:
        return _of_values(get_args(kind))
    if origin in (Union, types.UnionType):
        return "real" if {peel_annotation(part)[0] for part in get_args(kind)} == {int, float} else "json"
    if kind in _AWARE:
        return "timestamp"
    if kind is NaiveDatetime:
        return "text"
    if not isinstance(kind, type) or origin is not None:
        return "json"
    if issubclass(kind, Enum):
        return _of_values([member.value for member in kind])
    for classes, token in _BY_CLASS:
        if issubclass(kind, classes):
            return token
    return _by_schema(kind)


def has_sets(annotation: Any) -> bool:
    """True if a type contains sets at any depth."""
    return any(isinstance(part, type) and issubclass(part, AbstractSet) for part in _parts(annotation, set()))


def refuse_unstorable(field: str, annotation: Any, metadata: Iterable[Any] = ()) -> None:
    """Raise `InvalidValue` naming the field if its type holds bytes, secrets, callables or JSON texts at any depth."""
    for part in (*_parts(annotation, set()), *metadata):
        if part is Callable:
            raise InvalidValue(field, "callables cannot be stored")
        for classes, problem in _REFUSED:
            if isinstance(part, classes) or (isinstance(part, type) and issubclass(part, classes)):
                raise InvalidValue(field, problem)


def _of_values(values: Any) -> Token:
    kinds = {type(value.value if isinstance(value, Enum) else value) for value in values} - {_NOTHING}
    if kinds == {bool}:
        return "boolean"
    if kinds and all(issubclass(kind, str) for kind in kinds):
        return "text"
    if kinds and all(issubclass(kind, int) and kind is not bool for kind in kinds):
        return "integer"
    return "json"


def _by_schema(kind: type) -> Token:
    if issubclass(kind, pydantic.BaseModel):
        return "json"
    try:
        schema = TypeAdapter(kind).json_schema(mode="serialization")
    except PydanticUserError:
        return "json"
    return _BY_SCHEMA.get(schema.get("type"), "json")


def _parts(annotation: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the annotation and all types inside it, each once, with metadata and the fields of models."""
    if get_origin(annotation) is Annotated:
        yield from annotation.__metadata__
    kind, _ = peel_annotation(annotation)
    if id(kind) in seen:
        return
    seen.add(id(kind))
    yield get_origin(kind) or kind
    for argument in get_args(kind) if get_origin(kind) is not Literal else ():
        yield from _parts(argument, seen)
    if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
        for field in kind.model_fields.values():
            yield from field.metadata
            yield from _parts(field.annotation, seen)
