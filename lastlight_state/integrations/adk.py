"""A session service for Google's ADK over ``store.states`` and ``store.conversations`` (extra ``adk``).

::

    from lastlight_state.aio import AsyncStateStore
    from lastlight_state.integrations.adk import ADKSessions

    async with await AsyncStateStore.open("state/lastlight.db") as store:
        runner = Runner(app_name="support", agent=agent, session_service=ADKSessions(store))

A session is stored as a state. The state's version shows whether a copy of the session is stale. The ADK state of an
application, a user or a session has a scope of its own, with one stored state per key. Events are stored as messages of
a conversation. A cancelled call waits for the outcome of its write before it raises.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from typing import Any

from lastlight_state.aio import AsyncStateStore
from lastlight_state.clock import aware_utc
from lastlight_state.conversations import Conversations, NewBranch, NewMessage, NewSession, runtime
from lastlight_state.db import valid
from lastlight_state.db.lists.pages import iterate
from lastlight_state.db.repository import UNSET
from lastlight_state.db.rows.records import Page
from lastlight_state.domains import Transaction, View
from lastlight_state.errors import MisuseError, StaleVersion
from lastlight_state.ids import new_id
from lastlight_state.integrations.adk_state import PAGE, STATE_LIMITS, Place, by_scope, deltas, jsonable, merge
from lastlight_state.integrations.conversing import ADK_APP, ADK_SESSION, ADK_SESSIONS, ADK_USER, Calls
from lastlight_state.keys import compose_key, parts_of
from lastlight_state.states import State, StateSummary
from lastlight_state.workflows import Claim

try:
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
    from google.adk.sessions.session import Session
    from google.adk.sessions.state import State as Prefixes
except ImportError:  # without ADK the module can be imported, but no service created
    BaseSessionService = object

#: Keys of a session's state: the id of the conversation with its events, and the time of its last change.
_TALK, _UPDATED = "conversation", "updated"


class ADKSessions(BaseSessionService):
    """A session service for Google's ADK. The caller opens and closes the store.

    ``scope`` is the namespace of its sessions. A session's user is also the user of its states and events, for erasure.
    Events are returned in the order in which they were appended, whatever their times. A session id is text of 1 to 512
    bytes without control characters, and a user id has at most 256 bytes. Other ids raise `InvalidValue`. With a run's
    ``claim``, only the claim's holder may write: any other caller gets `ClaimLost`. Raises `MisuseError` without ADK.
    """

    def __init__(self, store: AsyncStateStore, *, scope: str = "adk", claim: Claim | None = None) -> None:
        if BaseSessionService is object:
            raise MisuseError.missing_extra("adk", what="a session service for Google's ADK")
        self._scope = scope
        self._calls = Calls(store, claim, label=type(self).__name__)

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Create a session with its initial state, and return it. Raises `AlreadyExistsError`."""
        name = valid.identifier("session_id", (session_id or "").strip() or new_id(), STATE_LIMITS.key)
        valid.content("app_name", app_name, STATE_LIMITS.scope)
        valid.content("user_id", user_id, STATE_LIMITS.user)
        place = self._place(app_name, user_id, name)
        changes = deltas(jsonable(state or {}))

        def create(tx: Transaction) -> Session:
            talk = new_id()
            tx.states.put(name, {_TALK: talk}, scope=place.sessions, expected=None, user=user_id or None)
            tx.states.clear(place.session)
            merge(tx, place, user_id, changes)
            return self._session(tx, place, app_name, tx.states.get(name, scope=place.sessions), user_id)

        try:
            return await self._calls.transact(create)
        except StaleVersion as error:
            raise AlreadyExistsError(f"Session with id {name} already exists.") from error

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session with its events in order, or with those that ``config`` selects.

        Return None if it does not exist.
        """
        name = session_id.strip()
        place = self._place(app_name, user_id, name)

        def read(view: View) -> Session | None:
            found = _find_session(view, place, name)
            if found is None:
                return None
            session = self._session(view, place, app_name, found, user_id)
            session.events = _events(view.conversations, found.value[_TALK], config or GetSessionConfig())
            return session

        return await self._calls.view(read)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of one user, or of all users, without their events.

        The session that changed last comes last.
        """
        names = (app_name,) if user_id is None else (app_name, user_id)
        if not valid.are_storable(*names):
            return ListSessionsResponse(sessions=[])

        def within(kind: str) -> dict[str, Any]:
            scope = self._scope_of(kind, *names)
            return {"under": scope + "/"} if user_id is None else {"scope": scope}

        def read(view: View) -> list[Session]:
            application = self._scope_of(ADK_APP, app_name)
            app = by_scope(view, scope=application)[application]
            users, states = (
                by_scope(view, **within(ADK_USER)),
                by_scope(view, under=self._scope_of(ADK_SESSION, *names) + "/"),
            )
            found = []
            for one in iterate(view.states.items, limit=PAGE, **within(ADK_SESSIONS)):
                whose = parts_of(one.scope)[-1]
                place = self._place(app_name, whose, one.key)
                found.append(_build_session(app_name, whose, one, app, users[place.user], states[place.session]))
            return found

        found = await self._calls.view(read)
        found.sort(key=lambda one: (one.last_update_time, one.user_id, one.id))
        return ListSessionsResponse(sessions=found)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with its state and events. The states of its user and application remain."""
        name = session_id.strip()
        place = self._place(app_name, user_id, name)

        await self._calls.transact(lambda tx: _delete(tx, place, name), repeatable=True)

    async def prune(self, *, before: datetime, app_name: str | None = None) -> int:
        """Delete the sessions of one application, or of all, that last changed before a time.

        Return how many were deleted. Each session is deleted in a transaction of its own, as by `delete_session`,
        unless it is changed meanwhile. A session is also deleted if a prune of conversations has already removed its
        conversation.
        """
        then = aware_utc("before", before)
        under = self._scope_of(ADK_SESSIONS, *(() if app_name is None else (app_name,))) + "/"
        if not valid.are_storable(under):
            return 0
        deleted, token = 0, None
        while True:
            read = partial(_list_states, under=under, page_token=token)
            page = await self._calls.view(read)
            for one in page.items:
                *_, app, user = parts_of(one.scope)
                if one.updated_at < then:
                    gone = partial(_delete, place=self._place(app, user, one.key), name=one.key, before=then)
                    deleted += await self._calls.transact(gone, repeatable=True)
            token = page.next_page_token
            if token is None:
                return deleted

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user. Its keys do not have ADK's prefix."""
        scope = self._place(app_name, user_id, "").user
        if not valid.are_storable(scope):
            return {}
        return await self._calls.view(lambda view: by_scope(view, scope=scope)[scope])

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to a session, and apply the event's state changes, in one transaction.

        An event that is stored already is not added again, so the call may be repeated if its outcome is unknown.
        Raises `SessionNotFoundError`, and `StaleSessionError` if the session was changed after it was read.
        """
        if event.partial:
            return event
        place = self._place(session.app_name, session.user_id, session.id)
        content, changes = _content(event)
        other = new_id()  # used if another event has this event's id

        def append(tx: Transaction) -> tuple[str | None, bool]:
            """Append an event. Return the session's new version, and True if the event was added."""
            found = _find_session(tx, place, session.id)
            if found is None:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            talk = found.value[_TALK]
            first = compose_key(talk, event.id)
            stored = tx.conversations.messages.find(first)
            own = first if stored is None or _is_same(runtime.unpack_item(stored.content), content) else other
            if stored is not None and (own == first or tx.conversations.messages.find(other) is not None):
                last = [one.message.id for one in tx.conversations.branches.tail(talk, 1)]
                return found.version if last == [own] else None, own == other
            if _is_stale(tx.conversations, session, found):
                raise _stale(session)
            changed = {_TALK: talk, _UPDATED: event.timestamp}
            put = tx.states.put(session.id, changed, scope=place.sessions, expected=found.version)
            merge(tx, place, session.user_id, deltas(changes))
            message = NewMessage(runtime.role_of({"role": event.author}), runtime.pack_item(content), id=own)
            self._append(tx.conversations, talk, session, message)
            return put.version, True

        try:
            version, added = await self._calls.transact(append, repeatable=True)
        except StaleVersion as error:
            raise _stale(session) from error
        if added or all(one.id != event.id for one in session.events):
            await super().append_event(session, event)
        if version is not None:
            session.last_update_time = event.timestamp
            session._storage_update_marker = version
        return event

    # The parts of these methods that run inside a view or a transaction.

    def _session(self, view: View | Transaction, place: Place, app_name: str, found: State, user_id: str) -> Session:
        app, user, own = (by_scope(view, scope=one)[one] for one in (place.app, place.user, place.session))
        return _build_session(app_name, user_id, found, app, user, own)

    def _append(self, talks: Conversations, talk: str, session: Session, message: NewMessage) -> None:
        if talks.branches.find(talk) is None:
            new = NewSession(talk, user=session.user_id or None, project=self._scope or None)
            made = talks.sessions.ensure(new)
            talks.branches.ensure(talk, NewBranch(talk, progression_id=made.progression_id))
        talks.branches.append(talk, [message])

    def _scope_of(self, kind: str, *names: str) -> str:
        return compose_key(self._scope, kind, *names)

    def _place(self, app_name: str, user_id: str, session_id: str) -> Place:
        return Place(
            self._scope_of(ADK_APP, app_name),
            self._scope_of(ADK_USER, app_name, user_id),
            self._scope_of(ADK_SESSIONS, app_name, user_id),
            self._scope_of(ADK_SESSION, app_name, user_id, session_id),
        )


