"""A session of the Agents SDK of which items were taken back, here or in its source, goes on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.maintenance.named_sources import SOURCES

from lastlight_state.conversations import NewMessage, runtime

_KEY = "openai-agents/session/user_1"
_READ = SOURCES["openai-agents-db"].read


def _sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as raw, raw:
        for one in statements:
            raw.execute(one)


def _say(path: Path, text: str, at: str = "2026-02-03 13:00:00") -> None:
    item = json.dumps({"role": "user", "content": text})
    _sql(
        path,
        f"INSERT OR IGNORE INTO agent_sessions VALUES ('user_1', '{at}', '{at}')",
        f"INSERT INTO agent_messages VALUES (NULL, 'user_1', '{item}', '{at}')",
    )


def _clear(path: Path) -> None:
    _sql(path, "DELETE FROM agent_messages", "DELETE FROM agent_sessions")


def _pop_all(path: Path) -> None:
    _sql(path, "DELETE FROM agent_messages")


def _pop_one(path: Path) -> None:
    _sql(path, "DELETE FROM agent_messages WHERE id = 2")


@pytest.mark.parametrize("take", [_clear, _pop_all, _pop_one])
@pytest.mark.parametrize("is_seen", [True, False])
def test_what_a_source_says_after_it_took_items_back_comes_behind(
    store: Any, tmp_path: Path, take: Callable[[Path], None], *, is_seen: bool
) -> None:
    """maintenance M-120: whether or not an import saw it in between; what was taken back there stays here."""
    source, imports = SOURCES["openai-agents-db"].write(tmp_path, "said", 2), store.maintenance.imports
    imports.run(source)
    take(source)
    if is_seen:
        assert imports.run(source).failures == ()
    for number in range(3):
        _say(source, f"more {number}")
        assert imports.run(source).failures == ()
        assert imports.run(source).units == {"unchanged": 1}
    assert _READ(store, None) == ["said 0", "said 1", "more 0", "more 1", "more 2"]


@pytest.mark.parametrize("count", [1, 2])
def test_items_that_were_popped_here_stay_away_and_new_ones_come(
    every_backend: Any, tmp_path: Path, count: int
) -> None:
    """maintenance M-121: until the session is revived; where it went on here, too, it is refused by name."""
    source, imports = SOURCES["openai-agents-db"].write(tmp_path, "said", 2), every_backend.maintenance.imports
    imports.run(source)
    every_backend.conversations.branches.pop(_KEY, count)
    left = ["said 0", "said 1"][: 2 - count]
    for number in range(2):
        _say(source, f"more {number}")
        assert (imports.run(source).failures, _READ(every_backend, None)[: len(left) + 1]) == ((), [*left, "more 0"])
    assert imports.run(source, revive=["user_1"]).units == {"grown": 1}
    assert _READ(every_backend, None) == ["said 0", "said 1", "more 0", "more 1"]
    said = runtime.pack_item({"role": "user", "content": "here"})
    every_backend.conversations.branches.append(_KEY, [NewMessage("user", said)])
    _say(source, "more 2")
    [failed] = imports.run(source).failures
    assert "a scope" in failed.reason or "with a scope" in failed.reason
    assert imports.run(source, scope="theirs").units == {"imported": 1}


def test_a_branch_that_was_deleted_here_stays_away_until_it_is_revived(every_backend: Any, tmp_path: Path) -> None:
    """maintenance M-121."""
    source, imports = SOURCES["openai-agents-db"].write(tmp_path, "said", 2), every_backend.maintenance.imports
    imports.run(source)
    every_backend.conversations.branches.delete(_KEY)
    for number in range(2):
        _say(source, f"more {number}")
        assert imports.run(source).failures == ()
        assert every_backend.conversations.branches.find(_KEY) is None
    assert imports.run(source, revive=["user_1"]).failures == ()
    assert _READ(every_backend, None) == ["said 0", "said 1", "more 0", "more 1"]


def test_a_file_that_was_begun_anew_is_another_source_also_with_higher_numbers(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: it gave the numbers of the last import later than that."""
    named, imports = SOURCES["openai-agents-db"], store.maintenance.imports
    source = named.write(tmp_path, "said", 2)
    imports.run(source)
    source.unlink()
    named.write(tmp_path, "other", 0)
    _clear(source)
    row = ("INSERT INTO agent_messages VALUES (NULL, 'other', '{\"content\": \"x\"}', '2026-02-03 13:00:00')",) * 3
    _sql(source, *row)
    _say(source, "another", "2026-02-03 14:00:00")
    assert [one.unit for one in imports.run(source).failures] == ["user_1"]
    assert _READ(store, None) == ["said 0", "said 1"]


def test_a_session_that_was_empty_gets_its_first_items(store: Any, tmp_path: Path) -> None:
    """maintenance M-120."""
    named, imports = SOURCES["openai-agents-db"], store.maintenance.imports
    source = named.write(tmp_path, "said", 0)
    imports.run(source)
    _say(source, "first", "2026-02-03 12:00:00")
    assert (imports.run(source).units, _READ(store, None)) == ({"grown": 1}, ["first"])
