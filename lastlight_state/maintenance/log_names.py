"""Who names the logs of agents: executions, chat sessions, and sessions of conversations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations.tables import SESSIONS as TALKS
from lastlight_state.db.keyed import CountOf, family, rows
from lastlight_state.db.statements import Family
from lastlight_state.db.unit import Unit
from lastlight_state.jsonl import places
from lastlight_state.messaging.tables import SESSIONS
from lastlight_state.workflows.tables import EXECUTIONS

_COLUMNS = (EXECUTIONS.c.session_id, SESSIONS.c.agent_session_id, TALKS.c.agent_session_id)


def _counting(column: sa.Column[Any]) -> Family[CountOf]:
    found = sa.select(column.label("key"), sa.func.count().label("rows"))
    return family(lambda keys: found.where(column.in_(keys)).group_by(column), CountOf)


#: By table: how many of its rows name each of these agents' sessions.
NAMING: Mapping[str, Family[CountOf]] = {str(column.table.name): _counting(column) for column in _COLUMNS}


def named(unit: Unit, session_ids: Iterable[str], tables: Collection[str] = tuple(NAMING)) -> Counter[str]:
    """Return how many rows of these tables name each agent session. A name that no log can have is named by none."""
    keys = [one for one in session_ids if not places.component_problem(one)]
    found: Counter[str] = Counter()
    for table in tables:
        for row in rows(unit, NAMING[table], keys):
            found[row["key"]] += row["rows"]
    return found
