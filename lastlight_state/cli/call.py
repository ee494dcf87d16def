"""One call of the program, as a command sees it."""

from __future__ import annotations

from lastlight_state.cli.flags import Flags
from lastlight_state.cli.output import Output
from lastlight_state.cli.redaction import Secrets


class Call:
    """The common flags, the output and the passwords met. Commands find it as the ``obj`` of their context.

    ``command`` and ``location`` are what is known so far of what was asked, and of which database.
    """

    def __init__(self, flags: Flags, secrets: Secrets, output: Output) -> None:
        self.flags = flags
        self.secrets = secrets
        self.output = output
        self.command: str | None = None
        self.location: str | None = None
