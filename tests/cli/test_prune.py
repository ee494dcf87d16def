"""``prune`` from the command line."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.each import with_each
from support.maintenance.old_logs import old_log, there
from support.maintenance.rows import insert, run_row

from lastlight_state import StateStore
from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.testing import Database
from lastlight_state.workflows import ExecutionOptions, Trigger


@pytest.fixture
def old(database: Database) -> Database:
    """Three runs that ended long ago, and one that lives."""
    at = SYSTEM_CLOCK.now() - timedelta(days=400)
    insert(database.raw(), "workflow_runs", *(run_row(key, at) for key in "abc"))
    insert(database.raw(), "workflow_runs", run_row("live", at, "paused"))
    return database


def prune(database: Database, *words: object) -> Any:
    return lastlight_state("prune", *words, "--url", database.url)


def left(database: Database) -> int:
    return int(database.raw().execute("SELECT count(*) FROM workflow_runs").fetchone()[0])


def test_a_dry_run_says_what_the_prune_then_does(old: Database) -> None:
    """maintenance OP-29, OP-71, OP-72."""
    words = ("--kind", "runs", "--keep-n", 1)
    planned = prune(old, *words, "--dry-run", "--json")
    assert (planned.code, planned.data["victims"], planned.data["receipt"]) == (0, ["a", "b"], None)
    assert "STAYS BECAUSE" in prune(old, *words, "--dry-run").out
    assert left(old) == 4
    done = prune(old, *words, "-y", "--json")
    assert (done.code, done.data["counts"]) == (0, planned.data["counts"])
    assert (done.data["receipt"]["state"], left(old)) == ("done", 2)
    shown = lastlight_state("show", "receipt", done.data["receipt"]["id"], "--url", old.url, "--json")
    assert shown.data["record"]["counts"] == {"workflow_runs": 2}
    assert "0 rows removed" in prune(old, *words).out


def test_logs_go_with_what_is_archived(old: Database, tmp_path: Path) -> None:
    """maintenance OP-30, OP-71."""
    with old.open() as store:
        options = ExecutionOptions(id="e")
        store.workflows.executions.start("s", session_id="s-1", trigger=Trigger("t", "chat"), options=options)
        old_log(store, "s-1")
    old.raw().execute("UPDATE executions SET workflow_run_id = 'a' WHERE id = 'e'")
    words = ("--kind", "runs", "--keep-n", 0, "--archive", tmp_path, "--with-logs", "-y")
    state = ("--state-dir", store.settings.state_dir)
    assert prune(old, *words[:-3], "--with-logs", *state).code == 2
    assert "and 3 log files of 47 bytes" in prune(old, *words, *state, "--dry-run").out
    done = prune(old, *words, *state, "--json")
    assert (done.data["counts"]["line_files"], there(store)) == (3, {})


def test_a_prune_of_journals_or_of_the_cache_says_what_it_removes(old: Database) -> None:
    """maintenance OP-71, OP-89, OP-90."""
    raw, at = old.raw(), SYSTEM_CLOCK.now() - timedelta(days=400)
    event = {"run_id": "a", "type": "e", "occurred_at": at, "payload": "{}"}
    insert(raw, "run_events", *({**event, "seq": n} for n in range(3)))
    names = ("workflow_name", "node_id", "output_key", "table_name", "schema_signature")
    insert(raw, "output_cache", {"cache_key": "k", **dict.fromkeys(names, "x"), "created_at": at, "payload": "{}"})
    for kind, amount in (("journal", "2 rows of 1 runs"), ("cache", "1 entries of the cache")):
        words = ("--kind", kind, "--keep-n", 0)
        assert prune(old, *words, "--dry-run").out.startswith(f"would remove {amount}\n")
        assert prune(old, *words, "-y", "--json").code == 0
        assert prune(old, *words, "--dry-run", "--json").data["records"] == 0
    assert left(old) == 4


def test_without_a_terminal_or_consent_nothing_is_removed(old: Database) -> None:
    """maintenance OP-1, OP-70."""
    assert prune(old, "--kind", "runs", "--keep-n", 0, "--json").error == "not_confirmed"
    assert prune(old, "--dry-run", "--keep-n", 0, "--json").data["kind"] == "sessions"  # other kinds must be named
    assert (prune(old, "-y", "--keep-n", 0).code, left(old)) == (0, 4)
    assert (prune(old, "--kind", "runs", "-y").code, left(old)) == (0, 4)  # the newest hundred stay


WRONG = [
    ("--kind", "all"),
    ("--kind", "runs", "--keep-days", "-1"),
    ("--keep-n", "x"),
    ("--kind", "orphans", "--keep-n", 1),
]


@with_each("words", WRONG)
def test_wrong_words_are_wrong_usage(old: Database, words: tuple[str, ...]) -> None:
    """maintenance OP-74, OP-25."""
    said = prune(old, *words, "-y", "--json")
    assert (said.code, left(old)) == (2, 4)
    assert lastlight_state("ls", "receipts", "--url", old.url).out == "(no receipts)\n"


def test_orphans_go_by_the_command_that_doctor_names(database: Database) -> None:
    """maintenance OP-15, OP-91: a dry run tells how many, and afterwards doctor finds none."""
    row = {"created_at": SYSTEM_CLOCK.now() - timedelta(days=2)}
    insert(database.raw(), "messages", {"id": "stray", "role": "u", "content": "1", **row})
    insert(database.raw(), "progressions", {"id": "order", **row})
    look = ("doctor", "--deep", "--only", "DOC-08", "--url", database.url, "--json")
    [command] = {found["remedy"] for found in lastlight_state(*look).data["findings"]}
    words = command.split()[1:]
    assert lastlight_state(*words, "--dry-run", "--url", database.url).out.startswith(
        "would remove 2 orphans with 2 rows"
    )
    assert lastlight_state(*words, "-y", "--url", database.url).code == 0
    assert lastlight_state(*look).data["findings"] == []


def test_a_time_limit_is_exit_code_7_and_the_command_that_goes_on_works_as_printed(old: Database) -> None:
    """maintenance OP-31, OP-72."""
    stopped = prune(old, "--kind", "runs", "--keep-n", 0, "--time-limit", 0, "-y", "--json")
    assert (stopped.code, stopped.error, left(old)) == (7, "time_limit", 4)
    command = stopped.answer["error"]["message"].rpartition("lastlight-state ")[2].split()
    assert lastlight_state(*command, "--kind", "runs", "-y", "--url", old.url).code == 2
    done = lastlight_state(*command, "-y", "--url", old.url)
    assert (done.code, left(old)) == (0, 1)
    listed = lastlight_state("ls", "receipts", "--status", "done", "--url", old.url, "--json")
    assert [found["counts"] for found in listed.data["items"]] == [{"workflow_runs": 3}]


def test_an_interruption_prints_the_command_that_goes_on(old: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-72, case 50."""

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("lastlight_state.maintenance.prune.batch", interrupted)
    said = prune(old, "--kind", "runs", "--keep-n", 0, "-y")
    monkeypatch.undo()
    assert said.code == 130
    command = said.err.partition("lastlight-state ")[2].splitlines()[0].split()
    assert lastlight_state(*command, "-y", "--url", old.url).code == 0
    assert left(old) == 1


