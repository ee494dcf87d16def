"""Progress of a command, on stderr: a progress bar on a terminal, and elsewhere a line from time to time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.cells import set_cell_size

from lastlight_state import progress
from lastlight_state.clock import seconds_text
from lastlight_state.plain import printable
from lastlight_state.progress import Progress

#: Seconds between two updates of the bar, and between two lines.
BAR_EVERY, LINE_EVERY = 0.2, 10.0
#: Width of the bar in cells.
CELLS = 24
#: Columns of the bar's line. No terminal is assumed to be narrower.
WIDTH = 79
#: Escape sequence: go to the beginning of the line and clear it.
CLEAR = "\r\x1b[K"


class ProgressDisplay:
    """Shows progress reports: the latest of each piece of work, and no more often than a person can read.

    After a total was reported, it stays in use while the same work goes on.
    """

    def __init__(
        self, stream: TextIO, note: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._note, self._clock = stream, note, clock
        self._is_terminal = stream.isatty()
        self._what: str | None = None
        self._total: int | None = None
        self._began = clock()
        self._shown = self._began - BAR_EVERY if self._is_terminal else self._began
        self._is_drawn = False

    def __call__(self, told: Progress) -> None:
        now = self._clock()
        if told.what != self._what:
            self._what, self._began, self._total = told.what, now, None
        self._total = told.total or self._total
        told = told._replace(total=self._total)
        if now - self._shown < (BAR_EVERY if self._is_terminal else LINE_EVERY):
            return
        self._shown = now
        if not self._is_terminal:
            self._note(self._text(told, now))
            return
        self._stream.write(CLEAR + set_cell_size(f"{_bar(told)}{self._text(told, now)}", WIDTH).rstrip())
        self._stream.flush()
        self._is_drawn = True

    def clear(self) -> None:
        """Remove the progress bar, so that a line can be written."""
        if self._is_drawn:
            self._stream.write(CLEAR)
            self._stream.flush()
            self._is_drawn = False

    def _text(self, told: Progress, now: float) -> str:
        if not told.done and not told.total:
            return f"{printable(told.what)}…"
        passed = now - self._began
        of = "" if told.total is None else f" of {told.total:,}"
        left = ""
        if told.total and 0 < told.done < told.total and passed >= 1:
            left = f", {seconds_text(passed * (told.total - told.done) / told.done)} left"
        return f"{printable(told.what)}: {told.done:,}{of} {told.unit}{left}"


def _bar(told: Progress) -> str:
    if not told.total:
        return ""
    full = min(CELLS, CELLS * told.done // told.total)
    return f"[{'#' * full}{'.' * (CELLS - full)}] "


@contextmanager
def show_progress(
    stream: TextIO, note: Callable[[str], None], is_quiet: Callable[[], bool]
) -> Iterator[ProgressDisplay]:
    """Show the progress of the work in the block. A report is skipped if ``is_quiet()`` returns True."""
    display = ProgressDisplay(stream, note)
    with progress.report_to(lambda told: None if is_quiet() else display(told)):
        try:
            yield display
        finally:
            display.clear()
