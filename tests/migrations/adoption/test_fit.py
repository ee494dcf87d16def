"""What tables of the original program may lack or have more, and what contradicts."""

from __future__ import annotations

from support.each import with_each

from lastlight_state.backends.facts import Catalogue, Entry
from lastlight_state.migrations.adoption import fit

A: Catalogue = {("table", "a", ""): "", ("column", "a", "x"): "TEXT"}
COLUMN: Entry = ("column", "a", "y")
INDEX: Entry = ("index", "a", "i")
CHECK: Entry = ("constraint", "a", "check")
TRIGGER: Entry = ("trigger", "a", "t")
ELSEWHERE: Entry = ("column", "b", "y")


@with_each(
    ("entry", "text", "is_added"),
    [
        (COLUMN, "TEXT", True),
        (COLUMN, "TEXT NOT NULL DEFAULT 'x'", True),
        (COLUMN, "TEXT NOT NULL", False),
        (INDEX, "create index i on a ( x ) where x is NOT NULL", True),
        (CHECK, "check (x <> '')", False),
        (TRIGGER, "create trigger t", False),
    ],
)
def test_what_filled_tables_can_get_may_be_missing(entry: Entry, text: str, is_added: bool) -> None:
    """migrations MG-43: and is made, where tables may be filled up."""
    expected = {**A, entry: text}
    assert bool(fit.misfits(A, expected, additive=True)) is not is_added
    assert len(fit.misfits(A, expected)) == 1


@with_each("additive", [True, False])
def test_what_is_there_and_another_contradicts(additive: bool) -> None:
    """migrations MG-43: although it could be added where it is missing."""
    [line] = fit.misfits({**A, COLUMN: "INTEGER"}, {**A, COLUMN: "TEXT"}, additive=additive)
    assert line == "column a.y is 'INTEGER', expected 'TEXT'"


@with_each(
    ("entry", "text", "is_refused"),
    [
        (COLUMN, "TEXT", False),
        (COLUMN, "TEXT NOT NULL DEFAULT 'x'", False),
        (COLUMN, "INTEGER NOT NULL identity", False),
        (COLUMN, "TEXT NOT NULL", True),
        (ELSEWHERE, "TEXT NOT NULL", False),
        (INDEX, "CREATE INDEX i ON a (x)", False),
        (INDEX, "CREATE UNIQUE INDEX i ON a (x)", True),
        (CHECK, "check (x <> '')", True),
        (TRIGGER, "create trigger t", False),
    ],
)
def test_what_is_more_may_stay_unless_it_refuses_rows(entry: Entry, text: str, is_refused: bool) -> None:
    """migrations MG-43."""
    assert bool(fit.misfits({**A, entry: text}, A, additive=True)) is is_refused


def test_tables_lack_columns_and_indexes_and_missing_tables_only_themselves() -> None:
    """migrations MG-43: a table that is made has all of its own."""
    missing: Entry = ("table", "b", "")
    expected = {**A, COLUMN: "TEXT", INDEX: "i", CHECK: "c", missing: "", ELSEWHERE: "TEXT"}
    assert fit.missing_entries(A, expected) == [COLUMN, INDEX, missing]


@with_each(
    ("entry", "text", "is_present", "clashes"),
    [
        (COLUMN, "TEXT", True, 1),
        (COLUMN, "INTEGER", False, 1),
        (INDEX, "TEXT", True, 1),
        (TRIGGER, "TEXT", False, 1),
        (ELSEWHERE, "TEXT", False, 0),
        (("table", "b", ""), "TEXT", False, 1),
    ],
)
def test_what_a_later_revision_makes_may_be_there_if_it_is_equal(
    entry: Entry, text: str, is_present: bool, clashes: int
) -> None:
    """migrations MG-43: columns and indexes of the tables that are taken over; the rest is in the way."""
    found = {**A, entry: text}
    assert fit.present(found, A, {**A, entry: "TEXT"}) == ({entry} if is_present else set())
    assert len(fit.clashes(found, A, {**A, entry: "TEXT"})) == clashes
