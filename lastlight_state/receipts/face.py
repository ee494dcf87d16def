"""Receipts: records of maintenance work, with its policy and its progress.

Only one piece of work of a kind and scope runs at a time. Its owner stores the progress of each step in the same
transaction as the step itself, so that a receipt's counts are exact even if the owner dies.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib.metadata import version
from typing import Any, TypedDict

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.ids import new_id
from lastlight_state.receipts import models, steps, steps as sql
from lastlight_state.receipts.models import RECEIPTS
from lastlight_state.receipts.records import Receipt, ReceiptSummary

_LIMITS = limits_of(RECEIPTS)


class ReceiptDraft(TypedDict):
    """The row of a receipt to store."""

    id: str
    kind: str
    scope: str
    state: str
    owner: str
    actor: str | None
    library_version: str
    started_at: datetime
    updated_at: datetime
    counts: str
    cursor: None
    policy: str


class Receipts(Repository):
    """``store.receipts``: begin, continue, finish and list receipts of maintenance work."""

    def get(self, receipt_id: str) -> Receipt:
        """Return the receipt with this id. Raises `NotFound`."""
        values = {"receipt_id": valid.lookup_text("receipt_id", receipt_id)}
        return self._get_row(sql.GET, values, kind=models.RECEIPT, key=receipt_id)

    def find(self, receipt_id: str) -> Receipt | None:
        """Return the receipt, or None."""
        return self._find(sql.GET, {"receipt_id": valid.lookup_text("receipt_id", receipt_id)})

    def list(
        self,
        *,
        kind: models.Kind | None = None,
        state: models.State | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[ReceiptSummary]:
        """Return a page of receipts, newest first, without policy and cursor."""
        given = {
            "kind": None if kind is None else valid.word("kind", kind, models.KINDS),
            "state": None if state is None else valid.word("state", state, models.STATES),
        }
        return self._page(sql.LIST, given, limit, page_token)

    def begin(
        self,
        kind: models.Kind,
        *,
        owner: str,
        policy: Mapping[str, Any],
        scope: str = "",
        actor: str | None = None,
    ) -> Receipt:
        """Begin a piece of work. Raises `Conflict` ``already_running`` if work of this kind and scope is running.

        Running work is set to ``interrupted``, and does not block new work, if its owner was a process of this machine
        that has ended, or if it has reported nothing for ten minutes.
        """
        now = self._now()
        row: ReceiptDraft = {
            "id": new_id(),
            "kind": valid.word("kind", kind, models.KINDS),
            "scope": valid.content("scope", scope, _LIMITS.scope),
            "state": "running",
            "owner": valid.identifier("owner", owner, _LIMITS.owner),
            "actor": valid.optional("actor", actor, _LIMITS.actor),
            "library_version": _version(),
            "started_at": now,
            "updated_at": now,
            "counts": "{}",
            "cursor": None,
            "policy": codec.encode("policy", _mapping("policy", policy), max_bytes=_LIMITS.policy),
        }

        def work(unit: Unit) -> Receipt:
            rival = unit.row(sql.RIVAL, row)
            if rival is not None:
                if steps.is_alive(rival, now):
                    raise steps.under_way(row["kind"], row["scope"], rival, now)
                said = {"error": f"silent since {rival.updated_at.isoformat()}"}
                unit.row(sql.INTERRUPT, {"receipt_id": rival.id, "at_epoch": rival.epoch, **said})
            begun = unit.row(sql.INSERT, row)
            if begun is None:  # another one began after the look above
                rival = unit.row(sql.RIVAL, row) or steps.Rival("?", "?", 0, now)
                raise steps.under_way(row["kind"], row["scope"], rival, now)
            return begun

        return self._writing(work)

    def resume(self, receipt_id: str, *, owner: str) -> Receipt:
        """Continue work that was interrupted, or whose owner has ended or has reported nothing for ten minutes.

        The receipt's epoch increases, so that the earlier owner can store nothing more. Raises `NotFound`, and
        `Conflict` ``receipt_finished`` for work that has ended. Raises `Conflict` ``already_running`` if its owner is
        still working, or if other work of this kind and scope is running.
        """
        key = valid.lookup_text("receipt_id", receipt_id)
        valid.identifier("owner", owner, _LIMITS.owner)
        return self._writing(lambda unit: steps.take(unit, key, owner=owner, at=self._now()))

    def step(self, receipt: Receipt, *, counts: Mapping[str, int], cursor: Any = None) -> Receipt:
        """Store the progress of the work. Call this in the same transaction as the work itself.

        Raises `ClaimLost` if another owner has taken over the work: then roll back.
        """
        valid.argument_group("receipt", receipt, Receipt)
        given = _mapping("counts", counts)
        return self._writing(lambda unit: steps.step(unit, receipt, counts=given, cursor=cursor, at=self._now()))

    def finish(self, receipt: Receipt, state: models.End = "done", *, error: str | None = None) -> Receipt:
        """End the work. ``done`` and ``failed`` are final, ``interrupted`` lasts until `resume`. Raises `ClaimLost`."""
        valid.argument_group("receipt", receipt, Receipt)
        valid.word("state", state, models.ENDS)
        said = valid.optional_content("error", error, _LIMITS.error)
        return self._writing(lambda unit: steps.finish(unit, receipt, state, error=said, at=self._now()))


def _mapping(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidValue(where, f"expected a mapping, got {type(value).__name__}")
    return dict(value)


@cache
def _version() -> str:
    """Return this library's version from its metadata, because this module may not import the package."""
    return version("lastlight-state")
