"""The opaque cursor of a log: how far its file and those of its sub-agents have been read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple, TypeAlias

from lastlight_state.agent_log import envelopes
from lastlight_state.db import opaque
from lastlight_state.errors import InvalidValue
from lastlight_state.jsonl.cursor import START, Mark, mark_of_text


class Position(NamedTuple):
    """How far one file has been read, and its latest time so far, by which files are merged."""

    mark: Mark = START
    latest: datetime | None = None


Positions: TypeAlias = Mapping[str, Position]


def to_text(positions: Positions) -> str:
    """The cursor of these positions."""
    return opaque.pack([[name, at.mark.to_text(), at.latest] for name, at in positions.items()])


def of_text(where: str, text: str | None) -> dict[str, Position]:
    """The positions in a cursor, by file; empty for None. Raises `InvalidValue` for a damaged cursor."""
    if text is None:
        return {}
    try:
        parts = [(str(name), str(mark), latest) for name, mark, latest in opaque.unpack(where, text)]
    except (ValueError, TypeError):
        raise InvalidValue(where, "damaged, or not a cursor") from None
    return {name: Position(mark_of_text(where, mark), envelopes.parse_time(latest)) for name, mark, latest in parts}
