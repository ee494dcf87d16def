"""The central schema as a whole: which revision a database is at, and how it comes to the newest.

Nothing here imports Alembic until there is something to upgrade: opening a current database costs one SELECT.
"""

from __future__ import annotations

from lastlight_state.migrations.autogenerate import include_object
from lastlight_state.migrations.plan import check
from lastlight_state.migrations.records import Adoption, MigrationResult, Plan, PlannedRevision, Revision, Rewrite
from lastlight_state.migrations.roles import grants
from lastlight_state.migrations.runner import current, history, migrate, script, stamp, upgrade
from lastlight_state.migrations.state import SchemaState, read_state
from lastlight_state.migrations.verification import verify

__all__ = [
    "Adoption",
    "MigrationResult",
    "Plan",
    "PlannedRevision",
    "Revision",
    "Rewrite",
    "SchemaState",
    "check",
    "current",
    "grants",
    "history",
    "include_object",
    "migrate",
    "read_state",
    "script",
    "stamp",
    "upgrade",
    "verify",
]
