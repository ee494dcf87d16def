"""Sandboxes: where parts of runs work, with the runtime, configuration and status of each."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.repository import UNSET, Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, Statement, among, bind, columns_of, every_column_of, statement_of
from lastlight_state.db.rows.writes import cache_statements
from lastlight_state.db.runs import of_known_run
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.schema.indexes import hide_from_indexes
from lastlight_state.errors import Conflict, InvalidValue
from lastlight_state.journal import models
from lastlight_state.journal.arguments import SandboxChanges
from lastlight_state.journal.models import SANDBOXES
from lastlight_state.journal.records import Sandbox, SandboxSummary

_LIMITS = limits_of(SANDBOXES)

_c = SANDBOXES.c
_KEY = (_c.run_id == bind("run_id", _c.run_id), _c.sandbox_id == bind("sandbox_id", _c.sandbox_id))
_COLUMNS, _SUMMARY = every_column_of(Sandbox, SANDBOXES), columns_of(SandboxSummary, SANDBOXES)

GET = statement_of(sa.select(*_COLUMNS).where(*_KEY), Sandbox)
_ORDER = (_c.updated_at, _c.run_id, _c.sandbox_id)
_FILTERS = {name: _c[name] == bind(name, _c[name]) for name in ("status", "runtime", "workspace_id")}
LIST = Listing("sandboxes", _SUMMARY, order=_ORDER, filters=_FILTERS, row=SandboxSummary)
#: Reads the run's own rows: by the index over a status, SQLite would walk those of all runs.
OF_RUN = Listing(
    "sandboxes.of_run",
    _SUMMARY,
    order=_ORDER,
    filters={
        "run_id": _c.run_id == bind("run_id", _c.run_id),
        **{name: hide_from_indexes(condition) for name, condition in _FILTERS.items()},
    },
    through="ix_sandboxes_run",
    row=SandboxSummary,
)

#: The time column that each status fills in.
_FILLS = {"shipped": "shipped_at", **dict.fromkeys(models.SANDBOX_ENDS, "completed_at")}


@cache_statements
def put(given: frozenset[str], fills: str | None) -> Statement[Sandbox]:
    """Insert a sandbox with these columns, or change them; nothing where a final status would change.

    ``fills`` is a time column to set unless the stored sandbox has a value there.
    """
    names = {"run_id", "sandbox_id", "created_at", "updated_at", *given, *([fills] if fills else [])}
    row = insert(SANDBOXES).values({name: bind(name, _c[name]) for name in sorted(names)})
    new: Row = {name: row.excluded[name] for name in sorted({*given, "updated_at"})}
    if fills:
        new[fills] = sa.func.coalesce(_c[fills], row.excluded[fills])
    stays = sa.or_(~among(_c.status, models.SANDBOX_ENDS), row.excluded.status == _c.status)
    changed = row.on_conflict_do_update(
        index_elements=[_c.run_id, _c.sandbox_id], set_=new, where=stays if "status" in given else None
    )
    return statement_of(changed.returning(*_COLUMNS), Sandbox)


class Sandboxes(Repository):
    """``store.journal.sandboxes``: store, change and list the sandboxes of runs."""

    def put(self, run_id: str, sandbox_id: str, changes: SandboxChanges) -> Sandbox:
        """Store a sandbox, or change exactly the fields that are set, in one statement. None clears a field.

        The status ``shipped`` sets ``shipped_at``, and a final status sets ``completed_at``, unless the time is given.
        A final status cannot change: writing another status raises `Conflict` ``sandbox_status``, and nothing is
        written. Raises `NotFound` for an unknown run.
        """
        now = self._now()
        values = {
            "run_id": valid.identifier("run_id", run_id, _LIMITS.run_id),
            "sandbox_id": valid.identifier("sandbox_id", sandbox_id, _LIMITS.sandbox_id),
            "created_at": now,
            "updated_at": now,
        }
        given = _check_changes(valid.argument_group("changes", changes, SandboxChanges))
        fills = _FILLS.get(given.get("status", ""))
        if fills in given:
            fills = None
        statement = put(frozenset(given), fills)
        parameters = {**values, **given, **({fills: now} if fills else {})}
        stored = of_known_run(run_id, lambda: self._change_row(statement, parameters, repeatable=True))
        if stored is None:
            raise Conflict(f"sandbox {sandbox_id!r} of run {run_id!r} has ended", code="sandbox_status")
        return stored

    def get(self, run_id: str, sandbox_id: str) -> Sandbox:
        """Return the sandbox. Raises `NotFound`."""
        return self._get_row(GET, _sandbox_key(run_id, sandbox_id), kind=models.SANDBOX, key=(run_id, sandbox_id))

    def find(self, run_id: str, sandbox_id: str) -> Sandbox | None:
        """Return the sandbox, or None."""
        return self._find(GET, _sandbox_key(run_id, sandbox_id))

    def list(
        self,
        *,
        run_id: str | None = None,
        status: models.SandboxStatus | None = None,
        runtime: str | None = None,
        workspace_id: str | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[SandboxSummary]:
        """Return a page of sandboxes of one run, or of all runs, the last changed first."""
        given = {
            "run_id": None if run_id is None else valid.lookup_text("run_id", run_id),
            "status": None if status is None else valid.word("status", status, models.SANDBOX_STATUSES),
            "runtime": valid.optional("runtime", runtime, _LIMITS.runtime),
            "workspace_id": valid.optional("workspace_id", workspace_id, _LIMITS.workspace_id),
        }
        return self._page(LIST if run_id is None else OF_RUN, given, limit, page_token)


def _sandbox_key(run_id: str, sandbox_id: str) -> dict[str, str]:
    return {"run_id": valid.lookup_text("run_id", run_id), "sandbox_id": valid.lookup_text("sandbox_id", sandbox_id)}


def _check_changes(changes: SandboxChanges) -> Row:
    """Return the fields that are set, checked, as statement parameters."""
    given = {name: value for name, value in vars(changes).items() if value is not UNSET}
    return {name: _field(name, value) for name, value in given.items()}


def _field(name: str, value: Any) -> Any:
    where = f"changes.{name}"
    if name == "status":
        return valid.word(where, value, models.SANDBOX_STATUSES)
    if name == "runtime":
        return valid.identifier(where, value, _LIMITS.runtime)
    if name == "config":
        if not isinstance(value, dict):
            raise InvalidValue(where, f"expected an object, got {type(value).__name__}")
        return codec.encode(where, value, max_bytes=_LIMITS.config)
    if value is None:
        return None
    if name.endswith("_at"):
        return aware_utc(where, value)
    return valid.identifier(where, value, getattr(_LIMITS, name))
