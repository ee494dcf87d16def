"""``store.maintenance.agent_sessions``: the agent's log files, with the newest execution of each session.

A page reads only names and times of files, and runs one statement.
"""

from __future__ import annotations

from lastlight_state.agent_log import SessionFile
from lastlight_state.agent_log.paths import readable_id
from lastlight_state.agent_log.sessions import ScopeFilter, Sessions
from lastlight_state.db.records import Page, Record
from lastlight_state.db.repository import Context, Repository
from lastlight_state.maintenance import session_executions
from lastlight_state.maintenance.session_executions import ExecutionOfSession, qualified_repo


class SessionExecution(Record):
    """The newest execution of an agent session. ``repo`` is ``owner/repo``, or None unless both parts are known."""

    id: str
    skill: str
    run_id: str | None
    success: bool | None
    repo: str | None


class AgentSession(Record):
    """A log file, and the newest execution of its session; None if no execution has that session."""

    file: SessionFile
    execution: SessionExecution | None


class AgentSessionPage(Page[AgentSession]):
    """A page of log files. ``skipped`` counts dangling links and directories that cannot be read."""

    skipped: int = 0


class AgentSessions(Repository):
    """``store.maintenance.agent_sessions``"""

    def __init__(self, context: Context, files: Sessions) -> None:
        super().__init__(context)
        self._files = files

    def list(
        self, *, scope: ScopeFilter = "all", slug: str | None = None, limit: int = 50, page_token: str | None = None
    ) -> AgentSessionPage:
        """A page of session logs, newest change first, with the newest execution of each. ``limit``: 1 to 500.

        Order and filters are those of `lastlight_state.agent_log.Sessions.list`.
        """
        page = self._files.list(scope=scope, slug=slug, limit=limit, page_token=page_token)
        session_ids = list(dict.fromkeys(file.id for file in page))
        found = self._reading(lambda unit: session_executions.newest(unit, session_ids)) if session_ids else {}
        items = tuple(AgentSession(file=file, execution=_execution(found.get(file.id))) for file in page)
        return AgentSessionPage(items=items, next_page_token=page.next_page_token, skipped=page.skipped)

    def repo_for_session(self, session_id: str) -> str | None:
        """``owner/repo`` of the session's newest execution; None unless both parts are known.

        Raises `UnsafePath` for a text that cannot be a session id.
        """
        readable_id(session_id)
        row = self._reading(lambda unit: session_executions.newest(unit, [session_id])).get(session_id)
        return qualified_repo(row["owner"], row["repo"]) if row else None


def _execution(row: ExecutionOfSession | None) -> SessionExecution | None:
    if row is None:
        return None
    return SessionExecution(
        id=row["id"],
        skill=row["skill"],
        run_id=row["run_id"],
        success=row["success"],
        repo=qualified_repo(row["owner"], row["repo"]),
    )
