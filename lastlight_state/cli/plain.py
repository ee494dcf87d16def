"""What commands answer, as JSON types: records by their own JSON, everything else the same way.

Times are the 24-character text that is stored, exact amounts are text.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from lastlight_state.clock import iso_text
from lastlight_state.codec import exact_text


def plain(value: Any) -> Any:
    """The value as JSON types."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if hasattr(type(value), "model_dump"):  # a record; pydantic is not imported for this question
        return value.model_dump(mode="json", warnings=False)
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Sequence | AbstractSet):
        return [plain(part) for part in value]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso_text(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return exact_text(value)
    return str(value)
