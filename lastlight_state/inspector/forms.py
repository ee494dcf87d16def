"""Forms for questions to people: the fields to show, and the conversion of the filled-in values to an answer.

A form with a schema has a field for each property: texts, numbers, yes or no, choices. Any other property is filled in
as JSON. Fields are named by their position, because a property may have any name. The library validates the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lastlight_state import codec
from lastlight_state.errors import InvalidValue

#: Returns the value of a form's field, or None if it is empty.
Filled = Callable[[str], str | None]

_NUMBERS = ("integer", "number")


@dataclass(frozen=True)
class Field:
    """A field of a form. ``kind`` is ``text``, ``number``, ``boolean``, ``choice`` or ``json``."""

    name: str
    label: str
    kind: str
    required: bool
    choices: tuple[str, ...] = ()
    told: str = ""
    default: str = ""


def fields_of(kind: str, options: Any, schema: Any) -> list[Field]:
    """Return the form fields that answer a request of this kind."""
    if kind == "text":
        return [Field("answer", "Answer", "text", required=True)]
    if kind == "confirm":
        return [Field("answer", "Answer", "boolean", required=True)]
    if kind == "select":
        return [Field("answer", "Answer", "choice", required=True, choices=tuple(map(_display_text, options or ())))]
    properties = _properties(schema)
    if not properties:
        return [Field("answer", "Answer as JSON", "json", required=True)]
    required = schema.get("required")
    needed = set(map(str, required)) if isinstance(required, list) else set()
    return [_field(place, name, part, name in needed) for place, (name, part) in enumerate(properties.items())]


def answer_of(kind: str, options: Any, schema: Any, filled: Filled) -> Any:
    """Return the answer that was filled in, for the library to validate. Raises `InvalidValue` if unparsable."""
    fields = fields_of(kind, options, schema)
    properties = _properties(schema) if kind == "form" else {}
    if not properties:
        return _value(fields[0], list(options or ()), filled)
    answer = {}
    for field, (name, part) in zip(fields, properties.items(), strict=True):
        choices = part.get("enum", ()) if isinstance(part, Mapping) else ()
        value = _value(field, list(choices) if isinstance(choices, list) else [], filled)
        if value is not None:
            answer[name] = value
    return answer


def _properties(schema: Any) -> dict[str, Any]:
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}


def _field(place: int, name: str, part: Any, required: bool) -> Field:
    part = part if isinstance(part, Mapping) else {}
    label, told = part.get("title", name), part.get("description", "")
    kind, choices = _kind(part)
    return Field(
        f"field-{place}",
        label if isinstance(label, str) else name,
        kind,
        required,
        choices,
        told if isinstance(told, str) else "",
        _display_text(part["default"]) if "default" in part else "",
    )


def _kind(part: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    choices, kind = part.get("enum"), part.get("type")
    if isinstance(choices, list):
        return "choice", tuple(map(_display_text, choices))
    if kind in _NUMBERS:
        return "number", ()
    return {"string": "text", "boolean": "boolean"}.get(str(kind), "json"), ()


def _value(field: Field, choices: list[Any], filled: Filled) -> Any:
    text = filled(field.name)
    if text is None:
        return None
    if field.kind == "text":
        return text.replace("\r\n", "\n")
    if field.kind == "boolean":
        return {"yes": True, "no": False}.get(text)
    if field.kind == "choice":
        return _choice_at(field, choices, text)
    try:
        return codec.decode(text)
    except ValueError:
        kind = "a number" if field.kind == "number" else "JSON"
        raise InvalidValue(field.label, f"expected {kind}") from None


def _choice_at(field: Field, choices: list[Any], text: str) -> Any:
    """Return the choice at the position that the text names."""
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and int(text) < len(choices)):
        raise InvalidValue(field.label, "must be one of the choices")
    return choices[int(text)]


def _display_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
