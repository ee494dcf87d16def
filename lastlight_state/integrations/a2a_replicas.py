"""Versioned tasks of A2A servers that run on several hosts, and their events (extra ``a2a``).

::

    from lastlight_state.aio import AsyncStateStore
    from lastlight_state.integrations.a2a_replicas import A2ATaskEvents, A2AVersionedTasks

    async with await AsyncStateStore.open("postgresql://...") as store:
        handler = DefaultRequestHandler(
            agent_executor=executor,
            agent_card=card,
            task_store=A2AVersionedTasks(store),
            event_stream=A2ATaskEvents(store),
        )

A task is a state as `A2ATasks` stores it; its version is a state beside it, and each event another one, in the order
of versions. A save writes all three or nothing. A call that is cancelled learns the outcome of its write first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any, NamedTuple

from lastlight_state.aio import AsyncStateStore
from lastlight_state.db import valid
from lastlight_state.domains import Transaction, View
from lastlight_state.errors import CorruptData, MisuseError, StaleVersion
from lastlight_state.ids import new_id
from lastlight_state.integrations.a2a import MOST_ID, OwnedTasks
from lastlight_state.integrations.conversing import EVENTS, VERSIONS, Calls
from lastlight_state.keys import composed, parts_of
from lastlight_state.states import State

try:
    from a2a.server.cluster import (
        ConcurrentTaskModificationError,
        StoredTask,
        TaskEventStream,
        TaskVersion,
        VersionedEvent,
        VersionedTaskStore,
    )
    from a2a.server.context import ServerCallContext
    from a2a.server.events.event_queue import Event
    from a2a.types import StreamResponse, Task, TaskState
    from a2a.utils.proto_utils import to_stream_response
except ImportError:  # the module can be looked at without the SDK; a store cannot be made
    TaskEventStream = VersionedTaskStore = object

#: How long an event is there for those who follow a task: they have a version of it that is younger.
_EVENT_LIFE = timedelta(days=1)
#: How many events are read at once.
_PAGE = 100
#: The number of the version of a task that `A2ATasks` saved.
_UNVERSIONED = 0


class _Write(NamedTuple):
    """A save of a task: its owner, the version that the task must have, and a tag.

    ``expected`` is None for a first save. By the tag, a fresh id, a repeated transaction finds that it was committed.
    Versions count up from the tag of the first save, so that none of them was one of a task that is removed.
    """

    task: Task
    event: Event | None
    owner: str
    expected: int | None
    tag: str


class A2AVersionedTasks(OwnedTasks, VersionedTaskStore):
    """A versioned task store for servers of the A2A protocol. The store stays the caller's, who closes it.

    The arguments are those of `A2ATasks`, and the tasks are the same: a server that gets replicas goes on with them. A
    version grows with each save, also over a removal. Raises `MisuseError` without the SDK.
    """

    async def save(
        self,
        task: Task,
        *,
        event: Event | None,
        prev: Task | None,
        prev_version: TaskVersion,
        context: ServerCallContext,
    ) -> TaskVersion:
        """Store a task with its event, and return its new version.

        Raises `ConcurrentTaskModificationError` where the task has another version than ``prev_version``. A task that
        is to be cancelled may have any version, and is refused once it has ended, or is gone.
        """
        valid.identifier("task.id", task.id, MOST_ID)
        expected = None if prev_version.is_missing else _parts(prev_version)[0]
        write = _Write(task, event, self._owner_of(context), expected, new_id())
        while True:
            try:
                number = await self._calls.transact(lambda tx: self._save(tx, write), repeatable=True)
            except StaleVersion as error:  # since it was read
                if not _is_cancel(task):
                    raise ConcurrentTaskModificationError(task.id) from error
            else:
                return _version(number, write.owner)

    async def get(self, task_id: str, context: ServerCallContext) -> StoredTask | None:
        """Return a task of the owner with its version, or None."""
        owner = self._owner_of(context)
        if not valid.are_storable(task_id, owner):
            return None

        def read(view: View) -> StoredTask | None:
            found = view.states.find(task_id, scope=self._scoped(owner))
            if found is None:
                return None
            mark = view.states.find(task_id, scope=self._versions(owner))
            number = _UNVERSIONED if mark is None else _number(mark)
            return StoredTask(Task.FromString(found.value), _version(number, owner))

        return await self._calls.view(read)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Remove a task of the owner with its events, if it is there."""
        owner = self._owner_of(context)
        if not valid.are_storable(task_id, owner):
            return

        def remove(tx: Transaction) -> None:
            tx.states.remove(task_id, scope=self._scoped(owner))
            tx.states.remove(task_id, scope=self._versions(owner))
            tx.states.clear(_events(self._scope, owner, task_id))

        await self._calls.transact(remove, repeatable=True)

    def _save(self, tx: Transaction, write: _Write) -> int:
        """Save a task in a transaction, and return the number of its new version."""
        task_id, owner = write.task.id, write.owner
        mark = tx.states.find(task_id, scope=self._versions(owner))
        if mark is not None and mark.value["tag"] == write.tag:
            return _number(mark)
        found = None if mark is None else _number(mark)
        if mark is None or _is_cancel(write.task):
            stored = tx.states.find(task_id, scope=self._scoped(owner))
            found = _UNVERSIONED if mark is None and stored is not None else found
            if _is_cancel(write.task) and (stored is None or _has_ended(Task.FromString(stored.value))):
                raise ConcurrentTaskModificationError(task_id)
        if found != write.expected and not _is_cancel(write.task):
            raise ConcurrentTaskModificationError(task_id)
        number = int(write.tag.replace("-", ""), 16) if mark is None else _number(mark) + 1
        given: dict[str, Any] = {"user": owner or None, "ttl": self._ttl}
        value = {"number": _key(number), "tag": write.tag}
        tx.states.put(
            task_id, value, scope=self._versions(owner), expected=None if mark is None else mark.version, **given
        )
        tx.states.put(task_id, write.task.SerializeToString(), scope=self._scoped(owner), **given)
        if write.event is not None:
            body = to_stream_response(write.event).SerializeToString()
            tx.states.put(
                _key(number), body, scope=_events(self._scope, owner, task_id), user=owner or None, ttl=_EVENT_LIFE
            )
        return number

    def _versions(self, owner: str) -> str:
        return composed(self._scope, VERSIONS, owner)


