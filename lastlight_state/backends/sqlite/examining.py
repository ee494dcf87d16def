"""Measures and checks a SQLite database, runs queries that a person typed, and vacuums."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lastlight_state.backends.facts import Measures, TableSize
from lastlight_state.backends.sqlite.dbapi import error_name, set_limits, sqlite3
from lastlight_state.backends.sqlite.driver import is_locked, translate
from lastlight_state.errors import BackendUnavailable, Conflict, InvalidValue, ReadOnlyTransaction

# The size and settings of a SQLite database.

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
_SYNCHRONOUS = ("off", "normal", "full", "extra")


def read_measures(
    driver: Any, files: Sequence[Path], tables: Sequence[str], journal_mode: str | None, checkpoint_pages: int
) -> Measures:
    """Return the database's measures. All settings except the first two are those of this connection only.

    ``journal_mode`` is passed if the connection cannot report it. ``checkpoint_pages`` is the length of the log after
    which SQLite or this library makes a checkpoint.
    """
    page = _pragma(driver, "page_size")
    free = _pragma(driver, "freelist_count")
    present = {row[0] for row in driver.execute(_TABLES).fetchall()}
    return Measures(
        version=f"SQLite {sqlite3.sqlite_version}",
        size_bytes=page * _pragma(driver, "page_count"),
        tables={table: TableSize() for table in tables if table in present},
        settings={
            "journal_mode": journal_mode or _pragma(driver, "journal_mode"),
            "wal_autocheckpoint": checkpoint_pages,
            "busy_timeout": _pragma(driver, "busy_timeout"),
            "synchronous": _SYNCHRONOUS[_pragma(driver, "synchronous")],
            "foreign_keys": bool(_pragma(driver, "foreign_keys")),
        },
        wal_bytes=_wal_bytes(files),
        free_pages=free,
        free_bytes=free * page,
    )


def _pragma(driver: Any, name: str) -> Any:
    return driver.execute(f"PRAGMA {name}").fetchone()[0]


def _wal_bytes(files: Sequence[Path]) -> int:
    try:
        return files[1].stat().st_size if files else 0
    except FileNotFoundError:
        return 0


# A person's own query: SQLite itself refuses anything that would write or leave the database.
#
# ``query_only`` is not enough: ATTACH creates a file in spite of it, and a PRAGMA turns it off. So an authorizer
# permits reading and nothing else.

_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_PRAGMAS_OF_A_NAME = frozenset(
    {"table_info", "table_xinfo", "index_list", "index_info", "index_xinfo", "foreign_key_list"}
)
_PRAGMAS = frozenset(
    {
        "table_list",
        "database_list",
        "user_version",
        "page_count",
        "page_size",
        "freelist_count",
        "journal_mode",
        "encoding",
    }
)
#: Limits for work within one step of the virtual machine, where no clock can stop it: bytes of one value, and
#: characters of a pattern that is matched by backtracking.
_LIMITS = {"LENGTH": 64 * 1024 * 1024, "LIKE_PATTERN_LENGTH": 100}
_LOADING = frozenset({"load_extension", "writefile", "edit"})
_PLAN = "EXPLAIN QUERY PLAN "
#: Steps of the virtual machine between two checks of the clock.
_STEPS = 10_000


#: The longest statement of a caller that a connection may keep. The driver caches a number of statements, of any
#: length.
KEPT_TEXT = 4096


def ask(
    driver: sqlite3.Connection, sql: str, params: Mapping[str, Any], limit: int, timeout: float, *, plan: bool
) -> tuple[list[str], list[Any]]:
    """Run a query, or its query plan with ``plan``.

    Return the column names and at most ``limit`` rows, in SQLite's types.
    """
    ends = time.monotonic() + timeout
    denied: list[int] = []

    def authorize_action(action: int, *names: str | None) -> int:
        if _is_permitted(action, names[0], names[1]):
            return sqlite3.SQLITE_OK
        denied.append(action)
        return sqlite3.SQLITE_DENY

    driver.set_authorizer(authorize_action)
    driver.set_progress_handler(lambda: time.monotonic() > ends, _STEPS)
    usual = set_limits(driver, _LIMITS)
    try:
        cursor = driver.execute(_PLAN + sql if plan else sql, params)
        if cursor.description is None:
            raise InvalidValue("sql", "must be one statement that returns rows")
        return [column[0] for column in cursor.description], cursor.fetchmany(limit)
    except (sqlite3.Error, sqlite3.Warning) as error:  # pysqlite3 raises Warning for two statements
        if denied:  # checked here, because the error's name differs if the connection had an old schema
            raise ReadOnlyTransaction("a query may only read") from error
        if is_locked(error):
            raise
        raise _refusal(error, timeout) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise InvalidValue(
            "params", str(error) if isinstance(error, OverflowError) else "must not contain a lone surrogate"
        ) from None
    finally:
        set_limits(driver, usual)
        driver.set_authorizer(None)
        driver.set_progress_handler(None, 0)


def _is_permitted(action: int, first: str | None, second: str | None) -> bool:
    if action == sqlite3.SQLITE_FUNCTION:
        return (second or "").lower() not in _LOADING
    if action == sqlite3.SQLITE_PRAGMA:
        name = (first or "").lower()
        return name in _PRAGMAS_OF_A_NAME or (name in _PRAGMAS and second is None)
    return action in _READING


def _refusal(error: Exception, timeout: float) -> Exception:
    name = error_name(error)
    if name == "SQLITE_INTERRUPT":
        return BackendUnavailable(f"the query took longer than {timeout:g} s", reason="statement_timeout")
    if name in (None, "SQLITE_ERROR", "SQLITE_RANGE", "SQLITE_MISMATCH", "SQLITE_TOOBIG"):
        return InvalidValue("sql", str(error))
    return translate(error)


#: The most problems that are reported.
_MOST = 50


def find_problems(driver: Any, *, deep: bool) -> list[str]:
    """Return the problems of the file: in its pages and indexes, and rows whose foreign keys refer to a missing row."""
    check = "integrity_check" if deep else "quick_check"
    found = [str(line) for (line,) in driver.execute(f"PRAGMA {check}({_MOST})").fetchall()]
    rows = driver.execute('SELECT "table", count(*), parent FROM pragma_foreign_key_check GROUP BY 1, 3').fetchall()
    orphans = [f"{count} rows of {table} refer to no row of {parent}" for table, count, parent in rows]
    return [*(found if found != ["ok"] else []), *orphans]


def run_checkpoint(driver: Any, mode: str) -> tuple[bool, int, int] | None:
    """Return the result of a checkpoint; None for a file without a write-ahead log."""
    busy, log, brought = driver.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return None if log < 0 else (bool(busy), log, brought)


def rebuilt(driver: Any, files: tuple[Path, ...]) -> None:
    """Rebuild the file without its free pages.

    SQLite makes a copy for this, so `Conflict` is raised unless twice the file's size is free on the disk.
    """
    for path in files[:1]:
        size, free = path.stat().st_size, shutil.disk_usage(path.parent).free
        if free < 2 * size:
            text = f"a vacuum needs {2 * size} free bytes beside the database, and there are {free}"
            raise Conflict(text, code="no_space", needed=2 * size, free=free)
    driver.execute("VACUUM")
