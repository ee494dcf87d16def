"""Lists of runs, from their directories and the first lines of their logs."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.each import with_each
from support.run_log.logs import (
    NOW,
    OTHER_RUN,
    OTHER_SESSION,
    RUN,
    SESSION,
    ending,
    event,
    head,
    id_of,
    line,
    put,
    read,
    run_log,
    start,
)

from lastlight_state.codec import dump_line
from lastlight_state.errors import BackendUnavailable, Conflict, InvalidValue, NotFound
from lastlight_state.files.jsonl import files
from lastlight_state.files.run_log import RunLog, SessionState
from lastlight_state.files.run_log.runs import heads
from lastlight_state.files.run_log.tree import RunFile, RunTree, open_run


def _fill(log: RunLog, count: int = 12) -> list[str]:
    """Runs over four days, two of each three in one session; their ids, the newest first."""
    for n in range(count):
        started = f"2026-02-{1 + n % 4:02}T{n:02}:00:00.000Z"
        asked = line("run.start", id_of(n), input={"type": "text", "text": f"ask {n}" * 100})
        session = OTHER_SESSION if n % 3 == 2 else SESSION
        values = [head(id_of(n), session_id=session, started_at=started, model={"name": "m"}), asked]
        put(log, [*values, *([ending() | {"run_id": id_of(n)}] if n % 2 else [])], id_of(n), f"2026/02/{1 + n % 4:02}")
    return [id_of(n) for n in sorted(range(count), key=lambda n: (n % 4, n), reverse=True)]


def test_a_packed_run_is_listed_with_the_beginning_of_an_input_of_any_length(log: RunLog) -> None:
    """run-log RL-82: also of one that is longer than what is usually unpacked for a list."""
    with start(log) as writer:
        writer.run_start("ask" * 200_000)
        writer.end("completed")
    log.runs.pack(RUN)
    [entry] = log.runs.list()
    assert (entry.input_preview, entry.state) == (("ask" * 200_000)[:200], "ended")


@with_each(
    ("given", "preview"),
    [
        ({"type": "text", "text": "go"}, "go"),
        ({"type": "parts", "parts": ["a", {"type": "text", "text": "b"}]}, "ab"),
        ({"type": "parts", "parts": [{"type": "image"}, {"type": "image_url", "text": 5}]}, "[image][image]"),
        ({"type": "parts", "parts": [{"type": "document"}, {"type": "file"}]}, "[document][document]"),
        (
            {"type": "parts", "parts": [{"type": "audio"}, {"type": 5}, {"type": ["file"]}, {}]},
            "[other:audio]" + "[other]" * 3,
        ),
        ({"type": "parts", "parts": [5, None, ["a"]]}, "[other][other][other]"),
        ({"type": "parts", "parts": {}}, None),
        ({"type": "text", "text": 5}, None),
        ("go", None),
        (None, None),
    ],
)
def test_what_a_run_was_asked_is_shown_as_text(tmp_path: Path, given: Any, preview: str | None) -> None:
    """run-log RL-62: what is no text stands as its kind, whoever wrote it."""
    log = run_log(tmp_path)
    put(log, [head(), line("run.start", input=given)])
    assert log.runs.get(RUN).input_preview == preview


def _pages(log: RunLog, limit: int, **given: object) -> list[str]:
    found: list[str] = []
    token = None
    while True:
        page = log.runs.list(limit=limit, page_token=token, **given)  # type: ignore[arg-type]
        found += [entry.run_id for entry in page]
        token = page.next_page_token
        if token is None:
            return found


def test_runs_are_listed_by_their_start_the_newest_first(log: RunLog) -> None:
    """run-log RL-62: with what their first and last lines tell."""
    ids = _fill(log)
    assert [entry.run_id for entry in log.runs.list()] == ids
    assert _pages(log, 1) == _pages(log, 5) == _pages(log, 12) == ids
    entry = log.runs.get(id_of(3))
    assert (entry.session_id, entry.model_name, entry.state, entry.outcome) == (SESSION, "m", "ended", "completed")
    assert entry.input_preview == ("ask 3" * 100)[:200]
    assert entry.path == Path(f"sessions/2026/02/04/{id_of(3)}.jsonl")
    assert entry.size_bytes == (log.root / entry.path).stat().st_size
    assert log.runs.find(RUN) is None
    with pytest.raises(NotFound):
        log.runs.get(RUN)


def test_filters_narrow_the_list(log: RunLog) -> None:
    """run-log RL-62."""
    ids = _fill(log)
    assert _pages(log, 2, session_id=OTHER_SESSION) == [run for run in ids if int(run[:8], 16) % 3 == 2]
    assert _pages(log, 2, state="ended") == [run for run in ids if int(run[:8], 16) % 2]
    assert _pages(log, 2, state="crashed") == [run for run in ids if not int(run[:8], 16) % 2]
    since, until = datetime(2026, 2, 2, 5, tzinfo=UTC), datetime(2026, 2, 3, 6, tzinfo=UTC)
    assert _pages(log, 2, since=since, until=until) == [id_of(n) for n in (2, 9, 5)]
    with pytest.raises(InvalidValue):
        log.runs.list(since=datetime(2026, 2, 2))  # noqa: DTZ001
    with pytest.raises(InvalidValue):
        log.runs.list(state="odd")  # type: ignore[arg-type]
    token = log.runs.list(limit=2).next_page_token
    with pytest.raises(InvalidValue):
        log.runs.list(session_id=SESSION, page_token=token)


def test_a_header_without_a_session_leaves_it_to_the_start(log: RunLog) -> None:
    """run-log RL-62."""
    put(log, [head(), line("run.start", session_id=SESSION, input={"type": "text", "text": "ask"})])
    assert [entry.session_id for entry in log.runs.list(session_id=SESSION)] == [SESSION]


def test_pages_neither_skip_nor_repeat_while_runs_are_added(log: RunLog) -> None:
    """run-log RL-62."""
    ids = _fill(log)
    first = log.runs.list(limit=5)
    put(log, [head(id_of(99), started_at="2026-02-09T00:00:00Z")], id_of(99), "2026/02/09")
    rest = log.runs.list(limit=50, page_token=first.next_page_token)
    assert [entry.run_id for entry in (*first, *rest)] == ids


def test_what_is_not_in_its_place_is_passed_over(log: RunLog, tmp_path: Path) -> None:
    """run-log RL-05."""
    put(log, [head(), event(0)])
    sessions = log.root / "sessions"
    for name in (
        "notes.txt",
        "2026/notes.txt",
        "2026/02/03/notes.txt",
        "2026/02/03/.x.jsonl.tmp",
        "2026/02/03/x.jsonl~",
    ):
        (sessions / name).write_text("{}\n")
    for name in ("2026/1/3", "2026/13/01", "2026/02/31", "26/02/03", "2026/02/03/dir.jsonl", "state/.locks"):
        (sessions / name).mkdir(parents=True)
        (sessions / name / f"{RUN}.jsonl").write_text("{}\n")
    (sessions / "2026/02/03" / f"{id_of(1)}.jsonl").symlink_to(tmp_path / "secret")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / f"{id_of(2)}.jsonl").write_bytes(dump_line(head(id_of(2))))
    (sessions / "2026/02/04").symlink_to(tmp_path / "elsewhere")
    page = log.runs.list()
    assert ([entry.run_id for entry in page], page.skipped) == ([RUN], 0)
    for missing in (id_of(1), id_of(2), "dir"):
        assert log.runs.find(missing) is None


def test_files_in_the_place_of_directories_are_told(log: RunLog) -> None:
    """run-log RL-05, RL-75: a root that was mistaken has not just no runs."""
    sessions = log.root / "sessions"
    sessions.write_text("")
    for call in (log.runs.list, lambda: log.runs.find(RUN), log.states.list):
        with pytest.raises(BackendUnavailable, match="expected a directory, found a regular file"):
            call()
    sessions.unlink()
    sessions.mkdir()
    (sessions / "state").write_text("")
    assert log.runs.list().items == ()
    with pytest.raises(BackendUnavailable, match="expected a directory, found a regular file"):
        log.states.list()


@with_each("error", [OSError(errno.EIO, "Input/output error"), NotADirectoryError(errno.ENOTDIR, "none")])
def test_what_may_be_a_directory_of_days_is_none_only_where_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """run-log RL-05: some file systems list names alone, and their disks may fail when they are asked for more."""
    log = run_log(tmp_path)
    put(log, [head()])
    _fail_at(monkeypatch, "is_dir", error)
    for call in (log.runs.list, lambda: log.runs.find(RUN)):
        if isinstance(error, NotADirectoryError):
            assert not call()
        else:
            with pytest.raises(BackendUnavailable):
                call()


def test_what_may_be_a_log_is_opened(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-62: what cannot be opened then is counted."""
    put(log, [head()])
    put(log, [head(OTHER_RUN)], OTHER_RUN)
    _fail_at(monkeypatch, "is_file", OSError(errno.EIO, "Input/output error"))
    real = files.open_to_read

    def refuse(path: Path, **options: Any) -> int:
        if OTHER_RUN in path.name:
            raise OSError(errno.EIO, "Input/output error")
        return real(path, **options)

    monkeypatch.setattr(files, "open_to_read", refuse)
    page = log.runs.list()
    assert ([entry.run_id for entry in page], page.skipped) == ([RUN], 1)


