"""Runs as lists of the command line show them. Apart, because other lists load nothing of workflows."""

from __future__ import annotations

from lastlight_state.workflows import RunSummary


class ListedRun(RunSummary):
    """A run of a list. ``waits_because`` says why no worker has taken it for more than a minute.

    ``error`` is the first line of why it failed or was cancelled, ``told`` what it waits for or why it failed.
    """

    waits_because: str | None
    error: str | None
    told: str | None
