"""Released revisions are frozen: tried with releases that are made up, too."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support.migrations.releases import HISTORY, digest_of, digests, problems, released

from lastlight_state.migrations import scripts

FIRST, SECOND, *_ = scripts.revisions()
PAGE = HISTORY.read_text("utf-8")


@pytest.fixture
def versions(tmp_path: Path) -> Path:
    """A copy of the revisions."""
    return Path(shutil.copytree(scripts.folder() / "versions", tmp_path / "versions"))


def with_digests(folder: Path, *revisions: str) -> str:
    """The page as a release of these revisions, and of no others, would leave it."""
    page = re.sub(r"(?m)^(\| \d{4}\w* \|.*\| )[0-9a-f]{64}( \|)$", r"\g<1>unreleased\g<2>", PAGE)
    for revision in revisions:
        (file,) = folder.glob(f"{revision}*.py")
        page = re.sub(rf"(?m)^(\| {revision} \|.*\| )\S+( \|)$", rf"\g<1>{digest_of(file)}\g<2>", page)
    return page


def test_every_revision_has_its_line_and_a_released_one_its_digest() -> None:
    """migrations MG-12: a released revision never changes."""
    assert list(problems(PAGE, scripts.folder() / "versions")) == []
    assert tuple(digests(PAGE)) == scripts.revisions()


def test_a_release_that_changed_nothing_is_in_order(versions: Path) -> None:
    """migrations MG-12."""
    page = with_digests(versions, FIRST, SECOND)
    assert released(page) >= {FIRST, SECOND}
    assert list(problems(page, versions)) == []


def test_a_released_revision_that_changes_is_named(versions: Path) -> None:
    """migrations MG-12: be it one character; those that are not released may change."""
    page = with_digests(versions, FIRST)
    for revision in (FIRST, SECOND):
        (file,) = versions.glob(f"{revision}*.py")
        file.write_text(file.read_text("utf-8").replace("nullable=False", "nullable=True", 1), "utf-8")
    assert list(problems(page, versions)) == ["0001 was released and has changed"]


def test_a_released_revision_that_goes_is_named(versions: Path) -> None:
    """migrations MG-12."""
    page = with_digests(versions, "0001")
    next(versions.glob("0001_*.py")).unlink()
    assert list(problems(page, versions)) == ["0001 has a line and no file"]


def test_a_revision_without_a_line_is_named(versions: Path) -> None:
    """migrations MG-12: two revisions made at once meet in that page."""
    (versions / "9999_more.py").touch()
    assert list(problems(PAGE, versions)) == ["9999_more has no line"]


def test_a_release_leaves_no_revision_before_it_open(versions: Path) -> None:
    """migrations MG-12: what stands below a released revision is part of it."""
    assert list(problems(with_digests(versions, SECOND), versions)) == [f"{SECOND} was released before {FIRST}"]
