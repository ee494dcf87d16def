"""The two files of a mailbox, as one side opens them: its own to write, the other's to read.

Each call opens a file, runs one unit and closes it: a connection that is kept freezes what a reader sees across a
mount.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Checkout, Mode, Options
from lastlight_state.backends.facts import FORBIDDEN
from lastlight_state.backends.patience import Deadline
from lastlight_state.backends.retry import Retry
from lastlight_state.db.calls import Work
from lastlight_state.db.scope import StoreScope
from lastlight_state.db.unit import Unit
from lastlight_state.errors import BackendUnavailable, CorruptData, NotFound
from lastlight_state.mailbox.folder import Place, is_regular
from lastlight_state.mailbox.kernel import shape
from lastlight_state.mailbox.kernel.readings import Look
from lastlight_state.mailbox.words import MAILBOX
from lastlight_state.metrics import Metrics
from lastlight_state.settings import Settings

T = TypeVar("T")

#: How long one look at the other side's file may take, where `busy_timeout` is less.
LEAST_SECONDS = 1.0

_log = logging.getLogger("lastlight_state.mailbox")


class OwnFile(StoreScope):
    """The file that this side writes. Before its first use what it lacks is added.

    ``admit`` runs at the beginning of each unit that writes, and may refuse it.
    """

    def __init__(self, place: Place, path: Path, settings: Settings, declared: sa.MetaData, metrics: Metrics) -> None:
        backend = open_backend(path, _options(settings, read_only=settings.read_only))
        backend.metrics = metrics
        super().__init__(backend, Retry(metrics, settings.retry_seconds, backend.lock_seconds))
        self.admit: Callable[[Unit], object] = _nothing
        self._place = place
        self._path = path
        self._declared = declared
        self._settings = settings
        self._is_ready = settings.read_only

    def once(self, work: Work[T], *, repeatable: bool = False) -> T:
        return self.writing(work, repeatable=repeatable)

    def writing(self, work: Work[T], *, repeatable: bool = False) -> T:
        return super().writing(lambda unit: self._admitted(unit, work), repeatable=repeatable)

    def beginning(self, mode: Mode, label: str | None = None) -> Checkout:
        self.make_ready()
        return super().beginning(mode, label)

    def make_ready(self) -> None:
        """Add what the file lacks. Raises `NotFound`, and `CorruptData` for a file that is no database."""
        if self._is_ready:
            return
        if not is_regular(self._path):
            raise NotFound(MAILBOX, self._place.key)
        try:
            with deadline(self._settings):
                if not super()._run(
                    Mode.SNAPSHOT, lambda unit: shape.is_complete(unit, self._declared), repeatable=True
                ):
                    super()._run(Mode.WRITE, lambda unit: shape.complete(unit, self._declared), repeatable=False)
        except BackendUnavailable as error:
            raise unsound(error, self._place, self._path) from error
        self._is_ready = True

    def _run(self, mode: Mode, work: Work[T], *, repeatable: bool, shares: bool = True) -> T:
        with deadline(self._settings):
            self.make_ready()
            return super()._run(mode, work, repeatable=repeatable, shares=shares)

    def _admitted(self, unit: Unit, work: Work[T]) -> T:
        self.admit(unit)
        return work(unit)


class OtherFile:
    """The file that the other side writes."""

    def __init__(self, place: Place, path: Path, settings: Settings, metrics: Metrics) -> None:
        options = replace(_options(settings, read_only=True), read_seconds=max(settings.busy_timeout, LEAST_SECONDS))
        backend = open_backend(path, options)
        backend.metrics = metrics
        self.scope = StoreScope(backend, Retry(metrics, settings.retry_seconds, backend.lock_seconds))
        self._place = place
        self._path = path

    def look(self, work: Callable[[Look], T]) -> T:
        """Run ``work`` on one moment of the file.

        Raises `NotFound` where it is missing, `CorruptData` where it is no database, and `BackendUnavailable`.
        """
        if not is_regular(self._path):
            raise NotFound(MAILBOX, self._place.key, reason=f"it has no {self._path.name}")
        try:
            return self.scope.viewing(lambda unit: work(Look(unit)))
        except BackendUnavailable as error:
            raise unsound(error, self._place, self._path) from error

    def look_if_sound(self, work: Callable[[Look], T], otherwise: T) -> T:
        """As `look`, or ``otherwise`` where the file is missing or damaged, which is logged."""
        try:
            return self.look(work)
        except (NotFound, CorruptData) as error:
            _log.warning("going on without the other side's file: %s", error)
            self.scope.metrics.count("mailbox_lone_numbers")
            return otherwise


def deadline(settings: Settings) -> Deadline:
    """Return the end of all waits of one call on both files, whatever they take of units and repetitions."""
    return Deadline(Retry(Metrics(), settings.retry_seconds, settings.busy_timeout).most_seconds)


def unsound(error: BackendUnavailable, place: Place, path: Path) -> BackendUnavailable | CorruptData:
    """Return the error to raise for a file that cannot be read: `CorruptData` if it is not a sound database."""
    reason = error.details.get("reason")
    if reason == FORBIDDEN:
        return CorruptData(MAILBOX, place.key, path.name, problem=str(error))
    if reason != "not_a_database":
        return error
    return CorruptData(MAILBOX, place.key, path.name, problem="is not a sound SQLite database")


def _options(settings: Settings, *, read_only: bool) -> Options:
    return Options(
        read_only=read_only,
        across_mounts=True,
        busy_timeout=settings.busy_timeout,
        queue_timeout=settings.queue_timeout,
    )


def _nothing(unit: Unit) -> None:
    """Admit every unit."""
