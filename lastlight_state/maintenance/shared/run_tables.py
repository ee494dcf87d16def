"""The tables that contain rows of runs, each with the column that has the run's id. Output tables use ``run_id``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations.tables import SESSIONS as TALKS
from lastlight_state.db.lists.filters import family, rows
from lastlight_state.db.rows.statements import Family
from lastlight_state.db.units.unit import Unit
from lastlight_state.files.jsonl import files
from lastlight_state.journal.models import EVENTS, FRAMES, SANDBOXES, SCORES, SEQUENCES, SIGNALS, TOOL_CALLS
from lastlight_state.messaging.models import SESSIONS
from lastlight_state.outputs.models import HISTORY, INPUTS
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, LOOPS, NODES, REQUESTS, TRANSITIONS

# The columns that name the logs of agents: in executions, chat sessions, and sessions of conversations.

_COLUMNS = (EXECUTIONS.c.session_id, SESSIONS.c.agent_session_id, TALKS.c.agent_session_id)


def _count_family(column: sa.Column[Any]) -> Family[tuple[str, int]]:
    found = sa.select(column.label("key"), sa.func.count().label("rows"))
    return family(lambda keys: found.where(column.in_(keys)).group_by(column), tuple)


#: Count the rows that name each of these agent sessions, by table.
NAMING: Mapping[str, Family[tuple[str, int]]] = {str(column.table.name): _count_family(column) for column in _COLUMNS}


def naming_counts(unit: Unit, session_ids: Iterable[str], tables: Collection[str] = tuple(NAMING)) -> Counter[str]:
    """Return how many rows of these tables name each agent session.

    Ids that cannot be the name of a log are skipped.
    """
    keys = [one for one in session_ids if not files.component_problem(one)]
    found: Counter[str] = Counter()
    for table in tables:
        for session_id, count in rows(unit, NAMING[table], keys):
            found[session_id] += count
    return found


RUN_TABLES = (
    EXECUTIONS.c.workflow_run_id,
    NODES.c.run_id,
    LOOPS.c.run_id,
    TRANSITIONS.c.run_id,
    APPROVALS.c.workflow_run_id,
    REQUESTS.c.run_id,
    EVENTS.c.run_id,
    SIGNALS.c.run_id,
    FRAMES.c.run_id,
    SEQUENCES.c.run_id,
    TOOL_CALLS.c.run_id,
    SANDBOXES.c.run_id,
    SCORES.c.run_id,
    INPUTS.c.run_id,
    HISTORY.c.run_id,
)
