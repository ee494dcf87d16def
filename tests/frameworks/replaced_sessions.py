"""A plugin of pytest that puts our session in the place of the SDK's, for the SDK's own tests.

Their classes take the path of a file. All files are in one database here, and the path tells their sessions apart.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path
from typing import Any

import agents
import agents.extensions.memory
import agents.extensions.memory.async_sqlite_session
import agents.memory
import agents.memory.sqlite_session

from lastlight_state.aio import AsyncStateStore
from lastlight_state.integrations.openai_agents import OpenAIAgentsSession
from lastlight_state.store import StateStore

STORE = AsyncStateStore(StateStore.open(os.environ["FRAMEWORKS_DATABASE"]))


class SQLiteSession(OpenAIAgentsSession):
    """Our session, made as the SDK makes its own."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: Any = None,
    ) -> None:
        place = str(uuid.uuid4()) if str(db_path) == ":memory:" else str(db_path)
        scope = f"{uuid.uuid5(uuid.NAMESPACE_URL, place)}/{sessions_table}/{messages_table}"
        super().__init__(session_id, STORE, session_settings=session_settings, scope=scope)

    def close(self) -> None:
        """Leave the store open: it is everybody's."""


class AsyncSQLiteSession(SQLiteSession):
    """The same, closed from a coroutine."""

    async def close(self) -> None:  # type: ignore[override]
        """Leave the store open: it is everybody's."""
        await asyncio.sleep(0)


for place in (agents, agents.memory, agents.memory.sqlite_session):
    place.SQLiteSession = SQLiteSession
for place in (agents.extensions.memory, agents.extensions.memory.async_sqlite_session):
    place.AsyncSQLiteSession = AsyncSQLiteSession
