"""Which column an annotation gets: the token of its type, and whether it admits None.

Optional, ``Annotated``, ``NewType`` and aliases are peeled first. A type that is in none of the lists is judged by its
JSON Schema; where that says nothing simple, the column holds JSON.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin
from uuid import UUID

import pydantic
import sqlalchemy as sa
from pydantic import AwareDatetime, FutureDatetime, NaiveDatetime, PastDatetime, SecretBytes, SecretStr, TypeAdapter
from pydantic.errors import PydanticUserError

from lastlight_state.db import columns
from lastlight_state.errors import InvalidValue
from lastlight_state.outputs.words import Token

#: The type of a column by its token.
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
#: By class, the first that fits: truth values are integers too, and datetimes are dates.
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


def peeled(annotation: Any) -> tuple[Any, bool]:
    """The annotation without Optional, Annotated and aliases, and whether it admits None."""
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
    """The token of a field's type."""
    kind, _ = peeled(annotation)
    origin = get_origin(kind)
    if origin is Literal:
        return _of_values(get_args(kind))
    if origin in (Union, types.UnionType):
        return "real" if {peeled(part)[0] for part in get_args(kind)} == {int, float} else "json"
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
    """Whether there are sets anywhere inside a type."""
    return any(isinstance(part, type) and issubclass(part, AbstractSet) for part in _parts(annotation, set()))


def refuse_unstorable(field: str, annotation: Any, metadata: Iterable[Any] = ()) -> None:
    """Raise `InvalidValue` naming the field for bytes, secrets, callables and JSON texts, however deep in its type."""
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
    """The annotation and everything inside it, metadata and fields of models included, each once."""
    if get_origin(annotation) is Annotated:
        yield from annotation.__metadata__
    kind, _ = peeled(annotation)
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
