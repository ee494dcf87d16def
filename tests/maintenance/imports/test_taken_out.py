"""What was taken out of an order here stays out of it, however often its source grows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.maintenance import state_databases
from support.maintenance.run_folders import branch, message, write_run

#: Writes a source whose only branch has so many messages.
Write = Callable[[Path, int], Path]


def _runs(root: Path, count: int) -> Path:
    write_run(root / "runs", "s", branch("b", [message(f"m{i}", i) for i in range(count)]))
    return root / "runs"


def _database(root: Path, count: int) -> Path:
    path, ids = root / "state.db", [f"m{i}" for i in range(count)]
    path.unlink(missing_ok=True)
    state_databases.made(path)
    for number, one in enumerate(ids):
        state_databases.put_message(path, one, number)
    state_databases.put_session(path, "s", ids, updated_at=state_databases.BEGIN + 60 + count)
    state_databases.put_branch(path, "s", "b", ids)
    return path


def _pop(store: Any) -> None:
    store.conversations.branches.pop("b")


def _truncate(store: Any) -> None:
    store.conversations.progressions.truncate(store.conversations.branches.get("b").progression_id, 1)


def _replace(store: Any) -> None:
    order = store.conversations.progressions.get(store.conversations.branches.get("b").progression_id)
    store.conversations.progressions.replace(order.id, ["m0", "m2"], expect_version=order.version)


def _here(store: Any) -> list[str]:
    return [one.message.id for one in store.conversations.branches.history("b", limit=50)]


@pytest.mark.parametrize("write", [_runs, _database])
@pytest.mark.parametrize(("take", "left"), [(_pop, "m0 m1"), (_truncate, "m0"), (_replace, "m0 m2")])
@pytest.mark.parametrize("counts", [(3, 4, 5, 6), (3, 3, 4, 5), (3, 1, 3, 4), (3, 2, 3, 5)])
def test_a_message_that_was_taken_out_stays_out_over_several_growths(
    store: Any, tmp_path: Path, write: Write, take: Callable[[Any], None], left: str, counts: tuple[int, ...]
) -> None:
    """maintenance M-121: also where the source had fewer messages in between; what is new of it comes in."""
    imports, (first, *later) = store.maintenance.imports, counts
    imports.run(write(tmp_path, first))
    take(store)
    gone = {f"m{i}" for i in range(3)} - set(left.split())
    for count in later:
        assert imports.run(write(tmp_path, count)).failures == ()
        assert not gone & set(_here(store))
    assert _here(store)[: len(left.split())] == left.split()
    assert _here(store)[-1] == f"m{later[-1] - 1}"
    assert imports.run(write(tmp_path, later[-1]), revive=True).failures == ()
    assert _here(store) == [f"m{i}" for i in range(later[-1])]
