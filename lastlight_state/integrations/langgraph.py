"""A checkpointer for LangGraph over ``store.checkpoints`` (extra ``langgraph``).

::

    from lastlight_state import StateStore
    from lastlight_state.integrations.langgraph import LangGraphSaver

    with StateStore.open("state/lastlight.db") as store:
        graph = builder.compile(checkpointer=LangGraphSaver(store))

Threads, channels and namespaces of LangGraph are stored under their own names, in one scope. Values are stored as the
saver's serializer encodes them. Async methods run on the worker threads of an `AsyncStateStore`: a cancelled call waits
for the outcome of its write before it raises.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial, wraps
from itertools import islice
from typing import Any, Self, TypeAlias

from lastlight_state.aio import AsyncStateStore
from lastlight_state.checkpoints import (
    Checkpoint as Stored,
    Checkpoints,
    Content,
    NewCheckpoint,
    NewWrite,
)
from lastlight_state.checkpoints.models import WriteConflictRule
from lastlight_state.db import valid
from lastlight_state.db.lists.pages import iterate
from lastlight_state.db.repository import UNSET, UnsetType
from lastlight_state.errors import MisuseError, NotFound
from lastlight_state.integrations.langgraph_deltas import histories
from lastlight_state.integrations.langgraph_metadata import REBUILT, filterable, is_filterable, passes
from lastlight_state.integrations.langgraph_moving import MovedThreads, move
from lastlight_state.integrations.langgraph_upkeep import Answer, Opening
from lastlight_state.integrations.langgraph_writes import EarlyWrites, Place, Writes
from lastlight_state.store import StateStore
from lastlight_state.workflows import Claim

try:
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        Checkpoint,
        CheckpointTuple,
        DeltaChannelHistory,
        get_checkpoint_metadata,
    )
except ImportError:  # without the framework the module can be imported, but no saver created
    BaseCheckpointSaver = object

#: The strategies of a prune: which checkpoints of a thread remain.
_STRATEGIES = frozenset({"keep_latest", "delete"})
#: Checkpoints that one query of a list reads.
_PAGE = 20

Config: TypeAlias = Mapping[str, Any]


def _async_method(method: Callable[..., Any], *, writes: bool = True) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return the async version of a saver's method."""

    @wraps(method)
    async def call(self: LangGraphSaver, *given: Any, **named: Any) -> Any:
        made = partial(getattr(self, method.__name__), *given, **named)
        return await (self._runner.write(made) if writes else self._runner.read(made))

    return call


