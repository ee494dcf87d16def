"""``lastlight-state ui``: a real server by the command line, and what it refuses."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from support.cli.calls import files_of, lastlight_state
from support.each import with_each
from support.preloaded import Program

from lastlight_state.testing import Database

TOKEN = "a-token-of-this-test"


@contextmanager
def serving(*words: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve in a process of its own, and tell its address."""
    command = [sys.executable, "-m", "lastlight_state", "ui", "--port", "0", *map(str, words)]
    process = Program(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stderr is not None
    try:
        told = process.stderr.readline()
        found = re.search(r"http://\S+/", told)
        assert found, told + process.stderr.read()
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()


def test_a_process_serves_pages_until_it_is_ended(fresh_database: Database, tmp_path: Path) -> None:
    """inspector IN-15: it shows no password, and ends in order."""
    with serving("--url", fresh_database.url, "--state-dir", tmp_path) as (process, address):
        page = httpx2.get(address)
        assert page.status_code == 200
        assert "Nothing runs." in page.text
        assert httpx2.get(address, headers={"host": "evil.example"}).status_code == 421
        assert "uvicorn" not in str(page.headers)
        with httpx2.stream("GET", address, headers={"accept": "text/event-stream"}, timeout=20) as live:
            lines = live.iter_lines()
            assert any("Nothing runs." in line for line in lines)
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (143, "")
        assert "Traceback" not in err


def test_looking_leaves_no_files(sqlite_database: Database, state_dir: Path) -> None:
    """inspector IN-15: the database is opened for reading only."""
    sqlite_database.open().close()
    before = set(files_of(state_dir))
    with serving("--url", sqlite_database.url, "--state-dir", state_dir) as (process, address):
        assert httpx2.get(f"{address}runs").status_code == 200
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
    assert {name for name in files_of(state_dir) if not name.endswith(("-wal", "-shm"))} == before


def test_a_token_file_guards_every_page(sqlite_database: Database, tmp_path: Path) -> None:
    """inspector IN-10, IN-15."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    with serving("--url", sqlite_database.url, "--token-file", file, "--host", "0.0.0.0") as (_, told):
        address = told.replace("0.0.0.0", "127.0.0.1")
        assert httpx2.get(address).status_code == 401
        assert httpx2.get(address, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


@with_each(
    ("words", "where"),
    [
        (("--host", "0.0.0.0"), "--host"),
        (("--host", "::"), "--host"),
        (("--host", "192.0.2.1"), "--host"),
        (("--host", "db.internal"), "--host"),
        (("--token-file", "missing"), "--token-file"),
        (("--token-file", "short"), "--token-file"),
        (("--person", "ana"), "--person"),
        (("--allow-acting",), "person"),
    ],
)
def test_what_is_not_safe_is_refused(
    sqlite_database: Database, tmp_path: Path, words: tuple[str, ...], where: str
) -> None:
    """inspector IN-13, IN-15."""
    (tmp_path / "short").write_text("secret")
    said = lastlight_state("ui", "--url", sqlite_database.url, *words, "--json")
    assert (said.code, said.error) == (2, "invalid_value")
    assert said.answer["error"]["details"]["where"] == where
    assert "secret" not in said.out
