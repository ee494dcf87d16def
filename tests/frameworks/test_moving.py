"""Databases of shipped stores, moved over and compared by value."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from agents.memory import SQLiteSession
from frameworks.test_langgraph_graphs import CONFIG, graph, story, told
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from sqlalchemy import make_url

from lastlight_state.aio import AsyncStateStore
from lastlight_state.integrations.langgraph import LangGraphSaver
from lastlight_state.integrations.openai_agents import OpenAIAgentsSession
from lastlight_state.testing import Database
from lastlight_state.testing.contracts.session_stores import user_messages


def test_a_file_of_the_sdk_goes_on_here(database: Database, tmp_path: Path) -> None:
    """integrations AD-30: with what its session has written since, once it is imported again."""
    items: list[Any] = [
        *user_messages("a", "b \0"),
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
    ]
    path = tmp_path / "agents.db"

    async def main() -> None:
        shipped = SQLiteSession("talk", path)
        await shipped.add_items(items)
        store = database.open()
        assert store.maintenance.imports.run(path).units == {"imported": 1}
        await shipped.add_items(user_messages("later"))
        assert store.maintenance.imports.run(path).units == {"grown": 1}
        expected = await shipped.get_items()
        shipped.close()
        async with AsyncStateStore(store) as behind:
            session = OpenAIAgentsSession("talk", behind)
            assert await session.get_items() == expected == [*items, *user_messages("later")]
            assert await session.pop_item() == user_messages("later")[0]
            await session.add_items(user_messages("here"))
            assert await session.get_items() == [*items, *user_messages("here")]
            await session.clear_session()
            assert await behind.conversations.messages.count() <= 1  # what was popped

    asyncio.run(main())


def _tuples(saver: Any) -> list[Any]:
    """Return everything that a checkpointer tells, without the order of writes of tasks that ran side by side."""
    return sorted(
        (
            str(one.config["configurable"]["thread_id"]),
            one.config["configurable"]["checkpoint_ns"],
            one.checkpoint["id"],
            one.checkpoint,
            dict(one.metadata),
            None if one.parent_config is None else one.parent_config["configurable"]["checkpoint_id"],
            sorted(map(repr, one.pending_writes)),
        )
        for one in saver.list(None)
    )


def test_a_database_of_the_shipped_saver_goes_on_here(database: Database, tmp_path: Path) -> None:
    """integrations AD-32: in several calls, and with a graph that was interrupted there."""
    with SqliteSaver.from_conn_string(str(tmp_path / "shipped.db")) as shipped:
        story(lambda: shipped)
        other: Any = {"configurable": {"thread_id": "u"}}
        graph(shipped).invoke({"log": ["in"]}, other)
        ours = LangGraphSaver(database.open())
        whole = len(_tuples(shipped))
        assert ours.move_from(shipped, limit=5) == (5, (), (), ())
        assert ours.move_from(shipped) == (whole - 5, (), (), ())
        assert ours.move_from(shipped) == (0, (), (), ())
        assert _tuples(ours) == _tuples(shipped)
        assert told(graph(ours)) == told(graph(shipped))
        assert told(graph(ours), other) == told(graph(shipped), other)
        graph(shipped).invoke(Command(resume="yes"), other)
        assert graph(ours).invoke(Command(resume="yes"), other)["answer"] == "yes"
        assert [one[:3] for one in told(graph(ours), other)] == [one[:3] for one in told(graph(shipped), other)]


def test_any_checkpointer_can_be_moved_from(database: Database) -> None:
    """integrations AD-32."""
    memory = InMemorySaver()
    story(lambda: memory)
    ours = LangGraphSaver(database.open())
    ours.move_from(memory)
    assert told(graph(ours)) == told(graph(memory))
    assert graph(ours).get_state(CONFIG).values == graph(memory).get_state(CONFIG).values


def test_the_shipped_file_is_only_read(database: Database, tmp_path: Path) -> None:
    """integrations AD-32."""
    path = tmp_path / "shipped.db"
    with SqliteSaver.from_conn_string(str(path)) as shipped:
        graph(shipped).invoke({"log": ["in"]}, CONFIG)
        rows = "SELECT * FROM checkpoints ORDER BY 1, 2, 3"
        with sqlite3.connect(path) as raw:
            before = raw.execute(rows).fetchall()
            LangGraphSaver(database.open()).move_from(shipped)
            assert raw.execute(rows).fetchall() == before
        raw.close()


def test_a_postgres_database_of_the_shipped_saver_goes_on_here(postgres_database: Database) -> None:
    """integrations AD-32: its tables have names of ours, so they stand in another schema, or another database."""
    url = make_url(postgres_database.url).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as raw:
        raw.execute("CREATE SCHEMA theirs")
    theirs = url.update_query_dict({"options": "-csearch_path=theirs"}).render_as_string(hide_password=False)
    with PostgresSaver.from_conn_string(theirs) as shipped:
        shipped.setup()
        story(lambda: shipped)
        ours = LangGraphSaver(postgres_database.open())
        assert ours.move_from(shipped).checkpoints == len(_tuples(shipped))
        assert _tuples(ours) == _tuples(shipped)
        assert told(graph(ours)) == told(graph(shipped))


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def shipped(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Return how a shipped saver is made, an empty one at each call."""
    with ExitStack() as stack:

        def made(name: str) -> Any:
            if request.param == "memory":
                return InMemorySaver()
            if request.param == "sqlite":
                return stack.enter_context(SqliteSaver.from_conn_string(str(tmp_path / f"{name}.db")))
            url = make_url(request.getfixturevalue("postgres_database").url).set(drivername="postgresql")
            with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as raw:
                raw.execute(f"CREATE SCHEMA {name}")
            theirs = url.update_query_dict({"options": f"-csearch_path={name}"}).render_as_string(hide_password=False)
            saver = stack.enter_context(PostgresSaver.from_conn_string(theirs))
            saver.setup()
            return saver

        yield made


