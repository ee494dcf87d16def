"""Inputs that another program kept in typed columns, which forget some of what was passed.

Such a column has one name for ``isUrgent`` and ``is_urgent``, one value for ``true`` and ``1``, and NULL for what was
not passed. So two payloads are the same input if those columns would hold the same of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastlight_state import codec

#: The reason of a first revision that came out of typed columns.
REASON = "imported.columns"


def folded(payload: Mapping[str, Any]) -> bytes:
    """What typed columns would hold of a payload, in canonical form."""
    cells = {name.replace("_", "").lower(): _cell(value) for name, value in payload.items()}
    return codec.canonical({name: value for name, value in cells.items() if value is not None})


def _cell(value: Any) -> Any:
    """Objects and lists are JSON text in such a column, and a truth value is a number."""
    if isinstance(value, str):
        try:
            value = codec.decode(value)
        except ValueError:
            return value
    return int(value) if isinstance(value, bool) else value
