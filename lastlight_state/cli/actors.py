"""Who acts from the command line, where nobody is named."""

from __future__ import annotations

import getpass

import click

#: The flag of every command that acts in somebody's name.
BY = click.option("--by", metavar="NAME", help="Who does it; by default the user of this process.")


def acting(by: str | None) -> str:
    """The name that is stored."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without this user in its list
        return "operator"
