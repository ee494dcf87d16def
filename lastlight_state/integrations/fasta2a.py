"""A storage for servers of fasta2a, over ``store.states`` (extra ``fasta2a``).

::

    from pydantic_ai.messages import ModelMessagesTypeAdapter
    from lastlight_state.aio import AsyncStateStore
    from lastlight_state.integrations.fasta2a import FastA2AStorage

    async with await AsyncStateStore.open("state/lastlight.db") as store:
        storage = FastA2AStorage(store, contexts=ModelMessagesTypeAdapter)
        app = FastA2A(storage=storage, broker=InMemoryBroker())

A task is stored as a state, and so is the context of a conversation. A cancelled call waits for the outcome of its
write before it raises.
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
from lastlight_state.keys import compose_key
from lastlight_state.workflows import Claim

try:
    from fasta2a.schema import Artifact, Message, Task, TaskState
    from fasta2a.storage import Storage
except ImportError:  # without fasta2a the module can be imported, but no storage created
    Storage = object


class FastA2AStorage(Storage):
    """A storage for servers of fasta2a. The caller opens and closes the store.

    ``contexts`` is the pydantic adapter for the data that an agent keeps about a conversation, such as pydantic-ai's
    ``ModelMessagesTypeAdapter``. Without it a context is plain JSON. ``scope`` is the namespace of its tasks. ``ttl``
    is how long a task or context is kept after each change; then a prune removes it. With a run's ``claim``, only the
    claim's holder may write: any other caller gets `ClaimLost`. Raises `MisuseError` without fasta2a.
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
        self._tasks, self._contexts = compose_key(scope, FAST_TASKS), compose_key(scope, FAST_CONTEXTS)
        self._ttl = ttl
        self._clock = store._store._context.clock
        self._calls = Calls(store, claim, label=type(self).__name__)

    async def load_task(self, task_id: str, history_length: int | None = None) -> Task | None:
        """Return a task with its whole history or the last ``history_length`` messages.

        Return None if it does not exist.
        """
        stored = await self._find_value(task_id, self._tasks)
        if stored is None:
            return None
        task: Task = runtime.unpack_item(stored["task"])
        if history_length and "history" in task:
            task["history"] = task["history"][-history_length:]
        return task

    async def submit_task(self, context_id: str, message: Message) -> Task:
        """Store a new task with its first message, and return it. The message gets the task's and context's ids."""
        task_id = new_id()
        message.update(task_id=task_id, context_id=context_id)
        task: Task = {
            "id": task_id,
            "context_id": context_id,
            "status": self._status("submitted"),
            "history": [message],
        }
        await self._put(task_id, {"tag": task_id, "task": runtime.pack_item(task)}, self._tasks)
        return task

    async def update_task(
        self,
        task_id: str,
        state: TaskState,
        new_artifacts: list[Artifact] | None = None,
        new_messages: list[Message] | None = None,
    ) -> Task:
        """Set a task's state, append artifacts and messages, and return the task. Raises `KeyError` for an unknown id.

        If several updates run concurrently, all are applied.
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
            except StaleVersion:  # another caller has updated it meanwhile
                continue

    async def load_context(self, context_id: str) -> Any:
        """Return the context of a conversation, or None."""
        stored = await self._find_value(context_id, self._contexts)
        context = None if stored is None else runtime.unpack_item(stored["context"])
        if stored is None or self._adapter is None:
            return context
        return self._adapter.validate_json(json.dumps(context))

    async def update_context(self, context_id: str, context: Any) -> None:
        """Store the context of a conversation, replacing an earlier one."""
        made = context if self._adapter is None else json.loads(self._adapter.dump_json(context))
        await self._put(context_id, {"context": runtime.pack_item(made)}, self._contexts)

    def _update(self, tx: Transaction, task_id: str, tag: str, change: Callable[[Task], None]) -> Task:
        found = tx.states.find(task_id, scope=self._tasks)
        if found is None:
            raise KeyError(task_id)
        task: Task = runtime.unpack_item(found.value["task"])
        if found.value["tag"] != tag:  # with the same tag, this very call is committed already
            change(task)
            data = {"tag": tag, "task": runtime.pack_item(task)}
            tx.states.put(task_id, data, scope=self._tasks, expected=found.version, ttl=self._ttl)
        return task

    async def _put(self, key: str, data: Any, scope: str) -> None:
        await self._calls.transact(lambda tx: tx.states.put(key, data, scope=scope, ttl=self._ttl), repeatable=True)

    async def _find_value(self, key: str, scope: str) -> Any:
        if not valid.are_storable(key):
            return None
        found = await self._calls.view(lambda view: view.states.find(key, scope=scope))
        return None if found is None else found.value

    def _status(self, state: TaskState) -> Any:
        return {"state": state, "timestamp": self._clock.now().isoformat()}
