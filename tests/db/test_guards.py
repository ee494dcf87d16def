import pytest
import sqlalchemy as sa
from support.guards import statements_of
from support.refusal import refused
from support.scratch import THINGS, scratch_tables

from lastlight_state import StateStore
from lastlight_state.backends.base import Mode
from lastlight_state.db.schema import guards
from lastlight_state.db.schema.guards import Guard

AT = "2026-02-03T00:00:00.000Z"


def test_a_guard_is_declared_once() -> None:
    (guard, *_) = guards.declared_guards()
    with pytest.raises(ValueError, match=f"guard {guard.name} is declared twice"):
        guards.declare([guard])


def test_every_guard_has_a_name_of_its_own_and_says_what_it_refuses() -> None:
    declared = guards.declared_guards()
    assert len({guard.name for guard in declared}) == len(declared)
    assert all(guard.message for guard in declared)


GUARDS = [
    Guard("scratch_no_delete", "scratch_things", "delete", "it's kept", when="OLD.number IS DISTINCT FROM 5"),
    Guard("scratch_fixed", "scratch_things", "update", "kind is fixed", of=("kind",)),
    Guard("scratch_sqlite", "scratch_things", "insert", "never", when="NEW.kind = 'never'", only="sqlite"),
    Guard("scratch_postgres", "scratch_things", "insert", "never", when="NEW.kind = 'never'", only="postgresql"),
]


def test_a_guard_refuses_on_both_databases_what_it_says_and_nothing_else(every_backend: StateStore) -> None:
    """house H-37: the database itself refuses, whoever asks."""
    backend = every_backend.backend
    with scratch_tables(every_backend):
        with every_backend.transaction() as tx:
            for guard in GUARDS:
                for statement in statements_of(guard, backend.name):
                    tx.connection.exec_driver_sql(statement)
            rows = [{"id": f"t{number}", "at": AT, "number": number} for number in (None, 5)]
            columns = [THINGS.c.id, THINGS.c.number]
            insert = sa.text("INSERT INTO scratch_things (id, at, number) VALUES (:id, :at, :number)")
            tx.connection.execute(insert, rows)
        for sql in (
            "DELETE FROM scratch_things WHERE id = 'tNone'",
            "UPDATE scratch_things SET kind = 'x'",
            f"INSERT INTO scratch_things (id, at, kind) VALUES ('t9', '{AT}', 'never')",
        ):
            checkout = backend.acquire(Mode.WRITE)
            with refused():
                checkout.driver.execute(sql)
            backend.rollback(checkout)
            backend.release(checkout)
        with every_backend.transaction() as tx:
            tx.connection.exec_driver_sql("DELETE FROM scratch_things WHERE number = 5")
            tx.connection.exec_driver_sql("UPDATE scratch_things SET number = 7")
            assert tx.connection.execute(sa.select(*columns)).all() == [("tNone", 7)]
