"""Opaque texts that callers hand back: cursors and page tokens. Pure."""

from __future__ import annotations

import base64
from typing import Any

import orjson

from lastlight_state.errors import InvalidValue


def pack(value: Any) -> str:
    """A JSON value as opaque text; times in it become texts."""
    return base64.urlsafe_b64encode(orjson.dumps(value, option=orjson.OPT_UTC_Z)).decode().rstrip("=")


def unpack(where: str, text: str) -> Any:
    """The value of `pack`. Raises `InvalidValue` for other text."""
    try:
        return orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (ValueError, TypeError):
        raise damaged(where) from None


def damaged(where: str) -> InvalidValue:
    """The error for a text that `pack` did not make, or that somebody changed."""
    return InvalidValue(where, "damaged, or made by something else")
