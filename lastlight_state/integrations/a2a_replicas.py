"""Versioned tasks of A2A servers that run on several hosts, and the tasks' events (extra ``a2a``).

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

A task is stored as in `A2ATasks`. Its version is a second state, and each event another one, with keys in the order of
versions. A save writes all three in one transaction. A cancelled call waits for the outcome of its write before it
raises.
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
from lastlight_state.keys import compose_key, parts_of
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
except ImportError:  # without the SDK the module can be imported, but no store created
    TaskEventStream = VersionedTaskStore = object

#: How long an event is kept. Followers of a task ask for events after a version younger than this.
_EVENT_LIFE = timedelta(days=1)
#: Events that one query reads.
_PAGE = 100
#: The version number of a task that `A2ATasks` saved, without a version.
_UNVERSIONED = 0


class _Write(NamedTuple):
    """A save of a task: its owner, the version that the task must have now, and a tag.

    ``expected`` is None for a first save. The tag is a new id. A retried transaction finds it if an earlier attempt was
    committed. Version numbers count up from the number in the first save's tag, so that the versions of a removed task
    are never used again.
    """

    task: Task
    event: Event | None
    owner: str
    expected: int | None
    tag: str


class A2AVersionedTasks(OwnedTasks, VersionedTaskStore):
    """A versioned task store for servers of the A2A protocol. The caller opens and closes the underlying store.

    Arguments and stored tasks are the same as in `A2ATasks`, so a server can add replicas and keep its tasks. Each save
    increases the version, even if the task was removed in between. Raises `MisuseError` without the SDK.
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
        """Store a task with its event, and return the task's new version.

        Raises `ConcurrentTaskModificationError` if the stored version differs from ``prev_version``. A save that
        cancels the task ignores the version. It is refused only if the task has ended or was removed.
        """
        valid.identifier("task.id", task.id, MOST_ID)
        expected = None if prev_version.is_missing else _parts(prev_version)[0]
        write = _Write(task, event, self._owner_of(context), expected, new_id())
        while True:
            try:
                number = await self._calls.transact(lambda tx: self._save(tx, write), repeatable=True)
            except StaleVersion as error:  # changed since it was read
                if not _is_cancel(task):
                    raise ConcurrentTaskModificationError(task.id) from error
            else:
                return _version(number, write.owner)

    async def get(self, task_id: str, context: ServerCallContext) -> StoredTask | None:
        """Return the owner's task with its version, or None."""
        owner = self._owner_of(context)
        if not valid.are_storable(task_id, owner):
            return None

        def read(view: View) -> StoredTask | None:
            found = view.states.find(task_id, scope=self._scope_of(owner))
            if found is None:
                return None
            mark = view.states.find(task_id, scope=self._versions(owner))
            number = _UNVERSIONED if mark is None else _number(mark)
            return StoredTask(Task.FromString(found.value), _version(number, owner))

        return await self._calls.view(read)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Delete the owner's task and its events, if the task exists."""
        owner = self._owner_of(context)
        if not valid.are_storable(task_id, owner):
            return

        def remove(tx: Transaction) -> None:
            tx.states.remove(task_id, scope=self._scope_of(owner))
            tx.states.remove(task_id, scope=self._versions(owner))
            tx.states.clear(_events(self._scope, owner, task_id))

        await self._calls.transact(remove, repeatable=True)

    def _save(self, tx: Transaction, write: _Write) -> int:
        """Save a task inside a transaction, and return its new version number."""
        task_id, owner = write.task.id, write.owner
        mark = tx.states.find(task_id, scope=self._versions(owner))
        if mark is not None and mark.value["tag"] == write.tag:
            return _number(mark)
        found = None if mark is None else _number(mark)
        if mark is None or _is_cancel(write.task):
            stored = tx.states.find(task_id, scope=self._scope_of(owner))
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
        tx.states.put(task_id, write.task.SerializeToString(), scope=self._scope_of(owner), **given)
        if write.event is not None:
            body = to_stream_response(write.event).SerializeToString()
            tx.states.put(
                _key(number), body, scope=_events(self._scope, owner, task_id), user=owner or None, ttl=_EVENT_LIFE
            )
        return number

    def _versions(self, owner: str) -> str:
        return compose_key(self._scope, VERSIONS, owner)


class A2ATaskEvents(TaskEventStream):
    """The event stream of tasks in `A2AVersionedTasks`, for a server that follows a task which runs on another server.

    ``scope`` is the scope of the tasks. ``poll_interval`` is the number of seconds between two polls. The caller opens
    and closes the store. Raises `MisuseError` without the SDK.
    """

    def __init__(self, store: AsyncStateStore, *, scope: str = "a2a", poll_interval: float = 0.5) -> None:
        if TaskEventStream is object:
            raise MisuseError.missing_extra("a2a", what="a stream of events for A2A")
        self._scope = scope
        self._poll = valid.seconds("poll_interval", poll_interval)
        self._calls = Calls(store, None, label=type(self).__name__)

    async def publish(self, task_id: str, event: VersionedEvent) -> None:
        """Do nothing, because saving the task has already stored its event."""

    async def destroy(self, task_id: str) -> None:
        """Do nothing, because other servers may still read the last events. A prune removes them after a day."""

    async def subscribe(self, task_id: str, *, after: TaskVersion) -> AsyncGenerator[VersionedEvent, None]:
        """Yield the task's events after a version: first the stored ones, then new ones as they are committed.

        Each event is yielded once, in the order of versions. The owner of the task is taken from the version. The
        stream never ends by itself. Raises `MisuseError` for a version that `A2AVersionedTasks` did not create.
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
    """Return the scope of a task's events. No other task's scope begins with it."""
    return compose_key(scope, EVENTS, owner, task_id, "")


def _read(view: View, scope: str, last: str) -> list[tuple[str, bytes]]:
    """Return up to `_PAGE` events after the key ``last``, as pairs of key and bytes. Raises `CorruptData`."""
    given = {"after_scope": scope, "after_key": last, "limit": _PAGE}
    events = []
    for row in view.states._bodies(scope)(given).rows:
        if isinstance(row, CorruptData):
            raise row
        _, key, body = row
        events.append((key, body or b""))
    return events


def _number(mark: State) -> int:
    return int(mark.value["number"], 16)


def _key(number: int) -> str:
    return f"{number:032x}"


def _version(number: int, owner: str) -> TaskVersion:
    return TaskVersion(compose_key(_key(number), owner))


def _parts(version: TaskVersion) -> tuple[int, str]:
    """Split a version into the number and the owner of which it consists."""
    match version._value:
        case str(value):
            number, owner = parts_of(value)
            return int(number, 16), owner
    raise MisuseError("expected a version of A2AVersionedTasks: the task store of the same server must be one")
