"""Sessions of Google's ADK over a store, beside its service in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import product
from math import inf
from typing import Any

import pytest
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from hypothesis import given, settings, strategies as st
from support.answers import dropped_answers

from lastlight_state import ClaimLost
from lastlight_state.aio import AsyncStateStore
from lastlight_state.db.lists.pages import aiterate
from lastlight_state.integrations.adk import ADKSessions
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database, racing
from lastlight_state.workflows import Trigger

#: Names that escaping must tell apart: few for stories, which shall meet the same session again and again.
USERS, NAMES = ["ana", "ana/b"], ["s", "b/s"]
ODD_APPS, ODD_USERS, ODD_NAMES = ["app", "app/ana"], [*USERS, "ana%2Fb", ""], [*NAMES, " s ", "%"]
KEYS = ["k", "l", "user:k", "app:k", "temp:k", "user:app:k", "", "app:\n"]
ODD: list[Any] = [None, 1, 0.1, inf, "x", "nul \0", [], {"a": {"b": [None, True]}}, 2**70, "\U0001f600"]
DELTAS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(ODD), max_size=3)
#: Later than any session of a test is made.
THEN = 4_000_000_000.0


def event(number: int, delta: dict[str, Any] | None = None, at: float | None = None) -> Event:
    """Return an event with text that no database holds, and bytes."""
    parts = [types.Part(text=f"said \0 {number}"), types.Part.from_bytes(data=b"\x00\xff", mime_type="image/png")]
    return Event(
        id=f"e{number}",
        invocation_id=f"i{number}",
        author="user",
        timestamp=THEN + (number if at is None else at),
        content=types.Content(role="user", parts=parts),
        actions=EventActions(state_delta=delta or {}),
    )


class Told:
    """What an observer sees of a service: values, and errors by their names."""

    def __init__(self, service: Any) -> None:
        self.service = service
        self.number = 0

    async def step(self, verb: str, app: str, user: str, name: str, delta: dict[str, Any], at: int) -> Any:
        try:
            return await getattr(self, verb)({"app_name": app, "user_id": user}, name, delta, at)
        except (AlreadyExistsError, SessionNotFoundError) as error:
            return type(error).__name__

    async def create(self, whose: dict[str, str], name: str, delta: dict[str, Any], _: int) -> Any:
        return shown(await self.service.create_session(**whose, session_id=name, state=delta))

    async def append(self, whose: dict[str, str], name: str, delta: dict[str, Any], at: int) -> Any:
        session = await self.service.get_session(**whose, session_id=name)
        if session is None:
            return None
        self.number += 1
        one = event(self.number, delta, at)
        one.partial = at == 3 or None
        added = await self.service.append_event(session, one)
        if at == 2:  # once more, as after an answer that got lost
            await self.service.append_event(session, added.model_copy(deep=True))
        return shown(session)

    async def gone(self, whose: dict[str, str], name: str, delta: dict[str, Any], _: int) -> Any:
        """Append to a session that is deleted meanwhile."""
        session = await self.service.get_session(**whose, session_id=name)
        if session is None:
            return None
        await self.service.delete_session(**whose, session_id=name)
        return await self.service.append_event(session, event(0, delta))

    async def get(self, whose: dict[str, str], name: str, _: dict[str, Any], at: int) -> Any:
        return shown(await self.service.get_session(**whose, session_id=name))

    async def recent(self, whose: dict[str, str], name: str, _: dict[str, Any], at: int) -> Any:
        config = GetSessionConfig(num_recent_events=at)
        return shown(await self.service.get_session(**whose, session_id=name, config=config))

    async def after(self, whose: dict[str, str], name: str, _: dict[str, Any], at: int) -> Any:
        config = GetSessionConfig(after_timestamp=THEN + at, num_recent_events=4)
        return shown(await self.service.get_session(**whose, session_id=name, config=config))

    async def delete(self, whose: dict[str, str], name: str, _: dict[str, Any], at: int) -> Any:
        return await self.service.delete_session(**whose, session_id=name)

    async def look(self, whose: dict[str, str], _: str, __: dict[str, Any], at: int) -> Any:
        user = None if at % 2 else whose["user_id"]
        listed = await self.service.list_sessions(app_name=whose["app_name"], user_id=user)
        assert [one.last_update_time for one in listed.sessions] == sorted(
            one.last_update_time for one in listed.sessions
        )
        sessions = sorted((one.user_id, one.id, *shown(one)) for one in listed.sessions)
        return str(sessions), await self.service.get_user_state(**whose)


def shown(session: Any) -> Any:
    """Return what two services must agree on: all but when a session was made, and what is temporary."""
    if session is None:
        return None
    events = [one.model_dump(mode="json", exclude_none=True) for one in session.events]
    updated = session.last_update_time if session.last_update_time >= THEN else 0.0
    return session.id, session.app_name, session.user_id, sorted(session.state.items()), events, updated


VERBS = ["create", "create", "append", "append", "append", "append", "get", "recent", "after", "delete", "gone", "look"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(VERBS), st.just("app"), st.sampled_from(USERS), st.sampled_from(NAMES), DELTAS,
        st.integers(0, 5),
    ),
    min_size=4,
    max_size=25,
)  # fmt: skip


def test_a_story_is_what_it_is_in_memory(database: Database) -> None:
    """integrations AD-41: every answer, and every error."""
    sync = database.open()
    numbers = iter(range(10_000))

    @settings(max_examples=40)
    @given(STEPS)
    def told(steps: list[Any]) -> None:
        async def story(made: Any) -> list[Any]:
            teller = Told(made)
            return [await teller.step(*step) for step in steps]

        ours: Any = ADKSessions(AsyncStateStore(sync), scope=f"story {next(numbers)}")
        assert asyncio.run(story(ours)) == asyncio.run(story(InMemorySessionService()))

    told()


def test_names_that_look_alike_are_told_apart(database: Database) -> None:
    """integrations AD-41: of applications, users and sessions."""
    places = [*product(ODD_APPS, ODD_USERS, ODD_NAMES)]
    verbs: list[tuple[str, dict[str, Any]]] = [
        ("create", {"k": 0, "user:k": 0}),
        ("append", {"l": 1, "user:l": 1, "app:l": 1}),
        ("get", {}),
        ("look", {}),
    ]

    async def story(made: Any) -> list[Any]:
        teller = Told(made)
        return [await teller.step(verb, *place, delta, 1) for verb, delta in verbs for place in places]

    ours: Any = ADKSessions(AsyncStateStore(database.open()))
    assert asyncio.run(story(ours)) == asyncio.run(story(InMemorySessionService()))


def run(database: Database, story: Callable[[AsyncStateStore], Any]) -> None:
    """Run a story over a store."""

    async def main() -> None:
        async with AsyncStateStore(database.open()) as store:
            await story(store)

    asyncio.run(main())


WHOSE: Any = {"app_name": "app", "user_id": "ana", "session_id": "s"}


def test_of_two_writers_one_is_stale_and_loses_nothing(database: Database) -> None:
    """integrations AD-42: from another store, at the same time, with changes of state of all kinds."""

    async def story(store: AsyncStateStore) -> None:
        async with AsyncStateStore(database.open()) as other:
            services = [ADKSessions(store), ADKSessions(other)]
            await services[0].create_session(**WHOSE)
            for number in range(5):
                held: list[Any] = [await one.get_session(**WHOSE) for one in services]
                events = [event(2 * number + at, {"k": at, "user:k": at, "app:k": at}) for at in (0, 1)]
                outcomes = await asyncio.gather(
                    *(service.append_event(*given) for service, *given in zip(services, held, events, strict=True)),
                    return_exceptions=True,
                )
                lost = [at for at, one in enumerate(outcomes) if isinstance(one, BaseException)]
                assert [type(outcomes[at]).__name__ for at in lost] == ["StaleSessionError"]
                found = await services[0].get_session(**WHOSE)
                assert found is not None
                assert found.state == dict.fromkeys(["k", "user:k", "app:k"], 1 - lost[0])
                assert (len(found.events), len(held[lost[0]].events)) == (number + 1, number)

    run(database, story)


def test_a_call_whose_outcome_nobody_learned_can_be_repeated(database: Database) -> None:
    """integrations AD-43: with a copy of the session from before it, which then has the event."""

    async def story(store: AsyncStateStore) -> None:
        service = ADKSessions(store)
        before = await service.create_session(**WHOSE)
        copy = before.model_copy(deep=True)
        said = event(1, {"k": 1})
        await service.append_event(before, said.model_copy(deep=True))
        await service.append_event(copy, said.model_copy(deep=True))
        assert (copy.events, copy.state) == ([said], {"k": 1})
        await service.append_event(copy, event(2))
        found = await service.get_session(**WHOSE)
        assert found is not None
        assert [one.id for one in found.events] == ["e1", "e2"]

    run(database, story)


def test_an_append_whose_commit_got_no_answer_is_stored_once(postgres_database: Database) -> None:
    """integrations AD-43: it is repeated by itself."""
    with dropped_answers(postgres_database.url) as (url, drop):
        postgres_database.open()

        async def story() -> None:
            async with await AsyncStateStore.open(url) as store:
                service = ADKSessions(store)
                session = await service.create_session(**WHOSE)
                drop("COMMIT\0")
                await service.append_event(session, event(1, {"k": 1}))
                assert (session.events, session.state) == ([event(1, {"k": 1})], {"k": 1})
                await service.append_event(session, event(2))
                found = await service.get_session(**WHOSE)
                assert found is not None
                assert [one.id for one in found.events] == ["e1", "e2"]

        asyncio.run(story())


def test_a_prune_deletes_what_nobody_changed_since_with_its_state(database: Database) -> None:
    """integrations AD-57: of one application or all, also a session whose conversation is gone already."""

    async def story(store: AsyncStateStore) -> None:
        service = ADKSessions(store)
        names = [("a/b", "ana", "old"), ("a/b", "bo", "changed"), ("other", "ana", "old"), ("a/b", "ana", "pruned")]
        held = {}
        for app, user, name in names:
            held[name] = await service.create_session(app_name=app, user_id=user, session_id=name, state={"k": 1})
            await service.append_event(held[name], event(1, {"user:u": 1}))
        one = PrunePolicy("sessions", ids=[await talk(store, "pruned")], keep_days=0, keep_n=0)
        await store.maintenance.prune.run(one)
        moment = database.clock.advance(timedelta(days=2))
        await service.append_event(held["changed"], event(2))
        assert await service.prune(before=moment, app_name="a/b") == 2
        assert [one.id for one in (await service.list_sessions(app_name="a/b")).sessions] == ["changed"]
        assert await service.prune(before=moment) == 1
        left = await store.states.list(limit=500)
        assert {one.scope.split("/")[1] for one in left} == {"user", "session", "sessions"}
        assert [one.key for one in left if one.scope.startswith("adk/session/")] == ["k"]
        assert [one.key for one in left if one.scope.startswith("adk/sessions/")] == ["changed"]
        assert await store.conversations.messages.count() == 2

    run(database, story)


def test_a_prune_leaves_a_session_that_is_changed_meanwhile(postgres_database: Database) -> None:
    """integrations AD-63: an event that is appended while the session is about to be deleted stays."""
    other = AsyncStateStore(postgres_database.open())

    async def story(store: AsyncStateStore) -> None:
        service = ADKSessions(store)
        session = await service.create_session(**WHOSE)
        moment = postgres_database.clock.advance(timedelta(days=1))
        with racing(store) as race:
            race.before(
                "DELETE FROM states", lambda: asyncio.run(ADKSessions(other).append_event(session, event(1, {"k": 1})))
            )
            assert await service.prune(before=moment) == 0
        assert race.left == 0
        found = await service.get_session(**WHOSE)
        assert found is not None
        assert (found.events, found.state) == (session.events, {"k": 1})

    run(postgres_database, story)


async def talk(store: AsyncStateStore, name: str) -> str:
    """Return the id of the conversation of a session."""
    [found] = [one async for one in aiterate(store.states.items) if one.key == name]
    return str(found.value["conversation"])


def test_another_event_of_a_stored_id_whose_commit_got_no_answer_is_stored_once(postgres_database: Database) -> None:
    """integrations AD-43: as ADK stores two events of one id, each with what it changes."""
    with dropped_answers(postgres_database.url) as (url, drop):
        postgres_database.open()

        async def story() -> None:
            async with await AsyncStateStore.open(url) as store:
                service = ADKSessions(store)
                session = await service.create_session(**WHOSE)
                await service.append_event(session, event(1, {"k": 1}))
                drop("COMMIT\0")
                await service.append_event(session, event(1, {"k": 2}))
                await service.append_event(session, event(2))
                assert ([one.id for one in session.events], session.state) == (["e1", "e1", "e2"], {"k": 2})
                found = await service.get_session(**WHOSE)
                assert found is not None
                assert (found.events, found.state) == (session.events, session.state)

        asyncio.run(story())


def test_a_cancelled_append_learns_its_outcome_first(database: Database) -> None:
    """integrations AD-43: the event is stored, or it is not, when the caller goes on."""

    async def story(store: AsyncStateStore) -> None:
        service = ADKSessions(store)
        session = await service.create_session(**WHOSE)
        for number in range(10):
            task = asyncio.create_task(service.append_event(session.model_copy(deep=True), event(number)))
            await asyncio.sleep(0.0005 * number)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            found = await service.get_session(**WHOSE)
            assert found is not None
            await asyncio.sleep(0.01)
            again = await service.get_session(**WHOSE)
            assert again == found
            session = found

    run(database, story)


def test_events_of_many_pages_come_in_order(database: Database) -> None:
    """integrations AD-44: all, the last of them, and those since a time."""

    async def story(store: AsyncStateStore) -> None:
        service = ADKSessions(store)
        session = await service.create_session(**WHOSE)
        for number in range(1_100):
            await service.append_event(session, Event(author="a", timestamp=THEN + number))
        for config, first in (
            (None, 0),
            (GetSessionConfig(num_recent_events=600), 500),
            (GetSessionConfig(after_timestamp=THEN + 50), 50),
            (GetSessionConfig(after_timestamp=THEN + 50, num_recent_events=700), 400),
        ):
            found = await service.get_session(**WHOSE, config=config)
            assert found is not None
            assert [one.timestamp - THEN for one in found.events] == list(range(first, 1_100))

    run(database, story)


def test_a_second_runner_is_refused_by_a_claim(database: Database) -> None:
    """integrations AD-3."""

    async def story(store: AsyncStateStore) -> None:
        flow = await store.workflows.runs.create("talk", trigger=Trigger("talk"), phase="talk")
        claim = await store.workflows.claims.take(flow.id, owner="one")
        one = ADKSessions(store, claim=claim)
        session = await one.create_session(**WHOSE)
        await store.workflows.claims.transfer(claim, owner="two")
        with pytest.raises(ClaimLost):
            await one.append_event(session, event(1))
        assert session.events == []
        found = await one.get_session(**WHOSE)
        assert found is not None
        assert found.events == []

    run(database, story)


def test_a_session_goes_with_its_person_and_leaves_nothing(database: Database) -> None:
    """integrations AD-4, AD-45."""

    async def story(store: AsyncStateStore) -> None:
        service = ADKSessions(store)
        for user in ("ana", "bo"):
            whose = {**WHOSE, "user_id": user}
            session = await service.create_session(**whose, state={"k": 1, "user:k": 2, "app:k": 3})
            await service.append_event(session, event(1))
        await service.delete_session(**{**WHOSE, "user_id": "bo"})
        assert await store.conversations.messages.count() == 1
        assert (await store.states.scopes()).items == (
            "adk/app/app",
            "adk/session/app/ana/s",
            "adk/sessions/app/ana",
            "adk/user/app/ana",
            "adk/user/app/bo",
        )
        await store.maintenance.erase.run("ana")
        assert await service.get_session(**WHOSE) is None
        assert await service.get_user_state(app_name="app", user_id="ana") == {}
        assert await service.get_user_state(app_name="app", user_id="bo") == {"k": 2}

    run(database, story)
