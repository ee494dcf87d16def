"""What is personal is declared with each column, and an erasure or a redaction leaves nothing of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column
from support.maintenance import personal
from support.maintenance.rows import insert

from lastlight_state.db.schema.base import Base
from lastlight_state.db.schema.declarations import (
    UndeclaredColumn,
    bytes_column,
    contents,
    describe_table,
    facts_of,
    json_column,
    text_column,
)
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database


class Trial(Base):
    """Models that are tried, apart from those of the schema."""

    __abstract__ = True
    metadata = sa.MetaData()


def test_nothing_personal_of_an_erased_person_is_left(store: Any, database: Database) -> None:
    """maintenance M-81: in no column of any table, filled as full as it can be."""
    assert personal.reached() <= set(personal.ROWS)
    personal.fill(database)
    before = personal.left(database)
    assert {name.partition(".")[0] for name in before} == personal.reached()
    plan = store.maintenance.erase.plan(personal.PERSON)
    assert store.maintenance.erase.run(personal.PERSON).counts == plan.counts
    assert personal.left(database) == set()
    assert store.maintenance.erase.run(personal.PERSON).counts == {}


def test_branches_and_orders_of_a_session_are_its_users_unless_they_name_another(
    store: Any, database: Database
) -> None:
    """maintenance M-83: a branch without a user goes with its session, one of another user stays."""
    personal.fill(database)
    raw = database.raw()
    for name, user in (("nobodys", None), ("bobs", "bob")):
        order = {"id": name, "created_at": personal.AT, "name": f"zoe {name}"}
        insert(raw, "progressions", order)
        row = {"id": name, "created_at": personal.AT, "session_id": "talk", "progression_id": name}
        insert(raw, "branches", {**row, '"user"': user, "name": f"zoe {name}"})
    plan = store.maintenance.erase.plan("zoe")
    receipt = store.maintenance.erase.run("zoe")
    assert plan.counts == receipt.counts
    assert (receipt.counts["branches"], receipt.counts["progressions"]) == (2, 2)
    assert personal.left(database, said="zoe nobodys") == set()
    assert personal.left(database) == {"branches.name", "progressions.name"}
    assert store.maintenance.erase.run("zoe").counts == {}


def test_what_goes_with_a_run_is_pruned_with_it() -> None:
    """maintenance M-84."""
    of_runs = {name for name, table in METADATA.tables.items() if facts_of(table).erased == "with_run"}
    assert of_runs == {name for name in of_runs if "runs" in facts_of(METADATA.tables[name]).pruned_as} != set()


def test_a_column_that_does_not_say_whether_it_is_personal_does_not_load() -> None:
    """maintenance M-85: neither by our functions, nor by a plain column."""
    makers: tuple[Any, ...] = (partial(text_column, 9), partial(json_column, 9), bytes_column)
    for make in makers:
        with pytest.raises(TypeError, match="personal"):
            make()
    with pytest.raises(UndeclaredColumn, match=r"silent\.said must say whether it is personal"):

        class Silent(Trial):
            __tablename__ = "silent"
            __table_args__ = describe_table("what is tried", kept="for a test")
            id: Mapped[int] = mapped_column(primary_key=True)
            said: Mapped[str]


def test_a_table_that_does_not_say_what_becomes_of_its_rows_does_not_load() -> None:
    """maintenance M-85, OP-6: which prune removes them, and what an erasure does."""

    def load(**facts: Any) -> None:
        name = f"table_{len(Trial.metadata.tables)}"
        type(name, (Trial,), {
            "__tablename__": name,
            "__table_args__": describe_table("what is tried", **facts),
            "__annotations__": {"id": Mapped[str]},
            "id": text_column(256, primary_key=True, personal=True),
        })  # fmt: skip

    load(kept="for a test", stays="for a test")
    for facts in ({}, {"stays": "s"}, {"kept": "k", "pruned_as": ("runs",), "stays": "s"}, {"kept": "k"}):
        with pytest.raises(UndeclaredColumn):
            load(**facts)
    with pytest.raises(UndeclaredColumn, match="has no column at"):
        load(kept="k", stays="s", newest=("at",))


def test_a_personal_column_that_cannot_be_null_must_be_emptied_in_another_way() -> None:
    """maintenance M-85: erasing would fail, or pass it over."""
    with pytest.raises(UndeclaredColumn, match=r"messages\.content"):
        contents(METADATA.tables["messages"])
