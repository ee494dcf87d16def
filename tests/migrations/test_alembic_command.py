"""The plain ``alembic`` command at the root of a checkout."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import CommandLine, Config
from alembic.util import CommandError
from sqlalchemy import Index, func
from support.each import with_each
from support.migrations.originals import SEED, original
from support.migrations.policy import violations
from support.migrations.support import OLD_RUN, Place, catalogue, load
from support.preloaded import run_program

from lastlight_state.db.schema.guards import Guard
from lastlight_state.migrations import check, current, metadata, scripts

ROOT = Path(__file__).parents[2]


def checkout_in(folder: Path) -> Path:
    """Return a copy of what a checkout has for Alembic, in which revisions may be made."""
    made = folder / "checkout"
    shutil.copytree(ROOT / "alembic", made / "alembic", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "alembic.ini", made)
    return made


def execute(place: Place, script: str) -> None:
    """Run a script by hand."""
    raw = place.raw()
    (raw.executescript if place.name == "sqlite" else raw.execute)(script)


def alembic(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """What the command says, and how it ends."""
    words = [sys.executable, "-m", "alembic", *arguments]
    return run_program(words, cwd=folder, capture_output=True, text=True, check=False)


def alembic_here(*arguments: str, folder: Path = ROOT) -> None:
    """The command in this process, which has imported it already. It ends the process if it fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        CommandLine("alembic").main(list(arguments))


def test_it_upgrades_the_database_that_is_named(place: Place) -> None:
    """migrations MG-2."""
    alembic_here("-x", f"url={place.url}", "upgrade", "head")
    assert current(place.backend()) == scripts.head()


def test_it_upgrades_the_database_of_the_environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """migrations MG-2, backends B-1."""
    monkeypatch.setenv("LASTLIGHT_STATE_URL", place.url)
    alembic_here("upgrade", "0001")
    assert current(place.backend()) == "0001"


