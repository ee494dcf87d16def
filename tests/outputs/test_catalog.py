from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, create_model
from support.each import with_each
from support.outputs.shapes import Analysis, Grown, a_run

from lastlight_state import StateStore
from lastlight_state.db.schema.base import Base
from lastlight_state.errors import (
    AlreadyExists,
    InvalidValue,
    MisuseError,
    NotFound,
    NotMigrated,
    ReservedName,
    SchemaMismatch,
)
from lastlight_state.outputs import CacheKey
from lastlight_state.testing import Database, racing


class Scores(BaseModel):
    value: float


def test_a_definition_makes_a_table_of_its_fields(store: StateStore) -> None:
    """outputs D-1, D-10: the library's columns first, every field nullable."""
    made = store.outputs.define("codeReview", Analysis)
    assert (made.key, made.table_name, made.kind) == ("codeReview", "code_review", "columns")
    assert [column.name for column in made.columns] == [
        "run_id",
        "node_id",
        "iteration",
        "row_created_at",
        "row_updated_at",
        "summary",
        "severity",
    ]
    assert all(column.nullable for column in made.columns if column.field)
    listed = store.outputs.catalog.list()
    assert [(one.key, one.signature) for one in listed.items] == [("codeReview", made.signature)]


def test_the_same_definition_again_is_the_same_handle(every_backend: StateStore) -> None:
    """outputs D-8: another description changes nothing."""
    first = every_backend.outputs.define("analysis", Analysis)

    class Documented(BaseModel):
        """Another text."""

        summary: str = Field(description="in short")
        severity: Literal["low", "medium", "high"] = "low"

    assert every_backend.outputs.define("analysis", Analysis) is first
    documented: Any = every_backend.outputs.define("analysis", Documented)
    assert documented is first


@with_each(
    "fields",
    [
        {"summary": (str, ...), "severity": (Literal["low", "medium", "high"], "low"), "more": (int | None, None)},
        {"summary": (str, ...)},
        {"summary": (int, ...), "severity": (Literal["low", "medium", "high"], "low")},
        {"summary": (str, ...), "severity": (Literal["low"], "low")},
        {"summary": (str, Field(max_length=3)), "severity": (Literal["low", "medium", "high"], "low")},
    ],
    ids=["added", "removed", "retyped", "smaller enum", "new bound"],
)
def test_a_definition_is_final_while_the_process_runs(store: StateStore, fields: Any) -> None:
    """outputs M-6: the old handle keeps working."""
    run_id = a_run(store)
    first = store.outputs.define("analysis", Analysis)
    with pytest.raises(SchemaMismatch, match="restart") as refusal:
        store.outputs.define("analysis", create_model("Analysis", **fields))
    assert refusal.value.differences
    assert store.outputs.results.put(first, run_id, "n", {"summary": "still"}).data["summary"] == "still"


def test_of_two_threads_with_different_models_one_is_refused(database: Database) -> None:
    """outputs M-6: the definition that came first is final, also for one that began before it was there."""
    store = database.open(migrate=True)
    with racing(store) as race:
        race.before_unit(2, lambda: store.outputs.define("analysis", Grown))
        with pytest.raises(SchemaMismatch, match="restart"):
            store.outputs.define("analysis", Analysis)
    assert race.left == 0
    assert store.outputs.catalog.get("analysis").model is Grown


def test_a_model_with_a_hostile_name_and_documentation_is_defined(store: StateStore, run_id: str) -> None:
    """outputs D-13, D-5: neither is ever SQL, nor part of a suggested call."""
    text = 'it\'s \\ 100% %s :x $$ -- "x" \x1b[31m'
    model: Any = create_model('E"; DROP TABLE x; --\x1b[31m', __doc__=text, it=(str, Field(description=text)))
    made = store.outputs.define("evil", model)
    assert store.outputs.results.put(made, run_id, "n", {"it": text}).data == {"it": text}
    with pytest.raises(ReservedName, match=r'define\("scores", Model, table="task_scores"\)'):
        store.outputs.define("scores", model)


