"""The commands for logs of runs and states of sessions."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.cli.calls import Said, lastlight_state
from support.run_log.logs import (
    EXAMPLE_RUN,
    RUN,
    SESSION,
    event,
    files_below,
    head,
    id_of,
    put,
    put_example,
    request,
    response,
    start,
)

from lastlight_state.cli.commands import run_log as module
from lastlight_state.codec import dump_line
from lastlight_state.files.run_log import RunLog, SessionState
from lastlight_state.testing.clock import FrozenClock


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    """The seed's example, and a run with an error in it."""
    log = RunLog.open(tmp_path)
    put_example(log)
    put(log, [head(session_id=SESSION), request(1, "one"), response(1), event(0), event(0)])
    return log


def said(log: RunLog, *words: object) -> Said:
    return lastlight_state(*words, "--state-dir", log.root)


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_runs_are_listed_page_by_page(log: RunLog) -> None:
    """run-log RL-84."""
    shown = said(log, "run-log", "ls").out.splitlines()
    assert [line.split()[0] for line in shown] == ["ID", RUN, EXAMPLE_RUN]
    first = said(log, "run-log", "ls", "--limit", 1, "--json").data
    rest = said(log, "run-log", "ls", "--page-token", first["next_page_token"], "--json").data
    assert [run["run_id"] for run in (*first["items"], *rest["items"])] == [RUN, EXAMPLE_RUN]
    more = said(log, "run-log", "ls", "--limit", 1).out.splitlines()[-1]
    assert more == f"more: --page-token {first['next_page_token']}"
    for words in (("--session", SESSION), ("--state", "crashed")):
        assert [run["run_id"] for run in said(log, "run-log", "ls", *words, "--json").data["items"]] == [RUN]
    assert said(log, "run-log", "ls", "--session", id_of(1)).out == "(no runs)\n"


def test_a_run_is_summed_up_printed_and_replayed(log: RunLog) -> None:
    """run-log RL-84."""
    assert "gpt-4.1-mini" in said(log, "run-log", "show", EXAMPLE_RUN).out
    assert said(log, "run-log", "show", EXAMPLE_RUN, "--json").data["run"]["tool_calls"] == 1
    assert len(said(log, "run-log", "tail", EXAMPLE_RUN).out.splitlines()) == 9
    *records, last = lines(said(log, "run-log", "tail", EXAMPLE_RUN, "--json").out)
    assert (len(records), last["records"]) == (9, 9)
    assert said(log, "run-log", "replay", EXAMPLE_RUN).out.startswith("prompt 1\nsystem")
    turn, last = lines(said(log, "run-log", "replay", EXAMPLE_RUN, "--json").out)
    assert (turn["seq"], last["prompts"]) == (1, 1)


def test_a_run_is_followed_until_its_writer_is_gone(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-84."""
    monkeypatch.setattr(module, "POLL", 0.001)
    writer = start(log, id_of(7))

    def write() -> None:
        with writer:
            for _ in range(50):
                writer.event({})

    thread = threading.Thread(target=write)
    thread.start()
    followed = said(log, "run-log", "tail", id_of(7), "--follow", "--json")
    thread.join()
    assert lines(followed.out)[-1]["records"] == 51


def test_what_is_there_is_printed_without_waiting_unless_more_may_come(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-log RL-84: a log that is being written is waited for with --follow alone, one that has ended never is."""
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda _: pytest.fail("it waited")))
    with start(log, id_of(7)):
        assert lines(said(log, "run-log", "tail", id_of(7), "--json").out)[-1]["records"] == 1
    assert lines(said(log, "run-log", "tail", EXAMPLE_RUN, "--follow", "--json").out)[-1]["records"] == 9


def test_the_last_records_are_printed(log: RunLog) -> None:
    """run-log RL-38, RL-84: and with --follow what comes behind them."""
    assert lines(said(log, "run-log", "tail", EXAMPLE_RUN, "--last", "2", "--json").out)[-1]["records"] == 2
    found = lines(said(log, "run-log", "tail", EXAMPLE_RUN, "--last", "1", "--follow", "--json").out)
    first: Any = found[0]["record"]
    assert first["type"] == "run.end"


def test_a_long_log_is_printed_to_its_end(log: RunLog) -> None:
    """run-log RL-84."""
    put(log, [head(), *(event(seq) for seq in range(1001))])
    assert lines(said(log, "run-log", "tail", RUN, "--json").out)[-1]["records"] == 1002


