"""States: put, merged, read, listed and removed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support.each import with_each

from lastlight_state import InvalidValue, NotFound, PayloadTooLarge, StaleVersion
from lastlight_state.states import REMOVED
from lastlight_state.testing import Database, racing


@with_each("value", [None, {"a": [1, 2.5, None, "✓"]}, "text", 0, False, [], b"", b"\0\xff"])
def test_a_value_reads_back_equal(store: Any, value: Any) -> None:
    """states ST-1."""
    put = store.states.put("k", value, scope="s", user="ana")
    found = store.states.get("k", scope="s")
    assert (found.value, type(found.value)) == (value, type(value))
    assert (found.scope, found.key, found.version, found.user) == ("s", "k", put.version, "ana")
    assert store.states.find("k") is None
    with pytest.raises(NotFound):
        store.states.get("k", scope="other")


def test_a_put_replaces_the_value_with_its_kind(store: Any, database: Database) -> None:
    """states ST-1, ST-11: and leaves key, user and first time."""
    first = store.states.put("k", {"a": 1}, user="ana")
    database.clock.advance(seconds=60)
    store.states.put("k", bytearray(b"x"))
    found = store.states.get("k")
    assert (found.value, found.user, found.created_at) == (b"x", "ana", first.created_at)
    assert found.updated_at - first.updated_at == timedelta(seconds=60)
    store.states.put("k", [1])
    assert store.states.get("k").value == [1]


def test_each_write_gives_another_version_and_none_twice(store: Any) -> None:
    """states ST-2: also where the key was removed in between."""
    s = store.states
    versions = [s.put("k", n).version for n in range(3)]
    assert s.expire("k", None).version == versions[-1]
    s.remove("k")
    versions.append(s.put("k", 0).version)
    versions.append(s.merge({"k": 1})["k"])
    assert len(set(versions)) == 5
    with pytest.raises(StaleVersion):
        s.put("k", 2, expected=versions[0])


def test_an_expiry_with_a_version_is_set_only_if_it_is_the_one(store: Any, database: Database) -> None:
    """states ST-34."""
    s = store.states
    first = s.put("k", 1, scope="s").version
    second = s.put("k", 2, scope="s").version
    end = database.clock.now() + timedelta(seconds=5)
    with pytest.raises(StaleVersion) as refused:
        s.expire("k", end, scope="s", expected=first)
    assert (refused.value.expected, refused.value.found) == (first, second)
    assert s.get("k", scope="s").expires_at is None
    assert s.expire("k", end, scope="s", expected=second).expires_at == end
    database.clock.advance(seconds=6)
    for gone, version in (("k", second), ("other", first)):
        with pytest.raises(NotFound):
            s.expire(gone, None, scope="s", expected=version)
    with pytest.raises(InvalidValue, match="expected"):
        s.expire("k", None, scope="s", expected=None)


def test_a_put_with_a_version_is_done_only_if_it_is_the_one(store: Any) -> None:
    """states ST-3."""
    s = store.states
    first = s.put("k", 1, expected=None)
    with pytest.raises(StaleVersion) as refused:
        s.put("k", 2, expected=None)
    assert (refused.value.expected, refused.value.found) == (None, first.version)
    second = s.put("k", 2, expected=first.version)
    with pytest.raises(StaleVersion) as refused:
        s.put("k", 3, expected=first.version)
    assert refused.value.found == second.version
    with pytest.raises(StaleVersion) as refused:
        s.put("other", 1, expected=first.version)
    assert (refused.value.found, s.get("k").value, s.find("other")) == (None, 2, None)


def test_a_merge_changes_its_keys_and_no_others(store: Any) -> None:
    """states ST-4: None is a value, and REMOVED a removal."""
    s = store.states
    s.merge({"a": 1, "b": b"two", "c": {"three": 3}}, scope="s")
    versions = s.merge({"a": None, "b": REMOVED, "d": 4, "never": REMOVED}, scope="s")
    assert (sorted(versions), len(set(versions.values()))) == (["a", "d"], 1)
    assert {one.key: one.value for one in s.items(scope="s")} == {"a": None, "c": {"three": 3}, "d": 4}
    assert s.merge({}) == {}


def test_a_merge_with_a_stale_version_changes_nothing(store: Any) -> None:
    """states ST-4: also in a transaction that goes on."""
    s = store.states
    first = s.merge({"a": 1, "b": 1})
    s.put("b", 2)
    with store.transaction() as tx:
        with pytest.raises(StaleVersion):
            tx.states.merge({"a": 2, "b": 3, "c": 3}, expected={"b": first["b"]})
        with pytest.raises(StaleVersion):
            tx.states.merge({"a": 2, "b": REMOVED}, expected={"b": first["b"]})
        with pytest.raises(StaleVersion):
            tx.states.merge({"0": 2, "a": 3}, expected={"a": None})
    assert {one.key: one.value for one in s.items()} == {"a": 1, "b": 2}
    s.merge({"a": 5, "c": 6, "gone": REMOVED}, expected={"a": first["a"], "c": None, "gone": first["a"]})
    assert {one.key: one.value for one in s.items()} == {"a": 5, "b": 2, "c": 6}


def test_a_removal_says_whether_the_key_was_there(store: Any) -> None:
    """states ST-5."""
    s = store.states
    first = s.put("k", 1)
    second = s.put("k", 2)
    with pytest.raises(StaleVersion):
        s.remove("k", expected=first.version)
    assert (s.remove("k", expected=second.version), s.remove("k"), s.remove("k", expected=second.version)) == (
        True,
        False,
        False,
    )


def test_a_scope_is_cleared_whole_or_by_the_beginning_of_keys(store: Any) -> None:
    """states ST-5."""
    s = store.states
    s.merge({"a1": 1, "a2": 2, "b": 3}, scope="s")
    s.put("a1", 1)
    assert (s.clear("s", prefix="a"), [one.key for one in s.list(scope="s")]) == (2, ["b"])
    assert (s.clear("s"), s.clear("s"), s.get("a1").value) == (1, 0, 1)


def test_what_cannot_be_stored_is_refused_by_its_path(store: Any) -> None:
    """states ST-7."""
    s = store.states
    refusals: tuple[Callable[[], object], ...] = (
        lambda: s.put("", 1),
        lambda: s.put("k", float("nan")),
        lambda: s.put("k", {1}),
        lambda: s.put("k", REMOVED),
        lambda: s.merge({"k": 1}, expected={"other": None}),
        lambda: s.merge({"k": REMOVED}, expected={"k": None}),
        lambda: s.merge([("k", 1)]),
        lambda: s.put("k", 1, ttl=timedelta(0)),
        lambda: s.list(where={"a": [1]}),
    )
    for refused in refusals:
        with pytest.raises(InvalidValue):
            refused()
    with pytest.raises(InvalidValue, match=r"changes\.k\.a: must not contain a NUL"):
        s.merge({"j": 1, "k": {"a": "\0"}})
    with pytest.raises(PayloadTooLarge):
        s.put("k", "x" * 8 * 1024 * 1024)
    assert s.list().items == ()


def test_states_share_a_transaction_with_anything_else(every_backend: Any) -> None:
    """states ST-8."""
    store = every_backend

    def fail() -> None:
        with store.transaction() as tx:
            tx.states.merge({"a": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert store.states.find("a") is None


def test_what_has_expired_is_not_there(store: Any, database: Database) -> None:
    """states ST-10, ST-11: and is put anew with nothing of the old one."""
    s = store.states
    first = s.put("k", {"a": 1}, ttl=timedelta(minutes=1), user="ana")
    s.put("stays", 1)
    database.clock.advance(seconds=59)
    assert s.get("k").expires_at == first.expires_at
    database.clock.advance(seconds=1)
    assert (s.find("k"), s.find_many(["k"]), [one.key for one in s.list()], s.remove("stays")) == (
        None,
        {},
        ["stays"],
        True,
    )
    assert s.scopes().items == ()
    with pytest.raises(NotFound):
        s.expire("k", None)
    with pytest.raises(StaleVersion) as refused:
        s.put("k", 2, expected=first.version)
    assert refused.value.found is None
    again = s.put("k", 2, expected=None)
    assert (again.user, again.expires_at, again.created_at) == (None, None, database.clock.now())
    s.put("k", 3, ttl=timedelta(minutes=1))
    database.clock.advance(seconds=60)
    assert (s.remove("k"), s.put("k", 4).expires_at) == (False, None)


def test_an_expiry_stays_unless_a_write_says_another(store: Any, database: Database) -> None:
    """states ST-11."""
    s = store.states
    first = s.put("k", 1, ttl=timedelta(hours=1))
    database.clock.advance(seconds=60)
    assert s.put("k", 2).expires_at == first.expires_at
    assert s.put("k", 3, ttl=timedelta(hours=1)).expires_at == database.clock.now() + timedelta(hours=1)
    assert s.expire("k", None).expires_at is None


def test_many_keys_are_read_in_one_statement_in_their_order(store: Any) -> None:
    """states ST-15."""
    s = store.states
    s.merge({f"k{n}": n for n in range(300)}, scope="s")
    with racing(store) as race:
        found = s.find_many([f"k{n}" for n in range(310, -1, -1)], scope="s")
        assert len(race.statements) == 1
    assert [*found] == [f"k{n}" for n in range(299, -1, -1)]
    assert found["k7"].value == 7
    assert s.find_many([]) == {}


@with_each("beginning", ["a", "a/", "a\ud7ff", "a\U0010ffff", "\U0010ffff", ""])
def test_a_beginning_finds_what_begins_so_whatever_character_ends_it(store: Any, beginning: str) -> None:
    """states ST-16: of keys and of scopes, in the order of code points."""
    names = ["a", "a/", "a/b", "a0", "ab", "a\ud7ff", "a\ud7ffz", "a\ue000", "a\U0010ffff", "a\U0010ffffz", "b"]
    names += ["\U0010ffff", "\U0010ffff\U0010ffff", "A"]
    s = store.states
    s.merge(dict.fromkeys(names, 1), scope="x")
    for name in names:
        s.put("k", 1, scope=name)
    wanted = sorted(name for name in names if name.startswith(beginning))
    assert [one.key for one in s.list(scope="x", prefix=beginning)] == wanted
    assert [one.scope for one in s.items(under=beginning) if one.key == "k"] == wanted
    assert [one for one in s.scopes(under=beginning) if one != "x"] == wanted


def test_lists_go_by_scope_and_key_page_by_page(store: Any) -> None:
    """states ST-16, ST-18."""
    s = store.states
    for scope in ("b", "a"):
        s.merge({"2": 1, "10": 2, "1": 3}, scope=scope, user=f"user {scope}")
    first = s.list(limit=4)
    rest = s.list(limit=4, page_token=first.next_page_token)
    assert [(one.scope, one.key) for one in (*first, *rest)] == [(x, y) for x in "ab" for y in ("1", "10", "2")]
    assert [one.value for one in s.items(scope="a", user="user a", limit=2)] == [3, 2]
    assert s.list(scope="a", user="user b").items == ()
    scopes = s.scopes(limit=1)
    assert (scopes.items, s.scopes(page_token=scopes.next_page_token).items) == (("a",), ("b",))


def test_members_of_a_value_filter_a_list(store: Any) -> None:
    """states ST-17."""
    s = store.states
    s.merge({"a": {"n": 1, "on": True}, "b": {"n": None}, "c": [1], "d": b"{}", "e": None, "f": {"n": 1.0}, "g": {}})
    assert [one.key for one in s.list(where={"n": 1})] == ["a", "f"]
    assert [one.key for one in s.list(where={"n": None})] == ["b"]
    assert [one.key for one in s.items(where={"n": 1, "on": True})] == ["a"]
    assert len(s.list(where={}).items) == 7
