from __future__ import annotations

import errno
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TextIO

import pytest
from support.cli.calls import Said, Target, lastlight_state
from support.each import with_each
from support.processes import started

import lastlight_state as library
from lastlight_state.backends import connect
from lastlight_state.cli.program import run
from lastlight_state.files.agent_log import Cwd
from lastlight_state.migrations import scripts
from lastlight_state.settings import Settings
from lastlight_state.store import StateStore

PROGRAM = [sys.executable, "-c", "from lastlight_state.cli import main; main()"]

BAD = {
    "no command": (),
    "unknown command": ("migrat",),
    "unknown flag": ("check", "--verbose"),
    "a value for a flag without one": ("check", "--json=true"),
    "a word behind a flag without a value": ("check", "--quiet", "yes"),
    "a flag without its value": ("migrate", "--to"),
    "no number": ("ls", "--limit", "many"),
    "too small a number": ("ls", "--limit", "0"),
    "too large a number": ("ls", "--limit", "501"),
    "unknown kind": ("ls", "things"),
    "unknown kind of record": ("show", "thing", "1"),
    "no id": ("show", "run"),
    "unknown status": ("ls", "runs", "--status", "lost"),
    "unknown activity": ("ls", "messaging", "--status", "sleeping"),
    "no time": ("ls", "--since", "yesterday"),
    "a time before all years": ("ls", "--since", "999999d"),
    "a time without zone": ("ls", "--since", "2026-02-03T12:00"),
    "a flag of another kind": ("ls", "approvals", "--since", "1d"),
    "history of what has none": ("show", "approval", "1", "--history"),
    "damaged page token": ("ls", "--page-token", "%"),
    "unknown revision": ("migrate", "--to", "9999"),
    "negative wait": ("migrate", "--lock-timeout", "-1"),
    "unknown scheme": ("check", "--url", "mysql://ana@host/db"),
    "login without scheme": ("check", "--url", "ana:secret@host"),
    "empty url": ("check", "--url", ""),
    "url twice": ("check", "--url", "a.db", "--url-file", "a.txt"),
    "file of the url missing": ("check", "--url-file", "a.txt"),
    "file of the url empty": ("check", "--url-file", os.devnull),
    "schema on SQLite": ("check", "--schema", "s"),
}


@with_each("words", BAD.values(), ids=BAD)
def test_wrong_usage_is_exit_2_and_one_object_and_makes_no_file(
    words: tuple[str, ...], sqlite_targets: dict[str, Target], tmp_path: Path
) -> None:
    """maintenance OP-70, OP-71, OP-74, OP-72."""
    database = [] if "--url" in words or "--url-file" in words else ["--url", sqlite_targets["empty"].url]
    as_text = lastlight_state(*words, *database)
    as_object = lastlight_state(*words, *database, "--json")
    assert (as_text.code, as_object.code) == (2, 2)
    assert as_text.out == ""
    assert "lastlight-state: " in as_text.err
    assert as_object.error in ("usage", "invalid_value")
    assert list(tmp_path.iterdir()) == []


def test_common_flags_stand_on_either_side_of_the_command_and_the_later_one_holds(
    sqlite_targets: dict[str, Target],
) -> None:
    """maintenance OP-70."""
    url = sqlite_targets["populated"].url
    before = lastlight_state("--json", "--url", url, "ls", "runs")
    behind = lastlight_state("ls", "runs", "--url", url, "--json")
    both = lastlight_state("--url", "nowhere.db", "ls", "runs", "--url", url, "--json")
    assert before.data == behind.data == both.data
    assert len(before.data["items"]) == 1


def test_a_url_comes_from_a_file_too(sqlite_targets: dict[str, Target], tmp_path: Path) -> None:
    """maintenance OP-70."""
    file = tmp_path / "url"
    file.write_text(sqlite_targets["populated"].url + "\n", encoding="utf-8")
    head = scripts.head()
    assert lastlight_state("current", "--url-file", file).out == f"{head}  current  (newest: {head})\n"


