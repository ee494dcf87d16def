"""Runs in lists of the command line. A module of its own, so that other lists need not import workflows."""

from __future__ import annotations

from lastlight_state.workflows import RunSummary


class ListedRun(RunSummary):
    """A run in a list. ``waits_because`` says why no worker has taken it for more than a minute.

    ``error`` is the first line of the error it failed or was cancelled with. ``told`` says what it waits for, or why it
    failed.
    """

    waits_because: str | None
    error: str | None
    told: str | None
