"""What an import notes of its units is the same in every version: what an older one brought in is found unchanged."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from support.maintenance.mailbox_trees import write_session
from support.maintenance.sources import BUNDLE, KINDS, source_of

from lastlight_state.receipts.models import LEDGER
from lastlight_state.testing import Database

#: Of the names and digests of the units of each kind of source, as they were noted first.
NOTED = {
    "lionagi-runs": "43f976156dd48e18",
    "lionagi-db": "5fdb76a61dccf017",
    "lionagi-teams": "1263cb3c9798db3d",
    "lastlight-db": "25d0360d16e8b0f4",
    "smithers-db": "07ced849ede5ea18",
    "lastlight-logs": "70889518442fe718",
    "codelia": "ef1cc3f33428dcad",
    "openai-agents-db": "5bc56781ec8313c4",
    "nanoclaw": "0ae6a63a97587a7e",
}


def test_every_kind_of_source_is_looked_at() -> None:
    """maintenance OP-36."""
    assert NOTED.keys() == {*KINDS, "nanoclaw"} - {BUNDLE}


@pytest.mark.parametrize("kind", NOTED)
def test_a_unit_is_noted_as_it_always_was(sqlite_database: Database, tmp_path: Path, kind: str) -> None:
    """maintenance OP-36: a change of these digests lets every stored unit look as if its source had changed."""
    source = tmp_path / "source"
    if kind == "nanoclaw":
        for session in ("sess-1", "sess-2"):
            write_session(source, session=session)
    else:
        source = source_of(kind, source)
    sqlite_database.open().maintenance.imports.run(source, kind=kind)  # type: ignore[arg-type]
    noted = f"SELECT source_key, digest FROM {LEDGER.name} ORDER BY source_key"
    rows = sqlite_database.raw().execute(noted).fetchall()
    found = [(key, digest.partition(" {")[0]) for key, digest in rows]  # what stands behind is of the rows here
    assert hashlib.sha256(repr(found).encode()).hexdigest()[:16] == NOTED[kind]