class A2ATaskEvents(TaskEventStream):
    """The events of tasks that `A2AVersionedTasks` saves, for servers that follow a task which another one runs.

    ``scope`` is that of the tasks, and ``poll_interval`` how many seconds pass between two looks. The store stays the
    caller's, who closes it. Raises `MisuseError` without the SDK.
    """

    def __init__(self, store: AsyncStateStore, *, scope: str = "a2a", poll_interval: float = 0.5) -> None:
        if TaskEventStream is object:
            raise MisuseError.missing_extra("a2a", what="a stream of events for A2A")
        self._scope = scope
        self._poll = valid.seconds("poll_interval", poll_interval)
        self._calls = Calls(store, None, label=type(self).__name__)

    async def publish(self, task_id: str, event: VersionedEvent) -> None:
        """Do nothing: the save of the task has stored the event."""

    async def destroy(self, task_id: str) -> None:
        """Do nothing: others may still read the last events, which a prune removes after a day."""

    async def subscribe(self, task_id: str, *, after: TaskVersion) -> AsyncGenerator[VersionedEvent, None]:
        """Yield the events of a task behind a version: the stored ones, then new ones as they are committed.

        Each comes once, in the order of the versions. The version names the owner of the task, whose events these are.
        It ends with the caller. Raises `MisuseError` for a version that is not of `A2AVersionedTasks`.
        """
        number, owner = _parts(after)
        scope = _events(self._scope, owner, task_id)
        if not valid.are_storable(scope):
            return
        last = _key(number)
        while True:
            rows = await self._calls.view(lambda view: _read(view, scope, last))  # noqa: B023 - awaited at once
            for key, body in rows:
                last = key
                response = StreamResponse.FromString(body)
                event = getattr(response, response.WhichOneof("payload"))
                yield VersionedEvent(event=event, version=_version(int(key, 16), owner))
            if len(rows) < _PAGE:
                await asyncio.sleep(self._poll)


def _is_cancel(task: Task) -> bool:
    return bool(task.status.state == TaskState.TASK_STATE_CANCELED)


def _has_ended(task: Task) -> bool:
    return task.status.state in (
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_REJECTED,
    )


def _events(scope: str, owner: str, task_id: str) -> str:
    """Return the scope of the events of a task. It is the beginning of no other one."""
    return composed(scope, EVENTS, owner, task_id, "")


def _read(view: View, scope: str, last: str) -> list[tuple[str, bytes]]:
    """Return events behind one, with their keys. Raises `CorruptData` for one that cannot be read."""
    given = {"after_scope": scope, "after_key": last, "limit": _PAGE}
    events = []
    for row in view.states._bodies(scope)(given).rows:
        if isinstance(row, CorruptData):
            raise row
        events.append((row["key"], row["body"] or b""))
    return events


def _number(mark: State) -> int:
    return int(mark.value["number"], 16)


def _key(number: int) -> str:
    return f"{number:032x}"


def _version(number: int, owner: str) -> TaskVersion:
    return TaskVersion(composed(_key(number), owner))


def _parts(version: TaskVersion) -> tuple[int, str]:
    """Return the number and the owner that a version names."""
    match version._value:
        case str(value):
            number, owner = parts_of(value)
            return int(number, 16), owner
    raise MisuseError("expected a version of A2AVersionedTasks: the task store of the same server must be one")
