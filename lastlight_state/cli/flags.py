"""The flags that every command has, before it or behind it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click


@dataclass
class Flags:
    """The values given, on either side of the command; the later one holds."""

    url: str | None = None
    url_file: Path | None = None
    schema: str | None = None
    state_dir: Path | None = None
    json: bool = False
    quiet: bool = False
    no_color: bool = False
    local: bool = False


def options() -> list[click.Parameter]:
    """The flags as parameters of a command. They store into the ``flags`` of its context's object."""
    path = click.Path(path_type=Path)
    return [
        _option("--url", metavar="URL", help="The database: a path, sqlite:///… or postgresql://…."),
        _option("--url-file", metavar="FILE", type=path, help="A file that holds the URL, password included."),
        _option("--schema", metavar="NAME", help="The schema, on Postgres."),
        _option("--state-dir", metavar="DIR", type=path, help="Where lastlight.db and agent-sessions/ are by default."),
        _option("--json", is_flag=True, help="Answer with one JSON object on stdout."),
        _option("--quiet", is_flag=True, help="No progress and no notes on stderr."),
        _option("--no-color", is_flag=True, help="No colour on a terminal."),
        _option("--local", is_flag=True, help="Show local times instead of UTC."),
    ]


def _option(flag: str, **said: Any) -> click.Option:
    return click.Option([flag], expose_value=False, callback=_store, **said)


def _store(context: click.Context, option: click.Parameter, value: Any) -> Any:
    if value is not None and value is not False:
        setattr(context.obj.flags, str(option.name), value)
    return value
