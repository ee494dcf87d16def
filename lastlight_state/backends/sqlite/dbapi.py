"""The SQLite driver. No other module of the library imports the driver.

It is Python's own ``sqlite3``, with the SQLite of that Python build. The extra ``sqlite`` installs ``pysqlite3``, which
contains a newer SQLite and is used if the setting ``sqlite_driver`` names it. A process uses only one of the two. If
two SQLite libraries open the same file, each drops the other's locks, because a file lock belongs to the process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lastlight_state.backends.facts import Unreadable
from lastlight_state.errors import InvalidValue, MisuseError
from lastlight_state.lazy import load
from lastlight_state.settings import PREFIX

#: The environment variable that is read when SQLite is first used.
VARIABLE = PREFIX + "SQLITE_DRIVER"
_OWN, _EXTRA = "sqlite3", "pysqlite3"


def _chosen_driver() -> str:
    given = next((value for name, value in os.environ.items() if name.upper() == VARIABLE and value), _OWN)
    if given not in (_OWN, _EXTRA):
        raise InvalidValue("sqlite_driver", f"expected {_OWN} or {_EXTRA}, found {given}")
    return given


#: The name of this process's driver.
NAME = _chosen_driver()
#: True if the driver stays on a row whose text it cannot decode. ``pysqlite3`` loses that row and those after it.
STAYS_ON_ROWS = NAME == _OWN

if TYPE_CHECKING:
    import sqlite3 as sqlite3  # noqa: PLC0414 - says that others may import it from here
else:
    try:
        sqlite3 = load(NAME)
    except ModuleNotFoundError as error:
        raise MisuseError.missing_extra("sqlite", what=NAME) from error


#: A flag for opening SQLite (SQLITE_OPEN_EXRESCODE). Without it ``pysqlite3`` reports only the kind of an error, such
#: as any constraint. With it, it reports the number of the error, for these errors without a name.
_OPENS: dict[str, Any] = {}
if NAME == _EXTRA and not hasattr(sqlite3, "SQLITE_CONSTRAINT_UNIQUE"):
    _OPENS = {"flags": 0x02 | 0x04 | 0x02000000}  # read and write, create, and SQLITE_OPEN_EXRESCODE
_KINDS = {5: "BUSY", 6: "LOCKED", 8: "READONLY", 10: "IOERR", 11: "CORRUPT", 14: "CANTOPEN", 19: "CONSTRAINT"}
_NAMES = {
    275: "CONSTRAINT_CHECK",
    517: "BUSY_SNAPSHOT",
    776: "READONLY_ROLLBACK",
    778: "IOERR_WRITE",
    787: "CONSTRAINT_FOREIGNKEY",
    1034: "IOERR_FSYNC",
    1299: "CONSTRAINT_NOTNULL",
    1546: "IOERR_TRUNCATE",
    1555: "CONSTRAINT_PRIMARYKEY",
    1811: "CONSTRAINT_TRIGGER",
    2067: "CONSTRAINT_UNIQUE",
    2579: "CONSTRAINT_ROWID",
}


def text_or_unreadable(data: bytes) -> str | Unreadable:
    """Return the text of a column, or `Unreadable` if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Unreadable(data)


if TYPE_CHECKING:
    connect = sqlite3.connect
else:

    def connect(database: Any, **options: Any) -> Any:
        """Return a connection whose errors have names, and which reads text that is not UTF-8 as `Unreadable`.

        Python's own driver raises for such text and stays on the row (`driver.fetch_rows`); ``pysqlite3`` loses the
        row.
        """
        made = sqlite3.connect(database, **_OPENS, **options)
        if not STAYS_ON_ROWS:
            made.text_factory = text_or_unreadable
        return made


def error_name(error: object) -> str | None:
    """Return SQLite's name for an error, or None for an error that Python itself raised."""
    name, code = getattr(error, "sqlite_errorname", None), getattr(error, "sqlite_errorcode", 0)
    if name != "SQLITE_UNKNOWN":
        return name
    found = _NAMES.get(code) or _KINDS.get(code % 256)
    return f"SQLITE_{found}" if found else name


def refuse_another(asked: str | None) -> None:
    """Raise `MisuseError` if settings demand another driver than the one this process uses."""
    if asked not in (None, NAME):
        raise MisuseError(
            f"this process uses SQLite by {NAME}, not by {asked}: set {VARIABLE}={asked} before it starts"
        )


def refuse_another_library(driver: Any) -> None:
    """Raise `MisuseError` if a caller's connection was made by another driver."""
    if not isinstance(driver, sqlite3.Connection):
        found = type(driver).__module__.partition(".")[0]
        raise MisuseError(
            f"the connection is of {found}, and this process uses SQLite by {NAME}: two libraries of SQLite drop each"
            f" other's locks on a file; give create_engine() the argument module={NAME}, or set {VARIABLE}={found}",
            driver=found,
        )


def set_limits(driver: Any, limits: Mapping[str, int]) -> dict[str, int]:
    """Set limits for the size of values, patterns and the like. Keys are SQLite's names. Returns the former limits.

    ``pysqlite3`` cannot set them; its SQLite keeps the limits of its build.
    """
    if not hasattr(driver, "setlimit") or not hasattr(sqlite3, "SQLITE_LIMIT_LENGTH"):
        return {}
    return {name: driver.setlimit(getattr(sqlite3, f"SQLITE_LIMIT_{name}"), most) for name, most in limits.items()}
