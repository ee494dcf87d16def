"""Changes of files, the command line, migrations and what tests are given."""

from __future__ import annotations

from mutants.change import Change

_L, _G, _C, _I, _X, _N = (
    f"lastlight_state/{name}/"
    for name in ("files/jsonl", "files/agent_log", "cli", "migrations", "testing", "maintenance")
)
_V = "alembic/versions/"

FILES = (
    Change(
        "L201",
        _L + "writer.py",
        "            os.fdatasync(self._descriptor)\n",
        "            pass\n",
        "files/jsonl files/agent_log/writer",
    ),
    Change(
        "L202",
        _L + "writer.py",
        """            for directory in changed:\n                files.sync_directory(directory)""",
        """            pass""",
        "files/jsonl files/agent_log/writer",
    ),
    Change(
        "L203",
        _L + "writer.py",
        "            if size > self._max_line_bytes:",
        "            if size >= self._max_line_bytes:",
        "files/jsonl",
    ),
    Change(
        "L204",
        _L + "writer.py",
        "            if found.st_ino == self._inode and found.st_dev == self._device:",
        "            if True:",
        "files/jsonl",
    ),
    Change(
        "L205",
        _L + "writer.py",
        "            while written < len(data):  # on a full",
        "            while False:  # on a full",
        "files/jsonl faults/test_full_disk.py",
    ),
    Change(
        "L206",
        "lastlight_state/files/jsonl/repair.py",
        "        files.sync(self._folder)\n\n    def _take(",
        "\n    def _take(",
        "files/jsonl",
    ),
    Change(
        "L207",
        _L + "repair.py",
        "            if not _is_named(descriptor, path, folder):",
        "            if False:",
        "files/jsonl maintenance/test_repair.py",
    ),
    Change(
        "L208",
        _L + "repair.py",
        "            copy.take_lines()\n            copy.take_tail()\n            copy.flush()\n            _give_name",
        "            copy.take_tail()\n            copy.flush()\n            _give_name",
        "files/jsonl maintenance/test_repair.py",
    ),
    Change(
        "L209",
        _L + "repair.py",
        "            os.fchmod(file.fileno(), mode)\n",
        "",
        "files/jsonl maintenance/test_repair.py",
    ),
    Change(
        "L210",
        _L + "cursor.py",
        "return len(before) == self.checked and zlib.crc32(before) == self.checksum",
        "return len(before) == self.checked",
        "files/jsonl files/agent_log",
    ),
    Change(
        "L211",
        "lastlight_state/files/jsonl/files.py",
        "    fcntl.flock(descriptor, fcntl.LOCK_UN)\n",
        "    pass\n",
        "files/jsonl",
    ),
    Change(
        "L212", _L + "follow.py", '        yield from self._reset("shrunk")\n', "        yield from ()\n", "files/jsonl"
    ),
    Change(
        "L213",
        _L + "writer.py",
        '                if self._sync != "os":\n                    self._flush()\n            finally',
        "                pass\n            finally",
        "files/jsonl files/agent_log/writer",
    ),
    Change(
        "G201",
        "lastlight_state/files/agent_log/raw.py",
        '                if sync != "os":\n                    os.fdatasync(descriptor)\n',
        "",
        "files/agent_log",
    ),
    Change(
        "G202",
        "lastlight_state/files/agent_log/raw.py",
        "            os.unlink(temporary, dir_fd=directory)\n            raise",
        "            raise",
        "files/agent_log",
    ),
    Change(
        "G203",
        "lastlight_state/files/agent_log/raw.py",
        "            for changed in made:\n                files.sync_directory(changed)",
        "            pass",
        "files/agent_log",
    ),
    Change(
        "G204",
        "lastlight_state/files/agent_log/raw.py",
        '        if sync != "os":\n            files.sync(directory)',
        "        pass",
        "files/agent_log",
    ),
    Change(
        "G205",
        "lastlight_state/files/agent_log/raw.py",
        "            if _size(at, digest + SUFFIX) != len(data):",
        "            if _size(at, digest + SUFFIX) is None:",
        "files/agent_log",
    ),
    Change("G206", _G + "reader.py", '"at_end": end == size,', '"at_end": True,', "files/agent_log"),
    Change(
        "N201",
        _N + "upkeep/repair.py",
        "and not found.is_symlink():",
        "and True:",
        "maintenance/test_repair.py cli/test_repair.py",
    ),
    Change(
        "N202",
        "lastlight_state/maintenance/upkeep/stats.py",
        "MESSAGES.c.timestamp >= bind",
        "MESSAGES.c.timestamp > bind",
        "maintenance/test_stats.py",
    ),
    Change(
        "N203",
        _N + "timeline/__init__.py",
        "    if rank == last_rank:",
        "    if rank >= last_rank:",
        "maintenance/test_timeline.py",
    ),
)

