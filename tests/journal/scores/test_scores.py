from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.each import with_each
from support.refusal import refused
from support.sent import recorded
from support.undone import undone
from support.workflows.steps import Raw, all_pages, started, together

from lastlight_state import StateStore
from lastlight_state.errors import AlreadyExists, InvalidValue, NotFound, PayloadTooLarge
from lastlight_state.journal import NewScore, ScoreFilter
from lastlight_state.testing import Database, FrozenClock


def new(run_id: str, score: Any = 0.5, **given: Any) -> NewScore:
    """A score of the first attempt of a node by a scorer."""
    values: dict[str, Any] = {"node_id": "plan", "scorer_id": "judge-1", "scorer_name": "Judge", "source": "live"}
    return NewScore(run_id=run_id, score=score, **values | given)


def test_a_score_is_kept_with_what_the_scorer_was_given(store: StateStore, frozen_clock: FrozenClock) -> None:
    """journal K-1, K-2."""
    run, scores = started(store).id, store.journal.scores
    given = {"meta": {"model": "m"}, "input": [1], "output": "text", "expected": None}
    made = scores.record(new(run, 1, reason="good", latency_ms=1.5, duration_ms=2, iteration=3, attempt=2, **given))
    at_once = scores.record(new(run, 1, latency_ms=0, duration_ms=0.5))
    assert (at_once.latency_ms, at_once.duration_ms) == (0.0, 0.5)
    assert (made.score, made.meta, made.input, made.output, made.expected) == (1.0, {"model": "m"}, [1], "text", None)
    assert (made.iteration, made.attempt, made.latency_ms, made.duration_ms) == (3, 2, 1.5, 2.0)
    assert (made.scored_at, made.superseded_at) == (frozen_clock.now(), None)
    assert scores.get(made.id) == made
    assert not hasattr(scores.list().items[0], "input")
    with pytest.raises(NotFound):
        scores.get("none")


def test_a_rerun_with_equal_values_finds_the_stored_score(store: StateStore, frozen_clock: FrozenClock) -> None:
    """journal K-1: the time alone is no difference, and JSON is compared by value."""
    run, scores = started(store).id, store.journal.scores
    first = scores.record(new(run, 1, meta={"n": 1}))
    frozen_clock.advance(timedelta(seconds=1))
    assert scores.record(new(run, 1.0, meta={"n": 1.0}, scored_at=frozen_clock.now())) == first
    assert scores.record(new(run, 1, meta={"n": True})).id != first.id


def test_a_rerun_with_other_values_supersedes_the_score_before(store: StateStore, frozen_clock: FrozenClock) -> None:
    """journal K-1: one current row, and the aggregate counts it once."""
    run, scores = started(store).id, store.journal.scores
    first = scores.record(new(run, 0.2))
    frozen_clock.advance(timedelta(seconds=1))
    second = scores.record(new(run, 0.8))
    assert [score.id for score in scores.list().items] == [second.id]
    assert [score.id for score in scores.list(where=ScoreFilter(history="all")).items] == [second.id, first.id]
    assert scores.get(first.id).superseded_at == frozen_clock.now()
    [group] = scores.aggregate()
    assert (group.count, group.mean) == (1, 0.8)
    third = scores.record(new(run, 0.2))
    assert (third.id == first.id, [score.id for score in scores.list().items]) == (False, [third.id])
    assert scores.record(new(run, 0.8)).id != second.id
    assert len(scores.list(where=ScoreFilter(history="all")).items) == 4
    for other in ({"attempt": 2}, {"iteration": 1}, {"source": "batch"}, {"scorer_id": "j2"}, {"node_id": "n"}):
        scores.record(new(run, 0.8, **other))
    assert sum(group.count for group in scores.aggregate()) == 6


@pytest.mark.parametrize("ids", [("s-1", "s-2"), ("s-2", "s-1")])
def test_an_id_of_the_callers_is_stored_once(ids: tuple[str, str], store: StateStore) -> None:
    """journal K-1, D-1, D-2: also after another score has superseded it."""
    run, scores = started(store).id, store.journal.scores
    first = scores.record(new(run, 0.2, id=ids[0]))
    assert scores.record(new(run, 0.2, id=ids[0])) == first
    second = scores.record(new(run, 0.2, id=ids[1]))
    again = scores.record(new(run, 0.2, id=ids[0]))
    assert (again.id, again.superseded_at, second.superseded_at) == (ids[0], second.scored_at, None)
    for other in (new(run, 0.3, id=ids[0]), new(run, 0.2, id=ids[0], node_id="test")):
        with pytest.raises(AlreadyExists) as raised:
            scores.record(other)
        assert raised.value.key == ids[0]
    assert [score.id for score in scores.list().items] == [ids[1]]


def test_racing_reruns_leave_one_current_score(every_backend: StateStore, run_id: str) -> None:
    """journal K-1."""
    scores = every_backend.journal.scores
    for values in (range(6), range(10, 16), [20] * 6):
        told = together([lambda value=value: scores.record(new(run_id, value)) for value in values])  # type: ignore[misc]
        ids = {one.id for one in told if not isinstance(one, BaseException)}
        assert (len(ids), len(told)) == (len(set(values)), 6)
        assert scores.list().items[0].id in ids
        assert len(scores.list().items) == 1
    assert len(scores.list(where=ScoreFilter(history="all")).items) == 13


