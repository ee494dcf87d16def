"""Kill switches: a workflow that is switched off starts no runs. A workflow without an override is enabled.

`runs.create`, `runs.ensure`, `runs.restart` and the admissions of `queue` check the switch in the same statement that
writes the run. Runs that exist already are not touched. `clear` deletes an override.
"""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, every_column_of, statement_of
from lastlight_state.db.rows.writes import upsert
from lastlight_state.db.schema.base import later_of
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.workflows.records import WorkflowOverride
from lastlight_state.workflows.tables import OVERRIDES

_LIMITS = limits_of(OVERRIDES)

_COLUMNS = every_column_of(WorkflowOverride, OVERRIDES)
_this = OVERRIDES.c.name == sa.bindparam("name")

PUT = statement_of(
    upsert(
        OVERRIDES,
        ("name", "enabled", "updated_at", "updated_by", "reason"),
        key=("name",),
        replacing=lambda new: {
            "enabled": new.enabled,
            "updated_at": later_of(OVERRIDES.c.updated_at, new.updated_at),
            "updated_by": new.updated_by,
            "reason": new.reason,
        },
    ),
    WorkflowOverride,
)
FIND = statement_of(sa.select(*_COLUMNS).where(_this), WorkflowOverride)
IS_ENABLED = statement_of(sa.select(OVERRIDES.c.enabled).where(_this))
CLEAR = statement_of(sa.delete(OVERRIDES).where(_this))
LIST = Listing("workflow_overrides", _COLUMNS, order=(OVERRIDES.c.name,), descending=False, row=WorkflowOverride)


class Overrides(Repository):
    """``store.workflows.overrides``: switch workflows off and on."""

    def is_enabled(self, name: str) -> bool:
        """True if runs of this workflow may start. Every workflow without an override is enabled."""
        values = {"name": valid.lookup_text("name", name)}
        return self._value(IS_ENABLED, values) is not False

    def put(self, name: str, *, enabled: bool, by: str | None = None, reason: str | None = None) -> WorkflowOverride:
        """Switch a workflow on or off. Replaces an earlier override as a whole, with its ``by`` and ``reason``.

        Runs of a workflow that is off are neither created nor restarted, and `Queue.admit_next` leaves them in the
        queue; other runs go on. Names are compared exactly.
        """
        row: Row = {
            "name": valid.identifier("name", name, _LIMITS.name),
            "enabled": valid.flag("enabled", enabled),
            "updated_at": self._now(),
            "updated_by": valid.optional("by", by, _LIMITS.updated_by),
            "reason": valid.optional_content("reason", reason, _LIMITS.reason),
        }
        return self._once(lambda unit: unit.rows(PUT, row), repeatable=True)[0]

    def find(self, name: str) -> WorkflowOverride | None:
        """Return the override of a workflow, or None if it has none."""
        values = {"name": valid.lookup_text("name", name)}
        return self._find(FIND, values)

    def list(self, *, limit: int = 50, page_token: str | None = None) -> Page[WorkflowOverride]:
        """Return a page of overrides, by name."""
        return self._page(LIST, None, limit, page_token)

    def clear(self, name: str) -> bool:
        """Delete a workflow's override, so that the workflow is enabled. Returns false if it had none."""
        values = {"name": valid.lookup_text("name", name)}
        return self._once(lambda unit: unit.change(CLEAR, values), repeatable=True) > 0
