"""Copies threads of another checkpointer. A thread is only extended after a checkpoint that came from that source."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from lastlight_state.domains import Transaction
from lastlight_state.errors import InvalidValue, StaleVersion
from lastlight_state.keys import compose_key
from lastlight_state.maintenance.imports import moved_threads

#: The parent config of a checkpoint that has no parent.
_NOWHERE: Mapping[str, Any] = {"configurable": {"checkpoint_id": None}}


class MovedThreads(NamedTuple):
    """The result of a move: the number of copied checkpoints, and the threads that were treated specially.

    ``kept`` are threads that were continued here, or that came from another source: nothing of them was copied.
    ``removed`` are threads that were moved once and then deleted here, either wholly or only the last checkpoints of a
    namespace. In the second case, new checkpoints of the source were copied. ``unknown`` are names in ``revive`` that
    are no threads of the source.
    """

    checkpoints: int
    kept: tuple[str, ...]
    removed: tuple[str, ...]
    unknown: tuple[str, ...] = ()


class _Thread:
    """One thread of the source: its checkpoints by namespace, oldest first."""

    def __init__(
        self, saver: Any, source: Any, thread: str, places: Sequence[Mapping[str, Any]], *, revives: bool
    ) -> None:
        self._saver, self._source, self._thread, self._places = saver, source, thread, places
        self._key = compose_key(saver._scope, thread)
        self._ids: dict[str, list[str]] = {}
        for place in places:
            self._ids.setdefault(place["checkpoint_ns"], []).append(place["checkpoint_id"])
        self._heads = {space: self._here(space) for space in self._ids}
        context = saver._store._context
        self._moved = {space: None if revives else moved_threads.last(context, self._key, space) for space in self._ids}
        self._brought: set[tuple[str, str, str]] = set()

    def _here(self, space: str, one: str | None = None) -> str | None:
        """Return the id of the given checkpoint if it is stored here; without one, of the namespace's latest.

        None if there is none.
        """
        found = self._saver._checkpoints.find(self._thread, one, namespace=space, scope=self._saver._scope)
        return None if found is None else found.id

    def is_removed(self) -> bool:
        """True if the thread was moved before and has been deleted here since then."""
        is_here = bool(self._saver._checkpoints.list(self._thread, scope=self._saver._scope, limit=1).items)
        return not is_here and moved_threads.has(self._saver._store._context, self._key)

    def went_on(self) -> bool:
        """True if a latest checkpoint here is not from the source, and the source has checkpoints missing here."""
        is_ours = any(head is not None and head not in self._ids[space] for space, head in self._heads.items())
        return is_ours and any(
            ids[-1] != self._moved[space] and self._here(space, ids[-1]) is None for space, ids in self._ids.items()
        )

    def has_lost(self) -> bool:
        """True if the last checkpoint moved to a namespace was deleted here and no other has been stored since then."""
        return any(self._begin(space) > self._after(self._heads[space], space) for space in self._ids)

    def _begin(self, space: str) -> int:
        """Return how many of the namespace's first checkpoints to skip: those stored here before or deleted here."""
        return max(self._after(self._heads[space], space), self._after(self._moved[space], space))

    def _after(self, one: str | None, space: str) -> int:
        """Return how many of the namespace's checkpoints in the source there are up to this id.

        If the id is missing, return all.
        """
        ids = self._ids[space]
        return 0 if one is None else ids.index(one) + 1 if one in ids else len(ids)

    def move(self, limit: int | None) -> int:
        """Copy at most ``limit`` checkpoints that come after the latest ones here. Return how many were copied.

        Raises `StaleVersion` if another writer continues the thread meanwhile.
        """
        moved = 0
        passed = {space: self._begin(space) for space in self._ids}
        for place in self._places:
            space = place["checkpoint_ns"]
            if passed[space]:
                passed[space] -= 1
                if place["checkpoint_id"] == self._heads[space]:
                    self._store(place, None)
                continue
            if moved == limit:
                break
            moved += self._store(place, self._heads[space], is_new=True)
        return moved

    def _store(self, place: Mapping[str, Any], after: str | None, *, is_new: bool = False) -> bool:
        """Store a checkpoint with its tasks' writes, in one transaction. Writes already stored here are kept."""
        found = self._source.get_tuple({"configurable": place})
        if found is None:  # deleted meanwhile
            return False
        saver, space = self._saver, place["checkpoint_ns"]
        versions = {
            name: version
            for name, version in found.checkpoint["channel_versions"].items()
            if (space, name, str(version)) not in self._brought
        }

        def work(tx: Transaction) -> None:
            if is_new:
                parent = {**place, "checkpoint_id": (found.parent_config or _NOWHERE)["configurable"]["checkpoint_id"]}
                config = {"configurable": parent}
                saver._put(tx.checkpoints, config, found.checkpoint, found.metadata, versions, after=after)
                moved_threads.note(tx._context, self._key, space, place["checkpoint_id"])
            self._put_writes(tx, place, found.pending_writes or ())

        saver._store.run(work, claim=saver._claim, label=type(saver).__name__)
        if is_new:
            self._brought.update((space, name, str(version)) for name, version in versions.items())
            self._heads[space] = place["checkpoint_id"]
        return is_new

    def _put_writes(self, tx: Transaction, place: Mapping[str, Any], pending: Sequence[tuple[str, str, Any]]) -> None:
        space, one, saver = place["checkpoint_ns"], place["checkpoint_id"], self._saver
        tasks: dict[str, list[tuple[str, Any]]] = {}
        for task, channel, value in pending:
            tasks.setdefault(task, []).append((channel, value))
        for task, writes in tasks.items():
            made = saver._writes(writes, task, "")
            tx.checkpoints.put_writes(
                self._thread, one, task, made.writes, namespace=space, scope=saver._scope, on_conflict="keep"
            )


def move(saver: Any, source: Any, limit: int | None, revive: Collection[str]) -> MovedThreads:
    """Copy the threads of a checkpointer. In each thread, the oldest checkpoint is copied first."""
    if isinstance(revive, str):
        raise InvalidValue("revive", "expected names of threads, got one text")
    threads: dict[str, list[Mapping[str, Any]]] = {}
    for place in reversed([one.config["configurable"] for one in source.list(None)]):
        threads.setdefault(str(place["thread_id"]), []).append(place)
    moved, kept, removed = 0, list[str](), list[str]()
    for name, places in threads.items():
        if moved == limit:
            break
        thread = _Thread(saver, source, name, places, revives=name in revive)
        if name not in revive and thread.is_removed():
            removed.append(name)
        elif thread.went_on():
            kept.append(name)
        else:
            removed += [name] if thread.has_lost() else []
            try:
                moved += thread.move(None if limit is None else limit - moved)
            except StaleVersion:
                kept.append(name)
    unknown = (name for name in revive if name not in threads)
    return MovedThreads(moved, tuple(kept), tuple(removed), tuple(unknown))