def test_a_thread_of_another_saver_with_the_same_id_is_named_and_left(
    database: Database, shipped: Callable[[str], Any]
) -> None:
    """integrations AD-80: another scope has both."""
    shop, clinic, store = shipped("shop"), shipped("clinic"), database.open()
    for saver, name in ((shop, "shop"), (clinic, "clinic")):
        graph(saver).invoke({"log": [name]}, CONFIG)
    ours = LangGraphSaver(store)
    ours.move_from(shop)
    before = _tuples(ours)
    assert ours.move_from(clinic) == (0, ("t",), (), ())
    assert _tuples(ours) == before == _tuples(shop)
    other = LangGraphSaver(store, scope="clinic")
    other.move_from(clinic)
    assert _tuples(other) == _tuples(clinic)
    graph(shop).invoke(Command(resume="yes"), CONFIG)
    assert ours.move_from(shop).kept == ()
    assert _tuples(ours) == _tuples(shop)


def test_a_thread_that_went_on_here_is_not_rolled_back(database: Database, shipped: Callable[[str], Any]) -> None:
    """integrations AD-80: it is named once its source has gone on, too."""
    theirs, store = shipped("theirs"), database.open()
    graph(theirs).invoke({"log": ["in"]}, CONFIG)
    ours = LangGraphSaver(store)
    ours.move_from(theirs)
    graph(ours).invoke(Command(resume="here"), CONFIG)
    here = _tuples(ours)
    assert ours.move_from(theirs) == (0, (), (), ())
    graph(theirs).invoke(Command(resume="there"), CONFIG)
    assert ours.move_from(theirs) == (0, ("t",), (), ())
    assert _tuples(ours) == here
    assert graph(ours).get_state(CONFIG).values["answer"] == "here"


