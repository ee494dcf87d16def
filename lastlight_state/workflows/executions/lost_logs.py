"""Executions that used tokens and have no session id: nothing leads to their logs."""

from __future__ import annotations

import logging

import sqlalchemy as sa

from lastlight_state.db.statements import number
from lastlight_state.db.unit import Unit
from lastlight_state.metrics import Metrics
from lastlight_state.workflows.executions.records import Execution
from lastlight_state.workflows.tables import EXECUTIONS

#: The counts that make an execution worth a log.
SPENT = ("turns", "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

_c = EXECUTIONS.c
_log = logging.getLogger("lastlight_state.workflows")

#: Ended executions without a way to their log. One in flight may still get its session id.
LOST_LOG = sa.and_(
    _c.session_id.is_(None),
    sa.or_(*(_c[name] > number(0) for name in SPENT)),
    sa.or_(_c.finished_at.is_not(None), _c.success.is_not(None)),
)


def note(unit: Unit, ended: Execution, metrics: Metrics) -> None:
    """Count and log an execution whose log is lost, after the commit."""
    if ended.session_id is not None or not any(getattr(ended, name) for name in SPENT):
        return

    def told() -> None:
        metrics.count("executions_without_session")
        _log.info("execution %s used tokens but has no session id: its log cannot be found", ended.id)

    unit.after_commit(told)
