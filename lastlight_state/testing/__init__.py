"""Test tools, for this library's own tests and for services that use it.

The rest of the library imports nothing from here. Importing this package needs no extra and loads nothing: each name
loads its module at its first use. `plugin` is the pytest plugin of an installed library.
"""

from typing import TYPE_CHECKING, Any

from lastlight_state.lazy import load

if TYPE_CHECKING:
    from lastlight_state.testing.blocking import blocking_store
    from lastlight_state.testing.clock import FrozenClock
    from lastlight_state.testing.databases import Database, PostgresTemplate, SqliteTemplate
    from lastlight_state.testing.postgres import ThrowawayPostgres
    from lastlight_state.testing.races import Race, racing

__all__ = [
    "Database",
    "FrozenClock",
    "PostgresTemplate",
    "Race",
    "SqliteTemplate",
    "ThrowawayPostgres",
    "blocking_store",
    "racing",
]

_HOMES = {
    "Database": "databases",
    "FrozenClock": "clock",
    "PostgresTemplate": "databases",
    "Race": "races",
    "SqliteTemplate": "databases",
    "ThrowawayPostgres": "postgres",
    "blocking_store": "blocking",
    "racing": "races",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(load(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
