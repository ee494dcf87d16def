"""A storage for servers of fasta2a over ``store.states`` (extra ``fasta2a``).

::

    from pydantic_ai.messages import ModelMessagesTypeAdapter
    from lastlight_state.aio import AsyncStateStore
    from lastlight_state.integrations.fasta2a import FastA2AStorage

    async with await AsyncStateStore.open("state/lastlight.db") as store:
        storage = FastA2AStorage(store, contexts=ModelMessagesTypeAdapter)
        app = FastA2A(storage=storage, broker=InMemoryBroker())

A task is a state, and so is the context of a conversation. A call that is cancelled learns its outcome first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pydantic import TypeAdapter

from lastlight_state.aio import AsyncStateStore
from lastlight_state.conversations import runtime
from lastlight_state.db import valid
from lastlight_state.domains import Transaction
from lastlight_state.errors import MisuseError, StaleVersion
from lastlight_state.ids import new_id
from lastlight_state.integrations.conversing import FAST_CONTEXTS, FAST_TASKS, Calls
from lastlight_state.keys import composed
from lastlight_state.workflows import Claim

try:
    from fasta2a.schema import Artifact, Message, Task, TaskState
    from fasta2a.storage import Storage
except ImportError:  # the module can be looked at without fasta2a; a storage cannot be made
    Storage = object


class FastA2AStorage(Storage):
    """A storage for servers of fasta2a. The store stays the caller's, who closes it.

    ``contexts`` is the pydantic adapter of what an agent keeps of a conversation, such as pydantic-ai's
    ``ModelMessagesTypeAdapter``; without one it is JSON. ``scope`` keeps its tasks apart from others. ``ttl`` is how
    long a task or a context lives after each change, until a prune removes it. With the ``claim`` of a run only the
    holder of that claim writes: a second runner gets `ClaimLost`. Raises `MisuseError` without fasta2a.
    """

    def __init__(
        self,
        store: AsyncStateStore,
        *,
        contexts: TypeAdapter[Any] | None = None,
        scope: str = "fasta2a",
        ttl: timedelta | None = None,
        claim: Claim | None = None,
    ) -> None:
        if Storage is object:
            raise MisuseError.missing_extra("fasta2a", what="a storage for fasta2a")
        self._adapter = contexts
        self._tasks, self._contexts = composed(scope, FAST_TASKS), composed(scope, FAST_CONTEXTS)
        self._ttl = ttl
        self._clock = store._store._context.clock
        self._calls = Calls(store, claim, label=type(self).__name__)

    async def load_task(self, task_id: str, history_length: int | None = None) -> Task | None:
        """Return a task with the last messages of its history, or with all of them; None if it is not there."""
        stored = await self._found(task_id, self._tasks)
        if stored is None:
            return None
        task: Task = runtime.unpacked(stored["task"])
        if history_length and "history" in task:
            task["history"] = task["history"][-history_length:]
        return task

    async def submit_task(self, context_id: str, message: Message) -> Task:
        """Store a new task with its first message, which gets the ids of both, and return it."""
        task_id = new_id()
        message.update(task_id=task_id, context_id=context_id)
        task: Task = {
            "id": task_id,
            "context_id": context_id,
            "status": self._status("submitted"),
            "history": [message],
        }
        await self._put(task_id, {"tag": task_id, "task": runtime.packed(task)}, self._tasks)
        return task

    async def update_task(
        self,
        task_id: str,
        state: TaskState,
        new_artifacts: list[Artifact] | None = None,
        new_messages: list[Message] | None = None,
    ) -> Task:
        """Give a task another state, add artifacts and messages, and return it. Raises `KeyError`.

        Of two updates at once each is made.
        """
        tag, status = new_id(), self._status(state)

        def change(task: Task) -> None:
            task["status"] = status
            if new_artifacts:
                task.setdefault("artifacts", []).extend(new_artifacts)
            for message in new_messages or ():
                message.update(task_id=task_id, context_id=task["context_id"])
                task.setdefault("history", []).append(message)

        if not valid.are_storable(task_id):
            raise KeyError(task_id)
        while True:
            try:
                return await self._calls.transact(lambda tx: self._update(tx, task_id, tag, change), repeatable=True)
            except StaleVersion:  # somebody else has updated it meanwhile
                continue

    async def load_context(self, context_id: str) -> Any:
        """Return the context of a conversation, or None."""
        stored = await self._found(context_id, self._contexts)
        context = None if stored is None else runtime.unpacked(stored["context"])
        if stored is None or self._adapter is None:
            return context
        return self._adapter.validate_json(json.dumps(context))

    async def update_context(self, context_id: str, context: Any) -> None:
        """Store the context of a conversation, in the place of the one that is there."""
        made = context if self._adapter is None else json.loads(self._adapter.dump_json(context))
        await self._put(context_id, {"context": runtime.packed(made)}, self._contexts)

    def _update(self, tx: Transaction, task_id: str, tag: str, change: Callable[[Task], None]) -> Task:
        found = tx.states.find(task_id, scope=self._tasks)
        if found is None:
            raise KeyError(task_id)
        task: Task = runtime.unpacked(found.value["task"])
        if found.value["tag"] != tag:  # else this very call has been committed already
            change(task)
            data = {"tag": tag, "task": runtime.packed(task)}
            tx.states.put(task_id, data, scope=self._tasks, expected=found.version, ttl=self._ttl)
        return task

    async def _put(self, key: str, data: Any, scope: str) -> None:
        await self._calls.transact(lambda tx: tx.states.put(key, data, scope=scope, ttl=self._ttl), repeatable=True)

    async def _found(self, key: str, scope: str) -> Any:
        if not valid.are_storable(key):
            return None
        found = await self._calls.view(lambda view: view.states.find(key, scope=scope))
        return None if found is None else found.value

    def _status(self, state: TaskState) -> Any:
        return {"state": state, "timestamp": self._clock.now().isoformat()}
