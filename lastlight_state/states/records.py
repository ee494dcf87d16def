"""Records of states, and the marker `REMOVED` for a removal among changes."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal, Self, TypedDict

from pydantic import ConfigDict

from lastlight_state.db.rows.records import Record
from lastlight_state.states.rows import StateRow


class _Removed(Enum):
    REMOVED = "REMOVED"

    def __repr__(self) -> str:
        return "REMOVED"


#: A marker in the changes of ``states.merge`` for a key to remove. None would be a value.
REMOVED: Final = _Removed.REMOVED
RemovedType = Literal[_Removed.REMOVED]


class StateSummaryRow(TypedDict):
    """What a `StateSummary` is made of."""

    id: str
    scope: str
    key: str
    version: str
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    user: str | None


class StateSummary(Record):
    """A state without its value.

    ``version`` is a text that each write changes; compare versions only for equality. After ``expires_at`` the state
    counts as missing, and a prune may remove it; None means never.
    """

    id: str
    scope: str
    key: str
    version: str
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    user: str | None

    @classmethod
    def of(cls, values: StateSummaryRow) -> Self:
        return super().of(values)


class State(StateSummary):
    """A state with its value: bytes if bytes were put, else a decoded JSON value."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    value: Any

    @classmethod
    def of(cls, values: StateRow) -> Self:  # type: ignore[override]
        shown: Any = {name: value for name, value in values.items() if name != "body"}
        return super().of(shown if values["body"] is None else dict(shown, value=values["body"]))  # type: ignore[arg-type]
