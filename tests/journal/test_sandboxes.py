from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.sent import recorded
from support.workflows.steps import all_pages, started

from lastlight_state import StateStore
from lastlight_state.errors import Conflict, InvalidValue, NotFound
from lastlight_state.journal import SandboxChanges
from lastlight_state.testing import Database, FrozenClock


def test_a_put_changes_exactly_the_fields_that_are_set(store: StateStore, frozen_clock: FrozenClock) -> None:
    """journal B-1: and None clears one."""
    run = started(store).id
    boxes = store.journal.sandboxes
    made = boxes.put(run, "box", SandboxChanges(runtime="docker", config={"net": False}, container_id="c1"))
    assert (made.status, made.runtime, made.config, made.created_at) == (
        "pending",
        "docker",
        {"net": False},
        frozen_clock.now(),
    )
    frozen_clock.advance(timedelta(seconds=1))
    moved = boxes.put(run, "box", SandboxChanges(status="running"))
    assert (moved.status, moved.runtime, moved.config, moved.container_id) == (
        "running",
        "docker",
        {"net": False},
        "c1",
    )
    assert moved.updated_at - moved.created_at == timedelta(seconds=1)
    assert boxes.put(run, "box", SandboxChanges(container_id=None)).container_id is None
    plain = boxes.put(run, "plain", SandboxChanges())
    assert (plain.runtime, plain.status, plain.config) == ("bubblewrap", "pending", {})
    assert boxes.get(run, "box") == boxes.find(run, "box")
    assert boxes.find(run, "none") is None
    with pytest.raises(NotFound):
        boxes.get(run, "none")
    with pytest.raises(NotFound):
        boxes.put("nobody", "box", SandboxChanges())
    with pytest.raises(InvalidValue):
        boxes.put(run, "box", SandboxChanges(status="lost"))  # type: ignore[arg-type]


def test_what_is_said_of_a_sandbox_is_in_bounds(store: StateStore, frozen_clock: FrozenClock) -> None:
    """journal B-1, J-3: exactly at a limit it passes; else nothing is written."""
    run, boxes, now = started(store).id, store.journal.sandboxes, frozen_clock.now()
    room = 65_536 - len('{"t":""}')
    most: dict[str, Any] = {
        "runtime": "r" * 256,
        "remote_run_id": "r" * 256,
        "workspace_id": "w" * 256,
        "container_id": "c" * 256,
    }
    full = boxes.put(run, "b" * 256, SandboxChanges(**most, bundle_path="/" * 4096, config={"t": "x" * room}))
    assert full.model_dump().items() >= most.items()
    assert (full.bundle_path, full.config) == ("/" * 4096, {"t": "x" * room})
    bad: list[dict[str, Any]] = [{name: "x" * 257} for name in most]
    bad += [{"bundle_path": "/" * 4097}, {"config": {"t": "x" * (room + 1)}}, {"config": None}, {"config": [1]}]
    bad += [{"runtime": None}, {"runtime": ""}, {"status": None}, {"container_id": ""}, {"container_id": 7}]
    bad += [{"shipped_at": now.replace(tzinfo=None)}, {"completed_at": "now"}]
    for given in bad:
        with pytest.raises(InvalidValue, match=f"changes.{next(iter(given))}"):
            boxes.put(run, "box", SandboxChanges(**given))
    for key in ("", "b" * 257):
        with pytest.raises(InvalidValue, match="sandbox_id"):
            boxes.put(run, key, SandboxChanges())
    with pytest.raises(InvalidValue, match="changes"):
        boxes.put(run, "box", {"runtime": "docker"})  # type: ignore[arg-type]
    assert [box.sandbox_id for box in boxes.list().items] == ["b" * 256]


def test_times_that_are_given_are_not_filled_in(store: StateStore, frozen_clock: FrozenClock) -> None:
    """journal B-2: nor are those of a status that has none."""
    run, boxes, given = started(store).id, store.journal.sandboxes, frozen_clock.now() - timedelta(hours=1)
    assert boxes.put(run, "box", SandboxChanges(status="shipped", shipped_at=given)).shipped_at == given
    assert boxes.put(run, "box", SandboxChanges(shipped_at=None)).shipped_at is None
    ended = boxes.put(run, "box", SandboxChanges(status="failed", completed_at=given))
    assert (ended.completed_at, ended.shipped_at) == (given, None)
    for status in ("pending", "running"):
        other = boxes.put(run, status, SandboxChanges(status=status))
        assert (other.shipped_at, other.completed_at) == (None, None)


def test_a_final_status_stays(store: StateStore, frozen_clock: FrozenClock) -> None:
    """journal B-2: times are filled in once."""
    run = started(store).id
    boxes = store.journal.sandboxes
    shipped = boxes.put(run, "box", SandboxChanges(status="shipped"))
    assert (shipped.shipped_at, shipped.completed_at) == (frozen_clock.now(), None)
    frozen_clock.advance(timedelta(seconds=1))
    boxes.put(run, "box", SandboxChanges(status="shipped"))
    done = boxes.put(run, "box", SandboxChanges(status="completed"))
    assert (done.shipped_at, done.completed_at) == (shipped.shipped_at, frozen_clock.now())
    for status in ("running", "failed"):
        with pytest.raises(Conflict) as raised:
            boxes.put(run, "box", SandboxChanges(status=status, container_id="c"))
        assert raised.value.code == "sandbox_status"
    frozen_clock.advance(timedelta(seconds=1))
    again = boxes.put(run, "box", SandboxChanges(status="completed", bundle_path="/b"))
    assert (again.completed_at, again.bundle_path, again.container_id) == (done.completed_at, "/b", None)


def test_sandboxes_of_all_runs_are_listed_by_their_last_change(store: StateStore, frozen_clock: FrozenClock) -> None:
    """journal B-3: leaked ones are found, and two services kept apart."""
    runs = [started(store).id for _ in range(2)]
    boxes = store.journal.sandboxes
    for i in range(4):
        boxes.put(runs[i % 2], f"b{i}", SandboxChanges(status="running", workspace_id=f"w{i % 2}"))
        frozen_clock.advance(timedelta(seconds=1))
    boxes.put(runs[0], "b0", SandboxChanges(status="completed"))
    for given, wanted in (
        ({}, ["b0", "b3", "b2", "b1"]),
        ({"status": "running"}, ["b3", "b2", "b1"]),
        ({"run_id": runs[0]}, ["b0", "b2"]),
        ({"workspace_id": "w1"}, ["b3", "b1"]),
        ({"runtime": "docker"}, []),
    ):
        assert [box.sandbox_id for box in all_pages(boxes.list, limit=2, **given)] == wanted
    assert not hasattr(boxes.list().items[0], "config")


def test_a_put_is_one_round_trip(database: Database) -> None:
    """journal P-3."""
    with recorded(database) as (store, sent):
        run = started(store).id
        sent.clear()
        store.journal.sandboxes.put(run, "box", SandboxChanges(status="shipped"))
        assert len(sent) == 1
