"""Stores for other frameworks where those are not installed."""

from __future__ import annotations

import pytest

from lastlight_state.aio import AsyncStateStore
from lastlight_state.errors import MisuseError
from lastlight_state.integrations.a2a import A2APushConfigs, A2ATasks
from lastlight_state.integrations.a2a_replicas import A2ATaskEvents, A2AVersionedTasks
from lastlight_state.integrations.adk import ADKSessions
from lastlight_state.integrations.fasta2a import FastA2AStorage
from lastlight_state.integrations.langgraph import LangGraphSaver
from lastlight_state.integrations.langgraph_store import LangGraphStore
from lastlight_state.integrations.mcp import MCPEventStore, MCPSessions
from lastlight_state.integrations.openai_agents import OpenAIAgentsSession
from lastlight_state.integrations.pydantic_ai import PydanticAIConversations
from lastlight_state.testing import Database


def test_a_saver_without_its_framework_names_the_extra(database: Database) -> None:
    """checkpoints CK-45: what the environment of `make frameworks` has, this one has not."""
    with pytest.raises(MisuseError, match=r"lastlight-state\[langgraph\]"):
        LangGraphSaver(database.open())


def test_a_store_of_memories_without_its_framework_names_the_extra(database: Database) -> None:
    """integrations AD-1: an index does not change that."""
    with pytest.raises(MisuseError, match=r"lastlight-state\[langgraph\]"):
        LangGraphStore(database.open(), index={"dims": 1})


def test_sessions_and_conversations_without_their_framework_name_the_extra(database: Database) -> None:
    """integrations AD-1."""
    store = AsyncStateStore(database.open())
    with pytest.raises(MisuseError, match=r"lastlight-state\[openai-agents\]"):
        OpenAIAgentsSession("a", store)
    with pytest.raises(MisuseError, match=r"lastlight-state\[pydantic-ai\]"):
        PydanticAIConversations(store)
    with pytest.raises(MisuseError, match=r"lastlight-state\[adk\]"):
        ADKSessions(store)
    for kind in (A2ATasks, A2AVersionedTasks, A2ATaskEvents, A2APushConfigs):
        with pytest.raises(MisuseError, match=r"lastlight-state\[a2a\]"):
            kind(store)
    with pytest.raises(MisuseError, match=r"lastlight-state\[fasta2a\]"):
        FastA2AStorage(store)
    for made in (lambda: MCPEventStore(store), lambda: MCPSessions(None, lambda: None)):
        with pytest.raises(MisuseError, match=r"lastlight-state\[mcp\]"):
            made()
