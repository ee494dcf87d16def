"""Tasks and contexts of fasta2a over a store, beside its storage in memory and by its own tests."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from fasta2a.storage import InMemoryStorage
from frameworks.suites import UNPACKED, Suite, judge
from hypothesis import given, settings, strategies as st
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, UserPromptPart
from support.answers import dropped_answers

from lastlight_state import ClaimLost
from lastlight_state.aio import AsyncStateStore
from lastlight_state.integrations.fasta2a import FastA2AStorage
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

NAMES = (
    *("applications", "client", "extensions", "jsonrpc_v1"),
    *("output_modes", "pydantic_ai", "pydantic_ai_streaming", "streaming"),
)
SUITE = Suite(
    UNPACKED / "fasta2a",
    "replaced_fasta2a",
    tuple(f"tests/test_{name}.py" for name in NAMES),
    passed=57,
    listed="fasta2a_failing.txt",
    options=("-c/dev/null", "--rootdir=.", "-pno:asyncio"),  # it has no options of its own, and would take ours
)

TEXTS = st.sampled_from(["a", "\0 \U0001f600", "half \ud800"])
STEPS = st.one_of(
    st.tuples(st.just("submit"), TEXTS),
    st.tuples(st.just("update"), st.integers(0, 2), st.sampled_from(["working", "completed"]), TEXTS, st.booleans()),
    st.tuples(st.just("load"), st.integers(0, 2)),
    st.tuples(st.just("keep"), st.sampled_from(["c", "d"]), TEXTS),
    st.tuples(st.just("kept"), st.sampled_from(["c", "d"])),
)


def message(text: str) -> Any:
    return {"role": "user", "message_id": "m", "parts": [{"text": text}]}


async def told(storage: Any, steps: list[Any]) -> list[Any]:
    """Return every answer of a story, with ids of tasks as their numbers and without times."""
    ids: list[str] = []
    found: list[Any] = []

    def plain(task: Any) -> Any:
        if task is None:
            return None
        shown = deepcopy(task)
        shown["id"], shown["status"] = ids.index(task["id"]), task["status"]["state"]
        for one in shown.get("history", []):
            one["task_id"] = ids.index(one["task_id"])
        return shown

    for verb, *rest in steps:
        match verb:
            case "submit":
                task = await storage.submit_task("c", message(rest[0]))
                ids.append(task["id"])
                found.append(plain(task))
            case "update" if rest[0] < len(ids):
                at, state, text, with_messages = rest
                news = [message(text)] if with_messages else None
                made = [{"artifact_id": text, "parts": [{"data": {"n": [1.5, None, text]}}]}]
                found.append(plain(await storage.update_task(ids[at], state, made, news)))
            case "load":
                found.append(plain(await storage.load_task(ids[rest[0]] if rest[0] < len(ids) else "none")))
            case "keep":
                await storage.update_context(rest[0], [{"said": rest[1]}])
            case "kept":
                found.append(await storage.load_context(rest[0]))
    return found


def test_a_story_of_tasks_is_what_it_is_in_memory(database: Database) -> None:
    """integrations AD-130."""
    sync = database.open()
    numbers = iter(range(10_000))

    @settings(max_examples=25, deadline=None)
    @given(st.lists(STEPS, min_size=4, max_size=20))
    def compared(steps: list[Any]) -> None:
        ours = FastA2AStorage(AsyncStateStore(sync), scope=f"story {next(numbers)}")
        assert asyncio.run(told(ours, steps)) == asyncio.run(told(InMemoryStorage(), steps))

    compared()


def test_every_update_of_several_at_once_is_made(database: Database) -> None:
    """integrations AD-130: also where each has read the task before the others wrote."""

    async def work() -> None:
        async with AsyncStateStore(database.open()) as store:
            storage: Any = FastA2AStorage(store)
            task = await storage.submit_task("c", message("first"))
            await asyncio.gather(
                *[storage.update_task(task["id"], "working", new_messages=[message(str(at))]) for at in range(12)]
            )
            stored = await storage.load_task(task["id"])
            assert {one["parts"][0]["text"] for one in stored["history"][1:]} == {str(at) for at in range(12)}
            assert [one["parts"][0]["text"] for one in (await storage.load_task(task["id"], 2))["history"]] == [
                one["parts"][0]["text"] for one in stored["history"][-2:]
            ]

    asyncio.run(work())


def test_an_update_whose_commit_got_no_answer_is_made_once(postgres_database: Database) -> None:
    """integrations AD-130."""
    with dropped_answers(postgres_database.url) as (url, drop):
        postgres_database.open()

        async def work() -> None:
            async with await AsyncStateStore.open(url) as store:
                storage: Any = FastA2AStorage(store)
                task = await storage.submit_task("c", message("first"))
                drop("COMMIT\0")
                await storage.update_task(task["id"], "working", new_messages=[message("second")])
                assert len((await storage.load_task(task["id"]))["history"]) == 2
                assert store.metrics.retries == 1

        asyncio.run(work())


def test_a_context_comes_back_as_what_its_adapter_makes(database: Database) -> None:
    """integrations AD-130: messages of pydantic-ai with their bytes and times."""

    async def work() -> None:
        async with AsyncStateStore(database.open()) as store:
            storage = FastA2AStorage(store, contexts=ModelMessagesTypeAdapter)
            kept = [ModelRequest([UserPromptPart("\0 release it?")])]
            await storage.update_context("c", kept)
            assert await storage.load_context("c") == kept

    asyncio.run(work())


def test_only_the_holder_of_a_claim_updates_tasks(database: Database) -> None:
    """integrations AD-3: reads ask for no claim."""

    async def work() -> None:
        async with AsyncStateStore(database.open()) as store:
            claims = store.workflows.claims
            flow = await store.workflows.runs.create("agent", trigger=Trigger("ticket"), phase="ask")
            claim = await claims.take(flow.id, owner="one")
            storage: Any = FastA2AStorage(store, claim=claim)
            task = await storage.submit_task("c", message("first"))
            await claims.transfer(claim, owner="two")
            for refused in (
                storage.submit_task("c", message("second")),
                storage.update_task(task["id"], "working"),
                storage.update_context("c", []),
            ):
                with pytest.raises(ClaimLost):
                    await refused
            assert await storage.load_task(task["id"]) == task

    asyncio.run(work())


def test_its_own_tests_pass_but_those_that_are_listed(database: Database, tmp_path: Path) -> None:
    """integrations AD-130: a listed test that passes fails this one."""
    judge(SUITE, database, tmp_path)
