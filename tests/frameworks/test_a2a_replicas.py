"""Versioned tasks of A2A servers with replicas, their events and webhooks, beside the SDK's stores over a database."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest
from a2a.server.agent_execution import AgentExecutor
from a2a.server.cluster import (
    ConcurrentTaskModificationError,
    DatabaseTaskEventStream,
    TaskVersion,
    VersionedDatabaseTaskStore,
    VersionedEvent,
)
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryPushNotificationConfigStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    CancelTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from frameworks.test_a2a import by, run, task
from hypothesis import given, settings, strategies as st
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import StaticPool

from lastlight_state import ClaimLost, InvalidValue, MisuseError
from lastlight_state.aio import AsyncStateStore
from lastlight_state.integrations.a2a import A2APushConfigs, A2ATasks
from lastlight_state.integrations.a2a_replicas import A2ATaskEvents, A2AVersionedTasks
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

NAMES = st.sampled_from(["one", "two"])
OWNERS = st.sampled_from(["ana", "bo/ana", ""])
WORKING, ENDED = TaskState.TASK_STATE_WORKING, (TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_CANCELED)
STATES = st.sampled_from([WORKING, WORKING, *ENDED])
STEPS = st.one_of(
    st.tuples(st.just("save"), OWNERS, NAMES, STATES, st.integers(0, 2)),
    st.tuples(st.just("save"), OWNERS, NAMES, STATES, st.just(0)),
    st.tuples(st.just("get"), OWNERS, NAMES),
    st.tuples(st.just("delete"), OWNERS, NAMES),
    st.tuples(st.just("list"), OWNERS),
)


def update(name: str, state: Any, text: str = "") -> TaskStatusUpdateEvent:
    said = Message(message_id="m", role=Role.ROLE_AGENT, parts=[Part(text=text), Part(raw=b"\x00\xff")])
    return TaskStatusUpdateEvent(task_id=name, context_id="c", status=TaskStatus(state=state, message=said))


async def told(tasks: Any, steps: list[Any]) -> list[Any]:
    """Return every answer of a story, with versions as how many saves of a task they are behind."""
    versions: dict[tuple[str, str], list[TaskVersion]] = {}
    found: list[Any] = []
    for at, (verb, owner, *given_to) in enumerate(steps):
        if verb == "list":
            found.append((await tasks.list(ListTasksRequest(), by(owner))).tasks)
            continue
        name = given_to[0]
        known = versions.setdefault((owner, name), [TaskVersion.MISSING])
        if verb == "save":
            prev = known[max(len(known) - 1 - given_to[2], 0)]
            changed = task(name, at, state=given_to[1])
            try:
                version = await tasks.save(
                    changed, event=update(name, given_to[1]), prev=None, prev_version=prev, context=by(owner)
                )
            except ConcurrentTaskModificationError as error:
                found.append(error.task_id)
                continue
            found.append([one for one in known if not version.is_after(one)])
            known.append(version)
        elif verb == "get":
            stored = await tasks.get(name, by(owner))
            found.append(stored and (stored.task, stored.version == known[-1]))
        else:
            await tasks.delete(name, by(owner))
            del versions[owner, name]
    return found


async def shipped(steps: list[Any]) -> list[Any]:
    """Return what the SDK's own store over a database answers."""
    engine = create_async_engine("sqlite+aiosqlite://", poolclass=StaticPool)
    try:
        tasks = VersionedDatabaseTaskStore(engine)
        await tasks.initialize()
        return await told(tasks, steps)
    finally:
        await engine.dispose()


def _of_one_owner(steps: list[Any]) -> list[Any]:
    """Return the steps without ids that two owners have: the SDK's table has one task for each id."""
    whose: dict[str, str] = {}
    return [one for one in steps if len(one) < 3 or whose.setdefault(one[2], one[1]) == one[1]]


def test_a_story_of_versions_is_what_it_is_in_the_stores_of_the_sdk(database: Database) -> None:
    """integrations AD-100: saves with versions of any age, cancels, deletes, reads and lists."""
    sync = database.open()
    numbers = iter(range(10_000))

    @settings(max_examples=25, deadline=None)
    @given(st.lists(STEPS, min_size=4, max_size=20).map(_of_one_owner))
    def compared(steps: list[Any]) -> None:
        ours = A2AVersionedTasks(AsyncStateStore(sync), scope=f"story {next(numbers)}")
        assert asyncio.run(told(ours, steps)) == asyncio.run(shipped(steps))

    compared()


