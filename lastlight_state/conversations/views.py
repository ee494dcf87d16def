"""The view that gives each order as one JSON array of message ids. Declared here, made by the revision.

SQLite reads from an ordered subquery: its aggregates take an order only since 3.44.
"""

from __future__ import annotations

from sqlalchemy import DDL, event

from lastlight_state.db.base import Base

NAME = "progression_collections"

_SELECT = {
    "sqlite": (
        "SELECT id, created_at, (SELECT json_group_array(message_id) FROM "
        "(SELECT message_id FROM progression_links WHERE progression_id = progressions.id ORDER BY ord)) "
        "AS collection FROM progressions"
    ),
    "postgresql": (
        "SELECT id, created_at, coalesce((SELECT jsonb_agg(message_id ORDER BY ord) FROM progression_links "
        "WHERE progression_id = progressions.id), '[]'::jsonb) AS collection FROM progressions"
    ),
}

#: Where the view is there already, as for whoever makes tables of their own beside ours, it stays.
_CREATE = {"sqlite": "CREATE VIEW IF NOT EXISTS", "postgresql": "CREATE OR REPLACE VIEW"}

for _product, _select in _SELECT.items():
    _made: DDL = DDL(f"{_CREATE[_product]} {NAME} AS {_select}")  # type: ignore[no-untyped-call]
    event.listen(Base.metadata, "after_create", _made.execute_if(dialect=_product))