COMMANDS = (
    Change(
        "C201",
        _C + "commands/check.py",
        '    "ahead": exits.AHEAD,',
        '    "ahead": exits.INCOMPATIBLE,',
        "cli/test_check.py cli/test_exits.py cli/test_states.py",
    ),
    Change(
        "C202",
        _C + "exits.py",
        "    if isinstance(error, NotMigrated):\n        return BEHIND",
        "    if isinstance(error, NotMigrated):\n        return AHEAD",
        "cli",
    ),
    Change(
        "C203",
        _C + "exits.py",
        '        return Failure(UNREACHABLE, "os_error"',
        '        return Failure(NO, "os_error"',
        "cli",
    ),
    Change(
        "C204",
        _C + "exits.py",
        '        return Failure(TERMINATED, "terminated", "terminated")',
        '        return Failure(INTERRUPTED, "terminated", "terminated")',
        "cli",
    ),
    Change(
        "C205",
        _C + "commands/repair.py",
        '        failure = Failure(NO, "unread"',
        '        failure = Failure(0, "unread"',
        "cli/test_repair.py",
    ),
    Change(
        "C206",
        _C + "commands/repair.py",
        "    if found.damaged and not acts:",
        "    if found.damaged:",
        "cli/test_repair.py",
    ),
    Change(
        "C207", _C + "program.py", "        logger.removeHandler(handler)\n", "        pass\n", "cli/test_program.py"
    ),
    Change("C208", "lastlight_state/cli/arguments.py", "    if not sys.stdin.isatty():", "    if False:", "cli"),
    Change(
        "C209",
        _C + "commands/outputs.py",
        "        sys.path.remove(str(Path.cwd()))\n",
        "        pass\n",
        "cli/test_outputs.py",
    ),
    Change(
        "C210",
        _C + "opening.py",
        "        if backend.is_disturbed:\n            raise _Disturbed from error\n",
        "",
        "cli/test_opening.py backends/sqlite/test_glance.py",
    ),
    Change(
        "C211",
        _C + "commands/migrate.py",
        "    if not 0 <= lock_timeout <= 86_400:",
        "    if not 0 < lock_timeout <= 86_400:",
        "cli migrations/test_command_line.py",
    ),
    Change("C212", _C + "commands/log.py", "deque(maxlen=limit)", "deque()", "cli/test_log.py"),
)

SCHEMA = (
    Change(
        "I201",
        "lastlight_state/migrations/apply.py",
        "        refuse_foreign(connection)\n",
        "        pass\n",
        "migrations/test_runner.py migrations/adoption",
    ),
    Change(
        "I202",
        _I + "adoption/__init__.py",
        "    if apply.version(connection) is not None:\n        return apply.apply_revisions(connection, target)\n",
        "",
        "migrations/adoption migrations/test_deploying.py",
    ),
    Change(
        "I203",
        _I + "runner.py",
        "    hold_migration_lock(connection)\n",
        "",
        "migrations/test_runner.py migrations/test_deploying.py",
        "both",
    ),
    Change(
        "I204",
        _I + "adoption/__init__.py",
        "if found.shared_keys and target == FIRST:",
        "if found.shared_keys and target != FIRST:",
        "migrations/adoption",
    ),
    Change(
        "I205",
        "lastlight_state/migrations/apply.py",
        "            names.update(kept)",
        "            pass",
        "migrations",
    ),
    Change(
        "I206",
        _I + "adoption/survey.py",
        "            backend.rollback(checkout)\n",
        "            pass\n",
        "migrations/adoption",
        "both",
        accepted="cost alone: a connection that is still in a transaction is closed instead of lent again",
    ),
    Change(
        "I207",
        _V + "0002_lastlight_state.py",
        '_index("uq_run_signals_signal_id", "run_signals", "run_id, signal_id", "signal_id IS NOT NULL", unique=True)',
        '_index("uq_run_signals_signal_id", "run_signals", "run_id, signal_id", "signal_id IS NOT NULL")',
        "journal/signals migrations/test_snapshot.py",
    ),
    Change(
        "I208",
        _V + "0002_lastlight_state.py",
        '    _index("ix_run_frames_anchors", "run_frames", "run_id, frame_no", "encoding <> \'delta\'")\n',
        "",
        "migrations/test_snapshot.py migrations/test_scripts.py journal/frames",
    ),
    Change(
        "I209",
        _V + "0002_lastlight_state.py",
        '"workflow_name, run_key", "run_key IS NOT NULL", unique=True)',
        '"workflow_name, run_key", "run_key IS NOT NULL")',
        "migrations/test_snapshot.py workflows/runs/test_ensure.py",
    ),
    Change(
        "I210",
        _V + "0002_lastlight_state.py",
        '    _never_changes("run_transitions"),\n',
        "",
        "workflows/test_guards.py migrations/test_snapshot.py",
    ),
    Change(
        "I211",
        "lastlight_state/journal/guards.py",
        '            when="OLD.finished_at IS NOT NULL",',
        '            when="OLD.finished_at IS NULL",',
        "journal db/test_guards.py migrations/test_snapshot.py",
    ),
)

TESTING = (
    Change(
        "X201",
        _X + "databases.py",
        "            empty_tables(self._cleaner)\n",
        "            pass\n",
        "testing",
        "both",
    ),
    Change(
        "X202",
        _X + "databases.py",
        '        connection.execute("ROLLBACK")\n        raise',
        "        raise",
        "testing",
        "both",
    ),
    Change(
        "X203",
        _X + "races.py",
        "        del backend.acquire  # makes the class's method visible again",
        "        pass",
        "testing/test_races.py",
    ),
    Change("X204", _X + "races.py", "                self._planned.remove(planned)\n", "", "testing/test_races.py"),
    Change(
        "X205",
        _X + "server.py",
        'if int(version.partition(".")[0]) < OLDEST:',
        'if int(version.partition(".")[0]) <= OLDEST:',
        "testing",
        "both",
    ),
    Change(
        "X206", _X + "watchdog.py", "        shutil.rmtree(self.folder, ignore_errors=True)\n", "", "testing", "both"
    ),
    Change(
        "X207", _X + "blocking.py", "    finally:\n        loop.close()", "    finally:\n        pass", "testing aio"
    ),
)

CHANGES = (*FILES, *COMMANDS, *SCHEMA, *TESTING)
