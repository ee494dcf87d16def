"""What a thread of LangGraph takes, beside the shipped SQLite saver in the same run."""

from __future__ import annotations

import random
import sqlite3
import string
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import pytest
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver
from support.sent import recorded

from lastlight_state.integrations.langgraph import LangGraphSaver
from lastlight_state.testing import Database

STEPS, KB = 300, 1_000


def drive(saver: Any) -> Any:
    """Store a constant channel of 50 KB, and a list that grows by 1 KB a step. Returns the last checkpoint."""
    source = random.Random(1)
    constant, *items = ("".join(source.choices(string.ascii_letters, k=size)) for size in [50 * KB, *[KB] * STEPS])
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    versions: dict[str, Any] = {}
    for number in range(STEPS):
        new = {"list": saver.get_next_version(versions.get("list"), None)}
        if number == 0:
            new["constant"] = saver.get_next_version(None, None)
        versions = {**versions, **new}
        values = {"constant": constant, "list": items[: number + 1]}
        checkpoint: Any = {
            "v": 4, "id": str(uuid6(clock_seq=number)), "ts": "2026-01-01T00:00:00+00:00", "channel_values": values,
            "channel_versions": versions, "versions_seen": {"node": versions}, "updated_channels": None,
        }  # fmt: skip
        config = saver.put(config, checkpoint, {"source": "loop", "step": number, "parents": {}}, new)
        saver.put_writes(config, [("list", items[number])], f"task-{number}")
    return saver.get_tuple(config)


def test_a_thread_takes_a_tenth_of_what_the_shipped_saver_takes(sqlite_database: Database, tmp_path: Path) -> None:
    """checkpoints CK-44: after the same steps, the file's own schema included."""
    shipped = sqlite3.connect(tmp_path / "shipped.db", check_same_thread=False)
    theirs = drive(SqliteSaver(shipped))
    shipped.close()
    with sqlite_database.open() as store:
        ours = drive(LangGraphSaver(store))
    assert ours.checkpoint["channel_values"] == theirs.checkpoint["channel_values"]
    size = sum(file.stat().st_size for file in Path(sqlite_database.url).parent.glob("lastlight.db*"))
    assert 10 * size <= (tmp_path / "shipped.db").stat().st_size


@pytest.mark.soak
def test_a_step_costs_the_same_at_the_tenth_and_at_the_ten_thousandth(database: Database) -> None:
    """checkpoints CK-23: in statements and in time. `make frameworks ARGS="-m soak"` runs it."""
    with recorded(database) as (store, sent):
        saver = LangGraphSaver(store)
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        counts, times = [], []
        version: str | None = None
        for number in range(10_000):
            version = saver.get_next_version(version, None)
            checkpoint: Any = {
                "v": 4, "id": str(uuid6(clock_seq=number % 16_384)), "ts": "2026-01-01T00:00:00+00:00",
                "channel_values": {"text": "a" * 1_000 + str(number)}, "channel_versions": {"text": version},
                "versions_seen": {}, "updated_channels": None,
            }  # fmt: skip
            sent.clear()
            begun = perf_counter()
            config = saver.put(config, checkpoint, {"source": "loop", "step": number}, {"text": version})
            saver.put_writes(config, [("text", number)], f"task-{number}")
            saver.get_tuple(config)
            times.append(perf_counter() - begun)
            counts.append(len(sent))
        assert set(counts[10:20]) == set(counts[-10:])
        assert median(times[-200:]) < 3 * median(times[10:210])
