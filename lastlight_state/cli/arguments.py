"""Flags and values that several commands use: ages such as ``90s`` and ``2w``, the acting person, confirmations."""

from __future__ import annotations

import getpass
import re
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from lastlight_state.clock import SYSTEM_CLOCK, aware_utc, iso_time
from lastlight_state.errors import Conflict, InvalidValue

# The flags that every command has. They may stand before or after its name.


@dataclass
class Flags:
    """The values of the common flags. If a flag is given twice, the later value counts."""

    url: str | None = None
    url_file: Path | None = None
    schema: str | None = None
    state_dir: Path | None = None
    json: bool = False
    quiet: bool = False
    no_color: bool = False
    local: bool = False


def options() -> list[click.Parameter]:
    """Return the common flags as parameters of a command. Their values go into the ``flags`` of its context."""
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


# The acting person, if none is named.

#: The flag of every command that acts in a person's name.
BY = click.option("--by", metavar="NAME", help="Who does it; by default the user of this process.")


def acting_person(by: str | None) -> str:
    """Return the name of the acting person: the given name, or else the user name of this process."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # the user is unknown, as in some containers
        return "operator"


# Confirmation of irreversible actions: on a terminal, or by a flag.

REFUSED = "not_confirmed"

#: The flag of every command that may ask for confirmation.
YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def ask(question: str, *, yes: bool) -> None:
    """Ask the person at the terminal to confirm, unless ``-y`` is given. Returns if confirmed.

    Else raise `Conflict` ``not_confirmed``.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise Conflict(f"{question} Nothing was done: there is no terminal to ask at, so -y is required", code=REFUSED)
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Conflict("Nothing was done", code=REFUSED)


def at_terminal(question: str, *, yes: bool) -> None:
    """Ask for confirmation like `ask`, but only on a terminal. In a script, continue without confirmation."""
    if sys.stdin.isatty():
        ask(question, yes=yes)


_AGO = re.compile(r"([1-9][0-9]{0,5})([smhdw])")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def age(text: str) -> timedelta | None:
    """Parse an age such as ``90s`` or ``2w``. Returns None for any other text."""
    found = _AGO.fullmatch(text)
    return None if found is None else timedelta(**{_UNITS[found[2]]: int(found[1])})


def moment(text: str | None, flag: str) -> datetime | None:
    """Parse the value of a time flag: a time, a day in UTC, or an age such as ``2w``. Returns None for None.

    Raises `InvalidValue` for any other text.
    """
    if text is None:
        return None
    ago = age(text)
    try:
        if ago is not None:
            return SYSTEM_CLOCK.now() - ago
        return aware_utc(flag, iso_time(f"{text}T00:00Z" if _DAY.fullmatch(text) else text))
    except (ValueError, OverflowError):
        raise InvalidValue(
            flag, f"expected a time, got {text!r:.80}", permitted=("2026-02-03T12:00Z", "2026-02-03", "24h", "7d")
        ) from None


def since(moment: datetime, now: datetime) -> str:
    """Return how far a time is from ``now``, such as ``5m ago`` or ``in 2h``. Beyond 60 days, return the date."""
    seconds = (now - moment).total_seconds()
    for unit, length, most in (("s", 1, 100), ("m", 60, 100), ("h", 3_600, 48), ("d", 86_400, 60)):
        count = int(abs(seconds) / length)
        if count < most:
            return f"{count}{unit} ago" if seconds >= 0 else f"in {count}{unit}"
    return f"{moment:%Y-%m-%d}"