def _list_states(view: View, **within: Any) -> Page[StateSummary]:
    return view.states.list(limit=PAGE, **within)


def _find_session(view: View | Transaction, place: Place, name: str) -> State | None:
    """Return the state that stores a session, or None if it does not exist or its names cannot be stored."""
    return view.states.find(name, scope=place.sessions) if valid.are_storable(name, *place) else None


def _delete(tx: Transaction, place: Place, name: str, before: datetime | None = None) -> bool:
    """Delete a session, unless it was changed at or after ``before``. Return True if it was deleted."""
    found = _find_session(tx, place, name)
    if found is None or (before is not None and found.updated_at >= before):
        return False
    try:
        tx.states.remove(name, scope=place.sessions, expected=UNSET if before is None else found.version)
    except StaleVersion:  # changed since it was read
        return False
    tx.states.clear(place.session)
    tx.conversations.sessions.delete(found.value[_TALK])
    return True


def _build_session(
    app_name: str, user_id: str, found: State, app: dict[str, Any], user: dict[str, Any], own: dict[str, Any]
) -> Session:
    """Create ADK's session object from the stored data. Keys of application and user state get their prefixes."""
    state = dict(own)
    state.update((Prefixes.APP_PREFIX + key, value) for key, value in app.items())
    state.update((Prefixes.USER_PREFIX + key, value) for key, value in user.items())
    updated = found.value.get(_UPDATED, found.created_at.timestamp())
    made = Session(app_name=app_name, user_id=user_id, id=found.key, state=state, last_update_time=updated)
    made._storage_update_marker = found.version
    return made


