"""Several processes, and processes that are killed: what was returned is there, and nobody is blocked."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from support.run_log.killed import STEPS, ended, forked, killed_at
from support.run_log.logs import RUN, SESSION, files_below, id_of, kinds, read, run_log, start

from lastlight_state.errors import AlreadyExists, LostRace
from lastlight_state.files.run_log import RunLog, SessionState


def test_what_a_killed_writer_was_told_is_there_and_its_run_is_free(log: RunLog) -> None:
    """run-log RL-24, RL-34."""
    told, tells = os.pipe()

    def write() -> None:
        writer = start(log)
        while True:
            writer.event({"text": "x" * 500})
            os.write(tells, b".")

    child = forked(write)
    os.close(tells)
    count = 0
    while count < 200:
        count += len(os.read(told, 64))
    assert log.runs.get(RUN).state == "running"
    with pytest.raises(LostRace):
        log.runs.reopen(RUN)
    os.kill(child, signal.SIGKILL)
    assert ended(child) == -signal.SIGKILL
    while part := os.read(told, 65536):
        count += len(part)
    os.close(told)
    assert log.runs.get(RUN).state == "crashed"
    records, reading = read(log)
    assert len(records) - 1 >= count
    assert [record.seq for record in records[1:]] == list(range(len(records) - 1))  # type: ignore[union-attr]
    assert reading.damage_count <= 1
    assert len(log.replay.events(RUN)) == len(records) - 1
    with log.runs.reopen(RUN) as writer:
        assert writer.event({}) == len(records) - 1


@pytest.mark.slow
def test_a_start_that_is_killed_leaves_a_whole_header_or_no_file(tmp_path: Path) -> None:
    """run-log RL-20."""
    outcomes = set()
    for step in STEPS:
        log = run_log(tmp_path / str(step))
        outcomes.add((killed_at(step, lambda log=log: start(log)), log.runs.find(RUN) is not None))  # type: ignore[misc]
        if log.runs.find(RUN) is None:
            start(log).close()
        records, reading = read(log)
        assert (kinds(records), reading.damage_count, log.runs.get(RUN).state) == (["header"], 0, "crashed")
        log.runs.reopen(RUN).close()
    assert outcomes == {(-signal.SIGKILL, False), (-signal.SIGKILL, True), (0, True)}


@pytest.mark.slow
def test_a_save_that_is_killed_leaves_the_old_state_or_the_new_one(log: RunLog) -> None:
    """run-log RL-70."""
    outcomes = set()
    for step in STEPS:
        old, new = 2 * step, 2 * step + 1
        log.states.put(SessionState(session_id=SESSION, messages=({"n": old},), invoke_seq=old))
        state = SessionState(session_id=SESSION, messages=({"n": new},) * 99, invoke_seq=new)
        code = killed_at(step, lambda state=state: log.states.put(state))  # type: ignore[misc]
        found = log.states.get(SESSION)
        assert (found.invoke_seq, len(found.messages)) in ((old, 1), (new, 99))
        outcomes.add((code, found.invoke_seq == new))
    assert outcomes == {(-signal.SIGKILL, False), (-signal.SIGKILL, True), (0, True)}
    assert files_below(log.root) == [f"sessions/state/{SESSION}.json"]


def test_of_many_processes_that_start_a_run_one_does(log: RunLog) -> None:
    """run-log RL-20, RL-22."""
    waits, goes = os.pipe()

    def compete() -> None:
        os.close(goes)
        os.read(waits, 1)
        try:
            with start(log) as writer:
                writer.event({"pid": os.getpid()})
        except AlreadyExists:
            os._exit(3)

    children = [forked(compete) for _ in range(8)]
    os.close(goes)
    assert sorted(ended(child) for child in children) == [0, *[3] * 7]
    os.close(waits)
    assert len(read(log)[0]) == 2


def test_saves_of_two_processes_never_go_back_and_are_never_mixed(log: RunLog) -> None:
    """run-log RL-71, RL-73, case 40: updates of several processes lose nothing of one another."""
    log.states.put(SessionState(session_id=SESSION, messages=(), invoke_seq=0, meta={}))
    count, each = 3, 20

    def save(name: int) -> None:
        for n in range(each):

            def change(stored: SessionState, key: str = f"{name}-{n}") -> SessionState:
                seq = (stored.invoke_seq or 0) + 1
                meta = {**(stored.meta or {}), key: seq}
                return stored.model_copy(update={"meta": meta, "invoke_seq": seq, "messages": ({"seq": seq},)})

            log.states.update(SESSION, change)

    children = [forked(lambda name=name: save(name)) for name in range(count)]  # type: ignore[misc]
    seen: list[SessionState] = []
    while not seen or seen[-1].invoke_seq != count * each:
        seen.append(log.states.get(SESSION))
        if os.waitid(os.P_PID, children[0], os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
    assert [ended(child) for child in children] == [0] * count
    found = log.states.get(SESSION)
    assert (found.invoke_seq, len(found.meta or {})) == (count * each, count * each)
    numbers = [one.invoke_seq or 0 for one in seen]
    assert numbers == sorted(numbers)
    assert all(one.messages == (({"seq": one.invoke_seq},) if one.invoke_seq else ()) for one in seen)


def test_a_reader_beside_writers_gets_whole_records_in_order(log: RunLog) -> None:
    """run-log RL-37."""
    runs = [id_of(n) for n in range(2)]

    def write(run_id: str) -> None:
        with start(log, run_id) as writer:
            for n in range(300):
                writer.event({"text": "x" * (n * 7 % 900)})

    threads = [threading.Thread(target=write, args=(run_id,)) for run_id in runs]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for entry in log.runs.list():
            records, reading = read(log, entry.run_id)
            assert [record.seq for record in records[1:]] == list(range(len(records) - 1))  # type: ignore[union-attr]
            assert reading.damage_count == 0 or reading.torn
    for thread in threads:
        thread.join()
    assert [len(read(log, run_id)[0]) for run_id in runs] == [301, 301]


def test_a_forked_child_is_no_writer_and_frees_nothing(log: RunLog) -> None:
    """run-log RL-22."""
    with start(log) as writer:

        def write() -> None:
            assert log.runs.get(RUN).state == "running"
            writer.event({})

        assert ended(forked(write)) == 1
        assert ended(forked(writer.close)) == 0
        assert log.runs.get(RUN).state == "running"
        writer.event({})
    assert len(read(log)[0]) == 2