async def saved(
    tasks: A2AVersionedTasks,
    one: Task,
    prev: TaskVersion = TaskVersion.MISSING,
    *,
    owner: str = "ana",
    event: Any = None,
) -> TaskVersion:
    return await tasks.save(one, event=event, prev=None, prev_version=prev, context=by(owner))


def test_one_of_two_replicas_that_save_from_one_version_wins(database: Database) -> None:
    """integrations AD-100: and the loser's event is not stored."""

    async def story(store: AsyncStateStore) -> None:
        replicas = [A2AVersionedTasks(store) for _ in range(6)]
        version = await saved(replicas[0], task("t", 0))
        saves = [
            saved(one, task("t", at), version, event=update("t", WORKING, str(at)))
            for at, one in enumerate(replicas, 1)
        ]
        outcomes = await asyncio.gather(*saves, return_exceptions=True)
        [(at, won)] = [(at, one) for at, one in enumerate(outcomes, 1) if isinstance(one, TaskVersion)]
        assert sum(isinstance(one, ConcurrentTaskModificationError) for one in outcomes) == 5
        stored = await replicas[1].get("t", by("ana"))
        assert stored is not None
        assert (stored.task, stored.version) == (task("t", at), won)
        [event] = await followed(A2ATaskEvents(store), "t", version, 1)
        assert (event.event.status.message.parts[0].text, event.version) == (str(at), won)

    run(database, story)


def test_a_cancel_overtakes_any_save(database: Database) -> None:
    """integrations AD-100: it needs no version, and of two that cancel one is told that the task has ended."""

    async def story(store: AsyncStateStore) -> None:
        tasks = A2AVersionedTasks(store)
        old = await saved(tasks, task("t", 0))
        await saved(tasks, task("t", 1), old)
        cancelled = task("t", 2, state=TaskState.TASK_STATE_CANCELED)
        outcomes = await asyncio.gather(*[saved(tasks, cancelled, old) for _ in range(4)], return_exceptions=True)
        assert sum(isinstance(one, ConcurrentTaskModificationError) for one in outcomes) == 3
        assert await tasks.get("t", by("ana")) is not None

    run(database, story)


def test_a_version_of_a_task_that_was_removed_is_stale_for_ever(database: Database) -> None:
    """integrations AD-100: also for the next task of the same id, and events of the old one are gone."""

    async def story(store: AsyncStateStore) -> None:
        tasks, events = A2AVersionedTasks(store), A2ATaskEvents(store)
        old = await saved(tasks, task("t", 0), event=update("t", WORKING, "old"))
        await tasks.delete("t", by("ana"))
        new = await saved(tasks, task("t", 1), event=update("t", WORKING, "new"))
        assert new.is_after(old)
        with pytest.raises(ConcurrentTaskModificationError):
            await saved(tasks, task("t", 2), old)
        [event] = await followed(events, "t", old, 1)
        assert event.event.status.message.parts[0].text == "new"

    run(database, story)


def test_tasks_without_versions_go_on_with_them(database: Database) -> None:
    """integrations AD-101: those that `A2ATasks` saved are read, and saved by one of two."""

    async def story(store: AsyncStateStore) -> None:
        await A2ATasks(store).save(task("t", 0), by("ana"))
        tasks = A2AVersionedTasks(store)
        with pytest.raises(ConcurrentTaskModificationError):
            await saved(tasks, task("t", 1))
        stored = await tasks.get("t", by("ana"))
        assert stored is not None
        version = await saved(tasks, task("t", 1), stored.version)
        assert version.is_after(stored.version)
        with pytest.raises(ConcurrentTaskModificationError):
            await saved(tasks, task("t", 2), stored.version)
        assert await A2ATasks(store).get("t", by("ana")) == task("t", 1)

    run(database, story)


async def followed(events: A2ATaskEvents, name: str, after: TaskVersion, count: int) -> list[VersionedEvent]:
    """Return the next events of a task."""
    found: list[VersionedEvent] = []
    async with aclosing(events.subscribe(name, after=after)) as stream:
        async for one in stream:
            found.append(one)
            if len(found) == count:
                break
    return found


