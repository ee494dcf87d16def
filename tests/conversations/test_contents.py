"""What the messages of a history say, read alone for adapters."""

from __future__ import annotations

import pytest
from support.conversations.talk import begun, said
from support.sealing import Bound, Xor

from lastlight_state import StateStore
from lastlight_state.testing import Database


def listed(store: StateStore, branch_id: str, first: int, until: int) -> list[object]:
    """Return the same from pages of the history."""
    page = store.conversations.branches.history(branch_id, limit=50)
    return [one.message.content for one in page.items if first <= one.ord < until]


@pytest.mark.parametrize("codec", [None, Xor(7), Bound(1)], ids=["plain", "sealed", "bound"])
def test_contents_are_those_of_the_pages_of_a_history(database: Database, codec: Xor | Bound | None) -> None:
    """conversations CV-23: through ancestors, in any range, sealed or not."""
    store = database.open() if codec is None else database.open(codec=codec)
    begun(store, "m0", "m1", "m2", "m3")
    branches = store.conversations.branches
    fork = store.conversations.lineage.fork("main", at=2)
    branches.append(fork.id, said("f0", "f1"))
    twice = store.conversations.lineage.fork(fork.id, at=3)
    branches.append(twice.id, said("g0"))
    for branch_id, length in (("main", 4), (fork.id, 4), (twice.id, 4)):
        for first in range(length + 1):
            for until in range(first, length + 1):
                assert branches._contents(branch_id, first, until) == listed(store, branch_id, first, until)
