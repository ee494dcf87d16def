"""Channels of LangGraph that are made of writes, and lists before a checkpoint of another place."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from lastlight_state.integrations.langgraph import LangGraphSaver
from lastlight_state.testing import Database

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class State(TypedDict):
    items: Annotated[list[str], DeltaChannel(operator.add, snapshot_frequency=7)]
    other: str


def graph(saver: Any) -> Any:
    made = StateGraph(State).add_node("echo", lambda _: {"items": ["echo"], "other": "x" * 1_000})
    return made.add_edge(START, "echo").add_edge("echo", END).compile(checkpointer=saver)


def drive(saver: Any, turns: int) -> Any:
    made = graph(saver)
    for turn in range(turns):
        made.invoke({"items": [f"turn {turn}"]}, THREAD)
    return made


class Counted(LangGraphSaver):
    """A saver that counts how often whole checkpoints are asked for."""

    calls = 0

    def get_tuple(self, config: Any) -> Any:
        self.calls += 1
        return super().get_tuple(config)


def test_the_history_of_a_channel_is_that_of_the_default_walk(database: Database) -> None:
    """checkpoints CK-57: at each checkpoint, from coroutines too, also after a fork."""
    with database.open() as store:
        saver = LangGraphSaver(store)
        made = drive(saver, 6)
        made.update_state([*made.get_state_history(THREAD)][5].config, {"items": ["fork"]})
        made.invoke({"items": ["after the fork"]}, THREAD)
        for one in [THREAD, *(found.config for found in saver.list(THREAD))]:
            asked: Any = {"config": one, "channels": ["items", "unknown"]}
            default = BaseCheckpointSaver.get_delta_channel_history(saver, **asked)
            assert saver.get_delta_channel_history(**asked) == default
            assert asyncio.run(saver.aget_delta_channel_history(**asked)) == default


def test_a_turn_asks_for_one_checkpoint_whatever_came_before(database: Database) -> None:
    """checkpoints CK-57."""
    with database.open() as store:
        saver = Counted(store)
        made = drive(saver, 12)
        saver.calls = 0
        made.invoke({"items": ["last"]}, THREAD)
        assert saver.calls == 1
        memory = drive(InMemorySaver(), 12)
        assert made.get_state(THREAD).values["items"][:-2] == memory.get_state(THREAD).values["items"]


@pytest.mark.parametrize("thread", ["nobody", "a\0b", "\ud800"])
def test_a_thread_that_is_not_there_has_an_empty_history(database: Database, thread: str) -> None:
    """checkpoints CK-57: also one that no thread can be."""
    with database.open() as store:
        asked: Any = {"config": {"configurable": {"thread_id": thread}}, "channels": ["items"]}
        assert LangGraphSaver(store).get_delta_channel_history(**asked) == {"items": {"writes": []}}


def test_a_list_before_a_checkpoint_compares_ids_across_places(database: Database) -> None:
    """checkpoints CK-56."""
    with database.open() as store:
        saver = LangGraphSaver(store)
        drive(saver, 2)
        newest = next(saver.list(THREAD))
        one = newest.config["configurable"]["checkpoint_id"]
        for before in ({"checkpoint_id": one}, {**newest.config["configurable"], "checkpoint_ns": "inner"}):
            found = [*saver.list(THREAD, before={"configurable": before})]
            assert found == [*saver.list(THREAD)][1:]
            assert [*saver.list(None, before={"configurable": before})] == found
