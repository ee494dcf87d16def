"""A disk that fails at any one call: an error of the library, or the same answer; nothing held, nothing half."""

from __future__ import annotations

import errno
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.each import with_each
from support.failing_disk import failures
from support.run_log.logs import (
    NOW,
    OTHER_RUN,
    RUN,
    SESSION,
    ending,
    event,
    files_below,
    head,
    id_of,
    line,
    put,
    read,
    request,
    response,
    run_log,
    start,
)

from lastlight_state.codec import dump_line
from lastlight_state.errors import AlreadyExists, BackendUnavailable, StateError
from lastlight_state.files.run_log import RunLog, RunPage, SessionState

Call = Callable[[RunLog], Any]

TORN = id_of(1)
LATER = NOW + timedelta(days=1)
ASKED = line("run.start", input={"type": "text", "text": "go"})
WHOLE = [head(session_id=SESSION), ASKED, request(1, "a"), response(1), event(0), ending()]


def _state(number: int) -> SessionState:
    return SessionState(session_id=SESSION, messages=({"role": "user", "content": "hi"},), invoke_seq=number)


@pytest.fixture
def filled(log: RunLog) -> RunLog:
    """A log of a run that has ended, one that is packed, one that is torn, and a snapshot."""
    put(log, WHOLE)
    put(log, [{**value, "run_id": OTHER_RUN} for value in WHOLE], OTHER_RUN, "2026/02/02")
    log.runs.pack(OTHER_RUN)
    put(log, dump_line(head(TORN)) + b"{torn\n", TORN, "2026/02/01")
    log.states.put(_state(1))
    return log


READS: dict[str, Call] = {
    "get": lambda log: log.runs.get(RUN),
    "get packed": lambda log: log.runs.get(OTHER_RUN),
    "path": lambda log: log.runs.path(RUN),
    "tail": lambda log: log.runs.tail(RUN),
    "read": lambda log: [record.raw for record in log.runs.read(RUN)],
    "read packed": lambda log: [record.raw for record in log.runs.read(OTHER_RUN)],
    "read torn": lambda log: read(log, TORN)[1].damage,
    "prompts": lambda log: list(log.replay.prompts(RUN)),
    "events": lambda log: log.replay.events(RUN),
    "summarise": lambda log: log.replay.summarise(RUN),
    "validate": lambda log: log.checks.validate(TORN),
    "state": lambda log: log.states.find(SESSION),
}
#: What leaves out what cannot be read, or says so in its answer.
LISTS: dict[str, Call] = {
    "list": lambda log: log.runs.list(),
    "prune": lambda log: log.runs.prune(ended_before=LATER),
    "history": lambda log: log.replay.history(SESSION),
    "states": lambda log: log.states.list(),
    "reconstruct": lambda log: log.states.reconstruct(SESSION),
}


@with_each("name", READS)
def test_what_cannot_be_read_is_unavailable_and_never_another_answer(filled: RunLog, name: str) -> None:
    """run-log RL-31, RL-34: whichever call of the system fails; the next reading is as ever."""
    call = READS[name]
    expected = call(filled)
    for failure in failures(filled.root, call, lambda _: run_log(filled.root)):
        outcome = failure.outcome
        if name == "tail" and not isinstance(outcome, Exception):
            outcome = outcome.model_copy(update={"live": False})  # whether a writer lives could not be told
        assert isinstance(outcome, BackendUnavailable) or outcome == expected, failure
    assert call(filled) == call(run_log(filled.root)) == expected


def _runs(outcome: Any) -> set[str]:
    return {entry.run_id for entry in outcome} if isinstance(outcome, RunPage) else set(outcome.run_ids)


@with_each("name", ["list", "prune"])
def test_a_log_that_cannot_be_read_is_counted_as_skipped(filled: RunLog, name: str) -> None:
    """run-log RL-62, RL-82: in a list it is missing, and the others are there."""
    call = LISTS[name]
    expected = _runs(call(filled))
    for failure in failures(filled.root, call, lambda _: run_log(filled.root)):
        if not isinstance(failure.outcome, BackendUnavailable):
            missing = expected - _runs(failure.outcome)
            assert len(missing) <= failure.outcome.skipped <= 1, failure


@with_each("name", [*READS, *LISTS])
def test_what_is_taken_away_while_it_is_read_is_an_error_of_the_library(filled: RunLog, name: str) -> None:
    """run-log RL-31, RL-62: or it is left out."""
    call = (READS | LISTS)[name]
    for failure in failures(filled.root, call, lambda _: run_log(filled.root), errno.ENOENT):
        assert isinstance(failure.outcome, StateError) or not isinstance(failure.outcome, Exception), failure


def _append(log: RunLog) -> None:
    with log.runs.reopen(RUN) as writer:
        writer.tool_output("bash", tool_call_id="c", result_raw="late")


WRITES: dict[str, Call] = {
    "start": lambda log: start(log, id_of(7)).close(),
    "append": _append,
    "pack": lambda log: log.runs.pack(RUN),
    "prune": lambda log: log.runs.prune(ended_before=LATER, dry_run=False),
    "put": lambda log: log.states.put(_state(2)),
    "update": lambda log: log.states.update(SESSION, lambda _: _state(2)),
    "set aside": lambda log: log.states.put(_state(2), force=True),
    "clear": lambda log: log.states.clear(SESSION),
    "salvage": lambda log: log.checks.salvage(TORN, to=log.root / "copy"),
}


@with_each("name", WRITES)
def test_what_cannot_be_written_is_told_and_can_be_repeated(tmp_path: Path, name: str) -> None:
    """run-log RL-25, RL-70, RL-82: no lock is held on, nothing half is left, and nothing else is changed."""
    logs: list[RunLog] = []

    def prepared(failing: int) -> RunLog:
        log = run_log(tmp_path / str(failing), sync="end")
        put(log, WHOLE)
        if name == "salvage":
            put(log, dump_line(head(TORN)) + b"{torn\n", TORN, "2026/02/01")
        if name in ("put", "update", "clear"):
            log.states.put(_state(1))
        if name == "set aside":
            path = log.root / "sessions" / "state" / f"{SESSION}.json"
            path.parent.mkdir()
            path.write_bytes(b"{")
        logs.append(log)
        return log

    found = list(failures(tmp_path, WRITES[name], prepared))
    assert found
    for failure, log in zip(found, logs, strict=False):
        raised = isinstance(failure.outcome, Exception)
        assert isinstance(failure.outcome, BackendUnavailable) or not raised, failure
        if failure.call != "unlink":
            assert [left for left in files_below(log.root) if left.endswith(".tmp")] == [], failure
        try:
            WRITES[name](log)
        except AlreadyExists:
            assert name in ("start", "salvage"), failure
        else:
            assert raised or name not in ("start", "salvage"), failure
