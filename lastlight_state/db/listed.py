"""Any number of values as one parameter of a statement: a JSON array that it reads as rows.

So a statement about many rows is one statement for any number of them, and is compiled once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.backends.sql.json import elements_of
from lastlight_state.db import columns


def listed(parameter: str) -> Any:
    """The elements of the JSON array that this parameter holds as text, one a row."""
    return elements_of(sa.bindparam(parameter, type_=columns.Text)).table_valued(sa.column("value"), name=parameter)


def as_list(values: Sequence[Any]) -> str:
    """The parameter of `listed`, of values that were checked."""
    return codec.encode_sound(values).decode()
