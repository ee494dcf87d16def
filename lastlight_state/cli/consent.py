"""Asks before something irreversible is done: on a terminal, or by a flag."""

from __future__ import annotations

import sys

import click

from lastlight_state.errors import Conflict

REFUSED = "not_confirmed"

#: The flag of every command that may ask.
YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def ask(question: str, *, yes: bool) -> None:
    """Return with ``-y`` or when the person at the terminal agrees. Raises `Conflict` ``not_confirmed`` otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Conflict(f"{question} Nothing was done: there is no terminal to ask at, so -y is required", code=REFUSED)
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Conflict("Nothing was done", code=REFUSED)


def at_terminal(question: str, *, yes: bool) -> None:
    """Ask as `ask` does, on a terminal alone. A script that acts is not asked, and goes on."""
    if sys.stdin.isatty():
        ask(question, yes=yes)
