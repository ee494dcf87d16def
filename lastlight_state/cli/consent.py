"""Asking before something is done that a person may regret: on a terminal, or by a flag."""

from __future__ import annotations

import sys

from lastlight_state.errors import Conflict

REFUSED = "not_confirmed"


def ask(question: str, *, yes: bool) -> None:
    """Go on with ``-y``, or when somebody at a terminal says so. Raises `Conflict` ``not_confirmed`` otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Conflict(f"{question} Nothing was done: without a terminal to ask at, -y is needed", code=REFUSED)
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Conflict("Nothing was done", code=REFUSED)
