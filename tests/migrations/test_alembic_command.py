"""The plain ``alembic`` command at the root of a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from alembic import command
from alembic.config import Config
from migrations.support import Place, load

from lastlight_state.migrations import current, migrate, scripts
from lastlight_state.migrations.policy import violations

ROOT = Path(__file__).parents[2]


def alembic(*arguments: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """What the command says, and how it ends."""
    words = [sys.executable, "-m", "alembic", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_it_upgrades_the_database_that_is_named(place: Place) -> None:
    """migrations §1."""
    done = alembic("-x", f"url={place.url}", "upgrade", "head")
    assert done.returncode == 0, done.stderr
    assert current(place.backend()) == scripts.head()


def test_it_upgrades_the_database_of_the_environment(place: Place) -> None:
    """migrations §4, backends §1."""
    done = alembic("upgrade", "0001", LASTLIGHT_STATE_URL=place.url)
    assert done.returncode == 0, done.stderr
    assert current(place.backend()) == "0001"


def test_it_finds_no_difference_to_the_models(place: Place) -> None:
    """migrations §2.3: ``alembic check``."""
    migrate(place.backend())
    done = alembic("-x", f"url={place.url}", "check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_works_in_the_schema_that_is_named(postgres_place: Place) -> None:
    """migrations §5, Postgres."""
    done = alembic("-x", f"url={postgres_place.url}", "-x", "schema=Odd name", "upgrade", "head")
    assert done.returncode == 0, done.stderr
    assert current(postgres_place.backend(schema="Odd name")) == scripts.head()
    assert current(postgres_place.backend()) is None


def test_it_tells_the_history() -> None:
    """migrations §1."""
    done = alembic("history")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "<base> -> 0001, The seven tables of the original program."


def test_it_tells_where_a_database_is(sqlite_place: Place) -> None:
    """migrations §1."""
    migrate(sqlite_place.backend(), "0002")
    done = alembic("-x", f"url={sqlite_place.url}", "current")
    assert done.stdout == "0002\n", done.stderr


def test_it_works_from_elsewhere_with_the_configuration_named(sqlite_place: Place, tmp_path: Path) -> None:
    """migrations §1."""
    done = alembic("-c", str(ROOT / "alembic.ini"), "-x", f"url={sqlite_place.url}", "upgrade", "head", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert current(sqlite_place.backend()) == scripts.head()


def test_a_new_revision_is_one_that_the_policy_accepts(tmp_path: Path) -> None:
    """migrations §1: the template imports nothing of ours and has no downgrade."""
    folder = tmp_path / "alembic"
    shutil.copytree(ROOT / "alembic", folder, ignore=shutil.ignore_patterns("__pycache__"))
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "os")
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    command.revision(config, "Add a table", rev_id="9999")
    module = load(folder / "versions" / "9999_add_a_table.py")
    assert (module.revision, module.down_revision) == ("9999", scripts.head())
    assert [violations(module, product) for product in ("sqlite", "postgresql")] == [[], []]
