"""Runs in lists of the command line. A separate module, so that other lists need not import workflows."""

from __future__ import annotations

from lastlight_state.workflows import RunSummary


class ListedRun(RunSummary):
    """A run in a list. If no worker has taken it for more than a minute, ``waits_because`` gives the reason.

    ``error`` is the first line of the error with which the run failed or was cancelled. ``told`` is a sentence on what
    the run waits for, or why it failed.
    """

    waits_because: str | None
    error: str | None
    told: str | None
