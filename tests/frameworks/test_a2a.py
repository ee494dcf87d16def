"""Tasks of A2A servers over a store, beside the SDK's store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from a2a.auth.user import User
from a2a.server.context import ServerCallContext
from a2a.server.tasks.inmemory_task_store import InMemoryTaskStore
from a2a.types import Artifact, ListTasksRequest, Part, Task, TaskState, TaskStatus
from a2a.utils.errors import InvalidParamsError
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings, strategies as st

from lastlight_state import ClaimLost
from lastlight_state.aio import AsyncStateStore
from lastlight_state.integrations.a2a import A2ATasks
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger


class Caller(User):
    """Somebody who calls a server."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._name


def by(name: str) -> ServerCallContext:
    return ServerCallContext(user=Caller(name))


def task(name: str, at: int | None = None, *, context: str = "c", state: Any = TaskState.TASK_STATE_WORKING) -> Task:
    """Return a task with an artifact that no text holds."""
    status = TaskStatus(state=state, timestamp=None if at is None else Timestamp(seconds=at, nanos=at))
    parts = [Part(raw=b"\x00\xff"), Part(text="\0 \U0001f600")]
    return Task(id=name, context_id=context, status=status, artifacts=[Artifact(artifact_id="a", parts=parts)])


NAMES = st.sampled_from(["one", "two", "three", "four"])
OWNERS = st.sampled_from(["ana", "bo/ana", ""])
STATES = st.sampled_from([TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED])
CONTEXTS = st.sampled_from(["c", "d"])
TIMES = st.one_of(st.none(), st.integers(0, 3))
STEPS = st.one_of(
    st.tuples(st.just("save"), OWNERS, NAMES, TIMES, CONTEXTS, STATES),
    st.tuples(st.just("save"), OWNERS, NAMES, TIMES, CONTEXTS, STATES),
    st.tuples(st.just("get"), OWNERS, NAMES),
    st.tuples(st.just("delete"), OWNERS, NAMES),
    st.tuples(st.just("list"), OWNERS, st.integers(0, 3), TIMES, st.one_of(st.just(""), CONTEXTS), STATES),
)


async def told(tasks: Any, steps: list[Any]) -> list[Any]:
    """Return every answer of a story; a list is read page by page."""
    found: list[Any] = []
    for verb, owner, *given_to in steps:
        if verb == "save":
            name, at, context, state = given_to
            found.append(await tasks.save(task(name, at, context=context, state=state), by(owner)))
        elif verb == "list":
            size, then, context, state = given_to
            asked = ListTasksRequest(page_size=size, context_id=context, status=state if size % 2 else None)
            if then is not None:
                asked.status_timestamp_after.FromNanoseconds(then)
            while True:
                page = await tasks.list(asked, by(owner))
                found.append(page)
                if not page.next_page_token:
                    break
                asked.page_token = page.next_page_token
        else:
            found.append(await getattr(tasks, verb)(given_to[0], by(owner)))
    return found


def test_a_story_is_what_it_is_in_memory(database: Database) -> None:
    """integrations AD-55: saves, deletes, and pages by time with every filter, of owners apart."""
    sync = database.open()
    numbers = iter(range(10_000))

    @settings(max_examples=30)
    @given(st.lists(STEPS, min_size=4, max_size=25))
    def compared(steps: list[Any]) -> None:
        ours = A2ATasks(AsyncStateStore(sync), scope=f"story {next(numbers)}")
        assert asyncio.run(told(ours, steps)) == asyncio.run(told(InMemoryTaskStore(), steps))

    compared()


def run(database: Database, story: Callable[[AsyncStateStore], Any]) -> None:
    """Run a story over a store."""

    async def main() -> None:
        async with AsyncStateStore(database.open()) as store:
            await story(store)

    asyncio.run(main())


def test_pages_stay_right_while_tasks_change(database: Database) -> None:
    """integrations AD-56: at any number of tasks; a token that no page had is refused."""

    async def story(store: AsyncStateStore) -> None:
        tasks = A2ATasks(store)
        for at in range(250):
            await tasks.save(task(f"{at:03}", at), by("ana"))
        first = await tasks.list(ListTasksRequest(page_size=100), by("ana"))
        await tasks.delete("150", by("ana"))
        await tasks.delete("100", by("ana"))
        second = await tasks.list(ListTasksRequest(page_size=100, page_token=first.next_page_token), by("ana"))
        assert [one.id for one in first.tasks] == [f"{at:03}" for at in range(249, 149, -1)]
        assert [one.id for one in second.tasks] == [f"{at:03}" for at in range(149, 48, -1) if at != 100]
        assert second.total_size == 248
        with pytest.raises(InvalidParamsError):
            await tasks.list(ListTasksRequest(page_token="damaged"), by("ana"))

    run(database, story)


@pytest.mark.parametrize("name", ["", " ", "a\0b", "a\n", "x" * 513], ids=["none", "blank", "nul", "line", "long"])
def test_no_task_has_an_id_that_cannot_be_stored(database: Database, name: str) -> None:
    """integrations AD-67: whoever asks for one gets the answer of the store in memory."""

    async def story(store: AsyncStateStore) -> None:
        for tasks in (A2ATasks(store), InMemoryTaskStore()):
            assert await tasks.get(name, by("ana")) is None
            await tasks.delete(name, by("ana"))

    run(database, story)


def test_a_page_of_less_than_one_task_is_refused(database: Database) -> None:
    """integrations AD-67."""

    async def story(store: AsyncStateStore) -> None:
        tasks = A2ATasks(store)
        await tasks.save(task("t"), by("ana"))
        with pytest.raises(InvalidParamsError, match="page size"):
            await tasks.list(ListTasksRequest(page_size=-1), by("ana"))

    run(database, story)


def test_a_task_belongs_to_its_owner_and_expires(database: Database) -> None:
    """integrations AD-4: erasure finds it; and after its time it is not there."""

    async def story(store: AsyncStateStore) -> None:
        tasks = A2ATasks(store, ttl=timedelta(days=1))
        for owner in ("ana", "bo"):
            await tasks.save(task("t"), by(owner))
        await store.maintenance.erase.run("ana")
        assert await tasks.get("t", by("ana")) is None
        assert await tasks.get("t", by("bo")) == task("t")
        database.clock.advance(timedelta(days=2))
        assert await tasks.get("t", by("bo")) is None

    run(database, story)


def test_only_the_holder_of_a_claim_writes(database: Database) -> None:
    """integrations AD-3: reads ask for no claim."""

    async def story(store: AsyncStateStore) -> None:
        claims = store.workflows.claims
        flow = await store.workflows.runs.create("agent", trigger=Trigger("ticket"), phase="ask")
        claim = await claims.take(flow.id, owner="one")
        tasks = A2ATasks(store, claim=claim)
        await tasks.save(task("t", 1), by("ana"))
        await claims.transfer(claim, owner="two")
        with pytest.raises(ClaimLost):
            await tasks.save(task("t", 2), by("ana"))
        with pytest.raises(ClaimLost):
            await tasks.delete("t", by("ana"))
        assert await tasks.get("t", by("ana")) == task("t", 1)

    run(database, story)