def _fail_at(monkeypatch: pytest.MonkeyPatch, look: str, error: OSError) -> None:
    """Let this look at an entry of a directory fail."""
    scandir = os.scandir

    def fail(**_options: object) -> bool:
        raise error

    @contextmanager
    def listed(path: Path) -> Iterator[list[Any]]:
        with scandir(path) as entries:
            looks = ("name", "path", "inode", "is_dir", "is_file")
            yield [
                SimpleNamespace(**{name: getattr(entry, name) for name in looks} | {look: fail}) for entry in entries
            ]

    monkeypatch.setattr(os, "scandir", listed)


def test_a_link_to_a_log_is_no_log(log: RunLog) -> None:
    """run-log RL-05: nor one to a snapshot, or to a directory of logs."""
    path = put(log, [head()])
    path.with_name(f"{id_of(1)}.jsonl").symlink_to(path)
    (path.parents[1] / "04").symlink_to(path.parent)
    log.states.put(SessionState(session_id=SESSION, messages=()))
    states = log.root / "sessions" / "state"
    (states / f"{OTHER_SESSION}.json").symlink_to(states / f"{SESSION}.json")
    page = log.runs.list()
    assert ([(entry.run_id, entry.path.parent.name) for entry in page], page.skipped) == ([(RUN, "03")], 0)
    assert log.runs.find(id_of(1)) is None
    assert [entry.session_id for entry in log.states.list()] == [SESSION]


