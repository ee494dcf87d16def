from __future__ import annotations

from pathlib import Path

from support.cli.calls import call_on, files_of

from lastlight_state.cli.opening import read_once
from lastlight_state.errors import CorruptData
from lastlight_state.store import StateStore
from lastlight_state.testing.clock import FrozenClock
from lastlight_state.testing.databases import SqliteTemplate

SWITCH_OFF = "INSERT INTO workflow_overrides (name, updated_at) VALUES (?, '2026-02-03T12:00:00.000Z')"


def switches(store: StateStore) -> int:
    return next(table.rows for table in store.maintenance.stats.collect().tables if table.name == "workflow_overrides")


def test_a_look_is_repeated_when_somebody_wrote_meanwhile(
    sqlite_template: SqliteTemplate, tmp_path: Path, frozen_clock: FrozenClock
) -> None:
    """maintenance OP-2."""
    with sqlite_template.fresh(tmp_path, frozen_clock) as database:
        writer = database.raw()
        looks: list[int] = []

        def work(store: StateStore) -> int:
            if not looks:
                writer.execute(SWITCH_OFF, ("during the first look",))
            looks.append(switches(store))
            return looks[-1]

        assert read_once(call_on(database.url), work) == 1
        assert looks == [0, 1]


def test_what_a_disturbed_look_fails_on_counts_for_nothing(
    sqlite_template: SqliteTemplate, tmp_path: Path, frozen_clock: FrozenClock
) -> None:
    """maintenance OP-2."""
    with sqlite_template.fresh(tmp_path, frozen_clock) as database:
        writer = database.raw()
        looks: list[int] = []

        def work(store: StateStore) -> str:
            looks.append(len(looks))
            if looks == [0]:
                writer.execute(SWITCH_OFF, ("during the first look",))
                raise CorruptData("workflow_runs", "r", "context")
            return "read"

        assert read_once(call_on(database.url), work) == "read"


def test_a_look_beside_a_live_writer_sees_what_it_committed(
    sqlite_template: SqliteTemplate, tmp_path: Path, frozen_clock: FrozenClock
) -> None:
    """maintenance OP-2."""
    with sqlite_template.fresh(tmp_path, frozen_clock) as database:
        writer = database.raw()
        for name in ("one", "two"):
            writer.execute(SWITCH_OFF, (name,))
        assert read_once(call_on(database.url), switches) == 2


def test_a_look_at_a_file_at_rest_leaves_nothing_beside_it(
    sqlite_template: SqliteTemplate, tmp_path: Path, frozen_clock: FrozenClock
) -> None:
    """maintenance OP-2."""
    with sqlite_template.fresh(tmp_path, frozen_clock) as database:
        before = files_of(tmp_path)
        assert read_once(call_on(database.url), switches) == 0
        assert files_of(tmp_path) == before
