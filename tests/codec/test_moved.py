"""Sealed cells where rows travel as they are, with nobody there who has the key."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli.calls import lastlight_state
from support.sealing import SAID, Xor, cells, filled, said

from lastlight_state import StateStore
from lastlight_state.testing import Database


@pytest.mark.parametrize(("source", "target"), [("sqlite", "file"), ("sqlite", "postgres"), ("postgres", "file")])
def test_a_copy_moves_sealed_cells_as_they_are(
    source: str, target: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """codec CO-15: the command has no key, and the codec opens the copy."""
    database: Database = request.getfixturevalue(f"{source}_database")
    url = str(tmp_path / "copy.db") if target == "file" else request.getfixturevalue("postgres_database").url
    filled(database.open(codec=Xor(7)))
    copied = lastlight_state("copy", "--url", database.url, "--to", url, "--migrate-target")
    assert copied.code == 0, copied.err
    with StateStore.open(url, codec=Xor(7)) as store:
        assert said(store) == SAID


def test_a_check_needs_no_key(database: Database) -> None:
    """codec CO-3: it shows no contents."""
    filled(database.open(codec=Xor(7)))
    before = cells(database)
    assert lastlight_state("doctor", "--deep", "--url", database.url).code == 0
    assert cells(database) == before
