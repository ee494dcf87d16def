from __future__ import annotations

import pytest
import sqlalchemy as sa

from lastlight_state import StateStore
from lastlight_state.db.rows.statements import statement_of
from lastlight_state.db.runs import of_known_run
from lastlight_state.errors import ClaimLost, Conflict, InvalidValue, NotFound
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.tables import LOOPS

INSERT = statement_of(
    sa.insert(LOOPS).values(
        run_id=sa.bindparam("run_id"), loop_id="outer", updated_at=sa.bindparam("at", type_=LOOPS.c.updated_at.type)
    )
)
ROWS = statement_of(sa.select(LOOPS.c.run_id))


def write(store: StateStore, run_id: str) -> int:
    values = {"run_id": run_id, "at": store._context.clock.now()}
    return of_known_run(run_id, lambda: store._scope.one_statement(lambda unit: unit.change(INSERT, values)))


def test_a_row_of_an_unknown_run_is_refused_by_the_statement_that_writes_it(every_backend: StateStore) -> None:
    """house H-24."""
    with pytest.raises(NotFound) as raised:
        write(every_backend, "nobody")
    assert (raised.value.kind, raised.value.key) == ("workflow_run", "nobody")
    assert every_backend._scope.read(lambda unit: unit.rows(ROWS)) == []


def test_a_row_of_a_known_run_is_written_and_other_refusals_are_as_they_were(every_backend: StateStore) -> None:
    """house H-24."""
    run = every_backend.workflows.runs.create("review", trigger=Trigger("t-1", type="webhook"), phase="plan")
    assert write(every_backend, run.id) == 1
    with pytest.raises(Conflict) as raised:
        write(every_backend, run.id)
    assert raised.value.code == "unique"


def test_an_id_that_no_database_could_hold_is_an_invalid_value(every_backend: StateStore) -> None:
    """house H-24."""

    def refused() -> None:
        raise Conflict("the database refused a row", code="foreign_key")

    with pytest.raises(InvalidValue):
        of_known_run("\0", refused)


def test_a_write_in_the_transaction_of_a_claim_is_the_holders(every_backend: StateStore) -> None:
    """house H-24: nothing is written with a claim that was lost."""
    store = every_backend
    run = store.workflows.runs.create("review", trigger=Trigger("t-1", type="webhook"), phase="plan")
    claim = store.workflows.claims.take(run.id, owner="worker-1")
    store.workflows.claims.release(claim)
    values = {"run_id": run.id, "at": store._context.clock.now()}
    with pytest.raises(ClaimLost), store.transaction(claim=claim) as tx:
        tx._context.scope.one_statement(lambda unit: unit.change(INSERT, values))
    assert store._scope.read(lambda unit: unit.rows(ROWS)) == []
