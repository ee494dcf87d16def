"""The rows of the tables of states, written by ``make docs`` from the models. JSON is given as text."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict


class StateRow(TypedDict):
    """A row of ``states``."""

    id: str
    scope: str
    key: str
    version: str
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    user: str | None
    value: Any
    body: bytes | None
