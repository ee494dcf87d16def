"""Inputs: the arguments that a run was started with, stored once and kept as long as the run.

If a resumed run passes the same arguments again, the stored input is returned. To change the input, call `override`:
the earlier payload stays stored as an earlier revision. Values that tasks produce are outputs, not part of the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict

import sqlalchemy as sa
from pydantic import BaseModel, ValidationError
from sqlalchemy.dialects.postgresql import insert

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, Statement, bind, columns_of, every_column_of, number, statement_of
from lastlight_state.db.runs import of_known_run
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import AlreadyExists, InvalidValue, StaleVersion
from lastlight_state.outputs import checks, models
from lastlight_state.outputs.column_types import has_sets
from lastlight_state.outputs.models import INPUTS
from lastlight_state.outputs.records import RunInput, RunInputSummary
from lastlight_state.outputs.shapes import adapter_of
from lastlight_state.outputs.strict import dump_strictly, refuse_unordered
from lastlight_state.outputs.values import bare, invalid

# Inputs that another program kept in typed columns, which lose some of the arguments.
#
# Such columns do not tell ``isUrgent`` from ``is_urgent``, nor ``true`` from ``1``, and hold NULL for an argument that
# was not passed. So two payloads are the same input if those columns would hold the same values for both.

#: The ``reason`` of a first revision that was imported from typed columns.
REASON = "imported.columns"


def folded_values(payload: Mapping[str, Any]) -> bytes:
    """Return the values that typed columns would store for a payload, as canonical bytes."""
    cells = {name.replace("_", "").lower(): _cell(value) for name, value in payload.items()}
    return codec.canonical({name: value for name, value in cells.items() if value is not None})


def _cell(value: Any) -> Any:
    """Return the value that a typed column would store.

    A text that is JSON is decoded, and a boolean becomes a number.
    """
    if isinstance(value, str):
        try:
            value = codec.decode(value)
        except ValueError:
            return value
    return int(value) if isinstance(value, bool) else value


_LIMITS = limits_of(INPUTS)

FULL = every_column_of(RunInput, INPUTS, hidden={"given"})
_SUMMARY = columns_of(RunInputSummary, INPUTS)
_of_run = INPUTS.c.run_id == bind("run_id", INPUTS.c.run_id)
_this_one = INPUTS.c.revision == bind("revision", INPUTS.c.revision)
_WRITTEN = ("run_id", "revision", "created_at", "created_by", "reason", "payload", "given")


def _add_statement(*conditions: sa.ColumnElement[bool]) -> Statement[RunInput]:
    """Store a revision that is not there."""
    there = INPUTS.alias()
    same = sa.and_(
        there.c.run_id == bind("run_id", INPUTS.c.run_id), there.c.revision == bind("revision", INPUTS.c.revision)
    )
    row = sa.select(*(bind(name, INPUTS.c[name]) for name in _WRITTEN)).where(~sa.exists().where(same), *conditions)
    return statement_of(insert(INPUTS).from_select(_WRITTEN, row).on_conflict_do_nothing().returning(*FULL), RunInput)


def _after_expected() -> sa.ColumnElement[bool]:
    before = INPUTS.alias()
    return sa.exists().where(
        before.c.run_id == bind("run_id", INPUTS.c.run_id),
        before.c.revision == bind("expected", INPUTS.c.revision),
    )


ADD = _add_statement()
OVERRIDE = _add_statement(_after_expected())
CURRENT = statement_of(sa.select(*FULL).where(_of_run).order_by(INPUTS.c.revision.desc()).limit(number(1)), RunInput)
REVISION = statement_of(sa.select(*FULL).where(_of_run, _this_one), RunInput)
EVERY = statement_of(sa.select(*INPUTS.c).where(_of_run).order_by(INPUTS.c.revision))
LIST = Listing("run_inputs", _SUMMARY, order=(INPUTS.c.revision,), filters={"run_id": _of_run}, row=RunInputSummary)


class NewInput(TypedDict):
    """An input to store: what was passed is kept where validation changed it."""

    run_id: str
    created_at: datetime
    created_by: str | None
    payload: str
    given: str | None


class InputDraft(NewInput):
    """The row of an input to store."""

    revision: int
    reason: str | None


class Inputs(Repository):
    """``store.outputs.inputs``: store, override and read the inputs of runs."""

    def ensure(
        self, run_id: str, payload: Any, *, model: type[BaseModel] | None = None, created_by: str | None = None
    ) -> RunInput:
        """Store the run's input unless one is stored already. Returns the current input.

        With ``model`` the payload is validated and stored with the model's defaults. The run keeps them when the code's
        defaults change. Without ``model`` the payload is an object of JSON values: instances of classes are refused.

        If a stored revision was made from this payload or contains it, the current input is returned. Another payload
        raises `AlreadyExists`. Raises `InvalidValue` with ``issues``, `PayloadTooLarge` for a payload of more than 1
        MiB, and `NotFound` for an unknown run.
        """
        row: InputDraft = {**self._row(run_id, payload, model, created_by), "revision": 0, "reason": None}
        stored = of_known_run(run_id, lambda: self._change_row(ADD, row, repeatable=True))
        return stored if stored is not None else self._found_again(run_id, payload, row)

    def override(
        self,
        run_id: str,
        payload: Any,
        *,
        expected_revision: int,
        reason: str,
        created_by: str | None = None,
        model: type[BaseModel] | None = None,
    ) -> RunInput:
        """Store a new revision as the current input, if ``expected_revision`` is still the current one.

        Earlier revisions stay readable. Raises `StaleVersion` with the current revision, `NotFound` for a run without
        an input, and the errors of `ensure`.
        """
        given, why = self._row(run_id, payload, model, created_by), checks.reason(reason)
        expected = valid.number("expected_revision", expected_revision, most=models.LAST_ITERATION)
        row: InputDraft = {**given, "revision": expected + 1, "reason": why}
        values = {**row, "expected": expected}
        stored = of_known_run(run_id, lambda: self._change_row(OVERRIDE, values))
        if stored is not None:
            return stored
        found = self.get(run_id)
        raise StaleVersion(models.INPUT_KIND, run_id, expected=expected_revision, found=found.revision)

    def get(self, run_id: str, *, revision: int | None = None) -> RunInput:
        """Return the current input, or the given revision. Raises `NotFound`."""
        if revision is None:
            found = self.find(run_id)
        else:
            values = {"run_id": valid.lookup_text("run_id", run_id), "revision": valid.number("revision", revision)}
            found = self._find(REVISION, values)
        if found is None:
            raise valid.not_found(models.INPUT_KIND, run_id)
        return found

    def find(self, run_id: str) -> RunInput | None:
        """Return the input in force, or None."""
        return self._find(CURRENT, {"run_id": valid.lookup_text("run_id", run_id)})

    def list(self, run_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[RunInputSummary]:
        """Return a page of the revisions of a run's input, newest first, without payloads."""
        given = {"run_id": valid.lookup_text("run_id", run_id)}
        return self._page(LIST, given, limit, page_token)

    def _row(self, run_id: Any, payload: Any, model: Any, created_by: Any) -> NewInput:
        given = payload if model is None else bare(payload)
        stored = given if model is None else _validate_payload(model, given, by_alias=not _is_made_by(model, payload))
        if not isinstance(stored, Mapping):
            raise InvalidValue("payload", f"must be an object, or given with its model, not {type(stored).__name__}")
        text = codec.encode("payload", dict(stored), max_bytes=_LIMITS.payload)
        return {
            "run_id": checks.run_id(run_id),
            "created_at": self._now(),
            "created_by": valid.optional("created_by", created_by, _LIMITS.created_by),
            "payload": text,
            "given": _changed_payload(given, text),
        }

    def _found_again(self, run_id: str, payload: Any, row: InputDraft) -> RunInput:
        """Return the current input if a revision was made from this payload. Raises `AlreadyExists` otherwise."""
        known = self._reading(lambda unit: unit.rows(EVERY, {"run_id": run_id}))
        asked = {_canonical(codec.decode(text)) for text in (row["payload"], row["given"]) if text is not None}
        for revision in known:
            held = {_canonical(one) for one in (revision["payload"], revision["given"]) if one is not None}
            if asked & held or (revision["reason"] == REASON and _as_columns(row, revision)):
                return RunInput.of({column.name: known[-1][column.name] for column in FULL})
        raise AlreadyExists(
            models.INPUT_KIND,
            run_id,
            problem="has another payload: a change is said with `override`",
            revision=len(known) - 1,
        )


