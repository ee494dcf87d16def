"""Tenants for tests: made by the script of a migration, which takes a tenth of a second, and not half of one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from lastlight_state import migrations
from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Options
from lastlight_state.testing.postgres import connect

_NAME = "schema_of_a_script"


def make_tenants(url: str, names: Iterable[str]) -> None:
    """Make schemas at the newest revision in an empty database."""
    with connect(url) as driver:
        if driver.execute("SELECT FROM pg_extension WHERE extname = 'citus'").rowcount:
            _migrate(url, names)  # Citus takes no text of several statements
            return
        script = _script(url)
        for name in names:
            driver.execute(script.replace(f'"{_NAME}"', f'"{name}"'), prepare=False)


def _migrate(url: str, names: Iterable[str]) -> None:
    for name in names:
        with closing(open_backend(url, Options(schema=name))) as backend:
            migrations.migrate(backend)


def _script(url: str) -> str:
    """Return the script of a migration, made once in a process: all its databases are on servers of one version."""
    if not _made:
        backend = open_backend(url, Options(schema=_NAME))
        _made.append(migrations.script(backend) or "")
        backend.close()
    return _made[0]


_made: list[str] = []
