"""Somebody who may write the database, and has no key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from support.checkpoints.steps import step, texts, write
from support.conversations.talk import begun
from support.each import with_each
from support.sealing import SAID, Bound, Xor, cells, filled, said

from lastlight_state import CorruptData, SealedValue, StateStore
from lastlight_state.conversations import NewMessage
from lastlight_state.maintenance import RedactPolicy
from lastlight_state.testing import Database

#: A sealed column, and how two of its cells are told apart: by a row of one person and one of another.
CELLS: dict[str, tuple[str, str, str, str]] = {
    "state of another key": ("states", "value", "key = 'a' AND scope = 'ana'", "key = 'b' AND scope = 'ana'"),
    "state of another scope": ("states", "value", "key = 'a' AND scope = 'ana'", "key = 'a' AND scope = 'bo'"),
    "bytes of another key": ("states", "body", "key = 'x' AND scope = 'ana'", "key = 'y' AND scope = 'ana'"),
    "bytes of another scope": ("states", "body", "key = 'x' AND scope = 'ana'", "key = 'x' AND scope = 'bo'"),
    "message": ("messages", "content", "id = 'm1'", "id = 'm2'"),
    "message of another person": ("messages", "content", "id = 'm1'", "id = 'm3'"),
    "checkpoint": ("checkpoints", "body", "{ana} AND id = 'step-1'", "{ana} AND id = 'step-2'"),
    "checkpoint of another thread": ("checkpoints", "body", "{ana} AND id = 'step-1'", "{bo} AND id = 'step-1'"),
    "value": ("checkpoint_values", "body", "{ana} AND channel = 'a'", "{ana} AND channel = 'b'"),
    "value of another thread": ("checkpoint_values", "body", "{ana} AND channel = 'a'", "{bo} AND channel = 'a'"),
    "write": ("checkpoint_writes", "body", "{ana} AND idx = 0", "{ana} AND idx = 1"),
    "write of another thread": ("checkpoint_writes", "body", "{ana} AND idx = 0", "{bo} AND idx = 0"),
}


def told(store: StateStore) -> None:
    """Store contents of two people, in every sealed column."""
    for person in ("ana", "bo"):
        for key, value in (("a", 1), ("b", 2), ("x", b"1"), ("y", b"2")):
            store.states.put(key, value, scope=person, user=person)
        store.checkpoints.put(person, step(1, {"a": f"{person} a", "b": f"{person} b"}), user=person)
        store.checkpoints.put(person, step(2, {}, versions={"a": "1", "b": "1"}), user=person)
        store.checkpoints.put_writes(person, "step-1", "x", [write(0, f"{person} 0"), write(1, f"{person} 1")])
    for n in range(4):
        sender = "ana" if n < 3 else "bo"
        store.conversations.messages.create(NewMessage(id=f"m{n}", role="user", content=f"said {n}", sender=sender))


@pytest.fixture
def filled_database(database: Database) -> Database:
    """A database with contents of two people, in every sealed column."""
    with database.open(codec=Bound(1)) as store:
        told(store)
    return database


def reads(store: StateStore) -> Iterator[Callable[[], object]]:
    """Yield calls that together open every sealed value by itself."""
    for person in ("ana", "bo"):
        for key in "abxy":
            yield lambda key=key, person=person: store.states.get(key, scope=person)  # type: ignore[misc]
        for one in ("step-1", "step-2"):
            yield lambda one=one, person=person: store.checkpoints.get(person, one)  # type: ignore[misc]
    for n in range(4):
        yield lambda n=n: store.conversations.messages.get(f"m{n}")  # type: ignore[misc]


def refused(store: StateStore) -> int:
    """Return how many calls are refused for a value that was not sealed where it stands."""
    count = 0
    for read in reads(store):
        try:
            read()
        except SealedValue:
            count += 1
    return count


def places(store: StateStore, *conditions: str) -> list[str]:
    ids = {person: f"thread_id = '{store.checkpoints.thread(person).id}'" for person in ("ana", "bo")}
    return [one.format(**ids) for one in conditions]


@contextmanager
def restoring(database: Database, table: str, column: str, where: str) -> Iterator[None]:
    """Put the cell of this row back after the block, as it was."""
    with closing(database.raw()) as raw:
        raw.execute(f"CREATE TEMPORARY TABLE kept AS SELECT {column} FROM {table} WHERE {where}")
        assert raw.execute("SELECT count(*) FROM kept").fetchall() == [(1,)]
        try:
            yield
        finally:
            raw.execute(f"UPDATE {table} SET {column} = (SELECT {column} FROM kept) WHERE {where}")


def move(database: Database, table: str, column: str, source: str, target: str) -> None:
    changed = database.raw().execute(
        f"UPDATE {table} SET {column} = (SELECT {column} FROM {table} WHERE {source}) WHERE {target}"
    )
    assert changed.rowcount == 1


@with_each("attack", CELLS)
@with_each("plain", ["read", "refuse"])
def test_a_sealed_value_is_not_opened_in_another_row(filled_database: Database, attack: str, plain: Any) -> None:
    """codec CO-19: the cells of a row are moved to another one, there and back."""
    table, column, *conditions = CELLS[attack]
    with filled_database.open(codec=Bound(1), plain=plain) as store:
        assert refused(store) == 0
        one, other = places(store, *conditions)
        with restoring(filled_database, table, column, other):
            move(filled_database, table, column, one, other)
            assert refused(store) >= 1
            done = store.maintenance.reencrypt.run()
            assert done.complete  # it is under the present key, and nothing has to be opened
            assert store.maintenance.doctor.examine(deep=True, only=["DOC-14"]).findings
        assert refused(store) == 0


@with_each("attack", CELLS)
def test_a_planted_plain_value_is_refused_by_name(filled_database: Database, attack: str) -> None:
    """codec CO-20: where the store refuses plain values, and where it stands in the envelope of what is not sealed."""
    table, column, condition, _ = CELLS[attack]
    is_json, postgres = column in ("value", "content"), filled_database.name != "sqlite"
    for planted in ('"evil"', '{"$sealed":[1,"","ImV2aWwi"]}') if is_json else ("6576", "f54c4c5345414c01006576"):
        if is_json:
            literal = f"'{planted}'" + ("::jsonb" if postgres else "")
        else:
            literal = f"'\\x{planted}'::bytea" if postgres else f"x'{planted}'"
        with filled_database.open(codec=Bound(1), plain="refuse") as store:
            [where] = places(store, condition)
            with restoring(filled_database, table, column, where):
                filled_database.raw().execute(f"UPDATE {table} SET {column} = {literal} WHERE {where}")
                assert refused(store) >= 1
                done = store.maintenance.reencrypt.run()
                assert (done.complete, done.unopened, [one.table for one in done.damaged]) == (False, {"": 1}, [table])
                assert refused(store) >= 1
            assert refused(store) == 0


def test_an_envelope_that_is_not_bound_is_refused_where_plain_values_are(database: Database) -> None:
    """codec CO-20: such as one of before the codec took a context, once all is sealed anew."""

    class Both(Bound):
        """Opens what an older codec has sealed by itself."""

        def decode(self, key_id: str, data: bytes, context: bytes) -> bytes:
            return Xor(7).decode(key_id, data) if key_id == "key-7" else super().decode(key_id, data, context)

    database.open(codec=Xor(7)).states.merge({"a": 1, "b": 2})
    store = database.open(codec=Both(1))
    assert [one.value for one in store.states.items()] == [1, 2]
    strict = database.open(codec=Both(1), plain="refuse")
    with pytest.raises(SealedValue, match="not bound"):
        strict.states.get("a")
    assert store.maintenance.reencrypt.plan() == {"states": 2}
    assert store.maintenance.reencrypt.run().complete
    assert [one.value for one in strict.states.items()] == [1, 2]
    for version in ("1", "0", "3"):  # what is bound is not opened as another version
        sql = (
            f"UPDATE states SET value = jsonb_set(value, '{{$sealed,0}}', '{version}') WHERE key = 'a'"
            if database.name != "sqlite"
            else f"UPDATE states SET value = json_set(value, '$.\"$sealed\"[0]', {version}) WHERE key = 'a'"
        )
        database.raw().execute(sql)
        with pytest.raises(CorruptData):
            store.states.get("a")


def test_a_whole_message_under_another_role_is_not_opened(database: Database) -> None:
    """codec CO-19: what a user said does not become a system message."""
    store = database.open(codec=Bound(1))
    told(store)
    database.raw().execute("UPDATE messages SET role = 'system' WHERE id = 'm1'")
    database.raw().execute("UPDATE states SET scope = 'cy' WHERE scope = 'bo' AND key = 'a'")
    for read in (lambda: store.conversations.messages.get("m1"), lambda: store.states.get("a", scope="cy")):
        with pytest.raises(SealedValue):
            read()


@pytest.mark.parametrize("plain", ["read", "refuse"])
def test_a_copy_of_a_thread_is_sealed_for_itself(database: Database, plain: Any) -> None:
    """codec CO-21: every part of it, and the thread stays."""
    store = database.open(codec=Bound(1), plain=plain)
    filled(store)
    for n in range(3, 130):
        store.checkpoints.put("t", step(n, {"a": "long enough to be changed " * 9 + str(n), "b": str(n)}))
    assert store.checkpoints.copy("t", "fork") == 129
    for one in ("step-1", "step-64", "step-129"):
        assert texts(store.checkpoints.get("fork", one)) == texts(store.checkpoints.get("t", one))
    assert store.checkpoints.get("fork", "step-2").writes == store.checkpoints.get("t", "step-2").writes
    assert not store.maintenance.doctor.examine(deep=True, only=["DOC-14"]).findings


@pytest.mark.parametrize("codec", [None, Xor(9), Bound(2)])
def test_a_thread_that_cannot_be_sealed_anew_is_not_copied(database: Database, codec: Any) -> None:
    """codec CO-21: by a store without the key, nothing of it."""
    filled(database.open(codec=Bound(1)))
    before = cells(database)
    with pytest.raises(SealedValue) as refused:
        database.open(codec=codec).checkpoints.copy("t", "fork")
    assert (refused.value.key_id, refused.value.table[:10]) == ("aes-1", "checkpoint")
    assert cells(database) == before


def test_bound_values_are_read_after_every_move_of_their_rows(database: Database, tmp_path: Any) -> None:
    """codec CO-21: copies, backups, bundles, and what is redacted."""
    store = database.open(codec=Bound(1), plain="refuse")
    filled(store)
    StateStore.open(str(tmp_path / "copy.db")).close()
    store.maintenance.copy.run(str(tmp_path / "copy.db"))
    with StateStore.open(str(tmp_path / "copy.db"), codec=Bound(1), plain="refuse") as copied:
        assert said(copied) == SAID
    branch = begun(store, "a")
    store.conversations.lifecycle.transition(branch.session_id, "completed")
    store.maintenance.redact.run(RedactPolicy(session_id=branch.session_id))
    assert all("lion_content_pruned" in one.message.content for one in store.conversations.branches.history(branch.id))
    assert store.maintenance.reencrypt.run().complete
