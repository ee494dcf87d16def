"""What a fresh interpreter loads, and what that costs beside the libraries that a store stands on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.each import with_each

from lastlight_state import StateStore

#: What a program that opens a store cannot do without.
BASE = "import sqlalchemy.orm, pydantic, pydantic_settings"
STORE = "from lastlight_state import StateStore"
COMMAND = "from lastlight_state.cli.program import run; run(sys.argv[1:])"
DOMAINS = ("agent_log", "journal", "messaging", "receipts", "run_log", "schedules", "workflows")


def fresh(code: str, *words: str, folder: Path | None = None) -> str:
    """What a fresh interpreter, unwatched by coverage, writes to stderr."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE", "LASTLIGHT_STATE_"))}
    environment = kept | ({} if folder is None else {"STATE_DIR": str(folder)})
    command = [sys.executable, "-c", f"import sys; {code}", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr


def loaded(code: str, *words: str, folder: Path | None = None) -> set[str]:
    """The modules that it has in the end."""
    return set(fresh(f"{code}; print(*sys.modules, file=sys.stderr)", *words, folder=folder).split())


def seconds(code: str, *words: str, folder: Path | None = None) -> float:
    """The processor time of a process."""
    timed = f"import time; {code}; print(time.process_time(), file=sys.stderr)"
    return float(fresh(timed, *words, folder=folder).split()[-1])


def domains(modules: set[str]) -> set[str]:
    """The domains of which anything but the package itself is there."""
    parts = (name.split(".") for name in modules if name.startswith("lastlight_state."))
    return {path[1] for path in parts if path[1] in DOMAINS and len(path) > 2}


@pytest.fixture(scope="module")
def below() -> float:
    """The processor time of the libraries below."""
    return min(seconds(BASE) for _ in range(3))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state directory with a database that is current and empty."""
    StateStore.open(state_dir=tmp_path).close()
    return tmp_path


def test_the_name_of_the_store_loads_no_domain() -> None:
    """packaging PT-30."""
    modules = loaded(STORE)
    assert domains(modules) == set()
    assert "lastlight_state.migrations.metadata" not in modules


def test_the_errors_are_an_attribute_of_the_library() -> None:
    """packaging PT-30: they are loaded when they are asked for."""
    code = "import lastlight_state; print(lastlight_state.errors.NotFound is lastlight_state.NotFound, file=sys.stderr)"
    assert fresh(code) == "True\n"


@with_each("words", [("--help",), ("--version",), ("history",)])
def test_commands_that_ask_no_database_load_no_database_library(words: tuple[str, ...]) -> None:
    """packaging PT-30."""
    assert loaded(COMMAND, *words) & {"alembic", "lastlight_state.store", "pydantic", "sqlalchemy"} == set()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("check",), set()),
        (("current",), set()),
        (("ls", "runs"), {"workflows"}),
        (("ls", "messaging"), {"messaging"}),
        (("ls", "crons"), {"schedules"}),
    ],
)
def test_a_command_loads_the_domain_that_it_shows(words: tuple[str, ...], expected: set[str], folder: Path) -> None:
    """packaging PT-30."""
    modules = loaded(COMMAND, *words, folder=folder)
    assert domains(modules) == expected
    assert "alembic" not in modules


@pytest.mark.slow
def test_statistics_load_tables_but_no_repository(folder: Path) -> None:
    """packaging PT-30."""
    modules = loaded(COMMAND, "stats", folder=folder)
    assert [name for name in modules if name.startswith("lastlight_state.workflows.") and name.endswith("runs")] == []
    assert "alembic" not in modules


@pytest.mark.parametrize(
    ("code", "words", "most"),
    [
        (STORE, (), 2.6),
        (COMMAND, ("check",), 3.6),
        (COMMAND, ("current",), 3.6),
        (COMMAND, ("ls", "runs"), 3.6),
        (COMMAND, ("stats",), 3.6),
        (COMMAND, ("history",), 1.2),
        (COMMAND, ("--help",), 1.2),
    ],
)
def test_a_process_costs_at_most_a_multiple_of_the_libraries_below(
    code: str, words: tuple[str, ...], most: float, folder: Path, below: float
) -> None:
    """packaging PT-31: of processor time, with room for what else the machine does; one of five processes suffices."""
    assert any(seconds(code, *words, folder=folder) < most * below for _ in range(5))
