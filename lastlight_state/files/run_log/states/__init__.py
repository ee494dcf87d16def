"""Session states: one snapshot for each session, replaced whole, from which the session resumes.

A snapshot never goes back in time: one that is older than the stored one, or of an earlier invocation, is refused.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from lastlight_state.clock import Clock, aware_utc, iso_text, of_file
from lastlight_state.db.gate import check_arguments
from lastlight_state.db.lists import pages
from lastlight_state.db.valid import argument_group, flag, identifier, page_limit
from lastlight_state.errors import Conflict, CorruptData, InvalidValue, NotFound, StaleVersion, StateError
from lastlight_state.files.run_log import paths, storage
from lastlight_state.files.run_log.fields import JsonObject
from lastlight_state.files.run_log.messages import normalise
from lastlight_state.files.run_log.reading import RunReading
from lastlight_state.files.run_log.records import LlmRequest, LlmResponse
from lastlight_state.files.run_log.runs.heads import parts_text
from lastlight_state.files.run_log.runs.lists import RunLists
from lastlight_state.files.run_log.states import files
from lastlight_state.files.run_log.states.files import SessionEntry, SessionPage, SessionState
from lastlight_state.files.run_log.tree import RunFile, RunTree, StateFile

#: The database in which newer versions of the original program keep the states, without files beside it.
INDEX = "state.db"

# Snapshots in lists.

_TEXT = 500
_PATH_BYTES = 4096


def normal(where: str, path: str) -> str:
    """Return the absolute path in its normal form: ``/a/b/`` becomes ``/a/b``. Raises `InvalidValue`."""
    return posixpath.normpath(identifier(where, path, _PATH_BYTES))


def entry_of(file: StateFile) -> SessionEntry | None:
    """Return the snapshot's entry in lists, with a ``problem`` if the snapshot is unreadable.

    None if it has vanished.
    """
    try:
        state = files.load(file.path, file.session_id)
    except StateError as error:
        changed = of_file(file.changed_ns)
        return SessionEntry(
            session_id=file.session_id, updated_at=changed, size_bytes=file.size, problem=str(error)[:_TEXT]
        )
    return None if state is None else _entry(file, state)


def _entry(file: StateFile, state: SessionState) -> SessionEntry:
    return SessionEntry(
        session_id=file.session_id,
        updated_at=state.updated_at,
        run_id=state.run_id,
        invoke_seq=state.invoke_seq,
        message_count=len(state.messages),
        last_user_message=_last_user_message(state.messages),
        workspace_root=workspace_of(state.meta),
        size_bytes=file.size,
    )


def workspace_of(meta: JsonObject | None) -> str | None:
    """Return the workspace root that a snapshot names as a normalised path, or None if it names none."""
    for name in (paths.WORKSPACE, paths.FOREIGN_WORKSPACE):
        root = (meta or {}).get(name)
        if isinstance(root, str) and root.startswith("/"):
            return posixpath.normpath(root)
    return None


def _last_user_message(messages: tuple[JsonObject, ...]) -> str | None:
    for message in reversed(messages):
        text = _text_of(message.get("content")) if message.get("role") == "user" else None
        if text:  # half of a surrogate pair cannot be displayed
            return text[:_TEXT].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return None


def _text_of(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    return parts_text(content) if isinstance(content, list) else None


# Rebuilds a session's state from the logs of its runs, if its snapshot is lost.

#: The most recent runs that are searched for a prompt.
_MOST_RUNS = 100


class Reconstruction:
    """Rebuilds a session's state from the logs of its runs."""

    def __init__(self, tree: RunTree, lists: RunLists) -> None:
        self._tree = tree
        self._lists = lists

    def of(self, session_id: str) -> SessionState | None:
        """Return the session's state after the last prompt. The prompt is that of the newest run that has one."""
        for file in self._lists.newest(session_id, _MOST_RUNS):
            state = self._after(session_id, file)
            if state is not None:
                return state
        return None

    def _after(self, session_id: str, file: RunFile) -> SessionState | None:
        request: LlmRequest | None = None
        response: LlmResponse | None = None
        try:
            for record in RunReading(self._tree, file, types=("llm.request", "llm.response")):
                if isinstance(record, LlmRequest):
                    request, response = record, None
                elif isinstance(record, LlmResponse) and request is not None and record.seq == request.seq:
                    response = response or record
        except NotFound:  # deleted meanwhile
            return None
        if request is None:
            return None
        messages = [*request.input.messages, *(response.output.messages if response else ())]
        return SessionState(
            session_id=session_id,
            updated_at=(response or request).ts,
            run_id=file.run_id,
            invoke_seq=request.seq,
            messages=normalise(messages).messages,
            meta={paths.RECONSTRUCTED: True},
        )


