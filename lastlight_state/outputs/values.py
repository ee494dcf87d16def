"""Conversion between callers' values and rows: validation, checks, and both directions."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from operator import attrgetter
from typing import Any

from pydantic import BaseModel, ValidationError

from lastlight_state import codec
from lastlight_state.clock import aware_utc, iso_text
from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.schema.columns import parse_time
from lastlight_state.errors import InvalidValue, PayloadTooLarge
from lastlight_state.outputs import models
from lastlight_state.outputs.shapes import OutputColumn, Shape
from lastlight_state.outputs.strict import dump_strictly, refuse_unordered

_WHERE = "value"
_SMALLEST, _GREATEST = -(2**63), 2**63 - 1
#: Types of columns whose values are the same as in JSON.
_AS_THEY_ARE: dict[str, type] = {"text": str, "boolean": bool}
#: Types of columns whose values are taken from the instance, because JSON has them in another form.
_NOT_JSON = frozenset({"timestamp", "decimal", "real"})
#: Types of columns whose values callers see in another form than JSON has them.
_WRITTEN = frozenset({"timestamp", "decimal", "blob"})
#: Types of values that contain no other values.
_SCALARS = frozenset({str, int, float, bool, type(None), datetime, Decimal})
_TYPE_OF = attrgetter("type")
_KINDS: dict[str, tuple[type, ...]] = {"text": (str,), "integer": (int,), "boolean": (bool,), "blob": (bytes,)}


class Issue(Record):
    """A validation error of a model: its path, its kind as a word, and a message for people."""

    path: str
    code: str
    message: str


@dataclass(frozen=True)
class Content:
    """The domain fields of a row in three forms: for callers, as JSON, and as parameters by column name."""

    data: Any
    json: Any
    row: Row


def content_of(shape: Shape, value: Any, max_bytes: int) -> Content:
    """Validate a caller's value, and return it as content.

    Raises `InvalidValue` with ``issues``, and `PayloadTooLarge` naming the largest field.
    """
    instance = validate_value(shape, value)
    dumped = _dump_instance(shape, instance)
    data = {
        column.field: found
        if (found := dumped[column.field]).__class__ is _AS_THEY_ARE.get(column.type)
        else _read(column, instance, found)
        for column in shape.columns
    }
    return build_content(shape.columns, shape.kind == "payload", data, max_bytes)


def validate_value(shape: Shape, value: Any) -> Any:
    """Return a value as an instance of the model. If it is an instance already, its fields are validated again."""
    given = bare(value)
    aliases = not (shape.holds_model and isinstance(value, shape.model))
    if shape.kind == "columns" and type(given) is not dict and not isinstance(given, Mapping):
        raise InvalidValue(
            _WHERE, f"must be a mapping of fields or a {shape.model.__name__}, not {type(value).__name__}"
        )
    if shape.kind == "payload" and shape.holds_model:
        given = given if isinstance(value, shape.model) else {models.PAYLOAD: given}
    try:
        instance = shape.adapter.validator.validate_python(given, by_alias=aliases, by_name=True)
    except ValidationError as error:
        raise invalid(error) from None
    if shape.has_json:
        refuse_unordered(_WHERE, given, shape.adapter, instance)
    return instance


def instance_of(shape: Shape, data: Any) -> Any:
    """Convert a stored row to an instance of the current model.

    A NULL is left out if the field may not be None.
    """
    columns = shape.columns
    if shape.kind == "payload":
        plain: Any = {models.PAYLOAD: data} if shape.holds_model else data
    else:
        plain = {
            column.field: jsonable(column.type, data.get(column.field))
            for column in columns
            if data.get(column.field) is not None or column.field in shape.optional
        }
    try:
        return shape.adapter.validate_json(codec.encode_sound(plain), by_alias=False, by_name=True)
    except ValidationError as error:
        raise invalid(error, "the row was written under an earlier shape of the model") from None


def json_of(columns: Sequence[OutputColumn], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a row as JSON by field name. A payload is stored under its column's name."""
    return {column.field: jsonable(column.type, row[column.name]) for column in columns if column.field is not None}


def data_from_json(columns: Sequence[OutputColumn], stored: Any, *, payload: bool) -> Any:
    """Convert stored JSON to the domain fields of a row, in the types that the table's columns return.

    Raises `InvalidValue` if the JSON does not fit the columns.
    """
    if payload:
        return stored
    if not isinstance(stored, dict):
        raise InvalidValue(_WHERE, f"expected an object, got {type(stored).__name__}")
    try:
        return {str(column.field): _from_json(column.type, stored.get(str(column.field))) for column in columns}
    except (ValueError, TypeError, ArithmeticError) as error:
        raise InvalidValue(_WHERE, "stored JSON does not fit the columns of the table") from error


def _from_json(token: str, value: Any) -> Any:
    if value is None:
        return None
    if token == "timestamp":  # noqa: S105
        return parse_time(value)
    if token == "decimal":  # noqa: S105
        return Decimal(value)
    if token == "blob":  # noqa: S105
        return bytes.fromhex(value)
    return float(value) if token == "real" else value  # noqa: S105


def jsonable(token: str, value: Any) -> Any:
    """Return a column's value as JSON: times and decimals as text, bytes as hexadecimal text."""
    if value is None:
        return None
    if token == "timestamp":  # noqa: S105 - a word for a type
        return iso_text(aware_utc("stored", in_utc(value)))
    if token == "decimal":  # noqa: S105
        return format(value, "f")
    if token == "blob":  # noqa: S105
        return bytes(value).hex()
    return value


