from __future__ import annotations

from pathlib import Path

from support.each import with_each
from support.migrations.policy import violations
from support.migrations.support import load

from lastlight_state.migrations import scripts

PRODUCTS = ("sqlite", "postgresql")
FILES = sorted((scripts.folder() / "versions").glob("*.py"))

HEAD = """
import sqlalchemy as sa
from alembic import op
"""


def revision(tmp_path: Path, body: str, *, head: str = HEAD, after: str = "") -> list[str]:
    """What is wrong with a revision whose ``upgrade`` has that body."""
    file = tmp_path / "0042_tried.py"
    file.write_text(f"{head}\ndef upgrade():\n    {body}\n{after}\n")
    module = load(file)
    found = [violations(module, product) for product in PRODUCTS]
    assert found[0] == found[1]
    return found[0]


@with_each("product", PRODUCTS)
@with_each("file", FILES, ids=lambda file: file.stem)
def test_every_revision_only_adds(file: Path, product: str) -> None:
    """migrations MG-10."""
    assert violations(load(file), product) == []


GOOD = (
    "op.create_table('more', sa.Column('id', sa.Text(), nullable=False), sa.PrimaryKeyConstraint('id'))",
    "op.create_table_comment('more', 'what it holds')",
    "op.create_index('ix', 'runs', [sa.text('started_at DESC')], sqlite_where=sa.text('active'))",
    "op.create_index('uq', 'runs', ['key'], unique=True)",
    "op.add_column('runs', sa.Column('owner', sa.Text()))",
    "op.add_column('runs', sa.Column('n', sa.Integer(), nullable=False, server_default='0'))",
    "op.add_column('runs', sa.Column('b', sa.Boolean(), nullable=False, server_default=sa.false()))",
    "op.add_column('runs', sa.Column('t', sa.Text(), nullable=False, server_default=sa.text(\"'it''s'\")))",
    "op.add_column('runs', sa.Column('t', sa.Text(), nullable=False, server_default='plain'))",
)


@with_each("body", GOOD)
def test_what_adds_is_permitted(tmp_path: Path, body: str) -> None:
    """migrations MG-10."""
    assert revision(tmp_path, body) == []


BAD = {
    "drop table": ("op.drop_table('runs')", "DropTableOp is not known to add"),
    "drop column": ("op.drop_column('runs', 'owner')", "DropColumnOp is not known to add"),
    "drop index": ("op.drop_index('ix')", "DropIndexOp is not known to add"),
    "drop constraint": ("op.drop_constraint('uq', 'runs')", "DropConstraintOp is not known to add"),
    "rename table": ("op.rename_table('runs', 'jobs')", "RenameTableOp is not known to add"),
    "alter column": ("op.alter_column('runs', 'owner', nullable=False)", "AlterColumnOp is not known to add"),
    "rename column": ("op.alter_column('runs', 'a', new_column_name='b')", "AlterColumnOp is not known to add"),
    "drop comment": ("op.drop_table_comment('runs')", "DropTableCommentOp is not known to add"),
    "late check": ("op.create_check_constraint('ck', 'runs', 'a > 0')", "CreateCheckConstraintOp is not known to add"),
    "late unique": ("op.create_unique_constraint('uq', 'runs', ['a'])", "CreateUniqueConstraintOp is not known to add"),
    "late foreign key": (
        "op.create_foreign_key('fk', 'a', 'b', ['x'], ['y'])",
        "CreateForeignKeyOp is not known to add",
    ),
    "late primary key": ("op.create_primary_key('pk', 'a', ['x'])", "CreatePrimaryKeyOp is not known to add"),
    "batch mode": ("op.batch_alter_table('runs').__enter__()", "calls op.batch_alter_table"),
    "own connection": ("op.get_bind().execute('DROP TABLE runs')", "calls op.get_bind"),
    "past op": ("op.get_context().impl._exec(sa.text('DROP TABLE runs'))", "executes past op: 'DROP TABLE runs;'"),
    "no default": (
        "op.add_column('runs', sa.Column('a', sa.Text(), nullable=False))",
        "runs.a: NOT NULL without a default",
    ),
    "moving default": (
        "op.add_column('runs', sa.Column('a', sa.Text(), server_default=sa.func.now()))",
        "runs.a: the default now() is no constant",
    ),
    "unique column": (
        "op.add_column('runs', sa.Column('a', sa.Text(), unique=True))",
        "runs.a: later uniqueness is a unique index",
    ),
    "foreign key column": (
        "op.add_column('runs', sa.Column('a', sa.Text(), sa.ForeignKey('b.id')))",
        "runs.a: SQLite cannot add a foreign key",
    ),
    "enum column": (
        "op.add_column('runs', sa.Column('a', sa.Enum('x', name='words')))",
        "runs.a: an ENUM is as permanent as a column",
    ),
    "enum in a table": (
        "op.create_table('more', sa.Column('a', sa.Enum('x', name='words')))",
        "more.a: an ENUM is as permanent as a column",
    ),
    "check in a table": (
        "op.create_table('more', sa.Column('a', sa.Text()), sa.CheckConstraint('a > 0'))",
        "more: a CHECK is as permanent as a column",
    ),
    "check on a column": (
        "op.add_column('runs', sa.Column('a', sa.Text(), sa.CheckConstraint('a > 0')))",
        "runs.a: a CHECK is as permanent as a column",
    ),
    "rows of an older table": (
        "op.bulk_insert(sa.table('runs', sa.column('id')), [{'id': 'x'}])",
        "inserts rows into runs, which an earlier revision brought",
    ),
    "undeclared sql": (
        "op.execute('CREATE TABLE more (id TEXT)')",
        "SQL that is not declared in additive_sql: 'CREATE TABLE more (id TEXT)'",
    ),
    "refusal that writes": ("op.refuse_rows('DELETE FROM runs', 'no')", "refuse_rows reads with 'DELETE FROM runs'"),
}


