"""What a driver raises in a call of a backend becomes the library's error; everything else is raised as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from support.each import with_each
from support.scratch import NOTES

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Backend, Checkout, Mode, Options
from lastlight_state.errors import BackendError, BackendUnavailable, StateError
from lastlight_state.testing import Database


class Broken:
    """A driver's connection, and its cursor, whose statements all fail."""

    closed = False
    in_transaction = True
    transaction_status = TransactionStatus.INTRANS

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.pgconn = self

    def execute(self, *_: object, **__: object) -> Any:
        raise self.error

    executemany = copy = backup = execute

    def cursor(self, *_: object, **__: object) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Closes nothing."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_, **__: 0


@contextmanager
def unconnected(product: str, folder: Path) -> Iterator[Backend]:
    """Yield a backend that has not connected yet, and close it."""
    (folder / "x.db").touch()
    url = folder / "x.db" if product == "sqlite" else "postgresql://127.0.0.1:1/none"
    with closing(open_backend(url, Options())) as made:
        yield made


Call = Callable[[Any, Checkout], object]

CALLS: dict[str, Call] = {
    "commit": lambda backend, at: backend.commit(at),
    "measures": lambda backend, at: backend.measures(at, ["t"]),
    "damages": lambda backend, at: backend.damages(at, deep=True),
    "vacuum": lambda backend, at: backend.vacuum(at, ["t"], analyze=True, full=False),
    "ask": lambda backend, at: backend.ask(at, "SELECT 1", {}, limit=1, timeout=1),
    "stream": lambda backend, at: list(backend.stream(at, "SELECT 1", {}, [NOTES.c.number])),
    "load": lambda backend, at: backend.load(at, "t", ["a"], []),
    "last_number": lambda backend, at: backend.last_number(at, "t", "a"),
    "advance": lambda backend, at: backend.advance(at, "t", "a", 5),
}
ONLY: dict[str, dict[str, Call]] = {
    "sqlite": {
        "checkpoint": lambda backend, at: backend.checkpoint(at, "PASSIVE"),
        "column_names": lambda backend, at: backend.column_names(at, "t"),
        "snapshot": lambda backend, at: backend.snapshot(at, backend.files[0].with_name("new.db")),
    },
    "postgresql": {
        "analyze": lambda backend, at: backend.analyze(at, ["t"]),
        "identity": lambda backend, at: backend.identity(at),
        "named_lock": lambda backend, at: backend.named_lock(at, "name"),
        "limit_ddl_waits": lambda backend, at: backend.limit_ddl_waits(at),
    },
}
ALL = {
    f"{name} of {product}": (product, call)
    for product, only in ONLY.items()
    for name, call in {**CALLS, **only}.items()
}
EACH = with_each("product, call", ALL.values(), ids=ALL)


def checkout_of(backend: Backend, error: Exception) -> Checkout:
    """Return a checkout of a caller's connection, on which every statement fails with this error."""
    checkout = Checkout(Mode.WRITE, backend)
    checkout.joined = True
    checkout.attach(Broken(error))
    return checkout


@EACH
def test_an_error_of_the_driver_is_the_librarys(tmp_path: Path, product: str, call: Call) -> None:
    """house H-51: with the driver's as its cause."""
    with unconnected(product, tmp_path) as backend:
        error = backend.driver_errors[0]("failed")
        with pytest.raises(StateError) as raised:
            call(backend, checkout_of(backend, error))
        assert raised.value.__cause__ is error


@EACH
def test_an_error_of_a_program_is_not_called_the_databases(tmp_path: Path, product: str, call: Call) -> None:
    """house H-51: whoever reads of it must find its own kind and place."""
    error = ZeroDivisionError("a mistake")
    with unconnected(product, tmp_path) as backend, pytest.raises(ZeroDivisionError) as raised:
        call(backend, checkout_of(backend, error))
    assert raised.value is error


@with_each("product", ONLY)
def test_a_rollback_that_fails_gives_the_connection_up(tmp_path: Path, product: str) -> None:
    """backends B-87: it raises nothing, because what led to it is on its way."""
    with unconnected(product, tmp_path) as backend:
        checkout = checkout_of(backend, backend.driver_errors[0]("failed"))
        backend.rollback(checkout)
        assert checkout.broken


def test_nobody_knows_the_outcome_of_a_commit_whose_connection_is_lost(tmp_path: Path) -> None:
    """backends B-51."""
    with closing(open_backend("postgresql://127.0.0.1:1/none", Options())) as backend:
        for error, outcome in (
            (psycopg.OperationalError("connection lost"), "unknown"),
            (psycopg.errors.lookup("40001")("serialisation"), "none"),
        ):
            with pytest.raises(BackendError) as raised:
                backend.commit(checkout_of(backend, error))
            assert raised.value.outcome == outcome


@pytest.mark.parametrize("place", ["migration", "scratch"])
def test_errors_in_a_migration_are_told_as_those_of_any_call(fresh_database: Database, place: str) -> None:
    """house H-51, migrations MG-44."""
    backend = fresh_database.open().backend

    def failing(error: Exception) -> None:
        with backend.migration(5) if place == "migration" else backend.scratch():
            raise error

    failed = backend.driver_errors[0]("failed")
    with pytest.raises(StateError) as raised:
        failing(failed)
    assert raised.value.__cause__ is failed
    with pytest.raises(ZeroDivisionError):
        failing(ZeroDivisionError("a mistake"))
    with backend.migration(5):
        pass


def test_a_look_that_fails_otherwise_than_for_want_of_a_table_is_an_error(database: Database) -> None:
    """house H-51."""
    backend = database.open().backend
    assert backend.peek("SELECT 1 FROM no_such_table") is None
    with pytest.raises(BackendError) as raised:
        backend.peek("SELECT 1 / 0" if backend.name == "postgresql" else "SELECT length(zeroblob(2000000000))")
    assert isinstance(raised.value.__cause__, backend.driver_errors)
    assert not isinstance(raised.value, BackendUnavailable)
