"""A source that its program writes while it is read as a file that nobody uses."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.maintenance.named_sources import SOURCES

from lastlight_state.maintenance.imports import agent_histories

_AT = "2026-02-03 12:00:00"


def _say(path: Path, session: str) -> None:
    item = json.dumps({"role": "user", "content": "said"})
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("INSERT INTO agent_messages VALUES (NULL, ?, ?, ?)", (session, item, _AT))


@pytest.mark.parametrize("writes", [1, 3])
def test_the_other_units_of_a_source_that_was_written_meanwhile_come_in(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """maintenance OP-35: it is opened anew, and no unit is counted twice."""
    source = SOURCES["openai-agents-db"].write(tmp_path, "said", 1)
    names = [f"s{number}" for number in range(9)]
    for one in names:
        _say(source, one)
    left = [*names[2 : 2 + writes]]
    found = agent_histories._piece

    def piece(file: Any, name: Any, *given: Any) -> Any:
        if name in left:
            left.remove(name)
            _say(source, "s0")
        return found(file, name, *given)

    monkeypatch.setattr(agent_histories, "_piece", piece)
    done = store.maintenance.imports.run(source)
    assert (done.failures, done.units) == ((), {"imported": 10})
    assert store.maintenance.imports.run(source).units == {"grown": 1, "unchanged": 9}
