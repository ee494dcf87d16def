"""Conversion of models to shapes of tables: columns, kind, signature and digest. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson
from pydantic import BaseModel, RootModel, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined

from lastlight_state import codec
from lastlight_state.errors import InvalidValue
from lastlight_state.outputs import column_types, models
from lastlight_state.outputs.column_types import has_sets, model_digest, peel_annotation, refuse_unstorable, token_of
from lastlight_state.outputs.models import Kind, Token
from lastlight_state.reprs import repr_of


@dataclass(frozen=True)
class OutputColumn:
    """A column of an output table. ``field`` is None for the library's own columns."""

    name: str
    field: str | None
    type: Token
    nullable: bool
    primary_key: bool


#: The bookkeeping columns with which every output table begins.
BOOKKEEPING = (
    OutputColumn("run_id", None, "text", nullable=False, primary_key=True),
    OutputColumn("node_id", None, "text", nullable=False, primary_key=True),
    OutputColumn("iteration", None, "integer", nullable=False, primary_key=True),
    OutputColumn("row_created_at", None, "timestamp", nullable=False, primary_key=False),
    OutputColumn("row_updated_at", None, "timestamp", nullable=False, primary_key=False),
)


@dataclass(frozen=True)
class Shape:
    """The table structure that results from a model. ``optional`` names the fields whose type admits None."""

    model: Any
    kind: Kind
    columns: tuple[OutputColumn, ...]
    adapter: TypeAdapter[Any] = field(repr=False)
    json_schema: dict[str, Any] = field(repr=False)
    model_digest: str
    optional: frozenset[str]
    #: True if values may hold sets, whose order differs from process to process.
    has_sets: bool
    #: Descriptions of the columns, by column name.
    comments: Mapping[str, str] = field(repr=False)

    @cached_property
    def fields(self) -> frozenset[str]:
        """Return the names of the fields that are stored in columns."""
        return frozenset(str(column.field) for column in self.columns)

    @cached_property
    def has_json(self) -> bool:
        """True if at least one column holds JSON."""
        return any(column.type == "json" for column in self.columns)

    @cached_property
    def holds_model(self) -> bool:
        """True if values are instances of a model with fields."""
        return _has_fields(self.model)


def shape_of(model: Any) -> Shape:
    """Return the table structure that results from a model, or from any other type.

    Raises `InvalidValue` naming a field that cannot be stored.
    """
    kind: Kind = "columns" if _has_fields(model) and set(model.model_fields) != {models.PAYLOAD} else "payload"
    columns = _columns(model) if kind == "columns" else (_payload(model),)
    schema = _schema_of(model)
    fields = model.model_fields if _has_fields(model) else {}
    return Shape(
        model=model,
        kind=kind,
        columns=columns,
        adapter=adapter_of(model),
        json_schema=schema,
        model_digest=model_digest(schema),
        optional=frozenset(name for name, found in fields.items() if peel_annotation(found.annotation)[1]),
        has_sets=has_sets(model),
        comments={
            column_types.snake_case(name): found.description for name, found in fields.items() if found.description
        },
    )


def schema_text(schema: Mapping[str, Any]) -> str:
    """Return a JSON Schema as text, identical in every process, with fields in declared order."""
    return json.dumps(schema, ensure_ascii=False, indent=2)


def field_descriptions(shape: Shape) -> list[dict[str, Any]]:
    """Return a description of each field for people, in declared order."""
    if not shape.holds_model:
        return [_field_facts(models.PAYLOAD, shape.columns[0], None, shape.json_schema)]
    schema = TypeAdapter(shape.model).json_schema(by_alias=False, schema_generator=_Schemas)
    parts = schema.get("$defs", {})
    properties = _resolved_schema(schema, parts).get("properties", {})
    fields = shape.model.model_fields
    return [
        _field_facts(name, column, fields[name], _resolved_schema(properties.get(name, {}), parts))
        for column in shape.columns
        for name in [str(column.field)]
    ]


