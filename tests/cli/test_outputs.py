from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.cli.calls import lastlight_state
from support.each import with_each
from support.outputs.shapes import Analysis, a_run

from lastlight_state.testing import Database

MODELS = """
from pydantic import BaseModel

class Report(BaseModel):
    title: str
    {more}

OUTPUTS = {{"report": Report, "notes": list[str]}}
NONE = 3
"""


def models(folder: Path, name: str, more: str = "") -> str:
    (folder / f"{name}.py").write_text(MODELS.format(more=more), "utf-8")
    return f"{name}:OUTPUTS"


def test_a_plan_is_sql_and_applying_it_leaves_nothing_to_do(fresh_database: Database, tmp_path: Path) -> None:
    """outputs M-7: exit code 1 while anything is missing."""
    named = models(tmp_path, f"cli_models_{fresh_database.name}")
    url = ("--url", fresh_database.url)
    planned = lastlight_state("outputs", "plan", named, *url)
    assert planned.code == 1
    assert "CREATE TABLE report" in planned.out
    applied = lastlight_state("outputs", "apply", named, *url, "--json")
    assert [one["table"] for one in applied.data["defined"]] == ["report", "notes"]
    again = lastlight_state("outputs", "plan", named, *url, "--json")
    assert again.code == 0
    assert [plan["sql"] for plan in again.data["plans"]] == [[], []]
    grown = models(tmp_path, f"cli_grown_{fresh_database.name}", "score: int | None = None")
    assert "ADD COLUMN score" in lastlight_state("outputs", "plan", grown, *url).out
    assert lastlight_state("outputs", "apply", grown, *url).code == 0
    other = models(tmp_path, f"cli_other_{fresh_database.name}", "title: int")
    differs = lastlight_state("outputs", "plan", other, *url)
    assert (differs.code, differs.out.splitlines()[0]) == (1, "-- report: differs from report")


@with_each("words", [("plan", "nowhere:X"), ("plan", "x"), ("plan", "json:dumps"), ("drop", "json:dumps")])
def test_definitions_that_are_not_there_are_wrong_usage(sqlite_database: Database, words: tuple[str, str]) -> None:
    """outputs M-7: nothing was done."""
    said = lastlight_state("outputs", *words, "--url", sqlite_database.url)
    assert (said.code, "Traceback" in said.err) == (2, False)
    assert not sqlite_database.open().outputs.catalog.list().items


@pytest.mark.parametrize("name", ["cli_path_models", "nowhere"])
def test_the_search_path_is_as_it_was_after_a_command(sqlite_database: Database, tmp_path: Path, name: str) -> None:
    """outputs M-7: a host that calls the command line in its own process imports as before."""
    models(tmp_path, "cli_path_models")
    before = list(sys.path)
    lastlight_state("outputs", "plan", f"{name}:OUTPUTS", "--url", sqlite_database.url)
    assert sys.path == before


def test_outputs_are_listed_and_shown_with_their_rows(fresh_database: Database) -> None:
    """outputs N-3: without any model."""
    store = fresh_database.open(migrate=True)
    run_id = a_run(store)
    store.outputs.results.put(store.outputs.define("codeReview", Analysis), run_id, "review", {"summary": "x"})
    store.close()
    listed = lastlight_state("ls", "outputs", "--url", fresh_database.url)
    assert "codeReview" in listed.out
    shown = lastlight_state("show", "output", "codeReview", "--url", fresh_database.url)
    assert run_id in shown.out
    assert lastlight_state("show", "output", "nothing", "--url", fresh_database.url).code == 1
