"""`Mailboxes`: the object ``store.mailbox``."""

from __future__ import annotations

import stat
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sa

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Options
from lastlight_state.backends.waiting import Retry
from lastlight_state.clock import SYSTEM_CLOCK, Clock, aware_utc, checked_clock
from lastlight_state.db import valid
from lastlight_state.db.lists import pages
from lastlight_state.db.rows.records import Page
from lastlight_state.db.units.scope import StoreScope
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, InvalidValue, StateError
from lastlight_state.files.jsonl import files
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.agent import AgentMailbox, state
from lastlight_state.files.mailbox.arguments import DEFAULT_POLICY, StalePolicy
from lastlight_state.files.mailbox.folder import INBOUND_DB, OUTBOUND_DB, Place, creation, is_name, is_regular
from lastlight_state.files.mailbox.host import HostMailbox, standing
from lastlight_state.files.mailbox.records import MailboxInfo
from lastlight_state.files.mailbox.reports import PruneReport, SweepReport
from lastlight_state.files.mailbox.shared import files as shared_files, queries
from lastlight_state.files.mailbox.shared.files import deadline
from lastlight_state.files.mailbox.shared.idle import Idle
from lastlight_state.files.mailbox.shared.pair import Pair
from lastlight_state.metrics import Metrics
from lastlight_state.settings import Settings

#: The start time of a session's agent; None if it is not running.
Running: TypeAlias = Callable[[str, str], datetime | None]

#: The most mailboxes whose sweep results are cached, some two thousand bytes each.
_MOST_IDLE = 50_000

#: The modes of directories and of files, by the setting `mailbox_mode`.
MODES = {"private": (0o700, 0o600), "group": (0o770, 0o660)}


class Mailboxes:
    """The mailboxes: ``store.mailbox``. Each session has two files, one written by its host and one by its agent.

    They are files below ``root``, not part of the database or of its transactions.
    """

    def __init__(
        self,
        root: Path,
        *,
        settings: Settings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        metrics: Metrics | None = None,
    ) -> None:
        self.root = files.real(root)
        self._settings = settings or Settings()
        self._clock = checked_clock(clock)
        self._metrics = metrics or Metrics()
        #: The cached results of the host's calls on the mailboxes used most recently.
        self._idle: OrderedDict[tuple[str, str], Idle] = OrderedDict()

    def create(self, group: str, session: str) -> HostMailbox:
        """Create the mailbox of a new session, all or nothing. Returns the host's side. Raises `AlreadyExists`."""
        place = Place.below(self.root, group, session)
        creation.remove_leftovers(place.path.parent, self._clock.now())
        directory_mode, file_mode = MODES[self._settings.mailbox_mode]
        creation.create(place, fill, directory_mode=directory_mode, file_mode=file_mode)
        return self.host(group, session)

    def ensure(self, group: str, session: str) -> HostMailbox:
        """Return the host's side of a mailbox. A missing mailbox is created; one of another program is adopted."""
        place = Place.below(self.root, group, session)
        directory_mode, file_mode = MODES[self._settings.mailbox_mode]
        try:
            creation.create(place, fill, directory_mode=directory_mode, file_mode=file_mode)
        except StateError:
            with files.translate_errors(place.path):
                is_there = files.is_directory(place.path)
            if not is_there:
                raise
            creation.complete(place, fill, directory_mode=directory_mode, file_mode=file_mode)
        return self.host(group, session)

    def host(self, group: str, session: str) -> HostMailbox:
        """Return the host's side.

        Raises `NotFound`, `UnsafePath`, and `CorruptData` for a file that is not a database.

        Creates nothing. The agent's file reads as empty while it is empty or lacks a table. Calls refuse a file
        that is a link, or has a view.
        """
        place = Place.below(self.root, group, session)
        idle = self._idle.get((group, session)) or Idle(place)
        pair = Pair.open_side("host", place, self._settings, self._clock, self._metrics, idle)
        self._note(group, session, idle)
        return HostMailbox(pair)

    def agent(self, group: str, session: str, *, instance: str | None = None) -> AgentMailbox:
        """Return the agent's side, like `AgentMailbox.open`. Raises as `host`."""
        place = Place.below(self.root, group, session)
        return AgentMailbox(
            state.bind_instance(Pair.open_side("agent", place, self._settings, self._clock, self._metrics), instance)
        )

    def list(self, *, group: str | None = None, limit: int = 50, page_token: str | None = None) -> Page[MailboxInfo]:
        """Return a page of the sessions that have a mailbox, by group and session."""
        valid.page_limit(limit)
        asked = ["mailboxes", group]
        after = pages.key(asked, page_token, (str, str))
        found = [name for name in self._sessions(group) if after is None or [*name] > after]
        shown, more = found[:limit], len(found) > limit
        return Page(
            items=tuple(_info(self.root, *name) for name in shown),
            next_page_token=pages.encode_token(asked, shown[-1]) if more else None,
        )

    def sweep(
        self,
        sessions: Iterable[tuple[str, str]],
        running: Running,
        *,
        policy: StalePolicy = DEFAULT_POLICY,
    ) -> _Reports:
        """Run `HostSweep.run` for each of these groups and sessions.

        If a sweep fails, the session's report has the error.
        """
        asked = _pairs(sessions)
        valid.callback("running", running)
        rule = queries.policy(policy)
        return [self._swept(group, session, running, rule) for group, session in asked]

    def prune(
        self, group: str, session: str, *, dry_run: bool = True, policy: StalePolicy = DEFAULT_POLICY
    ) -> PruneReport:
        """Delete the whole mailbox of a session, unsettled and undelivered messages included.

        By default nothing is deleted, only reported.

        The report counts the mailbox's messages and receipts, and the bytes of its folder. Raises `Conflict` while the
        agent seems to run, because it has a heartbeat younger than ``policy.silent_after`` or a live claim. Raises
        `NotFound`, and `CorruptData` if a file cannot be read. Make sure that nobody starts the agent meanwhile.
        """
        is_dry = valid.flag("dry_run", dry_run)
        rule = queries.policy(policy)
        host = self.host(group, session)
        place = Place.below(self.root, group, session)
        beaten = creation.last_beat(place.path)
        if host.sweep.claims() or (beaten is not None and self._clock.now() - beaten < rule.silent_after):
            raise Conflict(f"the agent of {place.key} seems to run: its heartbeat is recent, or it holds a message")
        messages, receipts = host._stored_counts()
        report = PruneReport(messages=messages, receipts=receipts, size_bytes=creation.size(place), dry_run=is_dry)
        if not is_dry:
            creation.remove(place)
        return report

    def _swept(self, group: str, session: str, running: Running, policy: StalePolicy) -> SweepReport:
        try:
            with deadline(self._settings):
                started = running(group, session)
                return self._unchanged_report(group, session, started, policy) or self.host(group, session).sweep.run(
                    agent_started_at=started, policy=policy
                )
        except StateError as error:
            return SweepReport(group=group, session=session, errors=(str(error),))

    def _unchanged_report(
        self, group: str, session: str, started: datetime | None, policy: StalePolicy
    ) -> SweepReport | None:
        """Return the report for a mailbox that is unchanged since the last sweep. None if its files must be opened."""
        idle = self._idle.get((group, session))
        if idle is None:
            return None
        since = None if started is None else aware_utc("agent_started_at", started)
        return standing.unchanged_report(idle, since, policy, self._clock.now())

    def _note(self, group: str, session: str, idle: Idle) -> None:
        """Cache the results of a mailbox. Drops the oldest results if there are too many."""
        known = self._idle
        known[group, session] = idle
        while len(known) > _MOST_IDLE:
            with suppress(KeyError):  # another thread does the same
                known.popitem(last=False)

    def _sessions(self, group: str | None) -> _Names:
        if group is not None:
            return [(group, name) for name in _folders(Place.below(self.root, group, "any").path.parent)]
        return [(name, session) for name in _groups(self.root) for session in _folders(self.root / name)]


