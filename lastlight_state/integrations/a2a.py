"""Stores of tasks and webhooks for servers of the A2A protocol, over ``store.states`` (extra ``a2a``).

::

    from lastlight_state.aio import AsyncStateStore
    from lastlight_state.integrations.a2a import A2APushConfigs, A2ATasks

    async with await AsyncStateStore.open("state/lastlight.db") as store:
        handler = DefaultRequestHandler(
            agent_executor=executor,
            agent_card=card,
            task_store=A2ATasks(store),
            push_config_store=A2APushConfigs(store),
        )

A task is stored as a state, in a scope per owner, as bytes of the protocol. A push notification configuration is a
state in a scope of its task and owner. Versioned tasks, for servers with replicas, are in ``a2a_replicas``. A cancelled
call waits for the outcome of its write before it raises.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

from lastlight_state.aio import AsyncStateStore
from lastlight_state.db import valid
from lastlight_state.db.lists.pages import iterate
from lastlight_state.domains import Transaction, View
from lastlight_state.errors import MisuseError
from lastlight_state.integrations.conversing import TASKS, WEBHOOKS, Calls
from lastlight_state.keys import compose_key
from lastlight_state.workflows import Claim

try:
    from a2a.server.context import ServerCallContext
    from a2a.server.owner_resolver import resolve_user_scope
    from a2a.server.tasks.push_notification_config_store import (
        PushNotificationConfigStore,
        normalize_push_notification_config,
    )
    from a2a.server.tasks.task_store import TaskStore
    from a2a.types import ListTasksRequest, ListTasksResponse, Task, TaskPushNotificationConfig
    from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
    from a2a.utils.errors import InvalidParamsError
    from a2a.utils.task import ListTasksCursor, decode_list_tasks_cursor, encode_list_tasks_cursor
except ImportError:  # without the SDK the module can be imported, but no store created
    PushNotificationConfigStore = TaskStore = object

#: Tasks that one query reads.
_PAGE = 100
#: Most bytes of an id, which is the key of a state.
MOST_ID = 512
#: The sort key of task lists: whether the task has a time of change, that time, and its id.
_Order: TypeAlias = tuple[bool, int, str]


class _OfOwners:
    """Base of the A2A stores. It determines owners and scopes, and accesses the store."""

    def __init__(
        self,
        store: AsyncStateStore,
        *,
        scope: str = "a2a",
        owner_of: Callable[[ServerCallContext], str] | None = None,
        ttl: timedelta | None = None,
        claim: Claim | None = None,
    ) -> None:
        if TaskStore is object:
            raise MisuseError.missing_extra("a2a", what="a store for A2A")
        self._scope = scope
        self._owner_of = owner_of or resolve_user_scope
        self._ttl = ttl
        self._calls = Calls(store, claim, label=type(self).__name__)


class OwnedTasks(_OfOwners):
    """Base of the task stores. It determines the scope of an owner's tasks, and lists them."""

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return a page of the owner's tasks that pass the filters, the last changed first.

        All tasks of the owner are read, but only one page is kept in memory. Raises `InvalidParamsError` for an unknown
        page token, and for a page size below 1.
        """
        scope = self._scope_of(self._owner_of(context))
        size = params.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
        if size < 1:
            raise InvalidParamsError("minimum page size is 1")
        after = decode_list_tasks_cursor(params.page_token) if params.page_token else None
        if params.page_token and after is None:
            raise InvalidParamsError(f"Invalid page token: {params.page_token}")

        def read(view: View) -> tuple[list[tuple[_Order, Task]], int]:
            total = 0
            found: list[tuple[_Order, Task]] = []
            for one in iterate(view.states.items, scope=scope, limit=_PAGE):
                task = Task.FromString(one.value)
                if not _passes(task, params):
                    continue
                total += 1
                if after is None or _order(task) < after.sort_key():
                    found.append((_order(task), task))
                if len(found) > size + _PAGE:
                    found = heapq.nlargest(size + 1, found, key=lambda one: one[0])
            return heapq.nlargest(size + 1, found, key=lambda one: one[0]), total

        found, total = await self._calls.view(read) if valid.are_storable(scope) else ([], 0)
        page = [task for _, task in found[:size]]
        token = encode_list_tasks_cursor(_cursor(page[-1])) if len(found) > size else None
        return ListTasksResponse(tasks=page, next_page_token=token, total_size=total, page_size=size)

    def _scope_of(self, owner: str) -> str:
        return compose_key(self._scope, TASKS, owner)


class A2ATasks(OwnedTasks, TaskStore):
    """A task store for servers of the A2A protocol. The caller opens and closes the underlying store.

    ``scope`` is the namespace of its tasks. ``owner_of`` returns the owner of a call's tasks, by default the call's
    user. Only the owner can see an owner's tasks, and `erase` removes them. A task's id has at most 512 bytes and no
    control characters. ``ttl`` is how long a task is kept after each save; then a prune removes it. With a run's
    ``claim``, only the claim's holder may write: any other caller gets `ClaimLost`. Raises `MisuseError` without the
    SDK.
    """

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Store a task, replacing one with the same id."""
        owner, data = self._owner_of(context), task.SerializeToString()
        given: dict[str, Any] = {"scope": self._scope_of(owner), "user": owner or None, "ttl": self._ttl}
        task_id = valid.identifier("task.id", task.id, MOST_ID)
        await self._calls.transact(lambda tx: tx.states.put(task_id, data, **given), repeatable=True)

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """Return the owner's task, or None."""
        scope = self._scope_of(self._owner_of(context))
        if not valid.are_storable(task_id, scope):
            return None
        found = await self._calls.view(lambda view: view.states.find(task_id, scope=scope))
        return None if found is None else Task.FromString(found.value)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Delete the owner's task, if it exists."""
        scope = self._scope_of(self._owner_of(context))
        if valid.are_storable(task_id, scope):
            await self._calls.transact(lambda tx: tx.states.remove(task_id, scope=scope), repeatable=True)


