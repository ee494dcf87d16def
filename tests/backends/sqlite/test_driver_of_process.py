"""backends B-184: a process uses SQLite by one driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lastlight_state import MisuseError
from lastlight_state.backends.sqlite import dbapi

#: A stand-in for the package, which has the same SQLite as Python and connections of its own.
PACKAGE = """
import sqlite3 as _own
from sqlite3 import *
from sqlite3 import dbapi2

class Connection(_own.Connection):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)

def connect(*given, **named):
    return _own.connect(*given, **{"factory": Connection, **named})
"""
OPENS = """
import sqlite3, sys
import sqlalchemy as sa
from lastlight_state import MisuseError, Settings, StateStore
from lastlight_state.workflows import Trigger
path = sys.argv[1]
"""


def run(program: str, folder: Path, **environment: str) -> str:
    """What a new process prints, or the last line of its error."""
    (folder / "pysqlite3.py").write_text(PACKAGE)
    inherited = {name: value for name, value in os.environ.items() if name not in (dbapi.VARIABLE, "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, "-c", OPENS + program, str(folder / "a.db")],
        env={**inherited, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


ASKED = {dbapi.VARIABLE: "pysqlite3"}


@pytest.mark.slow
def test_the_variable_chooses_the_driver(tmp_path: Path) -> None:
    """backends B-184: for stores, engines and connections of a caller."""
    program = """
import pysqlite3
from lastlight_state import MisuseError
from lastlight_state.backends.sqlite import dbapi
engine = sa.create_engine(f"sqlite:///{path}", module=pysqlite3)
with StateStore.open(path) as store, StateStore.open(engine=engine) as other:
    for one in (store, other):
        one.workflows.runs.create("w", trigger=Trigger("t"), phase="p")
    with engine.begin() as connection, store.transaction(connection=connection) as tx:
        tx.workflows.runs.create("w", trigger=Trigger("t"), phase="p")
    with store.transaction() as tx:
        driver = tx.connection.connection.driver_connection
        assert isinstance(driver, pysqlite3.Connection)
        assert len(tx.connection.execute(sa.text("SELECT id FROM workflow_runs")).all()) == 3
    store.maintenance.backup.create("copies")
print(dbapi.NAME)
"""
    assert run(program, tmp_path, **ASKED) == "pysqlite3"


@pytest.mark.slow
def test_a_callers_connection_of_the_other_library_is_refused(tmp_path: Path) -> None:
    """backends B-184: of an engine, and joined."""
    program = """
engine = sa.create_engine(f"sqlite:///{path}")
with StateStore.open(path) as store:
    for number in range(2):
        try:
            if number:
                StateStore.open(engine=engine)
            else:
                with engine.begin() as connection, store.transaction(connection=connection):
                    pass
        except MisuseError as error:
            print(error.driver, "create_engine() the argument module=pysqlite3" in str(error))
"""
    assert run(program, tmp_path, **ASKED).splitlines() == ["sqlite3 True", "sqlite3 True"]


def test_what_is_no_connection_of_the_driver_is_refused() -> None:
    """backends B-184: where the process has Python's own, too."""

    class Connection:
        pass

    with pytest.raises(MisuseError, match="two libraries of SQLite") as refused:
        dbapi.refuse_another_library(Connection())
    assert f"module={dbapi.NAME}" in str(refused.value)


@pytest.mark.slow
def test_settings_that_ask_for_another_driver_than_the_process_has_are_refused(tmp_path: Path) -> None:
    """backends B-184."""
    program = """
try:
    StateStore.open(path, settings=Settings(sqlite_driver="pysqlite3"))
except MisuseError as error:
    print(error)
"""
    said = run(program, tmp_path)
    assert said == (
        "this process uses SQLite by sqlite3, not by pysqlite3: set LASTLIGHT_STATE_SQLITE_DRIVER=pysqlite3 before it"
        " starts"
    )


@pytest.mark.slow
def test_a_driver_that_nobody_knows_or_has_is_refused_by_name(tmp_path: Path) -> None:
    """backends B-184: and the extra is named that brings it."""
    assert "sqlite_driver: Input should be 'sqlite3' or 'pysqlite3'" in run(
        "StateStore.open(path)", tmp_path, **{dbapi.VARIABLE: "apsw"}
    )
    program = "import sys; sys.modules['pysqlite3'] = None\nStateStore.open(path)"
    assert "pip install 'lastlight-state[sqlite]'" in run(program, tmp_path, **ASKED)


def test_limits_are_set_where_the_driver_can() -> None:
    """backends B-184: `pysqlite3` cannot."""

    class Without:
        pass

    driver: Any = dbapi.sqlite3.connect(":memory:")
    usual = dbapi.set_limits(driver, {"LENGTH": 1_000_000})
    if hasattr(driver, "setlimit"):
        assert dbapi.set_limits(driver, usual) == {"LENGTH": 1_000_000}
    driver.close()
    assert dbapi.set_limits(Without(), {"LENGTH": 1}) == {}