@pytest.mark.slow
def test_it_upgrades_the_database_whose_url_a_file_holds(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """migrations MG-2, backends B-89: a file of ``-x url_file=``, or of the environment."""
    file = tmp_path / "url"
    file.write_text(place.url + "\n", encoding="utf-8")
    alembic_here("-x", f"url_file={file}", "upgrade", "0001")
    assert current(place.backend()) == "0001"
    monkeypatch.setenv("LASTLIGHT_STATE_URL_FILE", str(file))
    alembic_here("upgrade", scripts.revisions()[1])
    assert current(place.backend()) == scripts.revisions()[1]


@pytest.mark.slow
def test_it_finds_no_difference_to_the_models(place: Place) -> None:
    """migrations MG-14: ``alembic check``."""
    place.at()
    alembic_here("-x", f"url={place.url}", "check")


def test_it_works_in_the_schema_that_is_named(postgres_place: Place) -> None:
    """migrations MG-2, Postgres."""
    alembic_here("-x", f"url={postgres_place.url}", "-x", "schema=Odd name", "upgrade", "head")
    assert current(postgres_place.backend(schema="Odd name")) == scripts.head()
    assert current(postgres_place.backend()) is None


@pytest.mark.slow
def test_an_upgrade_says_what_it_did_and_a_downgrade_that_there_is_no_way_down(place: Place) -> None:
    """migrations MG-69, as real commands; what the revisions do for old rows is done, too."""
    place.at("0001")
    raw = place.raw()
    raw.execute(OLD_RUN)
    named = ("-x", f"url={place.url}")
    upgraded = alembic(*named, "upgrade", "head")
    assert upgraded.returncode == 0, upgraded.stderr
    first, last = upgraded.stdout.splitlines()
    assert first == "0002_lastlight_state  Everything of this library beside the original program's tables."
    assert last == f"upgraded: {place.backend().location}"
    assert list(raw.execute("SELECT phase_count FROM workflow_runs")) == [(1,)]
    refused = alembic(*named, "downgrade", "-1")
    assert refused.returncode != 0
    assert "there is no way down" in refused.stdout + refused.stderr
    assert "Traceback" not in refused.stderr
    assert current(place.backend()) == scripts.head()


def test_an_upgrade_with_nothing_to_do_says_so(sqlite_place: Place) -> None:
    """migrations MG-69."""
    sqlite_place.at()
    done = alembic("-x", f"url={sqlite_place.url}", "upgrade", "head")
    assert done.stdout == f"nothing to do: {sqlite_place.backend().location}\n", done.stderr


def test_a_database_of_the_original_program_is_left_to_migrate(sqlite_place: Place) -> None:
    """migrations MG-69: taking over is more than the revisions."""
    original(sqlite_place, SEED)
    with pytest.raises(CommandError, match=r"`lastlight-state migrate --url .*` takes them over"):
        alembic_here("--raiseerr", "-x", f"url={sqlite_place.url}", "upgrade", "head")
    assert current(sqlite_place.backend()) is None


def test_it_tells_the_history() -> None:
    """migrations MG-2."""
    done = alembic("history")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "<base> -> 0001, The seven tables of the original program."


def test_it_tells_where_a_database_is(sqlite_place: Place) -> None:
    """migrations MG-2."""
    sqlite_place.at("0001")
    done = alembic("-x", f"url={sqlite_place.url}", "current")
    assert done.stdout == "0001\n", done.stderr


def test_it_works_from_elsewhere_with_the_configuration_named(sqlite_place: Place, tmp_path: Path) -> None:
    """migrations MG-2."""
    named = ("-c", str(ROOT / "alembic.ini"), "-x", f"url={sqlite_place.url}")
    alembic_here(*named, "upgrade", "head", folder=tmp_path)
    assert current(sqlite_place.backend()) == scripts.head()


@pytest.mark.slow
@pytest.mark.plain_postgres("runs a script as one text")
def test_it_writes_a_script_that_can_be_run(place: Place) -> None:
    """migrations MG-62: ``alembic upgrade --sql`` as a real command; from any revision, in one transaction."""
    before = None
    for target in ("0001", "0001:head"):
        done = alembic("-x", f"url={place.url}", "upgrade", target, "--sql")
        assert done.returncode == 0, done.stderr
        assert current(place.backend()) == before
        execute(place, done.stdout)
        before = current(place.backend())
    assert (before, check(place.backend()).differences) == (scripts.head(), ())


def test_a_script_that_fails_changes_nothing(place: Place) -> None:
    """migrations MG-62: of a database that is there already, which the script cannot know."""
    place.at()
    done = alembic("-x", f"url={place.url}", "upgrade", "head", "--sql")
    before = catalogue(place.backend())
    with pytest.raises((sqlite3.Error, psycopg.Error), match="already exists"):
        execute(place, done.stdout)
    place.close()
    assert catalogue(place.backend()) == before


@pytest.mark.plain_postgres("runs a script as one text")
def test_a_script_for_a_schema_makes_it_there(postgres_place: Place) -> None:
    """migrations MG-29, MG-62, Postgres."""
    done = alembic("-x", f"url={postgres_place.url}", "-x", "schema=agents", "upgrade", "head", "--sql")
    execute(postgres_place, done.stdout)
    assert current(postgres_place.backend(schema="agents")) == scripts.head()
    assert current(postgres_place.backend()) is None


#: What is lost in a damaged database, and how each command ends, by the state of the database.
GONE = ("DROP INDEX uq_scores_current", "DROP INDEX {index}", "DROP TRIGGER scores_no_delete{on}")
ANY = ("empty", "0001", "head", "damaged")
BEHIND, DIFFERS = "Target database is not up to date", "is not as revision .* lastlight-state migrate"
NOTHING = "no database at|is missing"
WALK: dict[str, dict[str, str | None]] = {
    **dict.fromkeys(
        ("current", "current --verbose", "history", "history --indicate-current", "heads", "show head", "branches",
         "ensure_version", "upgrade head --sql", "stamp head --sql"),
        dict.fromkeys(ANY),
    ),
    "check": {"empty": BEHIND, "0001": BEHIND, "head": None, "damaged": DIFFERS},
    "revision --autogenerate --rev-id 9999_more -m more": {
        "empty": BEHIND, "0001": BEHIND, "head": None, "damaged": DIFFERS},
    "stamp head": {"empty": NOTHING, "0001": "is missing", "head": None, "damaged": "is missing"},
    "stamp 0001": {"empty": NOTHING, "0001": None, "head": "a later revision makes one",
                   "damaged": "a later revision makes one"},
    "upgrade +1": {"empty": None, "0001": None, "head": "didn't produce 1", "damaged": "didn't produce 1"},
    "upgrade head": dict.fromkeys(ANY),
    "downgrade -1": dict.fromkeys(ANY, "there is no way down"),
}  # fmt: skip
#: The commands after which there may be more than before: in the database, or in the folder of the revisions.
WRITES = ("upgrade +1", "upgrade head", "ensure_version", "revision --autogenerate --rev-id 9999_more -m more")


def begin(place: Place, state: str) -> None:
    """Make the database in a state."""
    if state != "empty":
        place.at("0001" if state == "0001" else "head")
    for statement in GONE if state == "damaged" else ():
        index = "ix_approvals_asked" if place.name == "sqlite" else "uq_run_events_event_id"
        on = "" if place.name == "sqlite" else " ON scores"
        place.raw().execute(statement.format(index=index, on=on))


def run(place: Place, tree: Path, words: str, state: str) -> None:
    """Run a command, which ends as `WALK` says."""
    refusal = WALK[words][state]
    with nullcontext() if refusal is None else pytest.raises(CommandError, match=f"(?s){refusal}"):
        alembic_here("--raiseerr", "-x", f"url={place.url}", *words.split(), folder=tree)


@pytest.mark.slow
@pytest.mark.parametrize("state", ANY)
def test_each_command_ends_in_words_and_changes_nothing(place: Place, tmp_path: Path, state: str) -> None:
    """migrations MG-2, MG-76: on an empty, an old, a current and a damaged database; a warning is an error here."""
    tree = checkout_in(tmp_path)
    begin(place, state)
    before = None if state == "empty" else catalogue(place.backend())
    for words in WALK.keys() - set(WRITES):
        run(place, tree, words, state)
        if before is not None:
            assert (words, catalogue(place.backend())) == (words, before)
        elif place.name == "sqlite":
            assert not place.path.exists(), words
        else:
            assert (words, catalogue(place.backend())) == (words, {})


@with_each("words, state", product(WRITES, ANY))
def test_each_command_that_changes_something_ends_in_words(
    place: Place, tmp_path: Path, words: str, state: str
) -> None:
    """migrations MG-2, MG-76: and a proposal of a revision changes no database."""
    begin(place, state)
    before = None if state == "empty" else catalogue(place.backend())
    run(place, checkout_in(tmp_path), words, state)
    if words.startswith("revision") and before is not None:
        assert catalogue(place.backend()) == before


def test_an_upgrade_puts_back_what_is_lost(place: Place) -> None:
    """migrations MG-73."""
    place.at()
    place.raw().execute("DROP INDEX uq_scores_current")
    done = alembic("-x", f"url={place.url}", "upgrade", "head")
    assert done.stdout.splitlines()[0] == "put back index scores.uq_scores_current", done.stderr
    assert check(place.backend()).differences == ()


@pytest.mark.slow
def test_autogenerate_proposes_what_the_models_declare_and_no_revision_makes(
    sqlite_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """migrations MG-76: a guard, and on SQLite an index over an expression."""
    tree = checkout_in(tmp_path)
    sqlite_place.at()
    monkeypatch.setattr(metadata, "GUARDS", (*metadata.GUARDS, Guard("scores_wise", "scores", "insert", "be wise")))
    index = Index("ix_scores_lower", func.lower(metadata.METADATA.tables["scores"].c.reason))
    try:
        words = ("--raiseerr", "-x", f"url={sqlite_place.url}")
        with pytest.raises(CommandError, match=r"(?s)ix_scores_lower.*scores_wise"):
            alembic_here(*words, "check", folder=tree)
        alembic_here(*words, "revision", "--autogenerate", "--rev-id", "9999_more", "-m", "more", folder=tree)
    finally:
        metadata.METADATA.tables["scores"].indexes.remove(index)
    made = (tree / "alembic" / "versions" / "9999_more.py").read_text("utf-8")
    assert "op.create_index('ix_scores_lower', 'scores'" in made
    assert "op.execute('CREATE TRIGGER scores_wise ON scores" in made


def test_a_new_revision_is_one_that_the_policy_accepts(tmp_path: Path) -> None:
    """migrations MG-11: the template imports nothing of ours and has no downgrade."""
    folder = tmp_path / "alembic"
    shutil.copytree(ROOT / "alembic", folder, ignore=shutil.ignore_patterns("__pycache__"))
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "os")
    config.set_main_option("file_template", "%%(rev)s")
    command.revision(config, "Add a table", rev_id="9999_add_a_table")
    module = load(folder / "versions" / "9999_add_a_table.py")
    assert (module.revision, module.down_revision) == ("9999_add_a_table", scripts.head())
    assert [violations(module, name) for name in ("sqlite", "postgresql")] == [[], []]
