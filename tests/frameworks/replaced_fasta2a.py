"""A plugin of pytest that puts our storage in the place of fasta2a's storage in memory, for fasta2a's own tests.

Each storage has a scope of its own in one database, and keeps messages of pydantic-ai.
"""

from __future__ import annotations

import os
from typing import Any

import fasta2a.storage
from pydantic_ai.messages import ModelMessagesTypeAdapter

from lastlight_state.aio import AsyncStateStore
from lastlight_state.ids import new_id
from lastlight_state.integrations.fasta2a import FastA2AStorage
from lastlight_state.store import StateStore

STORE = AsyncStateStore(StateStore.open(os.environ["FRAMEWORKS_DATABASE"]))


class InMemoryStorage(FastA2AStorage):
    """Our storage, made as fasta2a makes its own."""

    def __init__(self) -> None:
        super().__init__(STORE, contexts=ModelMessagesTypeAdapter, scope=new_id())

    def __class_getitem__(cls, _: Any) -> Any:
        return cls


fasta2a.storage.InMemoryStorage = InMemoryStorage
