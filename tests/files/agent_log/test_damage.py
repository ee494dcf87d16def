"""Damage of every kind done to realistic logs: every intact record is returned, the rest is counted."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.agent_log.logs import FIXTURES, SANDBOX, agent_log, ended, events, put, said, text
from support.each import with_each

from lastlight_state.files.agent_log import AgentLog, Outcome, TranslationOptions
from lastlight_state.files.agent_log.events import is_record
from lastlight_state.files.jsonl.recovery import judge

FILES = settings(max_examples=30)


def generations() -> list[bytes]:
    """Lines of all programs and versions that ever wrote one log, without their newlines."""
    found = []
    for name in ("original-first", "original-later", "written-default", "written-later"):
        found += (FIXTURES / f"{name}.jsonl").read_bytes().split(b"\n")[:-1]
    return found


def written(folder: Path) -> list[bytes]:
    """Lines that the writer of today makes of a run with long results, halves of emoji, and JSON inside of JSON."""
    log = agent_log(folder)
    code = json.dumps({"files": [{"path": "a.py", "text": "if x {\n\t}{\"' \\" * 30}], "\u2028": "\x7f"})
    with log.writer.open(
        place=SANDBOX, session_id="s-1", prompt='Mend }{"it"', options=TranslationOptions.later(), sync="os"
    ) as writer:
        writer.feed_many(events())
        writer.feed(said(text("half an emoji \ud83d and a whole one 😀"), text(code)))
        writer.feed(ended("c-9", "x" * 70_000))
        writer.feed(ended("c-10", [{"deep": [[[{"a": code}]]]}]))
        writer.finish(Outcome(result="}{"))
        assert writer.path is not None
        return writer.path.read_bytes().split(b"\n")[:-1]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Realistic lines, mixed."""
    found = [*generations(), *written(tmp_path_factory.mktemp("written"))]
    random.Random(5).shuffle(found)
    return found


def is_whole(raw: bytes) -> bool:
    """Whether a line is a record that is told from a part of one, wherever it stands."""
    return is_record(json.loads(raw))


class Seen:
    """What the readers have to say about a log."""

    def __init__(self, root: Path) -> None:
        log = AgentLog(root)  # that has not seen the file before
        page = log.reader.read("s-1", limit=500)
        assert page.at_end
        self.raw = [line.raw.rstrip(b"\r") for line in page.lines]
        self.issues = page.issues
        self.torn_tail = page.torn_tail
        found = [line.raw for line in log.reader.tail("s-1", n=500).lines]
        assert found == [line.raw for line in page.lines]
        assert log.sessions.summary("s-1").issues == len(self.issues)
        check = log.repair.check("s-1")
        assert (check.records, check.issue_count) == (len(self.raw), len(self.issues))


def test_realistic_lines_of_all_generations_are_read_from_one_file(log: AgentLog, lines: list[bytes]) -> None:
    """agent-log L-4, L-40."""
    put(log, b"\n".join(lines) + b"\n")
    seen = Seen(log.root)
    assert (seen.raw, seen.issues, seen.torn_tail) == (lines, (), False)
    assert any(b"\\ud83d" in raw for raw in seen.raw)


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.soak)])
def test_a_log_cut_at_every_byte_returns_all_that_was_whole(log: AgentLog, every: int) -> None:
    """agent-log L-2, L-5, L-36, L-38: also when another writer glues its line to the cut."""
    lines = generations()
    last = lines[0]
    data = b"\n".join(lines) + b"\n"
    path = put(log, data)
    whole: list[bytes] = []
    ends = [sum(map(len, lines[: n + 1])) + n for n in range(len(lines))]
    for cut in range(len(data), -1, -every):
        os.truncate(path, cut)
        whole = [raw for raw, end in zip(lines, ends, strict=True) if end <= cut]
        page = log.reader.read("s-1", limit=500)
        assert ([line.raw for line in page.lines], page.issues) == (whole, ())
        assert page.torn_tail is (cut not in (0, *ends, *(end + 1 for end in ends)))
        sealed = judge(data[ends[len(whole) - 1] + 1 if whole else 0 : cut] + last, is_record)
        if page.torn_tail:
            assert [piece.raw for piece in sealed.pieces] == [last]  # glued by a writer that does not seal


