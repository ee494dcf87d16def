"""The example of a service: its own tests pass, on both databases, as a service's do that has the library installed."""

from __future__ import annotations

import shutil

import pytest
from support.docs.pages import ROOT, blocks

EXAMPLE = ROOT / "examples" / "service"


def test_the_example_has_the_function_of_the_page() -> None:
    """packaging P-10."""
    [shown] = blocks(ROOT / "docs" / "guides" / "service.md", "python")
    _, function = shown.text.split("\n\n\n")
    assert function in (EXAMPLE / "service.py").read_text("utf-8")


@pytest.mark.slow
def test_the_tests_of_the_example_pass(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """packaging P-10: two servers, two workers, own tables and revisions, one transaction over both."""
    monkeypatch.setenv("LASTLIGHT_TEST_POSTGRES_URL", request.getfixturevalue("postgres_server").url)
    monkeypatch.setenv("LASTLIGHT_TEST_POSTGRES", "url")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    shutil.copytree(EXAMPLE, pytester.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    result = pytester.runpytest_subprocess("-p", "lastlight_state.testing.plugin", "-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.OK
    assert result.parseoutcomes() == {"passed": 8}
