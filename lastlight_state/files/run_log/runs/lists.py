"""Lists of runs, the newest first, from the directories of days and the first lines of the logs in them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import NamedTuple

from lastlight_state.clock import iso_text
from lastlight_state.db.lists import pages
from lastlight_state.errors import NotFound, StateError
from lastlight_state.files.run_log.paths import RunState
from lastlight_state.files.run_log.runs.heads import Head, Heads, RunEntry, RunPage
from lastlight_state.files.run_log.tree import RunFile, RunTree


class RunFilter(NamedTuple):
    """The filters of a list. A filter of None matches all runs."""

    session_id: str | None = None
    state: RunState | None = None
    since: datetime | None = None
    until: datetime | None = None

    def token_filters(self) -> list[str | None]:
        """Return the filters in the form in which a page token stores them."""
        times = [None if moment is None else iso_text(moment) for moment in (self.since, self.until)]
        return ["runs", self.session_id, self.state, *times]

    def has_day(self, day: date) -> bool:
        """True if runs of this day can match."""
        return (self.since is None or day >= self.since.date()) and (self.until is None or day <= self.until.date())

    def has(self, head: Head) -> bool:
        """True if a run whose log has this head matches."""
        return (
            (self.session_id is None or head.session_id == self.session_id)
            and (self.since is None or head.started_at >= self.since)
            and (self.until is None or head.started_at < self.until)
        )


class _Key(NamedTuple):
    """The key by which runs are sorted in a list."""

    day: str
    started_at: str
    run_id: str


def has_ended(entry: RunEntry, before: datetime) -> bool:
    """True if the log has the run's end, and its last record is older than the given time."""
    return entry.state == "ended" and entry.last_ts is not None and entry.last_ts < before


class RunLists:
    """Lists of runs, read from the directories of days."""

    def __init__(self, tree: RunTree, heads: Heads) -> None:
        self._tree = tree
        self._heads = heads

    def page(self, given: RunFilter, limit: int, page_token: str | None) -> RunPage:
        """Return a page of runs that match the filters."""
        asked = given.token_filters()
        found = pages.key(asked, page_token, (str, str, str))
        walk = _Walk(self._tree, self._heads, given)
        items: list[RunEntry] = []
        last: _Key | None = None
        token = None
        for key, file in walk.files(None if found is None else _Key(*found)):
            if len(items) == limit:
                token = None if last is None else pages.encode_token(asked, last)
                break
            entry = walk.entry(file)
            if entry is not None and given.state in (None, entry.state):
                items.append(entry)
                last = key
        return RunPage(items=tuple(items), next_page_token=token, skipped=walk.skipped)

    def ended_runs(self, given: RunFilter, before: datetime) -> tuple[list[RunFile], int]:
        """Return the logs of ended runs whose last record is before this time, and the number of unreadable logs."""
        entries, skipped = self.entries(given)
        return [file for file, entry in entries if has_ended(entry, before)], skipped

    def entries(self, given: RunFilter) -> tuple[list[tuple[RunFile, RunEntry]], int]:
        """Return all matching logs, the newest first, and the number of unreadable logs."""
        walk = _Walk(self._tree, self._heads, given)
        entries = [(file, walk.entry(file)) for _, file in walk.files(None)]
        return [(file, entry) for file, entry in entries if entry is not None], walk.skipped

    def newest(self, session_id: str, limit: int) -> list[RunFile]:
        """Return the newest logs of a session, at most ``limit``."""
        found: list[RunFile] = []
        if limit:
            for _, file in _Walk(self._tree, self._heads, RunFilter(session_id)).files(None):
                found.append(file)
                if len(found) == limit:
                    break
        return found


class _Walk:
    """One pass over the directories of days. ``skipped`` counts unreadable logs."""

    def __init__(self, tree: RunTree, heads: Heads, given: RunFilter) -> None:
        self.skipped = 0
        self._tree = tree
        self._heads = heads
        self._given = given

    def files(self, after: _Key | None) -> Iterator[tuple[_Key, RunFile]]:
        """Yield the matching logs after a key, the newest first."""
        for day, directory in self._tree.days():
            text = day.isoformat()
            if not self._given.has_day(day) or (after is not None and text > after.day):
                continue
            found = [(key, file) for key, file in self._of_day(day, directory) if after is None or key < after]
            yield from sorted(found, reverse=True)

    def entry(self, file: RunFile) -> RunEntry | None:
        """Return the run's entry, or None if its log cannot be read."""
        try:
            return self._heads.entry(file)
        except NotFound:
            return None
        except StateError:
            self.skipped += 1
            return None

    def _of_day(self, day: date, directory: Path) -> Iterator[tuple[_Key, RunFile]]:
        for file in self._tree.runs_of(day, directory):
            try:
                head = self._heads.of(file)
            except NotFound:  # deleted meanwhile
                continue
            except StateError:
                self.skipped += 1
                continue
            if self._given.has(head):
                yield _Key(day.isoformat(), iso_text(head.started_at), file.run_id), file
