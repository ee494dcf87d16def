"""The next version is rehearsed: a made-up revision 0003 beside the wheel of this checkout, on full databases."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.migrations.next_version import (
    BEFOREHAND,
    INDEX,
    PROGRAM,
    REVISION,
    Version,
    candidate,
    next_after,
    write_shape,
)
from support.migrations.originals import ROWS, SEED, dump, original
from support.migrations.policy import violations
from support.migrations.support import Place, load
from support.migrations.templates import PostgresTemplates
from support.migrations.workers import Workers

from lastlight_state.migrations import scripts

HEAD = scripts.head()
INDEX_OF_OTHERS = f"CREATE INDEX {INDEX} ON run_events (occurred_at)"
UNIQUE_INDEX = f"CREATE UNIQUE INDEX {INDEX} ON run_events (type, occurred_at, seq)"
BEHIND, AHEAD = 3, 4
MORE = (
    "INSERT INTO lastlight_states_more (id, provenance) SELECT id, 'next' FROM states "
    "WHERE scope IN ('scope', 'leaving')"
)
_EVENT = "SELECT 'many', i, 'e', '2026-02-03T12:00:00.000Z', '{{\"n\":1}}'"
#: Fills a table with events of the run `many`, which has three.
MANY = {
    "sqlite": "INSERT INTO run_events (run_id, seq, type, occurred_at, payload) WITH RECURSIVE n(i) AS "
    f"(SELECT 4 UNION ALL SELECT i + 1 FROM n WHERE i < {{rows}}) {_EVENT} FROM n",
    "postgresql": "INSERT INTO run_events (run_id, seq, type, occurred_at, payload) "
    f"{_EVENT} FROM generate_series(4, {{rows}}) AS n (i)",
}


Built = tuple[Version, Version, set[str]]


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
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """Both versions, and the products whose schema the next one knows."""
    folder = tmp_path_factory.mktemp("versions")
    old, _ = candidate(folder)
    new = next_after(old, folder / "next")
    yield old, new, set()
    old.close()
    new.close()


@pytest.fixture
def versions(place: Place, built: Built, tmp_path: Path) -> Versions:
    """Both versions, and an empty place for a database."""
    old, new, known = built
    if place.name not in known:
        write_shape(new, ":memory:" if place.name == "sqlite" else place.url)
        known.add(place.name)
    return Versions(old, new, place, tmp_path)


def without_added(found: Any) -> Any:
    """Return what a version reads, without the fields that the next version adds."""
    if isinstance(found, dict):
        return {name: without_added(value) for name, value in found.items() if name not in ("rubric", "provenance")}
    return [without_added(value) for value in found] if isinstance(found, list) else found


def assert_equal(found: Any, expected: Any) -> None:
    """Compare what two versions read, list by list."""
    assert found.keys() == expected.keys()
    for name in expected:
        for one, other in zip(found[name], expected[name], strict=True):
            assert one == other, name


def errors_of(report: Any) -> list[str]:
    """Return the codes of the errors that ``doctor`` found."""
    return [one["check"] for one in report["findings"] if one["severity"] == "error"]


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
    assert errors_of(versions.command(new, "doctor", code=1)) == ["DOC-02"]
    assert versions.does(old, "read") == before
    # Both on the new schema.
    assert versions.command(new, "migrate")["revisions"] == [REVISION]
    versions.command(new, "check")
    assert errors_of(versions.command(new, "doctor")) == []
    assert_equal(without_added(versions.does(new, "read")), before)
    assert versions.does(new, "write", "new-on-new")["score"]["rubric"] == "strict"
    place.raw().execute(MORE)
    assert {one["provenance"] for one in versions.does(new, "read")["states"]} == {"next", None}
    # The old version on the new schema.
    versions.command(old, "check", code=AHEAD)
    assert errors_of(versions.command(old, "doctor")) == []
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


@pytest.mark.parametrize("product", ["sqlite", "postgresql"])
def test_the_rehearsed_revision_only_adds(built: Built, product: str) -> None:
    """migrations MG-10, MG-11: so the rehearsal is of a revision that is permitted."""
    file = built[1].folder / "lastlight_state" / "_migrations" / "versions" / f"{REVISION}.py"
    assert violations(load(file), product) == []


def test_of_eight_deployers_one_migrates(versions: Versions) -> None:
    """migrations MG-25: to a revision that follows a released one, on a full database."""
    before = versions.fill()
    deployers = Workers(versions.new.environment())
    told = deployers.migrate(versions.place.url, members=8)
    deployers.close()
    assert sorted(told) == [[]] * 7 + [[REVISION]]
    assert_equal(versions.does(versions.old, "read"), before)


@pytest.fixture(params=[pytest.param(2_000, id="2000"), pytest.param(1_000_000, id="million", marks=pytest.mark.soak)])
def rows(request: pytest.FixtureRequest) -> int:
    """Return the number of rows in the table with the new index."""
    found: int = request.param
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("beforehand", [False, True], ids=["by the revision", "before it"])
def test_the_old_version_writes_while_the_next_one_migrates(
    versions: Versions, rows: int, beforehand: bool, record_property: Callable[[str, object], None], capsys: Any
) -> None:
    """migrations MG-109: no call fails, and all that returned are stored; on Postgres the index can come first."""
    versions.command(versions.old, "migrate")
    assert versions.does(versions.old, "write", "many")["events"] == 3
    raw = versions.place.raw()
    raw.execute(MANY[versions.place.name].format(rows=rows))
    with writers(versions) as ended:
        began = time.monotonic()
        if beforehand:
            raw.execute(BEFOREHAND if versions.place.name == "postgresql" else BEFOREHAND.replace(" CONCURRENTLY", ""))
            assert versions.command(versions.new, "check", code=BEHIND)["differences"] == []
            script = versions.new.does(versions.folder, "command", "migrate", "--sql", "--url", versions.place.url)
            assert INDEX in script["out"], script
        assert versions.command(versions.new, "migrate")["revisions"] == [REVISION]
        took = time.monotonic() - began
        time.sleep(0.2)  # some calls on the new schema
        told = ended()
    assert [one["stored"] for one in told] == [one["calls"] for one in told]
    assert all(one["calls"] > 5 for one in told)
    assert versions.command(versions.new, "check")["differences"] == []
    waited = max(one["slowest"] for one in told)
    with capsys.disabled():
        if rows > 2_000:
            sys.stdout.write(
                f"\n{versions.place.name}, {rows} rows, index {beforehand=}: {took:.2f} s, waited {waited:.2f} s\n"
            )
    record_property("seconds_waited", waited)


@contextmanager
def writers(versions: Versions) -> Iterator[Callable[[], list[Any]]]:
    """Two processes of the old version that write; the function ends them, and returns what they say."""
    crew = [versions.old.start(PROGRAM, "serve", versions.place.url, f"writer-{n}") for n in range(2)]
    try:
        assert [one.stdout.readline() for one in crew if one.stdout] == ["ready\n"] * 2
        yield lambda: [json.loads(one.communicate()[0]) for one in crew]
    finally:
        for one in crew:
            one.kill()
            one.communicate()


def test_an_early_index_that_is_made_otherwise_is_refused_by_check_and_migrate(versions: Versions) -> None:
    """migrations MG-110: a UNIQUE one, and on SQLite one of other columns, which Postgres writes in its own words."""
    versions.command(versions.old, "migrate")
    others = {"sqlite": [INDEX_OF_OTHERS, UNIQUE_INDEX], "postgresql": [UNIQUE_INDEX]}[versions.place.name]
    for made in others:
        versions.place.raw().execute(made)
        named = versions.command(versions.new, "check", code=1)["differences"]
        assert named == [f"index {INDEX} is there already, and a later revision makes one"], made
        refused = versions.new.does(versions.folder, "command", "migrate", "--url", versions.place.url)
        assert (refused["code"], named[0] in refused["err"]) == (1, True), refused
        versions.place.raw().execute(f"DROP INDEX {INDEX}")
    versions.command(versions.new, "migrate")


def test_an_early_index_that_failed_is_put_back(postgres_place: Place, built: Built, tmp_path: Path) -> None:
    """migrations MG-73, MG-110: an interrupted CREATE INDEX CONCURRENTLY leaves an index that is not valid."""
    old, new, known = built
    if "postgresql" not in known:
        write_shape(new, postgres_place.url)
        known.add("postgresql")
    versions = Versions(old, new, postgres_place, tmp_path)
    versions.command(old, "migrate")
    raw = postgres_place.raw()
    raw.execute(BEFOREHAND)
    raw.execute(f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{INDEX}'::regclass")
    versions.command(new, "migrate")
    assert versions.command(new, "check", code=1)["differences"] == [f"index run_events.{INDEX} is switched off"]
    assert versions.command(new, "migrate")["mended"] == [f"index run_events.{INDEX}"]
    versions.command(new, "check")


def test_a_lost_index_that_may_come_early_is_put_back(versions: Versions) -> None:
    """migrations MG-73: by the statement of its revision."""
    versions.command(versions.new, "migrate")
    versions.place.raw().execute(f"DROP INDEX {INDEX}")
    assert versions.command(versions.new, "migrate")["mended"] == [f"index run_events.{INDEX}"]


def test_a_downgrade_is_a_restore(versions: Versions, postgres_templates: PostgresTemplates) -> None:
    """migrations MG-111: of the backup that was made before the upgrade; the old version restores no newer rows."""
    old, new, folder, product = versions.old, versions.new, versions.folder, versions.place.name
    before = versions.fill()
    versions.command(old, "backup", "backups/before")
    versions.command(new, "migrate")
    versions.does(new, "write", "after")
    versions.command(new, "backup", "backups/after")
    is_file = product == "sqlite"
    url = f"sqlite:///{folder}/restored/lastlight.db" if is_file else postgres_templates.take(None)
    to = ("--to", url, "-y", *(() if is_file else ("--to-state-dir", "restored")))
    if not is_file:  # a file is restored as a whole, and the old version works on it
        said = old.does(folder, "command", "restore", "backups/after", *to)
        assert (said["code"], "the backup has the schema version 0003" in said["err"]) == (5, True), said
    assert old.does(folder, "command", "restore", "backups/before", *to)["code"] == 0
    assert_equal(old.does(folder, "read", url), before)
    assert new.does(folder, "command", "migrate", "--url", url)["code"] == 0
    assert_equal(without_added(new.does(folder, "read", url)), before)
    if not is_file:
        postgres_templates.give_back(url)


def test_bundles_and_archives_of_the_old_version_are_loaded_by_the_next(versions: Versions) -> None:
    """migrations MG-112: and the old version refuses a bundle of the next."""
    before = versions.fill()
    old, new = versions.old, versions.new
    versions.does(old, "write", "ended")
    versions.command(old, "run", "ended", "cancel", "-y")
    versions.command(old, "export", "run", "home", "--out", "home.bundle")
    versions.command(old, "export", "session", "talk-0", "--out", "talk.bundle")
    found = versions.does(old, "read")
    (versions.folder / "archive").mkdir()
    score = [one for one in found["scores"] if one["run_id"] == "ended"]
    pruned = versions.command(
        old, "prune", "--kind", "runs", "--keep-days", "0", "--keep-n", "0", "--archive", "archive", "-y"
    )
    assert pruned["records"] == 1, pruned
    [archived] = [file for file in (versions.folder / "archive").rglob("*") if "ended" in file.name]
    versions.command(new, "migrate")
    for file in ("home.bundle", "talk.bundle", str(archived)):
        versions.command(new, "import", file)
    now = without_added(versions.does(new, "read"))
    assert [one for one in now["scores"] if one["run_id"] == "ended"] == score
    assert_equal(
        {name: now[name] for name in ("run 0", "events", "frames")},
        {name: before[name] for name in ("run 0", "events", "frames")},
    )
    versions.command(new, "export", "run", "home", "--out", "newer.bundle")
    assert versions.command(old, "import", "newer.bundle", code=5) == {}


def test_a_file_of_the_original_program_is_taken_over_as_by_the_old_version(
    built: Built, tmp_path: Path, sqlite_place: Place
) -> None:
    """migrations MG-40: in one step or in two."""
    old, new, known = built
    if "sqlite" not in known:
        write_shape(new, ":memory:")
        known.add("sqlite")
    original(sqlite_place, SEED, ROWS).close()
    dumps = []
    for name, steps in (("one", [new]), ("two", [old, new])):
        file = tmp_path / f"{name}.db"
        shutil.copyfile(sqlite_place.path, file)
        for version in steps:
            assert version.does(tmp_path, "command", "migrate", "--url", f"sqlite:///{file}")["code"] == 0
        with closing(sqlite3.connect(file)) as connection:
            dumps.append(dump(connection))
    assert dumps[0] == dumps[1]
