"""The plain ``alembic`` command at the root of a checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from alembic import command
from alembic.config import CommandLine, Config
from alembic.util import CommandError
from support.migrations.originals import SEED, original
from support.migrations.policy import violations
from support.migrations.support import OLD_RUN, Place, load
from support.preloaded import run_program

from lastlight_state.migrations import current, scripts

ROOT = Path(__file__).parents[2]


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


def test_it_finds_no_difference_to_the_models(place: Place) -> None:
    """migrations MG-14: ``alembic check``."""
    place.at()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*expression-based index")  # `test_snapshot` compares them
        alembic_here("-x", f"url={place.url}", "check")


def test_it_works_in_the_schema_that_is_named(postgres_place: Place) -> None:
    """migrations MG-2, Postgres."""
    alembic_here("-x", f"url={postgres_place.url}", "-x", "schema=Odd name", "upgrade", "head")
    assert current(postgres_place.backend(schema="Odd name")) == scripts.head()
    assert current(postgres_place.backend()) is None


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
    with pytest.raises(CommandError, match="`lastlight-state migrate` takes them over"):
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


def test_it_writes_a_script(postgres_place: Place) -> None:
    """migrations MG-2: ``alembic upgrade --sql``, for developers."""
    done = alembic("-x", f"url={postgres_place.url}", "upgrade", "head", "--sql")
    assert done.returncode == 0, done.stderr
    assert f"UPDATE lastlight_state_version SET version_num='{scripts.head()}'" in done.stdout
    assert current(postgres_place.backend()) is None


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
    assert [violations(module, product) for product in ("sqlite", "postgresql")] == [[], []]