def in_utc(value: Any) -> Any:
    """Return a time without a zone as UTC, in which it was written. Any other value is returned unchanged."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def invalid(error: ValidationError, note: str | None = None, *, where: str = _WHERE) -> InvalidValue:
    """Return the library's error for a failed validation, with paths and codes but never the values."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    issues = tuple(Issue(path=".".join(map(str, one["loc"])), code=one["type"], message=one["msg"]) for one in found)
    listed = "; ".join(f"{one.path or where}: {one.message}" for one in issues[:5])
    place = f"{where}.{issues[0].path}" if issues[0].path else where
    return InvalidValue(place, f"{note}: {listed}" if note else listed, issues=issues)


def bare(value: Any) -> Any:
    """Return the value with models and dataclasses replaced by mappings of their fields, to be validated again."""
    try:
        return _bare(value)
    except RecursionError:
        raise InvalidValue(_WHERE, "must not be nested too deep, or contain a cycle") from None


def _bare(value: Any) -> Any:
    if type(value) in _SCALARS:
        return value
    if type(value) is dict:
        return {key: found if type(found) in _SCALARS else _bare(found) for key, found in value.items()}
    if isinstance(value, BaseModel):
        known = type(value).model_fields
        if "root" in known:
            return _bare(value.__dict__.get("root"))
        return {name: _bare(found) for name, found in value.__dict__.items() if name in known}
    if isinstance(value, dict):
        return {key: _bare(found) for key, found in value.items()}
    if isinstance(value, list):
        return [_bare(found) for found in value]
    if isinstance(value, deque):
        return deque(map(_bare, value), value.maxlen)
    if type(value) is tuple:
        return tuple(_bare(found) for found in value)
    if is_dataclass(value) and not isinstance(value, type):
        return {found.name: _bare(getattr(value, found.name)) for found in fields(value) if found.init}
    return value


def _dump_instance(shape: Shape, instance: Any) -> Any:
    """Return the instance as JSON by field name. A payload without a model is put under ``payload``."""
    dumped = dump_strictly(_WHERE, shape.adapter, instance, has_sets=shape.has_sets, is_open=shape.has_json)
    if shape.kind == "payload" and not shape.holds_model:
        return {models.PAYLOAD: dumped}
    if dumped.__class__ is not dict or not shape.fields <= dumped.keys():
        _refuse_left_out(shape, dumped)
    return dumped


def _refuse_left_out(shape: Shape, dumped: Any) -> None:
    for column in shape.columns:
        if not isinstance(dumped, Mapping) or column.field not in dumped:
            raise InvalidValue(f"{_WHERE}.{column.field}", "is left out when the model is written as JSON")


def _read(column: OutputColumn, instance: Any, dumped: Any) -> Any:
    """Return the value that a column will return for a field of an instance. ``dumped`` is the field's JSON."""
    if column.type == "json":
        return dumped
    kept = getattr(instance, str(column.field)) if column.type in _NOT_JSON else dumped
    return convert_value(f"{_WHERE}.{column.field}", column.type, kept)


def convert_value(where: str, token: str, value: Any) -> Any:
    """Convert a value to the form in which a column of this type returns it.

    Raises `InvalidValue` if it does not fit.
    """
    if value is None:
        return None
    if token == "timestamp":  # noqa: S105
        return aware_utc(where, value)
    if token == "decimal":  # noqa: S105
        return _decimal(where, value)
    if token == "real":  # noqa: S105
        return _float(where, value)
    kinds = _KINDS.get(token)
    if kinds and (not isinstance(value, kinds) or (token == "integer" and isinstance(value, bool))):  # noqa: S105
        raise InvalidValue(where, f"expected {token}, got {type(value).__name__}")
    if token == "integer" and not _SMALLEST <= value <= _GREATEST:  # noqa: S105
        raise InvalidValue(where, "expected an integer of at most 64 bits, got an integer beyond 64 bits")
    return value


def _float(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(where, f"expected a number, got {type(value).__name__}")
    try:
        number = float(value) + 0.0  # zero has no sign in SQLite
    except OverflowError:
        raise InvalidValue(where, "must be within the range of a float") from None
    if not isfinite(number):
        raise InvalidValue(where, "expected a finite number, got NaN or infinity")
    return number


def _decimal(where: str, value: Any) -> Decimal:
    if not isinstance(value, Decimal):
        raise InvalidValue(where, f"expected a Decimal, got {type(value).__name__}")
    if not value.is_finite():
        raise InvalidValue(where, "expected a finite number, got NaN or infinity")
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or len(digits) + abs(exponent) > models.DECIMAL_DIGITS:
        raise InvalidValue(where, f"more than {models.DECIMAL_DIGITS} digits")
    return Decimal(format(value.copy_abs() if value.is_zero() else value, "f"))


def build_content(columns: Sequence[OutputColumn], payload: bool, data: dict[Any, Any], max_bytes: int) -> Content:
    plain = data
    if not _WRITTEN.isdisjoint(map(_TYPE_OF, columns)):
        plain = {column.field: jsonable(column.type, data[column.field]) for column in columns}
    whole = plain[models.PAYLOAD] if payload else plain
    where = f"{_WHERE}.{models.PAYLOAD}" if payload else _WHERE
    size = len(codec.encode_bytes(where, whole, max_depth=models.ROW_DEPTH))
    if size > max_bytes:
        largest = max(plain, key=lambda name: len(codec.encode_sound(plain[name])))
        raise PayloadTooLarge(f"{_WHERE}.{largest}", limit=max_bytes, actual=size)
    row = {
        column.name: _parameter(column, data[column.field]) if column.type == "json" else data[column.field]
        for column in columns
    }
    return Content(data[models.PAYLOAD] if payload else data, whole, row)


def _parameter(column: OutputColumn, value: Any) -> Any:
    if value is None:
        return None
    return codec.encode(column.name, value, max_bytes=2**40, max_depth=models.ROW_DEPTH)
