"""Ids that nothing can have: users of a service choose them, and every adapter is asked for them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from a2a.server.cluster import TaskVersion
from a2a.server.context import ServerCallContext
from a2a.types import ListTasksRequest, Task, TaskPushNotificationConfig
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions.session import Session
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, ConversationRecord
from pydantic_ai.messages import ModelRequest, UserPromptPart

from lastlight_state import AsyncStateStore, InvalidValue
from lastlight_state.ids import new_id
from lastlight_state.integrations.a2a import A2APushConfigs, A2ATasks
from lastlight_state.integrations.a2a_replicas import A2ATaskEvents, A2AVersionedTasks
from lastlight_state.integrations.adk import ADKSessions
from lastlight_state.integrations.fasta2a import FastA2AStorage
from lastlight_state.integrations.langgraph import LangGraphSaver
from lastlight_state.integrations.langgraph_store import LangGraphStore
from lastlight_state.integrations.mcp import MCPEventStore
from lastlight_state.integrations.openai_agents import OpenAIAgentsSession
from lastlight_state.integrations.pydantic_ai import PydanticAIConversations
from lastlight_state.keys import compose_key
from lastlight_state.testing import Database

IDS = {
    "NUL": "a\0b",
    "half a pair": "a\ud800",
    "empty": "",
    "blank": " \t",
    "a line end": "a\nb",
    "too long": "x" * 9_000,
    "too long in bytes": "\U0001f600" * 500,
    "DEL": "\x7f",
}
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def by(name: str) -> ServerCallContext:
    return ServerCallContext(state={"owner": name})


def owner(context: ServerCallContext) -> str:
    return str(context.state["owner"])


def made(store: AsyncStateStore) -> SimpleNamespace:
    """Return one adapter of each kind."""
    return SimpleNamespace(
        store=store,
        saver=LangGraphSaver(store),
        memories=LangGraphStore(store),
        adk=ADKSessions(store),
        tasks=A2ATasks(store, owner_of=owner),
        versioned=A2AVersionedTasks(store, owner_of=owner),
        events=A2ATaskEvents(store, poll_interval=0.01),
        webhooks=A2APushConfigs(store, owner_of=owner),
        fast=FastA2AStorage(store),
        mcp=MCPEventStore(store),
        conversations=PydanticAIConversations(store),
        session=lambda name: OpenAIAgentsSession(name, store),
    )


def place(thread: str = "t", space: str = "", one: str | None = None) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": space, "checkpoint_id": one}}


def namespaces(kind: Any, label: str) -> ListNamespacesOp:
    return ListNamespacesOp((MatchCondition(kind, (label,)),))


async def listed(pages: Any) -> list[Any]:
    return [one async for one in pages]


#: What a saver says of a channel that nobody wrote to.
UNWRITTEN: list[Any] = [{"writes": []}]


async def deltas(adapters: SimpleNamespace, config: Any, channel: str = "c") -> list[Any]:
    return [*(await adapters.saver.aget_delta_channel_history(config=config, channels=[channel])).values()]


def adk(app: str = "app", user: str = "ana", name: str | None = "s") -> dict[str, Any]:
    whose = {"app_name": app, "user_id": user}
    return whose if name is None else {**whose, "session_id": name}


def record(name: str, scope: str | None = None) -> ConversationRecord:
    return ConversationRecord(conversation_id=name, head_id=None, scope=scope)


def entry(name: str, parent: str | None = None) -> ConversationEntry:
    return ConversationEntry(id=name, parent_id=parent, message=ModelRequest([UserPromptPart("x", timestamp=NOW)]))


Verb = Callable[[SimpleNamespace, str], Awaitable[Any]]
#: Reads and removals, by adapter, method and argument: each with its answer for what is not there.
SOUGHT: dict[str, tuple[Any, Verb]] = {
    "LangGraphSaver.aget_tuple thread": (None, lambda a, x: a.saver.aget_tuple(place(x))),
    "LangGraphSaver.aget_tuple namespace": (None, lambda a, x: a.saver.aget_tuple(place(space=x))),
    "LangGraphSaver.aget_tuple checkpoint": (None, lambda a, x: a.saver.aget_tuple(place(one=x))),
    "LangGraphSaver.aget_delta_channel_history thread": (UNWRITTEN, lambda a, x: deltas(a, place(x))),
    "LangGraphSaver.aget_delta_channel_history namespace": (UNWRITTEN, lambda a, x: deltas(a, place(space=x))),
    "LangGraphSaver.aget_delta_channel_history checkpoint": (UNWRITTEN, lambda a, x: deltas(a, place(one=x))),
    "LangGraphSaver.aget_delta_channel_history channel": (UNWRITTEN, lambda a, x: deltas(a, place(), x)),
    "LangGraphSaver.alist thread": ([], lambda a, x: listed(a.saver.alist(place(x)))),
    "LangGraphSaver.alist namespace": ([], lambda a, x: listed(a.saver.alist(place(space=x)))),
    "LangGraphSaver.alist checkpoint": ([], lambda a, x: listed(a.saver.alist(place(one=x)))),
    "LangGraphSaver.alist before": ([], lambda a, x: listed(a.saver.alist(place(), before=place(one=x)))),
    "LangGraphSaver.alist name of a filter": ([], lambda a, x: listed(a.saver.alist(place(), filter={x: 1}))),
    "LangGraphSaver.alist filter": ([], lambda a, x: listed(a.saver.alist(place(), filter={"n": x}))),
    "LangGraphSaver.adelete_thread": (None, lambda a, x: a.saver.adelete_thread(x)),
    "LangGraphSaver.adelete_for_runs": (None, lambda a, x: a.saver.adelete_for_runs([x])),
    "LangGraphSaver.aprune keep_latest": (None, lambda a, x: a.saver.aprune([x])),
    "LangGraphSaver.aprune delete": (None, lambda a, x: a.saver.aprune([x], strategy="delete")),
    "LangGraphStore.aget key": (None, lambda a, x: a.memories.aget(("a",), x)),
    "LangGraphStore.abatch label": ([None], lambda a, x: a.memories.abatch([GetOp((x,), "k")])),
    "LangGraphStore.adelete key": (None, lambda a, x: a.memories.adelete(("a",), x)),
    "LangGraphStore.abatch label of a removal": ([None], lambda a, x: a.memories.abatch([PutOp((x,), "k", None)])),
    "LangGraphStore.abatch search": ([[]], lambda a, x: a.memories.abatch([SearchOp((x,))])),
    "LangGraphStore.asearch filter": ([], lambda a, x: a.memories.asearch(("a",), filter={x: x})),
    "LangGraphStore.abatch prefix": ([[]], lambda a, x: a.memories.abatch([namespaces("prefix", x)])),
    "LangGraphStore.abatch suffix": ([[]], lambda a, x: a.memories.abatch([namespaces("suffix", x)])),
    "OpenAIAgentsSession.get_items": ([], lambda a, x: a.session(x).get_items()),
    "OpenAIAgentsSession.pop_item": (None, lambda a, x: a.session(x).pop_item()),
    "OpenAIAgentsSession.clear_session": (None, lambda a, x: a.session(x).clear_session()),
    "PydanticAIConversations.read_record": (None, lambda a, x: a.conversations.read_record(x)),
    "PydanticAIConversations.read_records": ([], lambda a, x: a.conversations.read_records(scope=x)),
    "PydanticAIConversations.load": (None, lambda a, x: a.conversations.load(x)),
    "PydanticAIConversations.read_entry": (KeyError, lambda a, x: a.conversations.read_entry(x)),
    "PydanticAIConversations.read_history": (KeyError, lambda a, x: a.conversations.read_history(x)),
    "PydanticAIConversations.delete_record": (
        ConversationConflict,
        lambda a, x: a.conversations.delete_record(x, expected_revision="r"),
    ),
    "ADKSessions.get_session application": (None, lambda a, x: a.adk.get_session(**adk(app=x))),
    "ADKSessions.get_session user": (None, lambda a, x: a.adk.get_session(**adk(user=x))),
    "ADKSessions.get_session": (None, lambda a, x: a.adk.get_session(**adk(name=x))),
    "ADKSessions.list_sessions application": ([], lambda a, x: sessions(a.adk.list_sessions(app_name=x))),
    "ADKSessions.list_sessions user": ([], lambda a, x: sessions(a.adk.list_sessions(**adk(user=x, name=None)))),
    "ADKSessions.delete_session application": (None, lambda a, x: a.adk.delete_session(**adk(app=x))),
    "ADKSessions.delete_session user": (None, lambda a, x: a.adk.delete_session(**adk(user=x))),
    "ADKSessions.delete_session": (None, lambda a, x: a.adk.delete_session(**adk(name=x))),
    "ADKSessions.get_user_state application": ({}, lambda a, x: a.adk.get_user_state(**adk(app=x, name=None))),
    "ADKSessions.get_user_state": ({}, lambda a, x: a.adk.get_user_state(**adk(user=x, name=None))),
    "ADKSessions.prune": (0, lambda a, x: a.adk.prune(before=NOW, app_name=x)),
    "ADKSessions.append_event": (
        SessionNotFoundError,
        lambda a, x: a.adk.append_event(Session(app_name="app", user_id="ana", id=x), Event(author="u")),
    ),
    "A2ATasks.get": (None, lambda a, x: a.tasks.get(x, by("ana"))),
    "A2ATasks.get owner": (None, lambda a, x: a.tasks.get("t", by(x))),
    "A2ATasks.list owner": ([], lambda a, x: tasks(a.tasks.list(ListTasksRequest(), by(x)))),
    "A2ATasks.delete": (None, lambda a, x: a.tasks.delete(x, by("ana"))),
    "A2ATasks.delete owner": (None, lambda a, x: a.tasks.delete("t", by(x))),
    "A2AVersionedTasks.get": (None, lambda a, x: a.versioned.get(x, by("ana"))),
    "A2AVersionedTasks.get owner": (None, lambda a, x: a.versioned.get("t", by(x))),
    "A2AVersionedTasks.list owner": ([], lambda a, x: tasks(a.versioned.list(ListTasksRequest(), by(x)))),
    "A2AVersionedTasks.delete": (None, lambda a, x: a.versioned.delete(x, by("ana"))),
    "A2AVersionedTasks.delete owner": (None, lambda a, x: a.versioned.delete("t", by(x))),
    "A2ATaskEvents.subscribe": ([], lambda a, x: at_once(a.events.subscribe(x, after=TaskVersion("0/ana")))),
    "A2ATaskEvents.subscribe owner": ([], lambda a, x: at_once(a.events.subscribe("t", after=version_of(x)))),
    "FastA2AStorage.load_task": (None, lambda a, x: a.fast.load_task(x)),
    "FastA2AStorage.update_task": (KeyError, lambda a, x: a.fast.update_task(x, "working")),
    "MCPEventStore.replay_events_after": (None, lambda a, x: a.mcp.replay_events_after(x, None)),
    "FastA2AStorage.load_context": (None, lambda a, x: a.fast.load_context(x)),
    "A2APushConfigs.get_info": ([], lambda a, x: a.webhooks.get_info(x, by("ana"))),
    "A2APushConfigs.get_info owner": ([], lambda a, x: a.webhooks.get_info("t", by(x))),
    "A2APushConfigs.get_info_for_dispatch": ([], lambda a, x: a.webhooks.get_info_for_dispatch(x)),
    "A2APushConfigs.delete_info": (None, lambda a, x: a.webhooks.delete_info(x, by("ana"))),
    "A2APushConfigs.delete_info owner": (None, lambda a, x: a.webhooks.delete_info("t", by(x))),
    "A2APushConfigs.delete_info configuration": (None, lambda a, x: a.webhooks.delete_info("t", by("ana"), x)),
}


async def sessions(found: Any) -> list[Any]:
    return list((await found).sessions)


async def tasks(found: Any) -> list[Any]:
    return list((await found).tasks)


async def at_once(events: Any) -> list[Any]:
    """Return the events that come at once: a stream may wait for ever, or end."""
    found: list[Any] = []
    with suppress(TimeoutError, StopAsyncIteration):
        async with asyncio.timeout(0.1):
            while True:
                found.append(await anext(events))
    return found


def version_of(whose: str) -> TaskVersion:
    return TaskVersion(compose_key("0", whose))


def webhook(name: str) -> TaskPushNotificationConfig:
    return TaskPushNotificationConfig(id=name, url="https://a")


async def saved(adapters: SimpleNamespace, name: str, whose: str) -> None:
    task = Task(id=name)
    given: dict[str, Any] = {"event": task, "prev": None, "prev_version": TaskVersion.MISSING, "context": by(whose)}
    await adapters.versioned.save(task, **given)


async def written(adapters: SimpleNamespace, config: Any) -> None:
    await adapters.saver.aput(config, empty_checkpoint(), {}, {})


#: Writes: each stores what it was given, or names what is wrong with it.
WRITTEN: dict[str, Verb] = {
    "LangGraphSaver.aput thread": lambda a, x: written(a, place(x)),
    "LangGraphSaver.aput namespace": lambda a, x: written(a, place(space=x)),
    "LangGraphSaver.aput parent": lambda a, x: written(a, place(one=x)),
    "LangGraphSaver.aput user": lambda a, x: written(a, {"configurable": {"thread_id": "t", "user_id": x}}),
    "LangGraphSaver.aput metadata": lambda a, x: a.saver.aput(place(), empty_checkpoint(), {x: x, "run_id": x}, {}),
    "LangGraphSaver.aput_writes thread": lambda a, x: a.saver.aput_writes(place(x, one="c"), [("c", 1)], "task"),
    "LangGraphSaver.aput_writes channel": lambda a, x: a.saver.aput_writes(place(one="c"), [(x, 1)], "task"),
    "LangGraphSaver.aput_writes task": lambda a, x: a.saver.aput_writes(place(one="c"), [("c", 1)], x),
    "LangGraphSaver.acopy_thread": lambda a, x: a.saver.acopy_thread("t", x),
    "LangGraphStore.aput key": lambda a, x: a.memories.aput(("a",), x, {"n": 1}),
    "LangGraphStore.abatch label": lambda a, x: a.memories.abatch([PutOp(("a", x), "k", {"n": 1})]),
    "OpenAIAgentsSession.add_items": lambda a, x: a.session(x).add_items([{"role": "user", "content": x}]),
    "OpenAIAgentsSession.add_items role": lambda a, x: a.session("s").add_items([{"role": x, "content": "x"}]),
    "PydanticAIConversations.write_record": lambda a, x: a.conversations.write_record(
        record(x), expected_revision=None
    ),
    "PydanticAIConversations.write_record scope": lambda a, x: a.conversations.write_record(
        record(new_id(), x), expected_revision=None
    ),
    "PydanticAIConversations.write_record entry": lambda a, x: a.conversations.write_record(
        record(new_id()), new_entries=[entry(x)], expected_revision=None
    ),
    "ADKSessions.create_session application": lambda a, x: a.adk.create_session(**adk(app=x)),
    "ADKSessions.create_session user": lambda a, x: a.adk.create_session(**adk(user=x)),
    "ADKSessions.create_session": lambda a, x: a.adk.create_session(**adk(name=x)),
    "A2ATasks.save": lambda a, x: a.tasks.save(Task(id=x), by("ana")),
    "A2ATasks.save owner": lambda a, x: a.tasks.save(Task(id="t"), by(x)),
    "A2AVersionedTasks.save": lambda a, x: saved(a, x, "ana"),
    "A2AVersionedTasks.save owner": lambda a, x: saved(a, "t", x),
    "FastA2AStorage.submit_task": lambda a, x: a.fast.submit_task(x, {"role": "user", "parts": [{"text": x}]}),
    "MCPEventStore.store_event": lambda a, x: a.mcp.store_event(x, None),
    "FastA2AStorage.update_context": lambda a, x: a.fast.update_context(x, [x]),
    "A2APushConfigs.set_info": lambda a, x: a.webhooks.set_info(x, webhook("w"), by("ana")),
    "A2APushConfigs.set_info owner": lambda a, x: a.webhooks.set_info("t", webhook("w"), by(x)),
    "A2APushConfigs.set_info configuration": lambda a, x: a.webhooks.set_info("t", webhook(x), by("ana")),
}
#: Writes that half of a pair does not reach: the framework's serializer refuses it.
SERIALIZED = (
    *("A2ATasks.save", "A2AVersionedTasks.save", "LangGraphSaver.aput metadata"),
    *("A2APushConfigs.set_info", "A2APushConfigs.set_info configuration"),
)
#: Verbs with a label of a namespace.
LABELS = tuple(f"LangGraphStore.abatch {one}" for one in ("label", "label of a removal", "search", "prefix", "suffix"))
#: Methods without an id, and those that are the framework's own over ours. What is said of one with an "a" in front of
#: it holds for the other.
OTHERS = {
    "LangGraphSaver": {"get_next_version", "move_from", "setup"},
    "LangGraphStore": {"batch"},
    "A2ATaskEvents": {"publish", "destroy"},
}
KINDS = (
    *(LangGraphSaver, LangGraphStore, OpenAIAgentsSession, PydanticAIConversations, ADKSessions),
    *(A2ATasks, A2AVersionedTasks, A2ATaskEvents, A2APushConfigs, FastA2AStorage, MCPEventStore),
)


async def answer(verb: Verb, adapters: SimpleNamespace, given: str) -> Any:
    try:
        return await verb(adapters, given)
    except (KeyError, ConversationConflict, SessionNotFoundError) as error:
        return type(error)


async def refusal(verb: Verb, adapters: SimpleNamespace, given: str) -> InvalidValue | None:
    try:
        await verb(adapters, given)
    except InvalidValue as error:
        return error
    except InvalidNamespaceError:  # LangGraph's own
        return None
    return None


@pytest.mark.parametrize("verb", SOUGHT)
def test_an_id_that_nothing_can_have_is_not_there(database: Database, verb: str) -> None:
    """integrations AD-69: reads and removals answer as for any other id, and nothing is changed."""
    expected, call = SOUGHT[verb]

    async def work() -> dict[str, Any]:
        async with AsyncStateStore(database.open()) as store:
            adapters = made(store)
            await written(adapters, {"configurable": {"thread_id": "t", "checkpoint_ns": "s"}})
            found = {}
            for kind, given in IDS.items():
                if verb in LABELS and (not given or "\0" in given):
                    continue  # LangGraph refuses such labels
                if verb.startswith("LangGraphSaver.alist") and given == "" and "filter" not in verb:
                    continue  # it names the latest, or none
                found[kind] = await answer(call, adapters, given)
            assert len((await store.checkpoints.threads()).items) == 1
            return found

    found = asyncio.run(work())
    assert found == dict.fromkeys(found, expected)


@pytest.mark.parametrize("verb", WRITTEN)
def test_an_id_that_cannot_be_stored_is_refused_by_name(database: Database, verb: str) -> None:
    """integrations AD-69: or what it names is stored."""

    async def work() -> None:
        async with AsyncStateStore(database.open()) as store:
            adapters = made(store)
            await written(adapters, {"configurable": {"thread_id": "t", "checkpoint_ns": "s"}})
            for kind, given in IDS.items():
                if kind == "half a pair" and verb in SERIALIZED:
                    continue
                refused = await refusal(WRITTEN[verb], adapters, given)
                assert refused is None or refused.where

    asyncio.run(work())


def test_every_method_of_an_adapter_is_asked_for_such_ids() -> None:
    """integrations AD-69: whoever adds a method adds its row."""
    told = {verb.split()[0] for verb in (*SOUGHT, *WRITTEN)}
    for kind in KINDS:
        own = {name for name, one in vars(kind).items() if not name.startswith("_") and inspect.isfunction(one)}
        for name in own - OTHERS.get(kind.__name__, set()):
            names = {f"{kind.__name__}.{name}", f"{kind.__name__}.a{name}"}
            if name.startswith("a") and name[1:] in OTHERS.get(kind.__name__, ()):
                continue
            assert names & told, name