@with_each("kind", BAD)
def test_the_recorder_refuses(tmp_path: Path, kind: str) -> None:
    """migrations MG-10: each forbidden kind."""
    body, problem = BAD[kind]
    assert revision(tmp_path, body) == [problem]


@with_each(
    "sql",
    ["DROP TABLE runs", "DELETE FROM runs", "ALTER TABLE runs DROP COLUMN a", "UPDATE runs SET a = 1 WHERE 1 = 1"],
)
def test_declared_sql_is_judged_all_the_same(tmp_path: Path, sql: str) -> None:
    """migrations MG-10: raw SQL included."""
    (problem,) = revision(tmp_path, f"op.execute({sql!r})", head=f"{HEAD}\nadditive_sql = ({sql!r},)")
    assert problem.endswith(f": {sql!r}")


def test_declared_sql_that_adds_is_permitted(tmp_path: Path) -> None:
    """migrations MG-10."""
    sql = "CREATE TRIGGER t BEFORE DELETE ON runs BEGIN SELECT 1; END"
    assert revision(tmp_path, f"op.execute({sql!r})", head=f"{HEAD}\nadditive_sql = ({sql!r},)") == []


def test_a_backfill_of_declared_columns_is_permitted(tmp_path: Path) -> None:
    """migrations MG-10."""
    sql = "UPDATE runs SET a = 1 WHERE b = 2"
    steps = "data_steps = ({'table': 'runs', 'columns': ('a',)},)"
    assert revision(tmp_path, f"op.execute({sql!r})", head=f"{HEAD}\nadditive_sql = ({sql!r},)\n{steps}") == []


def test_rows_of_a_table_that_the_revision_brings_are_permitted(tmp_path: Path) -> None:
    """migrations MG-10: words that a table begins with."""
    made = "op.create_table('words', sa.Column('id', sa.Integer()))"
    filled = "op.bulk_insert(sa.table('words', sa.column('id')), [{'id': 1}])"
    assert revision(tmp_path, f"{made}; {filled}") == []


@with_each("line", ["import lastlight_state", "from lastlight_state.db.schema import columns", "import os"])
def test_a_revision_imports_nothing_that_may_change(tmp_path: Path, line: str) -> None:
    """migrations MG-11: nothing of ours."""
    (problem,) = revision(tmp_path, "pass", head=f"{HEAD}\n{line}")
    assert problem == f"imports {line.split()[1]}"


def test_a_revision_has_no_way_down(tmp_path: Path) -> None:
    """migrations MG-11."""
    assert revision(tmp_path, "pass", after="def downgrade():\n    pass") == ["has a downgrade"]
