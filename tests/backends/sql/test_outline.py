"""What a database says of the tables that a version promises."""

from __future__ import annotations

from support.workflows.steps import Raw

from lastlight_state.backends.sql.expressions import outline
from lastlight_state.testing import Database


def test_of_no_table_there_is_nothing_to_say(database: Database) -> None:
    raw = Raw(database)
    raw("INSERT INTO workflow_overrides (name, enabled, updated_at) VALUES ('w', ?, ?)", True, database.clock.now())
    assert raw(f"SELECT {outline(database.name, [], [], [], 'workflow_overrides')} FROM workflow_overrides") == [
        (None,)
    ]
