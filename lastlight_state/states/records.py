"""Records of states, and the marker `REMOVED`, which stands for the removal of a key among changes."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal, Self

from pydantic import ConfigDict

from lastlight_state.db.rows.records import Record


class _Removed(Enum):
    REMOVED = "REMOVED"

    def __repr__(self) -> str:
        return "REMOVED"


#: A marker in the changes of ``states.merge`` for a key to remove. None would be a value.
REMOVED: Final = _Removed.REMOVED
RemovedType = Literal[_Removed.REMOVED]


class StateSummary(Record):
    """A state without its value.

    ``version`` is a text that changes with each write; compare versions only for equality. After ``expires_at`` the
    state counts as missing, and a prune may remove it; None means never.
    """

    id: str
    scope: str
    key: str
    version: str
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    user: str | None


class State(StateSummary):
    """A state with its value: bytes if bytes were put, else a decoded JSON value."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    value: Any

    _consumed = frozenset({"body"})

    @classmethod
    def of(cls, values: Any) -> Self:
        body = values.pop("body")
        if body is not None:
            values["value"] = body
        return super().of(values)
