"""Chat sessions: one stretch of conversation of one user in one place, at most one active per key.

A session is found by its key. When it has been silent for longer than the idle timeout, the next `resume` starts a
new one and the old row stays as history; nothing makes it active again. Correctness rests on the unique index over
the active rows and on row locks, so several processes and hosts may share the database.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.db.repository import UNSET, Repository, UnsetType
from lastlight_state.errors import LostRace, NotFound, StaleVersion
from lastlight_state.ids import new_id
from lastlight_state.messaging import idle, session_checks, session_races, session_statements as sql, words
from lastlight_state.messaging.arguments import ConversationKey, ThreadPlace
from lastlight_state.messaging.records import MessagingSession, MessagingSessionSummary, ResumedSession
from lastlight_state.messaging.words import SESSION

#: An idle timeout that was not given: the setting ``messaging_idle_timeout``.
DEFAULT: Final = UNSET


class Sessions(Repository):
    """``store.messaging.sessions``"""

    def resume(self, key: ConversationKey, *, idle_timeout: timedelta | UnsetType | None = DEFAULT) -> ResumedSession:
        """The active session of the key, or a new one. Any number of simultaneous calls return one session.

        A session whose last activity is exactly ``idle_timeout`` old is reused, unchanged; an older one is retired
        (reason ``timeout``) and named in ``replaced``, with the new one or not at all. Exactly one caller gets
        ``created=True``. Raises `LostRace` when others retire every session it finds, five times over.
        """
        row = session_checks.key(key)
        now = self._now()
        cutoff = self._cutoff(now, idle_timeout)
        found = self._reading(lambda unit: unit.find(MessagingSession, sql.FIND_KEY, row))
        if found is not None and found.last_activity_at >= cutoff:
            return session_races.resumed(found)
        row |= {"id": new_id(), "at": now, "cutoff": cutoff, "reason": words.TIMEOUT}
        return session_races.settled(lambda: self._writing(lambda unit: session_races.replace_idle(unit, row)))

    def create(
        self, key: ConversationKey, *, session_id: str | None = None, on_active: words.OnActive = "refuse"
    ) -> MessagingSession:
        """A new session, whatever was said before.

        Where the key has an active session, idle or not, ``"refuse"`` raises `AlreadyExists` with its id, and
        ``"close"`` retires it (reason ``replaced``) together with the insert; of many callers at once each makes its
        session, one after the other. A ``session_id`` that is in use is `AlreadyExists` too; then nothing was retired.
        """
        row = session_checks.key(key)
        valid.word("on_active", on_active, words.ON_ACTIVE)
        row["id"] = new_id() if session_id is None else valid.identifier("session_id", session_id, words.SESSION_ID)
        row |= {"at": self._now(), "reason": words.REPLACED}
        if on_active == "close":
            return self._replace(row)
        return session_races.settled(lambda: self._insert(row))

    def get(self, session_id: str) -> MessagingSession:
        """The session, active or not. Raises `NotFound`."""
        found = self.find(session_id)
        if found is None:
            raise NotFound(SESSION, session_id)
        return found

    def find(self, session_id: str) -> MessagingSession | None:
        """The session, active or not, or None."""
        values = {"session_id": session_checks.known("session_id", session_id)}
        return self._reading(lambda unit: unit.find(MessagingSession, sql.GET, values))

    def find_active(
        self,
        place: ThreadPlace,
        *,
        user_id: str | None = None,
        idle_timeout: timedelta | UnsetType | None = DEFAULT,
    ) -> MessagingSession | None:
        """The active session of the place with the newest activity, of any user unless ``user_id`` says whose.

        Idle ones are left out unless ``idle_timeout`` is None. Without a thread it means outside any thread.
        """
        values = session_checks.place("place", place)
        values["cutoff"] = cutoff = self._cutoff(self._now(), idle_timeout)
        if user_id is None:
            return self._reading(lambda unit: unit.find(MessagingSession, sql.FIND_PLACE_FRESH, values))
        values["user_id"] = session_checks.known("user_id", user_id)
        found = self._reading(lambda unit: unit.find(MessagingSession, sql.FIND_KEY, values))
        return found if found is not None and found.last_activity_at >= cutoff else None

    def find_by_agent_session(self, agent_session_id: str) -> MessagingSession | None:
        """The session that was created last of those with this agent session, active or not."""
        values = {"agent_session_id": session_checks.known("agent_session_id", agent_session_id)}
        return self._reading(lambda unit: unit.find(MessagingSession, sql.FIND_AGENT, values))

    def list(
        self,
        *,
        platform: str | None = None,
        channel_id: str | None = None,
        user_id: str | None = None,
        active: bool | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[MessagingSessionSummary]:
        """A page of sessions, newest activity first, without their metadata. All filters are optional.

        No session appears twice while paging: one that becomes active meanwhile moves to the front.
        """
        given = session_checks.list_filters(platform, channel_id, user_id, active)
        valid.page_limit(limit)
        return self._reading(
            lambda unit: sql.LIST.page(
                unit, MessagingSessionSummary.of, limit=limit, page_token=page_token, given=given
            )
        )

    def touch(self, session_id: str) -> datetime:
        """Note that the session is in use; the last activity that is stored now, which never goes back.

        Nothing else changes, and an inactive session stays inactive. Raises `NotFound`.
        """
        values = {"session_id": session_checks.known("session_id", session_id), "at": self._now()}
        stored: datetime | None = self._once(lambda unit: unit.value(sql.TOUCH, values))
        if stored is None:
            raise NotFound(SESSION, session_id)
        return stored

    def ensure_agent_session(self, session_id: str, proposed: str) -> str:
        """The agent session of this session, which is ``proposed`` if it had none. All callers get the same one.

        Raises `InvalidValue` for a proposal that is no safe file name (``[A-Za-z0-9_-]``, 1 to 200), or `NotFound`.
        """
        values = {
            "session_id": session_checks.known("session_id", session_id),
            "proposed": session_checks.agent_session_id("proposed", proposed),
        }
        stored: str | None = self._once(lambda unit: unit.value(sql.ENSURE_AGENT, values))
        if stored is None:
            raise NotFound(SESSION, session_id)
        return stored

    def update(
        self,
        session_id: str,
        *,
        version: int,
        title: str | UnsetType | None = UNSET,
        metadata: Any = UNSET,
        agent_session_id: str | UnsetType | None = UNSET,
    ) -> MessagingSession:
        """Set what is given, if nobody changed the session since ``version``; None clears. Metadata is replaced whole.

        Raises `StaleVersion` with the version found, `NotFound`, and `PayloadTooLarge` for a title past 512 bytes or
        metadata past 16 KiB. Without anything to set, the session as it is.
        """
        given = session_checks.changes(title, metadata, agent_session_id)
        values = {
            **given,
            "session_id": session_checks.known("session_id", session_id),
            "expected": valid.number("version", version),
        }
        changed = None
        if given:
            statement = sql.UPDATE[frozenset(given)]
            changed = self._once(lambda unit: unit.find(MessagingSession, statement, values))
        if changed is not None:
            return changed
        found = self.get(session_id)
        if given or found.version != version:
            raise StaleVersion(SESSION, session_id, expected=version, found=found.version)
        return found

    def close(self, session_id: str, *, reason: words.CloseReason = "closed") -> MessagingSession:
        """End the session; its row and messages stay. One that has ended keeps its first reason and time."""
        values = {
            "session_id": session_checks.known("session_id", session_id),
            "reason": valid.word("reason", reason, words.CLOSE_REASONS),
            "at": self._now(),
        }
        closed = self._once(lambda unit: unit.find(MessagingSession, sql.CLOSE, values))
        return closed if closed is not None else self.get(session_id)

    def close_idle(self, *, idle_timeout: timedelta | UnsetType | None = DEFAULT, limit: int = 500) -> int:
        """End the active sessions that are idle, longest silent first, at most ``limit``; how many it ended."""
        now = self._now()
        values = {
            "at": now,
            "cutoff": self._cutoff(now, idle_timeout),
            "reason": words.TIMEOUT,
            "limit": valid.page_limit(limit),
        }
        return self._once(lambda unit: len(unit.rows(sql.CLOSE_IDLE, values)))

    def _cutoff(self, now: datetime, idle_timeout: Any) -> datetime:
        chosen = self._settings.messaging_idle_timeout if idle_timeout is DEFAULT else idle_timeout
        return idle.oldest_fresh(now, idle.checked(chosen))

    def _replace(self, row: dict[str, Any]) -> MessagingSession:
        try:
            return self._writing(lambda unit: session_races.replace(unit, row))
        except LostRace:
            return session_races.settled(lambda: self._writing(lambda unit: session_races.replace_in_turn(unit, row)))

    def _insert(self, row: dict[str, Any]) -> MessagingSession:
        made = self._once(lambda unit: unit.find(MessagingSession, sql.INSERT, row))
        if made is None:
            raise self._reading(lambda unit: session_races.refusal(unit, row))
        return made