def _events(talks: Conversations, talk: str, config: GetSessionConfig) -> list[Event]:
    """Return a conversation's events in order, limited to the number and the times that ``config`` specifies."""
    branch = talks.branches.find(talk)
    end = 0 if branch is None else branch.length
    first = 0 if config.num_recent_events is None else max(end - config.num_recent_events, 0)
    found: list[Event] = []
    while end > first:
        start = max(end - PAGE, first)
        events = [_event(one) for one in talks.branches._contents(talk, start, end)]
        older = [at for at, one in enumerate(events) if _is_before(one, config.after_timestamp)]
        found = events[older[-1] + 1 if older else 0 :] + found
        if older:
            break
        end = start
    return found


def _content(event: Event) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an event in its stored form, and its state changes. Temporary keys are left out."""
    content = event.model_dump(mode="json", exclude_none=True)
    delta = event.actions.state_delta
    changes = jsonable({key: value for key, value in delta.items() if not key.startswith(Prefixes.TEMP_PREFIX)})
    if "state_delta" in content.get("actions", {}):
        content["actions"]["state_delta"] = changes
    return content, changes


def _event(content: Any) -> Event:
    return Event.model_validate_json(json.dumps(runtime.unpack_item(content)))


def _is_same(stored: Any, content: Any) -> bool:
    """True if two events have equal content. NaN equals itself here."""
    return bool(stored == content) or json.dumps(stored, sort_keys=True) == json.dumps(content, sort_keys=True)


def _is_before(event: Event, then: float | None) -> bool:
    return then is not None and event.timestamp < then


def _is_stale(talks: Conversations, session: Session, found: State) -> bool:
    """True if a session was changed after it was read.

    A session object that the caller created has no version. Then the time of its last change is compared. If that time
    is older than the stored one, the last events are compared.
    """
    marker = session._storage_update_marker
    if marker is not None:
        return bool(marker != found.version)
    if found.value.get(_UPDATED, found.created_at.timestamp()) <= session.last_update_time:
        return False
    last = _events(talks, found.value[_TALK], GetSessionConfig(num_recent_events=1))
    return [one.id for one in last] != [one.id for one in session.events[-1:]]


def _stale(session: Session) -> StaleSessionError:
    return StaleSessionError(f"Session {session.id} was modified in storage since it was read: read it again.")
