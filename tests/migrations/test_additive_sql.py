from __future__ import annotations

from support.each import with_each
from support.migrations.additive_sql import problem_with

ADDS = (
    "CREATE TABLE more (id TEXT)",
    "create unique index uq_more on runs (id) where status = ';'",
    "CREATE VIEW recent AS SELECT id FROM runs",
    "CREATE TRIGGER no_delete BEFORE DELETE ON runs BEGIN SELECT RAISE(ABORT, 'no; never'); END",
    "CREATE TRIGGER t BEFORE INSERT ON runs BEGIN SELECT 1; SELECT RAISE(ABORT, 'no') WHERE 1 = 1; END",
    "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $b$ BEGIN IF TG_OP = 'DELETE' THEN RETURN OLD; END $b$",
    "COMMENT ON TABLE runs IS 'a; b'",
    "LOCK TABLE runs IN ACCESS EXCLUSIVE MODE",
    "CREATE TABLE more (id TEXT) -- DROP TABLE runs;",
    "UPDATE runs SET status = 'it''s', version = version + 1 WHERE id = 'x'",
)

REFUSED = (
    "DROP TABLE runs",
    "DROP INDEX ix",
    "ALTER TABLE runs DROP COLUMN id",
    "ALTER TABLE runs RENAME TO jobs",
    "ALTER TABLE runs ADD COLUMN id TEXT",
    "DELETE FROM runs WHERE 1 = 1",
    "TRUNCATE runs",
    "INSERT INTO runs VALUES (1)",
    "INSERT OR REPLACE INTO runs VALUES (1)",
    "REPLACE INTO runs VALUES (1)",
    "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ $$",
    "CREATE OR REPLACE VIEW recent AS SELECT 1",
    "CREATE TABLE copy AS SELECT * FROM runs",
    "PRAGMA writable_schema = ON",
    "VACUUM",
    "GRANT ALL ON runs TO public",
    "DO $$ BEGIN DROP TABLE runs; END $$",
    "WITH gone AS (DELETE FROM runs RETURNING id) SELECT id FROM gone",
    "",
)


@with_each("sql", ADDS)
def test_what_adds_is_permitted(sql: str) -> None:
    """migrations MG-10."""
    assert problem_with(sql, {"runs": ("status", "version")}) is None


@with_each("sql", REFUSED)
def test_what_is_not_known_to_add_is_refused(sql: str) -> None:
    """migrations MG-10."""
    assert problem_with(sql, {"runs": ("status",)}) == "not known to add"


@with_each(
    "body",
    [
        "DELETE FROM runs",
        "SELECT RAISE(ABORT, 'no'); UPDATE runs SET id = 1",
        "INSERT OR REPLACE INTO maintenance_permits (receipt_id, probe) VALUES ('x', NULL)",
        "INSERT OR IGNORE INTO maintenance_permits (receipt_id, probe) VALUES ('x', 0)",
        "WITH a AS (SELECT 1) DELETE FROM runs",
    ],
)
def test_a_trigger_whose_body_changes_rows_is_refused(body: str) -> None:
    """migrations MG-10: the whole body is judged, on Postgres that of the function."""
    sql = f"CREATE TRIGGER t BEFORE INSERT ON runs BEGIN {body}; END"
    assert problem_with(sql, {}) == "a trigger that changes rows"
    function = f"CREATE FUNCTION t() RETURNS trigger LANGUAGE plpgsql AS $b$ BEGIN {body}; END $b$"
    assert problem_with(function, {}) == "a function that changes something"


@with_each(
    "sql",
    [
        "CREATE TABLE more (id TEXT); DROP TABLE runs",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$; DROP TABLE runs",
        "CREATE TRIGGER t BEFORE DELETE ON runs BEGIN SELECT 1; END; DROP TABLE runs",
        "COMMENT ON TABLE runs IS 'a' /* ' */; DROP TABLE runs --'",
    ],
)
def test_a_second_statement_cannot_hide_behind_the_first(sql: str) -> None:
    """migrations MG-10: one driver executes what stands behind a semicolon."""
    assert problem_with(sql, {}) == "more than one statement"


@with_each(
    ("sql", "problem"),
    [
        ("UPDATE runs SET status = 'x' WHERE 1 = 1", "changes runs.status, which no data step declares"),
        (
            "UPDATE jobs SET version = 2, owner = 'x' WHERE 1 = 1",
            "changes jobs.owner, version, which no data step declares",
        ),
        (
            "UPDATE runs SET (version, status) = (1, 2) WHERE 1 = 1",
            "assigns columns in a row value, where they cannot be told apart",
        ),
        ("UPDATE runs SET version = 2", "not known to add"),
    ],
)
def test_a_backfill_changes_only_what_it_declares(sql: str, problem: str) -> None:
    """migrations MG-10: data backfill that declares its columns."""
    assert problem_with(sql, {"runs": ("version",)}) == problem


REACTION = "UPDATE jobs SET next_at = made_at, planned = '' WHERE name IN (OLD.name, NEW.name)"
LOCK = "PERFORM name FROM jobs WHERE name = OLD.name FOR NO KEY UPDATE"


@with_each(
    ("body", "permitted"),
    [
        (REACTION, True),
        (f"{REACTION}; UPDATE jobs SET name = 'x' WHERE 1 = 1", False),
        (f"{REACTION}; DELETE FROM jobs", False),
        ("UPDATE jobs SET planned = ''", False),
    ],
)
def test_a_trigger_changes_only_what_its_revision_declares(body: str, permitted: bool) -> None:
    """migrations MG-10: on Postgres its function does, after it has locked the rows."""
    declared = {"jobs": ("next_at", "planned")}
    trigger = f"CREATE TRIGGER t AFTER DELETE ON runs BEGIN {body}; END"
    function = f"CREATE FUNCTION t() RETURNS trigger LANGUAGE plpgsql AS $b$ BEGIN IF a THEN {LOCK}; {body}; END $b$"
    for sql in (trigger, function):
        assert (problem_with(sql, {}, declared) is None) == permitted
        assert problem_with(sql, {}) is not None


PUT = (
    "INSERT INTO places (id, at) VALUES (NEW.id, coalesce(NEW.at, '')) ON CONFLICT (id) DO UPDATE SET at = excluded.at"
)
DROP = "DELETE FROM places WHERE id = OLD.id"


@with_each(
    ("body", "permitted"),
    [(PUT, True), (DROP, True), (f"{DROP}; DELETE FROM jobs WHERE id = OLD.id", False), ("DELETE FROM places", False)],
)
def test_a_trigger_keeps_rows_of_tables_of_its_own_revision_alone(body: str, permitted: bool) -> None:
    """migrations MG-10: it makes, sets and removes them by their key, and the revision fills the table once."""
    trigger = f"CREATE TRIGGER t AFTER DELETE ON runs FOR EACH ROW BEGIN {body}; END"
    function = f"CREATE FUNCTION t() RETURNS trigger LANGUAGE plpgsql AS $b$ BEGIN {body}; RETURN NULL; END $b$"
    for sql in (trigger, function, "INSERT INTO places (id) SELECT id FROM jobs"):
        assert problem_with(sql, {}) is not None
    for sql in (trigger, function):
        assert (problem_with(sql, {}, kept={"places"}) is None) == permitted
    assert problem_with("INSERT INTO places (id) SELECT id FROM jobs", {}, kept={"places"}) is None
    assert problem_with("INSERT INTO jobs (id) SELECT id FROM places", {}, kept={"places"}) is not None
