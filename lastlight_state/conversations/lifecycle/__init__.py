"""The lifecycle of sessions and branches: compare-and-set changes of status with a history, and heartbeats."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.conversations import checks, state as states, words
from lastlight_state.conversations.arguments import Limits, Reason
from lastlight_state.conversations.lifecycle import statements as sql
from lastlight_state.conversations.lifecycle_records import NormalizedState, Transition
from lastlight_state.conversations.shared import statuses
from lastlight_state.conversations.shared.feeds import entry_parameters, write_entry
from lastlight_state.conversations.tables import SESSIONS, TRANSITIONS
from lastlight_state.conversations.words import RUNNING, TERMINAL, SessionStatus
from lastlight_state.db import valid
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import ClaimLost, InvalidValue, LostRace, NotFound

_SESSION, _TRANSITION = limits_of(SESSIONS), limits_of(TRANSITIONS)

#: The statuses that a change expects: one or several (None among them: no status yet), or None for any status.
Expected = SessionStatus | Collection[SessionStatus | None] | None

_USUAL = Reason()
_LIMITS = Limits()
#: Time since the owner's last heartbeat after which another owner may take over a session's heartbeats.
_SILENCE = _LIMITS.heartbeat


class Lifecycle(Repository):
    """``store.conversations.lifecycle``"""

    def transition(
        self,
        session_id: str,
        to: SessionStatus,
        *,
        expect: Expected = None,
        reason: Reason = _USUAL,
        branch_id: str | None = None,
        ended_at: datetime | None = None,
    ) -> Transition:
        """Change the status of a session, or of its branch ``branch_id``, and record the change in the history.

        Allowed changes: from no status to any, from pending to running or a final status, from running to a final
        status. With ``expect``, the current status must be one of the given statuses; None among them means no status
        yet. Setting the same status again changes nothing, and returns the transition that set it. Raises `LostRace`
        with the current ``status``, and `NotFound`.
        """
        done = self.try_transition(session_id, to, expect=expect, reason=reason, branch_id=branch_id, ended_at=ended_at)
        if done is not None:
            return done
        status = self._status(session_id, branch_id)
        raise LostRace(f"session {session_id!r:.80} is {status}, and does not become {to}", status=status)

    def try_transition(
        self,
        session_id: str,
        to: SessionStatus,
        *,
        expect: Expected = None,
        reason: Reason = _USUAL,
        branch_id: str | None = None,
        ended_at: datetime | None = None,
    ) -> Transition | None:
        """Change a status as `transition` does, but return None where `transition` raises `LostRace`."""
        status = valid.word("to", to, words.STATUSES)
        expected = _expected_statuses(expect)
        why = statuses.reason("reason", reason, status)
        sets: Row = {} if ended_at is None else {"ended_at": _end(status, ended_at)}
        found, of = (
            valid.lookup_text("session_id", session_id),
            checks.name("branch_id", branch_id, _TRANSITION.branch_id),
        )
        now = self._now()

        def change(unit: Unit) -> Transition | None:
            row = _lock_session(unit, found)
            branch = None if of is None else _branch(unit, row, of)
            held = row if branch is None else branch
            if held.status == status and expected != frozenset():
                last = _last(unit, found, of)
                if last is not None:
                    return last
            elif not _leads(held.status, status) or (expected is not None and held.status not in expected):
                return None
            if branch is None:
                return statuses.move(unit, self._listeners, row, status, why, now, **sets)
            return statuses.move_branch(unit, self._listeners, row, branch, status, why, now, **sets)

        return self._writing(change, repeatable=True)

    def reopen(self, session_id: str, *, actor: str, reason: Reason = _USUAL) -> Transition:
        """Set an ended session to running again, on behalf of ``actor``, and clear its end time.

        Raises `LostRace` with the current ``status`` if the session has not ended, and `NotFound`.
        """
        given = statuses.reason("reason", reason, RUNNING)
        code = words.RESUMED if reason.code is None else given["reason_code"]
        why: statuses.StatusReason = {
            **given,
            "reason_code": code,
            "actor": valid.identifier("actor", actor, _TRANSITION.actor),
        }
        found, now = valid.lookup_text("session_id", session_id), self._now()

        def change(unit: Unit) -> Transition:
            row = _lock_session(unit, found)
            if row.status not in TERMINAL:
                problem = f"session {session_id!r:.80} is {row.status}, and has not ended"
                raise LostRace(problem, status=row.status)
            return statuses.move(unit, self._listeners, row, RUNNING, why, now)

        return self._writing(change)

    def heartbeat(self, session_id: str, owner: str) -> datetime:
        """Store a heartbeat of a running session, and return the stored time.

        Runs one statement and writes no feed entry. Raises `ClaimLost` while another owner's heartbeat is at most 90
        seconds old, `LostRace` with the current ``status`` if the session is not running, and `NotFound`.
        """
        now = self._now()
        values = {
            "session_id": valid.lookup_text("session_id", session_id),
            "owner": valid.identifier("owner", owner, _SESSION.owner),
            "at": now,
            "stale_before": now - _SILENCE,
        }
        heard: datetime | None = self._once(lambda unit: unit.value(sql.HEARTBEAT, values), repeatable=True)
        if heard is not None:
            return heard
        held = self._reading(lambda unit: unit.row(sql.HOLDER, values))
        if held is None:
            raise valid.not_found(words.SESSION, session_id)
        status, holder = held
        if status != RUNNING:
            raise LostRace(f"session {session_id!r:.80} is {status}, and not running", status=status)
        raise ClaimLost(session_id, kind="session", presented=None, current_epoch=0, held_by=holder, status=RUNNING)

    def history(
        self, session_id: str, *, branch_id: str | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[Transition]:
        """Return a page of the status changes of a session and its branches, newest first.

        ``branch_id`` selects the changes of one branch. The history is kept when the session is deleted.
        """
        given = {
            "session_id": valid.lookup_text("session_id", session_id),
            "branch_id": None if branch_id is None else valid.lookup_text("branch_id", branch_id),
        }
        return self._page(sql.HISTORY, given, limit, page_token)

    def record_verification(self, session_id: str, result: dict[str, Any]) -> None:
        """Store the result of verifying a session's artifacts: an object with a ``status`` such as ``passed``.

        `state` knows the results ``passed``, ``warning`` and ``failed``. Raises `NotFound`.
        """
        given = valid.argument_group("result", result, dict)
        if not isinstance(given.get("status"), str):
            raise InvalidValue("result.status", "expected text")
        values = {
            "session_id": valid.lookup_text("session_id", session_id),
            "result": codec.encode("result", given, max_bytes=_SESSION.artifact_verification),
            "at": self._now(),
        }
        told = entry_parameters("session.updated")
        if (
            self._chained(lambda unit: write_entry(unit, self._listeners, sql.VERIFIED, values, told), repeatable=True)
            is None
        ):
            raise valid.not_found(words.SESSION, session_id)

    def state(self, session_id: str, *, limits: Limits = _LIMITS) -> NormalizedState:
        """Return a session's current state (lifecycle, health, delivery) under the given limits. Raises `NotFound`."""
        values, bounds, now = self._check_state_request(
            [valid.identifier("session_id", session_id, _SESSION.id)], limits
        )
        row = self._reading(lambda unit: unit.row(sql.STATES, values))
        if row is None:
            raise NotFound(words.SESSION, session_id)
        return _state(row, now, bounds)

    def states(self, session_ids: Sequence[str], *, limits: Limits = _LIMITS) -> dict[str, NormalizedState]:
        """Return the current states of at most 500 sessions by id, read with one statement.

        Sessions that are not stored or cannot be read are left out.
        """
        ids = checks.message_ids("session_ids", session_ids, valid.PAGE_LIMIT)
        values, bounds, now = self._check_state_request(ids, limits)
        rows, _ = self._reading(lambda unit: unit.readable_rows(sql.STATES, values))
        return {row["id"]: _state(row, now, bounds) for row in rows}

    def _check_state_request(self, ids: Sequence[str], limits: Limits) -> tuple[dict[str, str], Limits, datetime]:
        bounds = valid.argument_group("limits", limits, Limits)
        for name, value in vars(bounds).items():
            valid.duration(f"limits.{name}", value)
        return {"wanted": as_list([{"id": one} for one in dict.fromkeys(ids)])}, bounds, self._now()

    def _status(self, session_id: str, branch_id: str | None) -> str | None:
        def read(unit: Unit) -> str | None:
            if branch_id is None:
                status: str | None = unit.value(sql.HOLDER, {"session_id": session_id})
                return status
            branch = unit.row(statuses.BRANCH, {"branch_id": branch_id})
            return None if branch is None else branch.status

        return self._reading(read)


