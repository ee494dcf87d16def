"""Changes of what the rooms stand on: db, backends, the store and its async face."""

from __future__ import annotations

from mutants.change import Change

_D, _B, _A = (f"lastlight_state/{name}/" for name in ("db", "backends", "aio"))

DB = (
    Change("D202", "lastlight_state/db/units/scope.py", "            del unit.hooks[hooks:]\n", "", "db test_store.py"),
    Change(
        "D203",
        "lastlight_state/db/units/scope.py",
        "                hooks_if_committed[:] = unit.hooks or hooks_if_committed[:]",
        "                pass",
        "db backends faults",
        "both",
    ),
    Change(
        "D204",
        "lastlight_state/db/units/unit.py",
        """                    error.outcome = "unknown"  # the one statement""",
        """                    pass  # the one statement""",
        "db backends faults/test_lost_connections.py",
        "both",
    ),
    Change(
        "D205",
        "lastlight_state/db/lists/pages.py",
        "        rows, key = read(limit + 1)",
        "        rows, key = read(limit)",
        "db",
    ),
    Change(
        "D207",
        "lastlight_state/db/lists/pages.py",
        "            if found != _digest(asked):",
        "            if False:",
        "db",
    ),
    Change(
        "D208",
        "lastlight_state/db/units/unit.py",
        "            self.broken = True\n            raise\n\n    def row(",
        "            raise\n\n    def row(",
        "db faults/test_interrupts.py",
    ),
    Change(
        "D209",
        "lastlight_state/db/units/external_transactions.py",
        "        self._waiting = []\n\n    def _release_savepoint",
        "        pass\n\n    def _release_savepoint",
        "db test_store.py",
    ),
    Change(
        "D210",
        "lastlight_state/db/news/renewals.py",
        "        self._thread.join()\n",
        "",
        "db workflows/claims/test_driving.py schedules/fires/test_running.py",
    ),
    Change(
        "D212",
        _D + "reconcile.py",
        "if name not in table.columns and not there.nullable and not there.has_default:",
        "if name not in table.columns and not there.nullable:",
        "outputs db",
    ),
    Change(
        "D213",
        _D + "repository.py",
        "        valid.page_limit(limit)\n        return self._reading(",
        "        return self._reading(",
        "db workflows/runs/test_list.py schedules",
    ),
)

BACKENDS = (
    Change(
        "B201", "lastlight_state/backends/waiting.py", "if repeats >= allowed or", "if repeats > allowed or", "backends"
    ),
    Change(
        "B202",
        "lastlight_state/backends/waiting.py",
        '            in_doubt = in_doubt or error.outcome == "unknown"',
        '            in_doubt = error.outcome == "unknown"',
        "backends db",
    ),
    Change(
        "B203",
        "lastlight_state/backends/waiting.py",
        '    if error.outcome == "unknown" and not repeatable:\n        return 0\n',
        "",
        "backends db faults/test_lost_connections.py",
        "both",
    ),
    Change(
        "B204",
        "lastlight_state/backends/fair_lock.py",
        "            if turn.is_gone:\n                self.leave(turn)\n",
        "            pass\n",
        "backends faults/test_interrupts.py",
    ),
    Change(
        "B205",
        "lastlight_state/backends/fair_lock.py",
        "        if len(turns) >= self._places:\n            self._call_forward()\n",
        "        self._call_forward() if False else None\n",
        "backends",
    ),
    Change(
        "B206",
        "lastlight_state/backends/fair_lock.py",
        "return len(self._turns) <= self._places or",
        "return len(self._turns) < self._places or",
        "backends",
        accepted="cost alone: the first in line looks at the line once more",
    ),
    Change(
        "B208",
        _B + "postgres/pool.py",
        "time.monotonic() - self.opened_at < RECYCLE_SECONDS and is_alive",
        "is_alive",
        "backends",
        "both",
    ),
    Change(
        "B209",
        _B + "postgres/pool.py",
        "            if checkout.broken or self._closed:\n                self._drop(pooled)",
        "            if self._closed:\n                self._drop(pooled)",
        "backends faults",
        "both",
    ),
    Change(
        "B212",
        _B + "sqlite/__init__.py",
        "            checkout.broken = True  # an unread cursor keeps an old snapshot: waiting does not help\n",
        "            pass\n",
        "backends faults",
    ),
    Change(
        "B213",
        _B + "sqlite/file_connections.py",
        '            connection.execute("PRAGMA query_only = ON")\n',
        "",
        "backends db",
    ),
    Change(
        "B215",
        _B + "sqlite/connections.py",
        "                self._discard(self._user)\n            self._user = checkout",
        "                pass\n            self._user = checkout",
        "backends faults/test_interrupts.py",
    ),
    Change(
        "B216",
        _B + "postgres/__init__.py",
        "            checkout.broken = True\n        elif checkout.hurries",
        "            pass\n        elif checkout.hurries",
        "backends",
        "both",
    ),
    Change(
        "B217",
        _B + "postgres/__init__.py",
        '                failure.outcome = "unknown"\n',
        "                pass\n",
        "backends db faults/test_lost_connections.py",
        "both",
    ),
    Change(
        "B218",
        _B + "postgres/__init__.py",
        "            if time.monotonic() >= deadline:",
        "            if False:",
        "migrations/test_runner.py migrations/test_deploying.py backends",
        "both",
    ),
    Change(
        "B220",
        _B + "sqlite/file_connections.py",
        "            return\n        if checkout.broken or self._closed or not self._keeps:",
        "            return\n        if self._closed or not self._keeps:",
        "backends faults",
    ),
    Change(
        "B221",
        "lastlight_state/backends/waiting.py",
        "        if self._gate is not None:\n            wake(self._gate)\n",
        "",
        "aio backends",
    ),
)

STORE = (
    Change(
        "A201",
        "lastlight_state/aio/blocks.py",
        "            self._forget()\n            self.handle = None\n",
        "            self.handle = None\n",
        "aio",
    ),
    Change(
        "A202",
        _A + "blocks.py",
        "        if not targets or not await runner.finish(leave):\n            raise",
        "        raise",
        "aio workflows/claims/test_driving.py schedules/fires/test_running.py",
        "both",
    ),
    Change("A205", _A + "runners.py", "            lane.join()\n", "            pass\n", "aio"),
    Change("A206", _A + "outcomes.py", "        self.patience.end()\n", "", "aio"),
    Change(
        "T204",
        "lastlight_state/store.py",
        "        self._scope.refuse_closed()\n        if self.settings.read_only:",
        "        if self.settings.read_only:",
        "test_store.py db backends/test_engine.py",
    ),
)
CHANGES = (*DB, *BACKENDS, *STORE)
