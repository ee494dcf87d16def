"""Envelopes of sealed values, which a later version has to read as well."""

from __future__ import annotations

from typing import Any, cast

import pytest
from sqlalchemy.exc import CompileError
from support.each import with_each
from support.locks import named
from support.sealing import SECRET, Bound, Xor, filled

from lastlight_state import AsyncStateStore, CorruptData, InvalidValue, SealedValue
from lastlight_state.conversations import NewMessage
from lastlight_state.conversations.branches.statements import CONTENTS
from lastlight_state.db.rows.compiled import Compiled
from lastlight_state.db.rows.statements import Statement
from lastlight_state.db.schema import sealing
from lastlight_state.ids import new_id
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database


class Clear:
    """Seals nothing, and shows what it was given: for recordings alone."""

    def __init__(self) -> None:
        self.contexts: list[bytes] = []

    def encode(self, data: bytes, *, context: bytes) -> tuple[str, bytes]:
        self.contexts.append(context)
        return "k1", data[::-1]

    def decode(self, key_id: str, data: bytes, *, context: bytes) -> bytes:
        self.contexts.append(context)
        return data[::-1]


class ClearAlone:
    def encode(self, data: bytes) -> tuple[str, bytes]:
        return "k1", data[::-1]

    def decode(self, key_id: str, data: bytes) -> bytes:
        return data[::-1]


def stored(database: Database, table: str, column: str, where: str) -> Any:
    [[found]] = database.raw().execute(f"SELECT {column} FROM {table} WHERE {where}").fetchall()
    if isinstance(found, dict):
        import json

        return json.dumps(found, separators=(",", ":"))
    return bytes(found) if isinstance(found, bytes | memoryview) else found


#: Envelopes as they stand in a cell, by the version. A released envelope is read for ever: never change one of these.
RECORDED = {
    1: ('{"$sealed":[1,"k1","fSJhIjoiYSJ7"]}', b"\xf5LLSEAL\x01\x02k1cba"),
    2: ('{"$sealed":[2,"k1","fSJhIjoiYSJ7"]}', b"\xf5LLSEAL\x02\x02k1cba"),
}


@pytest.mark.parametrize("version", RECORDED)
def test_envelopes_are_written_and_read_as_they_were_recorded(database: Database, version: int) -> None:
    """codec CO-16: JSON and bytes, of both versions."""
    store = database.open(codec={1: ClearAlone, 2: Clear}[version]())
    store.states.put("json", {"a": "a"})
    store.states.put("bytes", b"abc")
    json_cell, bytes_cell = RECORDED[version]
    assert sealing.envelope(__import__("json").loads(json_cell)) == (version, "k1", b'}"a":"a"{')
    found = stored(database, "states", "value", "key = 'json'")
    assert found.replace(", ", ",").replace(": ", ":") == json_cell
    assert stored(database, "states", "body", "key = 'bytes'") == bytes_cell
    assert [store.states.get(key).value for key in ("json", "bytes")] == [{"a": "a"}, b"abc"]


def test_a_context_names_the_row_of_a_value(database: Database) -> None:
    """codec CO-17: the same when it is sealed and when it is opened. Never change one of these."""
    codec = Clear()
    store = database.open(codec=codec)
    filled(store)
    thread = store.checkpoints.thread("t").id
    written = [context.decode() for context in codec.contexts]
    assert set(written) == {
        '["states.value","","json"]',
        '["states.body","","bytes"]',
        *(f'["checkpoints.body","{thread}","","step-{n}","json"]' for n in (1, 2)),
        f'["checkpoint_values.body","{thread}","","a",0,0,"whole"]',
        f'["checkpoint_values.body","{thread}","","a",1,0,"change"]',
        f'["checkpoint_values.body","{thread}","","b",0,0,"whole"]',
        f'["checkpoint_writes.body","{thread}","","step-2","x",0,"a","raw"]',
        *(f'["messages.content","{one}","user"]' for one in ("m", "m0", "m1", "m2")),
    }
    codec.contexts.clear()
    store.states.items()
    store.checkpoints.history("t")
    store.conversations.messages.get_many(["m", "m0", "m1", "m2"])
    assert {context.decode() for context in codec.contexts} == set(written)


def test_a_binding_is_called_like_its_column() -> None:
    """codec CO-17: and names columns of its row."""
    for table in METADATA.tables.values():
        for column in table.columns:
            binding = sealing.binding_of(column.type)
            if binding is not None:
                assert binding.name == f"{table.name}.{column.name}"
                assert {*binding.keys} <= {*table.columns.keys()}


@pytest.mark.slow
def test_every_statement_has_what_its_sealed_values_are_bound_to(database: Database) -> None:
    """codec CO-17: where it shows one, and where it stores one."""
    backend = database.open(codec=Bound(1)).backend
    seen = 0
    for statement in named().values():
        if not isinstance(statement, Statement) or statement is CONTENTS[False]:  # which no store with a codec runs
            continue
        try:
            compiled = cast(Any, statement.element).compile(dialect=backend.dialect)
        except CompileError:  # of the other database alone
            continue
        bindings = [sealing.binding_of(bind.type) for bind in compiled.bind_names]
        if not any(bindings) and not any(sealing.binding_of(entry.type) for entry in compiled._result_columns):
            continue
        Compiled(statement.element, backend)
        seen += 1
        for binding in filter(None, bindings):
            given = {*compiled.bind_names.values()}
            assert {*binding.keys} <= given or "sealed" in given, str(compiled)
    assert seen > 10


