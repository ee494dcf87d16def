"""The check of the words of what is new."""

from __future__ import annotations

import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.docs.pages import ROOT
from support.each import with_each

WORDS: dict[str, Any] = runpy.run_path(str(ROOT / ".ci" / "words.py"))


def run(folder: Path, *words: str) -> None:
    name = ("-c", "user.name=Ana", "-c", "user.email=ana@example.org")
    subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True)


def write(folder: Path, text: str, place: str = "tests") -> None:
    (folder / place).mkdir(parents=True, exist_ok=True)
    (folder / place / "new.py").write_text(text)


def commit(folder: Path, subject: str) -> None:
    run(folder, "add", "--all")
    run(folder, "commit", "--message", subject)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a clone of a repository with one commit, in which a docstring begins with no verb."""
    origin = tmp_path / "origin"
    origin.mkdir()
    run(origin, "init", "--initial-branch", "main")
    write(origin, 'def old():\n    """What was there."""\n')
    commit(origin, "Tests: what was there")
    run(tmp_path, "clone", "--depth", "1", f"file://{origin}", "clone")
    return tmp_path / "clone"


def test_a_fresh_and_shallow_clone_passes(clone: Path) -> None:
    """house H-130."""
    assert list(WORDS["problems"](clone)) == []


def test_a_folder_without_history_passes(tmp_path: Path) -> None:
    """house H-130."""
    write(tmp_path, 'def new():\n    """What is new."""\n')
    assert list(WORDS["problems"](tmp_path)) == []


@with_each(
    ("docstring", "named"),
    [("What is new.", True), ("The new one.", True), ("As `old`.", True), ("Return it.", False), ("Yield all.", False)],
)
def test_every_docstring_of_the_library_is_looked_at(tmp_path: Path, docstring: str, named: bool) -> None:
    """house H-130: without history, too."""
    write(tmp_path, f'class Face:\n    def new():\n        """{docstring}"""\n', "lastlight_state")
    assert len(list(WORDS["problems"](tmp_path))) == named


@with_each(
    ("name", "named"),
    [
        *(("stored", True), ("_stored", True), ("others", True), ("_waiting", True), ("held", True)),
        *(("stored_row", False), ("_mapping", False), ("heading", False), ("speed", False)),
        *(("due", False), ("_due", False), ("left", False), ("_left", True), ("driving", False), ("_driving", True)),
    ],
)
def test_a_participle_or_a_pronoun_alone_is_no_name_of_a_function(tmp_path: Path, name: str, named: bool) -> None:
    """house H-135: an ordinary noun is, and a name that callers of the library use."""
    write(tmp_path, f"class Face:\n    async def {name}() -> None: ...\n", "lastlight_state")
    assert len(list(WORDS["problems"](tmp_path))) == named


def test_a_changed_docstring_without_a_verb_is_named_and_an_old_one_is_not(clone: Path) -> None:
    """house H-130."""
    old = 'def old():\n    """What was there."""\n'
    write(clone, f'{old}\n\ndef new():\n    """Whether it is new."""\n\n\ndef good():\n    """Return it."""\n')
    (problem,) = WORDS["problems"](clone)
    assert problem.startswith("tests/new.py:6: a docstring begins with 'Whether'")


def test_a_new_commit_is_named_by_its_subject(clone: Path) -> None:
    """house H-130."""
    write(clone, "")
    commit(clone, "Tests: nothing is left")
    (problem,) = WORDS["problems"](clone)
    assert problem.endswith("begins with 'Tests:', not with an imperative verb: Tests: nothing is left")


@with_each(
    "subject",
    ["Tests: a switch", "What is new", "The page of errors", "Added a page", "Adding a page", "Add " + "a" * 69],
)
def test_a_subject_that_breaks_a_rule_is_refused(subject: str) -> None:
    """house H-130."""
    assert WORDS["subject_problem"](subject)


@with_each("subject", ["Add a page", "Bring logs over", "Add " + "a" * 68])
def test_a_subject_with_a_verb_of_at_most_72_characters_is_taken(subject: str) -> None:
    """house H-130."""
    assert WORDS["subject_problem"](subject) is None