def test_events_come_once_and_in_order_while_others_save(database: Database) -> None:
    """integrations AD-102: more than a page of them, and those of another task or owner never."""

    async def story(store: AsyncStateStore) -> None:
        tasks, events = A2AVersionedTasks(store), A2ATaskEvents(store, poll_interval=0.01)
        first = version = await saved(tasks, task("t", 0))
        await saved(tasks, task("t", 0), owner="ana/t", event=update("t", WORKING, "other"))
        await saved(tasks, task("t/", 0), event=update("t/", WORKING, "other"))
        following = asyncio.create_task(followed(events, "t", first, 230))
        for at in range(230):
            event = update("t", WORKING, str(at))
            version = await saved(tasks, task("t", at), version, event=event)
        found = await following
        assert [one.event for one in found] == [update("t", WORKING, str(at)) for at in range(230)]
        assert found[-1].version == version
        assert await followed(events, "t", found[99].version, 130) == found[100:]

    run(database, story)


def test_the_sdks_stream_gives_the_same_events(database: Database) -> None:
    """integrations AD-102: tasks, updates and messages of one story."""
    said = Message(message_id="m", role=Role.ROLE_AGENT, parts=[Part(text="\0")])
    story_events = [task("t", 0), update("t", WORKING), said, None, task("t", 1)]

    async def told_events(tasks: Any, events: Any) -> list[Any]:
        versions = [TaskVersion.MISSING]
        for at, one in enumerate(story_events):
            versions.append(
                await tasks.save(task("t", at), event=one, prev=None, prev_version=versions[-1], context=by("ana"))
            )
        found = await followed(events, "t", versions[1], 3)
        return [(one.event, versions.index(one.version)) for one in found]

    async def story(store: AsyncStateStore) -> None:
        engine = create_async_engine("sqlite+aiosqlite://", poolclass=StaticPool)
        theirs = await told_events(VersionedDatabaseTaskStore(engine), DatabaseTaskEventStream(engine))
        await engine.dispose()
        assert await told_events(A2AVersionedTasks(store), A2ATaskEvents(store)) == theirs

    run(database, story)


def test_a_stream_needs_versions_of_its_own_store(database: Database) -> None:
    """integrations AD-102: a version names the owner whose events are read."""

    async def story(store: AsyncStateStore) -> None:
        for other in (TaskVersion.MISSING, TaskVersion(3)):
            with pytest.raises(MisuseError, match="A2AVersionedTasks"):
                await followed(A2ATaskEvents(store), "t", other, 1)

    run(database, story)


def test_events_of_a_person_are_erased_and_expire(database: Database) -> None:
    """integrations AD-4, AD-102: a prune removes them after a day."""

    async def story(store: AsyncStateStore) -> None:
        tasks = A2AVersionedTasks(store)
        for owner in ("ana", "bo"):
            await saved(tasks, task("t", 0), owner=owner, event=update("t", WORKING))
        await store.maintenance.erase.run("ana")
        left = (await store.states.list()).items
        assert {one.user for one in left} == {"bo"}
        database.clock.advance(timedelta(days=1, seconds=1))
        assert len((await store.states.list()).items) == len(left) - 1

    run(database, story)


def test_only_the_holder_of_a_claim_saves_versions(database: Database) -> None:
    """integrations AD-3."""

    async def story(store: AsyncStateStore) -> None:
        claims = store.workflows.claims
        flow = await store.workflows.runs.create("agent", trigger=Trigger("ticket"), phase="ask")
        claim = await claims.take(flow.id, owner="one")
        tasks, webhooks = A2AVersionedTasks(store, claim=claim), A2APushConfigs(store, claim=claim)
        version = await saved(tasks, task("t", 1))
        await claims.transfer(claim, owner="two")
        for refused in (
            saved(tasks, task("t", 2), version),
            tasks.delete("t", by("ana")),
            webhooks.set_info("t", TaskPushNotificationConfig(url="https://a"), by("ana")),
            webhooks.delete_info("t", by("ana")),
        ):
            with pytest.raises(ClaimLost):
                await refused
        assert (await tasks.get("t", by("ana"))).task == task("t", 1)  # type: ignore[union-attr]

    run(database, story)


