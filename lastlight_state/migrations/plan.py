"""Plans an upgrade: lists what the upgrade would do. Never writes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from lastlight_state.backends.base import Backend
from lastlight_state.errors import SchemaMismatch
from lastlight_state.lazy import Module
from lastlight_state.migrations import collisions, drift, scripts
from lastlight_state.migrations.records import DataStep, Plan, PlannedRevision, Rewrite, SchemaState
from lastlight_state.migrations.runner import target_of
from lastlight_state.migrations.state import qualified_name, read_state
from lastlight_state.migrations.verification import actual_revision

if TYPE_CHECKING:
    from lastlight_state.migrations import apply, mending
    from lastlight_state.migrations.adoption import survey
else:  # These modules need Alembic, and most plans are for current databases.
    apply = Module("lastlight_state.migrations.apply")
    mending = Module("lastlight_state.migrations.mending")
    survey = Module("lastlight_state.migrations.adoption.survey")


def check(backend: Backend, to: str = "head", *, quick: bool = False) -> Plan:
    """Return the state of the schema, and the revisions that ``migrate`` would apply.

    Each revision has the number of rows that it would change. Unless ``quick``, a current schema is compared with the
    newest revision's. For a database of the original program, the plan describes the adoption, or why it is not
    possible. Does not raise for databases that no store would open.
    """
    target = target_of(to)
    state = read_state(backend)
    lacks = drift.differences(backend) if state.state == "current" and not quick else ()
    if not quick and (lacks or state.state in ("behind", "unversioned", "foreign")):
        actual = actual_revision(backend, state)
        if actual is not None:
            return Plan(state, (), backend.migration_lock, differences=lacks, actual=actual)
    if state.state == "unversioned":
        return _of_original(backend, state, target)
    if state.state not in ("empty", "behind"):
        puts_back = () if quick else _mending_statements(backend, state)
        return Plan(state, (), backend.migration_lock, differences=lacks, mending=puts_back)
    in_the_way = collisions.lines(collisions.colliding_names(backend, state, target))
    pending = () if in_the_way else _planned_revisions(backend, state.revision or "", target)
    return Plan(state, pending, backend.migration_lock, differences=in_the_way)


def _mending_statements(backend: Backend, state: SchemaState) -> tuple[str, ...]:
    """Return the statements with which `migrate` restores lost parts. Return None if it would refuse to."""
    if not state.absent:
        return ()
    with suppress(SchemaMismatch):
        mending.refuse_lost(state.absent)
        return tuple(mending.statements(backend.dialect, state.absent))
    return ()


def _of_original(backend: Backend, state: SchemaState, target: str) -> Plan:
    found = survey.read_survey(backend)
    if found is None or found.differences:
        return Plan(state, (), backend.migration_lock, differences=found.differences if found else ())
    return Plan(state, _planned_revisions(backend, survey.FIRST, target), backend.migration_lock, found.adoption)


def _planned_revisions(backend: Backend, found: str, target: str) -> tuple[PlannedRevision, ...]:
    """Return the revisions after ``found``, each with the number of rows that it would change."""
    steps = apply.data_steps()
    return tuple(
        PlannedRevision(known.revision, known.summary, _rewrites(backend, steps[known.revision]))
        for known in scripts.history()
        if found < known.revision <= target
    )


def _rewrites(backend: Backend, steps: Sequence[DataStep]) -> tuple[Rewrite, ...]:
    return tuple(_rewrite(backend, step) for step in steps)


def _rewrite(backend: Backend, step: DataStep) -> Rewrite:
    counted = backend.peek(step.plan.format(table=qualified_name(backend, step.table)))
    rows, groups = (int(number) for number in counted[0]) if counted else (0, 0)
    return Rewrite(step.table, step.columns, step.what, rows, groups)
