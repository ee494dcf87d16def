"""The next version is rehearsed: a made-up revision 0003, and the wheel of this checkout beside it on full databases."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.migrations.next_version import PROGRAM, BEFOREHAND, INDEX, REVISION, Version, candidate, next_after, write_shape
from support.migrations.originals import ROWS, SEED, dump, original
from support.migrations.support import Place
from support.migrations.workers import Workers

from lastlight_state.migrations import scripts

HEAD = scripts.head()
BEHIND, AHEAD = 3, 4
MORE = "INSERT INTO lastlight_states_more (id, provenance) SELECT id, 'next' FROM states WHERE scope IN ('scope', 'leaving')"


class Versions:
    """The candidate, the version after it, and one database for both."""

    def __init__(self, old: Version, new: Version, place: Place, folder: Path) -> None:
        self.old, self.new, self.place, self.folder = old, new, place, folder

    def does(self, version: Version, verb: str, *words: str) -> Any:
        """Return what a version's program says of the database."""
        return version.does(self.folder, verb, self.place.url, *words)

    def command(self, version: Version, *words: str, code: int = 0) -> Any:
        """Run a command of a version on the database. Return the data that its ``--json`` prints."""
        said = version.does(self.folder, "command", *words, "--url", self.place.url, "--json")
        assert said["code"] == code, said
        return json.loads(said["out"])["data"]

    def fill(self) -> Any:
        """Let the candidate make the database and fill it. Return what it reads there."""
        self.command(self.old, "migrate")
        self.does(self.old, "fill")
        return self.does(self.old, "read")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Version, Version, set[str]]]:
    """Both versions, and the products whose schema the next one knows."""
    folder = tmp_path_factory.mktemp("versions")
    old, _ = candidate(folder)
    new = next_after(old, folder / "next")
    yield old, new, set()
    old.close()
    new.close()


@pytest.fixture
def versions(place: Place, built: tuple[Version, Version, set[str]], tmp_path: Path) -> Versions:
    """Both versions, and an empty place for a database."""
    old, new, known = built
    if place.name not in known:
        write_shape(new, ":memory:" if place.name == "sqlite" else place.url)
        known.add(place.name)
    return Versions(old, new, place, tmp_path)


def without_added(found: Any) -> Any:
    """What a version reads, without the fields that the next version adds."""
    if isinstance(found, dict):
        return {name: without_added(value) for name, value in found.items() if name not in ("rubric", "provenance")}
    return [without_added(value) for value in found] if isinstance(found, list) else found


def assert_equal(found: Any, expected: Any) -> None:
    """Compare what two versions read, list by list."""
    assert found.keys() == expected.keys()
    for name in expected:
        for one, other in zip(found[name], expected[name], strict=True):
            assert one == other, name


def faults(report: Any) -> set[tuple[str, str, str]]:
    """What an examination by ``doctor`` found, but for what it says of the version."""
    return {(one["code"], one["severity"], one["subject"]) for one in report["findings"] if one["code"] != "DOC-1"}


def test_both_versions_read_and_write_on_both_schemas(versions: Versions) -> None:
    """migrations MG-107: the next version refuses the older schema until it is migrated, and changes nothing."""
    old, new, place = versions.old, versions.new, versions.place
    versions.fill()
    assert versions.does(old, "write", "old-on-old")["events"] == 3
    before = versions.does(old, "read")
    # The next version on the old schema.
    assert versions.does(new, "read").name == "NotMigrated"
    assert versions.does(new, "write", "new-on-old").name == "NotMigrated"
    versions.command(new, "check", code=BEHIND)
    assert versions.does(old, "read") == before
    # Both on the new schema.
    assert versions.command(new, "migrate")["revisions"] == [REVISION]
    versions.command(new, "check")
    assert_equal(without_added(versions.does(new, "read")), before)
    assert versions.does(new, "write", "new-on-new")["score"]["rubric"] == "strict"
    place.raw().execute(MORE)
    assert {one["provenance"] for one in versions.does(new, "read")["states"]} == {"next", None}
    # The old version on the new schema.
    versions.command(old, "check", code=AHEAD)
    assert versions.does(old, "write", "old-on-new")["events"] == 3
    assert versions.does(old, "read") == without_added(versions.does(new, "read"))


def test_the_old_version_removes_what_the_next_one_has_more_of(versions: Versions) -> None:
    """migrations MG-108: a row of a companion goes with its parent."""
    versions.fill()
    versions.command(versions.new, "migrate")
    versions.does(versions.new, "write", "leaving")
    raw = versions.place.raw()
    raw.execute(MORE)
    versions.does(versions.old, "write", "old")
    [(left,)] = raw.execute("SELECT count(*) FROM states WHERE scope = 'leaving'").fetchall()
    [(more,)] = raw.execute("SELECT count(*) FROM lastlight_states_more").fetchall()
    assert (left, more) == (0, 3)
