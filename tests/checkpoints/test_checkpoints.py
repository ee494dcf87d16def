"""Checkpoints of threads: stored, read, listed, copied and removed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.checkpoints.steps import NOTHING, content, ids, step, texts, write
from support.each import with_each

from lastlight_state import AlreadyExists, ClaimLost, Conflict, InvalidValue, NotFound, PayloadTooLarge, StaleVersion
from lastlight_state.checkpoints import Content, NewCheckpoint, NewWrite
from lastlight_state.testing import Database, racing
from lastlight_state.workflows import Trigger


def test_a_checkpoint_reads_back_whole(store: Any) -> None:
    """checkpoints CK-1, CK-2: content, versions, new and earlier values, metadata and parent."""
    c = store.checkpoints
    first = step(1, {"a": "one", "b": "same"}, metadata={"step": 1}, run_ref="run")
    c.put("t", first)
    stored = c.put("t", step(2, {"a": "two"}, versions={"b": "1"}, parent_id="step-1"))
    found = c.get("t")
    assert (stored.id, stored.seq, found.id, found.parent_id) == ("step-2", 2, "step-2", "step-1")
    assert (found.content, found.versions) == (NOTHING, {"a": "2", "b": "1"})
    assert texts(found) == {"a": "two", "b": "same"}
    before = c.get("t", "step-1")
    assert (texts(before), before.metadata, before.run_ref) == ({"a": "one", "b": "same"}, {"step": 1}, "run")


def test_a_channel_whose_version_has_no_value_is_without_one(store: Any) -> None:
    """checkpoints CK-2."""
    store.checkpoints.put("t", step(1, {"a": "one"}, versions={"never": "7"}))
    found = store.checkpoints.get("t")
    assert (found.versions, texts(found)) == ({"a": "1", "never": "7"}, {"a": "one"})


def test_a_checkpoint_of_the_same_id_is_replaced_in_its_place(store: Any, database: Database) -> None:
    """checkpoints CK-3."""
    c = store.checkpoints
    first = c.put("t", step(1, {"a": "one"}))
    c.put("t", step(2, {"a": "two"}))
    database.clock.advance(seconds=60)
    again = c.put("t", NewCheckpoint("step-1", content("new"), {"a": "3"}, {"a": content("three")}))
    assert (again.seq, again.created_at) == (1, first.created_at)
    assert c.get("t").id == "step-2"
    found = c.get("t", "step-1")
    assert (found.content.data, texts(found)) == (b"new", {"a": "three"})


def test_a_version_keeps_its_value(store: Any) -> None:
    """checkpoints CK-4: another value is refused, and nothing of the checkpoint is stored."""
    c = store.checkpoints
    c.put("t", step(1, {"a": "one"}))
    c.put("t", NewCheckpoint("again", NOTHING, {"a": "1"}, {"a": content("one")}))
    with pytest.raises(AlreadyExists):
        c.put("t", NewCheckpoint("other", NOTHING, {"a": "1"}, {"a": content("other")}))
    with pytest.raises(AlreadyExists):
        c.put("t", NewCheckpoint("other", NOTHING, {"a": "1"}, {"a": Content("json", b"one")}))
    assert (c.find("t", "other"), texts(c.get("t"))) == (None, {"a": "one"})
    c.put("t", NewCheckpoint("other", NOTHING, {"a": "1"}, {"a": content("other")}), on_conflict="keep")
    assert texts(c.get("t", "other")) == {"a": "one"}


def test_of_two_who_go_on_with_a_thread_one_is_refused(store: Any) -> None:
    """checkpoints CK-5."""
    c = store.checkpoints
    c.put("t", step(1), after=None)
    c.put("t", step(2), after="step-1")
    with pytest.raises(StaleVersion) as refused:
        c.put("t", step(3), after="step-1")
    assert (refused.value.expected, refused.value.found) == ("step-1", "step-2")
    with pytest.raises(StaleVersion):
        c.put("t", step(4), after=None)
    c.put("t", step(1, namespace="inner"), after=None)
    assert ids(c.list("t", namespace="")) == ["step-2", "step-1"]


def test_a_fenced_runner_stores_no_checkpoint(database: Database) -> None:
    """checkpoints CK-5: in a transaction with the claim of a run."""
    store = database.open()
    run = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p")
    claim = store.workflows.claims.take(run.id, owner="a")
    with store.transaction(claim=claim) as tx:
        tx.checkpoints.put("t", step(1, {"a": "one"}))
    database.clock.advance(seconds=86_400)
    store.workflows.claims.take(run.id, owner="b")
    with pytest.raises(ClaimLost), store.transaction(claim=claim) as tx:
        tx.checkpoints.put("t", step(2, {"a": "two"}))
    assert store.checkpoints.get("t").id == "step-1"


def test_a_checkpoint_shares_a_transaction_with_anything_else(every_backend: Any) -> None:
    """checkpoints CK-6."""
    store = every_backend

    def fail() -> None:
        with store.transaction() as tx:
            tx.checkpoints.put("t", step(1, {"a": "one"}))
            tx.checkpoints.put_writes("t", "step-1", "task", [write(0, "w")])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(NotFound):
        store.checkpoints.thread("t")


def test_of_two_writes_in_one_place_the_first_stays_or_the_last(store: Any) -> None:
    """checkpoints CK-7: in the order of path, task and place."""
    c = store.checkpoints
    c.put("t", step(1))
    c.put_writes("t", "step-1", "b", [write(0, "first", path="x"), write(1, "second", path="x")])
    c.put_writes("t", "step-1", "b", [write(0, "late"), write(2, "third", path="x")])
    c.put_writes("t", "step-1", "a", [write(-1, "error")], on_conflict="replace")
    c.put_writes("t", "step-1", "a", [write(-1, "worse", channel="z", path="y")], on_conflict="replace")
    c.put_writes("t", "step-1", "c", [write(-1, "last", path="x")])
    c.put_writes("t", "step-1", "a", [])
    found = [(one.path, one.task, one.idx, one.channel, one.content.data) for one in c.get("t").writes]
    assert found == [
        ("x", "b", 0, "a", b"first"),
        ("x", "b", 1, "a", b"second"),
        ("x", "b", 2, "a", b"third"),
        ("x", "c", -1, "a", b"last"),
        ("y", "a", -1, "z", b"worse"),
    ]


def test_a_list_is_newest_first_of_one_namespace_or_of_all(store: Any) -> None:
    """checkpoints CK-8."""
    c = store.checkpoints
    for number in range(1, 6):
        c.put("t", step(number, namespace="inner" if number == 3 else "", metadata={"odd": number % 2 == 1}))
    assert ids(c.list("t")) == ["step-5", "step-4", "step-3", "step-2", "step-1"]
    assert ids(c.list("t", namespace="", before="step-4", limit=1)) == ["step-2"]
    first = c.list("t", namespace="", limit=3)
    assert ids(c.list("t", namespace="", limit=3, page_token=first.next_page_token)) == ["step-1"]
    assert ids(c.list("t", namespace="inner")) == ["step-3"]
    assert (ids(c.list("nobody")), ids(c.list("t", scope="other"))) == ([], [])
    with pytest.raises(NotFound):
        c.list("t", before="step-9")
    with pytest.raises(NotFound):
        c.list("t", namespace="inner", before="step-5")


@with_each(
    ("where", "found"),
    [
        ({"step": 1}, ["step-1"]),
        ({"source": "loop"}, ["step-2", "step-1"]),
        ({"source": "loop", "step": 2}, ["step-2"]),
        ({"source": "input", "step": 2}, []),
        ({"flag": True}, ["step-2"]),
        ({"flag": 1}, ["step-1"]),
        ({"none": None}, ["step-1"]),
        ({"part": 0.5}, ["step-2"]),
        ({"part": 1.0}, ["step-1"]),
        ({"inner": 1}, []),
        ({"outer.inner": 1}, []),
        ({}, ["step-3", "step-2", "step-1"]),
    ],
    ids=str,
)
def test_a_list_is_filtered_by_members_of_the_metadata(store: Any, where: dict[str, Any], found: list[str]) -> None:
    """checkpoints CK-9: an absent member equals nothing, a flag is no number."""
    c = store.checkpoints
    first = {"step": 1, "source": "loop", "none": None, "flag": 1, "part": 1, "outer": {"inner": 1}}
    c.put("t", step(1, metadata=first))
    c.put("t", step(2, metadata={"step": 2, "source": "loop", "flag": True, "part": 0.5}))
    c.put("t", step(3))
    assert ids(c.list("t", where=where)) == found
    assert ids(c.history("t", where=where)) == ids(c.list("t", where=where))


def test_a_history_shows_whole_checkpoints(store: Any) -> None:
    """checkpoints CK-10."""
    c = store.checkpoints
    for number in range(1, 8):
        c.put("t", step(number, {"a": "x" * number}, versions={"b": "1"} if number > 1 else {}))
        c.put_writes("t", f"step-{number}", "task", [write(0, str(number))])
    page = c.history("t", limit=4)
    assert [texts(one)["a"] for one in page] == ["x" * number for number in (7, 6, 5, 4)]
    assert [one.writes[0].content.data for one in page] == [b"7", b"6", b"5", b"4"]
    rest = c.history("t", limit=4, page_token=page.next_page_token)
    assert (ids(rest), rest.next_page_token) == (["step-3", "step-2", "step-1"], None)
    assert rest.items[0] == c.get("t", "step-3")


def test_a_page_of_any_size_takes_the_same_statements(database: Database) -> None:
    """checkpoints CK-10."""
    store = database.open()
    for number in range(1, 41):
        store.checkpoints.put("t", step(number, {"a": str(number)}))
        store.checkpoints.put_writes("t", f"step-{number}", "task", [write(0, "w")])
    with racing(store) as race:
        store.checkpoints.history("t", limit=1)
        small = len(race.statements)
        assert len(store.checkpoints.history("t", limit=40)) == 40
        assert len(race.statements) - small == small


def test_a_copy_has_everything_and_goes_its_own_way(store: Any) -> None:
    """checkpoints CK-11: user and expiry included."""
    c = store.checkpoints
    for number in range(1, 4):
        c.put("t", step(number, {"a": "x" * number}), user="ana", ttl=timedelta(days=1))
    c.put_writes("t", "step-3", "task", [write(0, "w")])
    source = c.thread("t")
    assert c.copy("t", "u", target_scope="other") == 3
    c.delete("t")
    c.put("u", step(4, {"a": "xxxx"}), scope="other")
    found = c.history("u", scope="other")
    assert [texts(one)["a"] for one in found] == ["xxxx", "xxx", "xx", "x"]
    assert [len(one.writes) for one in found] == [0, 1, 0, 0]
    copied = c.thread("u", scope="other")
    assert (copied.user, copied.expires_at) == ("ana", source.expires_at)
    with pytest.raises(Conflict) as refused:
        c.copy("u", "u", scope="other")
    assert refused.value.code == "thread_not_empty"
    with pytest.raises(NotFound):
        c.copy("t", "v")


def test_a_thread_is_not_copied_over_another(store: Any) -> None:
    """checkpoints CK-11."""
    c = store.checkpoints
    for thread in ("t", "u"):
        c.put(thread, step(1))
        c.put_writes(thread, "step-1", "task", [write(0, thread)])
    with pytest.raises(Conflict) as refused:
        c.copy("t", "u")
    assert refused.value.code == "thread_not_empty"
    assert [one.content.data for one in c.get("u").writes] == [b"u"]


def test_a_thread_is_deleted_with_everything(store: Any, database: Database) -> None:
    """checkpoints CK-12: others stay."""
    c = store.checkpoints
    for thread in ("t", "u"):
        c.put(thread, step(1, {"a": "one"}))
        c.put_writes(thread, "step-1", "task", [write(0, "w")])
    assert (c.delete("t"), c.delete("t"), c.find("t")) == (1, 0, None)
    assert texts(c.get("u")) == {"a": "one"}
    raw = database.raw()
    for table in ("checkpoint_threads", "checkpoints", "checkpoint_values", "checkpoint_writes"):
        assert raw.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 1


def test_the_checkpoints_of_a_run_go_and_values_that_others_name_stay(store: Any) -> None:
    """checkpoints CK-13."""
    c = store.checkpoints
    for thread in ("t", "u"):
        for number in range(1, 7):
            run = "keep" if number in (2, 6) else "go"
            held = {"b": "1"} if number > 1 else {}
            c.put(thread, step(number, {"a": "x" * 100 * number}, versions=held, run_ref=run))
            c.put_writes(thread, f"step-{number}", "task", [write(0, "w")])
    assert (c.delete_runs(["go", "nobody"]), c.delete_runs(["go"]), c.delete_runs([])) == (8, 0, 0)
    for thread in ("t", "u"):
        found = c.history(thread)
        assert [texts(one)["a"] for one in found] == ["x" * 600, "x" * 200]
        assert [len(one.writes) for one in found] == [1, 1]


def test_the_checkpoints_of_a_run_go_in_one_scope_alone(store: Any) -> None:
    """checkpoints CK-13."""
    c = store.checkpoints
    for scope in ("", "other"):
        c.put("t", step(1, {"a": "one"}, run_ref="run"), scope=scope)
    assert (c.delete_runs(["run"], scope="other"), c.delete_runs(["run"], scope="nobody")) == (1, 0)
    assert (c.find("t", scope="other"), c.get("t").id) == (None, "step-1")


def test_the_latest_of_each_namespace_stay(store: Any) -> None:
    """checkpoints CK-14."""
    c = store.checkpoints
    for number in range(1, 81):
        c.put("t", step(number, {"a": "x" * 50 + str(number)}, namespace="inner" if number % 4 == 0 else ""))
    assert c.keep_latest("t") == 78
    assert ids(c.list("t")) == ["step-80", "step-79"]
    assert texts(c.get("t")) == {"a": "x" * 50 + "79"}
    assert texts(c.get("t", namespace="inner")) == {"a": "x" * 50 + "80"}
    c.put("t", step(81, {"a": "x" * 50 + "81"}))
    assert (texts(c.get("t")), c.keep_latest("t", keep=2)) == ({"a": "x" * 50 + "81"}, 0)
    with pytest.raises(NotFound):
        c.keep_latest("nobody")


def test_ancestors_stay_of_which_a_channel_is_made(store: Any) -> None:
    """checkpoints CK-14: back to the nearest that has a value, by their parents."""
    c = store.checkpoints
    for number in range(1, 9):
        values = {"log": str(number)} if number in (2, 5) else {"other": str(number)}
        parent = "step-6" if number == 8 else f"step-{number - 1}" if number > 1 else None
        c.put(
            "t", step(number, values, versions={"log": "5"} if number == 5 else {"log": f"{number}"}, parent_id=parent)
        )
        c.put_writes("t", f"step-{number}", "task", [write(0, "w", channel="log")])
    assert c.keep_latest("t", from_ancestors=["log"]) == 5
    assert ids(c.list("t")) == ["step-8", "step-6", "step-5"]
    assert [len(one.writes) for one in c.history("t")] == [1, 1, 1]


def test_a_thread_says_whose_it_is_and_when_it_expires(store: Any, database: Database) -> None:
    """checkpoints CK-15: a put that says neither leaves both, and so do writes."""
    c = store.checkpoints
    first = c.thread(_put(c, step(1), user="ana", ttl=timedelta(hours=1)))
    database.clock.advance(seconds=60)
    _put(c, step(2))
    c.put_writes("t", "step-2", "task", [write(0, "w")])
    found = c.thread("t")
    assert (found.id, found.user, found.expires_at) == (first.id, "ana", first.created_at + timedelta(hours=1))
    assert found.updated_at == first.created_at + timedelta(seconds=60)
    _put(c, step(3), ttl=timedelta(hours=2))
    assert c.thread("t").expires_at == found.updated_at + timedelta(hours=2)
    assert c.thread_of(found.id) == c.thread("t")
    with pytest.raises(NotFound):
        c.thread_of("nobody")


def _put(checkpoints: Any, given: NewCheckpoint, **more: Any) -> str:
    checkpoints.put("t", given, **more)
    return "t"


def test_threads_are_listed_by_their_last_change(store: Any, database: Database) -> None:
    """checkpoints CK-16."""
    c = store.checkpoints
    for thread, user in (("a", "ana"), ("b", "bob"), ("c", "ana")):
        c.put(thread, step(1), user=user, scope="s" if thread == "c" else "")
        database.clock.advance(seconds=1)
    c.put("a", step(2))
    assert [one.key for one in c.threads()] == ["a", "c", "b"]
    assert [one.key for one in c.threads(user="ana")] == ["a", "c"]
    assert [one.key for one in c.threads(scope="")] == ["a", "b"]
    first = c.threads(limit=2)
    assert [one.key for one in c.threads(limit=2, page_token=first.next_page_token)] == ["b"]


@with_each(
    ("given", "where"),
    [
        (NewCheckpoint("c", Content("f", b"x" * (16 * 1024 * 1024 + 1))), "content.data"),
        (NewCheckpoint("c", NOTHING, {"a": "1"}, {"a": Content("f", b"x" * (64 * 1024 * 1024 + 1))}), "values.a.data"),
        (NewCheckpoint("c", NOTHING, {}, {"a": NOTHING}), "values.a"),
        (NewCheckpoint("c", NOTHING, {"a": ""}), "versions.a"),
        (NewCheckpoint("c", NOTHING, {" ": "1"}), "versions"),
        (NewCheckpoint("", NOTHING), "id"),
        (NewCheckpoint("c", Content("", b"")), "content.format"),
        (NewCheckpoint("c", Content("f", "text")), "content.data"),  # type: ignore[arg-type]
        (NewCheckpoint("c", b"bytes"), "content"),  # type: ignore[arg-type]
        (NewCheckpoint("c", NOTHING, namespace="n" * 1025), "namespace"),
        (NewCheckpoint("c", NOTHING, metadata={"a": float("nan")}), "metadata.a"),
        (NewCheckpoint("c", NOTHING, metadata={"a": "x" * 300_000}), "metadata"),
        (NewCheckpoint("c", NOTHING, {"a": 1}), "versions.a"),  # type: ignore[dict-item]
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_cannot_be_stored_is_refused_by_its_name(database: Database, given: NewCheckpoint, where: str) -> None:
    """checkpoints CK-17: before anything is sent."""
    store = database.open()
    with racing(store) as race, pytest.raises(InvalidValue) as refused:
        store.checkpoints.put("t", given)
    assert (refused.value.where, race.statements) == (where, [])


def test_writes_that_cannot_be_stored_are_refused_by_their_names(database: Database) -> None:
    """checkpoints CK-17."""
    c = database.open().checkpoints
    big = Content("f", b"x" * (64 * 1024 * 1024))
    for given, where in (
        ([write(0, "a"), write(0, "b")], "writes"),
        ([NewWrite(0, "", NOTHING)], "writes[0].channel"),
        ([NewWrite(2**40, "a", NOTHING)], "writes[0].idx"),
        ([NewWrite(0, "a", Content("f", b"x" * (64 * 1024 * 1024 + 1)))], "writes[0].content.data"),
        ([NewWrite(number, "a", big) for number in range(3)], "writes"),
    ):
        with pytest.raises(InvalidValue) as refused:
            c.put_writes("t", "step-1", "task", given)
        assert refused.value.where == where
    with pytest.raises(PayloadTooLarge):
        c.put("t", NewCheckpoint("c", NOTHING, dict.fromkeys("abc", "1"), dict.fromkeys("abc", big)))
    with pytest.raises(InvalidValue):
        c.put("t", step(1), ttl=timedelta(0))
    with pytest.raises(InvalidValue):
        c.list("t", where={"a": ["list"]})
    assert list(c.threads()) == []
