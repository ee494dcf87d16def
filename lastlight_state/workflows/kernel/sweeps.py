"""Sweeps: work on many runs, one transaction for each.

A run whose row cannot be read does not stop a sweep: it is logged and skipped, and stays as it is. Until somebody
repairs its row, every call that returns the whole run raises `CorruptData`, those that would end it included.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from lastlight_state.errors import CorruptData

T = TypeVar("T")

_log = logging.getLogger("lastlight_state.workflows")


class Found(NamedTuple):
    """The runs that a sweep is to work on, and how many rows were read for them: not all may be readable."""

    run_ids: Sequence[str]
    rows: int


def over(read: Callable[[int], Found], limit: int, work: Callable[[str], T]) -> Iterator[tuple[str, T]]:
    """Yield each run id with what ``work`` returned for it, in ascending order of ids.

    ``read`` finds the first rows, as many as it is asked for. Where none of the runs of ``limit`` rows could be worked
    on, those behind them are: rows that cannot be read never stop a sweep for good.
    """
    tried: set[str] = set()
    size, done = limit, False
    while True:
        found = read(size)
        fresh = [run_id for run_id in found.run_ids if run_id not in tried][:limit]
        for run_id in sorted(fresh):
            try:
                worked = work(run_id)
            except CorruptData as error:
                _log.error("a sweep skipped run %s: %s", run_id, error)
            else:
                done = True
                yield run_id, worked
        if done or found.rows < size:
            return
        tried.update(fresh)
        size *= 2
