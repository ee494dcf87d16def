"""Graphs of LangGraph over a store, beside the saver in memory."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from lastlight_state import ClaimLost, InvalidValue, StateStore
from lastlight_state.aio import AsyncStateStore
from lastlight_state.integrations.langgraph import LangGraphSaver
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict, total=False):
    """The state of a graph."""

    log: Annotated[list[str], operator.add]
    answer: str


def graph(saver: Any) -> Any:
    """Return a graph that fans out, asks a person, and goes on."""
    builder = StateGraph(State)
    builder.add_node("begin", lambda _: {"log": ["begin"]})
    builder.add_node("work", lambda state: {"log": [f"work {state['answer']}"]})
    builder.add_node("ask", lambda _: {"answer": interrupt("Sure?"), "log": ["asked"]})
    builder.add_node("end", lambda state: {"log": [f"end {state['answer']}"]})
    builder.add_edge(START, "begin")
    builder.add_conditional_edges("begin", lambda _: [Send("work", {"answer": str(n)}) for n in range(3)], ["work"])
    builder.add_edge("work", "ask")
    builder.add_edge("ask", "end")
    builder.add_edge("end", END)
    return builder.compile(checkpointer=saver)


def told(made: Any, config: Any = CONFIG) -> list[Any]:
    """Return the history of a thread, without what differs by its nature: ids and times."""
    return [
        (dict(one.values), one.next, one.metadata["source"], one.metadata["step"], [task.name for task in one.tasks])
        for one in made.get_state_history(config)
    ]


def story(savers: Callable[[], Any]) -> list[Any]:
    """An interrupt, a resume by another process, a fork from the middle, and a change by hand."""
    first = graph(savers()).invoke({"log": ["in"]}, CONFIG)
    seen = [sorted(first["log"]), [one.value for one in first["__interrupt__"]], told(graph(savers()))]
    resumed = graph(savers())
    seen.append(resumed.invoke(Command(resume="yes"), CONFIG))
    seen.append(told(resumed))
    asked = next(one for one in graph(savers()).get_state_history(CONFIG) if one.next == ("ask",))
    forked = graph(savers())
    seen.append(forked.invoke(Command(resume="no"), asked.config).get("answer"))
    forked.update_state(CONFIG, {"log": ["by hand"]})
    seen += [told(forked), [one.metadata["step"] for one in savers().list(CONFIG, filter={"source": "update"})]]
    return seen


def test_a_graph_does_what_it_does_in_memory(database: Database) -> None:
    """checkpoints CK-41: with the store opened anew for every step."""
    memory = InMemorySaver()
    stores: list[StateStore] = []

    def reopened() -> LangGraphSaver:
        while stores:
            stores.pop().close()
        stores.append(database.open())
        return LangGraphSaver(stores[0])

    assert story(reopened) == story(lambda: memory)


def test_a_graph_runs_from_coroutines(database: Database) -> None:
    """checkpoints CK-41."""

    async def run() -> None:
        async with AsyncStateStore(database.open()) as store:
            made = graph(LangGraphSaver(store))
            await made.ainvoke({"log": ["in"]}, CONFIG)
            found = await made.ainvoke(Command(resume="yes"), CONFIG)
            assert (found["answer"], found["log"][-1]) == ("yes", "end yes")
            history = [one async for one in made.aget_state_history(CONFIG, limit=2)]
            assert [one.next for one in history] == [(), ("end",)]

    asyncio.run(run())


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_every_durability_leaves_the_same_state(database: Database, durability: Any) -> None:
    """checkpoints CK-41: writes may be stored before their checkpoint."""
    made = graph(LangGraphSaver(database.open()))
    made.invoke({"log": ["in"]}, CONFIG, durability=durability)
    found = made.invoke(Command(resume="yes"), CONFIG, durability=durability)
    assert sorted(found["log"]) == ["asked", "begin", "end yes", "in", "work 0", "work 1", "work 2"]


def test_what_is_rebuilt_from_writes_outlives_a_prune(database: Database) -> None:
    """checkpoints CK-42: a channel that stores its value now and then only."""

    class Rebuilt(TypedDict):
        log: Annotated[list[str], DeltaChannel(lambda state, writes: state + [x for w in writes for x in w], list)]

    builder = StateGraph(Rebuilt)
    builder.add_node("say", lambda state: {"log": [f"said {len(state['log'])}"]})
    builder.add_edge(START, "say")
    builder.add_edge("say", END)
    saver = LangGraphSaver(database.open())
    made = builder.compile(checkpointer=saver)
    *_, found = [made.invoke({"log": [f"in {number}"]}, CONFIG) for number in range(4)]
    assert len(found["log"]) == 8
    saver.prune(["t", "nobody"])
    assert made.get_state(CONFIG).values == found
    assert made.invoke({"log": ["again"]}, CONFIG)["log"][:9] == [*found["log"], "again"]


def test_pruning_leaves_one_checkpoint_of_a_graph_without_such_channels(database: Database) -> None:
    """checkpoints CK-42."""
    saver = LangGraphSaver(database.open())
    made = graph(saver)
    made.invoke({"log": ["in"]}, CONFIG)
    found = made.invoke(Command(resume="yes"), CONFIG)
    with pytest.raises(InvalidValue):
        saver.prune(["t"], strategy="keep_some")
    saver.prune(["t"])
    assert len(list(saver.list(CONFIG))) == 1
    assert made.get_state(CONFIG).values == found


def test_a_thread_has_the_user_of_the_config_and_expires(database: Database) -> None:
    """checkpoints CK-43: so that erasure and prune find it."""
    store = database.open()
    made = graph(LangGraphSaver(store, ttl=timedelta(days=1)))
    made.invoke({"log": ["in"]}, {"configurable": {"thread_id": "t", "user_id": "zoe"}})
    made.invoke({"log": ["in"]}, {"configurable": {"thread_id": "u", "user_id": "bob"}})
    assert {one.user for one in store.checkpoints.threads(scope="langgraph")} == {"zoe", "bob"}
    store.maintenance.erase.run("zoe")
    assert [one.key for one in store.checkpoints.threads()] == ["u"]
    database.clock.advance(seconds=86_400)
    assert store.maintenance.prune.run(PrunePolicy("checkpoints")).counts["checkpoint_threads"] == 1
    assert made.get_state({"configurable": {"thread_id": "u"}}).values == {}


def test_a_second_runner_is_refused_by_a_claim(database: Database) -> None:
    """integrations AD-3: a thread that one process drives, and that another has taken over."""
    with database.open() as store, database.open() as other:
        claims = store.workflows.claims
        run = store.workflows.runs.create("graph", trigger=Trigger("ticket"), phase="ask")
        claim = claims.take(run.id, owner="one")
        graph(LangGraphSaver(store, claim=claim)).invoke({"log": ["in"]}, CONFIG)
        taken = claims.transfer(claim, owner="two")
        saver = LangGraphSaver(store, claim=claim)
        before = told(graph(saver))
        with pytest.raises(ClaimLost):
            graph(saver).invoke(Command(resume="late"), CONFIG)
        calls: list[Callable[[], None]] = [
            lambda: saver.delete_thread("t"),
            lambda: saver.copy_thread("t", "u"),
            lambda: saver.prune(["t"]),
            lambda: saver.delete_for_runs(["run"]),
        ]
        for late in calls:
            with pytest.raises(ClaimLost):
                late()
        assert told(graph(saver)) == before
        found = graph(LangGraphSaver(other, claim=taken)).invoke(Command(resume="yes"), CONFIG)
        assert found["answer"] == "yes"


def test_a_list_of_one_reads_one_checkpoint(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """checkpoints CK-46."""
    saver = LangGraphSaver(database.open())
    graph(saver).invoke({"log": ["in"]}, CONFIG)
    asked: list[int] = []
    history = saver._checkpoints.history

    def heard(*given: Any, **named: Any) -> Any:
        asked.append(named["limit"])
        return history(*given, **named)

    monkeypatch.setattr(saver._checkpoints, "history", heard)
    assert len(list(saver.list(CONFIG, limit=1))) == 1
    assert asked == [1]
