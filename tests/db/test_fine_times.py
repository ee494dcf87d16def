"""Times with microseconds, which other programs write on Postgres: pages neither repeat rows nor leave some out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import sqlalchemy as sa
from support.each import with_each
from support.filled_store import scene
from support.shown import lists

from lastlight_state.db.schema import columns
from lastlight_state.testing import Database

#: More pages than any of the lists has.
_MANY = 100


def test_every_list_shows_each_row_once(postgres_database: Database) -> None:
    """house H-12."""
    store, tables = scene(postgres_database)
    _refine(postgres_database.raw(), tables)
    for name, (listed, name_of) in lists(store).items():
        whole = [name_of(item) for item in listed(limit=50).items]
        assert [name_of(item) for item in _walked(listed)] == whole, name


def test_the_timeline_shows_each_fact_once(postgres_database: Database) -> None:
    """maintenance OP-13."""
    store, tables = scene(postgres_database)
    _refine(postgres_database.raw(), tables)
    listed = partial(store.maintenance.timeline.list, "home")
    assert tuple(_walked(listed)) == listed(limit=50).items != ()


@with_each(
    ("moment", "text"),
    [
        (datetime(2026, 2, 3, 12, 34, 56, 789_000, UTC), "2026-02-03T12:34:56.789Z"),
        (datetime(2026, 2, 3, 12, 34, 56, 789_012, UTC), "2026-02-03T12:34:56.789012Z"),
        (None, None),
    ],
)
def test_a_key_on_sqlite_has_the_microseconds_that_a_time_has(moment: datetime | None, text: str | None) -> None:
    """house H-12: as other programs usually spell them."""
    dialect = sa.create_engine("sqlite://").dialect
    convert: Any = columns.KeyTimestamp.dialect_impl(dialect).bind_processor(dialect)
    assert convert(moment) == text


def _refine(raw: Any, tables: list[sa.Table]) -> None:
    """Add microseconds to all times."""
    raw.execute("SET session_replication_role = replica")  # no guard refuses it
    for table in tables:
        times = [column.name for column in table.columns if isinstance(column.type, columns.UtcTimestamp)]
        if times:
            raw.execute(f"UPDATE {table.name} SET " + ", ".join(f"{one} = {one} + interval '7 us'" for one in times))


def _walked(listed: Callable[..., Any]) -> Iterator[Any]:
    token = None
    for _ in range(_MANY):
        page = listed(limit=1, page_token=token)
        yield from page.items
        token = page.next_page_token
        if token is None:
            return