@with_each(
    "cell",
    [
        '{"$sealed":1}',
        '{"$sealed":[]}',
        '{"$sealed":["k1","eA=="]}',
        '{"$sealed":[1,"k1"]}',
        '{"$sealed":[1,"k1","?"]}',
        '{"$sealed":[0,"k1","eA=="]}',
        '{"$sealed":[true,"k1","eA=="]}',
        '{"$sealed":[1,1,"eA=="]}',
    ],
)
@with_each("codec", [None, Xor(7), Bound(1)])
def test_a_damaged_envelope_is_named(database: Database, cell: str, codec: Any) -> None:
    """codec CO-18: and is never read as a value."""
    store = database.open(codec=codec)
    store.states.put("k", 1)
    cast = "::jsonb" if database.name != "sqlite" else ""
    database.raw().execute(f"UPDATE states SET value = '{cell}'{cast}")
    with pytest.raises(CorruptData):
        store.states.get("k")
    assert [one.table for one in store.states.items().damaged] == ["states"]


@with_each("codec", [None, Xor(7), Bound(1)])
def test_an_envelope_of_a_later_version_is_refused_by_its_number(database: Database, codec: Any) -> None:
    """codec CO-18: also in a column of bytes, whatever follows."""
    store = database.open(codec=codec)
    store.states.put("json", 1)
    store.states.put("bytes", b"1")
    postgres = database.name != "sqlite"
    later = "'{\"$sealed\":[3,{},1]}'" + ("::jsonb" if postgres else "")
    data = "'\\xf54c4c5345414c03'::bytea" if postgres else "x'f54c4c5345414c03'"
    database.raw().execute(f"UPDATE states SET value = {later} WHERE key = 'json'")
    database.raw().execute(f"UPDATE states SET body = {data} WHERE key = 'bytes'")
    for key in ("json", "bytes"):
        with pytest.raises(SealedValue, match="version 3"):
            store.states.get(key)
    if codec is not None:
        done = store.maintenance.reencrypt.run()
        assert (done.complete, done.unopened) == (False, {"": 2})


class Returning(Xor):
    """Returns what it is told to, with the method that it is told."""

    def __init__(self, made: Any = None, opened: Any = None) -> None:
        super().__init__(7)
        self._made, self._opened = made, opened

    def encode(self, data: bytes, /) -> Any:
        return super().encode(data) if self._made is None else self._made[0]

    def decode(self, key_id: str, data: bytes, /) -> Any:
        return super().decode(key_id, data) if self._opened is None else self._opened[0]


@with_each(
    "made",
    [
        None,
        (),
        ("k",),
        ("k", b"x", b"y"),
        ["k", b"x"],
        "kx",
        (None, b"x"),
        (b"k", b"x"),
        (1, b"x"),
        ("k", None),
        ("k", "x"),
        ("k", bytearray(b"x")),
        ("", b"x"),
        (" ", b"x"),
        ("k" * 201, b"x"),
        ("é" * 101, b"x"),
        ("k\0", b"x"),
        ("k\n", b"x"),
        ("k\ud800", b"x"),
    ],
    ids=lambda made: ascii(made)[:20],
)
def test_what_a_codec_may_not_return_is_refused_before_anything_is_stored(every_backend: Any, made: Any) -> None:
    """codec CO-7: the same error on both databases, for each way to store."""
    store = every_backend
    store.backend.sealing = sealing.Sealing(Returning(made=(made,)))
    order = store.conversations.progressions.create(new_id()).id
    messages = [NewMessage(id=f"m{n}", role="user", content=n) for n in range(3)]
    for put in (
        lambda: store.states.put("k", 1),
        lambda: store.states.put("k", b"1"),
        lambda: store.conversations.messages.create(messages[0]),
        lambda: store.conversations.progressions.append(order, messages),
        lambda: filled(store),
    ):
        with pytest.raises(InvalidValue, match="codec"):
            put()
    assert (store.states.list().items, store.conversations.messages.list().items) == ((), ())


def test_a_codec_that_makes_too_much_of_a_value_is_refused(every_backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """codec CO-7."""
    monkeypatch.setattr(sealing, "MOST_DATA", 100)
    every_backend.backend.sealing = sealing.Sealing(Returning(made=(("k", b"x" * 101),)))
    with pytest.raises(InvalidValue, match="limit of 100"):
        every_backend.states.put("k", 1)


@with_each("opened", [None, "1", bytearray(b"1"), 1], ids=ascii)
def test_what_a_codec_may_not_open_as_is_a_sealed_value(every_backend: Any, opened: Any) -> None:
    """codec CO-3: and what is opened to no JSON is damage."""
    every_backend.backend.sealing = sealing.Sealing(Xor(7))
    every_backend.states.put("k", 1)
    every_backend.backend.sealing = sealing.Sealing(Returning(opened=(opened,)))
    with pytest.raises(SealedValue, match=r"must return bytes"):
        every_backend.states.get("k")
    every_backend.backend.sealing = sealing.Sealing(Returning(opened=(b"{",)))
    with pytest.raises(CorruptData):
        every_backend.states.get("k")


def test_both_methods_of_a_codec_take_a_context_or_neither(database: Database) -> None:
    """codec CO-7."""

    class Half(Clear):
        def decode(self, key_id: str, data: bytes) -> bytes:  # type: ignore[override]
            return data

    with pytest.raises(InvalidValue, match="context"):
        database.open(codec=Half())
    with pytest.raises(InvalidValue, match="plain"):
        database.open(plain="refuse")
    with pytest.raises(InvalidValue, match="plain"):
        database.open(codec=Clear(), plain="never")


def test_an_async_store_takes_them_too(database: Database) -> None:
    """codec CO-20."""
    import asyncio

    async def work() -> None:
        database.open().states.put("plain", SECRET)
        async with AsyncStateStore(database.open(codec=Bound(1), plain="refuse")) as store:
            with pytest.raises(SealedValue):
                await store.states.get("plain")

    asyncio.run(work())
