from __future__ import annotations

import struct
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from support.conversations.talk import begun, said
from support.each import with_each
from support.workflows.steps import Raw

from lastlight_state import AlreadyExists, InvalidValue, NotFound, PayloadTooLarge, StateStore, Transaction, iterate
from lastlight_state.conversations import MessageFilter, NewMessage
from lastlight_state.testing import FrozenClock

SYSTEM = "lionagi.protocols.messages.system.System"


@with_each("content", ['{"a":1}', "null", "5", "", False, 0, [], {}, 1.5, {"deep": [{"x": "✓"}]}])
def test_a_content_keeps_its_value_and_type(every_backend: StateStore, content: Any) -> None:
    """conversations CV-7: text that looks like JSON stays text."""
    stored = every_backend.conversations.messages.create(NewMessage("user", content))
    assert (stored.content, type(stored.content)) == (content, type(content))
    assert every_backend.conversations.messages.get(stored.id) == stored


def test_a_message_has_content_a_role_and_an_id_of_its_own(every_backend: StateStore) -> None:
    """conversations CV-7: made without a store."""
    create = every_backend.conversations.messages.create
    for content, role in ((None, "user"), ("x", " "), ("x", 7), ({1: 2}, "user"), (float("nan"), "user")):
        with pytest.raises(InvalidValue):
            create(NewMessage(role, content))  # type: ignore[arg-type]
    new = NewMessage("user", "x")
    assert create(new).id == new.id
    with pytest.raises(AlreadyExists):
        create(new)


def test_an_equal_message_is_ensured_and_an_unequal_one_refused(every_backend: StateStore) -> None:
    """conversations CV-6: the fields that differ are named."""
    messages = every_backend.conversations.messages
    new = NewMessage("user", {"n": 1}, id="a", sender="ana", node_metadata={"lion_class": SYSTEM}, embedding=[1.0])
    stored = messages.ensure(new)
    assert messages.ensure(NewMessage("user", {"n": 1.0}, id="a")) == stored
    with pytest.raises(AlreadyExists) as refused:
        messages.ensure(NewMessage("user", {"n": True}, id="a", sender="ben", embedding=[2.0]))
    assert vars(refused.value)["fields"] == ("sender", "content", "embedding")
    assert messages.get("a") == stored