def test_an_archive_holds_what_a_prune_removed(old: Database, tmp_path: Path) -> None:
    """maintenance OP-30, OP-70."""
    words = ("--kind", "runs", "--keep-n", 1, "--archive", tmp_path / "archive")
    assert prune(old, *words, "-y").code == 2
    (tmp_path / "archive").mkdir()
    assert prune(old, *words, "-y", "--json").code == 0
    files = sorted((tmp_path / "archive").iterdir())
    assert ([file.name[:6] for file in files], left(old)) == (["run-a-", "run-b-"], 2)
    assert lastlight_state("import", files[0], "--url", old.url).code == 0
    assert left(old) == 3


@with_each("flag", ["--keep-days", "--keep-n"])
def test_a_policy_of_zero_beside_a_receipt_is_refused(tmp_path: Path, flag: str) -> None:
    """maintenance OP-70."""
    StateStore.open(tmp_path / "s.db").close()
    said = lastlight_state("prune", "--resume", "x", flag, "0", "-y", "--url", tmp_path / "s.db")
    assert (said.code, "must not be given" in said.err) == (2, True)


def test_log_files_are_pruned_and_counted_in_bytes(old: Database) -> None:
    """maintenance OP-93, OP-71."""
    words = ("--kind", "agent-logs", "--keep-n", 0, "--state-dir", old.state_dir)
    assert "on this machine" in prune(old, *words).err
    with old.open() as store:
        old_log(store, "s-1")
    assert "would remove 1 agent-logs with 3 log files of 47 bytes" in prune(old, *words, "--dry-run").out
    assert "done, 3 log files of 47 bytes removed" in prune(old, *words, "-y").out
    assert (there(store), prune(old, *words, "--json").data["records"]) == ({}, 0)