def test_documentation_becomes_comments_on_postgres(postgres_database: Database) -> None:
    """outputs D-13: of a table and a column that are made, and of one that is added."""
    store, later = postgres_database.open(migrate=True), postgres_database.open(migrate=True)
    first: Any = create_model("Made", __doc__="What is made's", it=(str, Field(description="100% sure")))
    store.outputs.define("made", first)
    later.outputs.define("made", create_model("Made", __base__=first, more=(int, Field(default=1, description="Ours"))))
    found = store.outputs.query.rows(
        "SELECT obj_description(attrelid), attname, col_description(attrelid, attnum) FROM pg_attribute"
        " WHERE attrelid = 'made'::regclass AND attname IN ('it', 'more') ORDER BY attname"
    )
    assert found.rows == (("What is made's", "it", "100% sure"), ("What is made's", "more", "Ours"))
    plain = store.outputs.catalog.plan("plain", create_model("Plain", it=(str, ...)))
    assert not [statement for statement in plain.sql if "COMMENT" in statement]


@pytest.mark.parametrize(
    "names", [("select", "order", "user", "rowid", "oid", "at", "written", "excluded"), ("a" * 63, "a" * 62 + "b")]
)
def test_any_other_name_is_a_column(store: StateStore, run_id: str, names: tuple[str, ...]) -> None:
    """outputs D-5: words of SQL, names that statements use, and the longest."""
    made = store.outputs.define("a" * 48, create_model("M", **dict.fromkeys(names, (int, ...))))  # type: ignore[call-overload]
    value = {name: at for at, name in enumerate(names)}
    store.outputs.results.put(made, run_id, "n", dict.fromkeys(names, -1))
    assert store.outputs.results.put(made, run_id, "n", value).data == value
    assert store.outputs.results.get(made, run_id, "n").data == value
    assert store.outputs.snapshot.load(run_id).get(made, "n").data == value


def test_a_field_more_is_a_column_more_and_old_rows_read_null(database: Database) -> None:
    """outputs M-1, M-5."""
    before, after = database.open(migrate=True), database.open(migrate=True)
    run_id = a_run(before)
    before.outputs.results.put(before.outputs.define("analysis", Analysis), run_id, "n", {"summary": "old"})
    grown = after.outputs.define("analysis", Grown)
    found = after.outputs.results.get(grown, run_id, "n")
    assert found.data == {"summary": "old", "severity": "low", "score": None}
    assert found.value == Grown(summary="old")


def test_an_added_field_that_may_be_none_reads_none_everywhere(database: Database) -> None:
    """outputs M-5: whatever its default, because a stored None looks alike; `plan` says so where there are rows."""
    before, after = database.open(migrate=True), database.open(migrate=True)
    run_id = a_run(before)
    made = before.outputs.define("analysis", Analysis)
    model: Any = create_model(
        "Analysis", __base__=Analysis, score=(int | None, 7), rank=(int, 7), note=(str | None, None)
    )
    assert after.outputs.catalog.plan("analysis", model).warnings == ()
    before.outputs.results.put(made, run_id, "old", {"summary": "old"})
    [warning] = after.outputs.catalog.plan("analysis", model).warnings
    assert "rows from before read None in score, and not the default" in warning
    grown = after.outputs.define("analysis", model)
    after.outputs.results.put(grown, run_id, "none", {"summary": "none", "score": None})
    after.outputs.results.put(grown, run_id, "new", {"summary": "new"})
    snapshot = after.outputs.snapshot.load(run_id)
    for node, score, rank, stored in (("old", None, 7, None), ("none", None, 7, 7), ("new", 7, 7, 7)):
        found: Any
        for found in (after.outputs.results.get(grown, run_id, node), snapshot.get(grown, node)):
            assert (found.value.score, found.value.rank, found.value.note) == (score, rank, None)
            assert (found.data["score"], found.data["rank"]) == (score, stored)
        bare: Any = database.open().outputs.results.get("analysis", run_id, node)
        assert (bare.data["score"], bare.data["rank"]) == (score, stored)


def test_a_required_field_more_leaves_old_rows_with_data_alone(database: Database) -> None:
    """outputs M-5, R-8."""
    before, after = database.open(migrate=True), database.open(migrate=True)
    run_id = a_run(before)
    made = before.outputs.define("analysis", Analysis)
    model: Any = create_model("Analysis", __base__=Analysis, needed=(int, ...))
    assert after.outputs.catalog.plan("analysis", model).warnings == ()
    before.outputs.results.put(made, run_id, "n", {"summary": "old"})
    assert any("needed" in warning for warning in after.outputs.catalog.plan("analysis", model).warnings)
    found = after.outputs.results.get(after.outputs.define("analysis", model), run_id, "n")
    assert found.data["summary"] == "old"
    with pytest.raises(InvalidValue, match="earlier shape") as refusal:
        _ = found.value
    assert [issue.path for issue in refusal.value.issues] == ["needed"]  # type: ignore[attr-defined]


