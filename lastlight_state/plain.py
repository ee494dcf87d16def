"""Output of commands and pages: values as JSON types, and texts that cannot harm terminals and browsers.

Records and all other values are shown as their JSON. Times are the stored 24-character text, exact amounts are text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from lastlight_state.clock import iso_text
from lastlight_state.codec import exact_text

#: C0 and C1 controls, DEL, line and paragraph separators, and characters that change the direction of text.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def plain(value: Any) -> Any:
    """Return the value as JSON types."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if hasattr(type(value), "model_dump"):  # a record; checked without importing pydantic
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


def printable(text: str) -> str:
    """Escape control characters, and characters that change the direction of writing, in a text."""
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def printable_json(text: str) -> str:
    """Return JSON text of the same value in which these characters are written as JSON escapes."""
    return CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _scalar(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso_text(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return exact_text(value)
    return str(value)
