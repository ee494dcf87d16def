"""DOC-09 and DOC-10: broken references in runs' scratch, conversations and executions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import sqlalchemy as sa

from lastlight_state.conversations.tables import SESSIONS as TALKS
from lastlight_state.db.lists import filters
from lastlight_state.db.rows.statements import Family, Statement, constant, number, statement_of
from lastlight_state.files.agent_log import paths
from lastlight_state.files.agent_log.tree import PROJECTS
from lastlight_state.maintenance.doctor import conversations, domains
from lastlight_state.maintenance.doctor.check import (
    MOST,
    CheckContext,
    Finding,
    Snapshot,
    make_finding,
    of_faults,
    row_text,
)
from lastlight_state.maintenance.doctor.files import NEWEST, line_files
from lastlight_state.maintenance.prune.files import AgentLogs
from lastlight_state.maintenance.prune.kinds import pointers
from lastlight_state.maintenance.shared import run_tables
from lastlight_state.receipts.models import TOMBSTONES
from lastlight_state.workflows.tables import EXECUTIONS

POINTERS, LOGS = "DOC-09", "DOC-10"

_c = EXECUTIONS.c

#: How many executions one statement looks up.
_PIECE = 200


#: An execution that a run names: its id, its run, and whether it has an output.
_TARGETS: Family[tuple[str, str | None, bool]] = Family(
    "key",
    lambda keys: sa.select(_c.id, _c.workflow_run_id, _c.output_text.is_not(None).label("has")).where(_c.id.in_(keys)),
    tuple,
)
_USED = sa.or_(_c.turns > number(0), _c.input_tokens > number(0), _c.output_tokens > number(0))
_WITHOUT_SESSION = statement_of(
    sa.select(_c.id).where(_c.finished_at.is_not(None), _c.session_id.is_(None), _USED).limit(number(MOST))
)
#: Finds the newest executions that name a session.
_NAMED = statement_of(
    sa.select(_c.id, _c.session_id)
    .where(_c.session_id.is_not(None), _c.finished_at.is_not(None))
    .order_by(_c.started_at.desc(), _c.id.desc())
    .limit(number(2_000))
)
#: Finds the conversation sessions that name a log, those changed last first.
_TALKS = statement_of(
    sa.select(TALKS.c.id, TALKS.c.agent_session_id)
    .where(TALKS.c.agent_session_id.is_not(None))
    .order_by(TALKS.c.updated_at.desc(), TALKS.c.id.desc())
    .limit(number(2_000))
)


#: Finds which of these agent sessions had their logs pruned.
_PRUNED = filters.family(
    lambda keys: sa.select(TOMBSTONES.c.id.label("key")).where(
        TOMBSTONES.c.kind == constant(AgentLogs.record), TOMBSTONES.c.id.in_(keys)
    )
)


def _pointers(_: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings about broken references of live runs. References of ended runs are not used any more."""
    wrong: dict[str, list[str]] = {}
    for run_id, names in pointers(snapshot.unit).items():
        targets = _targets(snapshot, names)
        for name in names:
            problem = _problem(targets.get(name), run_id)
            if problem is not None:
                wrong.setdefault(problem, []).append(f"{run_id} {name}")
    for problem, samples in sorted(wrong.items()):
        yield make_finding(POINTERS, "warning", "workflow_runs.scratch", f"an execution is named {problem}", samples)


def _targets(snapshot: Snapshot, names: Sequence[str]) -> dict[str, tuple[str | None, bool]]:
    """Return the existing executions with these ids."""
    pieces = (names[at : at + _PIECE] for at in range(0, len(names), _PIECE))
    return {key: (run, has) for piece in pieces for key, run, has in snapshot.unit.rows(*_TARGETS.of(piece))}


def _problem(target: tuple[str | None, bool] | None, run_id: str) -> str | None:
    if target is None:
        return "that is not there"
    owner, has_output = target
    if owner != run_id:
        return "that belongs to another run"
    return None if has_output else "that has no output"


def _named_logs(look: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    """Find conversation sessions whose log is missing."""
    logs, is_all = _logs_there(look)
    if TALKS.name not in snapshot.tables or not look.settings.agent_sessions.exists() or not is_all:
        return
    lost = _lost_log_rows(snapshot, _TALKS, "agent_session_id", logs)
    if lost:
        yield make_finding(POINTERS, "warning", str(TALKS.name), "agent_session_id names a log that is not there", lost)


def _lost_log_rows(snapshot: Snapshot, naming: Statement, column: str, logs: Collection[str]) -> list[str]:
    """Return the rows that name a missing log, unless the log was pruned."""
    lacking = [row for row in snapshot.unit.rows(naming) if row[column] not in logs]
    looked = {row[column] for row in lacking} if TOMBSTONES.name in snapshot.tables else set()
    pruned = set(filters.first_column(snapshot.unit, _PRUNED, looked))
    return [row_text(row) for row in lacking if row[column] not in pruned]


def _logs_there(look: CheckContext) -> tuple[dict[str, list[str]], bool]:
    """Return the log files of each agent session, without logs of sub-agents, and True if all log files were read."""
    logs: dict[str, list[str]] = {}
    files = line_files(look)
    for path in files:
        session_id = paths.session_of(path.name)
        if session_id is not None and path.parent.parent == look.settings.agent_sessions / PROJECTS:
            logs.setdefault(session_id, []).append(str(path))
    return logs, look.deep or len(files) < NEWEST


def _logs(look: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    unit = snapshot.unit
    nameless = [row_text(row) for row in unit.rows(_WITHOUT_SESSION)]
    if nameless:
        message = "finished with turns or tokens, and no session id leads to their log"
        yield make_finding(LOGS, "warning", "executions", message, nameless)
    logs, is_all = _logs_there(look)
    if not look.settings.agent_sessions.exists():
        return
    several = [path for found_paths in logs.values() if len(found_paths) > 1 for path in sorted(found_paths)]
    if several:
        yield make_finding(LOGS, "warning", "line files", "several files name one session", several)
    lost = _lost_log_rows(snapshot, _NAMED, "session_id", logs) if is_all else []
    if lost:
        yield make_finding(LOGS, "warning", "executions", "the log of their session is not there", lost)
    strangers = sorted(
        logs.keys() - run_tables.naming_counts(unit, logs, run_tables.NAMING.keys() & snapshot.tables).keys()
    )
    if strangers:
        message = "no execution and no session knows these logs"
        yield make_finding(LOGS, "info", "line files", message, [logs[name][0] for name in strangers])


CHECKS = (
    of_faults(POINTERS, (), _pointers, conversations.pointers, _named_logs),
    of_faults(LOGS, (), _logs, domains.unsafe_names),
)
