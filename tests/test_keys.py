"""Keys of several parts, wherever they are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from lastlight_state import InvalidValue, StateStore
from lastlight_state.backends.host_connections import lock_number
from lastlight_state.conversations import NewSession
from lastlight_state.integrations import (
    a2a,
    a2a_replicas,
    adk,
    langgraph_search,
    openai_agents,
    pydantic_ai,
)
from lastlight_state.keys import compose_key, parts_of
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.human_requests.checks import default_id

#: What separates, escapes, and is easily taken for either.
PARTS = st.text("a/%:25F3A\x1f\\é", max_size=6)
NAMES = PARTS.filter(str.strip)


def adapter(kind: Any, **own: Any) -> Any:
    """Return an adapter as it composes keys, without its framework."""
    made = object.__new__(kind)
    vars(made).update(own)
    return made


def within(kind: Any, name: str) -> Callable[..., str]:
    return lambda scope, *names: getattr(adapter(kind, _scope=scope), name)(*names)


def labels(word: str) -> Callable[..., str]:
    return lambda scope, *names: compose_key(scope, word, "") + langgraph_search.labels_of(names)


#: By the table, how keys in it are made, and of how many parts.
CONVERSATIONS: list[tuple[Callable[..., str], int]] = [
    (openai_agents._key, 2),
    (within(pydantic_ai.PydanticAIConversations, "_key"), 2),
    (within(pydantic_ai.PydanticAIConversations, "_entry_key"), 2),
]
SCOPES: list[tuple[Callable[..., str], int]] = [
    (within(a2a.A2ATasks, "_scope_of"), 2),
    (within(a2a.A2APushConfigs, "_scope_of"), 3),
    (within(a2a_replicas.A2AVersionedTasks, "_versions"), 2),
    (a2a_replicas._events, 3),
    (lambda scope, app: adapter(adk.ADKSessions, _scope=scope)._place(app, "", "").app, 2),
    *(
        (lambda scope, app, user, at=at: adapter(adk.ADKSessions, _scope=scope)._place(app, user, "")[at], 3)
        for at in (1, 2)
    ),
    (lambda scope, *names: adapter(adk.ADKSessions, _scope=scope)._place(*names).session, 4),
    *((labels(word), parts) for word in ("items", "vectors") for parts in (2, 3, 4)),
]
OTHERS: list[tuple[Callable[..., str], int]] = [(lambda *parts: compose_key(*parts, by=":"), 3)]


@given(st.data())
@pytest.mark.parametrize("table", [CONVERSATIONS, SCOPES, OTHERS], ids=["conversations", "scopes", "others"])
def test_two_keys_are_equal_only_where_every_part_is(table: list[tuple[Any, int]], data: st.DataObject) -> None:
    """house H-134 and integrations AD-68: of one adapter or of two, whatever the parts hold."""
    made = []
    for _ in range(2):
        at = data.draw(st.sampled_from(range(len(table))))
        make, parts = table[at]
        given_parts = data.draw(st.tuples(*[PARTS] * parts))
        made.append(((at, given_parts), make(*given_parts)))
    (one, key), (other, other_key) = made
    assert (key == other_key) is (one == other)


@given(st.lists(PARTS, min_size=1), st.sampled_from("/:"))
def test_the_parts_of_a_key_come_back(parts: list[str], by: str) -> None:
    """house H-134."""
    assert parts_of(compose_key(*parts, by=by), by=by) == parts


@given(st.tuples(NAMES, NAMES, st.integers(0, 3)), st.tuples(NAMES, NAMES, st.integers(0, 3)))
def test_questions_of_two_nodes_have_two_ids(one: tuple[str, str, int], other: tuple[str, str, int]) -> None:
    """house H-134."""
    ids = [default_id(run, NodeRef(node, iteration)) for run, node, iteration in (one, other)]
    assert (ids[0] == ids[1]) is (one == other)


def test_normal_parts_stand_in_a_key_as_they_are() -> None:
    """house H-134: people know it again."""
    assert compose_key("adk", "session", "support", "ana", "ticket-17") == "adk/session/support/ana/ticket-17"
    assert default_id("r1", NodeRef("build:web", 2)) == "human:r1:build:web:2"
    assert lock_number("a:b", "c") != lock_number("a", "b:c")


def test_a_key_that_is_too_long_is_refused_by_name(every_backend: StateStore) -> None:
    """integrations AD-68."""
    key = openai_agents._key("openai-agents", "/" * 90)
    with pytest.raises(InvalidValue, match="limit of 256"):
        every_backend.conversations.sessions.ensure(NewSession(key))