def _state(row: Row, now: datetime, limits: Limits) -> NormalizedState:
    last: Any = {name.removeprefix(sql.REASON): value for name, value in row.items() if name.startswith(sql.REASON)}
    reason = None if last["id"] is None else Transition.of(last)
    return NormalizedState.of({"session_id": row["id"], **states.derive_state(row, now, limits), "reason": reason})


def _expected_statuses(given: Any) -> frozenset[str | None] | None:
    """Check the expected statuses. Return them as a set, or None if any status is accepted."""
    if given is None:
        return None
    several = [given] if isinstance(given, str) else valid.several("expect", given)
    return frozenset(None if one is None else valid.word("expect", one, words.STATUSES) for one in several)


def _end(status: str, ended_at: Any) -> datetime:
    if status not in TERMINAL:
        raise InvalidValue("ended_at", f"must not be given for {status}")
    return aware_utc("ended_at", ended_at)


def _leads(status: str | None, to: str) -> bool:
    """True if a session or branch may change from ``status`` to ``to``."""
    if status is None:
        return True
    return to in TERMINAL or to == RUNNING if status == "pending" else status == RUNNING and to in TERMINAL


def _lock_session(unit: Unit, session_id: str) -> statuses.HeldSession:
    row = unit.row(statuses.LOCK, {"session_id": session_id})
    if row is None:
        raise valid.not_found(words.SESSION, session_id)
    return row


def _branch(unit: Unit, row: statuses.HeldSession, branch_id: str) -> statuses.HeldBranch:
    branch = unit.row(statuses.BRANCH, {"branch_id": branch_id})
    if branch is None or branch.session_id != row.id:
        raise valid.not_found(words.BRANCH, branch_id)
    return branch


def _last(unit: Unit, session_id: str, branch_id: str | None) -> Transition | None:
    statement = sql.LAST if branch_id is None else sql.LAST_OF_BRANCH
    return unit.row(statement, {"session_id": session_id, "branch_id": branch_id})
