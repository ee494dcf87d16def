from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from support.migrations.populate import NUMBERED, PERMITS, ROWS, contents, fill, layout
from support.migrations.snapshot import lost
from support.migrations.story import BROUGHT
from support.migrations.support import Place, catalogue, with_connection

from lastlight_state.migrations import migrate, scripts
from lastlight_state.migrations.apply import data_steps

REVISIONS = scripts.revisions()
DECLARED = data_steps()


def kept(columns: dict[str, list[str]], revision: str) -> dict[str, list[str]]:
    """The columns without those that the revision has declared to change."""
    changed = {step.table: step.columns for step in DECLARED[revision]}
    return {table: [name for name in names if name not in changed.get(table, ())] for table, names in columns.items()}


@pytest.mark.parametrize(("before", "after"), list(pairwise(REVISIONS)))
def test_a_revision_takes_nothing_from_a_populated_database(place: Place, before: str, after: str) -> None:
    """migrations MG-13: what was there is there, and every row reads the same in the old columns."""
    backend = place.at(before)
    with_connection(backend, partial(fill, label=before))
    schema = catalogue(backend)
    columns = kept(with_connection(backend, layout), after)
    rows = with_connection(backend, partial(contents, columns=columns))
    assert {table: len(found) for table, found in rows.items() if table != PERMITS} == {
        table: BROUGHT.get(table, 0) + ROWS * (table != NUMBERED) for table in rows if table != PERMITS
    }

    migrate(backend, after)

    assert lost(schema, catalogue(backend)) == []
    assert with_connection(backend, partial(contents, columns=columns)) == rows


@pytest.mark.slow
def test_rows_of_every_revision_reach_the_head_and_new_ones_fit_beside_them(place: Place) -> None:
    """migrations MG-13: a long-lived database, filled again after each revision."""
    backend = place.backend()
    seen: dict[str, Any] = {}
    for revision in REVISIONS:
        migrate(backend, revision)
        with_connection(backend, partial(fill, label=revision))
        seen = with_connection(backend, contents)
    assert len(seen["workflow_runs"]) == 3 * len(REVISIONS)
    assert len(seen["messaging_messages"]) == 3 * len(REVISIONS)