def test_an_id_may_be_as_long_as_names_of_its_files_can_be(log: RunLog) -> None:
    """run-log RL-02."""
    longest = "r" * 215
    put(log, [head(longest)], longest)
    assert [entry.run_id for entry in log.runs.list()] == [longest]
    assert log.runs.get(longest).run_id == longest
    put(log, [head(longest + "r")], longest + "r")
    assert len(log.runs.list()) == 1
    with pytest.raises(InvalidValue):
        log.runs.find(longest + "r")


def test_a_run_is_found_in_the_newest_of_its_days(log: RunLog) -> None:
    """run-log RL-05, RL-06."""
    for day in ("2026/02/03", "2026/02/05", "2025/12/31"):
        put(log, [head()], day=day)
    assert log.runs.path(RUN) == log.root / "sessions" / "2026/02/05" / f"{RUN}.jsonl"


def test_first_lines_are_read_once(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-85."""
    _fill(log)
    opened: list[str] = []

    def counted(file: RunFile, most: int | None = None) -> int:
        opened.append(file.run_id)
        return open_run(file, most)

    monkeypatch.setattr(heads, "open_run", counted)
    newest_day, page = 3, 2
    for expected in (newest_day + page, page):
        log.runs.list(limit=page)
        assert len(opened) == expected
        opened.clear()


def test_as_many_first_lines_are_remembered_as_there_is_room_for(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-85: a list of more runs is as whole as before."""
    monkeypatch.setattr(heads, "_KEPT", 2)
    expected = _fill(log)
    for run_id in expected[:6]:
        with suppress(Conflict):
            log.runs.pack(run_id)
    tree = RunTree(log.root)
    kept = heads.Heads(tree)
    for day, directory in tree.days():
        for file in tree.runs_of(day, directory):
            assert kept.entry(file) == kept.entry(file)
            assert max(len(kept._known), len(kept._packed)) <= 2
    assert len(kept._packed) > 0
    assert [entry.run_id for entry in log.runs.list(limit=50)] == expected


def test_an_existing_root_is_used_as_it_is(log: RunLog) -> None:
    """run-log RL-01: logs of the original are listed, read and continued."""
    path = put(log, [head(), event(0)])
    with log.runs.reopen(RUN) as writer:
        writer.end("completed")
    assert log.runs.list().items[0].state == "ended"
    assert path.read_bytes().startswith(dump_line(head()) + dump_line(event(0)))
    with start(log, id_of(1)):
        pass
    assert [entry.run_id for entry in log.runs.list()] == [RUN, id_of(1)]
    assert read(log)[1].started_at == NOW


def test_what_a_run_was_asked_is_shown_once_it_is_written(log: RunLog) -> None:
    """run-log RL-62, RL-85: a list that came before the start of the run does not hold it back."""
    with start(log) as writer:
        assert log.runs.get(RUN).input_preview is None
        writer.run_start("go")
        assert log.runs.get(RUN).input_preview == "go"


@with_each("day", ["2026/02/02", "2026/02/05"])
def test_days_outside_the_times_asked_for_are_not_looked_at(tmp_path: Path, day: str) -> None:
    """run-log RL-62: not even for a run that stands in the directory of another day than that of its start."""
    log = run_log(tmp_path)
    put(log, [head()])
    put(log, [head(id_of(1))], id_of(1), day)
    given = {"since": datetime(2026, 2, 3, tzinfo=UTC), "until": datetime(2026, 2, 4, tzinfo=UTC)}
    assert _pages(log, 5) == [RUN, id_of(1)][:: 1 if day.endswith("02") else -1]
    assert _pages(log, 5, **given) == [RUN]


def test_what_a_run_tells_later_is_listed(log: RunLog) -> None:
    """run-log RL-85, RL-62: a list before looked at its header alone."""
    told = [head(session_id=SESSION, model={"name": "m"}), line("run.start", input={"type": "text", "text": "ask"})]
    first, second = told
    path = put(log, [first])
    log.runs.list()
    path.write_bytes(dump_line(first) + dump_line(second))
    [entry] = log.runs.list()
    assert (entry.session_id, entry.model_name, entry.input_preview) == (SESSION, "m", "ask")


@with_each(
    ("last", "state"),
    [
        (event(0), "crashed"),
        (line("run.error", error={"name": "E", "message": "m"}), "crashed"),
        ({"type": 5}, "crashed"),
        (line("tool.output", tool="t", tool_call_id="c", result_raw=""), "ended"),
        (line("x.org.mine"), "ended"),
    ],
)
def test_only_late_outputs_and_records_of_others_stand_behind_an_end(tmp_path: Path, last: Any, state: str) -> None:
    """run-log RL-34: a run that goes on behind its end has none."""
    log = run_log(tmp_path)
    put(log, [head(), ending(), last])
    [entry] = log.runs.list()
    assert entry.state == state


def test_days_outside_of_the_asked_time_are_not_looked_at(log: RunLog) -> None:
    """run-log RL-85, RL-62: a log that somebody has put into another day is looked for there alone."""
    for n, day in enumerate(("2026/02/01", "2026/02/02", "2026/02/03")):
        put(log, [head(id_of(n), started_at=f"2026-02-02T12:0{n}:00Z")], id_of(n), day)
    since, until = datetime(2026, 2, 2, tzinfo=UTC), datetime(2026, 2, 2, 23, tzinfo=UTC)
    assert [entry.run_id for entry in log.runs.list(since=since)] == [id_of(2), id_of(1)]
    assert [entry.run_id for entry in log.runs.list(until=until)] == [id_of(1), id_of(0)]


def test_a_directory_that_is_no_day_holds_no_runs(log: RunLog) -> None:
    """run-log RL-05: a day has four digits and two times two."""
    for n, day in enumerate(("2026/2/3", "2026/02/3", "+2026/02/03", "02026/02/03")):
        put(log, [head(id_of(n))], id_of(n), day)
    assert log.runs.list().items == ()


def test_damage_at_the_end_of_a_tail_is_told_once(log: RunLog) -> None:
    """run-log RL-33: the next look begins behind it."""
    path = put(log, dump_line(head()) + dump_line(event(0)) + b"noise\n")
    chunk = log.runs.tail(RUN)
    assert ([damage.reason for damage in chunk.damage], chunk.at_end) == (["bad_json"], True)
    again = log.runs.tail(RUN, after=chunk.cursor)
    assert (again.records, again.damage) == ((), ())
    path.write_bytes(path.read_bytes() + dump_line(event(1)))
    assert [record.type for record in log.runs.tail(RUN, after=chunk.cursor).records] == ["agent.event"]