def test_a_value_that_is_no_model_does_not_fit_the_columns_of_one(database: Database) -> None:
    """outputs M-6."""
    before, after = database.open(migrate=True), database.open(migrate=True)
    before.outputs.define("notes", Analysis)
    assert after.outputs.catalog.plan("notes", list[str]).differences == (
        "notes: kind: expected payload, found columns",
    )
    with pytest.raises(SchemaMismatch, match="kind"):
        after.outputs.define("notes", list[str])


def test_a_field_less_leaves_its_column_and_its_values(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """outputs M-4: rows written now are NULL there; the log says so once."""
    caplog.set_level("INFO", "lastlight_state.outputs")
    before, after = database.open(migrate=True), database.open(migrate=True)
    run_id = a_run(before)
    wide = before.outputs.define("analysis", Grown)
    before.outputs.results.put(wide, run_id, "old", {"summary": "old", "score": 3})
    narrow = after.outputs.define("analysis", Analysis)
    assert narrow.extra_columns == ("score",)
    assert after.outputs.define("analysis", Analysis) is narrow
    assert [record.message for record in caplog.records if "score" in record.message] == [
        "output analysis: columns that its model lacks stay as they are: score"
    ]
    after.outputs.results.put(narrow, run_id, "new", {"summary": "new"})
    scores = {row.node_id: row.data["score"] for row in before.outputs.results.load(wide, run_id).items}
    assert scores == {"old": 3, "new": None}


@with_each(
    "fields",
    [{"summary": (int, ...)}, {"summary": (list[str], ...)}, {"payload": (str, ...)}],
    ids=["text to integer", "text to json", "columns to payload"],
)
def test_what_is_no_addition_is_refused_and_listed(database: Database, fields: Any) -> None:
    """outputs M-3, P-3: the registry stays as it is."""
    before, after = database.open(migrate=True), database.open(migrate=True)
    before.outputs.define("analysis", Analysis)
    listed = before.outputs.catalog.list()
    with pytest.raises(SchemaMismatch) as refusal:
        after.outputs.define("analysis", create_model("Analysis", **fields))
    assert refusal.value.differences
    assert before.outputs.catalog.list() == listed


def test_an_old_process_and_a_new_one_write_in_turn(database: Database) -> None:
    """outputs M-10, R-2: the old one's row is no mixture, and the history has the value."""
    old, new = database.open(migrate=True), database.open(migrate=True)
    run_id = a_run(old)
    narrow = old.outputs.define("analysis", Analysis)
    wide = new.outputs.define("analysis", Grown)
    new.outputs.results.put(wide, run_id, "n", {"summary": "new", "score": 3})
    old.outputs.results.put(narrow, run_id, "n", {"summary": "new"})
    assert new.outputs.results.get(wide, run_id, "n").data["score"] is None
    [revision] = new.outputs.results.history(wide, run_id, "n").items
    assert revision.value["score"] == 3


def test_a_table_made_by_hand_is_adopted(fresh_database: Database) -> None:
    """outputs M-9, T-3: 0 and 1 in a column of integers come back as truth values; a column may be theirs."""
    truth = "INTEGER" if fresh_database.name == "sqlite" else "BOOLEAN"
    store, raw = fresh_database.open(migrate=True), fresh_database.raw()
    run_id = a_run(store)
    raw.execute(
        "CREATE TABLE checks (run_id TEXT NOT NULL, node_id TEXT NOT NULL, iteration INTEGER NOT NULL DEFAULT 0, "
        f"passed {truth}, theirs TEXT NOT NULL DEFAULT 'x', PRIMARY KEY (run_id, node_id, iteration))"
    )
    raw.execute(f"INSERT INTO checks VALUES ('{run_id}', 'a', 0, {1 if truth == 'INTEGER' else 'true'}, 'y')")
    model: Any = create_model("Checks", passed=(bool | None, None), note=(str | None, None))
    checks = store.outputs.define("checks", model)
    found = store.outputs.results.get(checks, run_id, "a")
    assert (found.data, found.created_at) == ({"passed": True, "note": None}, None)
    store.outputs.results.put(checks, run_id, "b", {"passed": False})
    assert [one.node_id for one in store.outputs.results.list(checks).items] == ["b", "a"]


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE VIEW checks AS SELECT id AS run_id FROM workflow_runs",
        "CREATE TABLE checks (id TEXT PRIMARY KEY, passed TEXT)",
        "CREATE TABLE checks (run_id TEXT, node_id TEXT, iteration INTEGER, must TEXT NOT NULL, "  # noqa: ISC004
        "PRIMARY KEY (run_id, node_id, iteration))",
    ],
    ids=["a view", "another key", "a column that must be given"],
)
def test_a_strange_table_of_that_name_is_refused(fresh_database: Database, ddl: str) -> None:
    """outputs M-3."""
    store = fresh_database.open(migrate=True)
    fresh_database.raw().execute(ddl)
    with pytest.raises(SchemaMismatch):
        store.outputs.define("checks", Analysis)


