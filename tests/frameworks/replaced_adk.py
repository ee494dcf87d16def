"""A plugin of pytest that puts our sessions in the place of ADK's database service, for ADK's own tests.

Its tests make that service for a new database each time. All are in one database here, in a scope each.
"""

from __future__ import annotations

import json
import os
from typing import Any, Self

import pytest
from google.adk.sessions import database_session_service
from google.adk.sessions.sqlite_session_service import SqliteSessionService

from lastlight_state.aio import AsyncStateStore
from lastlight_state.ids import new_id
from lastlight_state.integrations.adk import ADKSessions
from lastlight_state.store import StateStore

STORE = AsyncStateStore(StateStore.open(os.environ["FRAMEWORKS_DATABASE"]))
#: Only these parts of a name are told of services with a database: the others are of private parts, or of others.
ABOUT = tuple(json.loads(os.environ["FRAMEWORKS_ABOUT"]))


class DatabaseSessionService(ADKSessions):
    """Our sessions, made as ADK makes its own."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__(STORE, scope=f"adk {new_id()}")

    async def close(self) -> None:
        """Leave the store open: it is everybody's."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave the store open."""


database_session_service.DatabaseSessionService = DatabaseSessionService
assert SqliteSessionService is not DatabaseSessionService


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of what every service does, over ours, and those of stale copies."""
    kept = [one for one in items if any(part in one.nodeid for part in ABOUT)]
    config.hook.pytest_deselected(items=[one for one in items if one not in kept])
    items[:] = kept
