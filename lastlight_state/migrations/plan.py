"""What an upgrade would do, before it is done. Never writes."""

from __future__ import annotations

from lastlight_state.backends.base import Backend
from lastlight_state.migrations.records import DataStep, Plan, PlannedRevision, Revision, Rewrite
from lastlight_state.migrations.runner import history
from lastlight_state.migrations.state import qualified, read_state


def check(backend: Backend) -> Plan:
    """The state of the schema, and the revisions that ``migrate`` would apply, with the rows that each would change.

    Works on databases that no store would open, and raises for none of them.
    """
    state = read_state(backend)
    pending = _after(state.revision or "") if state.state in ("empty", "behind") else []
    return Plan(state, tuple(_planned(backend, revision) for revision in pending), backend.migration_lock)


def _after(revision: str) -> list[Revision]:
    return [known for known in history() if known.revision > revision]


def _planned(backend: Backend, revision: Revision) -> PlannedRevision:
    rewrites = tuple(_rewrite(backend, step) for step in revision.data_steps)
    return PlannedRevision(revision.revision, revision.summary, rewrites)


def _rewrite(backend: Backend, step: DataStep) -> Rewrite:
    counted = backend.peek(step.plan.format(table=qualified(backend, step.table)))
    rows, groups = (int(number) for number in counted[0]) if counted else (0, 0)
    return Rewrite(step.table, step.columns, step.what, rows, groups)
