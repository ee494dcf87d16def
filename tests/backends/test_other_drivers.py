"""A driver that the library has not: each refusal names the two ways that work."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import asyncpg
from sqlalchemy.dialects.sqlite import pysqlcipher
from support.each import with_each

from lastlight_state import StateStore
from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Options
from lastlight_state.errors import StateError

DIALECTS: tuple[Any, Any] = (asyncpg.dialect, pysqlcipher.dialect)


def joined(url: str, dialect: Any) -> Callable[[], object]:
    """A call that joins a connection of this dialect, which a store on the URL has to refuse."""
    theirs: Any = SimpleNamespace(dialect=dialect)
    return lambda: open_backend(url, Options()).refuse_foreign(theirs)


def engine(url: str) -> Any:
    """An engine whose driver need not be installed."""
    return sa.create_mock_engine(url, lambda *_: None)


REFUSALS: dict[str, tuple[str, Callable[[], object]]] = {
    "asyncpg, url": ("postgresql+psycopg", lambda: StateStore.open("postgresql+asyncpg://db/state")),
    "asyncpg, engine": ("postgresql+psycopg", lambda: StateStore.open(engine=engine("postgresql+asyncpg://"))),
    "asyncpg, connection": ("postgresql+psycopg", joined("postgresql://db/state", DIALECTS[0]())),
    "aiosqlite, url": ("sqlite+aiosqlite", lambda: StateStore.open("sqlite+aiosqlite:///a.db")),
    "aiosqlite, engine": ("sqlite+aiosqlite", lambda: StateStore.open(engine=engine("sqlite+aiosqlite://"))),
    "pysqlcipher, connection": ("sqlite+aiosqlite", joined("sqlite:///a.db", DIALECTS[1]())),
}


@with_each("refusal", REFUSALS)
def test_a_refused_driver_is_told_the_ways_that_work(refusal: str) -> None:
    """backends B-10: an engine of one's own beside the store, or a function that the store calls."""
    driver, call = REFUSALS[refusal]
    with pytest.raises(StateError) as caught:
        call()
    assert f"make your own engine with {driver} and join it by transaction(connection=)" in str(caught.value)
    assert "or give a function to store.run()" in str(caught.value)
