"""Changes that an earlier suite did not notice."""

from __future__ import annotations

from mutants.change import Change

CHANGES = (
    Change("J09", "lastlight_state/files/jsonl/repair.py", "            os.fsync(file.fileno())\n", "", "files/jsonl"),
    Change(
        "J19",
        "lastlight_state/files/agent_log/reader.py",
        "if found and len(found) + len(messages) > limit:",
        "if found and len(found) + len(messages) >= limit:",
        "files/agent_log",
    ),
    Change(
        "G05",
        "lastlight_state/migrations/apply.py",
        "    elif found >= target:",
        "    elif False:",
        "migrations/test_runner.py",
    ),
    Change(
        "C08",
        "lastlight_state/cli/program.py",
        "        signal.signal(signal.SIGTERM, before)\n",
        "        pass\n",
        "cli/test_program.py",
    ),
    Change(
        "S10a",
        "lastlight_state/schedules/fires/statements.py",
        "        *_held,\n        _is_stale,\n        returning=CLAIM,",
        "        *_held,\n        returning=CLAIM,",
        "schedules/test_lost_races.py schedules/fires",
    ),
    Change(
        "S10b",
        "lastlight_state/schedules/fires/statements.py",
        "        *_held,\n        _is_stale,\n        returning=(_c.id,),",
        "        *_held,\n        returning=(_c.id,),",
        "schedules/test_lost_races.py schedules/fires",
    ),
    Change(
        "A02a",
        "lastlight_state/aio/blocks.py",
        "            if entered:\n                await self._lane.finish(partial(self._end, raised))\n",
        "",
        "aio/test_async_store.py",
        accepted="equivalent: the next line leaves the block, a moment later",
    ),
    Change(
        "A02b",
        "lastlight_state/aio/blocks.py",
        "            self.end_interrupted(self.handle)\n            raise\n",
        "            raise\n",
        "aio/test_async_store.py",
        accepted="equivalent: the line before has left the block; the lane ends when it is collected",
    ),
    Change(
        "A02",
        "lastlight_state/aio/blocks.py",
        "            if entered:\n                await self._lane.finish(partial(self._end, raised))\n"
        "            self.end_interrupted(self.handle)\n",
        "",
        "aio/test_async_store.py",
        accepted="equivalent: the end of the statement leaves the block, a moment later",
    ),
)