def test_a_score_that_comes_between_the_look_and_the_write_is_superseded(database: Database) -> None:
    """journal K-1: two first scores of an attempt, one of which was stored just before the other looked."""
    with recorded(database) as (store, sent), database.open() as other:
        run = started(store).id
        sent.before("INSERT INTO", lambda: other.journal.scores.record(new(run, 0.1)))
        stored = store.journal.scores.record(new(run, 0.2))
        assert [score.id for score in other.journal.scores.list().items] == [stored.id]
        assert len(other.journal.scores.list(where=ScoreFilter(history="all")).items) == 2


def test_a_rerun_inside_a_transaction_that_rolls_back_changes_nothing(store: StateStore) -> None:
    """journal K-1."""
    run = started(store).id
    first = store.journal.scores.record(new(run, 0.2))
    undone(store, lambda tx: tx.journal.scores.record(new(run, 0.4)))
    assert store.journal.scores.list().items[0].id == first.id
    assert store.journal.scores.get(first.id).superseded_at is None


@with_each(
    "given",
    [
        {"score": float("nan")}, {"score": float("-inf")}, {"score": 10**400}, {"score": "1"}, {"score": True},
        {"source": "dream"}, {"latency_ms": -1}, {"duration_ms": float("inf")}, {"attempt": 0}, {"iteration": -1},
        {"node_id": ""}, {"scorer_id": "x" * 257}, {"scorer_name": None}, {"id": "a\nb"}, {"meta": {1: 2}},
    ],
)  # fmt: skip
def test_what_is_no_score_is_refused(given: dict[str, Any], store: StateStore) -> None:
    """journal K-1, J-3."""
    run = started(store).id
    with pytest.raises(InvalidValue):
        store.journal.scores.record(new(run, **given))
    assert store.journal.scores.list(where=ScoreFilter(history="all")).items == ()


def test_a_score_beyond_every_float_is_told_so(store: StateStore) -> None:
    """journal K-1: it is a number, as the annotation asks for."""
    run = started(store).id
    for given in ({"score": 10**400}, {"latency_ms": -(10**400)}):
        with pytest.raises(InvalidValue, match=rf"^score\.{next(iter(given))}: must be within the range of a float$"):
            store.journal.scores.record(new(run, **given))


def test_values_of_a_score_have_limits_and_a_run(store: StateStore) -> None:
    """journal J-2, J-3."""
    run, scores = started(store).id, store.journal.scores
    assert scores.record(new(run, input="x" * (65_536 - 2), reason="r" * 4_096)).input
    for large in ({"input": "x" * 65_535}, {"expected": "x" * 65_535}, {"reason": "r" * 4_097}):
        with pytest.raises(PayloadTooLarge):
            scores.record(new(run, **large))
    with pytest.raises(NotFound):
        scores.record(new("nobody"))


def test_scores_are_listed_by_their_time_and_by_every_filter(store: StateStore, frozen_clock: FrozenClock) -> None:
    """journal K-2, J-5: the newest first, superseded ones only when asked for."""
    runs, scores = [started(store).id for _ in range(3)], store.journal.scores
    began = frozen_clock.now()
    for i in range(6):
        scores.record(
            new(runs[i % 3], i, node_id=f"n{i % 2}", scorer_id=f"j{i % 2}", source="batch" if i == 5 else "live")
        )
        frozen_clock.advance(timedelta(seconds=1))
    scores.record(new(runs[0], 10, node_id="n0", scorer_id="j0", scored_at=began))
    for given, wanted in (
        ({}, [5, 4, 3, 2, 1, 10]),
        ({"run_ids": runs[:2]}, [4, 3, 1, 10]),
        ({"run_ids": [], "scorer_id": "j0"}, []),
        ({"node_id": "n1", "scorer_id": "j1"}, [5, 3, 1]),
        ({"source": "batch"}, [5]),
        ({"since": began + timedelta(seconds=1), "until": began + timedelta(seconds=4)}, [3, 2, 1]),
        ({"run_ids": runs[:1], "history": "all"}, [3, 10, 0]),
    ):
        found = all_pages(scores.list, limit=2, where=ScoreFilter(**given))
        assert sorted(score.score for score in found) == sorted(wanted)
        assert [score.scored_at for score in found] == sorted((score.scored_at for score in found), reverse=True)
    token = scores.list(limit=1).next_page_token
    for refusal in ({"where": ScoreFilter(run_ids=[str(i) for i in range(101)])}, {"limit": 0}):
        with pytest.raises(InvalidValue):
            scores.list(**refusal)
    with pytest.raises(InvalidValue):
        scores.list(where=ScoreFilter(source="live"), page_token=token)


def test_plain_sql_can_neither_change_nor_remove_a_score(store: StateStore, raw: Raw) -> None:
    """journal J-4."""
    score = store.journal.scores.record(new(started(store).id))
    for sql in ("UPDATE scores SET score = 2", "DELETE FROM scores"):
        with refused():
            raw(sql)
    assert store.journal.scores.get(score.id) == score


def test_a_first_score_and_every_read_are_one_round_trip(database: Database) -> None:
    """journal P-3."""
    with recorded(database) as (store, sent):
        run, scores = started(store).id, store.journal.scores
        sent.clear()
        made = scores.record(new(run))
        scores.get(made.id)
        scores.list(where=ScoreFilter(run_ids=[run]))
        scores.aggregate(where=ScoreFilter(scorer_id="judge-1"))
        assert len(sent) == 4