class Waiting(AgentExecutor):
    """An agent that works until it is told to end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def execute(self, context: Any, event_queue: Any) -> None:
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
        await event_queue.enqueue_event(Task(id=context.task_id, context_id=context.context_id, status=status))
        await updater.start_work()
        await self.may_end.wait()
        await updater.complete()

    async def cancel(self, context: Any, event_queue: Any) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def replica(store: AsyncStateStore, agent: Waiting) -> DefaultRequestHandler:
    card = AgentCard(name="a", description="d", version="1", capabilities=AgentCapabilities(streaming=True))
    events = A2ATaskEvents(store, poll_interval=0.01)
    return DefaultRequestHandler(
        agent_executor=agent, agent_card=card, task_store=A2AVersionedTasks(store), event_stream=events
    )


def asked() -> SendMessageRequest:
    message = Message(message_id="q", role=Role.ROLE_USER, parts=[Part(text="go")])
    return SendMessageRequest(message=message, configuration=SendMessageConfiguration(return_immediately=True))


@pytest.mark.filterwarnings("ignore")
def test_a_replica_follows_and_cancels_what_another_one_runs(database: Database) -> None:
    """integrations AD-103: with the SDK's request handler in both."""

    async def story(store: AsyncStateStore) -> None:
        agent = Waiting()
        one, other = replica(store, agent), replica(store, Waiting())
        for is_cancelled in (False, True):
            made = await one.on_message_send(asked(), by("ana"))
            stream = other.on_subscribe_to_task(SubscribeToTaskRequest(id=made.id), by("ana"))
            async with aclosing(stream) as events:
                shown = [await anext(events)]
                if is_cancelled:
                    await other.on_cancel_task(CancelTaskRequest(id=made.id), by("ana"))
                else:
                    agent.may_end.set()
                shown.extend([event async for event in events])
            agent.may_end.clear()
            end = TaskState.TASK_STATE_CANCELED if is_cancelled else TaskState.TASK_STATE_COMPLETED
            assert shown[0].id == made.id
            assert shown[-1].status.state == end
            agent.may_end.set()
            agent.may_end = asyncio.Event()
        await one.aclose()
        await other.aclose()

    run(database, story)


def config(name: str, url: str = "https://a") -> TaskPushNotificationConfig:
    return TaskPushNotificationConfig(id=name, url=url, token="secret")


WEBHOOKS = st.one_of(
    st.tuples(
        st.just("set"), OWNERS, NAMES, st.sampled_from(["", "x", "y"]), st.sampled_from(["https://a", "https://b"])
    ),
    st.tuples(st.just("delete"), OWNERS, NAMES, st.sampled_from([None, "x", "y", "one"])),
    st.tuples(st.just("get"), OWNERS, NAMES),
    st.tuples(st.just("dispatch"), OWNERS, NAMES),
)


def ordered(configs: Any) -> list[Any]:
    return sorted(configs, key=lambda one: (one.id, one.url))


async def told_webhooks(store: Any, steps: list[Any]) -> list[Any]:
    found: list[Any] = []
    for verb, owner, name, *given_to in steps:
        if verb == "set":
            found.append(await store.set_info(name, config(*given_to), by(owner)))
        elif verb == "delete":
            await store.delete_info(name, by(owner), given_to[0])
        elif verb == "get":
            found.append(ordered(await store.get_info(name, by(owner))))
        else:
            found.append(ordered(await store.get_info_for_dispatch(name)))
    return found


def test_a_story_of_webhooks_is_what_it_is_in_memory(database: Database) -> None:
    """integrations AD-104: of owners and tasks apart, and for the dispatch of all owners together."""
    sync = database.open()
    numbers = iter(range(10_000))

    @settings(max_examples=30, deadline=None)
    @given(st.lists(WEBHOOKS, min_size=3, max_size=20))
    def compared(steps: list[Any]) -> None:
        ours = A2APushConfigs(AsyncStateStore(sync), scope=f"story {next(numbers)}")
        memory = InMemoryPushNotificationConfigStore()
        assert asyncio.run(told_webhooks(ours, steps)) == asyncio.run(told_webhooks(memory, steps))

    compared()


def test_webhooks_of_more_than_a_page_are_all_there(database: Database) -> None:
    """integrations AD-104."""

    async def story(store: AsyncStateStore) -> None:
        webhooks = A2APushConfigs(store)
        for at in range(130):
            await webhooks.set_info("t", config(f"{at:03}"), by("ana"))
        assert [one.id for one in await webhooks.get_info("t", by("ana"))] == [f"{at:03}" for at in range(130)]
        with pytest.raises(InvalidValue, match=r"notification_config\.id"):
            await webhooks.set_info("t", config("x" * 513), by("ana"))

    run(database, story)
