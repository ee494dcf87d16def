"""The state of ADK's sessions: any key, and values that JSON has no numbers for."""

from __future__ import annotations

import asyncio
from math import inf, isnan, nan
from typing import Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import InMemorySessionService

from lastlight_state import AsyncStateStore
from lastlight_state.integrations.adk import ADKSessions
from lastlight_state.testing import Database

WHOSE = {"app_name": "app", "user_id": "ana", "session_id": "s"}
#: Keys that are no keys of states, and one that looks like what stands for those.
KEYS = ["", " ", "a\nb", "\0", "\x7f", "x" * 600, "\U0001f600" * 200, "%", "%" + 64 * "0", "plain"]
STATE: dict[str, Any] = {prefix + key: {"of": prefix + key} for key in KEYS for prefix in ("", "app:", "user:")}


async def states(service: Any) -> list[Any]:
    """Return what an observer sees of a state that was given at first, changed by an event, and read again."""
    made = await service.create_session(**WHOSE, state=STATE)
    delta = {key: [value, -inf] for key, value in STATE.items()}
    await service.append_event(made, Event(author="u", actions=EventActions(state_delta=delta)))
    found = await service.get_session(**WHOSE)
    listed = (await service.list_sessions(app_name="app")).sessions
    return [made.state, found.state, found.events[0].actions.state_delta, [one.state for one in listed]]


def test_every_key_of_a_state_is_kept(database: Database) -> None:
    """integrations AD-70: as ADK's service in memory keeps it, also where no state of the store has such a key."""

    async def work() -> None:
        async with AsyncStateStore(database.open()) as store:
            assert await states(ADKSessions(store)) == await states(InMemorySessionService())

    asyncio.run(work())


def test_infinities_and_nan_stay_what_they_are(database: Database) -> None:
    """integrations AD-70: in a first state and in an event, which is still added once."""

    async def work() -> None:
        async with AsyncStateStore(database.open()) as store:
            service = ADKSessions(store)
            session = await service.create_session(**WHOSE, state={"low": -inf, "user:none": nan})
            event = Event(author="u", actions=EventActions(state_delta={"high": [inf], "app:none": {"x": nan}}))
            for _ in range(2):
                await service.append_event(session, event)
            found = await service.get_session(**WHOSE)
            assert found is not None
            assert len(found.events) == 1
            assert (found.state["low"], found.state["high"]) == (-inf, [inf])
            assert isnan(found.state["user:none"])
            assert isnan(found.state["app:none"]["x"])
            assert isnan(found.events[0].actions.state_delta["app:none"]["x"])
            assert found.events[0].actions.state_delta["high"] == [inf]

    asyncio.run(work())
