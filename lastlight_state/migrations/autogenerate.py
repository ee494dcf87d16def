"""What Alembic's autogenerate may look at: everything but our tables in a host application, nothing else in ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lastlight_state.db.base import VERSION_TABLE
from lastlight_state.db.indexes import ONLY
from lastlight_state.migrations.metadata import METADATA

Filter = Callable[[Any, str | None, str, bool, Any], bool]


def include_object(element: Any, name: str | None, kind: str, *_: Any) -> bool:
    """For a host application's ``context.configure(include_object=...)``: no to our tables and what hangs on them."""
    return not _is_ours(element, name, kind)


def only_ours(product: str) -> Filter:
    """The opposite, for our own revisions; indexes that another product alone has are left out too."""

    def chosen(element: Any, name: str | None, kind: str, *_: Any) -> bool:
        only = element.info.get(ONLY) if kind == "index" else None
        return _is_ours(element, name, kind) and only in (None, product)

    return chosen


def _is_ours(element: Any, name: str | None, kind: str) -> bool:
    table = name if kind == "table" else element.table.name
    return table in METADATA.tables or table == VERSION_TABLE
