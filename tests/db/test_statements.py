import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.sql.compiler import SQLCompiler
from support.each import with_each
from support.scratch import THINGS, scratch_tables
from support.sealing import Xor

from lastlight_state import StateStore, codec
from lastlight_state.db.lists import filters
from lastlight_state.db.rows import parameters, shapes
from lastlight_state.db.rows.compiled import Compiled
from lastlight_state.db.rows.statements import AnyOf, Family, Statement, among, constant, number, statement_of
from lastlight_state.db.schema import columns
from lastlight_state.errors import CorruptData
from lastlight_state.testing import Database
from lastlight_state.workflows import PhaseEntry, Trigger

AT = datetime(2026, 2, 3, 12, 34, 56, 789_000, tzinfo=UTC)
c = THINGS.c

INSERT = statement_of(sa.insert(THINGS).values({one.name: sa.bindparam(one.name, type_=one.type) for one in c}))
GET = statement_of(sa.select(THINGS).where(c.id == sa.bindparam("id")))
IN = Family("id", lambda ids: sa.select(c.id).where(c.id.in_(ids)).order_by(c.id))

THING = {"id": "t1", "at": AT, "kind": "a", "number": 2**63 - 1, "real": 0.1, "flag": True, "json": {"n": [1, None]}}


def insert(store: StateStore, **values: Any) -> None:
    row = {**THING, **values}
    row["json"] = None if row["json"] is None else codec.encode("json", row["json"], max_bytes=1000)
    assert store._scope.write(lambda unit: unit.change(INSERT, row)) == 1


def get(store: StateStore, thing: str = "t1") -> dict[str, Any] | None:
    return store._scope.read(lambda unit: unit.row(GET, {"id": thing}))


@contextmanager
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Notes each statement that SQLAlchemy compiles in the block."""
    compiled: list[str] = []
    before = SQLCompiler.__init__

    def noting(self: SQLCompiler, *args: Any, **options: Any) -> None:
        before(self, *args, **options)
        compiled.append(str(self))

    with monkeypatch.context() as patch:
        patch.setattr(SQLCompiler, "__init__", noting)
        yield compiled


def test_a_row_comes_back_as_it_was_given(scratch: StateStore) -> None:
    """house H-32: one Python value, equal on both databases."""
    insert(scratch)
    assert get(scratch) == THING
    nothing = dict.fromkeys(("kind", "number", "real", "flag", "json"))
    insert(scratch, id="t2", **nothing)
    assert get(scratch, "t2") == {**THING, "id": "t2", **nothing}
    assert get(scratch, "none") is None


def test_a_statement_is_compiled_once_for_all_stores_and_threads(
    scratch: StateStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-60: compiled once per dialect."""
    statement = statement_of(sa.select(c.id, c.number).where(c.number > sa.bindparam("number")))
    other = database.open()
    with compilations(monkeypatch) as compiled:
        for store in (scratch, other, scratch):
            store._scope.read(lambda unit: unit.rows(statement, {"number": 1}))
        assert len(compiled) == 1
    assert statement.on(scratch.backend) is statement.on(other.backend)


def test_another_codec_compiles_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-60: only the converters of sealed values are made for the codec."""

    def use(codec: Xor, number: int) -> None:
        with database.open(codec=codec) as store:
            store.states.put("key", {"number": number})
            assert store.states.get("key").value == {"number": number}

    use(Xor(1), 1)
    with compilations(monkeypatch) as compiled:
        use(Xor(2), 2)
    assert compiled == []


def test_hot_calls_build_and_compile_nothing(every_backend: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-60: nothing on a hot path builds a statement."""
    runs = every_backend.workflows.runs

    def once() -> None:
        run = runs.create("w", trigger=Trigger(type="cli", id="t"), phase="p")
        runs.append_phase(run.id, PhaseEntry("build", True))
        runs.merge_scratch(run.id, {"n": 1})
        runs.get(run.id)
        runs.list(statuses=["running"], limit=20)
        with every_backend.transaction() as tx:
            tx.workflows.runs.get(run.id)
        runs.finish(run.id, "succeeded")

    once()
    with compilations(monkeypatch) as compiled:
        for _ in range(3):
            once()
    assert compiled == []


def test_each_schema_has_its_own_text(postgres_url: str) -> None:
    """backends B-60: compiled once per dialect and schema."""
    texts = set()
    for schema in (None, "one", "two"):
        with StateStore.open(postgres_url, schema=schema, migrate=True) as store:
            texts.add(GET.on(store.backend).sql)
    assert len(texts) == 3


def test_a_value_written_into_a_statement_is_refused_when_it_would_be_expanded_later(scratch: StateStore) -> None:
    """backends B-62: such a text differs from call to call."""
    with pytest.raises(TypeError, match=r"constant\(\) and lists with Family"):
        Compiled(sa.select(c.id).where(c.id.in_(["a", "b"])), scratch.backend)


def test_a_statement_that_lacks_a_value_is_not_run(scratch: StateStore) -> None:
    """Least of all with NULL in its place, which would find or change other rows."""
    insert(scratch)
    with pytest.raises(KeyError, match="id"):
        scratch._scope.read(lambda unit: unit.row(GET, {}))
    with pytest.raises(KeyError, match="kind"):
        scratch._scope.write(lambda unit: unit.change(INSERT, {name: THING[name] for name in ("id", "at")}))


def test_words_of_ours_stand_in_the_text_and_nothing_else_may(scratch: StateStore) -> None:
    statement = Statement(sa.select(c.id).where(among(c.kind, ("a", "some_word")), c.kind != constant("b")))
    assert "'some_word'" in statement.on(scratch.backend).sql
    insert(scratch)
    assert scratch._scope.read(lambda unit: unit.value(statement)) == "t1"
    for unsafe in ("it's", "a b", "", "1=1"):
        with pytest.raises(ValueError, match=unsafe or "^$"):
            constant(unsafe)


