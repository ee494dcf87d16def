"""Pages, the end, everything, what comes, and other agents' lines between ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from files.jsonl.test_follow import Steps
from hypothesis import given, settings, strategies as st
from support.agent_log.logs import FIXTURES, SANDBOX, SESSION, agent_log, path_of, put, said, text
from support.each import with_each
from support.jsonl.lines import counted

from lastlight_state.codec import dump_line
from lastlight_state.errors import InvalidValue, NotFound, UnsafePath
from lastlight_state.files.agent_log import AgentLog, LogLine, LogPage, Reset


def entry(n: int, minute: int | None = None, kind: str = "user", **fields: Any) -> bytes:
    """A line with a number, dated unless ``minute`` is None."""
    dated = {} if minute is None else {"timestamp": f"2026-02-03T10:{minute:02}:00.000Z"}
    return dump_line(
        {"type": kind, "n": n, "message": {"role": "user", "content": f"text {n}"}, **dated, "sessionId": "s-1"}
        | fields
    )


def numbers(lines: Any) -> list[int]:
    return [line.value["n"] for line in lines]


def all_pages(read: Callable[..., LogPage], *, after: str | None = None, **options: Any) -> list[LogPage]:
    pages = [read("s-1", after=after, **options)]
    while not pages[-1].at_end:
        pages.append(read("s-1", after=pages[-1].cursor, **options))
    return pages


# ---- pages ---------------------------------------------------------------------------------------------------------


def test_pages_give_every_line_once_in_file_order(log: AgentLog) -> None:
    """agent-log L-95, L-96."""
    put(log, b"".join(entry(n, 50 - n) for n in range(10)))
    pages = all_pages(log.reader.read, limit=4)
    assert [numbers(page.lines) for page in pages] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    first = pages[0].lines[0]
    assert (first.source, first.type, first.recovered, first.length) == ("main", "user", False, len(first.raw))
    assert (first.offset, first.raw) == (0, entry(0, 50)[:-1])
    assert [page.at_end for page in pages] == [False, False, True]


def test_a_cursor_stays_valid_while_the_file_grows(log: AgentLog) -> None:
    """agent-log L-41: also one of a single line."""
    path = put(log, b"".join(entry(n) for n in range(5)))
    page = log.reader.read("s-1")
    with path.open("ab") as file:
        file.writelines(entry(n) for n in range(5, 1_005))
    found = [line for more in all_pages(log.reader.read, after=page.cursor, limit=500) for line in more.lines]
    assert numbers(found) == list(range(5, 1_005))
    assert numbers(log.reader.read("s-1", after=page.lines[2].cursor, limit=3).lines) == [3, 4, 5]


def test_a_cursor_of_another_file_starts_again_and_says_so(log: AgentLog) -> None:
    """agent-log L-41."""
    put(log, b"".join(entry(n) for n in range(5)))
    cursor = log.reader.read("s-1", limit=3).cursor
    put(log, b"".join(entry(n, kind="other") for n in range(5)))
    page = log.reader.read("s-1", after=cursor)
    assert (numbers(page.lines), page.reset) == ([0, 1, 2, 3, 4], True)
    put(log, entry(7))
    assert log.reader.read("s-1", after=cursor).reset


def test_types_can_be_chosen(log: AgentLog) -> None:
    """agent-log L-95: role lines have none."""
    put(log, entry(0) + entry(1, kind="result") + b'{"role":"system","n":2}\n' + entry(3, kind="result"))
    page = log.reader.read("s-1", types={"result"}, limit=1)
    assert numbers(page.lines) == [1]
    assert numbers(log.reader.read("s-1", types=["result"], after=page.cursor).lines) == [3]
    assert log.reader.read("s-1").lines[2].type is None
    assert numbers(log.reader.read("s-1", types="result").lines) == [1, 3]


def test_bad_lines_are_located_once_over_all_pages(log: AgentLog) -> None:
    """agent-log L-37, L-95."""
    put(log, entry(0) + b"bad\n" + entry(1) + entry(2)[:-1] + entry(3) + b"null\n" + entry(4)[:20])
    pages = all_pages(log.reader.read, limit=1)
    assert [n for page in pages for n in numbers(page.lines)] == [0, 1, 2, 3]
    assert [issue.reason for page in pages for issue in page.issues] == ["bad_json", "glued", "not_object"]
    assert (pages[-1].torn_tail, pages[0].torn_tail) == (True, False)
    everything = log.reader.read("s-1")
    assert [line.recovered for line in everything.lines] == [False, False, True, True]
    assert (everything.issues[0].offset, everything.issues[0].source) == (len(entry(0)), "main")


def test_the_cursor_behind_a_half_line_gives_it_when_it_is_complete(log: AgentLog) -> None:
    """agent-log L-36, L-41."""
    path = put(log, entry(0) + entry(1)[:20])
    cursor = log.reader.read("s-1").cursor
    with path.open("ab") as file:
        file.write(entry(1)[20:])
    assert numbers(log.reader.read("s-1", after=cursor).lines) == [1]


def test_the_cursor_behind_an_unterminated_record_goes_on_behind_it(log: AgentLog) -> None:
    """agent-log L-36, L-41."""
    path = put(log, entry(0) + entry(1)[:-1])
    page = log.reader.read("s-1")
    assert numbers(page.lines) == [0, 1]
    with path.open("ab") as file:
        file.write(b"\n" + entry(2))
    for cursor in (page.cursor, page.lines[1].cursor):
        again = log.reader.read("s-1", after=cursor)
        assert (numbers(again.lines), again.reset) == ([2], False)


def test_what_the_first_writers_wrote_is_read_whole(log: AgentLog) -> None:
    """agent-log L-4, L-32."""
    for name in ("original-first.jsonl", "original-later.jsonl"):
        data = (FIXTURES / name).read_bytes()
        put(log, data)
        page = log.reader.read("s-1")
        assert [line.raw for line in page.lines] == data.splitlines()
        assert (page.issues, page.torn_tail) == ((), False)
    put(log, (FIXTURES / "original-first.jsonl").read_bytes())
    cut = log.reader.read("s-1").lines[2]
    assert rb"\ud83d" in cut.raw
    assert "\ufffd" in cut.value["message"]["content"][0]["content"]


def test_an_unknown_session_is_not_found(log: AgentLog) -> None:
    """agent-log L-95."""
    for attempt in (log.reader.read, log.reader.messages, log.reader.tail, log.reader.scan):
        with pytest.raises(NotFound):
            attempt("s-9")


@with_each(
    "options", [{"limit": 0}, {"limit": 501}, *({"after": text} for text in ("?", "e30x", "W1sxXV0", "NQ", "x" * 9))]
)
def test_limits_and_cursors_are_checked(log: AgentLog, options: dict[str, Any]) -> None:
    """agent-log L-95."""
    put(log, entry(0))
    with pytest.raises(InvalidValue):
        log.reader.read("s-1", **options)
    with pytest.raises(InvalidValue):
        log.reader.messages("s-1", **options)
    names = {"limit": "n", "after": "before"}
    with pytest.raises(InvalidValue):
        log.reader.tail("s-1", **{names[name]: value for name, value in options.items()})


def test_of_an_id_in_two_slugs_the_log_changed_last_is_read(log: AgentLog) -> None:
    """agent-log L-91."""
    os.utime(put(log, entry(1), slug="-a"), (1, 1))
    put(log, entry(2), slug="-b")
    assert numbers(log.reader.read("s-1").lines) == [2]


# ---- everything, and the end ---------------------------------------------------------------------------------------


def test_a_scan_streams_all_lines(log: AgentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-141: with a bounded part of the file in memory, and no file open between two blocks."""
    path = put(log, b"".join(entry(n) for n in range(6_000)) + entry(6_000)[:-1])
    calls = counted(monkeypatch, os, "open", "close", "pread")
    lines = log.reader.scan("s-1")
    assert calls == []
    assert next(lines).value["n"] == 0
    assert calls.count("pread") == 1
    assert calls.count("open") == calls.count("close")
    assert numbers(lines) == list(range(1, 6_001))
    assert calls.count("open") == calls.count("close")
    assert calls.count("pread") == path.stat().st_size // (256 * 1024) + 2