def _as_columns(row: InputDraft, revision: Row) -> bool:
    """Return whether a revision of typed columns says the same as a payload, as passed or as stored."""
    asked = [codec.decode(text) for text in (row["payload"], row["given"]) if text is not None]
    held = folded_values(revision["payload"])
    return any(isinstance(one, dict) and folded_values(one) == held for one in asked)


def _is_made_by(model: type[BaseModel], payload: Any) -> bool:
    """True if the payload is an instance of the model. Then its fields are read by name, not by alias."""
    return isinstance(payload, BaseModel) and isinstance(payload, model)


def _validate_payload(model: type[BaseModel], given: Any, *, by_alias: bool) -> Any:
    adapter = adapter_of(model)
    try:
        instance = adapter.validate_python(given, by_alias=by_alias, by_name=True)
    except ValidationError as error:
        raise invalid(error, where="payload") from None
    refuse_unordered("payload", given, adapter, instance)
    return dump_strictly("payload", adapter, instance, has_sets=has_sets(model), is_open=True)


def _changed_payload(given: Any, text: str) -> str | None:
    """Return the passed payload as JSON text if validation has changed the payload, else None.

    Also returns None for a payload that JSON cannot express.
    """
    try:
        passed = codec.encode("payload", given, max_bytes=_LIMITS.given)
    except InvalidValue:
        return None
    return None if _canonical(codec.decode(passed)) == _canonical(codec.decode(text)) else passed


def _canonical(value: Any) -> bytes:
    return codec.canonical(value)
