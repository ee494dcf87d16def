"""Our checkpoints as stores of checkpoints for agent frameworks are judged."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import pytest

from lastlight_state import StateStore
from lastlight_state.checkpoints import Content, NewCheckpoint, NewWrite
from lastlight_state.db.lists.pages import iterate
from lastlight_state.testing import Database
from lastlight_state.testing.contracts import CheckpointsContract
from lastlight_state.testing.contracts.checkpoint_stores import Checkpoints, KeptCheckpoint


class Ours:
    """``store.checkpoints`` with the interface of the contract: the version of a value is its digest."""

    def __init__(self, store: StateStore) -> None:
        self._of = store.checkpoints

    def put(self, thread: str, checkpoint: str, values: Mapping[str, bytes], *, parent: str | None = None) -> None:
        given = {name: Content("raw", value) for name, value in values.items()}
        versions = {name: hashlib.sha256(value).hexdigest() for name, value in values.items()}
        self._of.put(thread, NewCheckpoint(checkpoint, Content("raw", b""), versions, given, parent_id=parent))

    def put_writes(self, thread: str, checkpoint: str, task: str, writes: Sequence[tuple[str, bytes]]) -> None:
        new = [NewWrite(at, name, Content("raw", value)) for at, (name, value) in enumerate(writes)]
        self._of.put_writes(thread, checkpoint, task, new)

    def get(self, thread: str, checkpoint: str | None = None) -> KeptCheckpoint | None:
        found = self._of.find(thread, checkpoint)
        if found is None:
            return None
        wrote = [(one.task, one.channel, one.content.data) for one in found.writes]
        values = {name: one.data for name, one in found.values.items()}
        return KeptCheckpoint(found.id, found.parent_id, values, wrote)

    def list(self, thread: str) -> Sequence[str]:
        return [one.id for one in iterate(self._of.list, thread)]

    def delete(self, thread: str) -> None:
        self._of.delete(thread)


class TestCheckpoints(CheckpointsContract):
    """checkpoints CK-47"""

    @pytest.fixture
    def checkpoints(self, database: Database) -> Checkpoints:
        stores = [database.open(), database.open()]
        opened = iter(range(10_000))
        return lambda: Ours(stores[next(opened) % 2])
