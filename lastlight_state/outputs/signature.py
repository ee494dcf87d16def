"""What a schema is recognised by: the signature of its table, and the digest of its model.

The signature sees columns and the digest sees validation: a smaller enum or a new bound changes the digest alone.
Custom validator functions are invisible to both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

#: Words of JSON Schema that document and do not validate.
_DOCUMENTING = frozenset({"title", "description", "examples", "deprecated", "$comment"})
#: Words whose value maps names, which may be equal to any of those, to schemas.
_NAMING = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
#: Words whose value is data.
_DATA = frozenset({"const", "default", "enum"})


class SignedColumn(Protocol):
    """What a signature holds of a column."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def nullable(self) -> bool: ...
    @property
    def primary_key(self) -> bool: ...


def signed_text(table_name: str, columns: Iterable[SignedColumn]) -> str:
    """The text that is hashed: ``analysis|iteration:integer:1:1|node_id:text:1:1|…``, sorted by column name."""
    ordered = sorted(columns, key=lambda column: column.name)
    parts = (f"{column.name}:{column.type}:{int(not column.nullable)}:{int(column.primary_key)}" for column in ordered)
    return "|".join((table_name, *parts))


def signature(table_name: str, columns: Iterable[SignedColumn]) -> str:
    """SHA-256 of `signed_text`, 64 lower-case hex digits; the same on both databases."""
    return hashlib.sha256(signed_text(table_name, columns).encode()).hexdigest()


def model_digest(json_schema: Mapping[str, Any]) -> str:
    """SHA-256 of a JSON Schema without its documentation and the order of its fields."""
    plain = json.dumps(_validating(json_schema), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


def _validating(schema: Any) -> Any:
    """The schema without titles, descriptions and examples."""
    if isinstance(schema, list):
        return [_validating(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {word: _part(word, part) for word, part in schema.items() if word not in _DOCUMENTING}


def _part(word: str, part: Any) -> Any:
    if word in _DATA:
        return part
    if word == "required":
        return sorted(part)
    if word in _NAMING:
        return {name: _validating(schema) for name, schema in part.items()}
    return _validating(part)