def test_a_put_replaces_all_but_the_time_of_creation(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-6: an equal one writes nothing."""
    messages = every_backend.conversations.messages
    first = messages.put(NewMessage("user", "a", id="a", sender="ana", extra={"x": 1}))
    messages.set_embedding("a", [0.5, 1], model="small")
    frozen_clock.advance(seconds=1)
    assert messages.put(NewMessage("user", "a", id="a", sender="ana", extra={"x": 1})).revision == 0
    changed = messages.put(NewMessage("assistant", "b", id="a", lion_class="a.New"))
    assert (changed.role, changed.content, changed.sender, changed.extra) == ("assistant", "b", None, None)
    assert (changed.revision, changed.revised_at, changed.lion_class) == (1, frozen_clock.now(), "a.New")
    assert (changed.created_at, changed.embedding) == (first.created_at, None)


def test_embeddings_are_numbers_of_32_bits_in_one_order_of_bytes(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-36: and no revision."""
    messages = every_backend.conversations.messages
    messages.create(NewMessage("user", "a", id="a"))
    messages.set_embedding("a", [1, 0.1, -2.5], model="small")
    found = messages.get("a")
    assert found.embedding == pytest.approx((1, 0.1, -2.5))
    assert (found.embedding_model, found.revision) == ("small", 0)
    [(stored,)] = raw("SELECT embedding FROM messages")
    assert bytes(stored) == struct.pack("<3f", 1, 0.1, -2.5)
    messages.set_embedding("a", bytes(stored))
    assert messages.get("a").embedding == found.embedding
    messages.set_embedding("a", None)
    assert messages.get("a").embedding is None
    with pytest.raises(NotFound):
        messages.set_embedding("nobody", None)
    with pytest.raises(InvalidValue, match="model"):
        messages.set_embedding("a", None, model="small")


@with_each(
    "vector",
    [[float("nan")], [float("inf")], [1e39], [10**39], [10**400], [], b"1234567", b"", [True], ["1"], "12", 5,
     [0.0] * 16_385, struct.pack("<f", float("inf"))],
)  # fmt: skip
def test_what_is_no_embedding_is_refused(store: StateStore, vector: Any) -> None:
    """conversations CV-4, CV-36."""
    with pytest.raises(InvalidValue):
        store.conversations.messages.create(NewMessage("user", "a", embedding=vector))


def test_classes_are_numbered_when_they_are_first_seen(every_backend: StateStore) -> None:
    """conversations CV-8: a message without one is of the class 0."""
    c = every_backend.conversations
    assert [one.type_id for one in c.message_types.list()] == [0, 1, 2, 3, 4, 5]
    assert c.message_types.find(SYSTEM) == c.message_types.resolve(SYSTEM) == 1
    for none in (None, ""):
        assert c.messages.create(NewMessage("user", "x", lion_class=none)).lion_class == "__unknown__"
    odd = NewMessage("user", "x", node_metadata={"lion_class": 7})
    assert c.messages.create(odd).lion_class == "__unknown__"
    for inside in (None, {}, {"lion_class": "another.Class"}):
        told = NewMessage("user", "x", lion_class="my.Class", node_metadata=inside)
        assert c.messages.create(told).lion_class == "my.Class"
    assert c.message_types.resolve("my.Class") == c.message_types.find("my.Class") == 6
    assert (c.message_types.resolve(None), c.message_types.name(6)) == (0, "my.Class")
    assert c.message_types.resolve("other.Class") == 7
    assert c.message_types.find("nobody") is None
    with pytest.raises(NotFound):
        c.message_types.name(99)


def test_a_class_that_was_rolled_back_is_not_remembered(every_backend: StateStore) -> None:
    """conversations CV-9."""
    c = every_backend.conversations
    with pytest.raises(AlreadyExists), every_backend.transaction() as tx:
        _create_twice(tx)
    assert c.message_types.find("my.Class") is None
    assert c.message_types.resolve("other.Class") == 6
    assert c.messages.create(NewMessage("user", "x", lion_class="my.Class")).lion_class == "my.Class"


def test_messages_are_found_by_every_filter(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-5: newest first, each once, also of one instant; no role at all matches nothing."""
    messages = every_backend.conversations.messages
    for n, role in enumerate(["user", "tool", "user"]):
        messages.create(
            NewMessage(role, n, id=f"m{n}", sender=f"s{n}", recipient="r", channel="c", lion_class=f"c.{n}")
        )
    early = messages.create(NewMessage("user", "x", id="early", created_at=datetime(2020, 1, 1, tzinfo=UTC)))
    by = {
        MessageFilter(): ["m2", "m1", "m0", "early"],
        MessageFilter(roles=("tool", "user"), recipient="r"): ["m2", "m1", "m0"],
        MessageFilter(roles=("tool",)): ["m1"],
        MessageFilter(roles=()): [],
        MessageFilter(sender="s2", channel="c"): ["m2"],
        MessageFilter(lion_class="c.1"): ["m1"],
        MessageFilter(lion_class="c.nobody"): [],
        MessageFilter(since=frozen_clock.now()): ["m2", "m1", "m0"],
        MessageFilter(until=frozen_clock.now()): [early.id],
    }
    for where, expected in by.items():
        assert [one.id for one in iterate(messages.list, where=where, limit=1)] == expected
        assert messages.count(where=where) == len(expected)


def test_many_messages_are_found_by_their_ids(every_backend: StateStore) -> None:
    """conversations CV-10: the missing are absent, the repeated are there once."""
    messages = every_backend.conversations.messages
    begun(every_backend, "a", "b", "c")
    assert set(messages.get_many(["a", "b", "a", *(f"x{i}" for i in range(1_200))])) == {"a", "b"}
    assert (messages.get_many([]), messages.find("x"), messages.find("a")) == ({}, None, messages.get("a"))
    with pytest.raises(InvalidValue):
        messages.get_many(["x"] * 10_001)
    with pytest.raises(NotFound):
        messages.get("x")


def test_everything_that_holds_a_message_is_named(every_backend: StateStore) -> None:
    """conversations CV-10: links and pointers."""
    c = every_backend.conversations
    branch = begun(every_backend, "a", "b")
    c.branches.replace_system("main", "a")
    pool = c.sessions.get(branch.session_id).progression_id
    expected = [
        ("first_msg", branch.session_id, None),
        *sorted([("progression", branch.progression_id, 0), ("progression", pool, 0)]),
        ("system_msg", "main", None),
    ]
    assert [(one.kind, one.id, one.ord) for one in iterate(c.messages.uses, "a", limit=1)] == expected
    assert [use.kind for use in c.messages.uses("b")] == ["last_msg", "progression", "progression"]
    assert sorted(use.progression_id for use in c.progressions.containing("a")) == sorted([branch.progression_id, pool])
    c.messages.create(said("alone")[0])
    assert c.messages.uses("alone").items == ()
    with pytest.raises(NotFound):
        c.messages.uses("nobody")


@with_each(
    ("field", "limit", "error"),
    [("id", 256, InvalidValue), ("sender", 256, InvalidValue), ("role", 64, InvalidValue),
     ("lion_class", 256, InvalidValue), ("content", 8 * 1024 * 1024 - 2, PayloadTooLarge)],
)  # fmt: skip
def test_a_limit_is_met_exactly_and_counts_bytes(
    every_backend: StateStore, field: str, limit: int, error: type[Exception]
) -> None:
    """conversations CV-4."""
    messages = every_backend.conversations.messages
    plain = NewMessage("user", "x")
    text, before = "é" * (limit // 2), messages.count()
    messages.create(replace(plain, **{field: text}))  # type: ignore[arg-type]
    with pytest.raises(error):
        messages.create(replace(plain, **{field: text + "x"}))  # type: ignore[arg-type]
    assert messages.count() == before + 1


def test_metadata_are_objects_within_their_limit(every_backend: StateStore) -> None:
    """conversations CV-4."""
    create = every_backend.conversations.messages.create
    with pytest.raises(PayloadTooLarge):
        create(NewMessage("user", "x", node_metadata={"x": "y" * 256 * 1024}))
    with pytest.raises(InvalidValue):
        create(NewMessage("user", "x", extra=[1]))  # type: ignore[arg-type]


@with_each("moment", [float("nan"), float("-inf"), True, "soon", datetime(2026, 1, 1)])  # noqa: DTZ001
def test_what_is_no_time_is_refused(store: StateStore, moment: Any) -> None:
    """conversations CV-27: nor a time without a zone."""
    with pytest.raises(InvalidValue):
        store.conversations.messages.create(NewMessage("user", "x", created_at=moment))


@with_each("moment", [float("nan"), float("inf")])
def test_a_time_that_is_no_number_is_called_so(store: StateStore, moment: float) -> None:
    """conversations CV-27."""
    with pytest.raises(InvalidValue, match="NaN or infinity"):
        store.conversations.messages.create(NewMessage("user", "x", created_at=moment))


@with_each("moment", [-1e12, 1e12, 253_402_300_800, 1e17, 1e20, 10**400])
def test_a_number_outside_the_calendar_is_no_time(store: StateStore, moment: float) -> None:
    """conversations CV-27: whichever way the platform says so."""
    with pytest.raises(InvalidValue, match="years 1 to 9999"):
        store.conversations.messages.create(NewMessage("user", "x", created_at=moment))


def test_what_a_caller_changes_changes_nothing_that_is_stored(every_backend: StateStore) -> None:
    """conversations CV-3."""
    messages = every_backend.conversations.messages
    stored = messages.create(NewMessage("user", {"a": [1]}, id="a"))
    stored.content["a"].append(2)
    assert messages.get("a").content == {"a": [1]}


def _create_twice(tx: Transaction) -> None:
    new = NewMessage("user", "x", lion_class="my.Class")
    tx.conversations.messages.create(new)
    tx.conversations.messages.create(new)
