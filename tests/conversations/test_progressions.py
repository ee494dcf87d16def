from __future__ import annotations

import json

import pytest
from support.conversations.talk import begun, numbered, said
from support.workflows.steps import Raw

from lastlight_state import (
    AlreadyExists,
    InvalidValue,
    NotFound,
    PayloadTooLarge,
    StaleVersion,
    StateStore,
    iterate,
)
from lastlight_state.conversations import Appended, NewSession
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database


def stored(store: StateStore, count: int) -> list[str]:
    """Messages that are in no order but that of their session."""
    begun(store)
    store.conversations.branches.append("main", said(*numbered(0, count)))
    return numbered(0, count)


def test_an_order_keeps_its_ids_repetitions_included(every_backend: StateStore) -> None:
    """conversations CV-10, CV-18: in one page or many."""
    progressions = every_backend.conversations.progressions
    stored(every_backend, 3)
    order = progressions.create("p", ["m2", "m0", "m2"], name="n", node_metadata={"a": 1})
    assert (order.size, order.name, order.node_metadata) == (3, "n", {"a": 1})
    assert progressions.append("p", ["m1", "m0"]) == Appended(first_ord=3, appended=1, skipped=1)
    assert progressions.append("p", ["m0"], on_repeat="keep").first_ord == 4
    assert progressions.collection("p") == ["m2", "m0", "m2", "m1", "m0"]
    assert [link.message_id for link in iterate(progressions.ids, "p", limit=2)] == ["m2", "m0", "m2", "m1", "m0"]
    assert [link.ord for link in progressions.ids("p", after_ord=2)] == [3, 4]
    assert progressions.get("p").version == 2


def test_what_is_added_to_an_order_is_told_to_the_session_that_has_it_alone(every_backend: StateStore) -> None:
    """conversations CV-17, CV-18: whether it is the order of a session or of one of its branches."""
    conversations = every_backend.conversations
    stored(every_backend, 1)
    conversations.progressions.create("p")
    branches = conversations.branches.get("main"), begun(every_backend, branch_id="other")
    names = [branch.session_id for branch in branches]

    def told(progression_id: str) -> list[int]:
        before = [conversations.sessions.get(name).change_seq for name in names]
        conversations.progressions.append(progression_id, ["m0"], on_repeat="keep")
        return [conversations.sessions.get(name).change_seq - seq for name, seq in zip(names, before, strict=True)]

    assert told(conversations.sessions.get(names[0]).progression_id) == [1, 0]
    assert told(branches[1].progression_id) == [0, 1]
    assert told("p") == [0, 0]


def test_what_is_missing_is_refused(every_backend: StateStore) -> None:
    """conversations CV-10: an order that is not there, and a message."""
    progressions = every_backend.conversations.progressions
    progressions.create("p")
    for missing in (
        lambda: progressions.append("nobody", []),
        lambda: progressions.ids("nobody"),
        lambda: progressions.collection("nobody"),
        lambda: progressions.replace("nobody", [], expect_version=0),
        lambda: progressions.get("nobody"),
        lambda: progressions.append("p", ["nobody"]),
        lambda: progressions.create("q", ["nobody"]),
        lambda: progressions.replace("p", ["nobody"], expect_version=0),
    ):
        with pytest.raises(NotFound):
            missing()
    assert (progressions.find("q"), progressions.ids("p").items, progressions.collection("p")) == (None, (), [])


def test_an_order_is_ensured(every_backend: StateStore) -> None:
    """conversations CV-10: another order is refused, not ignored."""
    progressions = every_backend.conversations.progressions
    stored(every_backend, 2)
    order = progressions.ensure("p", ["m0", "m1"])
    assert progressions.ensure("p") == progressions.ensure("p", ["m0", "m1"]) == order
    with pytest.raises(AlreadyExists):
        progressions.ensure("p", ["m1", "m0"])
    with pytest.raises(AlreadyExists):
        progressions.create("p")


def test_where_a_message_stands_is_told_order_by_order(every_backend: StateStore) -> None:
    """conversations CV-10: and in each by its positions, over all pages."""
    progressions = every_backend.conversations.progressions
    stored(every_backend, 2)
    for order in ("q", "p"):
        progressions.create(order, ["m0", "m1", "m0"])
    found = [(one.progression_id, one.ord) for one in iterate(progressions.containing, "m0", limit=1)]
    assert [one for one in found if one[0] in ("p", "q")] == [("p", 0), ("p", 2), ("q", 0), ("q", 2)]