def test_the_tail_is_the_last_lines_oldest_first(log: AgentLog) -> None:
    """agent-log L-42: further back by ``before``, onwards by ``cursor``."""
    path = put(log, b"".join(entry(n) for n in range(9)))
    assert log.reader.tail("s-1", n=4).torn_tail is False
    path.write_bytes(path.read_bytes() + entry(9)[:20])
    page = log.reader.tail("s-1", n=4)
    assert (numbers(page.lines), page.torn_tail, page.at_end) == ([5, 6, 7, 8], True, True)
    older = log.reader.tail("s-1", n=4, before=page.before)
    oldest = log.reader.tail("s-1", n=4, before=older.before)
    assert (numbers(older.lines), numbers(oldest.lines)) == ([1, 2, 3, 4], [0])
    assert (older.at_end, older.torn_tail, oldest.reset) == (False, False, False)
    assert log.reader.tail("s-1", before=oldest.before).lines == ()
    with path.open("ab") as file:
        file.write(entry(9)[20:])
    assert numbers(log.reader.read("s-1", after=page.cursor).lines) == [9]


def test_a_page_read_forwards_can_be_left_backwards(log: AgentLog) -> None:
    """agent-log L-41, L-42."""
    put(log, b"".join(entry(n) for n in range(9)))
    page = log.reader.read("s-1", after=log.reader.read("s-1", limit=5).cursor)
    assert numbers(log.reader.tail("s-1", n=2, before=page.before).lines) == [3, 4]