_Reports: TypeAlias = list[SweepReport]
_Names: TypeAlias = list[tuple[str, str]]


def fill(path: Path, name: str, **noted: str) -> None:
    """Create the missing tables of a database file of this name, and store the values ``noted`` in it."""
    declared = models.OUTBOUND if name == OUTBOUND_DB else models.INBOUND
    backend = open_backend(path, Options(across_mounts=True))
    try:
        StoreScope(backend, Retry(Metrics(), lock_seconds=backend.lock_seconds)).write(
            lambda unit: _complete(unit, declared, noted)
        )
    finally:
        backend.close()


def _complete(unit: Unit, declared: sa.MetaData, noted: Mapping[str, str]) -> None:
    shared_files.complete(unit, declared)
    for key, value in noted.items():
        queries.put(unit, declared, key, value)


def _pairs(sessions: Any) -> list[tuple[str, str]]:
    """Check groups and sessions, and return them as pairs of names. Raises `InvalidValue`."""
    if isinstance(sessions, str) or not isinstance(sessions, Iterable):
        raise InvalidValue("sessions", f"expected pairs of a group and a session, got {type(sessions).__name__}")
    given = list(sessions)
    for number, pair in enumerate(given):
        if not isinstance(pair, tuple | list) or [type(part) for part in pair] != [str, str]:
            raise InvalidValue(f"sessions[{number}]", f"expected a group and a session, got {type(pair).__name__}")
    return given


def _groups(root: Path) -> list[str]:
    with files.translate_errors(root), suppress(FileNotFoundError):
        return sorted(path.name for path in root.iterdir() if is_name(path.name) and _is_folder(path))
    return []


def _folders(group: Path) -> list[str]:
    return [name for name in _groups(group) if is_regular(group / name / INBOUND_DB)]


def _is_folder(path: Path) -> bool:
    return files.is_directory(path) and not files.is_link(path)


def _info(root: Path, group: str, session: str) -> MailboxInfo:
    place = Place(root, group, session)
    return MailboxInfo(
        group=group,
        session=session,
        medium="files",
        inbound_bytes=_size(place.inbound),
        outbound_bytes=_size(place.outbound),
        heartbeat_at=creation.last_beat(place.path),
        path=place.path,
    )


def _size(path: Path) -> int | None:
    try:
        found = path.lstat()
    except OSError:  # missing, or deleted meanwhile
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
