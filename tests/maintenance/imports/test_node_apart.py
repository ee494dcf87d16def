"""What belongs to no run of the second original system: crons, the cache, and chunks of text."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from support.maintenance.node_databases import BEGIN, at, change, made, put

from lastlight_state.conversations import NewChunk
from lastlight_state.testing import Database


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An empty database."""
    return made(tmp_path / "smithers.db")


def _packed(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def test_crons_are_planned_anew_and_do_not_fire_for_what_was_missed(store: Any, source: Path) -> None:
    """maintenance OP-86: one whose switch is NULL is off there, and here."""
    put(source, "cron", cron_id="nightly", last_run_at_ms=BEGIN + 5, next_run_at_ms=BEGIN + 10, error_json={"m": 1})
    put(source, "cron", cron_id="off", enabled=0)
    put(source, "cron", cron_id="unknown", enabled=None)
    done = store.maintenance.imports.run(source)
    assert (done.units, done.rows) == ({"imported": 3}, {"cron_schedules": 3})
    assert done.noticed == {"enabled_unknown": 1, "next_run_at_ms_left": 1}
    nightly, off, unknown = (store.schedules.crons.get(name) for name in ("nightly", "off", "unknown"))
    assert (nightly.pattern, nightly.target, nightly.target_kind, nightly.timezone) == (
        *("0 5 * * *", "w.tsx", "workflow", "UTC"),
    )
    assert (nightly.enabled, nightly.created_at, nightly.last_run_at, nightly.error) == (True, at(0), at(5), {"m": 1})
    assert (off.enabled, unknown.enabled, nightly.next_run_at) == (False, False, None)
    assert store.schedules.crons.take_due(owner="w") == ()
    planned = store.schedules.crons.get("nightly").next_run_at
    assert (planned.hour, planned > at(0)) == (5, True)
    assert store.maintenance.imports.run(source).units == {"unchanged": 3}


def test_a_cron_follows_its_source_until_it_is_changed_here(store: Any, source: Path) -> None:
    """maintenance OP-36, OP-86: one that was retired here stays so."""
    put(source, "cron", cron_id="nightly")
    store.maintenance.imports.run(source)
    store.schedules.crons.take_due(owner="w")
    change(source, "cron", "nightly", pattern="30 6 * * *", last_run_at_ms=BEGIN + 7)
    assert store.maintenance.imports.run(source).units == {"grown": 1}
    found = store.schedules.crons.get("nightly")
    assert (found.pattern, found.last_run_at, found.next_run_at) == ("30 6 * * *", at(7), None)
    store.schedules.crons.take_due(owner="w")
    assert store.schedules.crons.get("nightly").next_run_at.hour == 6
    store.schedules.crons.retire("nightly")
    change(source, "cron", "nightly", pattern="0 7 * * *")
    assert store.maintenance.imports.run(source).noticed == {"row_kept": 1}
    assert store.schedules.crons.get("nightly").pattern == "30 6 * * *"


def test_entries_of_the_cache_are_listed_under_their_own_keys(store: Any, source: Path) -> None:
    """maintenance OP-86: cells without a place are counted."""
    put(source, "cache", cache_key="k", payload_json={"a": 1}, agent_sig="g", tools_sig="t")
    done = store.maintenance.imports.run(source)
    assert (done.rows, done.noticed) == ({"output_cache": 1}, {"tools_sig_left": 1})
    [entry] = store.outputs.cache.list().items
    assert (entry.cache_key, entry.output_key, entry.created_at, entry.agent_signature) == ("k", "plans", at(0), "g")
    assert [one for one in store.maintenance.doctor.examine().findings if one.check != "DOC-03"] == []
    assert store.maintenance.imports.run(source).units == {"unchanged": 1}


def test_chunks_keep_their_namespace_and_can_be_searched(store: Any, source: Path) -> None:
    """maintenance OP-86."""
    put(source, "vectors", id="a", embedding=_packed(1, 0), document_id="d", chunk_index=3, metadata_json={"k": 1})
    put(source, "vectors", id="b", embedding=_packed(0, 1), chunk_index=None, content="other")
    put(source, "vectors", id="c", namespace="more", embedding=_packed(1, 2, 2), dimensions=3)
    done = store.maintenance.imports.run(source)
    assert (done.units, done.rows) == ({"imported": 3}, {"vector_namespaces": 2, "vectors": 3})
    vectors = store.conversations.vectors
    hits = vectors.search("docs", [0.0, 2.0], top_k=1)
    assert [(hit.chunk.id, hit.chunk.content) for hit in hits] == [("b", "other")]
    one = vectors.get("docs", "a")
    assert (one.document_id, one.chunk_index, one.chunk_metadata, one.created_at) == ("d", 3, {"k": 1}, at(0))
    put(source, "vectors", id="a", embedding=_packed(0, -1), content="new")
    assert store.maintenance.imports.run(source).units == {"grown": 1, "unchanged": 2}
    assert vectors.get("docs", "a").content == "new"
    vectors.clear("docs", ids=["a"])
    assert store.maintenance.imports.run(source).units == {"pruned": 1, "unchanged": 2}


@pytest.mark.parametrize(
    ("table", "row", "unit", "named"),
    [
        ("cron", {"cron_id": "x", "pattern": ""}, "cron/x", "pattern"),
        ("cron", {"cron_id": "x", "enabled": 7}, "cron/x", "enabled: must be 0 or 1"),
        ("cache", {"cache_key": "x", "payload_json": "torn"}, "cache/x", "payload_json: is not JSON"),
        ("vectors", {"id": "x", "embedding": b"abc"}, "vectors/x", "3 bytes"),
        ("vectors", {"id": "x", "embedding": _packed(1, 2, 3)}, "vectors/x", "the embedding has 3 numbers"),
        ("vectors", {"id": "x", "embedding": _packed(1), "dimensions": 1}, "vectors/x", "another dimensions"),
        ("vectors", {"id": "x", "embedding": _packed(1, 1), "metadata_json": "[]"}, "vectors/x", "metadata_json"),
    ],
)
def test_what_cannot_be_stored_fails_alone(
    sqlite_database: Database, source: Path, table: str, row: Any, unit: str, named: str
) -> None:
    """maintenance OP-35, OP-38, OP-86."""
    put(source, "vectors", id="a", embedding=_packed(1, 0))
    put(source, table, **{"created_at_ms": BEGIN + 1, **row})
    done = sqlite_database.open().maintenance.imports.run(source)
    assert (done.units, done.failures[0].unit) == ({"failed": 1, "imported": 1}, unit)
    assert named in done.failures[0].reason


@pytest.mark.parametrize(("later", "is_kept"), [(0, False), (-1, True)])
def test_an_entry_of_the_cache_follows_its_source_unless_it_is_newer_here(
    sqlite_database: Database, source: Path, later: int, is_kept: bool
) -> None:
    """maintenance OP-36, OP-86."""
    put(source, "cache", cache_key="k", payload_json={"a": 1})
    store = sqlite_database.open()
    store.maintenance.imports.run(source)
    put(source, "cache", cache_key="k", payload_json={"a": 2}, created_at_ms=BEGIN + later)
    done = store.maintenance.imports.run(source)
    assert done.noticed == ({"row_kept": 1} if is_kept else {})
    [stored] = sqlite_database.raw().execute("SELECT payload FROM output_cache").fetchall()
    assert ('"a":2' in stored[0]) is not is_kept


def test_a_chunk_that_was_put_again_here_stays(store: Any, source: Path) -> None:
    """maintenance OP-36, OP-86."""
    put(source, "vectors", id="a", embedding=_packed(1, 0))
    store.maintenance.imports.run(source)
    store.conversations.vectors.put("docs", [NewChunk("a", "mine", [0.0, 1.0])])
    put(source, "vectors", id="a", embedding=_packed(0, -1), content="theirs")
    assert store.maintenance.imports.run(source).noticed == {"row_kept": 1}
    assert store.conversations.vectors.get("docs", "a").content == "mine"


@pytest.mark.parametrize(
    ("change", "is_planned_anew"),
    [({"pattern": "0 6 * * *"}, True), ({"enabled": 0}, True), ({"last_run_at_ms": 5}, False)],
)
def test_a_cron_is_planned_anew_where_its_plan_has_changed(
    sqlite_database: Database, source: Path, change: dict[str, Any], is_planned_anew: bool
) -> None:
    """maintenance OP-86: what has not changed it leaves the next fire as it is planned here."""
    put(source, "cron", cron_id="nightly")
    store = sqlite_database.open()
    store.maintenance.imports.run(source)
    store.schedules.crons.take_due(owner="w")
    planned = store.schedules.crons.get("nightly").next_run_at
    put(source, "cron", cron_id="nightly", **change)
    assert store.maintenance.imports.run(source).units == {"grown": 1}
    assert planned is not None
    assert (store.schedules.crons.get("nightly").next_run_at != planned) == is_planned_anew


def test_a_cron_that_has_fired_here_stays(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-36, OP-86: it is planned and counted here since."""
    put(source, "cron", cron_id="nightly")
    store = sqlite_database.open()
    store.maintenance.imports.run(source)
    store.schedules.crons.take_due(owner="w")
    planned = store.schedules.crons.get("nightly").next_run_at
    assert planned is not None
    sqlite_database.clock.set(planned)
    assert len(store.schedules.crons.take_due(owner="w")) == 1
    put(source, "cron", cron_id="nightly", pattern="0 6 * * *")
    assert store.maintenance.imports.run(source).noticed == {"row_kept": 1}
    assert store.schedules.crons.get("nightly").pattern == "0 5 * * *"


def test_a_cron_that_was_changed_here_stays(store: Any, source: Path) -> None:
    """maintenance OP-36, OP-86."""
    put(source, "cron", cron_id="nightly")
    store.maintenance.imports.run(source)
    store.schedules.crons.retire("nightly")
    put(source, "cron", cron_id="nightly", workflow_path="other")
    assert store.maintenance.imports.run(source).noticed == {"row_kept": 1}
    assert store.schedules.crons.get("nightly").target == "w.tsx"
