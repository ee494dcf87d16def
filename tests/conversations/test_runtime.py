from __future__ import annotations

from typing import Any, Literal

import pytest
from support.conversations.talk import begun
from support.each import with_each

from lastlight_state import InvalidValue, StateStore
from lastlight_state.conversations import NewMessage

GIVEN: dict[str, Any] = {
    "id": "5a4d0e3c-0000-4000-8000-000000000001",
    "created_at": 1765432101.123457,
    "node_metadata": {"lion_class": "my.Message", "nested": {"clone_from": {"id": "b"}, "n": [1, None]}},
    "content": "",
    "role": "assistant",
    "sender": "branch-1",
    "recipient": None,
    "parsed_by": {"model": "x"},
    "lion_version": 3,
}


def test_a_message_of_a_runtime_comes_back_equal(every_backend: StateStore) -> None:
    """conversations CV-27: the number of its time, unknown keys, an empty content."""
    c = every_backend.conversations
    begun(every_backend)
    c.branches.append("main", [NewMessage.from_runtime(GIVEN)])
    [one] = c.branches.history("main")
    back = one.message.to_runtime()
    assert back == {key: value for key, value in GIVEN.items() if value is not None}
    assert (back["created_at"], one.message.lion_class) == (1765432101.123457, "my.Message")
    assert one.message.created_at.microsecond == 123_000


@pytest.mark.parametrize("mode", ["db", "json", "python"])
def test_the_three_modes_make_one_message(every_backend: StateStore, mode: Literal["db", "json", "python"]) -> None:
    """conversations CV-42: only the name of the metadata differs."""
    messages = every_backend.conversations.messages
    key = "node_metadata" if mode == "db" else "metadata"
    given = {"role": "user", "content": [1], key: {"a": 1}, "created_at": "2026-02-03T12:34:56.789+00:00", "id": "a"}
    stored = messages.ensure(NewMessage.from_runtime(given))
    back = stored.to_runtime(mode)
    assert (back[key], back["created_at"]) == ({"a": 1}, stored.created_at.timestamp())
    assert messages.ensure(NewMessage.from_runtime(back)) == stored


def test_an_embedding_comes_back_as_the_nearest_number(store: StateStore) -> None:
    """conversations CV-27."""
    new = NewMessage.from_runtime({"role": "user", "content": "x", "embedding": [0.1, 2.0]})
    assert store.conversations.messages.create(new).to_runtime()["embedding"] == pytest.approx([0.1, 2.0])


@with_each(
    "given",
    [[], {"role": "user"}, {"content": "x"}, {"role": "user", "content": None},
     {"role": "user", "content": "x", "metadata": {}, "node_metadata": {}},
     {"role": "user", "content": "x", "created_at": "soon"}],
)  # fmt: skip
def test_what_is_no_message_is_refused(given: Any) -> None:
    """conversations CV-27."""
    with pytest.raises(InvalidValue):
        NewMessage.from_runtime(given)
