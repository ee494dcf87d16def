"""Group commit: the writer whose turn it is also runs the units of others who wait, before its COMMIT.

A commit of a SQLite file costs as much as the statements of many small units, and with ``durability="full"`` as much as
those of dozens. Each unit that is taken over has a savepoint, and its thread goes on after the commit that holds it.
One that fails is undone, and made again in its own turn: so each outcome is what it would have been alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import Context

from lastlight_state.backends.base import Checkout
from lastlight_state.backends.fair_lock import FairLock, Group, GroupFailed, Turn
from lastlight_state.backends.sqlite.dbapi import sqlite3
from lastlight_state.errors import BackendUnavailable, StateError

#: A group ends when nobody waits any more, with so many units, or so many seconds after it began.
MOST_UNITS = 64
MOST_SECONDS = 0.005

_SAVEPOINT = "lastlight_unit"


def leads(checkout: Checkout) -> bool:
    """Return whether this unit may take others along.

    Not in the main thread: what a signal's handler raises there would come in the middle of somebody else's unit.
    """
    return checkout.thread != threading.main_thread().ident


def commit(line: FairLock, leader: Checkout, commit_alone: Callable[[], object]) -> None:
    """Commit a unit, with all that could be taken along. Raises `GroupFailed` where only the group failed."""
    shared = _Shared(line, leader)
    try:
        if leader.driver.in_transaction:  # else a savepoint would be a transaction, and its RELEASE a commit
            shared.gather()
        if shared.members:
            shared.group.state = "committing"
        commit_alone()
    except StateError as error:
        shared.part()
        if shared.members:
            raise GroupFailed("what was committed together was undone") from error
        raise
    except BaseException:
        if shared.group.state == "open":
            shared.part()
        raise
    shared.group.state = "committed"
    line.dismiss(shared.members)


def refuse_unknown(checkout: Checkout) -> None:
    """Raise for a unit whose group was cut off in its commit. One whose group was cut off before is alone again."""
    group = checkout.group
    if group is None or group.state == "committed":
        return
    if group.state == "committing":
        raise BackendUnavailable("a commit together with others was cut off", outcome="unknown", repeats=1)
    checkout.group = None


class _Shared:
    """The units that one unit takes along."""

    def __init__(self, line: FairLock, leader: Checkout) -> None:
        self.group = Group()
        self.members: list[Turn] = []
        self._line = line
        self._leader = leader

    def gather(self) -> None:
        """Make the units of those who wait, up to the first that has to be alone."""
        tried: set[Turn] = set()
        end = time.monotonic() + MOST_SECONDS
        while news := [turn for turn in self._line.waiting() if turn not in tried]:
            for turn in news:
                if len(self.members) + 1 >= MOST_UNITS or time.monotonic() >= end or not self._takes(turn):
                    return
                tried.add(turn)

    def part(self) -> None:
        """Leave each unit to its own turn."""
        for turn in self.members:
            turn.group = None

    def _takes(self, turn: Turn) -> bool:
        """Make a unit, or undo what it did. Return whether it was there to be made."""
        offered = turn.offered
        if not offered or turn.gone or not isinstance(turn, Checkout):
            return False
        turn.group = self.group
        try:
            context = offered.pop()
        except IndexError:  # it has gone, or will not wait any more
            turn.group = None
            return False
        try:
            self._make(turn, context)
        except BaseException:
            turn.group = None
            raise
        return True

    def _make(self, turn: Checkout, context: Context) -> None:
        """Make a unit in a savepoint. One that fails is undone and left to its own turn, which shows what is wrong."""
        self._execute("SAVEPOINT")
        try:
            turn.lend(self._leader.driver)
            context.run(turn.make)
        except Exception:  # noqa: BLE001 - its own turn will show whose it is
            turn.group = None
            self._leader.broken |= turn.broken
            self._execute("ROLLBACK TO")
        else:
            self.members.append(turn)
        finally:
            turn.driver = turn.execute = None
        self._execute("RELEASE")

    def _execute(self, verb: str) -> None:
        """Execute a statement on the savepoint. Raises `GroupFailed` if a full disk ended the transaction."""
        try:
            self._leader.driver.execute(f"{verb} {_SAVEPOINT}")
        except sqlite3.Error as error:
            raise GroupFailed("a unit that was to be committed together ended the transaction") from error
