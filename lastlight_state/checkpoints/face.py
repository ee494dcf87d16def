"""Checkpoints: the successive states of a thread, as opaque bytes that only the caller can interpret.

A thread is found by its key within a scope, and created by the first write. Each checkpoint has the version of every
channel, and the values of new versions. An unchanged value is not stored again, and a value that changed little is
stored as a binary delta against an earlier value.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from lastlight_state.checkpoints import (
    checks,
    copying,
    lineage,
    models,
    removal,
    statements as sql,
    threads,
    values,
    wholes,
)
from lastlight_state.checkpoints.checks import NewCheckpoint, NewWrite
from lastlight_state.checkpoints.models import CHECKPOINTS
from lastlight_state.checkpoints.records import ChannelHistory, Checkpoint, CheckpointSummary, CheckpointThread
from lastlight_state.db import valid
from lastlight_state.db.repository import UNSET, Repository, UnsetType
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, Statement
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, CorruptData
from lastlight_state.ids import new_id

#: Most rows that are stored by the same statement as the change of their thread.
_MOST_AT_ONCE = 4


class Checkpoints(Repository):
    """``store.checkpoints``"""

    def put(
        self,
        thread: str,
        checkpoint: NewCheckpoint,
        *,
        scope: str = "",
        user: str | None = None,
        ttl: timedelta | None = None,
        after: str | UnsetType | None = UNSET,
        on_conflict: models.ValueConflictRule = "refuse",
    ) -> CheckpointSummary:
        """Store a checkpoint with its new values, all or nothing. The thread is created if it does not exist.

        A checkpoint with the same id in the namespace is replaced, and keeps its number. ``user`` (the thread's owner)
        and ``ttl`` (its time to live from now on) apply to the thread; if not given, both stay. ``after`` is the id
        that the latest checkpoint of the namespace must have (None: the namespace must be empty); otherwise
        `StaleVersion` is raised. So if two callers continue the same checkpoint concurrently, one is refused. Raises
        `AlreadyExists` if a version has a different value already (``on_conflict="keep"`` keeps that value instead),
        `InvalidValue` and `PayloadTooLarge`.
        """
        now = self._now()
        draft = checks.draft(checkpoint, now)
        place = self._place(thread, scope, now, user, ttl)
        keep = valid.word("on_conflict", on_conflict, models.VALUE_CONFLICT_RULES) == "keep"
        if after is not UNSET:
            valid.optional("after", after)

        def work(unit: Unit) -> CheckpointSummary:
            thread_id = threads.touch_thread(unit, place)
            row = {**draft.row, "thread_id": thread_id}
            if after is not UNSET:
                threads.refuse_stale(unit, row, (scope, thread, row["namespace"]), after)
            new = values.new_rows(unit, thread_id, row["namespace"], draft.versions, draft.values, keep=keep)
            statement, given = sql.PUT, row
            if new and self._is_one(new):
                statement, given = sql.put_with_values(len(new)), {**row, **sql.values_numbered(new)}
            else:
                values.add(unit, new)
            [stored] = unit.rows(statement, given)
            return stored

        return self._writing(work, repeatable=True)

    def put_writes(
        self,
        thread: str,
        checkpoint_id: str,
        task: str,
        writes: Sequence[NewWrite],
        *,
        namespace: str = "",
        scope: str = "",
        on_conflict: models.WriteConflictRule = "keep",
    ) -> None:
        """Store a task's writes after a checkpoint, all or nothing.

        If a task writes twice with the same ``idx``, the first write is kept, or the last with
        ``on_conflict="replace"``. Raises `NotFound` if the checkpoint does not exist, so that a late write does not
        recreate a deleted thread. Raises `InvalidValue` and `PayloadTooLarge`.
        """
        own = {
            "namespace": checks.namespace(namespace),
            "checkpoint_id": valid.identifier("checkpoint_id", checkpoint_id),
            "task": valid.identifier("task", task),
        }
        rows = checks.writes(writes)
        statement = sql.PUT_WRITE[valid.word("on_conflict", on_conflict, models.WRITE_CONFLICT_RULES)]
        place = {**checks.place(thread, scope), **own, "updated_at": self._now()}
        is_one = self._is_one(rows)

        def work(unit: Unit) -> None:
            if is_one:
                thread_id = unit.value(
                    sql.touch_and_put_writes(len(rows), on_conflict), {**place, **sql.numbered_parameters(rows)}
                )
            else:
                thread_id = unit.value(sql.TOUCH_WITH, place)
            if thread_id is None:
                raise valid.not_found(models.CHECKPOINT, (scope, thread, namespace, checkpoint_id))
            for row in () if is_one else rows:
                unit.change(statement, {**row, **own, "thread_id": thread_id})

        if rows:
            (self._once if is_one else self._writing)(work, repeatable=True)

    def get(self, thread: str, checkpoint_id: str | None = None, *, namespace: str = "", scope: str = "") -> Checkpoint:
        """Return a whole checkpoint by its id, or without an id the latest one of the namespace.

        Raises `NotFound` and `CorruptData`.
        """
        found = self.find(thread, checkpoint_id, namespace=namespace, scope=scope)
        if found is None:
            raise valid.not_found(models.CHECKPOINT, (scope, thread, namespace, checkpoint_id or "latest"))
        return found

    def find(
        self, thread: str, checkpoint_id: str | None = None, *, namespace: str = "", scope: str = ""
    ) -> Checkpoint | None:
        """Return a whole checkpoint as `get` does, or None if it does not exist. Raises `CorruptData`."""
        given = {**checks.sought_place(thread, scope), "namespace": valid.lookup_text("namespace", namespace)}
        if checkpoint_id is None:
            return self._whole(wholes.LATEST, given)
        return self._whole(wholes.GET, {**given, "id": valid.lookup_text("checkpoint_id", checkpoint_id)})

    def list(
        self,
        thread: str,
        *,
        namespace: str | None = None,
        before: str | None = None,
        where: dict[str, Any] | None = None,
        scope: str = "",
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[CheckpointSummary]:
        """Return a page of a thread's checkpoints, newest first, of one namespace or all; empty for an unknown thread.

        ``before`` selects checkpoints stored before the checkpoint with this id, in the namespace "" unless another is
        named. ``where`` has keys and values (text, numbers, bools or None) that the metadata must contain; it needs a
        scan of the list. Raises `NotFound` for an unknown ``before``.
        """
        given = self._filters(thread, scope, namespace, before, where)
        return self._page(sql.LIST, given, limit, page_token)

    def history(
        self,
        thread: str,
        *,
        namespace: str | None = None,
        before: str | None = None,
        id_before: str | None = None,
        where: dict[str, Any] | None = None,
        scope: str = "",
        limit: int = 20,
        page_token: str | None = None,
    ) -> Page[Checkpoint]:
        """Return a page of whole checkpoints, selected as by `list`, in two statements.

        A checkpoint that is deleted between the two statements is left out. ``id_before`` selects checkpoints whose ids
        sort before this text, which need not be the id of a checkpoint. A checkpoint with an unreadable part is listed
        in ``damaged``, with the location of that part.
        """
        given = self._filters(thread, scope, namespace, before, where)
        given["id_before"] = None if id_before is None else valid.lookup_text("id_before", id_before)
        valid.page_limit(limit)

        def work(unit: Unit) -> Page[Checkpoint]:
            found = sql.LIST.page(unit, limit=limit, page_token=page_token, given=given)
            return wholes.page(unit, found)

        return self._reading(work)

    def channel_histories(
        self,
        thread: str,
        channels: Collection[str],
        checkpoint_id: str | None = None,
        *,
        namespace: str = "",
        scope: str = "",
    ) -> dict[str, ChannelHistory]:
        """Return, for each channel, the writes in a checkpoint's ancestors since the channel's last stored value.

        For channels whose values are built from writes. Without an id, the checkpoint is the latest of the namespace.
        If it does not exist, it has no ancestors. No other channel is read. Raises `CorruptData`.
        """
        named = checks.channels(channels)
        given = {**checks.sought_place(thread, scope), "namespace": valid.lookup_text("namespace", namespace)}
        if checkpoint_id is not None:
            given["id"] = valid.lookup_text("checkpoint_id", checkpoint_id)

        def work(unit: Unit) -> dict[str, ChannelHistory]:
            found = unit.row(sql.LATEST_PARENT if checkpoint_id is None else sql.PARENT, given)
            thread_id, parent = found or ("", None)
            if parent is None:
                return {one: ChannelHistory.of({"writes": (), "value": None}) for one in named}
            return lineage.histories(unit, thread_id, namespace, parent, named)

        return self._viewing(work)

    def copy(self, thread: str, target: str, *, scope: str = "", target_scope: str | None = None) -> int:
        """Copy a whole thread to another key, and return the number of its checkpoints.

        The copy has the same user and expiry, and without ``target_scope`` the same scope. Raises `NotFound`,
        `Conflict` ``thread_not_empty`` if the target has checkpoints or writes already, and `SealedValue` for a sealed
        value that is bound to the thread and that this store's codec cannot open.
        """
        source = checks.place(thread, scope)
        now = self._now()
        place = self._place(target, scope if target_scope is None else target_scope, now, None, None)

        def work(unit: Unit) -> int:
            found = threads.lock_thread(unit, source)
            whose = unit.row(sql.GET_THREAD, source)
            kept = {} if whose is None else {"user": whose.user, "expires_at": whose.expires_at}
            target_id = threads.touch_thread(unit, {**place, **kept})
            if target_id == found or unit.value(sql.IS_FILLED, {"thread_id": target_id}):
                raise Conflict(f"thread {target!r:.80} has checkpoints or writes already", code="thread_not_empty")
            return copying.thread(unit, found, target_id)

        return self._writing(work, repeatable=True)

    def delete(self, thread: str, *, scope: str = "") -> int:
        """Delete a thread with all its rows. Returns the number of its checkpoints, 0 for an unknown thread."""
        place = checks.sought_place(thread, scope)

        def work(unit: Unit) -> int:
            thread_id = unit.value(sql.LOCK, place)
            return 0 if thread_id is None else removal.thread(unit, thread_id)[str(CHECKPOINTS.name)]

        return self._writing(work, repeatable=True)

    def delete_runs(self, run_refs: Collection[str], *, scope: str | None = None) -> int:
        """Delete the checkpoints that these runs made, with their writes, in all threads or in those of a scope.

        Returns the number of deleted checkpoints. Values needed by others are kept.
        """
        refs = checks.run_refs(run_refs)
        if not refs:
            return 0
        wanted = {"runs": as_list([{"id": one} for one in refs])}
        if scope is not None:
            wanted["scope"] = valid.lookup_text("scope", scope)
        threads_of_runs = sql.THREADS_OF_RUNS[scope is not None]

        def work(unit: Unit) -> int:
            found = unit.values(threads_of_runs, wanted)
            for at in range(0, len(found), 500):
                unit.rows(*sql.LOCK_MANY.of(found[at : at + 500]))
            return sum(removal.of_runs(unit, one, wanted["runs"]) for one in found)

        return self._writing(work, repeatable=True)

    def keep_latest(self, thread: str, *, keep: int = 1, from_ancestors: Collection[str] = (), scope: str = "") -> int:
        """Delete all checkpoints of a thread except the last ``keep`` of each namespace. Returns how many were deleted.

        ``from_ancestors`` names channels whose values are built from the writes of ancestors. For these channels,
        ancestors are kept back to the nearest one with a value of the channel. Raises `NotFound` for an unknown thread.
        """
        place = checks.sought_place(thread, scope)
        number = valid.number("keep", keep, least=1)
        channels = checks.channels(from_ancestors)

        def work(unit: Unit) -> int:
            return removal.remove_superseded(unit, threads.lock_thread(unit, place), number, channels)

        return self._writing(work, repeatable=True)

    def thread(self, thread: str, *, scope: str = "") -> CheckpointThread:
        """Return the record of a thread, without its checkpoints. Raises `NotFound`."""
        given = checks.sought_place(thread, scope)
        return self._get_row(sql.GET_THREAD, given, kind=models.THREAD, key=(scope, thread))

    def thread_of(self, thread_id: str) -> CheckpointThread:
        """Return the thread with this internal id, which receipts and prune plans name. Raises `NotFound`."""
        given = {"thread_id": valid.lookup_text("thread_id", thread_id)}
        return self._get_row(sql.THREAD_OF, given, kind=models.THREAD, key=thread_id)

    def threads(
        self,
        *,
        scope: str | None = None,
        user: str | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[CheckpointThread]:
        """Return a page of threads, the last changed first: all threads, or those of a scope or user."""
        given = {
            "scope": None if scope is None else valid.lookup_text("scope", scope),
            "user": None if user is None else valid.lookup_text("user", user),
        }
        return self._page(sql.THREAD_LIST, given, limit, page_token)

    def _place(self, thread: str, scope: str, now: datetime, user: str | None, ttl: timedelta | None) -> Row:
        """Return the row that is inserted for a thread if the thread does not exist yet."""
        return {
            **checks.place(thread, scope),
            "id": new_id(),
            "created_at": now,
            "updated_at": now,
            "expires_at": checks.end(now, ttl),
            "user": checks.user(user),
        }

    def _whole(self, statement: Statement, given: Row) -> Checkpoint | None:
        def work(unit: Unit) -> Checkpoint | None:
            found = next(iter(wholes.read(unit, statement, given).values()), None)
            if isinstance(found, CorruptData):
                raise found
            return found

        return self._reading(work)

    def _filters(
        self, thread: str, scope: str, namespace: str | None, before: str | None, where: dict[str, Any] | None
    ) -> Row:
        place = checks.sought_place(thread, scope)
        space = None if namespace is None else valid.lookup_text("namespace", namespace)
        given: Row = {"thread": place, "namespace": space, "before": None, "where": checks.members(where)}
        if before is not None:
            one = {**place, "namespace": space or "", "id": valid.lookup_text("before", before)}
            given["before"] = self._value(sql.SEQ, one)
            if given["before"] is None:
                raise valid.not_found(models.CHECKPOINT, (scope, thread, space or "", before))
        return given

    def _is_one(self, rows: Sequence[Row]) -> bool:
        """True if one statement can both store these rows and change their thread."""
        # A sealed value is bound to its thread's id, which such a statement would learn only after sealing.
        return self._backend.writes_in_ctes and self._backend.sealing is None and len(rows) <= _MOST_AT_ONCE
