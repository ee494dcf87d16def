"""Sweeps: what is to be done to many runs, in one transaction for each.

A run whose row cannot be read holds up none of the others: it is logged and passed over, and stays as it was until
somebody repairs it. Until then `CorruptData` meets every call that would return all of it, to end it included.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from lastlight_state.errors import CorruptData

T = TypeVar("T")

_log = logging.getLogger("lastlight_state.workflows")


def over(run_ids: Iterable[str], work: Callable[[str], T]) -> Iterator[tuple[str, T]]:
    """Each run with what ``work`` made of it."""
    for run_id in run_ids:
        try:
            done = work(run_id)
        except CorruptData as error:
            _log.error("a sweep passed over run %s: %s", run_id, error)
        else:
            yield run_id, done
