"""The newest execution of agent sessions, by session id; joined with log files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state.db.columns import Text
from lastlight_state.db.indexes import Leading
from lastlight_state.db.statements import Family, number
from lastlight_state.db.unit import Unit
from lastlight_state.workflows.repos import split_legacy
from lastlight_state.workflows.tables import EXECUTIONS

_e = EXECUTIONS.c
_LATER = EXECUTIONS.alias("newest")
SHOWN = (_e.id, _e.skill, _e.workflow_run_id.label("run_id"), _e.success, _e.started_at, _e.owner, _e.repo)


def _newest_of(session_ids: Sequence[sa.BindParameter[Any]]) -> Any:
    """The newest execution of each session: one index lookup each, however many executions a session has."""
    asked = sa.values(sa.column("session_id", Text), name="asked").data([(sa.cast(one, Text),) for one in session_ids])
    given = asked.cte("given")
    newest = (
        sa.select(_LATER.c.id)
        .where(Leading(_LATER.c.session_id, given.c.session_id), _LATER.c.session_id.is_not(None))
        .order_by(_LATER.c.session_id.desc(), _LATER.c.started_at.desc(), _LATER.c.id.desc())
        .limit(number(1))
        .scalar_subquery()
    )
    return sa.select(given.c.session_id, *SHOWN).select_from(given).join(EXECUTIONS, _e.id == newest)


class ExecutionOfSession(TypedDict):
    """The newest execution of an agent session."""

    session_id: str
    id: str
    skill: str
    run_id: str | None
    success: bool | None
    started_at: datetime
    owner: str | None
    repo: str | None


NEWEST = Family("session", _newest_of, ExecutionOfSession)


def newest(unit: Unit, session_ids: Sequence[str]) -> dict[str, ExecutionOfSession]:
    """Return the newest execution of each of these sessions (1 to 500), in one statement."""
    statement, values = NEWEST.of(session_ids)
    return {row["session_id"]: row for row in unit.rows(statement, values)}


def qualified_repo(owner: str | None, repo: str | None) -> str | None:
    """``owner/repo``, or None if either part is unknown."""
    owner, repo = split_legacy(owner, repo)
    return f"{owner}/{repo}" if owner and repo else None