class A2APushConfigs(_OfOwners, PushNotificationConfigStore):
    """A store of push notification configurations for servers of the A2A protocol.

    ``scope``, ``owner_of``, ``ttl`` and ``claim`` have the same meaning as in `A2ATasks`. A configuration contains a
    token that its receiver checks. The token is encrypted if the store has a codec. The caller opens and closes the
    store. Raises `MisuseError` without the SDK.
    """

    async def set_info(
        self, task_id: str, notification_config: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Store a configuration, replacing one with the same id, and return it. The id defaults to the task's.

        Raises `InvalidValue` for an id that cannot be stored.
        """
        owner, made = self._owner_of(context), normalize_push_notification_config(task_id, notification_config)
        valid.identifier("task_id", task_id, MOST_ID)
        config_id = valid.identifier("notification_config.id", made.id, MOST_ID)
        given: dict[str, Any] = {"scope": self._scope_of(task_id, owner), "user": owner or None, "ttl": self._ttl}
        data = made.SerializeToString()
        await self._calls.transact(lambda tx: tx.states.put(config_id, data, **given), repeatable=True)
        return made

    async def get_info(self, task_id: str, context: ServerCallContext) -> list[TaskPushNotificationConfig]:
        """Return the owner's configurations of a task, sorted by id."""
        return await self._list_configs(scope=self._scope_of(task_id, self._owner_of(context)))

    async def get_info_for_dispatch(self, task_id: str) -> list[TaskPushNotificationConfig]:
        """Return all owners' configurations of a task."""
        return await self._list_configs(under=self._scope_of(task_id, ""))

    async def delete_info(self, task_id: str, context: ServerCallContext, config_id: str | None = None) -> None:
        """Delete one of the owner's configurations of a task, or all of them if no id is given."""
        scope = self._scope_of(task_id, self._owner_of(context))
        if not valid.are_storable(scope, config_id):
            return

        def remove(tx: Transaction) -> None:
            if config_id is None:
                tx.states.clear(scope)
            else:
                tx.states.remove(config_id, scope=scope)

        await self._calls.transact(remove, repeatable=True)

    async def _list_configs(self, **within: Any) -> list[TaskPushNotificationConfig]:
        if not valid.are_storable(*within.values()):
            return []

        def read(view: View) -> list[TaskPushNotificationConfig]:
            found = iterate(view.states.items, limit=_PAGE, **within)
            return [TaskPushNotificationConfig.FromString(one.value) for one in found]

        return await self._calls.view(read)

    def _scope_of(self, task_id: str, owner: str) -> str:
        return compose_key(self._scope, WEBHOOKS, task_id, owner)


def _passes(task: Task, params: ListTasksRequest) -> bool:
    if params.context_id and task.context_id != params.context_id:
        return False
    if params.status and task.status.state != params.status:
        return False
    then = params.status_timestamp_after
    return not params.HasField("status_timestamp_after") or (
        _order(task)[0] and task.status.timestamp.ToNanoseconds() >= then.ToNanoseconds()
    )


def _order(task: Task) -> _Order:
    is_timed = task.HasField("status") and task.status.HasField("timestamp")
    return is_timed, task.status.timestamp.ToNanoseconds() if is_timed else 0, task.id


def _cursor(task: Task) -> ListTasksCursor:
    is_timed, moment, task_id = _order(task)
    return ListTasksCursor(timestamp_ns=moment if is_timed else None, task_id=task_id)
