"""Rows put beside those that are stored: what is missing is inserted, and nothing else changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from support.each import with_each
from support.filled_store import TRIGGER, scene

from lastlight_state import StateStore
from lastlight_state.db.rows.statements import statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, InvalidValue
from lastlight_state.maintenance.copy.contents import content
from lastlight_state.maintenance.copy.row_merge import insert_missing, missing_rows
from lastlight_state.maintenance.copy.tables import Subject, subjects
from lastlight_state.maintenance.copy.transfer import make_tables, output_tables
from lastlight_state.messaging import ConversationKey
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database
from lastlight_state.workflows.arguments import RunOptions

Rows = dict[str, list[dict[str, Any]]]

KEY = ConversationKey("test", "place", "ana")
#: The tables of a store that are moved: all but those about maintenance, which tell of their own database.
_MOVED = METADATA.tables.keys() - {"lastlight_meta", "maintenance_permits", "copy_progress", "maintenance_receipts"}


@pytest.fixture(params=("sqlite", "postgres"))
def target(request: pytest.FixtureRequest) -> Iterator[StateStore]:
    """An empty store on each backend, which shares nothing with ``sqlite_database``."""
    if request.param == "postgres":
        yield request.getfixturevalue("postgres_database").open()
        return
    with StateStore.open(request.getfixturevalue("tmp_path") / "target.db") as opened:
        yield opened


def test_rows_of_all_tables_arrive_by_value(sqlite_database: Database, target: StateStore) -> None:
    """maintenance OP-62: on either product, in whatever order the tables are given."""
    source = scene(sqlite_database)[0]
    found = source._scope.view(lambda view: {one.name: _all(view, one) for one in _subjects(view)})
    rows = dict(reversed([(name, some) for name, some in found.items() if some]))
    tables = source._scope.view(output_tables)
    added = _in(target, lambda unit: _placed(unit, rows, tables))
    contents = [_contents(store) for store in (source, target)]
    assert contents[0] == contents[1]
    assert sum(added.values()) > 100
    assert _in(target, lambda unit: insert_missing(unit, rows)) == {}
    assert _in(target, lambda unit: missing_rows(unit, rows)) == {}


def test_a_row_that_is_stored_otherwise_is_named_and_nothing_is_added(every_backend: StateStore) -> None:
    """maintenance OP-62."""
    every_backend.workflows.runs.create("w", trigger=TRIGGER, phase="p", options=RunOptions(id="a"))
    (row,) = _in(every_backend, lambda unit: _all(unit, Subject(METADATA.tables["workflow_runs"])))
    new = {**row, "id": "b", "trigger_id": "other"}
    given = {"workflow_runs": [{**row, "scratch": {"other": 1}}, new]}
    with pytest.raises(AlreadyExists, match="workflow_runs 'a' is stored with other values"):
        _in(every_backend, lambda unit: insert_missing(unit, given))
    assert _in(every_backend, lambda unit: missing_rows(unit, given, keeps=True)) == {"workflow_runs": [new]}
    assert _in(every_backend, lambda unit: insert_missing(unit, given, keeps=True)) == {"workflow_runs": 1}
    assert every_backend.workflows.runs.get("a").scratch == row["scratch"]


def test_columns_that_are_left_out_get_their_defaults_and_are_not_compared(database: Database) -> None:
    """maintenance OP-62."""
    store = database.open()
    given = {"cron_overrides": [{"name": "c", "enabled": True, "updated_at": database.clock.now()}]}
    assert _in(store, lambda unit: insert_missing(unit, given)) == {"cron_overrides": 1}
    assert _in(store, lambda unit: missing_rows(unit, given)) == {}


def test_numbers_that_are_given_next_follow_those_that_arrived(every_backend: StateStore) -> None:
    """maintenance OP-62."""
    session, messages = every_backend.messaging.sessions.resume(KEY).session, every_backend.messaging.messages
    messages.append(session.id, role="user", content="hello")
    (row,) = _in(every_backend, lambda unit: _all(unit, Subject(METADATA.tables["messaging_messages"])))
    _in(every_backend, lambda unit: insert_missing(unit, {"messaging_messages": [{**row, "id": 900}]}))
    assert messages.append(session.id, role="user", content="again").message.id > 900


@with_each(
    ("rows", "problem"),
    [
        ({"nothing": []}, "unknown table 'nothing'"),
        ({"workflow_runs": [{"id": "a", "never": 1}]}, "workflow_runs.never: unknown column"),
        ({"workflow_runs": [{"id": "a"}, {"id": "b", "status": "x"}]}, "must have the same columns"),
        ({"workflow_runs": [{"id": 1}]}, "workflow_runs.id: expected str, got int"),
        ({"workflow_runs": [{"id": "a\0"}]}, "NUL"),
        ({"run_nodes": [{"run_id": "a", "node_id": "b"}]}, "run_nodes.iteration: expected int, got NoneType"),
        ({"tombstones": [{"kind": "k", "id": "a", "digest": d} for d in "xy"]}, "two different rows of the key"),
    ],
)
def test_rows_that_cannot_be_compared_are_refused(database: Database, rows: Any, problem: str) -> None:
    """maintenance OP-62."""
    with pytest.raises(InvalidValue, match=problem):
        _in(database.open(), lambda unit: missing_rows(unit, rows))


def _in(store: StateStore, work: Callable[[Unit], Any]) -> Any:
    return store._scope.write(work)


def _subjects(view: Unit) -> list[Subject]:
    return [one for one in subjects(output_tables(view)) if one.is_output or one.name in _MOVED]


def _all(view: Unit, subject: Subject) -> list[dict[str, Any]]:
    return view.rows(statement_of(sa.select(*subject.columns)))


def _placed(unit: Unit, rows: Rows, tables: list[sa.Table]) -> Counter[str]:
    first = insert_missing(unit, {"output_tables": rows["output_tables"]})
    make_tables(unit, tables)
    return first + insert_missing(unit, rows)


def _contents(store: StateStore) -> dict[str, Any]:
    return store._scope.view(lambda view: {one.name: content(view, one).result() for one in _subjects(view)})