@pytest.mark.parametrize(("kind", "column"), [(str, "INTEGER"), (bool, "TEXT"), (bool, "INTEGER")])
def test_a_column_made_by_hand_is_of_the_type_of_its_field(fresh_database: Database, kind: type, column: str) -> None:
    """outputs M-3, M-9: truth values are numbers where the database has no type of its own for them."""
    store = fresh_database.open(migrate=True)
    fresh_database.raw().execute(
        "CREATE TABLE checks (run_id TEXT NOT NULL, node_id TEXT NOT NULL, iteration INTEGER NOT NULL DEFAULT 0, "
        f"it {column}, PRIMARY KEY (run_id, node_id, iteration))"
    )
    fields: Any = {"it": (kind | None, None)}
    model: Any = create_model("Checks", **fields)
    if (kind, column, fresh_database.name) == (bool, "INTEGER", "sqlite"):
        assert store.outputs.define("checks", model).extra_columns == ()
        return
    with pytest.raises(SchemaMismatch, match=r"\.it: type"):
        store.outputs.define("checks", model)


def test_a_store_that_may_not_migrate_says_what_is_missing(database: Database) -> None:
    """outputs M-7, case 12: nothing is changed; with everything there it needs no right to change tables."""
    strict, allowed = database.open(migrate=False), database.open(migrate=True)
    with pytest.raises(NotMigrated, match="outputs apply") as refusal:
        strict.outputs.define("analysis", Analysis)
    assert refusal.value.missing == ("table analysis",)
    allowed.outputs.define("analysis", Analysis)
    with pytest.raises(NotMigrated) as refusal:
        strict.outputs.define("analysis", Grown)
    assert refusal.value.missing == ("column analysis.score",)
    assert strict.outputs.define("analysis", Analysis).key == "analysis"


@pytest.mark.parametrize("grown", [False, True])
def test_the_planned_statements_do_it_by_hand(fresh_database: Database, grown: bool) -> None:
    """outputs M-7."""
    store, raw = fresh_database.open(migrate=False), fresh_database.raw()
    if grown:
        fresh_database.open(migrate=True).outputs.define("analysis", Analysis)
    for statement in store.outputs.catalog.plan("analysis", Grown).sql:
        raw.execute(statement)
    run_id = a_run(store)
    made = store.outputs.define("analysis", Grown)
    assert store.outputs.results.put(made, run_id, "n", {"summary": "by hand", "score": 1}).data["score"] == 1
    assert store.outputs.catalog.plan("analysis", Grown).sql == ()


def test_two_keys_never_share_a_table(database: Database) -> None:
    """outputs D-6: in this process, and of another."""
    here, there = database.open(migrate=True), database.open(migrate=True)
    here.outputs.define("fooBar", Analysis)
    for store in (here, there):
        with pytest.raises(AlreadyExists) as refusal:
            store.outputs.define("foo_bar", Analysis)
        assert refusal.value.owner == "fooBar"  # type: ignore[attr-defined]
        with pytest.raises(AlreadyExists):
            store.outputs.define("other", Analysis, table="foo_bar")


@pytest.mark.parametrize("key", ["scores", "messages", "run_notes", "workflowSummary"])
def test_a_reserved_table_name_comes_with_the_call_that_works(database: Database, key: str) -> None:
    """outputs D-5, case 60: also while the first suggestion is taken."""
    store = database.open(migrate=True)
    for _ in range(2):
        with pytest.raises(ReservedName) as refusal:
            store.outputs.define(key, Scores)
        call = refusal.value.problem.partition(": ")[2]
        suggestion = refusal.value.suggestion  # type: ignore[attr-defined]
        assert call == f'define("{key}", Scores, table="{suggestion}")'
        store.outputs.define(f"other{suggestion}", Scores, table=suggestion)
    with pytest.raises(ReservedName) as refusal:
        store.outputs.define(key, Scores)
    call = refusal.value.problem.partition(": ")[2]
    made = eval(call, {"define": store.outputs.define, "Scores": Scores})
    assert made.key == key


