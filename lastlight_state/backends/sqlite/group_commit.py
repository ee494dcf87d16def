"""Group commit: the writer that holds the lock also runs the units of waiting writers, and commits all of them at once.

A commit of a SQLite file costs as much as the statements of many small units; with ``durability="full"``, as much as
those of dozens. Each waiting writer's unit runs in a savepoint, and the writer's thread goes on after the group's
commit. If a unit fails, it is rolled back and run again by its own thread. So each outcome is the same as without a
group.
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

#: A group ends when nobody waits, after this many units, or this many seconds after it began.
MOST_UNITS = 64
MOST_SECONDS = 0.005

_SAVEPOINT = "lastlight_unit"


def may_lead_group(checkout: Checkout) -> bool:
    """True if this unit may run other threads' units together with its own.

    A unit in the main thread may not, because the exception of a signal handler would be raised inside another thread's
    unit.
    """
    return checkout.thread != threading.main_thread().ident


def commit(line: FairLock, leader: Checkout, commit_alone: Callable[[], object]) -> None:
    """Commit a unit together with waiting units.

    Raises `GroupFailed` if the group failed but the unit alone may succeed.
    """
    shared = _Shared(line, leader)
    try:
        if leader.driver.in_transaction:  # else a savepoint would begin a transaction, and RELEASE commit
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
    """Raise `BackendUnavailable` if the unit's group was interrupted during its commit, because the outcome is unknown.

    If the group was interrupted before its commit, the unit only leaves the group.
    """
    group = checkout.group
    if group is None or group.state == "committed":
        return
    if group.state == "committing":
        raise BackendUnavailable("a commit together with others was cut off", outcome="unknown", repeats=1)
    checkout.group = None


class _Shared:
    """The other threads' units that one unit runs in its group."""

    def __init__(self, line: FairLock, leader: Checkout) -> None:
        self.group = Group()
        self.members: list[Turn] = []
        self._line = line
        self._leader = leader

    def gather(self) -> None:
        """Run the units of waiting writers in the order of the queue.

        Stop at the first unit that cannot be run in a group.
        """
        tried: set[Turn] = set()
        end = time.monotonic() + MOST_SECONDS
        while news := [turn for turn in self._line.waiting_turns() if turn not in tried]:
            for turn in news:
                if len(self.members) + 1 >= MOST_UNITS or time.monotonic() >= end or not self._takes(turn):
                    return
                tried.add(turn)

    def part(self) -> None:
        """Remove all units from the group, so that their own threads run them again."""
        for turn in self.members:
            turn.group = None

    def _takes(self, turn: Turn) -> bool:
        """Run a waiting writer's unit, or undo it if it fails. Return False if the writer no longer offers the unit."""
        offered = turn.offered
        if not offered or turn.is_gone or not isinstance(turn, Checkout):
            return False
        turn.group = self.group
        try:
            context = offered.pop()
        except IndexError:  # it has left, or no longer waits
            turn.group = None
            return False
        try:
            self._make(turn, context)
        except BaseException:
            turn.group = None
            raise
        return True

    def _make(self, turn: Checkout, context: Context) -> None:
        """Run a unit in a savepoint. If it fails, roll it back; its own thread runs it again and gets the error."""
        self._execute("SAVEPOINT")
        try:
            turn.attach(self._leader.driver)
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
        """Execute a statement on the savepoint.

        Raises `GroupFailed` if the transaction has ended, for example because the disk is full.
        """
        try:
            self._leader.driver.execute(f"{verb} {_SAVEPOINT}")
        except sqlite3.Error as error:
            raise GroupFailed("a unit that was to be committed together ended the transaction") from error
