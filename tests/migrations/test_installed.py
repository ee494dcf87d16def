"""An installed library carries its revisions, and needs neither a checkout nor an ini file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support.migrations.installing import install

from lastlight_state.backends import connect
from lastlight_state.migrations import current, scripts
from lastlight_state.settings import Settings

ROOT = Path(__file__).parents[2]
PROGRAM = ["-c", "from lastlight_state.cli import main; main()"]
WHERE = ["-c", "from lastlight_state.migrations import scripts; print(scripts.folder())"]


@pytest.fixture
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment that has the library from a wheel made of its sdist, and no checkout.

    What the library stands on is lent by the environment of the tests: only its files, not what its ``.pth`` files say.
    """
    place = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "venv"], check=True)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", place / "dist"], cwd=ROOT, check=True
    )
    [sdist] = (place / "dist").glob("*.tar.gz")
    [packages] = (place / "venv" / "lib").glob("python*/site-packages")
    install(sdist, packages)
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "venv" / "bin" / "python"


def run(python: Path, *words: str, folder: Path) -> str:
    """What the interpreter says, started far from the checkout."""
    hidden = ("LASTLIGHT_", "PYTHON", "STATE_DIR")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return subprocess.run(
        [python, *words], cwd=folder, env=environment, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.slow
def test_it_migrates_with_the_revisions_that_it_carries(python: Path, tmp_path: Path) -> None:
    """migrations MG-1: from a wheel, which is made of an sdist, in another working directory."""
    where = Path(run(python, *WHERE, folder=tmp_path).strip())
    assert where.is_relative_to(python.parents[1])
    assert where.name == "_migrations"
    said = json.loads(run(python, *PROGRAM, "migrate", "--json", folder=tmp_path))
    assert said["data"]["revisions"] == list(scripts.revisions())
    backend = connect(Settings(url=str(tmp_path / "state" / "lastlight.db")))
    assert current(backend) == scripts.head()
    backend.close()
