"""Messages that several running sessions have, revised through all of them at once."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from support.workflows.steps import Raw, wait_until_blocked

from lastlight_state import iterate
from lastlight_state.conversations import BranchTree, NewBranch, NewMessage, NewSession, SessionTree
from lastlight_state.testing import Database, racing

#: How long a test waits for what must come.
LONG = 30


def _said(text: str, message_id: str = "m") -> NewMessage:
    return NewMessage("user", {"text": text}, id=message_id)


def _sharing(store: Any, *ids: str) -> None:
    """Two running sessions, each with a branch, that have these messages."""
    for name in ("s1", "s2"):
        store.conversations.sessions.create(NewSession(name, status="running"))
        branch = store.conversations.branches.create(name, NewBranch(id=f"of-{name}"))
        store.conversations.branches.append(branch.id, [_said("first", one) for one in ids])


def _revised(store: Any, session_id: str) -> int:
    return sum(one.kind == "message.revised" for one in iterate(store.conversations.changes.after, session_id))


WAYS: dict[str, Any] = {
    "append": lambda c, name, said: c.branches.append(f"of-{name}", [said]),
    "replace_system": lambda c, name, said: c.branches.replace_system(f"of-{name}", said),
    "create": lambda c, name, said: c.branches.create(name, NewBranch(id=f"new-{name}", system=said)),
    "ensure": lambda c, name, said: c.branches.ensure(name, NewBranch(id=f"new-{name}", system=said)),
    "put": lambda c, _name, said: c.messages.put(said),
    "save": lambda c, name, said: c.trees.save(
        SessionTree(NewSession(name), [BranchTree(NewBranch(f"of-{name}"), [said])])
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_who_lacks_a_session_that_another_holds_lets_its_own_locks_go(database: Database, way: str) -> None:
    """conversations CV-16, CV-29: both come to an end inside transactions, in which nothing is repeated for them.

    The other one comes when the first has locked the message: it holds its session, and waits for the message.
    """
    store, other = database.open(migrate=True), database.open()
    _sharing(store, "m")
    coming: list[Future[Any]] = []

    def revise_too() -> None:
        with other.transaction() as tx:
            WAYS["append"](tx.conversations, "s2", _said("second"))

    with ThreadPoolExecutor(1) as pool:

        def come() -> None:
            coming.append(pool.submit(revise_too))
            wait_until_blocked(Raw(database))

        with racing(store) as race:
            race.before("UPDATE messages", come)
            with store.transaction() as tx:
                WAYS[way](tx.conversations, "s1", _said("third"))
        coming[0].result(LONG)
    assert race.left == 0
    assert (_revised(store, "s1"), _revised(store, "s2")) == (2, 2)
    assert (store.metrics.retries, other.metrics.retries) == (0, 0)


@pytest.mark.parametrize("way", WAYS)
def test_who_lacks_a_session_that_another_holds_waits_for_it(shared_postgres: Database, way: str) -> None:
    """conversations CV-16: in a lock of Postgres, without one of the message, and does not try over and over."""
    store, other = shared_postgres.open(migrate=True), shared_postgres.open()
    _sharing(store, "m")
    with ThreadPoolExecutor(1) as pool:
        with other.transaction() as tx:
            tx.conversations.sessions.touch("s2")
            calling = pool.submit(WAYS[way], store.conversations, "s1", _said("second"))
            wait_until_blocked(Raw(shared_postgres))
            tx.connection.exec_driver_sql("SELECT id FROM messages FOR UPDATE NOWAIT")
        calling.result(LONG)
    assert (_revised(store, "s1"), _revised(store, "s2")) == (1, 1)


def test_an_order_that_is_replaced_waits_for_the_other_session_that_has_it(shared_postgres: Database) -> None:
    """conversations CV-16, CV-28: and lets the order go meanwhile."""
    store, other = shared_postgres.open(migrate=True), shared_postgres.open()
    c = store.conversations
    _sharing(store, "m", "n")
    order = c.branches.get("of-s1").progression_id
    c.branches.create("s2", NewBranch(progression_id=order))
    tree = SessionTree(NewSession("s1"), [BranchTree(NewBranch("of-s1"), [_said("first", "n")])])
    with ThreadPoolExecutor(1) as pool:
        with other.transaction() as tx:
            tx.conversations.sessions.touch("s2")
            saving = pool.submit(c.trees.save, tree, mode="replace")
            wait_until_blocked(Raw(shared_postgres))
            tx.conversations.sessions.create(NewSession(progression_id=order))
        assert saving.result(LONG).orders_replaced == 1
    assert c.progressions.collection(order) == ["n"]
    assert (store.metrics.retries, other.metrics.retries) == (0, 0)


def test_a_session_that_ends_before_it_is_locked_is_not_told(shared_postgres: Database) -> None:
    """conversations CV-29: of a message that is revised elsewhere."""
    store, other = shared_postgres.open(migrate=True), shared_postgres.open()
    _sharing(store, "m")
    with racing(store) as race:
        race.before(4, lambda: other.conversations.lifecycle.transition("s2", "completed"))
        store.conversations.messages.put(_said("second"))
    assert "SKIP LOCKED" in race.statements[3]
    assert (_revised(store, "s1"), _revised(store, "s2")) == (1, 0)


@pytest.mark.parametrize("times", [4, pytest.param(200, marks=pytest.mark.soak)])
def test_threads_that_store_and_revise_the_same_messages_do_not_deadlock(database: Database, times: int) -> None:
    """conversations CV-16: in any order, through both sessions; each revision is told to both, once."""
    stores = [database.open(migrate=True) for _ in range(2)]
    _sharing(stores[0], "m0", "m1", "m2")

    def revise(n: int) -> None:
        said = [_said(f"again {n}", f"m{(n + i) % 3}") for i in range(3)]
        said += [_said("new", f"new-{n // 2}-{i if n % 2 else 19 - i}") for i in range(20)]
        stores[n % 2].conversations.branches.append(f"of-s{1 + n % 2}", said)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(revise, range(4 * times)))
    assert _revised(stores[0], "s1") == _revised(stores[0], "s2") == 4 * times * 3
    if database.name == "postgresql":
        assert [store.metrics.retries for store in stores] == [0, 0]