@pytest.mark.parametrize("count", [2, 9])
def test_a_tail_before_a_cursor_of_another_file_starts_at_the_end(log: AgentLog, count: int) -> None:
    """agent-log L-41: whether that has fewer bytes or more."""
    put(log, b"".join(entry(n) for n in range(5)))
    before = log.reader.tail("s-1", n=2).before
    put(log, b"".join(entry(20 + n, kind="x") for n in range(count)))
    page = log.reader.tail("s-1", before=before)
    assert (numbers(page.lines), page.reset, page.at_end) == ([20 + n for n in range(count)], True, True)


def test_a_tail_before_a_cursor_of_another_file_is_the_end_of_a_longer_one_too(log: AgentLog) -> None:
    """agent-log L-41: where the cursor would stand in the middle."""
    put(log, b"".join(entry(n) for n in range(5)))
    before = log.reader.tail("s-1", n=2).before
    put(log, b"".join(entry(n, kind="x") for n in range(9)))
    page = log.reader.tail("s-1", n=2, before=before)
    assert (numbers(page.lines), page.reset, page.at_end) == ([7, 8], True, True)


# ---- following -----------------------------------------------------------------------------------------------------


def followed(log: AgentLog, *steps: Callable[[], object], after: str | None = None) -> list[int | str]:
    news = log.reader.follow("s-1", after=after, stop=Steps(*steps))
    return [item.reason if isinstance(item, Reset) else item.value["n"] for item in news]


def test_following_gives_what_is_there_and_what_comes(log: AgentLog) -> None:
    """agent-log L-43, L-44: and goes on from the cursor of any line."""

    def add() -> None:
        with path_of(log).open("ab") as file:
            file.write(entry(1)[20:] + entry(2))

    put(log, entry(0) + entry(1)[:20])
    news = list(log.reader.follow("s-1", stop=Steps(add)))
    assert numbers(news) == [0, 1, 2]
    assert isinstance(news[0], LogLine)
    assert followed(log, after=news[0].cursor) == [1, 2]


def test_following_an_unknown_session_waits_for_it(log: AgentLog) -> None:
    """agent-log L-44, L-95: and stays with the file it found."""

    def appear_elsewhere() -> None:
        put(log, entry(9), slug="-b")

    steps = (lambda: None, lambda: put(log, entry(0), slug="-a"), appear_elsewhere, lambda: None)
    assert followed(log, *steps) == [0]


def test_following_a_repaired_log_resets(log: AgentLog) -> None:
    """agent-log L-44, L-112."""
    path = put(log, entry(0) + b"bad\n")

    def repair() -> None:
        clean = path.with_name("s-1.repaired.jsonl")
        clean.write_bytes(entry(0))
        clean.replace(path)

    assert followed(log, repair) == [0, "replaced", 0]


def test_a_live_writer_and_a_follower_meet(log: AgentLog) -> None:
    """agent-log L-4, L-43."""
    with log.writer.open(prompt="go", place=SANDBOX) as writer:
        stream = [SESSION, said(text("a")), said(text("b"))]
        news = log.reader.follow("s-1", stop=Steps(*(lambda event=event: writer.feed(event) for event in stream)))
        assert [item.type for item in news if isinstance(item, LogLine)] == ["user", "assistant", "assistant"]


def test_following_refuses_what_names_no_file_at_once(log: AgentLog) -> None:
    """agent-log L-12."""
    with pytest.raises(UnsafePath):
        log.reader.follow("../x")
    with pytest.raises(InvalidValue):
        log.reader.follow("s-1", after="?")


# ---- sub-agents ----------------------------------------------------------------------------------------------------


def put_agents(log: AgentLog, **content: bytes) -> None:
    own = path_of(log).with_suffix("") / "subagents"
    own.mkdir(parents=True, exist_ok=True)
    for name, data in content.items():
        (own / f"agent-{name}.jsonl").write_bytes(data)


