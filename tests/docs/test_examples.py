"""packaging PT-20: every Python block of README and docs runs."""

from __future__ import annotations

import ast
import importlib
import os
import re
import threading
from pathlib import Path
from types import ModuleType

import pytest
from starlette.testclient import TestClient
from support.docs.pages import Block, blocks, name_of, pages
from support.each import with_each

from lastlight_state import StateStore

URL_VARIABLE = "DATABASE_URL"
"""Examples for Postgres open what this variable names."""

_TEST = re.compile(r"^(async )?def test_", re.MULTILINE)
_FRAMEWORK = re.compile(
    r"^(?:from|import) (?:a2a|agents|celery|fastapi|google|langgraph|mcp|pydantic_ai)\b", re.MULTILINE
)


def is_test(block: Block) -> bool:
    return _TEST.search(block.text) is not None


def is_sketch(block: Block) -> bool:
    """True if the example is for a framework that the tests do without."""
    return _FRAMEWORK.search(block.text) is not None


PROGRAMS = {
    name_of(page): programs
    for page in pages()
    if (programs := [one for one in blocks(page, "python") if not is_test(one) and not is_sketch(one)])
}
SKETCHES = {block.name: block for page in pages() for block in blocks(page, "python") if is_sketch(block)}
TESTS = [block for page in pages() for block in blocks(page, "python") if is_test(block)]


#: What a newcomer reads, in that order, and types into one directory.
FIRST_PAGES = (
    "README.md",
    "docs/getting-started.md",
    "docs/concepts.md",
    "docs/guides/workflows/runs.md",
    "docs/guides/messaging.md",
    "docs/guides/workflows/questions.md",
    "docs/guides/workflows/claims.md",
    "docs/guides/workflows/workers.md",
    "docs/guides/service.md",
)


#: Pages that need an empty place: one moves into an empty database, one fills tables of its own with known rows, one
#: lists all tenants.
ONCE = {"docs/moving-to-postgres.md", "docs/guides/your-own-queries.md", "docs/guides/tenants.md"}


def run_programs(name: str) -> ModuleType:
    """Run the programs of a page as one program, in their order, and check that they close what they open."""
    page = ModuleType("__main__")
    for block in PROGRAMS[name]:
        exec(compile(block.source, block.page, "exec", dont_inherit=True), page.__dict__)
    for thread in threading.enumerate():
        if thread.name == "lastlight-worker":  # of a worker that has ended: its last look may still be under way
            thread.join(5)
    assert open_databases() == []
    return page


def open_databases() -> list[str]:
    """Return the database files below this directory that the process has open."""
    opened = (os.path.realpath(link) for link in Path("/proc/self/fd").glob("*"))
    return [path for path in opened if path.startswith(os.path.realpath(".")) and ".db" in path]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, with a state directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STATE_DIR", str(tmp_path / "state"))
    return tmp_path


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_programs_of_a_page_run_in_their_order(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """packaging PT-20, PT-33, P-20: a second time in the same directory, too, and leave nothing switched off.

    The first pages are run a second time below.
    """
    if any(URL_VARIABLE in block.text for block in PROGRAMS[name]):
        monkeypatch.setenv(URL_VARIABLE, request.getfixturevalue("postgres_url"))
    for _ in range(1 if name in {*ONCE, *FIRST_PAGES} else 2):
        run_programs(name)
    with StateStore.open() as store:
        switched = [*store.workflows.overrides.list(), *store.schedules.overrides.list()]
        assert [each.name for each in switched if each.enabled is False] == []


def test_the_inspector_of_its_page_is_served_while_the_service_runs(place: Path) -> None:
    """packaging PT-20: its store is opened with the service, and closed with it, each time that it starts."""
    app = run_programs("docs/guides/inspector.md").__dict__["app"]
    for _ in range(2):
        with TestClient(app, base_url="http://localhost") as client:
            assert client.get("/state/runs").status_code == 200
            assert open_databases() != []
        assert open_databases() == []


@with_each("name", SKETCHES)
def test_a_sketch_for_a_framework_is_python_and_imports_what_is_there(name: str) -> None:
    """packaging PT-35."""
    block = SKETCHES[name]
    for node in ast.walk(compile(block.source, block.page, "exec", ast.PyCF_ONLY_AST)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("lastlight_state"):
            module = importlib.import_module(node.module)
            assert [word.name for word in node.names if not hasattr(module, word.name)] == []


@pytest.mark.slow
def test_the_first_pages_run_in_their_order_in_one_directory_and_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """packaging PT-33."""
    monkeypatch.setenv(URL_VARIABLE, request.getfixturevalue("postgres_url"))
    for name in FIRST_PAGES * 2:
        run_programs(name)


@pytest.mark.slow
def test_the_tests_of_the_pages_pass(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """packaging PT-20: an example that is a test is run as one, with the plugin that the library ships."""
    monkeypatch.setenv("LASTLIGHT_TEST_POSTGRES_URL", request.getfixturevalue("postgres_server").url)
    monkeypatch.setenv("LASTLIGHT_TEST_POSTGRES", "url")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the plugins of this machine only cost time
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    own = [block for block in TESTS if "lastlight_migrations" in block.source]  # a template is made once in a session
    for run_together in ([block for block in TESTS if block not in own], own):
        names = [f"test_{number}_{block.page.stem.replace('-', '_')}" for number, block in enumerate(run_together)]
        pytester.makepyfile(**{name: block.source for name, block in zip(names, run_together, strict=True)})
        files = [f"{name}.py" for name in names]
        result = pytester.runpytest_subprocess("-p", "lastlight_state.testing.plugin", "-p", "no:cacheprovider", *files)
        assert result.ret == pytest.ExitCode.OK
        assert result.parseoutcomes()["passed"] >= len(run_together)
        for file in files:
            (pytester.path / file).unlink()
