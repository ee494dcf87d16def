"""The async faces offer what the sync ones do: nothing missing, nothing renamed, one line each."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.aio.blocks import Block
from lastlight_state.aio.forward import Face, Forward
from lastlight_state.aio.journal_writer import AsyncLineFileMirror
from lastlight_state.aio.store import AsyncDomains
from lastlight_state.domains import Domains
from lastlight_state.files.agent_log import Cwd
from lastlight_state.files.run_log import RunHeader, new_run_id
from lastlight_state.lazy import Part

SYNC_ONLY = {"connection", "backend", "settings", "open", "after_fork"}
"""A SQLAlchemy connection is sync by nature; the rest belongs to the sync store that carries the async one."""


def _public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def _offered(kind: type) -> set[str]:
    """What can be called or asked for; constants of a class are the sync one's own."""
    members = inspect.getmembers(kind)
    return {name for name, member in members if callable(member) or isinstance(member, Part | property)} & _public(kind)


def _pairs(face: Any, target: Any) -> list[tuple[Any, Any]]:
    """Every async face below this one, beside the sync object it stands for."""
    found = [(face, target)]
    for name, member in inspect.getmembers(type(face)):
        if isinstance(member, Part):
            child = getattr(face, name)
            if isinstance(child, Face | AsyncDomains):
                found += _pairs(child, getattr(target, name))
    return found


@pytest.fixture
def faces(state_store: StateStore) -> list[tuple[Any, Any]]:
    return _pairs(AsyncStateStore(state_store), state_store)


def test_every_public_name_of_a_sync_face_is_on_its_async_face(faces: list[tuple[Any, Any]]) -> None:
    """backends B-70."""
    missing = [
        f"{type(face).__name__}.{name}"
        for face, target in faces
        for name in _offered(type(target)) - SYNC_ONLY
        if not hasattr(type(face), name)
    ]
    assert not missing


def test_every_forward_stands_under_the_name_of_its_method(faces: list[tuple[Any, Any]]) -> None:
    for face, target in faces:
        for name, member in inspect.getmembers(type(face)):
            if isinstance(member, Forward | Block):
                assert member.method.__name__ == name
                assert inspect.isfunction(getattr(type(target), name))


def test_every_forward_hands_its_arguments_to_the_method_of_its_name_in_its_lane(faces: list[tuple[Any, Any]]) -> None:
    """house H-131: so that one variant of a test proves the face, and the sync ones prove the method."""
    lanes: list[str] = []

    class Recording:
        def __getattr__(self, lane: str) -> Any:
            async def run(call: Any) -> Any:
                lanes.append(lane)
                return call()

            return run

    class Target:
        def __getattr__(self, name: str) -> Any:
            return lambda *args, **kwargs: (name, args, kwargs)

    async def work() -> None:
        for kind in {type(face) for face, _ in faces if isinstance(face, Face)}:
            face = object.__new__(kind)
            face._target, face._runner = Target(), Recording()
            for name, member in inspect.getmembers(kind):
                if isinstance(member, Forward):
                    assert await getattr(face, name)(1, two=2) == (name, (1,), {"two": 2})
                    assert lanes.pop() == ("write" if member.writes else "read")

    asyncio.run(work())


def test_every_face_is_looked_at(faces: list[tuple[Any, Any]]) -> None:
    seen = {type(face).__name__ for face, _ in faces}
    assert {"AsyncRuns", "AsyncClaims", "AsyncFires", "AsyncMessages", "AsyncAgentLog", "AsyncMaintenance"} <= seen


def test_faces_that_calls_return_offer_and_tell_what_the_sync_ones_do(state_store: StateStore, tmp_path: Path) -> None:
    """backends B-70: writers, mirrors and the two sides of a mailbox."""

    async def work() -> None:
        store = AsyncStateStore(state_store)
        header = RunHeader(run_id=new_run_id(), started_at=datetime(2026, 2, 3, tzinfo=UTC))
        faces: list[Any] = [
            await store.run_log.runs.start(header),
            store.agent_log.writer.open(place=Cwd("/app"), session_id="s-1", prompt="hello"),
            await store.mailbox.ensure("group", "session"),
            await store.mailbox.agent("group", "session"),
            AsyncLineFileMirror(store.journal.events, tmp_path / "events"),
        ]
        for face, target in [pair for made in faces for pair in _pairs(made, made._target)]:
            assert not {name for name in _offered(type(target)) - SYNC_ONLY if not hasattr(type(face), name)}
            told = [name for name in _public(type(face)) if isinstance(getattr(type(face), name), property)]
            assert {name: getattr(face, name) for name in told} == {name: getattr(target, name) for name in told}
        await faces[0].close()
        await faces[1].close()

    asyncio.run(work())


def test_the_async_store_is_opened_with_the_same_parameters() -> None:
    """backends B-70."""
    assert inspect.signature(AsyncStateStore.open) == inspect.signature(StateStore.open)


def test_transactions_and_views_offer_the_same_domains_as_the_store() -> None:
    assert _public(AsyncDomains) == _public(Domains)
