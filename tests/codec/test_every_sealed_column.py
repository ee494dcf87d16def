"""Attacks on every column whose values a codec seals: the columns are found in the models."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from psycopg.types.json import Jsonb
from support.checkpoints.steps import write
from support.conversations.talk import begun
from support.each import with_each
from support.sealing import SAID, Bound, filled, said

from lastlight_state import StateStore
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.sealing import Binding, binding_of
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database

#: The unique indexes that tell the sealed rows of a table apart where its primary key does not stand in the context.
UNIQUE = {"checkpoint_values": {"thread_id", "namespace", "channel", "number"}, "states": {"scope", "key"}}


def sealed() -> dict[str, tuple[sa.Column[Any], Binding]]:
    """Return the columns that are sealed, and what each of their values is bound to."""
    found = [column for table in METADATA.sorted_tables for column in table.c]
    bound = [(column, binding_of(column.type)) for column in found]
    return {f"{column.table.name}.{column.name}": (column, one) for column, one in bound if one is not None}


SEALED = sealed()


@with_each("name", SEALED)
def test_the_context_of_a_value_tells_its_row_and_column_from_all_others(name: str) -> None:
    """codec CO-19: it has the name of the column, and a key that no two rows share."""
    column, binding = SEALED[name]
    assert binding.name == name
    key = UNIQUE.get(column.table.name, {one.name for one in column.table.primary_key})
    assert key <= {*binding.keys}
    indexes = [found for found in column.table.indexes if found.unique]
    constraints = [
        one for one in column.table.constraints if isinstance(one, sa.PrimaryKeyConstraint | sa.UniqueConstraint)
    ]
    assert key in [{one.name for one in found.columns} for found in [*indexes, *constraints]]


@pytest.mark.slow
def test_a_value_that_was_moved_or_planted_is_named(database: Database) -> None:
    """codec CO-19, CO-20: within its column, from each other column of its type, and a plain one."""
    store = database.open(codec=Bound(1), plain="refuse")
    told_twice(store)
    raw = database.raw()
    places = {name: _places(raw, column) for name, (column, _) in SEALED.items()}
    tried = 0
    for name, (column, _) in SEALED.items():
        first = places[name][0]
        [kept] = raw.execute(f"SELECT {column.name} FROM {column.table.name} WHERE {first}").fetchone()
        mark = "?" if database.name == "sqlite" else "%s"
        put = f"UPDATE {column.table.name} SET {column.name} = {mark} WHERE {first}"
        for source, (other, _) in SEALED.items():
            if _is_json(other) == _is_json(column):
                found = f"SELECT {other.name} FROM {other.table.name} WHERE {places[source][-1]}"
                raw.execute(f"UPDATE {column.table.name} SET {column.name} = ({found}) WHERE {first}")
                assert column.table.name in _named(store), (name, source)
                tried += 1
        raw.execute(put, ['"evil"' if _is_json(column) else b"evil"])
        assert column.table.name in _named(store), name
        raw.execute(put, [Jsonb(kept) if _is_json(column) and database.name != "sqlite" else kept])
        assert _named(store) == ""
    assert tried > 2 * len(SEALED)


def _places(raw: Any, column: sa.Column[Any]) -> list[str]:
    """Return conditions that name the rows of a table whose column has a value, one each."""
    keys = [one.name for one in column.table.primary_key]
    rows = raw.execute(
        f"SELECT {', '.join(keys)} FROM {column.table.name} WHERE {column.name} IS NOT NULL ORDER BY {', '.join(keys)}"
    ).fetchall()
    assert len(rows) > 1
    return [" AND ".join(f"{name} = {value!r}" for name, value in zip(keys, row, strict=True)) for row in rows]


def told_twice(store: StateStore) -> None:
    """Store contents of two people, in every sealed column."""
    for person in ("ana", "bo"):
        store.states.put("json", {"of": person}, scope=person, user=person)
        store.states.put("bytes", person.encode(), scope=person, user=person)
    filled(store)
    store.checkpoints.put_writes("t", "step-2", "y", [write(0, "bo"), write(1, "ana")])


def _is_json(column: sa.Column[Any]) -> bool:
    return not isinstance(column.type, columns.RawBytes)


def _named(store: StateStore) -> str:
    """Return what a check says of values that cannot be opened."""
    found = store.maintenance.doctor.examine(deep=True, only=["DOC-14"]).findings
    return "".join(str(one.model_dump()) for one in found)


@pytest.mark.parametrize("plain", ["read", "refuse"])
def test_bound_values_come_back_from_a_backup_a_bundle_and_an_archive(
    fresh_database: Database, tmp_path: Path, plain: Any
) -> None:
    """codec CO-21: also under new ids, and whoever has no key restores them as they are."""
    store = fresh_database.open(migrate=True, codec=Bound(1), plain=plain)
    filled(store)
    branch = begun(store, "a")
    words = [one.message.content for one in store.conversations.branches.history(branch.id)]
    assert words
    with fresh_database.open() as keyless:
        keyless.maintenance.backup.create(tmp_path / "backup")
    store.maintenance.backup.restore(tmp_path / "backup", tmp_path / "restored.db")
    with StateStore.open(tmp_path / "restored.db", codec=Bound(1), plain=plain) as restored:
        assert said(restored) == SAID
    bundles = store.maintenance.bundles
    bundles.export("session", branch.session_id, tmp_path / "session.zip")
    copy = bundles.load(tmp_path / "session.zip", on_conflict="new_ids")
    store.conversations.lifecycle.transition(branch.session_id, "completed")
    fresh_database.clock.advance(timedelta(days=31))
    (tmp_path / "archive").mkdir()
    policy = PrunePolicy("sessions", keep_n=0, archive=tmp_path / "archive")
    store.maintenance.prune.run(policy)
    assert store.conversations.branches.find(branch.id) is None
    for archive in sorted((tmp_path / "archive").iterdir()):
        bundles.load(archive)
    found = [store.conversations.branches.list(one).items for one in (copy.id, branch.session_id)]
    for [back] in found:
        assert [one.message.content for one in store.conversations.branches.history(back.id)] == words
    assert _named(store) == ""
