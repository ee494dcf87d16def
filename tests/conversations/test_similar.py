"""Messages whose embeddings are near to a vector."""

from __future__ import annotations

from typing import Any

import pytest
from support.conversations.talk import begun
from support.each import with_each
from support.workflows.plans import plan_of

from lastlight_state import InvalidValue, NotFound, StateStore
from lastlight_state.conversations import NewMessage, Search, Within
from lastlight_state.conversations.messages import similar
from lastlight_state.testing import Database


def embedded(*keys: str, role: str = "user") -> list[NewMessage]:
    """Messages that are the nearer to (1, 0) the earlier they stand."""
    return [NewMessage(role, key, id=key, embedding=[1, n]) for n, key in enumerate(keys)]


@pytest.fixture
def c(every_backend: StateStore) -> Any:
    """A branch of five messages, one of them twice, a fork at the second, and one message that stands nowhere."""
    found = every_backend.conversations
    begun(every_backend)
    found.branches.append(
        "main",
        [
            *embedded("a", "b", "c"),
            NewMessage("user", "plain"),
            NewMessage("user", "long", id="long", embedding=[1, 0, 0]),
        ],
    )
    found.lineage.fork("main", at=2, branch_id="fork")
    found.branches.append("main", ["a"], on_repeat="keep")
    found.branches.append("fork", [NewMessage("assistant", "own", id="own", embedding=[1, 1])])
    found.messages.create(NewMessage("user", "alone", id="alone", embedding=[1, 0]))
    found.messages.set_embedding("b", [1, 1], model="small")
    return found


def ids(hits: Any) -> list[str]:
    return [hit.message.id for hit in hits]


def test_the_nearest_of_all_messages_are_found(c: Any) -> None:
    """conversations CV-38: those with an embedding of this length; equal ones by their ids."""
    hits = c.messages.similar([1, 0])
    assert ids(hits) == ["a", "alone", "b", "own", "c"]
    assert (hits[0].message.content, hits[0].score) == ("a", 1.0)
    assert ids(c.messages.similar([1, 0, 0])) == ["long"]
    assert ids(c.messages.similar([1, 0], top_k=1, how=Search("dot"))) == ["a"]


def test_a_branch_means_its_whole_history(c: Any) -> None:
    """conversations CV-38: inherited messages, and none that the parent got later."""
    assert ids(c.messages.similar([1, 0], within=Within(branch_id="fork"))) == ["a", "b", "own"]
    assert ids(c.messages.similar([1, 0], within=Within(branch_id="main"))) == ["a", "b", "c"]
    branch = c.branches.get("main")
    assert ids(c.messages.similar([1, 0], within=Within(session_id=branch.session_id))) == ["a", "b", "own", "c"]
    assert ids(c.messages.similar([1, 0], within=Within(progression_id=branch.progression_id))) == ["a", "b", "c"]


def test_messages_of_another_role_or_model_are_left_out(c: Any) -> None:
    """conversations CV-38."""
    assert ids(c.messages.similar([1, 0], model="small")) == ["b"]
    assert ids(c.messages.similar([1, 0], role="assistant", within=Within(branch_id="fork"))) == ["own"]


@with_each(
    ("within", "error"),
    [(Within(session_id="nobody"), NotFound), (Within(branch_id="nobody"), NotFound),
     (Within(progression_id="nobody"), NotFound), (Within(), InvalidValue), (Within("s", "b"), InvalidValue)],
)  # fmt: skip
def test_a_place_that_is_not_there_is_refused(every_backend: StateStore, within: Within, error: Any) -> None:
    """conversations CV-38."""
    with pytest.raises(error):
        every_backend.conversations.messages.similar([1, 0], within=within)


@with_each("linked", [False, True])
def test_a_search_reads_by_an_index(database: Database, linked: bool) -> None:
    """conversations CV-39: embeddings and no bodies."""
    store = database.open(migrate=True)
    values = {"after_ord": -1, "progression_id": "p", "until": 9} if linked else {"after_id": ""}
    statement = similar.scan(frozenset(), linked=linked)
    assert "content" not in statement.on(store.backend).sql
    plan = plan_of(database, store, statement, {**values, "limit": 100}, in_order=True)
    assert not plan.scans_the_table, plan
