"""Sweeps: work on many runs, one transaction for each.

A run whose row cannot be read does not stop a sweep: it is logged and skipped, and stays as it is. Until somebody
repairs its row, every call that returns the whole run raises `CorruptData`, those that would end it included.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from lastlight_state.errors import CorruptData

T = TypeVar("T")

_log = logging.getLogger("lastlight_state.workflows")


def over(run_ids: Iterable[str], work: Callable[[str], T]) -> Iterator[tuple[str, T]]:
    """Yield each run id with what ``work`` returned for it."""
    for run_id in run_ids:
        try:
            done = work(run_id)
        except CorruptData as error:
            _log.error("a sweep skipped run %s: %s", run_id, error)
        else:
            yield run_id, done