def test_sub_agents_lines_are_merged_by_time_without_changing_the_order_inside_a_file(log: AgentLog) -> None:
    """agent-log L-96."""
    put(log, entry(0, 0) + entry(1, 30) + entry(2, 10) + entry(3) + entry(4, 50))
    put_agents(log, a=entry(10, 20) + entry(11) + entry(12, 40), b=entry(20) + entry(21, 35))
    page = log.reader.read("s-1", include_agents=True)
    assert numbers(page.lines) == [20, 0, 10, 11, 1, 2, 3, 21, 12, 4]
    assert [line.source for line in page.lines[:3]] == ["agent-b", "main", "agent-a"]
    assert numbers(log.reader.read("s-1").lines) == [0, 1, 2, 3, 4]


def test_a_session_shows_its_own_sub_agents_alone(log: AgentLog) -> None:
    """agent-log L-97."""
    put(log, entry(0, 0))
    put(log, entry(1, 0), "s-2")
    path_of(log).with_name("agent-x.jsonl").write_bytes(entry(5, 5, sessionId="s-2"))
    put_agents(log, own=entry(6, 6))
    assert numbers(log.reader.read("s-1", include_agents=True).lines) == [0, 6]
    assert numbers(log.reader.read("s-2", include_agents=True).lines) == [1, 5]


def test_a_merged_cursor_goes_on_in_every_file(log: AgentLog) -> None:
    """agent-log L-41, L-96: a sub-agent that appears later is read from its start."""
    put(log, entry(0, 0) + entry(1, 30))
    put_agents(log, a=entry(10, 20))
    page = log.reader.read("s-1", include_agents=True)
    put_agents(log, a=entry(10, 20) + entry(11, 40), b=entry(20, 5))
    assert numbers(log.reader.read("s-1", include_agents=True, after=page.cursor).lines) == [20, 11]
    put_agents(log, a=entry(99, 1))
    again = log.reader.read("s-1", include_agents=True, after=page.cursor)
    assert (again.reset, numbers(again.lines)) == (True, [0, 99, 20, 1])


stamped = st.lists(st.one_of(st.none(), st.integers(0, 59)), max_size=8)


@settings(max_examples=60)
@given(stamped, stamped, st.integers(1, 5))
def test_merged_pages_of_any_size_give_the_same_lines_as_one(
    tmp_path: Path, main: list[int | None], agent: list[int | None], limit: int
) -> None:
    """agent-log L-96."""
    log = agent_log(tmp_path)
    put(log, b"".join(entry(n, minute) for n, minute in enumerate(main)))
    put_agents(log, a=b"".join(entry(100 + n, minute) for n, minute in enumerate(agent)))
    whole = numbers(log.reader.read("s-1", include_agents=True).lines)
    paged = [n for page in all_pages(log.reader.read, include_agents=True, limit=limit) for n in numbers(page.lines)]
    assert paged == whole
    assert [n for n in whole if n < 100] == list(range(len(main)))
    assert [n for n in whole if n >= 100] == list(range(100, 100 + len(agent)))


def test_a_log_that_vanishes_between_finding_and_opening_is_not_found(
    log: AgentLog,
) -> None:
    """agent-log L-95."""
    path = put(log, entry(0))
    lines = log.reader.scan("s-1")
    path.unlink()
    with pytest.raises(NotFound):
        next(lines)


def test_damage_is_told_by_the_page_that_passes_it(log: AgentLog) -> None:
    """agent-log L-37, L-38: also where a record was recovered behind it."""
    put(log, entry(0) + entry(1)[:20] + entry(2, 1) + entry(3) + b"?\n" + entry(4))
    pages = [log.reader.read("s-1", limit=1)]
    while not pages[-1].at_end:
        pages.append(log.reader.read("s-1", limit=1, after=pages[-1].cursor))
    assert [numbers(page.lines) for page in pages] == [[0], [2], [3], [4]]
    assert [[issue.reason for issue in page.issues] for page in pages] == [[], ["torn"], ["bad_json"], []]


@with_each(("n", "expected"), [(1, []), (2, ["bad_json"]), (3, ["bad_json", "bad_json"])])
def test_a_tail_tells_the_damage_between_its_lines_alone(tmp_path: Path, n: int, expected: list[str]) -> None:
    """agent-log L-37."""
    log = agent_log(tmp_path)
    put(log, entry(0) + b"?\n" + entry(1) + b"?\n" + entry(2))
    page = log.reader.tail("s-1", n=n)
    assert (len(page.lines), [issue.reason for issue in page.issues]) == (n, expected)