class LangGraphSaver(BaseCheckpointSaver):
    """A checkpointer, sync and async. The caller opens and closes the store.

    ``scope`` is the namespace of its threads. ``ttl`` is how long a thread is kept after each checkpoint; then a prune
    removes it. A thread's user, for erasure, is the text under ``user_key`` in ``configurable``. With a run's
    ``claim``, only the claim's holder may write: others get `ClaimLost`. Raises `MisuseError` without LangGraph.
    """

    def __init__(
        self,
        store: StateStore | AsyncStateStore,
        *,
        serde: Any = None,
        scope: str = "langgraph",
        ttl: timedelta | None = None,
        user_key: str = "user_id",
        claim: Claim | None = None,
    ) -> None:
        if BaseCheckpointSaver is object:
            raise MisuseError.missing_extra("langgraph", what="a checkpointer for LangGraph")
        super().__init__(serde=serde)
        behind = store if isinstance(store, AsyncStateStore) else AsyncStateStore(store)
        self._runner = behind._runner
        self._store = behind._store
        self._checkpoints = self._store.checkpoints
        self._scope = scope
        self._ttl = ttl
        self._user_key = user_key
        self._claim = claim
        self._early = EarlyWrites()

    @classmethod
    def from_conn_string(cls, url: str, **options: Any) -> Opening[Self]:
        """Return a context manager (``with`` or ``async with``) that opens a store at a URL or path and closes it."""
        return Opening(lambda store: cls(store, **options), url)

    def setup(self) -> Answer:
        """Do nothing: a store is set up when it is opened. The result may be awaited."""
        return Answer()

    # Sync methods.

    def get_tuple(self, config: Config) -> CheckpointTuple | None:
        """Return the checkpoint that the config names, or else the latest of thread and namespace; None without one."""
        asked = config["configurable"]
        one = asked.get("checkpoint_id") or None
        space = asked.get("checkpoint_ns") or ""
        thread = str(asked["thread_id"])
        if not valid.are_storable(thread, space, one):
            return None
        found = self._checkpoints.find(thread, one, namespace=space, scope=self._scope)
        return None if found is None else self._tuple(thread, found)

    def list(
        self,
        config: Config | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - the interface calls it so
        before: Config | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Return checkpoints, newest first. Without a config, return those of all threads, thread by thread."""
        wanted = filter or {}
        page = _PAGE if limit is None or wanted else max(1, min(limit, _PAGE))
        found = (one for one in self._find_tuples(config, wanted, before, page) if passes(one.metadata, wanted))
        return islice(found, limit)

    def get_delta_channel_history(self, *, config: Config, channels: Sequence[str]) -> dict[str, DeltaChannelHistory]:
        """Return, by channel, the tasks' writes before the config's checkpoint, and the value before these writes."""
        return histories(self, config, channels)

    def put(
        self, config: Config, checkpoint: Checkpoint, metadata: Mapping[str, Any], new_versions: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Store a checkpoint with the values of its new versions, in one transaction."""
        self._write(lambda checkpoints: self._put(checkpoints, config, checkpoint, metadata, new_versions))
        asked = config["configurable"]
        place = str(asked["thread_id"]), asked.get("checkpoint_ns") or "", checkpoint["id"]
        for made in self._early.take(place):
            self._has_stored(place, made)
        return _config(*place)

    def _put(
        self,
        checkpoints: Checkpoints,
        config: Config,
        checkpoint: Checkpoint,
        metadata: Mapping[str, Any],
        new_versions: Mapping[str, Any],
        after: str | UnsetType | None = UNSET,
    ) -> None:
        asked = config["configurable"]
        thread, space = str(asked["thread_id"]), asked.get("checkpoint_ns") or ""
        whole = dict(get_checkpoint_metadata(config, metadata))
        parent, values = asked.get("checkpoint_id") or None, checkpoint["channel_values"]
        kept = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        named = whole.get("run_id"), asked.get(self._user_key)
        run, user = (one if isinstance(one, str) and one else None for one in named)
        versions = {name: str(version) for name, version in checkpoint["channel_versions"].items()}
        unversioned = {name: checkpoint["id"] for name in values if name not in versions}
        brought = values if parent is None else {*new_versions, *unversioned}  # a first checkpoint inherits no values
        new = NewCheckpoint(
            checkpoint["id"],
            self._content({"checkpoint": kept, "metadata": whole}),
            versions | unversioned,
            {name: self._content(values[name]) for name in brought if name in values},
            space,
            parent,
            run,
            filterable(whole),
        )
        checkpoints.put(thread, new, scope=self._scope, user=user, ttl=self._ttl, after=after, on_conflict="keep")

    def put_writes(self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """Store a task's writes. An earlier write at the same index is kept, except for errors and interrupts.

        LangGraph stores a checkpoint and its tasks' writes concurrently. Writes that arrive first are kept in memory
        until this saver stores the checkpoint. Writes of a deleted thread are never stored.
        """
        asked = config["configurable"]
        place = str(asked["thread_id"]), asked.get("checkpoint_ns") or "", asked["checkpoint_id"]
        made = self._writes(writes, task_id, task_path)
        if not self._has_stored(place, made):
            self._early.add(place, made)
            if self._has_stored(place, made):  # the checkpoint was stored meanwhile, without these writes
                self._early.remove(place, made)

    def _writes(self, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str) -> Writes:
        given = {
            (idx := WRITES_IDX_MAP.get(name, at)): NewWrite(idx, name, self._content(value), task_path)
            for at, (name, value) in enumerate(writes)
        }
        taken: WriteConflictRule = "replace" if all(name in WRITES_IDX_MAP for name, _ in writes) else "keep"
        return Writes(task_id, [*given.values()], taken)

    def _has_stored(self, place: Place, made: Writes) -> bool:
        """Store writes of a checkpoint. Returns False if the checkpoint is not stored yet or was deleted."""
        thread, space, one = place
        with suppress(NotFound):
            self._write(
                lambda checkpoints: checkpoints.put_writes(
                    thread, one, made.task, made.writes, namespace=space, scope=self._scope, on_conflict=made.taken
                )
            )
            return True
        return False

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its checkpoints and writes."""
        if valid.are_storable(thread := str(thread_id)):
            self._write(lambda checkpoints: checkpoints.delete(thread, scope=self._scope))
            self._early.forget(thread)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs created, with their writes."""
        runs = [one for one in map(str, valid.several("run_ids", run_ids)) if valid.is_identifier(one)]
        self._write(lambda checkpoints: checkpoints.delete_runs(runs, scope=self._scope))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a whole thread. Raises `Conflict` if the target is not empty, and `NotFound` without a source."""
        source, target = str(source_thread_id), str(target_thread_id)
        self._write(lambda checkpoints: checkpoints.copy(source, target, scope=self._scope))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all but each namespace's latest checkpoint and the ancestors needed to rebuild its channels.

        ``strategy="delete"`` deletes everything. Raises `InvalidValue` for any other word, before anything is deleted.
        """
        act = self.delete_thread if valid.word("strategy", strategy, _STRATEGIES) == "delete" else self._keep_latest
        for thread in map(str, valid.several("thread_ids", thread_ids)):
            act(thread)

    def get_next_version(self, current: Any, channel: None) -> str:
        """Return the version after this one: a counter, followed by a random part that distinguishes forks."""
        counted = 0 if current is None else int(str(current).split(".")[0])
        return f"{counted + 1:032}.{random.random():016}"  # noqa: S311 - tells apart, and keeps no secret

    def move_from(self, source: Any, *, limit: int | None = None, revive: Collection[str] = ()) -> MovedThreads:
        """Copy all threads of another checkpointer, such as one shipped with LangGraph. Returns a summary.

        A later call copies what is new in the source, and an interrupted call may be repeated. A thread is only
        extended after a checkpoint that came from this source. A thread that was continued here, or came from another
        source, is unchanged and listed in ``kept``. What was deleted here stays deleted, unless ``revive`` names the
        thread. ``limit`` is the most checkpoints that one call copies. The source is only read, with its own
        serializer; this saver's serializer encodes the values anew.
        """
        return move(self, source, limit, revive)

    # Async methods, on the worker threads of the store.

    aget_tuple = _async_method(get_tuple, writes=False)
    aget_delta_channel_history = _async_method(get_delta_channel_history, writes=False)
    aput = _async_method(put)
    aput_writes = _async_method(put_writes)
    adelete_thread = _async_method(delete_thread)
    adelete_for_runs = _async_method(delete_for_runs)
    acopy_thread = _async_method(copy_thread)
    aprune = _async_method(prune)
    amove_from = _async_method(move_from)

    async def alist(
        self,
        config: Config | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - as above
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Return checkpoints as `list` does."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while some := await self._runner.read(lambda: [*islice(found, _PAGE)]):
            for one in some:
                yield one

    # Shared by sync and async methods.

    def _write(self, call: Callable[[Checkpoints], object]) -> None:
        """Run a call that writes, with the saver's claim if it has one."""
        if self._claim is None:
            call(self._checkpoints)
        else:
            self._store.run(lambda tx: call(tx.checkpoints), claim=self._claim, label=type(self).__name__)

    def _content(self, value: Any) -> Content:
        return Content(*self.serde.dumps_typed(value))

    def _tuple(self, thread: str, found: Stored) -> CheckpointTuple:
        load, space = self.serde.loads_typed, found.namespace
        own = load(found.content)
        values = {name: load(value) for name, value in found.values.items()}
        return CheckpointTuple(
            _config(thread, space, found.id),
            {**own["checkpoint"], "channel_values": values},
            own["metadata"],
            None if found.parent_id is None else _config(thread, space, found.parent_id),
            [(one.task, one.channel, load(one.content)) for one in found.writes],
        )

    def _find_tuples(
        self, config: Config | None, wanted: Config, before: Config | None, page: int
    ) -> Iterator[CheckpointTuple]:
        if config is None:
            for thread in iterate(self._checkpoints.threads, scope=self._scope, limit=500):
                yield from self._of_thread(thread.key, None, wanted, before, page)
        elif config["configurable"].get("checkpoint_id"):
            one = self.get_tuple(config)
            yield from () if one is None else (one,)
        else:
            asked = config["configurable"]
            yield from self._of_thread(str(asked["thread_id"]), asked.get("checkpoint_ns"), wanted, before, page)

    def _of_thread(
        self, thread: str, space: str | None, wanted: Config, before: Config | None, page: int
    ) -> Iterator[CheckpointTuple]:
        # Compared by id only, as in the shipped savers: the id may be of another namespace or thread, or of none.
        first = None if before is None else before["configurable"].get("checkpoint_id")
        if not valid.are_storable(thread, space, first):
            return
        found = iterate(
            self._checkpoints.history,
            thread,
            namespace=space,
            id_before=first,
            where={name: value for name, value in wanted.items() if is_filterable(name) and is_filterable(value)},
            scope=self._scope,
            limit=page,
        )
        yield from (self._tuple(thread, stored) for stored in found)

    def _keep_latest(self, thread: str) -> None:
        if not valid.are_storable(thread):
            return
        listed = iterate(self._checkpoints.list, thread, scope=self._scope, limit=500)
        channels = {name for one in listed for name in (one.metadata or {}).get(REBUILT, ())}
        with suppress(NotFound):  # there is no such thread
            self._write(
                lambda checkpoints: checkpoints.keep_latest(thread, from_ancestors=sorted(channels), scope=self._scope)
            )


def _config(thread: str, space: str, one: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": space, "checkpoint_id": one}}
