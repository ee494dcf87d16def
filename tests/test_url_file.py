"""The URL of a database in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.each import with_each

from lastlight_state.errors import InvalidValue
from lastlight_state.settings import url_in

SECRET = "postgresql://ana:a-secret@db/state"


@with_each("before", ["", "\ufeff", " \n\n"])
@with_each("behind", ["", "\n", " \r\n\n"])
def test_a_file_holds_one_line_with_a_url(tmp_path: Path, before: str, behind: str) -> None:
    """backends B-89."""
    file = tmp_path / "url"
    file.write_bytes(f"{before}{SECRET}{behind}".encode())
    assert url_in(file, "--url-file") == SECRET


@with_each(
    ("held", "problem"),
    [
        (b"", "expected one line with a URL, got none"),
        (b" \n ", "expected one line with a URL, got none"),
        (f"{SECRET}\n{SECRET}\n".encode(), "expected one line with a URL, got 2"),
        (SECRET.encode("utf-16"), "not UTF-8 text"),
    ],
)
def test_any_other_file_is_refused_by_its_name_and_never_by_what_it_holds(
    tmp_path: Path, held: bytes, problem: str
) -> None:
    """backends B-89."""
    file = tmp_path / "url"
    file.write_bytes(held)
    with pytest.raises(InvalidValue) as raised:
        url_in(file, "--url-file")
    assert str(raised.value) == f"--url-file: {file}: {problem}"


@with_each(
    ("name", "problem"), [("missing", "No such file or directory"), (".", "expected a regular file, found a directory")]
)
def test_a_file_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path, name: str, problem: str) -> None:
    """backends B-89."""
    with pytest.raises(InvalidValue) as raised:
        url_in(tmp_path / name, "LASTLIGHT_URL_FILE")
    assert str(raised.value) == f"LASTLIGHT_URL_FILE: {tmp_path / name}: {problem}"