def test_a_log_that_is_removed_while_it_is_followed_is_told_after_its_records(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-71, OP-72: the last object says what went wrong."""
    with start(log, id_of(7)) as writer:
        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda _: writer.path.unlink()))
        followed = said(log, "run-log", "tail", id_of(7), "--follow", "--json")
    record, last = lines(followed.out)
    assert (followed.code, "error" in record) == (1, False)
    assert (last["ok"], last["error"]["code"]) == (False, "not_found")  # type: ignore[index]


def test_a_check_fails_on_errors_and_a_copy_is_made_of_a_damaged_log(log: RunLog, tmp_path: Path) -> None:
    """run-log RL-84."""
    assert said(log, "run-log", "validate", EXAMPLE_RUN).code == 0
    bad = said(log, "run-log", "validate", RUN, "--json")
    assert (bad.code, bad.error, bad.data["report"]["counts"]["event_seq_not_ascending"]) == (1, "damaged", 1)
    assert "event_seq_not_ascending" in said(log, "run-log", "validate", RUN).out
    copy = tmp_path / "copy.jsonl"
    assert said(log, "run-log", "salvage", RUN, "--to", copy).out == "sound: nothing to do\n"
    put(log, dump_line(head()) + b"noise\n")
    assert said(log, "run-log", "salvage", RUN, "--to", copy).out == f"wrote {copy}\nwrote {copy}.rejects\n"
    for *wrong, lacks in (
        ("run-log", "salvage", RUN, "--to"),
        ("run-log", "show", "ID"),
        ("run-log", "odd", "ACTION"),
        ("session-state", "show", "ID"),
        ("session-state", "odd", "ACTION"),
    ):
        refused = said(log, *wrong)
        assert (refused.code, refused.err.startswith(f"lastlight-state: {lacks}: ")) == (2, True)


def test_states_are_listed_shown_deleted_and_reconstructed(log: RunLog) -> None:
    """run-log RL-84."""
    assert said(log, "session-state", "ls").out == "(no sessions)\n"
    made = said(log, "session-state", "reconstruct", SESSION, "--json").data["state"]
    assert [message["content"] for message in made["messages"]] == ["one", "yes"]
    assert said(log, "session-state", "show", SESSION).code == 1
    log.states.put(SessionState.model_validate(made))
    assert said(log, "session-state", "ls", "--workspace", "/x").out == "(no sessions)\n"
    assert [one["session_id"] for one in said(log, "session-state", "ls", "--json").data["items"]] == [SESSION]
    shown = said(log, "session-state", "show", SESSION).out
    assert ("messages (2)" in shown, "session_id  " in shown, '"content"' in shown) == (True, True, False)
    log.states.put(SessionState.model_validate({**made, "session_id": id_of(2)}))
    first = said(log, "session-state", "ls", "--limit", 1, "--json").data
    listed = said(log, "session-state", "ls", "--limit", 1).out.splitlines()
    assert [line.split()[0] for line in listed[:-1]] == ["ID", first["items"][0]["session_id"]]
    assert listed[-1] == f"more: --page-token {first['next_page_token']}"
    assert said(log, "session-state", "clear", SESSION).code == 1
    assert said(log, "session-state", "clear", SESSION, "-y", "--json").data == {"cleared": True}
    assert said(log, "session-state", "clear", SESSION, "-y").code == 1
    assert said(log, "session-state", "reconstruct", id_of(1)).code == 1


def test_stats_count_the_logs_of_runs(log: RunLog) -> None:
    """run-log RL-52."""
    assert said(log, "stats", "--json").data["line_files"]["files"] == 2


def test_repair_covers_the_logs_of_runs(log: RunLog, tmp_path: Path) -> None:
    """run-log RL-52: and does not replace one whose writer lives."""
    with start(log, id_of(8)) as writer:
        with writer.path.open("ab") as file:
            file.write(b"noise\n" + dump_line(event(0, run_id=id_of(8)))[:40])
        found = said(log, "repair", "--json")
        assert (found.code, [Path(one["path"]).stem for one in found.data["files"]]) == (1, [id_of(8)])
        refused = said(log, "repair", "--replace", "-y", "--json")
        assert (refused.code, refused.error) == (1, "run_open")
    before = files_below(log.root)
    assert said(log, "repair", "--replace", "-y").code == 0
    assert said(log, "repair").code == 0
    assert writer.path.read_bytes() == dump_line(head(id_of(8)))
    assert len(files_below(log.root)) == len(before) + 2


def test_a_run_is_packed_and_removed(log: RunLog) -> None:
    """run-log RL-82, RL-84."""
    assert said(log, "run-log", "pack", EXAMPLE_RUN).out.startswith("wrote ")
    assert said(log, "run-log", "pack", EXAMPLE_RUN, "--json").data["packed"] is False
    assert said(log, "run-log", "prune", "--dry-run").out.startswith("would remove the logs of 1 runs")
    assert said(log, "run-log", "prune").code == 1
    for words in (("-y",), (), ("--dry-run",)):
        none = said(log, "run-log", "prune", "--session", SESSION, *words)
        assert (none.code, none.out) == (0, "removed the logs of 0 runs, 0 bytes\n")
    assert said(log, "run-log", "prune", "--keep-days", -1).code == 2
    assert said(log, "run-log", "prune", "-y", "--json").data["pruned"]["run_ids"] == [EXAMPLE_RUN]
    assert said(log, "run-log", "show", EXAMPLE_RUN).code == 1
    put_example(log)
    assert said(log, "run-log", "prune", "-y").out.startswith("removed the logs of 1 runs")


def test_a_run_that_is_written_is_told_and_stays(log: RunLog) -> None:
    """run-log RL-82, RL-84."""
    then = FrozenClock(datetime(2020, 1, 1, tzinfo=UTC))
    with start(RunLog(log.root, clock=then), id_of(8), session_id=id_of(9)) as writer:
        writer.end("completed")
        kept = said(log, "run-log", "prune", "--session", id_of(9), "-y").out
    assert kept.splitlines()[-1] == "1 could not be read, or are being written"
    assert RunLog(log.root).runs.path(id_of(8)).exists()
