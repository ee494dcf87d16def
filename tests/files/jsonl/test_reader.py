"""LineReader and its recovery: every whole record, whatever else is in the file."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.each import with_each
from support.jsonl.lines import KIND, is_record, opened, read, record
from support.memory import assert_peak_bytes_below

from lastlight_state.codec import dump_line
from lastlight_state.errors import BackendUnavailable
from lastlight_state.files.jsonl.reader import LineReader
from lastlight_state.files.jsonl.recovery import DEEPEST, Recovery, judge

FILES = settings(max_examples=150)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def whole(n: int, text: str = "") -> bytes:
    """A record's bytes without the newline."""
    return dump_line(record(n, text=text))[:-1]


def test_records_are_read_in_order_with_their_bytes_and_places(path: Path) -> None:
    """agent-log L-35, L-40: unknown types and fields survive."""
    lines = [whole(0), b'{"type":"from-the-future","x":[1]}', whole(2, "é")]
    path.write_bytes(b"\n".join(lines) + b"\n")
    seen = read(path).lines
    assert [line.raw for line in seen] == lines
    assert [line.offset for line in seen] == [0, len(lines[0]) + 1, len(lines[0]) + len(lines[1]) + 2]
    assert [line.end for line in seen] == [seen[1].offset, seen[2].offset, path.stat().st_size]
    assert seen[1].value == {"type": "from-the-future", "x": [1]}


@with_each(
    ("middle", "reason"),
    [
        (b"null", "not_object"),
        (b"5", "not_object"),
        (b"[]", "not_object"),
        (b'{"a":', "torn"),
        (b'{"a":"\xc3', "torn"),
        (b'{"a":[1,{"b":2}', "torn"),
        (b"hello", "bad_json"),
        (b'{"a":1}}', "bad_json"),
        (b"{'a':1}", "bad_json"),
        (b'{"a":"\xff\xfe"}', "bad_utf8"),
        (b"\0\0\0\0", "nul_bytes"),
        (b'{"a":"x\0\0\0"}', "nul_bytes"),
        (b"[" * 100_000, "bad_json"),
        (b'{"a":' * 3_000, "torn"),
    ],
)
def test_a_line_that_is_no_record_is_counted_and_its_neighbours_are_read(
    path: Path, middle: bytes, reason: str
) -> None:
    """agent-log L-5, L-37."""
    path.write_bytes(b"%b\n%b\n%b\n" % (whole(0), middle, whole(1)))
    seen = read(path)
    assert (seen.numbers, seen.reasons, seen.torn_tail) == ([0, 1], [reason], False)
    assert (seen.issues[0].offset, seen.issues[0].length) == (len(whole(0)) + 1, len(middle))


def test_blank_lines_and_carriage_returns_are_nothing(path: Path) -> None:
    """agent-log L-35."""
    path.write_bytes(b"\n\r\n%b\r\n  \n\n%b\r\n \t" % (whole(0), whole(1)))
    seen = read(path)
    assert (seen.numbers, seen.issues, seen.torn_tail) == ([0, 1], [], False)


def test_only_a_newline_ends_a_line(path: Path) -> None:
    """agent-log L-35."""
    path.write_bytes(whole(0, "a\u2028b\u2029c\x85d\x0be\x0cf") + b"\n")
    seen = read(path)
    assert seen.lines[0].value["message"]["content"] == "a\u2028b\u2029c\x85d\x0be\x0cf"
    assert len(seen.lines) == 1


def test_half_an_emoji_is_read_and_its_bytes_stay(path: Path) -> None:
    """agent-log L-32."""
    raw = whole(0).replace(b'"content":""', rb'"content":"cut \ud83d"')
    path.write_bytes(raw + b"\n")
    line = read(path).lines[0]
    assert (line.value["message"]["content"], line.raw, line.recovered) == ("cut \ufffd", raw, False)


def test_a_torn_tail_is_no_issue_while_its_writer_may_be_at_work(path: Path) -> None:
    """agent-log L-36."""
    path.write_bytes(whole(0) + b"\n" + whole(1)[:-1])
    seen = read(path)
    assert (seen.numbers, seen.issues, seen.torn_tail) == ([0], [], True)


def test_a_tail_of_two_records_waits_for_its_newline(path: Path) -> None:
    """agent-log L-36."""
    path.write_bytes(whole(0) + whole(1))
    assert (read(path).numbers, read(path).torn_tail) == ([], True)
    path.write_bytes(whole(0) + whole(1) + b"\n")
    assert (read(path).numbers, read(path).torn_tail) == ([0, 1], False)


@with_each(
    ("line", "numbers", "reason"),
    [
        (whole(1) + whole(2), [1, 2], "glued"),
        (whole(1) + b"\0\0 " + whole(2) + whole(3), [1, 2, 3], "glued"),
        (whole(1)[:30] + whole(2), [2], "torn"),
        (whole(1)[:30] + whole(2)[:40] + whole(3), [3], "torn"),
        (whole(1) + whole(2)[:30], [1], "torn"),
        (whole(1) + whole(2)[:30] + whole(3), [1, 3], "torn"),
        (b"\0" * 500 + whole(1), [1], "nul_bytes"),
        (whole(1) + b"\0" * 500, [1], "nul_bytes"),
        (whole(1)[:30] + b"\0" * 500 + whole(2), [2], "nul_bytes"),
        (whole(1, "\xe9")[:63] + whole(2), [2], "torn"),
        (b"\xff\xfe" + whole(1), [1], "bad_utf8"),
        (b"garbage " + whole(1), [1], "bad_json"),
        (whole(1)[:-1] + b',"more":{' + whole(2), [2], "torn"),
        (b'{"text":"{' + b'\\"' * 50 + whole(2), [2], "torn"),
    ],
)
def test_every_whole_record_of_a_damaged_line_is_returned(
    path: Path, line: bytes, numbers: list[int], reason: str
) -> None:
    """agent-log L-38."""
    path.write_bytes(b"%b\n%b\n%b\n" % (whole(0), line, whole(9)))
    seen = read(path)
    assert (seen.numbers, seen.reasons) == ([0, *numbers, 9], [reason])
    assert [found.recovered for found in seen.lines] == [False, *[True] * len(numbers), False]
    data = path.read_bytes()
    assert all(data[found.offset : found.offset + len(found.raw)] == found.raw for found in seen.lines)


@with_each(
    "line",
    [
        b'{"type":"user","message":{"role":"user","content":"x"}',
        b'{"type":"user","message":{"role":"user","content":"x"},"a":{"type":"user","timestamp":"t"}',
        b'\0\0"a":1}{"role":"user"},"b":2}',
        b'{"role":"user"},"timestamp":"t","sessionId":"s"}',
    ],
)
def test_no_record_is_made_out_of_a_nested_object(tmp_path: Path, line: bytes) -> None:
    """agent-log L-38."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(line + b"\n" + whole(1) + b"\n")
    assert read(path).numbers == [1]


def test_no_byte_of_a_line_is_in_two_records() -> None:
    """agent-log L-38: although an object begins in a text of the one before."""
    verdict = judge(b'{"a":"{"}":1}', lambda _: True)
    assert [piece.raw for piece in verdict.pieces] == [b'{"a":"{"}']


def test_a_line_past_the_limit_is_skipped_without_being_held(path: Path) -> None:
    """agent-log L-39."""
    with path.open("wb") as file:
        file.write(whole(0) + b'\n{"a":"')
        for _ in range(64):
            file.write(b"x" * 1_000_000)
        file.write(b'"}\n' + whole(1) + b"\n")

    def read_all() -> None:
        seen = read(path, max_line_bytes=100_000)
        assert (seen.numbers, seen.reasons, seen.issues[0].length) == ([0, 1], ["oversize"], 64_000_008)

    assert_peak_bytes_below(4_000_000, read_all)


def test_an_unterminated_line_past_the_limit_is_a_torn_tail(path: Path) -> None:
    """agent-log L-36, L-39."""
    path.write_bytes(whole(0) + b"\n" + whole(1, "x" * 5_000))
    seen = read(path, max_line_bytes=1_000)
    assert (seen.numbers, seen.issues, seen.torn_tail) == ([0], [], True)


def test_a_record_of_exactly_the_limit_is_read(path: Path) -> None:
    """agent-log L-39."""
    path.write_bytes(whole(0) + b"\n" + whole(1, "x") + b"\n" + b"x" * len(whole(0)) + b"\n")
    seen = read(path, max_line_bytes=len(whole(0)))
    assert (seen.numbers, seen.reasons) == ([0], ["oversize", "bad_json"])


def test_a_line_past_the_limit_is_skipped_wherever_in_a_block_it_stands(path: Path) -> None:
    """agent-log L-39: also by those who read block by block."""
    path.write_bytes(b"".join(whole(n, "x" * (n % 2)) + b"\n" for n in range(4)))
    with opened(path) as descriptor:
        reader = LineReader(descriptor, path, KIND, max_line_bytes=len(whole(0)))
        found = reader.batch(descriptor) or []
        assert reader.batch(descriptor) is None
        unjudged = LineReader(descriptor, path, KIND, max_line_bytes=len(whole(0))).raw_batch(descriptor) or []
    assert [line.value["n"] for line in found] == [0, 2]
    assert [line.raw for line in unjudged] == [whole(0), None, whole(2), None]
    assert [issue.reason for issue in reader.issues] == ["oversize"] * 2


def test_all_issues_are_counted_and_the_first_thousand_told(path: Path) -> None:
    """agent-log L-37."""
    path.write_bytes(b"x\n" * 1_200)
    with opened(path) as descriptor:
        reader = LineReader(descriptor, path, KIND)
        assert list(reader.lines()) == []
    assert (reader.issue_count, len(reader.issues)) == (1_200, 1_000)


def test_a_reader_goes_on_where_the_file_has_grown(path: Path) -> None:
    """agent-log L-35: nothing is read twice, also not the beginning of a line that was not finished."""
    path.write_bytes(whole(0) + b"\n" + whole(1)[:20])
    with opened(path) as descriptor:
        reader = LineReader(descriptor, path, KIND)
        assert [line.value["n"] for line in reader.lines()] == [0]
        with path.open("ab") as file:
            file.write(whole(1)[20:] + b"\n" + whole(2))
        assert [line.value["n"] for line in reader.lines()] == [1]
        last = reader.tail()
        assert last is not None
        assert (last.value["n"], last.end) == (2, path.stat().st_size)


def test_a_file_that_cannot_be_read_is_backend_unavailable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-24."""
    path.write_bytes(whole(0) + b"\n")

    def fail(descriptor: int, size: int, offset: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(BackendUnavailable):
        read(path)


def test_a_directory_or_a_pipe_is_no_line_file(tmp_path: Path) -> None:
    """agent-log L-15: and a pipe does not stop the reader."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in ("pipe.jsonl", "."):
        with pytest.raises(FileNotFoundError), opened(tmp_path / name):
            pass


# ---- any damage ----------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
damage = st.one_of(
    st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"")),
    st.integers(1, 50).map(lambda size: b"\0" * size),
    st.sampled_from([b"", b"null", b"{", b'{"type":"user","message":{"role":"user"}', b"\r", b"}{", b'"']),
    st.integers(1, len(whole(7)) - 1).map(lambda cut: whole(7)[:cut]),
)


@FILES
@given(st.lists(st.one_of(texts, damage), max_size=12), st.integers(1, 300))
def test_whatever_stands_between_them_all_whole_lines_are_read(
    path: Path, parts: list[str | bytes], block: int
) -> None:
    """agent-log L-5, L-35, L-37: also when characters and lines cross the borders of blocks."""
    lines = [whole(n, part) if isinstance(part, str) else part for n, part in enumerate(parts)]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    seen = read(path, block_bytes=block)
    sound = [n for n, part in enumerate(parts) if isinstance(part, str)]
    assert [n for n in seen.numbers if n != 7] == [n for n in sound if n != 7]
    assert len(seen.issues) <= sum(isinstance(part, bytes) for part in parts)
    assert not seen.torn_tail


@FILES
@given(st.binary(max_size=300), st.integers(1, 50), st.integers(1, 200))
def test_no_bytes_make_a_reader_raise(path: Path, data: bytes, block: int, limit: int) -> None:
    """agent-log L-5."""
    path.write_bytes(data)
    seen = read(path, block_bytes=block, max_line_bytes=limit)
    assert all(data[line.offset : line.offset + len(line.raw)] == line.raw for line in seen.lines)


@given(st.lists(damage | st.just(whole(1)) | st.just(whole(2)), max_size=6).map(b"".join))
def test_recovered_pieces_lie_in_order_and_do_not_overlap(raw: bytes) -> None:
    """agent-log L-38."""
    reached = 0
    for piece in judge(raw, is_record).pieces:
        assert piece.start >= reached
        assert raw[piece.start : piece.start + len(piece.raw)] == piece.raw
        reached = piece.start + len(piece.raw)


@with_each("noise", [b"\xff\xfe\xfd", b"plain", b"null", b"[1]", b'\\ud83d"'])
def test_a_whole_record_between_a_torn_one_and_noise_is_found(noise: bytes) -> None:
    """agent-log L-38: what a writer glued to a torn line stays whole, whatever comes behind it."""
    torn = whole(1)[:-3]
    assert [piece.value["n"] for piece in judge(torn + whole(2) + noise, is_record).pieces] == [2]
    assert [piece.value["n"] for piece in judge(torn + whole(2) + whole(3) + noise, is_record).pieces] == [2, 3]


def test_what_may_be_a_part_of_the_torn_record_is_none_of_its_own() -> None:
    """agent-log L-38."""
    assert judge(b'{"type":"x","inner":' + whole(1) + b',"more":', is_record).pieces == ()


def test_recovery_of_a_large_torn_line_stays_fast() -> None:
    """agent-log L-38: thousands of nested objects before the glued record cost no square."""
    nested: list[dict[str, Any]] = [{"type": "x", "text": "{" * 50, "n": n} for n in range(20_000)]
    torn = dump_line({**record(1), "message": nested})[:-60]
    verdict = judge(torn + whole(2), is_record)
    assert [piece.value["n"] for piece in verdict.pieces] == [2]


def test_a_record_behind_any_number_of_open_levels_is_found() -> None:
    """agent-log L-38: however deep the torn line was nested, also where the record makes a value of it."""
    for torn in (b'{"a":' * 5_000, b'{"a":[' * 500 + b'{"b":"' + b"x" * 1_000_000, b'[{"a":"' * 100_000):
        assert [piece.value["n"] for piece in judge(torn + whole(1), is_record).pieces] == [1]


@with_each(("levels", "is_found"), [(DEEPEST, True), (DEEPEST + 1, False)])
def test_a_record_is_found_behind_a_torn_one_down_to_so_many_levels(levels: int, is_found: bool) -> None:
    """agent-log L-38: its own level counts."""
    deep = whole(1)[:-1] + b',"deep":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"
    assert [piece.raw for piece in judge(b'{"a":' + deep, is_record).pieces] == [deep] * is_found


def test_every_intact_record_between_torn_ones_is_found() -> None:
    """agent-log L-38: glued by writers that do not seal."""
    torn = whole(5, '{"a":"}{"}')[:-40]
    line = torn + whole(1) + whole(2) + torn + whole(3, "\\") + b"\0\0" + whole(4) + torn
    verdict = judge(line, is_record)
    assert [piece.value["n"] for piece in verdict.pieces] == [1, 2, 3, 4]
    assert verdict.reason == "torn"


MOST_LOOKS = 10
"""How often recovery may look at a byte of a line, whatever stands in it."""

hostile = st.sampled_from(
    [
        b'{"a":',
        b'{"',
        b'"}',
        b'"}{"',
        b"}{",
        b"{",
        b"}",
        b"[",
        b"]",
        b'\\"',
        b"\\",
        b'"',
        b"\0",
        b"\xff",
        b'{"a":1}',
        b" ",
        b"\r",
    ]
)


@pytest.mark.slow
@given(
    st.lists(st.tuples(hostile, st.integers(1, 3_000)), max_size=6).map(
        lambda parts: b"".join(part * times for part, times in parts)
    ),
    st.sampled_from([b"", whole(1), whole(1)[:-5]]),
)
def test_recovery_looks_at_each_byte_a_few_times_whatever_the_line(damaged: bytes, last: bytes) -> None:
    """agent-log L-38: counted, not timed."""
    line = damaged + last
    recovery = Recovery(line, is_record)
    recovery.verdict()
    assert recovery.scanned <= MOST_LOOKS * len(line)


@with_each("levels", [1, 100, 499])
def test_a_line_of_megabytes_torn_under_many_levels_costs_its_length(levels: int) -> None:
    """agent-log L-38: what took minutes, a search from each open brace on."""
    torn = b'{"type":"x","a":[' * levels + b'{"text":"' + b'{\\"code\\": [1, {}]} ' * (2_000_000 // 20)
    line = torn + whole(1, "after")
    recovery = Recovery(line, is_record)
    assert [piece.value["n"] for piece in recovery.verdict().pieces] == [1]
    assert recovery.scanned <= MOST_LOOKS * len(line)


def test_random_cuts_of_random_files_never_lose_a_whole_line(path: Path) -> None:
    """agent-log L-2: a file cut anywhere and continued."""
    chance = random.Random(7)
    for _ in range(50):
        data = b"".join(whole(n, "é" * chance.randrange(40)) + b"\n" for n in range(10))
        cut = chance.randrange(len(data))
        path.write_bytes(data[:cut] + b"\n" + whole(99) + b"\n")
        expected = list(range(data[:cut].count(b"\n") + (data[cut : cut + 1] == b"\n")))
        assert read(path).numbers == [*expected, 99]
