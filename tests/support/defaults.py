"""What a caller gets who gives nothing: numbers and flags that parameters and fields have by default, and limits.

    PYTHONPATH=. python -P tests/support/defaults.py

writes them down again, for a default that is changed on purpose.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

import lastlight_state

PAGE = Path(__file__).parents[1] / "fixtures" / "defaults.txt"
#: What is below the call paths, or helps with tests.
LEFT_OUT = ("testing", "backends", "db", "jsonl")


def found() -> dict[str, str]:
    """All defaults by the name of what has them."""
    return dict(sorted(_all()))


def recorded() -> dict[str, str]:
    """As they were written down."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return {name: value for name, _, value in (line.partition(" = ") for line in lines)}


def _all() -> Iterator[tuple[str, str]]:
    for found in walk_packages(lastlight_state.__path__, "lastlight_state."):
        if found.name.split(".")[1] in LEFT_OUT or found.name.endswith("__main__"):
            continue
        module = import_module(found.name)
        yield from _limits(found.name.removeprefix("lastlight_state."), module)
        for name, one in vars(module).items():
            if not name.startswith("_") and getattr(one, "__module__", None) == found.name:
                where = f"{found.name.removeprefix('lastlight_state.')}.{name}"
                yield from (_of_class if inspect.isclass(one) else _of_call)(where, one)


def _limits(where: str, module: ModuleType) -> Iterator[tuple[str, str]]:
    """The numbers that a module names, not those that it imports."""
    own = set(re.findall(r"^([A-Z][A-Z_]+)(?:: \w+)? = ", inspect.getsource(module), re.MULTILINE))
    yield from _literal(where, ((name, value) for name, value in vars(module).items() if name in own))


def _of_class(where: str, kind: Any) -> Iterator[tuple[str, str]]:
    if dataclasses.is_dataclass(kind):
        yield from _literal(where, ((field.name, field.default) for field in dataclasses.fields(kind)))
    own = inspect.get_annotations(kind)
    fields = getattr(kind, "model_fields", {})
    yield from _literal(where, ((name, field.default) for name, field in fields.items() if name in own))
    for name, method in vars(kind).items():
        if not name.startswith("_"):
            yield from _of_call(f"{where}.{name}", getattr(method, "__func__", method))


def _of_call(where: str, call: Any) -> Iterator[tuple[str, str]]:
    call = inspect.unwrap(call) if callable(call) else None
    if inspect.isfunction(call):
        given = inspect.signature(call).parameters.values()
        yield from _literal(where, ((one.name, one.default) for one in given))


def _literal(where: str, defaults: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    for name, value in defaults:
        if type(value) in (bool, int, float):
            yield f"{where}({name})", repr(value)


if __name__ == "__main__":
    PAGE.write_text("".join(f"{name} = {value}\n" for name, value in found().items()), encoding="utf-8")
