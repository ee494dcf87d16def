"""SessionWriter: which file, which prompt, what a failure leaves, and what can be repeated."""

from __future__ import annotations

import errno
import logging
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from files.jsonl.test_writer import hold_and_stop
from support.agent_log.logs import (
    AT,
    NOW_TEXT,
    SANDBOX,
    SESSION,
    agent_log,
    call,
    contents_below,
    ended,
    events,
    lines_of,
    path_of,
    said,
    snapshot,
    text,
    written,
)
from support.each import with_each
from support.jsonl.lines import SPAWN, child, counted

from lastlight_state.errors import (
    BackendBusy,
    BackendUnavailable,
    InvalidValue,
    PayloadTooLarge,
    StoreClosed,
    UnsafePath,
)
from lastlight_state.files.agent_log import AgentLog, Cwd, Outcome, Slug, TranslationOptions

FIRST_EVENT = TranslationOptions(prompt="first_event")


def prompt_line(at: str, words: str = "go", session_id: str = "s-1") -> dict[str, Any]:
    message = {"role": "user", "content": words}
    return {"type": "user", "message": message, "timestamp": at, "sessionId": session_id}


# ---- the prompt and the file ---------------------------------------------------------------------------------------


def test_a_session_event_writes_exactly_the_prompt(log: AgentLog) -> None:
    """agent-log L-60, case 16: with the event's time, where the agent works."""
    with log.writer.open(prompt="go") as writer:
        assert (writer.session_id, writer.slug, writer.path) == (None, None, None)
        assert writer.feed(SESSION) == 1
        assert (writer.session_id, writer.slug) == ("s-1", "-home-agent-workspace")
        assert written(writer) == [prompt_line(AT)]
        assert writer.feed(SESSION) == 0


def test_a_prompt_for_the_first_event_waits_for_it(log: AgentLog, tmp_path: Path) -> None:
    """agent-log L-60, case 16: no file before the first later event that tells its session, also if it has no line."""
    with log.writer.open(prompt="go", options=FIRST_EVENT) as writer:
        assert writer.feed(SESSION) == 0
        assert writer.feed({"type": "turn_start"}) == 0
        assert contents_below(tmp_path) == []
        later = "2026-02-03T12:00:02.000Z"
        assert writer.feed({"type": "turn_start", "sessionId": "s-1", "timestamp": later}) == 1
        assert written(writer) == [prompt_line(later)]


@with_each("options", [TranslationOptions(), FIRST_EVENT])
def test_a_writer_closed_without_a_line_writes_its_prompt(tmp_path: Path, options: TranslationOptions) -> None:
    """agent-log L-60, case 16: if it knows its session and place, also when its block raised."""
    log = agent_log(tmp_path)
    with (
        suppress(RuntimeError),
        log.writer.open(place=Slug("p"), session_id="s-1", prompt="go", options=options) as writer,
    ):
        raise RuntimeError("the agent did not start")
    assert [line["message"]["content"] for line in written(writer)] == ["go"]
    writer.close()
    assert (len(written(writer)), writer.lines_written) == (1, 1)
    with (
        log.writer.open(place=Slug("q"), prompt="go") as unknown,
        log.writer.open(session_id="s-1", prompt="go") as lost,
    ):
        pass
    assert (unknown.lines_written, lost.lines_written) == (0, 0)


def test_a_prompt_that_cannot_be_written_at_the_end_is_an_error_and_leaves_no_file_open(log: AgentLog) -> None:
    """agent-log L-60: or it is counted, where the writer reports."""
    path_of(log, "s-1", slug="p").mkdir(parents=True)
    given: dict[str, Any] = {"place": Slug("p"), "session_id": "s-1", "prompt": "go"}
    writer = log.writer.open(**given)
    with pytest.raises(BackendUnavailable):
        writer.close()
    with pytest.raises(StoreClosed):
        writer.feed(SESSION)
    with log.writer.open(**given, on_error="report") as reporting:
        pass
    assert reporting.failed_appends == 1


def test_without_a_prompt_none_is_written(log: AgentLog) -> None:
    """agent-log L-60."""
    with log.writer.open() as writer:
        writer.feed_many([SESSION, said(text("hi"))])
        assert [line["type"] for line in written(writer)] == ["assistant"]


def test_a_re_entered_session_gets_its_prompt_behind_what_is_there(log: AgentLog) -> None:
    """agent-log L-1, L-60: each chat turn has its own prompt, and old bytes stay."""
    for turn in ("one", "two"):
        before = path_of(log, slug="-app").read_bytes() if turn == "two" else b""
        with log.writer.open(place=Cwd("/app"), prompt=turn) as writer:
            writer.feed_many([SESSION, said(text("hi"))])
        assert path_of(log, slug="-app").read_bytes().startswith(before)
    lines = lines_of(path_of(log, slug="-app"))
    assert [line["message"]["content"] for line in lines[::2]] == ["one", "two"]


def test_a_given_place_beats_the_one_the_event_tells(log: AgentLog) -> None:
    """agent-log L-60."""
    with log.writer.open(place=Slug("given"), prompt="go") as writer:
        writer.feed(SESSION)
        assert writer.slug == "given"


def test_without_any_place_a_line_is_refused(log: AgentLog, tmp_path: Path) -> None:
    """agent-log L-137: and the same event can be fed again when the place is known."""
    with log.writer.open(session_id="s-1", prompt="go") as writer:
        for attempt in (lambda: writer.feed(said(text("hi"))), lambda: writer.finish(Outcome())):
            with pytest.raises(InvalidValue) as caught:
                attempt()
            assert caught.value.where == "place"
        assert contents_below(tmp_path) == []
        writer.feed_many([SESSION, said(text("hi"))])
        assert [line["type"] for line in written(writer)] == ["user", "assistant"]


def test_a_place_that_comes_late_in_the_same_call_is_in_time(log: AgentLog) -> None:
    """agent-log L-137."""
    with log.writer.open(prompt="go") as writer:
        assert writer.feed_many([{**said(text("hi")), "sessionId": "s-1"}, SESSION]) == 2
        assert writer.slug == "-home-agent-workspace"


def test_events_without_an_id_belong_to_the_pinned_session(log: AgentLog) -> None:
    """agent-log L-61: an event's own id is what its envelope says."""
    with log.writer.open(prompt="go") as writer:
        writer.feed_many([SESSION, said(text("a")), {**said(text("b")), "sessionId": "s-2"}])
        assert [line["sessionId"] for line in written(writer)] == ["s-1", "s-1", "s-2"]


def test_the_first_event_that_tells_its_session_pins_it(log: AgentLog) -> None:
    """agent-log L-61: what came before is counted, and the prompt precedes the first line."""
    with log.writer.open(place=SANDBOX, prompt="go") as writer:
        assert writer.feed_many([said(text("lost")), {"type": "turn_start", "sessionId": ""}]) == 0
        assert writer.feed({"type": "turn_start", "sessionId": "s-1", "timestamp": AT}) == 0
        assert writer.ignored == {"message_end": 1, "turn_start": 2}
        assert writer.feed(said(text("hi"), at="2026-02-03T12:00:05.000Z")) == 2
        assert written(writer)[0] == prompt_line("2026-02-03T12:00:05.000Z")


def test_an_unsafe_session_event_changes_nothing(log: AgentLog) -> None:
    """agent-log L-61."""
    with log.writer.open(prompt="go") as writer:
        writer.feed(SESSION)
        before = path_of(log).read_bytes()
        with pytest.raises(UnsafePath):
            writer.feed_many([said(text("hi")), {**SESSION, "id": "../x"}])
        assert path_of(log).read_bytes() == before
        assert writer.session_id == "s-1"
        assert writer.feed(said(text("hi"))) == 1


def test_a_second_session_has_its_lines_and_its_prompt_in_its_own_file(log: AgentLog) -> None:
    """agent-log L-62: with totals of its own; and back again without a second prompt."""
    other = {**SESSION, "id": "s-2", "cwd": None}
    with log.writer.open(prompt="go") as writer:
        stream = [SESSION, said(text("a"), usage={"input": 5}), other, said(text("b")), snapshot(tokens={"input": 1})]
        assert writer.feed_many(stream) == 5
        assert writer.path == path_of(log, "s-2")
        writer.feed_many([SESSION, said(text("c"))])
    assert [line["message"]["content"] for line in lines_of(path_of(log))] == ["go", [text("a")], [text("c")]]
    second = lines_of(path_of(log, "s-2"))
    assert [line["type"] for line in second] == ["user", "assistant", "result"]
    assert second[2]["total_input_tokens"] == 1


def test_many_events_are_one_write_for_each_file(log: AgentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-138, L-21."""
    with log.writer.open(prompt="go", sync="os") as writer:
        calls = counted(monkeypatch, os, "write")
        writer.feed_many([SESSION, said(text("a")), said(text("b")), {**SESSION, "id": "s-2"}, said(text("c"))])
        assert calls == ["write", "write"]


# ---- append, finish, close -----------------------------------------------------------------------------------------


def test_lines_can_be_appended_as_they_are(log: AgentLog) -> None:
    """agent-log L-81: unknown types and role lines, behind the prompt."""
    given: list[dict[str, Any]] = [{"type": "from-the-future", "x": 1.0}, {"role": "system", "content": "note"}]
    with log.writer.open(place=SANDBOX, session_id="s-1", prompt="go") as writer:
        assert writer.append([]) == 0
        assert writer.append(given) == 3
        assert written(writer) == [prompt_line(NOW_TEXT), *given]


@with_each("bad", [{}, {"type": 5}, {"content": "x"}, [], "x", None])
def test_what_has_neither_type_nor_role_is_refused_and_nothing_written(log: AgentLog, tmp_path: Path, bad: Any) -> None:
    """agent-log L-81."""
    with log.writer.open(place=SANDBOX, session_id="s-1") as writer:
        with pytest.raises(InvalidValue):
            writer.append([{"type": "x"}, bad])
        assert contents_below(tmp_path) == []


def test_appended_results_and_errors_count_for_finish(log: AgentLog) -> None:
    """agent-log L-64."""
    with log.writer.open(place=SANDBOX, session_id="s-1") as writer:
        writer.append([{"type": "assistant", "isApiErrorMessage": True, "error": "e"}])
        writer.append([{"type": "result", "subtype": "error_x"}])
        writer.finish(Outcome("error_x", error="e"))
        assert len(written(writer)) == 2


def test_finish_without_a_session_writes_nothing(log: AgentLog, tmp_path: Path) -> None:
    """agent-log L-139."""
    with log.writer.open(prompt="go", place=SANDBOX) as writer:
        assert writer.finish(Outcome()) is None
        with pytest.raises(InvalidValue) as caught:
            writer.append([{"type": "x"}])
        assert caught.value.where == "session_id"
    assert contents_below(tmp_path) == []


def test_a_run_that_died_before_its_session_is_logged_under_the_fallback(log: AgentLog) -> None:
    """agent-log L-82."""
    with log.writer.open(prompt="go", place=SANDBOX) as writer:
        assert writer.finish_failed("exec-task-1", Outcome("error_start"), error="no sandbox") == "exec-task-1"
        lines = written(writer)
    assert lines[0] == prompt_line(NOW_TEXT, session_id="exec-task-1")
    assert (lines[1]["error"], lines[1]["sessionId"], lines[2]["subtype"]) == (
        "no sandbox",
        "exec-task-1",
        "error_start",
    )
    assert len(lines) == 3


def test_a_run_that_died_behind_its_session_is_logged_there_and_its_error_once(log: AgentLog) -> None:
    """agent-log L-82."""
    with log.writer.open(prompt="go") as writer:
        writer.feed_many([SESSION, {"type": "fatal_error", "error": {"message": "boom"}}])
        assert writer.finish_failed("exec-task-1", Outcome("error_x", error="boom"), error="boom") == "s-1"
        assert writer.finish_failed("exec-task-1", Outcome("error_x", error="boom"), error="boom") == "s-1"
        assert [line.get("subtype") or line.get("error") for line in written(writer)[1:]] == ["boom", "error_x"]


def test_a_closed_writer_refuses(log: AgentLog) -> None:
    """agent-log L-28."""
    writer = log.writer.open(prompt="go")
    writer.feed(SESSION)
    writer.close()
    writer.close()
    for attempt in (
        lambda: writer.feed(SESSION),
        lambda: writer.append([]),
        lambda: writer.finish(Outcome()),
        writer.sync,
    ):
        with pytest.raises(StoreClosed):
            attempt()


def test_the_disk_is_reached_at_results_at_sync_and_at_close(log: AgentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-27."""
    with log.writer.open(prompt="go") as writer:
        writer.sync()
        writer.feed(SESSION)
        calls = counted(monkeypatch, os, "fdatasync")
        writer.feed(said(text("a")))
        assert calls == []
        writer.feed(snapshot())
        assert len(calls) == 1
        writer.sync()
        assert len(calls) == 2
    assert len(calls) == 3


def test_the_words_for_errors_and_times_are_checked(log: AgentLog) -> None:
    with pytest.raises(InvalidValue):
        log.writer.open(on_error="ignore")  # type: ignore[arg-type]
    with log.writer.open(sync="never") as writer, pytest.raises(InvalidValue):  # type: ignore[arg-type]
        writer.feed_many([SESSION, said(text("hi"))])


# ---- failures ------------------------------------------------------------------------------------------------------


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A disk that is full while the list is not empty."""
    state: list[bool] = []
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        if state:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    return state


def test_a_call_whose_write_failed_can_be_repeated(log: AgentLog, full: list[bool]) -> None:
    """agent-log L-80: pin, prompt, totals and known calls are those of before."""
    options = TranslationOptions(orphan_results="drop")
    with log.writer.open(prompt="go", options=options) as writer:
        full.append(True)
        stream = [SESSION, said(call("c"), usage={"input": 5}), {"type": "turn_end"}]
        with pytest.raises(BackendUnavailable):
            writer.feed_many(stream)
        assert (writer.session_id, writer.lines_written, writer.ignored) == (None, 0, {})
        full.clear()
        assert writer.feed_many(stream) == 2
        writer.feed_many([ended("c", "x"), snapshot()])
        assert [line["type"] for line in written(writer)] == ["user", "assistant", "user", "result"]
        assert (written(writer)[-1]["total_input_tokens"], writer.ignored) == (5, {"turn_end": 1})


@pytest.mark.logs("were not written")
def test_a_reported_failure_is_counted_and_the_run_goes_on(
    log: AgentLog, full: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    """agent-log L-80, case 11: the prompt comes with the next line, usage counts, wrong values still raise."""
    with log.writer.open(prompt="go", on_error="report") as writer:
        full.append(True)
        with caplog.at_level(logging.WARNING):
            assert writer.feed_many([SESSION, said(text("lost"), usage={"input": 5})]) == 0
            assert writer.finish_failed("x", Outcome("error_x")) == "s-1"
        assert (writer.failed_appends, len(caplog.records)) == (2, 2)
        with pytest.raises(UnsafePath):
            writer.feed({**SESSION, "id": "../x"})
        full.clear()
        assert writer.feed(snapshot()) == 2
        assert [line["type"] for line in written(writer)] == ["user", "result"]
        assert written(writer)[1]["total_input_tokens"] == 5


def test_a_stopped_holder_of_the_lock_makes_the_writer_busy_or_is_reported(tmp_path: Path) -> None:
    """agent-log L-23, L-80, case 11."""
    log = agent_log(tmp_path, lock_timeout=0.1)
    with log.writer.open(prompt="go") as writer, log.writer.open(prompt="go", on_error="report") as steady:
        writer.feed(SESSION)
        holder = SPAWN.Process(target=hold_and_stop, args=(path_of(log),), daemon=True)
        holder.start()
        assert holder.pid is not None
        os.waitpid(holder.pid, os.WUNTRACED)
        with pytest.raises(BackendBusy):
            writer.feed(said(text("a")))
        assert steady.feed(SESSION) == 0
        assert (steady.failed_appends, len(written(writer))) == (1, 1)
        os.kill(holder.pid, signal.SIGCONT)
        holder.join(60)
        assert (writer.feed(said(text("a"))), steady.feed(said(text("b")))) == (1, 2)


def test_a_value_that_no_line_holds_raises_and_nothing_is_written(log: AgentLog) -> None:
    """agent-log L-31."""
    with log.writer.open(prompt="go", on_error="report") as writer:
        writer.feed(SESSION)
        with pytest.raises(InvalidValue) as caught:
            writer.feed_many([said(text("a")), said(call("c", when=object()))])
        assert caught.value.where == "line.message.content[0].input.when"
        assert len(written(writer)) == 1


def test_a_line_above_the_limit_raises_and_nothing_is_written(log: AgentLog) -> None:
    """agent-log L-31."""
    with log.writer.open(prompt="go") as writer:
        writer.feed(SESSION)
        with pytest.raises(PayloadTooLarge):
            writer.feed(said(text("x" * (64 * 1024 * 1024))))
        assert len(written(writer)) == 1


def feed_on_a_full_disk(root: Path, results: Connection) -> None:
    """Feed under a limit on file sizes that the lines meet in the middle, then without it."""
    log = agent_log(root)
    with log.writer.open(prompt="go") as writer:
        writer.feed(SESSION)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path_of(log).stat().st_size + 50, resource.RLIM_INFINITY))
        try:
            writer.feed(said(text("a")))
        except BackendUnavailable as error:
            results.send(error.outcome)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        results.send(writer.feed(said(text("a"))))


def test_a_full_disk_is_told_and_the_repeated_call_seals_what_it_left(log: AgentLog, tmp_path: Path) -> None:
    """agent-log L-24, L-80."""
    mine, theirs = SPAWN.Pipe(duplex=False)
    process = child(feed_on_a_full_disk, tmp_path, theirs)
    process.join(60)
    assert (process.exitcode, mine.recv(), mine.recv()) == (0, "unknown", 1)
    page = log.reader.read("s-1")
    assert [line.type for line in page.lines] == ["user", "assistant"]
    assert [issue.reason for issue in page.issues] == ["torn"]


def test_threads_can_feed_one_writer(log: AgentLog) -> None:
    """agent-log L-26."""
    with log.writer.open(prompt="go", sync="os") as writer:
        writer.feed(SESSION)

        def work() -> None:
            for event in events()[1:]:
                writer.feed(event)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(lines_of(path_of(log))) == 1 + 4 * 8
    assert log.reader.read("s-1").issues == ()


def test_closing_waits_for_the_lines_that_are_being_written(log: AgentLog) -> None:
    """agent-log L-26."""
    writer = log.writer.open(prompt="go", sync="os")
    closing = threading.Thread(target=writer.close)

    def given() -> Iterator[dict[str, Any]]:
        yield SESSION
        closing.start()
        closing.join(0.05)  # until it is done, unless it waits
        assert closing.is_alive()
        yield said(text("still written"))

    assert writer.feed_many(given()) == 2
    closing.join(30)
    with pytest.raises(StoreClosed):
        writer.feed(SESSION)
    assert len(lines_of(path_of(log))) == 2


def feed_in_parent_and_child(root: Path) -> None:
    """Fork with an open writer, and feed it on both sides."""
    log = agent_log(root)
    writer = log.writer.open(prompt="go")
    writer.feed(SESSION)
    pid = os.fork()
    for n in range(30):
        writer.feed(said(text(f"{'child' if pid == 0 else 'parent'} {n}")))
    writer.close()
    if pid == 0:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_forked_child_can_go_on_feeding(log: AgentLog, tmp_path: Path) -> None:
    """agent-log L-25."""
    process = child(feed_in_parent_and_child, tmp_path)
    process.join(60)
    assert process.exitcode == 0
    assert len(log.reader.read("s-1").lines) == 61
    assert log.reader.read("s-1").issues == ()


def test_a_session_without_a_place_has_no_file(log: AgentLog) -> None:
    """agent-log L-137: until an event tells it."""
    with log.writer.open(session_id="s-1") as writer:
        assert (writer.path, writer.slug) == (None, None)
        writer.feed(SESSION)
        assert writer.path is not None


def test_an_appended_line_that_is_no_error_counts_as_none(log: AgentLog) -> None:
    """agent-log L-64: whatever its fields are called."""
    with log.writer.open(place=SANDBOX, session_id="s-1") as writer:
        writer.append([{"type": "assistant", "error": "e"}, {"type": "result", "subtype": "error_x"}])
        writer.finish(Outcome("error_x", error="e"))
        assert [line.get("error") for line in written(writer)] == ["e", None, "e", None]
