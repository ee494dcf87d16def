"""Rolling deploys: the release before this one works on the newest schema, and on one that is newer still."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.migrations.installing import install
from support.migrations.support import Place

from lastlight_state.migrations import migrate

WHEEL = max((Path(__file__).parents[1] / "fixtures" / "wheels").glob("*.whl"))

CONTRACTS = """
import os
from pathlib import Path

import pytest

import lastlight_state
from lastlight_state import StateStore
from lastlight_state.testing.contracts import ApprovalsContract, ExecutionsContract, MessagingContract, RunsContract


@pytest.fixture
def store(frozen_clock):
    with StateStore.open(os.environ["DATABASE"], migrate=False, clock=frozen_clock) as opened:
        yield opened


def test_this_is_the_previous_release():
    assert Path(lastlight_state.__file__).is_relative_to(os.environ["PYTHONPATH"])


class TestRuns(RunsContract): ...
class TestExecutions(ExecutionsContract): ...
class TestApprovals(ApprovalsContract): ...
class TestMessaging(MessagingContract): ...
"""


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The previous release, installed in a folder of its own."""
    target = tmp_path_factory.mktemp("previous")
    install(WHEEL, target)
    return target


@pytest.mark.usefixtures("with_next_revision")
def test_the_previous_release_keeps_its_own_contracts_on_a_newer_schema(
    place: Place, previous: Path, tmp_path: Path
) -> None:
    """migrations MG-15: the newest revision of this checkout, and one more that is made up."""
    assert migrate(place.backend()).to_revision == "9999"
    (tmp_path / "test_contracts.py").write_text(CONTRACTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    environment = {
        **os.environ,
        "PYTHONPATH": str(previous),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "DATABASE": place.url,
    }
    words = ["-p", "lastlight_state.testing.plugin", "-p", "no:cacheprovider", "-q", "test_contracts.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) >= 20
