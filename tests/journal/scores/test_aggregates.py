from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence

import pytest
from support.each import with_each
from support.workflows.steps import started

from lastlight_state import StateStore
from lastlight_state.errors import InvalidValue
from lastlight_state.journal import NewScore, ScoreFilter


def record(store: StateStore, run_id: str, scorer: str, values: Sequence[float], name: str = "Judge") -> None:
    """One score of each value, of iterations of a node."""
    with store.transaction() as tx:
        for i, value in enumerate(values):
            tx.journal.scores.record(NewScore(run_id, "n", scorer, name, "live", value, iteration=i))


def test_the_figures_of_a_scorer(store: StateStore) -> None:
    """journal K-3."""
    run = started(store).id
    record(store, run, "four", [4, 1, 3, 2])
    record(store, run, "one", [0.1])
    four, one = store.journal.scores.aggregate()
    assert (four.count, four.min, four.mean, four.max, four.p50) == (4, 1, 2.5, 4, 2.5)
    assert four.stddev == pytest.approx(1.118033988749895)
    assert (one.count, one.min, one.mean, one.max, one.p50, one.stddev) == (1, 0.1, 0.1, 0.1, 0.1, 0.0)
    assert (four.run_id, four.scorer_id, four.scorer_name) == (None, "four", "Judge")


def test_groups_are_told_apart_and_ordered_by_name_and_id(store: StateStore) -> None:
    """journal K-3: two names of one id are two groups, code points give the order, runs on demand."""
    first, second = (started(store).id for _ in range(2))
    for run in (first, second):
        for scorer, name in (("b", "judge"), ("a", "judge"), ("b", "Zeta"), ("b", "Éva")):
            record(store, run, f"{scorer}{name}" if name == "Zeta" else scorer, [1], name)
    assert store.journal.scores.list(where=ScoreFilter(run_ids=[first])).items
    found = store.journal.scores.aggregate()
    assert [(group.scorer_name, group.scorer_id) for group in found] == [
        ("Zeta", "bZeta"),
        ("judge", "a"),
        ("Éva", "b"),
    ]
    by_run = store.journal.scores.aggregate(group_by="scorer_and_run", where=ScoreFilter(scorer_id="a"))
    assert [group.run_id for group in by_run] == sorted([first, second])
    assert store.journal.scores.aggregate(where=ScoreFilter(run_ids=[])) == []
    assert store.journal.scores.aggregate(where=ScoreFilter(node_id="none")) == []
    for refused in ({"group_by": "node"}, {"where": ScoreFilter(history="all")}):
        with pytest.raises(InvalidValue):
            store.journal.scores.aggregate(**refused)


@with_each(
    "values",
    [
        [1e9 + 0.1, 1e9 + 0.2, 1e9 + 0.3, 1e9 + 0.4],
        [1e-200, 3e-200, -1.0, 1.0],
        [sys.float_info.max, -sys.float_info.max, sys.float_info.max],
        [sys.float_info.max, sys.float_info.max, 1e-300],
        [5e-324, 0.0, 1e-310],
        [1e72, 2e72, 3e72],
        [1e69, -1e69, 3e69],
        [0.1] * 10,
        [float(i * i % 101) / 7 for i in range(101)],
    ],
    ids=["close", "tiny", "wide", "huge", "subnormal", "large", "below large", "equal", "many"],
)
def test_figures_hold_where_sums_of_squares_do_not(values: list[float], store: StateStore) -> None:
    """journal K-3: on both databases, to within rounding."""
    run = started(store).id
    record(store, run, "judge", values)
    [group] = store.journal.scores.aggregate(where=ScoreFilter(run_ids=[run]))
    scale = max(map(abs, values))
    shrunk = [value / scale for value in values]
    assert group.count == len(values)
    assert (group.min, group.max) == (min(values), max(values))
    assert group.mean / scale == pytest.approx(statistics.mean(shrunk), rel=1e-12, abs=1e-12)
    assert group.p50 / scale == pytest.approx(statistics.median(shrunk), rel=1e-12, abs=1e-12)
    expected = 0.0 if scale < 1e-150 else statistics.pstdev(shrunk)
    assert group.stddev / scale == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_more_groups_than_there_may_be_ask_for_a_filter(store: StateStore) -> None:
    """journal K-3: 500 groups are given, one more is refused."""
    run = started(store).id
    with store.transaction() as tx:
        for i in range(501):
            tx.journal.scores.record(NewScore(run, "n", f"j{i}", "Judge", "live" if i else "batch", 1))
    assert len(store.journal.scores.aggregate(where=ScoreFilter(source="live"))) == 500
    with pytest.raises(InvalidValue, match="500 groups"):
        store.journal.scores.aggregate()
