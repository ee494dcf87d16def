"""Chat sessions: each is one stretch of conversation of one user in one place. Each key has at most one active session.

A session is found by its key. After a silence longer than the idle timeout, the next `resume` starts a new session; the
old row stays as history and never becomes active again. A unique index over active rows, and row locks, guarantee this
for any number of processes and hosts.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from lastlight_state.db import valid
from lastlight_state.db.repository import UNSET, Repository, UnsetType
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import LostRace, NotFound, StaleVersion
from lastlight_state.ids import new_id
from lastlight_state.messaging import models, records, session_statements, session_statements as sql
from lastlight_state.messaging.models import SESSION, SESSIONS
from lastlight_state.messaging.records import (
    ConversationKey,
    MessagingSession,
    MessagingSessionSummary,
    ResumedSession,
    ThreadPlace,
)
from lastlight_state.messaging.session_statements import NewSession

_LIMITS = limits_of(SESSIONS)


class Sessions(Repository):
    """``store.messaging.sessions``"""

    def resume(self, key: ConversationKey, *, idle_timeout: timedelta | UnsetType | None = UNSET) -> ResumedSession:
        """Return the active session of the key, or create one. Simultaneous calls return the same session.

        A session whose last activity is at most ``idle_timeout`` ago is returned unchanged: a resume does not count as
        activity. An older session is retired (reason ``timeout``) in the same transaction that creates the new one, and
        its id is in ``replaced``. Only one caller gets ``created=True``. ``idle_timeout`` defaults to the setting
        ``messaging_idle_timeout``; None means never idle. Raises `LostRace` if other callers retire the found session a
        hundred times in a row.
        """
        here = session_statements.key(key)
        now = self._now()
        cutoff = self._cutoff(now, idle_timeout)
        found = self._find(sql.FIND_KEY, here)
        if found is not None and found.last_activity_at >= cutoff:
            return session_statements.resume_result(found)
        row: NewSession = {**here, "id": new_id(), "at": now, "cutoff": cutoff, "reason": models.TIMEOUT}
        return session_statements.retry_lost_race(
            lambda: self._writing(lambda unit: session_statements.replace_idle(unit, row))
        )

    def create(
        self, key: ConversationKey, *, session_id: str | None = None, on_active: models.OnActive = "refuse"
    ) -> MessagingSession:
        """Create a new session for a key.

        If the key has an active session, idle or not, ``"refuse"`` raises `AlreadyExists` with its id, and ``"close"``
        retires it (reason ``replaced``) in the same transaction. Simultaneous callers create their sessions one after
        the other. A ``session_id`` that is in use also raises `AlreadyExists`; then nothing is retired.
        """
        here = session_statements.key(key)
        valid.word("on_active", on_active, models.ON_ACTIVE)
        made_id = new_id() if session_id is None else valid.identifier("session_id", session_id, _LIMITS.id)
        now = self._now()
        row: NewSession = {**here, "id": made_id, "at": now, "cutoff": now, "reason": models.REPLACED}
        if on_active == "close":
            return self._replace(row)
        return session_statements.retry_lost_race(lambda: self._insert(row))

    def get(self, session_id: str) -> MessagingSession:
        """Return the session with this id, active or not. Raises `NotFound`."""
        values = {"session_id": valid.lookup_text("session_id", session_id)}
        return self._get_row(sql.GET, values, kind=SESSION, key=session_id)

    def find(self, session_id: str) -> MessagingSession | None:
        """Return the session with this id, active or not, or None if it does not exist."""
        return self._find(sql.GET, {"session_id": valid.lookup_text("session_id", session_id)})

    def find_active(
        self,
        place: ThreadPlace,
        *,
        user_id: str | None = None,
        idle_timeout: timedelta | UnsetType | None = UNSET,
    ) -> MessagingSession | None:
        """Return the active session of a place with the newest activity: of any user, or of ``user_id``.

        Idle sessions are skipped unless ``idle_timeout`` is None. A place without a thread means the channel outside
        any thread.
        """
        cutoff = self._cutoff(self._now(), idle_timeout)
        values: Row = {**session_statements.place("place", place), "cutoff": cutoff}
        if user_id is None:
            return self._find(sql.FIND_PLACE_FRESH, values)
        values["user_id"] = valid.lookup_text("user_id", user_id)
        found = self._find(sql.FIND_KEY, values)
        return found if found is not None and found.last_activity_at >= cutoff else None

    def find_by_agent_session(self, agent_session_id: str) -> MessagingSession | None:
        """Return the last created session that has this agent session, whether active or not.

        Return None if there is none.
        """
        values = {"agent_session_id": valid.lookup_text("agent_session_id", agent_session_id)}
        return self._find(sql.FIND_AGENT, values)

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
        """Return a page of sessions, newest activity first, without their metadata. All filters are optional.

        No session appears twice while paging. A session that is used meanwhile moves to the front and may be missed.
        The filters scan sessions from the newest activity on, so a rare match may need a scan of all sessions.
        """
        given = session_statements.list_filters(platform, channel_id, user_id, active)
        return self._page(sql.LIST, given, limit, page_token)

    def touch(self, session_id: str) -> datetime:
        """Set a session's last activity to now, unless the stored time is later. Returns the stored time.

        Nothing else changes; an ended session stays ended. Raises `NotFound`.
        """
        values = {"session_id": valid.lookup_text("session_id", session_id), "at": self._now()}
        stored: datetime | None = self._once(lambda unit: unit.value(sql.TOUCH, values))
        if stored is None:
            raise NotFound(SESSION, session_id)
        return stored

    def ensure_agent_session(self, session_id: str, proposed: str) -> str:
        """Return the agent session id of this session. If it has none, store and return ``proposed``.

        All callers get the same id. Raises `NotFound`, and `InvalidValue` if ``proposed`` is not 1 to 200 characters
        out of ``A-Z a-z 0-9 _ -``.
        """
        values = {
            "session_id": valid.lookup_text("session_id", session_id),
            "proposed": valid.session_id("proposed", proposed),
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
        """Set the given fields, if the session still has this ``version``. None clears a field; metadata are replaced.

        Raises `StaleVersion` with the version found, `NotFound`, and `PayloadTooLarge` for a title past 512 bytes or
        metadata past 16 KiB. If no field is given, returns the session unchanged. Messages and touches do not change
        the version.
        """
        given = session_statements.changes(title, metadata, agent_session_id)
        values = {
            **given,
            "session_id": valid.lookup_text("session_id", session_id),
            "expected": valid.number("version", version),
        }
        changed = None
        if given:
            changed = self._change_row(sql.UPDATE[frozenset(given)], values)
        if changed is not None:
            return changed
        found = self.get(session_id)
        if given or found.version != version:
            raise StaleVersion(SESSION, session_id, expected=version, found=found.version)
        return found

    def close(self, session_id: str, *, reason: models.CloseReason = "closed") -> MessagingSession:
        """End a session; its row and messages stay. A session that has ended keeps its first reason and time.

        Raises `NotFound`.
        """
        values = {
            "session_id": valid.lookup_text("session_id", session_id),
            "reason": valid.word("reason", reason, models.CLOSE_REASONS),
            "at": self._now(),
        }
        return self._change_row(sql.CLOSE, values) or self.get(session_id)

    def close_idle(self, *, idle_timeout: timedelta | UnsetType | None = UNSET, limit: int = 500) -> int:
        """End at most ``limit`` active sessions that are idle, the longest idle first. Return how many were ended.

        A session that is used meanwhile is not ended.
        """
        now = self._now()
        values = {
            "at": now,
            "cutoff": self._cutoff(now, idle_timeout),
            "reason": models.TIMEOUT,
            "limit": valid.page_limit(limit),
        }
        return self._once(lambda unit: len(unit.rows(sql.CLOSE_IDLE, values)))

    def _cutoff(self, now: datetime, idle_timeout: Any) -> datetime:
        chosen = self._settings.messaging_idle_timeout if idle_timeout is UNSET else idle_timeout
        return records.oldest_fresh(now, records.check_idle_timeout(chosen))

    def _replace(self, row: NewSession) -> MessagingSession:
        try:
            return self._writing(lambda unit: session_statements.replace(unit, row))
        except LostRace:
            return session_statements.retry_lost_race(
                lambda: self._writing(lambda unit: session_statements.replace_under_lock(unit, row))
            )

    def _insert(self, row: NewSession) -> MessagingSession:
        made = self._change_row(sql.INSERT, row)
        if made is None:
            raise self._reading(lambda unit: session_statements.refusal(unit, row))
        return made
