"""Checkpoints: the states of a thread, one after the other, in bytes that only the caller can read.

A thread is found by its key within a scope, and made by the first that writes to it. Each of its checkpoints names the
version of every channel, and brings the values of those that are new; what stayed the same is not stored again, and a
value that changed little is stored as the change since the one before.
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
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.repository import UNSET, Repository, UnsetType
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, Statement
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, CorruptData
from lastlight_state.ids import new_id

#: How many writes go in one statement, where the database puts them with the change of their thread.
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
        other: models.Other = "refuse",
    ) -> CheckpointSummary:
        """Store a checkpoint with its new values, whole or not at all. The thread is made if there is none.

        One of the same id in its namespace is replaced in its place. ``user`` and ``ttl`` are of the thread: whose it
        is, and how long it lives from now on; without them both stay. With ``after`` the checkpoint is stored only if
        the latest one of its namespace has that id, or if there is none for None: else `StaleVersion`, so that of two
        who go on with a thread one is refused. Raises `AlreadyExists` where a version has another value already, unless
        with ``other="keep"`` that one stays, `InvalidValue` and `PayloadTooLarge`.
        """
        now = self._now()
        draft = checks.draft(checkpoint, now)
        place = self._place(thread, scope, now, user, ttl)
        keep = valid.word("other", other, models.OTHERS) == "keep"
        if after is not UNSET:
            valid.optional("after", after)

        def work(unit: Unit) -> CheckpointSummary:
            thread_id = threads.touched(unit, place)
            row = {**draft.row, "thread_id": thread_id}
            if after is not UNSET:
                threads.refuse_stale(unit, row, (scope, thread, row["namespace"]), after)
            new = values.new_rows(unit, thread_id, row["namespace"], draft.versions, draft.values, keep=keep)
            statement, given = sql.PUT, row
            if new and self._is_one(new):
                statement, given = sql.put_with_values(len(new)), {**row, **sql.values_numbered(new)}
            else:
                values.add(unit, new)
            [stored] = unit.all(CheckpointSummary.of, statement, given)
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
        taken: models.Taken = "keep",
    ) -> None:
        """Store what a task wrote after a checkpoint, all of it or nothing.

        Of two writes of a task with one ``idx`` the first stays, or with ``taken="replace"`` the last. Raises
        `NotFound` where the checkpoint is not there: what was deleted does not come back by the last write of a task.
        Raises `InvalidValue` and `PayloadTooLarge`.
        """
        own = {
            "namespace": checks.namespace(namespace),
            "checkpoint_id": valid.identifier("checkpoint_id", checkpoint_id),
            "task": valid.identifier("task", task),
        }
        rows = checks.writes(writes)
        statement = sql.PUT_WRITE[valid.word("taken", taken, models.TAKEN)]
        place = {**checks.place(thread, scope), **own, "updated_at": self._now()}
        is_one = self._is_one(rows)

        def work(unit: Unit) -> None:
            if is_one:
                found = unit.row(sql.touch_and_put_writes(len(rows), taken), {**place, **sql.numbered(rows)})
            else:
                found = unit.row(sql.TOUCH_WITH, place)
            if found is None:
                raise valid.not_found(models.CHECKPOINT, (scope, thread, namespace, checkpoint_id))
            for row in () if is_one else rows:
                unit.change(statement, {**row, **own, "thread_id": found["id"]})

        if rows:
            (self._once if is_one else self._writing)(work, repeatable=True)

    def get(self, thread: str, checkpoint_id: str | None = None, *, namespace: str = "", scope: str = "") -> Checkpoint:
        """Return the whole checkpoint, without an id the latest of the namespace. Raises `NotFound`, `CorruptData`."""
        found = self.find(thread, checkpoint_id, namespace=namespace, scope=scope)
        if found is None:
            raise valid.not_found(models.CHECKPOINT, (scope, thread, namespace, checkpoint_id or "latest"))
        return found

    def find(
        self, thread: str, checkpoint_id: str | None = None, *, namespace: str = "", scope: str = ""
    ) -> Checkpoint | None:
        """Return the whole checkpoint, or None. As `get`."""
        given = {**checks.sought(thread, scope), "namespace": valid.sought("namespace", namespace)}
        if checkpoint_id is None:
            return self._whole(wholes.LATEST, given)
        return self._whole(wholes.GET, {**given, "id": valid.sought("checkpoint_id", checkpoint_id)})

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
        """Return a page of a thread's checkpoints, newest first, of one namespace or all. An unknown thread has none.

        ``before`` is the id of a checkpoint, of the namespace "" if none is named: those that were stored before it.
        ``where`` are members that the metadata must have, with texts, numbers, flags or None: a walk along the list.
        Raises `NotFound` for an unknown ``before``.
        """
        given = self._filters(thread, scope, namespace, before, where)
        return self._page_as(sql.LIST, CheckpointSummary.of, given, limit, page_token)

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
        """Return a page of whole checkpoints, as `list`, in two statements. One that goes in between is left out.

        ``id_before`` is a text that need be no checkpoint's: those whose ids sort before it, where ids have an order. A
        checkpoint of which a part cannot be read is in ``damaged``, with the place of that part.
        """
        given = self._filters(thread, scope, namespace, before, where)
        given["id_before"] = None if id_before is None else valid.sought("id_before", id_before)
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
        """Return for each channel what tasks wrote to it before a checkpoint, since an ancestor had a value of it.

        For channels whose values are made of writes. Without an id it is the latest checkpoint of the namespace; one
        that is not there has no ancestors. No other channel is read. Raises `CorruptData`.
        """
        named = checks.channels(channels)
        given = {**checks.sought(thread, scope), "namespace": valid.sought("namespace", namespace)}
        if checkpoint_id is not None:
            given["id"] = valid.sought("checkpoint_id", checkpoint_id)

        def work(unit: Unit) -> dict[str, ChannelHistory]:
            found = unit.row(sql.LATEST_PARENT if checkpoint_id is None else sql.PARENT, given)
            if found is None or found["parent_id"] is None:
                return {one: ChannelHistory.of({"writes": (), "value": None}) for one in named}
            return lineage.histories(unit, found["thread_id"], namespace, found["parent_id"], named)

        return self._viewing(work)

    def copy(self, thread: str, target: str, *, scope: str = "", target_scope: str | None = None) -> int:
        """Copy a thread whole under another key. Returns how many checkpoints it has.

        The copy has the user and the expiry of the thread. Without ``target_scope`` it is in the same scope. Raises
        `NotFound`, `Conflict` ``thread_not_empty`` if the target has checkpoints or writes already, and `SealedValue`
        for what is bound to the thread by a codec that cannot open it.
        """
        source = checks.place(thread, scope)
        now = self._now()
        place = self._place(target, scope if target_scope is None else target_scope, now, None, None)

        def work(unit: Unit) -> int:
            found = threads.locked(unit, source)
            whose = unit.find(CheckpointThread.of, sql.GET_THREAD, source)
            kept = {} if whose is None else {"user": whose.user, "expires_at": whose.expires_at}
            target_id = threads.touched(unit, {**place, **kept})
            if target_id == found or unit.value(sql.IS_FILLED, {"thread_id": target_id}):
                raise Conflict(f"thread {target!r:.80} has checkpoints or writes already", code="thread_not_empty")
            return copying.thread(unit, found, target_id)

        return self._writing(work, repeatable=True)

    def delete(self, thread: str, *, scope: str = "") -> int:
        """Remove a thread with everything of it. Returns how many checkpoints it had: 0 for an unknown thread."""
        place = checks.sought(thread, scope)

        def work(unit: Unit) -> int:
            found = unit.row(sql.LOCK, place)
            return 0 if found is None else removal.thread(unit, found["id"])[str(CHECKPOINTS.name)]

        return self._writing(work, repeatable=True)

    def delete_runs(self, run_refs: Collection[str], *, scope: str | None = None) -> int:
        """Remove the checkpoints that these runs made, in all threads or in those of a scope, with their writes.

        Returns how many there were. Values that other checkpoints name stay.
        """
        refs = checks.run_refs(run_refs)
        if not refs:
            return 0
        wanted = {"runs": as_list([{"id": one} for one in refs])}
        if scope is not None:
            wanted["scope"] = valid.sought("scope", scope)
        threads_of_runs = sql.THREADS_OF_RUNS[scope is not None]

        def work(unit: Unit) -> int:
            found = [row["thread_id"] for row in unit.rows(threads_of_runs, wanted)]
            for at in range(0, len(found), 500):
                unit.rows(*sql.LOCK_MANY.of(found[at : at + 500]))
            return sum(removal.of_runs(unit, one, wanted["runs"]) for one in found)

        return self._writing(work, repeatable=True)

    def keep_latest(self, thread: str, *, keep: int = 1, from_ancestors: Collection[str] = (), scope: str = "") -> int:
        """Remove all checkpoints of a thread but the last ``keep`` of each namespace. Returns how many were removed.

        ``from_ancestors`` are channels whose values are made of the writes of ancestors: those stay as well, back to
        the nearest that has a value of each. Raises `NotFound` for an unknown thread.
        """
        place = checks.sought(thread, scope)
        number = valid.number("keep", keep, least=1)
        channels = checks.channels(from_ancestors)

        def work(unit: Unit) -> int:
            return removal.superseded(unit, threads.locked(unit, place), number, channels)

        return self._writing(work, repeatable=True)

    def expire(self, thread: str, at: datetime | None, *, scope: str = "") -> CheckpointThread:
        """Set when a prune may remove the thread, None for never. Until then it is there. Raises `NotFound`."""
        given = {**checks.sought(thread, scope), "expires_at": None if at is None else aware_utc("at", at)}
        found = self._changed_as(CheckpointThread.of, sql.EXPIRE, given, repeatable=True)
        if found is None:
            raise valid.not_found(models.THREAD, (scope, thread))
        return found

    def thread(self, thread: str, *, scope: str = "") -> CheckpointThread:
        """Return the thread itself. Raises `NotFound`."""
        given = checks.sought(thread, scope)
        return self._one_as(CheckpointThread.of, sql.GET_THREAD, given, kind=models.THREAD, key=(scope, thread))

    def thread_of(self, thread_id: str) -> CheckpointThread:
        """Return the thread of an ``id``, as receipts and plans name it. Raises `NotFound`."""
        given = {"thread_id": valid.sought("thread_id", thread_id)}
        return self._one_as(CheckpointThread.of, sql.THREAD_OF, given, kind=models.THREAD, key=thread_id)

    def threads(
        self,
        *,
        scope: str | None = None,
        user: str | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[CheckpointThread]:
        """Return a page of threads by their last change, the latest first: all, or those of a scope or user."""
        given = {
            "scope": None if scope is None else valid.sought("scope", scope),
            "user": None if user is None else valid.sought("user", user),
        }
        return self._page_as(sql.THREAD_LIST, CheckpointThread.of, given, limit, page_token)

    def _place(self, thread: str, scope: str, now: datetime, user: str | None, ttl: timedelta | None) -> Row:
        """Return the row of a thread that may be new."""
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
        place = checks.sought(thread, scope)
        space = None if namespace is None else valid.sought("namespace", namespace)
        given: Row = {"thread": place, "namespace": space, "before": None, "where": checks.members(where)}
        if before is not None:
            one = {**place, "namespace": space or "", "id": valid.sought("before", before)}
            given["before"] = self._value(sql.SEQ, one)
            if given["before"] is None:
                raise valid.not_found(models.CHECKPOINT, (scope, thread, space or "", before))
        return given

    def _is_one(self, rows: Sequence[Row]) -> bool:
        """True if these rows are stored by one statement together with another change."""
        # What is sealed is bound to the id of its thread, which a statement that finds that learns too late.
        return self._backend.writes_in_ctes and self._backend.sealing is None and len(rows) <= _MOST_AT_ONCE
