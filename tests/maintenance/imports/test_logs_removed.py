"""A log of an agent that was removed here stays away, whichever projects of its source have one of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

LINE = (
    b'{"type":"user","message":{"role":"user","content":"%s"},'
    b'"timestamp":"2026-01-05T10:00:00.000Z","sessionId":"main"}\n'
)


def _put(root: Path, slug: str, said: bytes = b"hi") -> Path:
    path = root / "agent-sessions" / "projects" / slug / "main.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(LINE % said)
    return path


def _here(store: Any) -> list[str]:
    return sorted(str(path.parent.name) for path in store.agent_log.root.rglob("main.jsonl"))


def _remove(store: Any, slug: str) -> None:
    next(path for path in store.agent_log.root.rglob("main.jsonl") if path.parent.name == slug).unlink()


def test_a_log_that_was_removed_here_stays_away_while_a_copy_is_in_another_project(store: Any, tmp_path: Path) -> None:
    """maintenance M-121."""
    imports, root = store.maintenance.imports, tmp_path / "theirs"
    _put(root, "-app")
    _put(root, "-other")
    assert imports.run(root).units == {"imported": 2}
    _remove(store, "-app")
    plan, done = imports.plan(root), imports.run(root)
    assert plan.units == done.units == {"pruned": 1, "unchanged": 1}
    assert _here(store) == ["-other"]
    assert imports.run(root, revive=True).failures == ()
    assert _here(store) == ["-app", "-other"]


def test_a_log_of_the_name_of_a_removed_one_is_named(store: Any, tmp_path: Path) -> None:
    """maintenance M-121: it is not brought in, and the report says why."""
    imports, root = store.maintenance.imports, tmp_path / "theirs"
    _put(root, "-app")
    imports.run(root)
    _remove(store, "-app")
    _put(root, "-other", b"something else")
    done = imports.run(root)
    assert (done.units, [one.unit for one in done.conflicts]) == ({"pruned": 2}, ["-other/main.jsonl"])


@pytest.mark.parametrize("slugs", [("-old", "-new"), ("-a" * 125, "-b" * 125)], ids=["short", "long"])
@pytest.mark.parametrize("revive", [False, True])
def test_a_log_goes_on_where_it_is_when_its_project_is_renamed(
    store: Any, tmp_path: Path, slugs: tuple[str, str], *, revive: bool
) -> None:
    """maintenance M-121, OP-85: also under names that are too long for the ledger; removed here, it stays away."""
    imports, root, (old, new) = store.maintenance.imports, tmp_path / "theirs", slugs
    path = _put(root, old)
    assert imports.run(root).units == {"imported": 1}
    path.parent.rename(path.parent.with_name(new))
    plan, done = imports.plan(root, revive=revive), imports.run(root, revive=revive)
    assert plan.units == done.units == {"imported": 1}
    assert (done.rows, _here(store)) == ({}, [old])
    assert imports.run(root).units == {"unchanged": 1}
    path = path.parent.with_name(new) / path.name
    path.write_bytes(path.read_bytes() + LINE % b"more")
    assert imports.run(root).units == {"grown": 1}
    assert [one.read_bytes() for one in store.agent_log.root.rglob("main.jsonl")] == [path.read_bytes()]
    _remove(store, old)
    assert imports.run(root).units == {"pruned": 1}


def test_a_log_of_another_beginning_is_not_that_of_a_project_that_is_gone(store: Any, tmp_path: Path) -> None:
    """maintenance M-120, OP-85: nor is a copy while both projects are there."""
    imports, root = store.maintenance.imports, tmp_path / "theirs"
    first = _put(root, "-one")
    _put(root, "-two")
    imports.run(root)
    assert _here(store) == ["-one", "-two"]
    first.unlink()
    _put(root, "-other", b"something else")
    imports.run(root)
    assert _here(store) == ["-one", "-other", "-two"]
