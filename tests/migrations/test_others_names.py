"""What other programs have beside our tables: nothing of it is refused without cause, and no clash is silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.each import with_each
from support.migrations.support import Place, tables

from lastlight_state import StateStore
from lastlight_state.errors import SchemaMismatch
from lastlight_state.migrations import check, migrate

#: A name of which Postgres keeps 63 bytes.
LONG = "a_name_of_another_program_" + "x" * 50

#: What is made before our tables are.
BESIDE = {
    "sqlite": [
        'CREATE TABLE "Mine" (id TEXT)',
        f'CREATE TABLE "{LONG}" (id TEXT)',
        'CREATE VIEW mine_too AS SELECT id FROM "Mine"',
        'CREATE TRIGGER scores AFTER INSERT ON "Mine" BEGIN SELECT 1; END',
    ],
    "postgresql": [
        'CREATE TABLE "Mine" (id TEXT)',
        "CREATE TABLE mine (id TEXT)",
        'CREATE TABLE "Scores" (id TEXT)',
        f'CREATE TABLE "{LONG}" (id TEXT)',
        'CREATE VIEW mine_too AS SELECT id FROM "Mine"',
        'CREATE MATERIALIZED VIEW mine_as_well AS SELECT id FROM "Mine"',
        "CREATE SEQUENCE messaging_messages_id_seq",
        "CREATE TYPE my_words AS ENUM ('a')",
        "CREATE FUNCTION scores() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION lastlight_refuse(n int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    ],
}
#: What is made on our tables.
UPON = {
    "sqlite": [
        "CREATE VIEW of_ours AS SELECT id FROM workflow_runs",
        "CREATE INDEX my_index ON workflow_runs (id, status)",
        "CREATE TRIGGER mine AFTER UPDATE ON workflow_runs BEGIN SELECT 1; END",
    ],
    "postgresql": [
        "CREATE VIEW of_ours AS SELECT id FROM workflow_runs",
        "CREATE MATERIALIZED VIEW of_ours_too AS SELECT id FROM workflow_runs",
        "CREATE INDEX my_index ON workflow_runs (id, status)",
        f'CREATE INDEX "an_index_{LONG}" ON workflow_runs (id)',
        "CREATE TRIGGER mine BEFORE UPDATE ON workflow_runs FOR EACH ROW EXECUTE FUNCTION mine()",
    ],
}

THEIRS = "CREATE TABLE theirs (id TEXT)"
TRIGGER = "scores_keys_stay"
#: What takes a name of ours: the product, what is named, and the statements.
TAKEN = [
    ("", "table scores", ["CREATE VIEW scores AS SELECT 1 AS n"]),
    ("", "table scores", [THEIRS, "CREATE INDEX scores ON theirs (id)"]),
    ("", "index ix_branches_parent", [THEIRS, "CREATE INDEX ix_branches_parent ON theirs (id)"]),
    ("", "index ix_branches_parent", ["CREATE TABLE ix_branches_parent (id TEXT)"]),
    ("sqlite", "table scores", ['CREATE TABLE "SCORES" (id TEXT)']),
    ("sqlite", "index ix_branches_parent", ['CREATE VIEW "IX_branches_Parent" AS SELECT 1 AS n']),
    (
        "sqlite",
        f"trigger {TRIGGER}",
        [THEIRS, f"CREATE TRIGGER {TRIGGER} AFTER INSERT ON theirs BEGIN SELECT 1; END"],
    ),
    ("postgresql", "table scores", ["CREATE SEQUENCE scores"]),
    ("postgresql", "table scores", ["CREATE TYPE scores AS ENUM ('a')"]),
    ("postgresql", "table scores", ["CREATE DOMAIN scores AS text"]),
    (
        "postgresql",
        "function lastlight_refuse",
        ["CREATE FUNCTION lastlight_refuse() RETURNS int LANGUAGE sql AS 'SELECT 1'"],
    ),
]


#: What doctor says of a server for tests, and of the modes of a file that plain SQLite has made.
OF_TESTS = ("DOC-03", "DOC-05")


def run(place: Place, statements: list[str]) -> None:
    for statement in statements:
        place.raw().execute(statement)


@pytest.mark.slow
def test_what_others_have_beside_our_tables_is_no_difference(place: Place, tmp_path: Path) -> None:
    """migrations MG-106: views, sequences, types, functions, triggers, names in capitals, names over 63 bytes."""
    run(place, BESIDE[place.name])
    assert check(place.backend()).differences == ()
    assert migrate(place.backend()).to_revision is not None
    run(place, UPON[place.name])
    plan = check(place.backend())
    assert (plan.state.state, plan.differences, plan.mending) == ("current", (), ())
    with StateStore.open(place.url) as store:
        store.states.put("a", 1)
        found = store.maintenance.doctor.examine(deep=True).findings
        assert [(one.check, one.subject, one.message, one.samples) for one in found if one.check not in OF_TESTS] == []
        copied, restored = str(tmp_path / "copied.db"), str(tmp_path / "restored.db")
        store.maintenance.copy.run(copied, migrate=True)
        store.maintenance.backup.create(tmp_path / "backup")
        store.maintenance.backup.restore(tmp_path / "backup", restored, with_logs=False)
    for url in (copied, restored):
        with StateStore.open(url) as store:
            assert store.states.get("a").value == 1
    assert migrate(place.backend()).revisions == ()


@with_each("begins", ["nothing", "0001"])
@with_each("case", range(len(TAKEN)), ids=[f"{product}{named}-{at}" for at, (product, named, _) in enumerate(TAKEN)])
def test_a_name_of_ours_that_is_taken_is_told_and_nothing_is_made(place: Place, case: int, begins: str) -> None:
    """migrations MG-70: whatever it is that has it, in small letters or in capitals."""
    product, named, statements = TAKEN[case]
    if product not in ("", place.name):
        return
    backend = place.backend() if begins == "nothing" else place.at(begins)
    run(place, statements)
    line = f"{named} is there already, and a later revision makes one"
    assert check(backend).differences == (line,)
    before = tables(backend)
    with pytest.raises(SchemaMismatch) as caught:
        migrate(backend)
    assert (caught.value.code, caught.value.differences) == ("collision", (line,))
    assert tables(backend) == before


def test_a_name_that_is_taken_in_a_schema_of_the_stores_own_is_told(postgres_place: Place) -> None:
    """migrations MG-70: one that is taken elsewhere is not."""
    raw = postgres_place.raw()
    raw.execute('CREATE SCHEMA "My 100%"')
    raw.execute("CREATE TYPE sandboxes AS ENUM ('a')")
    raw.execute("CREATE TYPE \"My 100%\".scores AS ENUM ('a')")
    backend = postgres_place.backend(schema="My 100%")
    assert check(backend).differences == ("table scores is there already, and a later revision makes one",)
