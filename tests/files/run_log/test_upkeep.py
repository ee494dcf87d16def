"""Packing logs and removing them: what has ended, and nothing else."""

from __future__ import annotations

import gzip
import random
import signal
import zlib
from datetime import timedelta
from pathlib import Path

import pytest
from support.each import with_each
from support.jsonl.lines import counted
from support.run_log.killed import STEPS, killed_at
from support.run_log.logs import (
    NOW,
    OTHER_RUN,
    OTHER_SESSION,
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
from lastlight_state.errors import AlreadyExists, BackendUnavailable, Conflict, InvalidValue, NotFound
from lastlight_state.files.jsonl import files as jsonl_files
from lastlight_state.files.run_log import RunLog, storage

WHOLE = [
    head(session_id=SESSION),
    line("run.start", input={"type": "text", "text": "go"}),
    request(1, "a"),
    response(1),
]
LATER = NOW + timedelta(seconds=1)


def _ended(log: RunLog, run_id: str = RUN, session_id: str = SESSION) -> Path:
    values = [head(run_id, session_id=session_id), *WHOLE[1:], *map(event, range(50)), ending()]
    return put(log, [value | {"run_id": run_id} for value in values], run_id)


def _seen(log: RunLog) -> list[object]:
    """What every reader says of the run."""
    records, reading = read(log)
    entry = log.runs.get(RUN).model_dump()
    return [
        [record.raw for record in records],
        reading.counts,
        {**entry, "path": None},
        log.runs.list(session_id=SESSION).items[0].run_id,
        list(log.replay.prompts(RUN)),
        log.replay.events(RUN),
        log.replay.history(SESSION),
        log.replay.summarise(RUN),
        log.runs.tail(RUN).records,
        log.checks.validate(RUN).counts,
        log.checks.validate(log.runs.path(RUN)).ok,
    ]


def test_a_packed_run_reads_as_before(log: RunLog) -> None:
    """run-log RL-82, RL-05: by a log that knew it, and by one that did not."""
    plain = _ended(log)
    data, before = plain.read_bytes(), _seen(log)
    assert log.runs.pack(RUN) is True
    assert log.runs.pack(RUN) is False
    assert files_below(log.root) == [f"sessions/2026/02/03/{RUN}.jsonl.gz"]
    assert log.runs.path(RUN).stat().st_mode & 0o777 == 0o600
    assert gzip.decompress(log.runs.path(RUN).read_bytes()) == data
    assert _seen(log) == _seen(log) == _seen(run_log(log.root)) == before


def test_a_plain_log_wins_over_its_packed_copy(log: RunLog) -> None:
    """run-log RL-05: as a packing leaves it that was killed before its last step; the next one finishes it."""
    plain = _ended(log)
    plain.with_name(plain.name + ".gz").write_bytes(b"half")
    plain.with_name(f".{plain.name}.gz.0123.tmp").write_bytes(b"half")
    assert log.runs.path(RUN) == plain
    assert [entry.path.name for entry in log.runs.list()] == [plain.name]
    assert log.runs.pack(RUN) is True
    assert files_below(log.root) == [f"sessions/2026/02/03/{RUN}.jsonl.gz"]


def test_a_run_that_may_go_on_is_not_packed(log: RunLog) -> None:
    """run-log RL-82: a living writer, no end; nothing is left behind."""
    with start(log) as writer:
        writer.end("completed")
        with pytest.raises(Conflict, match="is being written"):
            log.runs.pack(RUN)
    put(log, WHOLE, OTHER_RUN)
    with pytest.raises(Conflict, match="has not ended"):
        log.runs.pack(OTHER_RUN)
    with pytest.raises(NotFound):
        log.runs.pack(id_of(1))
    assert files_below(log.root) == [f"sessions/2026/02/03/{run}.jsonl" for run in (RUN, OTHER_RUN)]


def test_a_packed_run_is_neither_continued_nor_started_again(log: RunLog) -> None:
    """run-log RL-21, RL-20, RL-51."""
    _ended(log)
    log.runs.pack(RUN)
    with pytest.raises(Conflict, match="is packed"):
        log.runs.reopen(RUN)
    with pytest.raises(AlreadyExists):
        start(log)
    with pytest.raises(Conflict, match="is packed"):
        log.checks.salvage(RUN, to=log.root / "copy")
    assert files_below(log.root) == [f"sessions/2026/02/03/{RUN}.jsonl.gz"]


@with_each("cut", [0, 5, 60, -1, -9])
def test_a_damaged_gzip_reads_as_a_log_that_is_torn(tmp_path: Path, cut: int) -> None:
    """run-log RL-31: no content makes a reading raise, and none is lost without a word."""
    log = run_log(tmp_path)
    _ended(log)
    whole, _ = read(log)
    log.runs.pack(RUN)
    path = log.runs.path(RUN)
    path.write_bytes(path.read_bytes()[:cut])
    records, reading = read(log)
    assert records == whole[: len(records)]
    assert reading.torn
    assert reading.damage_count == 1
    assert log.runs.get(RUN).run_id == RUN


def test_a_gzip_with_a_changed_byte_reads_as_a_log_that_is_torn(log: RunLog) -> None:
    """run-log RL-31: the first block behind the header then says that it is of a kind that there is not."""
    _ended(log)
    log.runs.pack(RUN)
    path = log.runs.path(RUN)
    data = bytearray(path.read_bytes())
    data[10] = 0x07
    path.write_bytes(data)
    records, reading = read(log)
    assert (records, reading.torn, reading.damage_count) == ([], True, 1)


def test_what_stands_behind_a_whole_gzip_and_is_none_reads_as_a_torn_end(log: RunLog) -> None:
    """run-log RL-31: another program appended to it."""
    _ended(log)
    whole, _ = read(log)
    log.runs.pack(RUN)
    with log.runs.path(RUN).open("ab") as file:
        file.write(b'{"type":"event"}\n')
    records, reading = read(log)
    assert (records, reading.torn, reading.damage_count) == (whole, True, 1)


def test_a_gzip_that_was_cut_behind_a_whole_line_reads_as_torn(log: RunLog) -> None:
    """run-log RL-31: what could be read looks like a log that is whole."""
    data = _ended(log).read_bytes()
    whole, _ = read(log)
    log.runs.pack(RUN)
    half = data[: data.index(b"\n", len(data) // 2) + 1]
    compressor = zlib.compressobj(wbits=31)
    log.runs.path(RUN).write_bytes(compressor.compress(half) + compressor.flush(zlib.Z_SYNC_FLUSH))
    records, reading = read(log)
    assert (records, reading.torn, reading.size) == (whole[: half.count(b"\n")], True, len(half) + 1)


def test_a_long_gzip_that_was_cut_reads_up_to_there(log: RunLog) -> None:
    """run-log RL-31: nothing is lost that its compressed bytes still tell."""
    noise = random.Random(1)
    values = [head(), *(event(seq) for seq in range(700)), ending()]
    sizes = [1024 - len(dump_line({**value, "note": ""})) for value in values]
    notes = [noise.randbytes(size // 2).hex().ljust(size) for size in sizes]
    put(log, [{**value, "note": note} for value, note in zip(values, notes, strict=True)])
    whole, _ = read(log)
    log.runs.pack(RUN)
    path = log.runs.path(RUN)
    path.write_bytes(path.read_bytes()[:-5])
    told = zlib.decompressobj(wbits=31).decompress(path.read_bytes())
    records, reading = read(log)
    assert records == whole[: told.count(b"\n")]
    assert (reading.torn, reading.size) == (True, len(told) + 1)


def test_what_does_not_read_back_is_not_packed(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-82: a disk that lies costs nothing."""
    plain = _ended(log)
    data = plain.read_bytes()
    monkeypatch.setattr(storage, "is_same", lambda *_: False)
    with pytest.raises(BackendUnavailable, match="does not read back"):
        log.runs.pack(RUN)
    assert files_below(log.root) == [f"sessions/2026/02/03/{RUN}.jsonl"]
    assert plain.read_bytes() == data


@pytest.mark.slow
def test_a_packing_that_is_killed_leaves_a_whole_log(tmp_path: Path) -> None:
    """run-log RL-82: at each system call; the next packing finishes and cleans up."""
    outcomes = set()
    for step in STEPS:
        log = run_log(tmp_path / str(step))
        _ended(log)
        records, _ = read(log)
        code = killed_at(step, lambda log=log: log.runs.pack(RUN))  # type: ignore[misc]
        assert read(log)[0] == records
        outcomes.add((code, log.runs.pack(RUN)))
        assert [name for name in files_below(log.root) if "2026" in name] == [f"sessions/2026/02/03/{RUN}.jsonl.gz"]
        assert read(log)[0] == records
    assert outcomes == {(-signal.SIGKILL, True), (-signal.SIGKILL, False), (0, False)}


def test_ended_runs_are_removed_by_the_age_of_their_last_record(log: RunLog) -> None:
    """run-log RL-82: packed or plain; a dry run tells the same and removes nothing."""
    files = [_ended(log, id_of(n), SESSION if n < 2 else OTHER_SESSION) for n in range(3)]
    log.runs.pack(id_of(0))
    open_one = put(log, WHOLE, OTHER_RUN)
    before = files_below(log.root)
    assert log.runs.prune(ended_before=NOW, dry_run=False).run_ids == ()
    told = log.runs.prune(ended_before=LATER, session_id=SESSION)
    assert (set(told.run_ids), told.skipped, told.dry_run) == ({id_of(0), id_of(1)}, 0, True)
    assert files_below(log.root) == before
    size = log.runs.path(id_of(0)).stat().st_size + files[1].stat().st_size
    done = log.runs.prune(ended_before=LATER, session_id=SESSION, dry_run=False)
    assert (done.run_ids, done.size_bytes, done.dry_run) == (told.run_ids, size, False)
    assert sorted(log.root / name for name in files_below(log.root)) == sorted([files[2], open_one])
    assert log.runs.prune(ended_before=LATER, dry_run=False).run_ids == (id_of(2),)
    assert log.runs.find(id_of(2)) is None


def test_the_directory_of_what_is_packed_or_removed_is_brought_to_disk(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-log RL-82: a packed log before the plain one goes, and what is gone stays gone."""
    for number in range(2):
        _ended(log, id_of(number))
    synced = counted(monkeypatch, jsonl_files, "sync")
    log.runs.pack(id_of(0))
    assert len(synced) == 2
    assert log.runs.prune(ended_before=LATER, dry_run=False).skipped == 0
    assert len(synced) == 4


def test_a_run_that_is_written_is_not_removed(log: RunLog) -> None:
    """run-log RL-82: late records may still come."""
    with start(log) as writer:
        writer.end("completed")
        done = log.runs.prune(ended_before=LATER, dry_run=False)
        assert (done.run_ids, done.skipped) == ((), 1)
        writer.tool_output("bash", tool_call_id="c", result_raw="late")
    assert log.runs.prune(ended_before=LATER, dry_run=False).run_ids == (RUN,)


def test_a_time_without_zone_and_a_flag_that_is_none_are_refused(log: RunLog) -> None:
    """run-log RL-82."""
    with pytest.raises(InvalidValue):
        log.runs.prune(ended_before=NOW.replace(tzinfo=None))
    with pytest.raises(InvalidValue):
        log.runs.prune(ended_before=NOW, dry_run="no")  # type: ignore[arg-type]


def test_a_link_is_not_followed(log: RunLog, tmp_path: Path) -> None:
    """run-log RL-82, RL-04."""
    plain = _ended(log)
    log.runs.pack(RUN)
    gz = plain.with_name(plain.name + ".gz")
    gz.rename(tmp_path / "elsewhere.gz")
    gz.symlink_to(tmp_path / "elsewhere.gz")
    with pytest.raises(NotFound):
        log.runs.get(RUN)


def test_a_packing_removes_what_is_left_of_its_own_run_alone(log: RunLog) -> None:
    """run-log RL-82."""
    directory = _ended(log).parent
    kept = [f".{OTHER_RUN}.jsonl.gz.0a0b.tmp", f".{RUN}.jsonl.gz.0a0b.bak", f".{RUN}.json.0a0b.tmp"]
    for name in (*kept, f".{RUN}.jsonl.gz.0a0b.tmp"):
        (directory / name).touch()
    assert log.runs.pack(RUN)
    assert sorted(path.name for path in directory.iterdir()) == sorted([*kept, f"{RUN}.jsonl.gz"])


def test_an_ended_run_whose_last_time_cannot_be_read_is_kept(log: RunLog) -> None:
    """run-log RL-82: nobody knows its age."""
    put(log, [head(), ending() | {"ts": "yesterday"}])
    put(log, [head(OTHER_RUN), ending() | {"run_id": OTHER_RUN}], OTHER_RUN)
    assert log.runs.prune(ended_before=LATER, dry_run=False).run_ids == (OTHER_RUN,)
    assert log.runs.get(RUN).state == "ended"


def test_packing_removes_its_own_leftovers_alone(log: RunLog) -> None:
    """run-log RL-82: not those of another run, nor what somebody put there."""
    folder = put(log, [*WHOLE, ending()]).parent
    own, *others = (
        f".{name}" for name in (f"{RUN}.jsonl.gz.x.tmp", f"{OTHER_RUN}.jsonl.gz.x.tmp", f"{RUN}.jsonl.gz.mine")
    )
    for name in (own, *others):
        (folder / name).write_bytes(b"x")
    log.runs.pack(RUN)
    assert {path.name for path in folder.iterdir()} == {f"{RUN}.jsonl.gz", *others}


@with_each("last", [{"type": "run.end", "run_id": RUN, "outcome": "completed"}, ending() | {"ts": "soon"}, event(0)])
def test_a_run_that_ended_at_no_known_time_is_not_removed(tmp_path: Path, last: dict[str, object]) -> None:
    """run-log RL-82: nor one that has not ended."""
    log = run_log(tmp_path)
    put(log, [*WHOLE, last])
    assert log.runs.prune(ended_before=NOW + timedelta(days=999), dry_run=False).run_ids == ()
    assert [entry.run_id for entry in log.runs.list()] == [RUN]