_MILLISECOND = timedelta(milliseconds=1)
_INT64 = range(-(2**63), 2**63)


class Saving(NamedTuple):
    """The settings for storing a snapshot."""

    based_on: datetime | None = None
    force: bool = False


class States:
    """The states of sessions: ``store.run_log.states``."""

    def __init__(self, tree: RunTree, clock: Clock, lock_timeout: float, reconstruction: Reconstruction) -> None:
        self._tree = tree
        self._clock = clock
        self._lock_timeout = lock_timeout
        self._reconstruction = reconstruction

    @property
    def _own(self) -> RunTree:
        """Return the tree of files, unless another program keeps its states there.

        Raises `Conflict` ``foreign_states`` below a database of the original program. That program reads states only
        from its database, so its states and the library's would silently differ.
        """
        if os.path.lexists(self._tree.sessions / INDEX):
            raise Conflict(
                f"{str(self._tree.sessions / INDEX)!r:.200} has the states of its program, which reads none beside it: "
                "choose another run log root, and import this one",
                code="foreign_states",
            )
        return self._tree

    @check_arguments
    def find(self, session_id: str) -> SessionState | None:
        """Return the session's snapshot, or None if there is none.

        Raises `CorruptData` with the reason if the snapshot cannot be read, or `NewerSchema`.
        """
        paths.readable_id("session_id", session_id)
        return files.load(self._own.state_path(session_id), session_id)

    @check_arguments
    def get(self, session_id: str) -> SessionState:
        """Return the snapshot. Raises `NotFound` without one, and the errors of `find`."""
        found = self.find(session_id)
        if found is None:
            raise NotFound(paths.STATE_TYPE, session_id)
        return found

    @check_arguments
    def put(self, state: SessionState, *, based_on: datetime | None = None, force: bool = False) -> SessionState:
        """Replace the session's snapshot as a whole: fields that are not given are removed.

        Returns the stored snapshot.

        If ``updated_at`` is None, it becomes the present time, or just after the stored time if the clock went back.
        `StaleVersion` is raised, and nothing is written, for a snapshot that is older than the stored one, has a lower
        ``invoke_seq``, or lacks an ``invoke_seq`` that the stored one has. It is also raised if ``based_on`` is given
        and is not the ``updated_at`` of the stored snapshot. ``force`` permits all this, and replaces a damaged
        snapshot, which is kept as ``<id>.json.bad-<time>``, with a number if the name is taken. Raises `InvalidValue`,
        `PayloadTooLarge` beyond 64 MiB, `CorruptData`, `NewerSchema`, `BackendBusy`, `BackendUnavailable`; then the
        stored snapshot is unchanged.
        """
        check(state)
        saving = Saving(None if based_on is None else aware_utc("based_on", based_on), flag("force", force))
        files.encode_state(state)  # so that an unwritable snapshot is refused before anything is locked
        with storage.acquire(self._own.state_lock_path(state.session_id), self._lock_timeout):
            return self._put(state, self._load_state(state.session_id, force=saving.force), saving)

    @check_arguments
    def update(self, session_id: str, change: Callable[[SessionState], SessionState]) -> SessionState:
        """Read the snapshot, call ``change`` with it and store the result, with no other save in between.

        Returns the stored snapshot. If ``change`` does not change ``updated_at``, it is set to the present time. Raises
        `NotFound`, and the errors of `put`.
        """
        paths.readable_id("session_id", session_id)
        with storage.acquire(self._own.state_lock_path(session_id), self._lock_timeout):
            stored = files.load(self._own.state_path(session_id), session_id)
            if stored is None:
                raise NotFound(paths.STATE_TYPE, session_id)
            changed = argument_group("change", change(stored), SessionState)
            if changed.session_id != session_id:
                raise InvalidValue("session_id", "must not be changed")
            if changed == stored:
                return stored
            if changed.updated_at == stored.updated_at:
                changed = changed.model_copy(update={"updated_at": None})
            check(changed)
            return self._put(changed, stored, Saving())

    @check_arguments
    def list(self, *, workspace: str | None = None, limit: int = 50, page_token: str | None = None) -> SessionPage:
        """Return a page of sessions, the last changed file first; equal ones by id. ``limit``: 1 to 500.

        ``workspace`` selects those with this workspace root, compared as normal absolute paths. An unreadable snapshot
        is listed with its ``problem``.
        """
        limit = page_limit(limit)
        wanted = None if workspace is None else normal("workspace", workspace)
        asked = ["states", wanted]
        after = pages.key(asked, page_token, (_INT64, str))
        items: list[SessionEntry] = []
        last: tuple[int, str] | None = None
        for file in self._own.snapshots():
            if after is not None and (file.changed_ns, file.session_id) >= tuple(after):
                continue
            if len(items) == limit:
                return SessionPage(items=tuple(items), next_page_token=pages.encode_token(asked, last or ()))
            entry = entry_of(file)
            if entry is not None and (wanted is None or wanted == entry.workspace_root):
                items.append(entry)
                last = file.changed_ns, file.session_id
        return SessionPage(items=tuple(items))

    @check_arguments
    def clear(self, session_id: str) -> bool:
        """Delete the snapshot. Returns True if there was one. The logs of the session's runs stay."""
        paths.readable_id("session_id", session_id)
        with storage.acquire(self._own.state_lock_path(session_id), self._lock_timeout):
            return files.remove(self._own.state_path(session_id))

    @check_arguments
    def reconstruct(self, session_id: str) -> SessionState | None:
        """Return a state rebuilt from the session's logs, for a lost snapshot. None if the logs have no prompt.

        The state has the messages of the last prompt and its answer, without calls that have no result. Its ``meta``
        says that it was rebuilt. Writes nothing.
        """
        paths.readable_id("session_id", session_id)
        return self._reconstruction.of(session_id)

    def _load_state(self, session_id: str, *, force: bool) -> SessionState | None:
        path = self._own.state_path(session_id)
        try:
            return files.load(path, session_id)
        except CorruptData:
            if not force:
                raise
            stamp = iso_text(self._clock.now()).replace("-", "").replace(":", "")
            files.set_aside(path, f".bad-{stamp}")
            return None

    def _put(self, state: SessionState, stored: SessionState | None, saving: Saving) -> SessionState:
        """Replace the stored snapshot by a snapshot that has been checked."""
        if saving.based_on is not None and not saving.force:
            found = stored.updated_at if stored else None
            if found != saving.based_on:
                raise StaleVersion(paths.STATE_TYPE, state.session_id, expected=saving.based_on, found=found)
        if state.updated_at is None:
            state = state.model_copy(update={"updated_at": self._stamp(stored)})
        if stored is not None and not saving.force:
            refuse_backwards(state, stored)
        if stored is not None and stored.to_json() == state.to_json():
            return stored
        data = files.encode_state(state)
        files.replace(self._own.state_path(state.session_id), data)
        return files.parse_state(data, state.session_id)

    def _stamp(self, stored: SessionState | None) -> datetime:
        now = self._clock.now()
        last = stored.updated_at if stored else None
        return now if last is None else max(now, last + _MILLISECOND)


def check(state: SessionState) -> None:
    """Raise `InvalidValue` for a snapshot that cannot be stored."""
    paths.checked_id("session_id", argument_group("state", state, SessionState).session_id)
    if state.run_id is not None:
        paths.readable_id("run_id", state.run_id)
    if type(state.schema_version) is not int or state.schema_version != paths.VERSION:
        raise InvalidValue("schema_version", f"must be {paths.VERSION}")
    if state.updated_at is not None:
        aware_utc("updated_at", state.updated_at)


def refuse_backwards(state: SessionState, stored: SessionState) -> None:
    """Raise `StaleVersion` for a snapshot that is older than the stored one, or belongs to an earlier invocation."""
    is_older = stored.updated_at is not None and state.updated_at is not None and state.updated_at < stored.updated_at
    is_earlier = stored.invoke_seq is not None and (state.invoke_seq is None or state.invoke_seq < stored.invoke_seq)
    if is_older or is_earlier:
        expected, found = ((one.updated_at, one.invoke_seq) for one in (state, stored))
        raise StaleVersion(paths.STATE_TYPE, state.session_id, expected=expected, found=found)