def test_many_are_defined_under_one_lock_or_none_of_them(store: StateStore) -> None:
    """outputs D-1."""
    with pytest.raises(ReservedName):
        store.outputs.catalog.define_all({"analysis": Analysis, "scores": Scores})
    assert not store.outputs.catalog.list().items
    made = store.outputs.catalog.define_all({"analysis": Analysis, "notes": list[str]})
    assert [made["analysis"].kind, made["notes"].kind] == ["columns", "payload"]


def test_nothing_is_defined_inside_a_transaction(every_backend: StateStore) -> None:
    """outputs D-7."""
    with every_backend.transaction() as tx, pytest.raises(MisuseError):
        tx.outputs.define("analysis", Analysis)
    with every_backend.view() as view, pytest.raises(MisuseError):
        view.outputs.define("analysis", Analysis)


def test_a_key_of_another_process_reads_and_does_not_write(database: Database) -> None:
    """outputs D-9, D-2."""
    theirs, ours = database.open(migrate=True), database.open()
    run_id = a_run(theirs)
    theirs.outputs.results.put(theirs.outputs.define("codeReview", Grown), run_id, "n", {"summary": "x", "score": 2})
    for name in ("codeReview", "code_review"):
        handle = ours.outputs.catalog.get(name)
        assert handle.model is None
        assert ours.outputs.results.get(handle, run_id, "n").data == {"summary": "x", "severity": "low", "score": 2}
    with pytest.raises(MisuseError, match="define it"):
        ours.outputs.results.put("codeReview", run_id, "n", {"summary": "y"})
    with pytest.raises(MisuseError, match="no model"):
        _ = ours.outputs.results.get("codeReview", run_id, "n").value
    with pytest.raises(NotFound):
        ours.outputs.catalog.get("nothing")
    with pytest.raises(NotFound):
        ours.outputs.results.find("nothing", run_id, "n")


def test_a_table_that_is_gone_is_said_and_not_empty(fresh_database: Database) -> None:
    """outputs X-5."""
    store = fresh_database.open(migrate=True)
    run_id = a_run(store)
    made = store.outputs.define("analysis", Analysis)
    fresh_database.raw().execute("DROP TABLE analysis")
    for call in (
        lambda: store.outputs.results.put(made, run_id, "n", {"summary": "x"}),
        lambda: store.outputs.results.find(made, run_id, "n"),
        lambda: store.outputs.results.list(made),
    ):
        with pytest.raises(SchemaMismatch, match="analysis"):
            call()


def test_each_database_opens_as_its_product_does(database: Database) -> None:
    """outputs M-8: on SQLite a definition makes its table unasked, on Postgres a store must be told that it may."""
    store = database.open()
    if database.name == "postgresql":
        with pytest.raises(NotMigrated):
            store.outputs.define("analysis", Analysis)
        store = database.open(migrate=True)
    assert store.outputs.results.count(store.outputs.define("analysis", Analysis)) == 0


def test_an_unknown_key_is_not_found(store: StateStore, run_id: str) -> None:
    """outputs R-9: in whichever call."""
    results = store.outputs.results
    calls: tuple[Callable[[], object], ...] = (
        lambda: results.put("nothing", run_id, "n", {}),
        lambda: results.get("nothing", run_id, "n"),
        lambda: results.list("nothing"),
        lambda: results.load("nothing", run_id),
        lambda: results.count("nothing"),
        lambda: results.withdraw("nothing", run_id, "n", reason="x"),
        lambda: results.history("nothing", run_id, "n"),
        lambda: store.outputs.snapshot.load(run_id, targets=["nothing"]),
        lambda: store.outputs.cache.find(CacheKey("w", "n", 1), "nothing"),
    )
    for call in calls:
        with pytest.raises(NotFound) as refusal:
            call()
        assert (refusal.value.kind, refusal.value.key) == ("output", "nothing")


OWN_TABLES = sorted({*Base.metadata.tables, "alembic_version"})


@pytest.mark.slow
@with_each("name", OWN_TABLES)
def test_no_output_takes_the_name_of_a_table_of_ours(every_backend: StateStore, name: str) -> None:
    """outputs D-5: neither by its key nor by name, and nothing else is looked at before."""
    for call in (
        lambda: every_backend.outputs.define(name, Scores),
        lambda: every_backend.outputs.define("mine", Scores, table=name),
        lambda: every_backend.outputs.catalog.define_all({name: Scores}),
        lambda: every_backend.outputs.catalog.plan(name, Scores),
    ):
        with pytest.raises(ReservedName):
            call()
