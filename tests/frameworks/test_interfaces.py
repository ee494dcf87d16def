"""What frameworks declare: an adapter answers all of it, and notices what a version adds."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from a2a.server.cluster import TaskEventStream, VersionedTaskStore
from a2a.server.tasks import PushNotificationConfigStore, TaskStore
from agents.memory import Session
from fasta2a.storage import Storage
from google.adk.sessions.base_session_service import BaseSessionService
from mcp.server.streamable_http import EventStore
from pydantic_ai.conversation_store import ConversationStore

from lastlight_state.integrations.a2a import A2APushConfigs, A2ATasks
from lastlight_state.integrations.a2a_replicas import A2ATaskEvents, A2AVersionedTasks
from lastlight_state.integrations.adk import ADKSessions
from lastlight_state.integrations.fasta2a import FastA2AStorage
from lastlight_state.integrations.mcp import MCPEventStore
from lastlight_state.integrations.openai_agents import OpenAIAgentsSession
from lastlight_state.integrations.pydantic_ai import PydanticAIConversations

ROOT = Path(__file__).parents[2]
#: What pydantic-ai's own class makes of the verbs that a store answers.
OVER_OTHERS = {"branch", "delete", "fork", "list_conversations", "load", "load_entries", "save"}
#: Each adapter beside what its framework declares. What the framework's own class answers is named.
INTERFACES: list[tuple[type, type, set[str]]] = [
    (OpenAIAgentsSession, Session, set()),
    (PydanticAIConversations, ConversationStore, OVER_OTHERS),
    (ADKSessions, BaseSessionService, {"flush"}),
    (A2ATasks, TaskStore, set()),
    (A2AVersionedTasks, VersionedTaskStore, set()),
    (A2ATaskEvents, TaskEventStream, set()),
    (A2APushConfigs, PushNotificationConfigStore, set()),
    (FastA2AStorage, Storage, set()),
    (MCPEventStore, EventStore, set()),
]


def verbs(kind: type) -> dict[str, Any]:
    """Return the public methods that a class declares."""
    return {name: one for name, one in vars(kind).items() if inspect.isfunction(one) and not name.startswith("_")}


@pytest.mark.parametrize(("kind", "declared", "inherited"), INTERFACES, ids=lambda one: getattr(one, "__name__", ""))
def test_an_adapter_answers_every_verb_that_its_framework_declares(
    kind: Any, declared: type, inherited: set[str]
) -> None:
    """integrations AD-110: with the parameters that the framework names."""
    own = {name for base in kind.__mro__ if base.__module__.startswith("lastlight_state") for name in verbs(base)}
    assert verbs(declared).keys() - own == inherited
    for name, verb in verbs(declared).items():
        if name not in inherited:
            wanted, found = inspect.signature(verb).parameters, inspect.signature(getattr(kind, name)).parameters
            assert wanted.keys() <= found.keys(), name


def test_the_page_of_versions_says_what_is_admitted_and_judged() -> None:
    """integrations AD-110."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    pinned = (ROOT / "tests/frameworks/requirements.txt").read_text("utf-8").split()
    rows = re.findall(
        r"^\| `([\w-]+)` \| ([\w-]+) (\S+) \| (\S+) \|", (ROOT / "docs/versions.md").read_text("utf-8"), re.MULTILINE
    )
    assert {extra for extra, *_ in rows} == {
        "langgraph",
        "openai-agents",
        "pydantic-ai",
        "a2a",
        "fasta2a",
        "adk",
        "mcp",
    }
    for extra, project, admitted, judged in rows:
        assert extras[extra] == [project + admitted]
        assert f"{project}=={judged}" in pinned
