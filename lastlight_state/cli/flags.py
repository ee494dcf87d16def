"""The flags that every command has, before it or behind it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer


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


def _declared(
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="The database: a path, sqlite:///… or postgresql://….")
    ] = None,
    url_file: Annotated[
        Path | None, typer.Option("--url-file", metavar="FILE", help="A file that holds the URL, password included.")
    ] = None,
    schema: Annotated[str | None, typer.Option("--schema", metavar="NAME", help="The schema, on Postgres.")] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", metavar="DIR", help="Where lastlight.db and agent-sessions/ are by default."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Answer with one JSON object on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no notes on stderr.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colour on a terminal.")] = False,
    local: Annotated[bool, typer.Option("--local", help="Show local times instead of UTC.")] = False,
) -> None:
    """The parser reads the flags off this function."""


def options() -> list[Any]:
    """The flags as parameters for a command of the parser. They store into the ``flags`` of its context's object."""
    app = typer.Typer(add_completion=False)
    app.command()(_declared)
    found = typer.main.get_command(app).params
    for option in found:
        option.expose_value = False
        option.callback = _store
    return list(found)


def _store(context: Any, option: Any, value: Any) -> Any:
    if value is not None and value is not False:
        setattr(context.obj.flags, option.name, value)
    return value
