"""One call of the program, and how a function becomes a command that is given it."""

from __future__ import annotations

from collections.abc import Callable

import click

from lastlight_state.cli import flags
from lastlight_state.cli.answers import Answer
from lastlight_state.cli.flags import Flags
from lastlight_state.cli.output import Output
from lastlight_state.redaction import Secrets


class Call:
    """The common flags, the output and the passwords met. A command's function gets it as its first argument.

    ``command`` and ``location`` are what is known so far of what was asked, and of which database.
    """

    def __init__(self, flags: Flags, secrets: Secrets, output: Output) -> None:
        self.flags = flags
        self.secrets = secrets
        self.output = output
        self.command: str | None = None
        self.location: str | None = None


def command(name: str) -> Callable[[Callable[..., Answer]], click.Command]:
    """Make a function a command of the program. The common flags come after its own; its docstring is its help."""

    def made(run: Callable[..., Answer]) -> click.Command:
        found = click.command(name)(click.pass_obj(run))
        found.params += flags.options()
        return found

    return made