def test_an_order_is_replaced_where_it_differs(every_backend: StateStore) -> None:
    """conversations CV-11: compare-and-set on its version; an equal order writes nothing."""
    progressions = every_backend.conversations.progressions
    stored(every_backend, 5)
    order = progressions.create("p", ["m0", "m1", "m2", "m3"])
    assert progressions.replace("p", ["m0", "m1", "m2", "m3"], expect_version=order.version) == order
    shorter = progressions.replace("p", ["m0", "m2"], expect_version=order.version)
    assert (shorter.size, progressions.collection("p")) == (2, ["m0", "m2"])
    longer = progressions.replace("p", ["m0", "m2", "m4", "m4"], expect_version=shorter.version)
    assert (longer.size, progressions.collection("p")) == (4, ["m0", "m2", "m4", "m4"])
    assert progressions.replace("p", [], expect_version=longer.version).size == 0
    with pytest.raises(StaleVersion) as stale:
        progressions.replace("p", [], expect_version=order.version)
    assert stale.value.found == longer.version + 1


def test_the_view_gives_each_order_as_one_array(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-10: in the order of positions, empty where there is nothing."""
    progressions = every_backend.conversations.progressions
    stored(every_backend, 6)
    shuffled = ["m3", "m0", "m5", "m1", "m3"]
    progressions.create("empty")
    progressions.create("p", shuffled)
    found = dict(raw("SELECT id, collection FROM progression_collections WHERE id IN ('p', 'empty')"))
    arrays = {key: json.loads(value) if isinstance(value, str) else value for key, value in found.items()}
    assert arrays == {"p": shuffled, "empty": []}


def test_a_long_order_is_read_page_by_page(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-4."""
    progressions = every_backend.conversations.progressions
    stored(every_backend, 1)
    progressions.create("p")
    raw(_LONG, 10_001)
    raw("UPDATE progressions SET next_ord = 10001 WHERE id = 'p'")
    with pytest.raises(PayloadTooLarge):
        progressions.collection("p")
    assert sum(1 for _ in iterate(progressions.ids, "p", limit=500)) == 10_001
    with pytest.raises(InvalidValue):
        progressions.append("p", ["m0"] * 1_001)
    assert progressions.append("p", ["m0"], on_repeat="keep").first_ord == 10_001


#: So many links of one message.
_LONG = (
    "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) "
    "INSERT INTO progression_links (progression_id, ord, message_id) SELECT 'p', i, 'm0' FROM n"
)


def pointers(store: StateStore) -> tuple[str | None, str | None]:
    """The first and the last message of the session of the branch ``main``."""
    session = store.conversations.sessions.get(store.conversations.branches.get("main").session_id)
    return session.first_msg_id, session.last_msg_id


def test_a_session_points_into_its_pool_whatever_was_replaced(every_backend: StateStore) -> None:
    """conversations CV-43: what changes the order of a branch alone moves no pointer."""
    talks = every_backend.conversations
    stored(every_backend, 4)
    pool = talks.sessions.get(talks.branches.get("main").session_id).progression_id
    order = talks.branches.get("main").progression_id

    def replaced(progression_id: str, ids: list[str]) -> tuple[str | None, str | None]:
        version = talks.progressions.get(progression_id).version
        talks.progressions.replace(progression_id, ids, expect_version=version)
        return pointers(every_backend)

    assert pointers(every_backend) == ("m0", "m3")
    assert replaced(order, ["m1"]) == ("m0", "m3")
    assert replaced(pool, ["m1", "m2"]) == ("m1", "m2")
    assert replaced(pool, ["m2", "m1", "m2"]) == ("m2", "m2")
    assert replaced(pool, []) == (None, None)
    talks.progressions.append(pool, ["m3"])
    assert pointers(every_backend) == ("m3", "m3")
    talks.progressions.append(pool, ["m0"])
    assert pointers(every_backend) == ("m3", "m0")
    talks.branches.append("main", said("new"))
    assert pointers(every_backend) == ("m3", "new")


def test_a_session_that_is_made_with_an_order_points_into_it(every_backend: StateStore) -> None:
    """conversations CV-43: in what the call returns, and as it is stored."""
    talks = every_backend.conversations
    stored(every_backend, 3)
    talks.progressions.create("given", ["m2", "m0"])
    made = talks.sessions.create(NewSession("own", progression_id="given"))
    assert (made.first_msg_id, made.last_msg_id) == ("m2", "m0")
    assert talks.sessions.get("own") == made


def test_what_was_taken_out_of_every_order_is_an_orphan(every_backend: StateStore, database: Database) -> None:
    """conversations CV-43, maintenance OP-29: no session keeps it by pointing to it."""
    talks = every_backend.conversations
    stored(every_backend, 2)
    session = talks.sessions.get(talks.branches.get("main").session_id)
    for order in (talks.branches.get("main").progression_id, session.progression_id):
        talks.progressions.replace(order, [], expect_version=talks.progressions.get(order).version)
    database.clock.advance(seconds=31 * 86_400)
    every_backend.maintenance.prune.run(PrunePolicy("orphans"))
    assert [talks.messages.find(name) for name in ("m0", "m1")] == [None, None]
    assert talks.sessions.get(session.id).last_msg_id is None
