"""``store.maintenance.agent_sessions``: lists the agent's log files, with the newest execution of each session.

A page reads only names and times of files, and runs one statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import sqlalchemy as sa

from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.rows.records import Page, Record
from lastlight_state.db.rows.statements import Family, number
from lastlight_state.db.schema.columns import Text
from lastlight_state.db.schema.indexes import Leading
from lastlight_state.db.units.unit import Unit
from lastlight_state.files.agent_log import SessionFile
from lastlight_state.files.agent_log.paths import readable_id
from lastlight_state.files.agent_log.summaries import ScopeFilter, Sessions
from lastlight_state.workflows.repos import split_legacy
from lastlight_state.workflows.tables import EXECUTIONS

# The newest execution of each agent session, by session id. It is joined with log files.

_e = EXECUTIONS.c
_LATER = EXECUTIONS.alias("newest")
SHOWN = (_e.id, _e.skill, _e.workflow_run_id.label("run_id"), _e.success, _e.started_at, _e.owner, _e.repo)


def _newest_of(session_ids: Sequence[sa.BindParameter[Any]]) -> Any:
    """Return a query of each session's newest execution, with one index lookup for each session."""
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


def qualified_repo(owner: str | None, repo: str | None) -> str | None:
    """Return ``owner/repo``, or None if either part is unknown."""
    owner, repo = split_legacy(owner, repo)
    return f"{owner}/{repo}" if owner and repo else None


class SessionExecution(Record):
    """The newest execution of an agent session. ``repo`` is ``owner/repo``, or None unless both parts are known."""

    id: str
    skill: str
    run_id: str | None
    success: bool | None
    repo: str | None

    @classmethod
    def of(cls, values: Any) -> Self:
        values["repo"] = qualified_repo(values.pop("owner"), values["repo"])
        return super().of({name: values[name] for name in cls.model_fields})


NEWEST = Family("session", _newest_of)


def newest(unit: Unit, session_ids: Sequence[str]) -> dict[str, SessionExecution]:
    """Return the newest execution of each of these sessions (1 to 500), in one statement."""
    statement, values = NEWEST.of(session_ids)
    return {row["session_id"]: SessionExecution.of(row) for row in unit.rows(statement, values)}


class AgentSession(Record):
    """A log file, and the newest execution of its session; None if no execution has that session."""

    file: SessionFile
    execution: SessionExecution | None


class AgentSessionPage(Page[AgentSession]):
    """A page of log files. ``skipped`` counts links without a target, and directories that cannot be read."""

    skipped: int = 0


class AgentSessions(Repository):
    """Lists the agent's log files with executions: ``store.maintenance.agent_sessions``."""

    def __init__(self, context: Context, files: Sessions) -> None:
        super().__init__(context)
        self._files = files

    def list(
        self, *, scope: ScopeFilter = "all", slug: str | None = None, limit: int = 50, page_token: str | None = None
    ) -> AgentSessionPage:
        """Return a page of session logs, newest change first, with the newest execution of each. ``limit``: 1 to 500.

        Order and filters are those of `lastlight_state.files.agent_log.Sessions.list`.
        """
        page = self._files.list(scope=scope, slug=slug, limit=limit, page_token=page_token)
        session_ids = list(dict.fromkeys(file.id for file in page))
        found = self._reading(lambda unit: newest(unit, session_ids)) if session_ids else {}
        items = tuple(AgentSession(file=file, execution=found.get(file.id)) for file in page)
        return AgentSessionPage(items=items, next_page_token=page.next_page_token, skipped=page.skipped)

    def repo_for_session(self, session_id: str) -> str | None:
        """Return ``owner/repo`` of the session's newest execution, None unless both parts are known.

        Raises `UnsafePath` for a text that cannot be a session id.
        """
        readable_id(session_id)
        found = self._reading(lambda unit: newest(unit, [session_id])).get(session_id)
        return found.repo if found else None
