"""Contents that a codec seals: what stands in the cells, and what reads them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session
from support.conversations.talk import begun
from support.sealing import SAID, SECRET, Bound, Xor, cells, filled, said

from lastlight_state import AlreadyExists, AsyncStateStore, Codec, InvalidValue, SealedValue
from lastlight_state.conversations import NewMessage
from lastlight_state.db.schema import sealing
from lastlight_state.maintenance import RedactPolicy
from lastlight_state.models import StateModel
from lastlight_state.testing import Database


@pytest.mark.parametrize("codec", [Xor(7), Bound(1)])
def test_what_a_codec_seals_reads_back_equal_and_stands_nowhere(database: Database, codec: Any) -> None:
    """codec CO-1: contents of messages, states and checkpoints, by single and by many rows."""
    store = database.open(codec=codec)
    filled(store)
    assert said(store) == SAID
    assert "nobody may find" not in cells(database)


def test_a_row_without_an_envelope_stays_readable(database: Database) -> None:
    """codec CO-2."""
    filled(database.open())
    store = database.open(codec=Xor(7))
    assert said(store)[0] == {"said": SECRET, "n": [1, None]}
    store.states.put("json", 1)
    assert (store.states.get("json").value, store.states.get("bytes").value) == (1, SECRET.encode())


@pytest.mark.parametrize("codec", [None, Xor(9)])
def test_a_value_that_cannot_be_opened_is_named_with_its_key(database: Database, codec: Xor | None) -> None:
    """codec CO-3: without a codec, and with one that has not the key; on every way to read."""
    filled(database.open(codec=Xor(7)))
    store = database.open() if codec is None else database.open(codec=codec)
    for read, table in (
        (lambda: store.states.get("json"), "states"),
        (lambda: store.states.get("bytes"), "states"),
        (lambda: store.checkpoints.get("t"), "checkpoints"),
        (lambda: store.conversations.messages.get("m"), "messages"),
    ):
        with pytest.raises(SealedValue) as refused:
            read()
        assert (refused.value.key_id, refused.value.code, refused.value.table) == ("key-7", "sealed_value", table)
    assert [one.key for one in store.states.list()] == ["bytes", "json"]


def test_an_equal_message_is_equal_though_its_envelope_is_another(database: Database) -> None:
    """codec CO-4: what is compared is the content."""
    messages = database.open(codec=Xor(7)).conversations.messages
    messages.create(NewMessage(id="m", role="user", content={"a": 1}))
    again = database.open(codec=Xor(9, 7)).conversations.messages
    assert again.ensure(NewMessage(id="m", role="user", content={"a": 1})).content == {"a": 1}
    with pytest.raises(AlreadyExists):
        again.ensure(NewMessage(id="m", role="user", content={"a": 2}))


#: What another program, or a person, may say.
ENVELOPES: list[Any] = [
    {sealing.MEMBER: [1, "key-7", "eA=="]},
    {sealing.MEMBER: [2, "", "eA=="]},
    {sealing.MEMBER: 1},
    {sealing.MEMBER: [1, "key-7", "eA=="], "more": 1},
    b"\xf5LLSEAL\x01\x05key-7x",
    b"\xf5LLSEAL\x02\x00x",
    b"\xf5LLSEAL\x01",
    b"\xf5LLSEAL",
]


@pytest.mark.parametrize("codec", [None, Xor(7), Bound(1)])
def test_a_value_that_looks_like_an_envelope_is_stored_like_any_other(database: Database, codec: Any) -> None:
    """codec CO-9: with a codec and without one, by single and by many rows; later with a codec, too."""
    store = database.open(codec=codec)
    names = [f"{n}" for n in range(len(ENVELOPES))]
    said = [one for one in ENVELOPES if isinstance(one, dict)]
    store.states.merge(dict(zip(names, ENVELOPES, strict=True)))
    store.conversations.progressions.create("p")
    store.conversations.progressions.append(
        "p", [NewMessage(id=f"m{n}", role="user", content=content) for n, content in enumerate(said)]
    )
    for name, content in enumerate(said):
        store.conversations.messages.ensure(NewMessage(id=f"m{name}", role="user", content=content))

    def read(later: Any) -> None:
        found = later.states.find_many(names)
        assert [found[name].value for name in names] == ENVELOPES
        assert [later.conversations.messages.get(f"m{n}").content for n in range(len(said))] == said

    read(store)
    sealed = database.open(codec=codec or Bound(1))
    read(sealed)
    sealed.maintenance.reencrypt.run()
    read(sealed)
    assert sealed.maintenance.reencrypt.plan() == {}


def test_a_filter_by_members_is_refused_where_nothing_can_look_into_values(database: Database) -> None:
    """codec CO-5."""
    store = database.open(codec=Xor(7))
    with pytest.raises(InvalidValue, match="sealed"):
        store.states.list(where={"a": 1})


def test_a_redacted_message_keeps_its_mark_in_plain(database: Database) -> None:
    """codec CO-6: and is not redacted twice."""
    store = database.open(codec=Xor(7))
    branch = begun(store, "a")
    store.conversations.lifecycle.transition(branch.session_id, "completed")
    policy = RedactPolicy(session_id=branch.session_id)
    assert store.maintenance.redact.run(policy).counts.get("messages") == 1
    assert store.maintenance.redact.plan(policy).counts.get("messages", 0) == 0


def test_a_codec_must_be_one(database: Database) -> None:
    """codec CO-7: it is refused before anything is opened, and what it returns is looked at."""
    with pytest.raises(InvalidValue):
        database.open(codec=object())

    class Odd(Xor):
        def encode(self, data: bytes, /) -> tuple[str, bytes]:
            return "k" * self.keys[0], data

    assert isinstance(Odd(1), Codec)
    for length in (0, 201):
        with pytest.raises(InvalidValue, match="codec"):
            database.open(codec=Odd(length)).states.put("k", 1)


def test_a_codec_serves_coroutines_transactions_and_views(database: Database) -> None:
    """codec CO-1."""

    async def work() -> tuple[Any, Any]:
        async with AsyncStateStore(database.open(codec=Xor(7))) as store:
            async with store.transaction() as tx:
                await tx.states.put("k", SECRET)
                inside = (await tx.states.get("k")).value
            async with store.view() as view:
                return inside, (await view.states.get("k")).value

    assert asyncio.run(work()) == (SECRET, SECRET)
    assert "nobody may find" not in cells(database)


def test_a_store_without_a_codec_opens_nothing_and_asks_nobody(database: Database) -> None:
    """codec CO-8: its statements are those of before."""
    store, sealed = database.open(), database.open(codec=(codec := Xor(7)))
    store.states.put("k", 1)
    assert store.states.get("k").value == 1
    assert codec.opened == 0
    sealed.states.put("k", 2)
    assert (sealed.states.get("k").value, codec.opened) == (2, 1)


def test_a_session_of_sqlalchemy_reads_plain_values_and_names_sealed_ones(database: Database) -> None:
    """codec CO-3: NULL, too, where a state has the other kind of value."""
    plain = database.open()
    plain.states.merge({"json": {"a": 1}, "bytes": b"x"})
    with plain.view() as view, Session(bind=view.connection) as session:
        found = session.execute(sa.select(StateModel.value, StateModel.body).order_by(StateModel.key)).all()
    assert [tuple(row) for row in found] == [(None, b"x"), ({"a": 1}, None)]
    database.open(codec=Xor(7)).states.put("json", 1)
    with plain.view() as view, Session(bind=view.connection) as session, pytest.raises(SealedValue):
        session.execute(sa.select(StateModel.value).where(StateModel.key == "json")).all()
