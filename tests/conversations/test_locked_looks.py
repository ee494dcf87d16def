"""What a call of this domain has looked at stays as it is until the call has written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.conversations.talk import begun, history, said
from support.rivals import Look, Wait, after_waiting, check, parameters

from lastlight_state import Conflict, NotFound
from lastlight_state.conversations import (
    BranchPatch,
    BranchTree,
    NewBranch,
    NewChunk,
    NewMessage,
    NewSession,
    SessionTree,
)
from lastlight_state.testing import Database, racing

LETTER = NewMessage("user", "a letter", id="letter", channel="news")
GROWN = NewMessage("user", "grown", id="m0")


def _talk(store: Any) -> Any:
    """A branch of two messages, and its session."""
    return begun(store, "m0", "m1")


def _append(store: Any, _: Any) -> Any:
    return store.conversations.branches.append("main", said("m0", "m2"))


def _replace(store: Any, branch: Any, ids: Any = ("m1", "m0")) -> Any:
    order = branch.progression_id
    return store.conversations.progressions.replace(order, list(ids), expect_version=1)


def _pop(store: Any, _: Any) -> Any:
    return store.conversations.branches.pop("main")


def _fork(store: Any, _: Any) -> Any:
    return store.conversations.lineage.fork("main", branch_id="fork")


def _create(store: Any, branch: Any) -> Any:
    return store.conversations.branches.create(branch.session_id, NewBranch(id="new", system="m0"))


def _running(store: Any) -> Any:
    """The same, of a session that runs."""
    branch = _talk(store)
    store.conversations.lifecycle.transition(branch.session_id, "running")
    return branch


def _end(store: Any, branch: Any, to: str = "completed") -> Any:
    return store.conversations.lifecycle.try_transition(branch.session_id, to)


def _ended(store: Any) -> Any:
    branch = _running(store)
    _end(store, branch)
    return branch


def _tree(branch: Any) -> SessionTree:
    return SessionTree(NewSession(branch.session_id), [BranchTree(NewBranch("main"), said("m0", "m1", "m3"))])


def _put(store: Any, _: Any) -> Any:
    return store.conversations.vectors.put("ns", [NewChunk("a", "", [1]), NewChunk("b", "", [2])])


def _chunks(store: Any) -> Any:
    return _put(store, None)


def _sent(store: Any) -> Any:
    """A delivery, and a channel with a member."""
    store.conversations.exchange.join("news", "bo")
    store.conversations.exchange.send(LETTER, to="cy")


def _send(store: Any, _: Any, *to: str) -> Any:
    return store.conversations.exchange.send(LETTER, to=to or "bo")


def _publish(store: Any, _: Any) -> Any:
    return store.conversations.exchange.publish(LETTER, channel="news")


def _ack(store: Any, _: Any, reader: str = "r1") -> Any:
    return store.conversations.exchange.ack("cy", 0, reader=reader)


LOOKS = {
    "Exchange.send": Look(_sent, _send, _send, since=3),
    "Exchange.publish": Look(_sent, _publish, _send, since=4),
    "Exchange.take": Look(
        _sent, lambda s, _: s.conversations.exchange.take("cy", reader="r1"), lambda s, _: _ack(s, _, "r2")
    ),
    "Exchange.ack": Look(_sent, _ack, lambda s, _: _ack(s, _, "r2")),
    "Exchange.release": Look(_sent, lambda s, _: s.conversations.exchange.release("cy", 0, reader="r1"), _ack),
    "Branches.append": Look(_talk, _append, _append, since=3),
    "Branches.create": Look(_talk, _create, _create),
    "Branches.ensure": Look(
        _talk,
        lambda s, b: s.conversations.branches.ensure(b.session_id, NewBranch(id="new", system="m0")),
        _append,
        since=3,
    ),
    "Branches._change": Look(
        _talk, lambda s, _: s.conversations.branches.update("main", BranchPatch(name="x")), _append, since=3
    ),
    "Branches.replace_system": Look(
        _talk, lambda s, _: s.conversations.branches.replace_system("main", "m1"), _append, since=3
    ),
    "Progressions.append": Look(
        _talk, lambda s, b: s.conversations.progressions.append(b.progression_id, ["m0"]), _replace, since=3
    ),
    "Progressions.replace": Look(_talk, _replace, _fork, since=3),
    "Progressions.pop": Look(_talk, lambda s, b: s.conversations.progressions.pop(b.progression_id), _append, since=3),
    "Progressions.truncate": Look(
        _talk, lambda s, b: s.conversations.progressions.truncate(b.progression_id, 1), _fork, since=3
    ),
    "Branches.pop": Look(_talk, _pop, _append, since=3),
    "Branches.delete": Look(_talk, lambda s, _: s.conversations.branches.delete("main"), _append, since=3),
    "Sessions.delete": Look(_talk, lambda s, b: s.conversations.sessions.delete(b.session_id), _append),
    "Branches.truncate": Look(_talk, lambda s, _: s.conversations.branches.truncate("main", 1), _fork, since=3),
    "Lineage.fork": Look(_talk, _fork, _append, since=3),
    "Sessions.merge_metadata": Look(
        _talk, lambda s, b: s.conversations.sessions.merge_metadata(b.session_id, {"a": 1}), _append
    ),
    "Trees.save": Look(_talk, lambda s, b: s.conversations.trees.save(_tree(b)), _append, since=4),
    "Vectors.put": Look(_chunks, _put, lambda s, _: s.conversations.vectors.clear("ns", scope="namespace")),
    "Vectors.clear": Look(_chunks, lambda s, _: s.conversations.vectors.clear("ns", scope="namespace"), _put),
    "Messages.put": Look(_talk, lambda s, _: s.conversations.messages.put(GROWN), _append),
    "Messages.put of a running session": Look(
        _running, lambda s, _: s.conversations.messages.put(GROWN), _end, since=5
    ),
    "Lifecycle.try_transition": Look(_running, _end, lambda s, b: _end(s, b, "failed")),
    "Lifecycle.try_transition of a branch": Look(
        _running,
        lambda s, b: s.conversations.lifecycle.try_transition(b.session_id, "running", branch_id="main"),
        _end,
    ),
    "Lifecycle.reopen": Look(_ended, lambda s, b: s.conversations.lifecycle.reopen(b.session_id, actor="ana"), _append),
}


@parameters(LOOKS)
def test_nobody_changes_what_a_call_has_looked_at_before_it_writes(database: Database, look: Look) -> None:
    """conversations CV-16: the session is locked first, or what the call alone changes."""
    check(database, look)


def test_an_append_that_waited_finds_what_the_other_has_stored(shared_postgres: Database) -> None:
    """conversations CV-18, CV-19: Branches.append; a repeat stays single."""
    assert after_waiting(shared_postgres, Wait(_talk, _append, _append)).appended == 0


def test_a_replacement_that_waited_for_a_fork_sees_it(shared_postgres: Database) -> None:
    """conversations CV-11, CV-22: Progressions.replace never shifts what a fork has inherited."""
    refused = after_waiting(shared_postgres, Wait(_talk, _fork, _replace))
    assert isinstance(refused, Conflict)
    assert history(shared_postgres.open(), "fork") == ["m0", "m1"]


def test_a_fork_that_waited_for_a_replacement_sees_it(shared_postgres: Database) -> None:
    """conversations CV-22: Lineage.fork."""
    fork = after_waiting(shared_postgres, Wait(_talk, lambda tx, b: _replace(tx, b, ["m1"]), _fork))
    assert (fork.length, history(shared_postgres.open(), "fork")) == (1, ["m1"])


def test_a_pop_that_waited_for_a_fork_takes_nothing_that_it_has(shared_postgres: Database) -> None:
    """conversations CV-44: Branches.pop."""
    refused = after_waiting(shared_postgres, Wait(_talk, _fork, _pop))
    assert isinstance(refused, Conflict)
    assert history(shared_postgres.open(), "fork") == ["m0", "m1"]


def test_of_two_that_pop_at_once_each_gets_another_message(shared_postgres: Database) -> None:
    """conversations CV-44: Branches.pop."""
    [taken] = after_waiting(shared_postgres, Wait(_talk, _pop, _pop))
    assert (taken.ord, taken.message.id) == (0, "m0")


@pytest.mark.parametrize("way", ["ensure", "put"])
def test_two_that_store_one_message_at_once_both_have_it(shared_postgres: Database, way: str) -> None:
    """conversations CV-6: Messages.create, Messages.ensure and Messages.put."""
    [new] = said("new")

    def create(tx: Any, _: Any) -> None:
        tx.conversations.messages.create(new)

    def again(store: Any, _: Any) -> Any:
        return getattr(store.conversations.messages, way)(new)

    found = after_waiting(shared_postgres, Wait(lambda _store: None, create, again))
    assert (found.id, found.revision) == ("new", 0)


def test_of_two_with_one_id_one_is_made(shared_postgres: Database) -> None:
    """conversations CV-10: Sessions.create, Sessions.ensure, Progressions.create, Progressions.ensure."""
    makers: list[tuple[Any, Any]] = [
        (lambda s, _: s.conversations.sessions.create(NewSession("s")), "already_exists"),
        (lambda s, _: s.conversations.sessions.ensure(NewSession("t")), None),
        (lambda s, _: s.conversations.progressions.create("p"), "already_exists"),
        (lambda s, _: s.conversations.progressions.ensure("q"), None),
    ]
    for make, code in makers:
        found = after_waiting(shared_postgres, Wait(lambda _store: None, make, make))
        assert getattr(found, "code", type(found) if isinstance(found, Exception) else None) == code


def test_two_that_ensure_one_branch_at_once_both_have_it(shared_postgres: Database) -> None:
    """conversations CV-10: Branches.ensure."""
    shared_postgres.open().conversations.sessions.create(NewSession("talk"))

    def ensure(s: Any, _: Any) -> Any:
        return s.conversations.branches.ensure("talk", NewBranch(id="b"))

    assert after_waiting(shared_postgres, Wait(lambda _store: None, ensure, ensure)).id == "b"


def test_a_tree_that_two_save_at_once_is_there_once(shared_postgres: Database) -> None:
    """conversations CV-28: Trees.save; the other one finds all of it."""
    tree = SessionTree(NewSession("talk"), [BranchTree(NewBranch("b"), said("a", "b"))])

    def save(store: Any, _: Any) -> Any:
        return store.conversations.trees.save(tree)

    assert not after_waiting(shared_postgres, Wait(lambda _store: None, save, save)).changed


def test_chunks_that_two_put_at_once_are_there_once(shared_postgres: Database) -> None:
    """conversations CV-37: Vectors.put, also into a namespace that is deleted meanwhile."""

    def clear(store: Any, _: Any) -> Any:
        return store.conversations.vectors.clear("ns", scope="namespace")

    assert after_waiting(shared_postgres, Wait(lambda _store: None, _put, _put)) == 2
    vectors = shared_postgres.open().conversations.vectors
    assert vectors.count("ns") == 2
    assert after_waiting(shared_postgres, Wait(_chunks, clear, _put)) == 2
    assert after_waiting(shared_postgres, Wait(_chunks, _put, clear)) == 2
    assert vectors.count("ns") == 0


def test_chunks_of_a_namespace_that_came_and_went_meanwhile_are_put_into_a_new_one(
    postgres_database: Database,
) -> None:
    """conversations CV-37: Vectors.put."""
    store, other = postgres_database.open(), postgres_database.open()
    with racing(store) as race:
        race.before(2, lambda: _put(other, None))
        race.before(3, lambda: other.conversations.vectors.clear("ns", scope="namespace"))
        assert _put(store, None) == 2
    assert race.left == 0
    assert other.conversations.vectors.count("ns") == 2


def test_chunks_that_another_puts_at_the_same_time_are_replaced(
    shared_postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """conversations CV-37: Vectors.put waits for whoever stores one of its ids, and meets no other twice."""
    store, other = shared_postgres.open(migrate=True), shared_postgres.open()
    insert, ids = store.backend.insert_rows, iter("abcdef")
    other.conversations.vectors.put("ns", [NewChunk("first", "", [0])])

    def insert_after_another(*given: Any) -> None:
        other.conversations.vectors.put("ns", [NewChunk(next(ids), "theirs", [1])])
        insert(*given)

    monkeypatch.setattr(store.backend, "insert_rows", insert_after_another)
    vectors = store.conversations.vectors
    assert vectors.put("ns", [NewChunk(one, "ours", [2]) for one in "fedcba"]) == 6
    assert {vectors.get("ns", one).content for one in "abcdef"} == {"ours"}
    assert (vectors.get("ns", "a").updated_at, next(ids)) == (shared_postgres.clock.now(), "b")


def test_a_message_that_two_send_at_once_is_delivered_once_to_each_owner(shared_postgres: Database) -> None:
    """conversations CV-33: Exchange.send and Exchange.publish begin again, and find what the other stored."""
    again = after_waiting(shared_postgres, Wait(lambda _store: None, _send, lambda s, _: _send(s, _, "bo", "cy")))
    assert (again.delivered, again.skipped) == (("cy",), ("bo",))
    exchange = shared_postgres.open().conversations.exchange
    exchange.join("news", "dee")
    assert after_waiting(
        shared_postgres, Wait(lambda _store: None, lambda tx, _: _send(tx, _, "dee"), _publish)
    ).skipped == ("dee",)
    assert [one.ord for one in exchange.inbox("dee")] == [0]


def test_a_class_that_two_bring_at_once_has_one_number(shared_postgres: Database) -> None:
    """conversations CV-8: MessageTypes.resolve waits, and finds what the other has stored."""

    def resolve(store: Any, _: Any) -> int:
        found: int = store.conversations.message_types.resolve("my.Class")
        return found

    assert after_waiting(shared_postgres, Wait(lambda _store: None, resolve, resolve)) == 6


def test_threads_that_bring_new_classes_and_messages_at_once(database: Database) -> None:
    """conversations CV-8, CV-17, CV-19: each message once, without gaps, in branch and pool."""
    stores = [database.open(migrate=True) for _ in range(2)]
    branch = _talk(stores[0])

    def append(n: int) -> int:
        shared = NewMessage("user", n // 2, id=f"shared-{n // 2}", lion_class=f"my.Class{n % 2}")
        same = [shared] if n % 2 == 0 else [NewMessage("user", n // 2, id=shared.id, lion_class="my.Class0")]
        own = NewMessage("user", n, id=f"own-{n}", lion_class=f"my.Class{n % 2}")
        return stores[n % 2].conversations.branches.append("main", [*same, own]).appended

    with ThreadPoolExecutor(4) as pool:
        added = sum(pool.map(append, range(16)))
    c = stores[0].conversations
    order = c.progressions.collection(branch.progression_id)
    assert (added, len(order), len(set(order))) == (24, 26, 26)
    session = c.sessions.get(branch.session_id)
    assert c.progressions.collection(session.progression_id) == order
    assert (session.last_msg_id, len(c.message_types.list())) == (order[-1], 8)


def test_nothing_of_a_branch_is_there_whose_message_is_missing(database: Database) -> None:
    """conversations CV-40."""
    store = database.open(migrate=True)
    session = store.conversations.sessions.create()
    try:
        store.conversations.branches.create(session.id, NewBranch(id="b", system="nobody"))
    except NotFound:
        assert store.conversations.branches.find("b") is None
        assert store.conversations.sessions.get(session.id) == session