def test_the_environment_names_a_file_with_the_url_and_flags_beat_it(
    sqlite_targets: dict[str, Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-70, backends B-89."""
    file = tmp_path / "url"
    file.write_text(sqlite_targets["behind"].url + "\n", encoding="utf-8")
    monkeypatch.setenv("LASTLIGHT_STATE_URL_FILE", str(file))
    assert lastlight_state("check").code == 3
    assert lastlight_state("check", "--url", sqlite_targets["populated"].url).code == 0
    monkeypatch.setenv("LASTLIGHT_STATE_URL", sqlite_targets["populated"].url)
    refused = lastlight_state("check")
    assert refused.code == 2
    assert "url and url_file are both given" in refused.err


def test_the_environment_names_the_database_and_flags_beat_it(
    sqlite_targets: dict[str, Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-70, backends B-1."""
    monkeypatch.setenv("LASTLIGHT_STATE_URL", sqlite_targets["behind"].url)
    assert lastlight_state("check").code == 3
    assert lastlight_state("check", "--url", sqlite_targets["empty"].url).code == 0


def test_the_default_database_lies_in_the_state_directory(tmp_path: Path) -> None:
    """maintenance OP-70."""
    assert lastlight_state("migrate", "--state-dir", tmp_path / "mine").code == 0
    assert (tmp_path / "mine" / "lastlight.db").is_file()


def test_version_and_help_are_answers_too() -> None:
    """maintenance OP-70, OP-71."""
    assert lastlight_state("--version").out == f"lastlight-state {library.__version__}\n"
    assert lastlight_state("--version", "--json").data == {"version": library.__version__}
    assert lastlight_state("--help").out.startswith("Usage: lastlight-state ")
    assert lastlight_state("ls", "--help", "--json").data["help"].startswith("Usage: lastlight-state ls ")


@with_each("words", [("--version",), ("--help",), ("check", "--help")])
def test_what_needs_no_database_imports_only_what_it_needs(words: tuple[str, ...]) -> None:
    code = (
        "import sys; from lastlight_state.cli.program import run; code = run(sys.argv[1:]); "
        "print(' '.join(sorted(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    told = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    loaded = set(told.stderr.split())
    assert "click" in loaded
    if words != ("check", "--help"):
        assert loaded & {"sqlalchemy", "pydantic", "pydantic_settings", "alembic", "lastlight_state.store"} == set()


def hung_up() -> TextIO:
    """A pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w", encoding="utf-8")


def test_a_closed_pipe_ends_in_silence_with_the_exit_code_of_the_answer(sqlite_targets: dict[str, Target]) -> None:
    """maintenance OP-71, OP-72."""
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    for flags in ((), ("--json",)):
        with hung_up() as pipe, redirect_stdout(pipe), redirect_stderr(io.StringIO()) as complaint:
            code = run(["check", "--url", sqlite_targets["behind"].url, *flags])
        assert code == 3
        assert "roken" not in complaint.getvalue()
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208


def test_a_pipe_closed_in_the_middle_of_a_stream_ends_it_in_silence(tmp_path: Path) -> None:
    """maintenance OP-71."""
    with StateStore.open(state_dir=tmp_path) as store:
        place = Cwd("/work")
        with store.agent_log.writer.open(place=place, session_id="s", prompt="Begin.") as log:
            log.feed({"type": "session", "id": "s"})
    for flags in ((), ("--json",), ("--raw",)):
        with hung_up() as pipe, redirect_stdout(pipe), redirect_stderr(io.StringIO()) as complaint:
            code = run(["log", "s", "--state-dir", str(tmp_path), "--quiet", *flags])
        assert (code, complaint.getvalue()) == (0, "")


def test_nobody_listening_on_stderr_is_no_failure(tmp_path: Path) -> None:
    """maintenance OP-71."""
    with hung_up() as pipe, redirect_stderr(pipe), redirect_stdout(io.StringIO()) as out:
        code = run(["migrate", "--url", str(tmp_path / "new.db")])
    assert code == 0
    assert out.getvalue().startswith("applied ")


def test_streams_that_were_closed_before_the_program_began_are_no_failure(
    sqlite_targets: dict[str, Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert run(["check", "--url", sqlite_targets["behind"].url]) == 3


def test_a_full_disk_behind_stdout_is_told(sqlite_targets: dict[str, Target]) -> None:
    """maintenance OP-72."""

    class FullDisk(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    complaint = io.StringIO()
    with redirect_stdout(FullDisk()), redirect_stderr(complaint):
        code = run(["stats", "--url", sqlite_targets["empty"].url])
    assert code == 6
    assert os.strerror(errno.ENOSPC) in complaint.getvalue()


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_ends_a_waiting_command_with_its_own_exit_code(
    number: int, code: int, word: str, postgres_url: str
) -> None:
    """maintenance OP-72."""
    command = [*PROGRAM, "migrate", "--url", postgres_url, "--json"]
    with (
        closing(connect(Settings(url=postgres_url))) as backend,
        backend.migration(5),
        started(command) as program,
    ):
        assert program.stderr is not None
        assert program.stderr.readline().startswith("migrating ")
        program.send_signal(number)
        out, err = program.communicate(timeout=60)
    assert program.returncode == code
    assert json.loads(out)["error"]["code"] == word
    assert "Traceback" not in err


@pytest.mark.slow
def test_warnings_of_the_library_are_notes_for_people_and_part_of_the_object(tmp_path: Path) -> None:
    """maintenance OP-71, messaging M-6."""

    def retires_one(name: str, *flags: str) -> Said:
        url = str(tmp_path / name)
        lastlight_state("migrate", "--url", url, "--to", "0001")
        with closing(sqlite3.connect(url)) as raw:
            raw.executemany(
                "INSERT INTO messaging_sessions (id, platform, channel_id, user_id, created_at, last_activity_at) "
                "VALUES (?, 'slack', 'C1', 'ana', '2026-02-03T12:00:00.000Z', '2026-02-03T12:00:00.000Z')",
                [("one",), ("two",)],
            )
            raw.commit()
        return lastlight_state("migrate", "--url", url, *flags)

    assert "messaging_sessions: one" in retires_one("a.db").err
    assert retires_one("b.db", "--quiet").err == ""
    said = retires_one("c.db", "--json")
    assert said.err.splitlines() == [f"migrating sqlite:///{tmp_path}/c.db"]
    assert ["messaging_sessions: one" in warning for warning in said.answer["warnings"]] == [True]


@pytest.mark.slow
def test_the_installed_program_answers(sqlite_targets: dict[str, Target]) -> None:
    told = subprocess.run(
        [*PROGRAM, "--json", "current", "--url", sqlite_targets["empty"].url],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(told.stdout)["data"] == {"state": "current", "from": scripts.head(), "to": scripts.head()}


def test_a_host_program_keeps_its_own_handler_of_sigterm(tmp_path: Path) -> None:
    """maintenance OP-71: ``run`` may be called inside another program."""

    def own(*_: object) -> None:
        """The host's."""

    before = signal.signal(signal.SIGTERM, own)
    try:
        lastlight_state("check", "--url", tmp_path / "missing.db")
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)