cuts = st.floats(0, 1, exclude_min=True, exclude_max=True)
noise = st.sampled_from(
    [b"", b"\0" * 700, b"\xff\xfe\xfd", b"\xe2\x82", b'\\ud83d"', b"null", b"[1]", b"}}", b"plain text", b"\r", b"{"]
)
parts = st.lists(
    st.one_of(
        st.tuples(st.just("whole"), st.integers(0, 10**6), st.just(0.0)),
        st.tuples(st.just("glued"), st.integers(0, 10**6), st.just(0.0)),
        st.tuples(st.just("torn"), st.integers(0, 10**6), cuts),
        st.tuples(st.just("torn and glued"), st.integers(0, 10**6), cuts),
        st.tuples(st.just("noise"), noise, st.just(0.0)),
    ),
    max_size=15,
)


@FILES
@given(parts)
def test_every_intact_record_of_a_damaged_log_is_returned_and_the_rest_is_counted(
    log: AgentLog, lines: list[bytes], chosen: list[tuple[str, Any, float]]
) -> None:
    """agent-log L-5, L-37, L-38: torn, glued, NULs, broken UTF-8, halves of emoji, mixed versions."""
    data, intact, damaged = b"", [], 0
    for kind, which, cut in chosen:
        if kind == "noise":
            if which.startswith(b"}"):
                data += b"\n"  # right behind a record it would make that a part of the torn one before
            data += which + b"\n"
            damaged += 1
            continue
        raw = lines[which % len(lines)]
        if kind in ("whole", "glued") and is_whole(raw):
            intact.append(raw)
            data += raw + (b"\n" if kind == "whole" else b"")
        elif kind.startswith("torn"):
            data += raw[: max(1, int(len(raw) * cut))] + (b"\n" if kind == "torn" else b"")
            damaged += 1
    put(log, data + b"\n")
    seen = Seen(log.root)
    rest = iter(seen.raw)
    assert all(raw in rest for raw in intact), "in their order"
    assert len(seen.issues) <= len(chosen)
    assert len(seen.raw) <= len(intact) + damaged


@FILES
@given(st.integers(0, 10**6), st.integers(0, 7), st.integers(0, 255), st.integers(0, 10**6))
def test_a_flipped_byte_costs_no_more_than_its_own_line(
    log: AgentLog, lines: list[bytes], place: int, bit: int, byte: int, many: int
) -> None:
    """agent-log L-2, L-5: at worst two, where it was a newline."""
    data = bytearray(b"\n".join(lines) + b"\n")
    place %= len(data)
    data[place] = data[place] ^ (1 << bit) if many % 2 else byte
    put(log, bytes(data))
    seen = Seen(log.root)
    lost = len([raw for raw in lines if raw not in seen.raw])
    assert lost <= 2


@with_each(
    ("value", "is_whole"),
    [
        ({"type": "result", "num_turns": 1}, True),
        ({"type": "usage", "num_turns": 1}, False),
        ({"type": "result"}, False),
        ({"type": "usage", "sessionId": "s-1"}, True),
        ({"type": "usage", "sessionId": 5}, False),
    ],
)
def test_what_is_found_in_a_torn_line_names_its_session_or_is_a_result(
    tmp_path: Path, value: dict[str, Any], *, is_whole: bool
) -> None:
    """agent-log L-38: anything else may be a part of a record."""
    log = agent_log(tmp_path)
    raw = json.dumps(value | {"timestamp": "2026-02-03T12:00:00Z"}).encode()
    put(log, b'{"type":"user","message":' + raw + b"\n")
    assert Seen(log.root).raw == [raw] * is_whole
