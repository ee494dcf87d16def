"""Tests of many values in one run."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest
from support.each import with_each


def test_each_value_is_tried_and_all_that_failed_are_named() -> None:
    """Try all values, also after a failure."""
    tried = []

    @with_each(("first", "second"), [(1, 2), pytest.param(3, 3), (4, 5)], ids=["a", "b", "c"])
    def test(first: int, second: int) -> None:
        tried.append(first)
        assert first == second

    with pytest.raises(AssertionError) as raised:
        test()
    assert (tried, raised.value.__notes__) == ([1, 3, 4], ["failed for:\na\nc"])


def test_a_value_for_which_nothing_is_raised_is_named() -> None:
    """Name it as for any other failure: pytest's own failures are no subclass of Exception."""

    @with_each("text", ["1", "x", "2"])
    def test(text: str) -> None:
        with pytest.raises(ValueError, match="x"):
            int(text)

    with pytest.raises(pytest.fail.Exception) as raised:
        test()
    assert raised.value.__notes__ == ["failed for:\n'1'\n'2'"]


def test_a_value_is_not_skipped_alone() -> None:
    """Refuse it: pytest would count the test as skipped, and not try the other values."""

    @with_each("value", [1, 2])
    def test(value: int) -> None:
        pytest.skip("no such value here")

    with pytest.raises(TypeError, match="skip the whole test"):
        test()


@with_each("value", ["a", "b"])
@with_each("other", [1, 2])
def test_each_value_has_a_folder_and_an_environment_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, other: int
) -> None:
    """Give each value a folder and an environment of its own."""
    assert list(tmp_path.iterdir()) == []
    assert "OF_ONE_VALUE" not in os.environ
    (tmp_path / f"{value}{other}").touch()
    monkeypatch.setenv("OF_ONE_VALUE", value)


def test_a_test_asks_for_its_fixtures_alone() -> None:
    """Leave the other parameters to pytest."""

    @with_each("value", [1])
    def test(database: object, value: int) -> None: ...

    assert list(inspect.signature(test).parameters) == ["database"]