def test_a_thread_that_was_deleted_here_stays_deleted_until_it_is_named(
    database: Database, shipped: Callable[[str], Any]
) -> None:
    """integrations AD-80: by a saver or by a prune, and whether its source has gone on."""
    theirs, store = shipped("theirs"), database.open()
    graph(theirs).invoke({"log": ["in"]}, CONFIG)
    ours = LangGraphSaver(store)
    ours.move_from(theirs)
    ours.delete_thread("t")
    assert ours.move_from(theirs) == (0, (), ("t",), ())
    graph(theirs).invoke(Command(resume="there"), CONFIG)
    assert ours.move_from(theirs, revive=["u"]) == (0, (), ("t",), ("u",))
    assert _tuples(ours) == []
    assert ours.move_from(theirs, revive=["t"]).removed == ()
    assert _tuples(ours) == _tuples(theirs)


def test_a_thread_of_a_source_that_was_begun_anew_is_another_one(
    database: Database, shipped: Callable[[str], Any]
) -> None:
    """integrations AD-80."""
    ours = LangGraphSaver(database.open())
    first, second = shipped("first"), shipped("second")
    for saver in (first, second):
        graph(saver).invoke({"log": ["in"]}, CONFIG)
    ours.move_from(first, limit=1)  # cut off, so that its beginning alone is here
    assert ours.move_from(second).kept == ("t",)
    ours.move_from(first)
    assert _tuples(ours) == _tuples(first)


def test_coroutines_move_threads_too(database: Database) -> None:
    """integrations AD-80."""
    memory = InMemorySaver()
    graph(memory).invoke({"log": ["in"]}, CONFIG)

    async def main() -> None:
        async with AsyncStateStore(database.open()) as store:
            assert (await LangGraphSaver(store).amove_from(memory)).checkpoints == len(_tuples(memory))

    asyncio.run(main())


def test_a_subgraph_that_is_new_there_does_not_come_into_a_thread_that_went_on_here(
    database: Database, shipped: Callable[[str], Any]
) -> None:
    """integrations AD-80: the thread is named, and nothing of it is written."""
    theirs, ours = shipped("theirs"), LangGraphSaver(database.open())
    graph(theirs).invoke({"log": ["in"]}, CONFIG)
    ours.move_from(theirs)
    graph(ours).invoke(Command(resume="here"), CONFIG)
    here = _tuples(ours)
    place: Any = {"configurable": {**CONFIG["configurable"], "checkpoint_ns": "inner"}}
    theirs.put(place, empty_checkpoint(), {"source": "loop", "step": 0, "parents": {}}, {})
    assert ours.move_from(theirs) == (0, ("t",), (), ())
    assert _tuples(ours) == here


def test_checkpoints_that_were_deleted_here_do_not_come_back(database: Database, shipped: Callable[[str], Any]) -> None:
    """integrations AD-80: neither those of one run, nor a whole namespace; what is new of it comes in."""
    theirs, ours = shipped("theirs"), LangGraphSaver(database.open())

    def step(space: str, run: str, parent: str | None) -> str:
        at = {**CONFIG["configurable"], "checkpoint_ns": space, "checkpoint_id": parent}
        one: Any = {**empty_checkpoint(), "id": f"{run}-{space}"}
        theirs.put({"configurable": at}, one, {"source": "loop", "step": 0, "parents": {}, "run_id": run}, {})
        return str(one["id"])

    first = step("", "1", None)
    step("", "2", first)
    step("inner", "2", None)
    assert ours.move_from(theirs).checkpoints == 3
    ours.delete_for_runs(["2"])
    assert [one[2] for one in _tuples(ours)] == ["1-"]
    assert ours.move_from(theirs) == (0, (), ("t",), ())
    step("", "3", "2-")
    step("inner", "3", "2-inner")
    assert ours.move_from(theirs) == (2, (), ("t",), ())
    assert ours.move_from(theirs) == (0, (), (), ())
    assert [one[2] for one in _tuples(ours)] == ["1-", "3-", "3-inner"]