def test_a_family_compares_with_any_number_of_values(scratch: StateStore) -> None:
    """backends B-61: few statements are ever compiled."""
    for i in range(3):
        insert(scratch, id=f"t{i}")

    def found(wanted: list[str]) -> list[Any]:
        statement, values = IN.of(wanted)
        return scratch._scope.read(lambda unit: [row["id"] for row in unit.rows(statement, values)])

    for size in (1, 2, 3, 8, 9, 50, 51, 500):
        wanted = [f"t{i}" for i in range(1, size + 1)]
        assert found(wanted) == wanted[:2][:size], size
    assert len(IN._names) <= 9


def test_a_list_of_parameters_takes_up_to_as_many_values_as_it_has(scratch: StateStore) -> None:
    for thing, kind in (("t1", "a"), ("t2", "b"), ("t3", None)):
        insert(scratch, id=thing, kind=kind)
    kinds = AnyOf("kind", c.kind, 2)
    statement = statement_of(sa.select(c.id).where(kinds.condition).order_by(c.id))

    def found(*values: str) -> list[str]:
        return [row["id"] for row in scratch._scope.read(lambda unit: unit.rows(statement, kinds.of(values)))]

    assert [found("a", "b"), found("b"), found()] == [["t1", "t2"], ["t2"], []]
    assert kinds.of(["b"]) == {"kind_0": "b", "kind_1": None}


def test_a_number_stands_in_the_statement_itself(every_backend: StateStore) -> None:
    statement = statement_of(sa.select(c.id).where(c.number == number(-7)).limit(number(5)))
    compiled = statement.on(every_backend.backend)
    assert "= -7" in compiled.sql
    assert "LIMIT 5" in compiled.sql


def test_values_that_are_more_than_a_family_has_room_for_are_a_mistake_of_ours() -> None:
    with pytest.raises(IndexError):
        IN.of(["x"] * 501)


def spoil(store: StateStore, column: str, literal: str) -> None:
    """What a stray script may have left."""
    with store.transaction() as tx:
        tx.connection.execute(sa.text(f"UPDATE scratch_things SET {column} = {literal}"))


@with_each(
    ("column", "literal"),
    [
        ("json", "'{half'"),
        ("json", "x'ff'"),
        ("at", "'yesterday'"),
        ("at", "x'ff'"),
        ("at", "'0001-01-01T00:00:00+14:00'"),
    ],
)
def test_what_cannot_be_read_names_its_table_its_row_and_its_column(
    sqlite_database: Database, column: str, literal: str
) -> None:
    """house H-52: `CorruptData`, not guessed. (SQLite stores anything in any column.)"""
    store = sqlite_database.open()
    with scratch_tables(store):
        insert(store)
        spoil(store, column, literal)
        with pytest.raises(CorruptData) as raised:
            get(store)
    assert (raised.value.table, raised.value.key, raised.value.column) == ("scratch_things", "t1", column)


@pytest.mark.parametrize("literal", ["'2026-02-03T12:34:56.789123+00:00'", "'2026-02-03 13:34:56.789+01:00'"])
def test_times_in_the_words_of_other_writers_are_damage(sqlite_database: Database, literal: str) -> None:
    """house H-61: read as they are meant, they would still be compared as they stand."""
    store = sqlite_database.open()
    with scratch_tables(store):
        insert(store)
        spoil(store, "at", literal)
        with pytest.raises(CorruptData, match=r"scratch_things\.at of 't1'"):
            get(store)


def test_what_the_database_keeps_is_what_the_page_says(scratch: StateStore) -> None:
    """house H-34: what is at rest."""
    insert(scratch)
    with scratch.transaction() as tx:
        row = tx.connection.exec_driver_sql("SELECT at, flag, json FROM scratch_things").one()
    if scratch.backend.name == "sqlite":
        assert tuple(row) == ("2026-02-03T12:34:56.789Z", 1, '{"n":[1,null]}')
    else:
        assert tuple(row) == (AT, True, {"n": [1, None]})


def test_the_declared_types_serve_ad_hoc_statements_too(scratch: StateStore) -> None:
    """house H-11: declarative models are for those who want them."""
    with scratch.transaction() as tx:
        tx.connection.execute(sa.insert(THINGS), THING)
        assert tx.connection.execute(sa.select(THINGS)).mappings().one() == THING
        found = tx.connection.execute(sa.select(c.id).where(c.at == AT, c.flag.is_(sa.true())))
        assert found.scalars().all() == ["t1"]


def test_threads_may_compile_the_same_statement_at_once(scratch: StateStore) -> None:
    """backends B-60: safe to share between threads and stores."""
    statement = statement_of(sa.select(c.id).where(c.kind == sa.bindparam("kind", type_=columns.Text)))
    insert(scratch)
    found: list[Any] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(scratch._scope.read(lambda unit: unit.value(statement, {"kind": "a"})))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["t1"] * 8


def test_what_is_kept_of_statements_and_their_parameters_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-61: what was kept before is made again."""
    monkeypatch.setattr(shapes.SHAPES, "_most", 2 * 1_600)
    monkeypatch.setattr(parameters, "_MOST_KINDS", 2)
    statements = filters.Filtered(lambda conditions, word: sa.select(c.id).where(c.kind == word, *conditions))
    gate = parameters.Gate({"any": None})
    for word, value in (("a", 1), ("b", "x"), ("c", 1.5), ("a", 1)):
        first = statements.of({}, word)[0]
        gate.judge([value], (type(value),))
        assert statements.of({}, word)[0] is first
        assert (type(value),) in gate.known
        assert max(len(shapes.SHAPES), len(gate.known)) <= 2