def _resolved_schema(schema: dict[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with its references resolved, and without the alternative ``null``."""
    while True:
        rest = dict(schema)
        name, choices = rest.pop("$ref", None), rest.get("anyOf", ())
        others = [choice for choice in choices if choice != {"type": "null"}]
        if name is not None:
            schema = {**parts[name.rpartition("/")[2]], **rest}
        elif len(others) == 1:
            del rest["anyOf"]
            schema = {**others[0], **rest}
        else:
            return schema


class _Schemas(GenerateJsonSchema):
    """Generates JSON Schemas without warnings.

    Defaults that JSON cannot express are left out; sets are in a fixed order.
    """

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's own spelling

    def encode_default(self, dft: Any) -> Any:
        found = super().encode_default(dft)
        return codec.in_one_order(dft, found)


def _has_fields(model: Any) -> bool:
    return isinstance(model, type) and issubclass(model, BaseModel) and not issubclass(model, RootModel)


def _columns(model: type[BaseModel]) -> tuple[OutputColumn, ...]:
    fields = model.model_fields
    if model.model_config.get("extra") == "allow":
        raise InvalidValue(
            model.__name__, 'extra="allow" has no fixed columns: define a model whose only field is `payload`'
        )
    if not fields:
        raise InvalidValue(model.__name__, "must have at least one field")
    if len(fields) > models.FIELDS:
        raise InvalidValue(model.__name__, f"{len(fields)} fields, more than the limit of {models.FIELDS}")
    columns = tuple(_column(name, found) for name, found in fields.items())
    _refuse_twins(columns)
    return columns


def _column(name: str, found: FieldInfo) -> OutputColumn:
    if found.exclude:
        raise InvalidValue(name, "a field with exclude=True would not be stored: remove it or include it")
    refuse_unstorable(name, found.annotation, found.metadata)
    return OutputColumn(
        column_types.column(name), name, _token(name, found.annotation), nullable=True, primary_key=False
    )


def _payload(model: Any) -> OutputColumn:
    refuse_unstorable(models.PAYLOAD, model)
    return OutputColumn(models.PAYLOAD, models.PAYLOAD, "json", nullable=True, primary_key=False)


def _token(name: str, annotation: Any) -> Token:
    try:
        TypeAdapter(annotation).json_schema(schema_generator=_Schemas)
        return token_of(annotation)
    except PydanticUserError as error:
        raise InvalidValue(name, f"its type has no JSON Schema: {error.message}") from None


def _refuse_twins(columns: Sequence[OutputColumn]) -> None:
    first: dict[str, str | None] = {}
    for column in columns:
        if column.name in first:
            raise InvalidValue(
                str(column.field), f"has the column {column.name!r}, as the field {first[column.name]!r} has"
            )
        first[column.name] = column.field


def _schema_of(model: Any) -> dict[str, Any]:
    try:
        schema = adapter_of(model).json_schema(schema_generator=_Schemas)
    except PydanticUserError as error:
        raise InvalidValue(_name(model), f"has no JSON Schema: {error.message}") from None
    _refuse_unwritable(_name(model), schema)
    return schema


def _refuse_unwritable(name: str, schema: dict[str, Any]) -> None:
    """Raise `InvalidValue` for a schema that the registry cannot store: a lone surrogate, NUL, a very large bound."""
    try:
        text = orjson.dumps(schema)
    except TypeError as error:
        codec.encode_bytes(name, schema, max_depth=models.SCHEMA_DEPTH)
        raise InvalidValue(name, f"its JSON Schema cannot be stored: {error}") from None
    if b"\\u0000" in text:
        codec.encode_bytes(name, schema, max_depth=models.SCHEMA_DEPTH)


def adapter_of(model: Any) -> TypeAdapter[Any]:
    """Return the validator of a model or another type. Raises `InvalidValue` for a value that is not a type."""
    if isinstance(model, Mapping | str | int | float):  # pydantic's core schema, a name, or no type at all
        raise InvalidValue("model", f"must be a model or another type, got {type(model).__name__}")
    try:
        return TypeAdapter(model)
    except PydanticUserError as error:
        raise InvalidValue(_name(model), f"has no JSON Schema: {error.message}") from None
    except Exception as error:  # an object that is no type may raise anything here
        raise InvalidValue("model", f"must be a model or another type, got {type(model).__name__}") from error


def _name(model: Any) -> str:
    return getattr(model, "__name__", None) or repr_of(model)


def _field_facts(name: str, column: OutputColumn, found: FieldInfo | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else None)
    facts: dict[str, Any] = {
        "name": name,
        "column": column.name,
        "type": kind if isinstance(kind, str) else "unknown",
        "token": column.type,
        "required": found.is_required() if found is not None else True,
        "nullable": peel_annotation(found.annotation)[1] if found is not None else True,
        "default": None if found is None or found.default is PydanticUndefined else schema.get("default"),
        "description": schema.get("description"),
        "enum": None if values is None else tuple(values),
        "warning": None if isinstance(kind, str) else "no simple type: see the JSON Schema",
    }
    return facts
