"""Kill switches: a workflow that is switched off starts no run. No row means enabled.

Runs that exist are not touched; `runs.create`, `ensure` and `restart` and the queue obey, each in the statement that
decides. An override can be deleted, which goes back to the default.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.base import later_of
from lastlight_state.db.listing import Listing
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.statements import prepared
from lastlight_state.db.upserts import upsert
from lastlight_state.workflows import words
from lastlight_state.workflows.records import WorkflowOverride
from lastlight_state.workflows.tables import OVERRIDES

_COLUMNS = tuple(OVERRIDES.c)
_this = OVERRIDES.c.name == sa.bindparam("name")

PUT = prepared(
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
    )
)
FIND = prepared(sa.select(*_COLUMNS).where(_this))
IS_ENABLED = prepared(sa.select(OVERRIDES.c.enabled).where(_this))
CLEAR = prepared(sa.delete(OVERRIDES).where(_this))
LIST = Listing("workflow_overrides", _COLUMNS, order=(OVERRIDES.c.name,), descending=False)


class Overrides(Repository):
    """``store.workflows.overrides``"""

    def is_enabled(self, name: str) -> bool:
        """Whether runs of this workflow may start. A workflow without an override, known or not, is enabled."""
        values = {"name": valid.sought("name", name)}
        return self._reading(lambda unit: unit.value(IS_ENABLED, values)) is not False

    def put(self, name: str, *, enabled: bool, by: str | None = None, reason: str | None = None) -> WorkflowOverride:
        """Switch a workflow on or off. Replaces every fact of an earlier override, ``by`` and ``reason`` too."""
        row: dict[str, Any] = {
            "name": valid.identifier("name", name, words.WORKFLOW_NAME),
            "enabled": valid.flag("enabled", enabled),
            "updated_at": self._now(),
            "updated_by": valid.optional("by", by, words.ACTOR),
            "reason": valid.optional_content("reason", reason, words.SUMMARY),
        }
        return WorkflowOverride.of(self._once(lambda unit: unit.rows(PUT, row), repeatable=True)[0])

    def find(self, name: str) -> WorkflowOverride | None:
        """The override of this workflow, or None where the default holds."""
        values = {"name": valid.sought("name", name)}
        return self._reading(lambda unit: unit.find(WorkflowOverride, FIND, values))

    def list(self, *, limit: int = 50, page_token: str | None = None) -> Page[WorkflowOverride]:
        """A page of overrides, by name."""
        valid.page_limit(limit)
        return self._reading(lambda unit: LIST.page(unit, WorkflowOverride.of, limit=limit, page_token=page_token))

    def clear(self, name: str) -> bool:
        """Go back to the default: enabled. Whether there was an override; none is no error."""
        values = {"name": valid.sought("name", name)}
        return self._once(lambda unit: unit.change(CLEAR, values), repeatable=True) > 0
