"""What a backend of somebody else's need not be able to do, and what it gets from this library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from support.each import with_each

from lastlight_state.backends.base import Backend, Mode
from lastlight_state.errors import NotSupported
from lastlight_state.testing import Database

CHECKOUT: Any = None
UNABLE: dict[str, tuple[str, Callable[[Any, Any], object]]] = {
    "damages": ("does not examine itself", lambda kind, own: kind.damages(own, CHECKOUT, deep=True)),
    "vacuum": ("cannot be vacuumed", lambda kind, own: kind.vacuum(own, CHECKOUT, ["t"], analyze=True, full=False)),
    "stream": ("cannot be copied", lambda kind, own: kind.stream(own, CHECKOUT, "SELECT 1", {}, [])),
    "load": ("cannot be copied into", lambda kind, own: kind.load(own, CHECKOUT, "t", ["a"], [])),
    "packed_size": ("cannot pack columns", lambda kind, own: kind.packed_size(own, sa.column("a"))),
    "ask": ("query read-only", lambda kind, own: kind.ask(own, CHECKOUT, "SELECT 1", {}, limit=1, timeout=1)),
    "scratch": ("has no place to try revisions in", lambda kind, own: kind.scratch(own)),
    "as_script": ("cannot be written as a script", lambda kind, own: kind.as_script(own, "", 1)),
    "grants": ("has no roles", lambda kind, own: kind.grants(own, "role", {})),
    "column_names": ("has no files of other programs", lambda kind, own: kind.column_names(own, CHECKOUT, "t")),
}
NOTHING: dict[str, Callable[[Any, Any], object]] = {
    "files": lambda kind, own: len(kind.files.fget(own)) or None,
    "malformed_condition": lambda kind, own: kind.malformed_condition(own, sa.column("a"), "JSON"),
    "place": lambda kind, own: kind.place(own),
    "lost_log": lambda kind, own: kind.lost_log(own, lacks_tables=True) or None,
    "checkpoint": lambda kind, own: kind.checkpoint(own, CHECKOUT, "PASSIVE"),
    "last_number": lambda kind, own: kind.last_number(own, CHECKOUT, "t", "a"),
    "advance": lambda kind, own: kind.advance(own, CHECKOUT, "t", "a", 5),
    "analyze": lambda kind, own: kind.analyze(own, CHECKOUT, ["t"]),
    "identity": lambda kind, own: kind.identity(own, CHECKOUT),
    "snapshot": lambda kind, own: kind.snapshot(own, CHECKOUT, Path("never")) or None,
    "pack_columns": lambda kind, own: kind.pack_columns(own, [sa.column("a")]),
    "original": lambda kind, own: kind.original(own, None),
    "limit_ddl_waits": lambda kind, own: kind.limit_ddl_waits(own, CHECKOUT),
}


@with_each("name", UNABLE)
def test_what_a_backend_does_not_bring_is_refused_by_its_name(sqlite_database: Database, name: str) -> None:
    """backends B-15."""
    words, call = UNABLE[name]
    with pytest.raises(NotSupported, match=words) as raised:
        call(Backend, sqlite_database.open().backend)
    assert "sqlite" in str(raised.value)


@with_each("name", NOTHING)
def test_what_a_backend_need_not_have_is_nothing(sqlite_database: Database, name: str) -> None:
    """backends B-15."""
    assert NOTHING[name](Backend, sqlite_database.open().backend) is None


def test_a_unit_that_was_cut_off_is_undone_and_its_connection_given_up(sqlite_database: Database) -> None:
    """backends B-87: by every backend, if it does not do better."""
    store = sqlite_database.open()
    store.workflows.overrides.put("w", enabled=False)
    checkout = store.backend.acquire(Mode.WRITE)
    checkout.driver.execute("DELETE FROM workflow_overrides")
    driver = checkout.driver
    Backend.recover(store.backend, checkout)
    assert checkout.broken
    with pytest.raises(store.backend.driver_errors, match="closed"):
        driver.execute("SELECT 1")
    with store.transaction() as tx:
        assert tx.connection.exec_driver_sql("SELECT name FROM workflow_overrides").scalars().all() == ["w"]


def test_a_unit_that_was_cut_off_is_undone_before_its_connection_is_given_back(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-87: a backend of others need not undo what comes back to it."""
    backend = sqlite_database.open().backend
    checkout = backend.acquire(Mode.WRITE)
    given_back: list[bool] = []
    with monkeypatch.context() as patched:
        patched.setattr(backend, "release", lambda checkout: given_back.append(checkout.driver.in_transaction))
        Backend.recover(backend, checkout)
    backend.release(checkout)
    assert given_back == [False]


def test_an_error_that_nobody_waits_for_is_translated(sqlite_database: Database) -> None:
    """house H-51."""
    backend = sqlite_database.open().backend
    error = backend.driver_errors[0]("failed")
    with pytest.raises(type(backend.translate(error))) as raised:
        Backend.persist(backend, CHECKOUT, error, lambda: 5)
    assert raised.value.__cause__ is error


def test_the_shape_of_tables_is_their_catalogue_without_the_order_of_columns(sqlite_database: Database) -> None:
    """backends B-15."""
    backend = sqlite_database.open().backend
    checkout = backend.acquire(Mode.READ)
    connection = backend.connection(checkout)
    catalogue, shape = backend.catalogue(connection), Backend.shape(backend, connection)
    connection.close()
    backend.release(checkout)
    left_out = {entry for entry in catalogue if entry not in shape}
    assert {kind for kind, *_ in left_out} == {"order"}
    assert "order" not in {kind for kind, *_ in shape}
    assert all(catalogue[entry] == text for entry, text in shape.items())
