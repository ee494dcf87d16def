"""Records as JSON: times as the 24-character text that is stored, exact amounts as text, names as the fields have."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from lastlight_state.clock import iso_text


def plain(value: Any) -> Any:
    """The value as JSON types."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    names = _field_names(value)
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Sequence | AbstractSet):
        return [plain(part) for part in value]
    return _scalar(value)


def _field_names(value: Any) -> Iterable[str] | None:
    """The fields of a record, pydantic's (which is not imported for that) or a dataclass; None for anything else."""
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    found: Iterable[str] | None = getattr(type(value), "model_fields", None)
    return found


def _scalar(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso_text(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return format(value.normalize(), "f") if value else "0"
    return str(value)
