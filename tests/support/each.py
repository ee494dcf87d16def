"""Tests of one rule for many values: one run for all of them, which names each value that it failed for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Protocol, TypeGuard, runtime_checkable

import pytest


@runtime_checkable
class Renewable(Protocol):
    """A fixture that can be as new."""

    def start_over(self) -> None:
        """Forget what the last value has left."""


Test = Callable[..., None]
_PARAM = type(pytest.param(None))


def _is_renewable(fixture: object) -> TypeGuard[Renewable]:
    """True if the fixture can be as new for each value."""
    return isinstance(fixture, Renewable)


def with_each(
    names: str | tuple[str, ...], values: Iterable[Any], ids: Iterable[Any] | Callable[[Any], Any] | None = None
) -> Callable[[Test], Test]:
    """Return a decorator as `pytest.mark.parametrize`, for a test whose values need no fixture of their own each.

    All values are tried. The first failure is raised, with a note of all values that failed. A value that is skipped is
    a `TypeError`, because the values after it would not be tried. Each value has a folder ``tmp_path`` and a
    ``monkeypatch`` of its own, and a fixture that can ``start_over`` does so before each value.
    """
    values = list(values)
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    listed = [
        list(value.values) if isinstance(value, _PARAM) else [*value] if len(wanted) > 1 else [value]
        for value in values
    ]
    assert not any(value.marks for value in values if isinstance(value, _PARAM)), "a mark needs a run of its own"
    assert listed, "a test without a value proves nothing"
    shown = [repr(value[0] if len(wanted) == 1 else value) for value in listed]
    called = shown if ids is None or callable(ids) else list(map(str, ids))

    def decorated(test: Test) -> Test:
        signature = inspect.signature(test)

        @wraps(test)
        def run(**fixtures: Any) -> None:
            failed: list[tuple[str, BaseException]] = []
            for number, (value, name) in enumerate(zip(listed, called, strict=True)):
                given = {**fixtures, **dict(zip(wanted, value, strict=True))}
                if "tmp_path" in fixtures:
                    given["tmp_path"] = fixtures["tmp_path"] / f"value-{number}"
                    given["tmp_path"].mkdir()
                for fixture in filter(_is_renewable, fixtures.values()):
                    fixture.start_over()
                with pytest.MonkeyPatch.context() as patched:
                    if "monkeypatch" in fixtures:
                        given["monkeypatch"] = patched
                    try:
                        test(**given)
                    except pytest.skip.Exception as skipped:
                        raise TypeError(f"skip the whole test, not the value {name}") from skipped
                    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - raised below, with its value
                        failed.append((name, error))
            if failed:
                first = failed[0][1]
                first.add_note("\n".join(["failed for:", *(name for name, _ in failed)]))
                raise first

        left = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        assert len(left) + len(wanted) == len(signature.parameters), f"{test.__name__} takes no {wanted}"
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorated
