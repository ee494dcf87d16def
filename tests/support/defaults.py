"""What a caller gets who gives nothing: numbers and flags that parameters and fields have by default, and limits.

Those of private helpers too, because a caller meets them just the same.

``make record`` writes them down again, for a default that is changed on purpose.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

import lastlight_state

PAGE = Path(__file__).parents[1] / "fixtures" / "defaults.txt"
#: What helps with tests.
LEFT_OUT = ("testing",)
#: What a limit is made of. Several of one purpose may stand in a tuple.
LITERALS = (bool, int, float, timedelta)


def found() -> dict[str, str]:
    """Return all defaults by the name of what has them."""
    return dict(sorted(_all()))


def recorded() -> dict[str, str]:
    """Return the defaults as they were written down."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return {name: value for name, _, value in (line.partition(" = ") for line in lines)}


def _all() -> Iterator[tuple[str, str]]:
    for found in walk_packages(lastlight_state.__path__, "lastlight_state."):
        if found.name.split(".")[1] in LEFT_OUT or found.name.endswith("__main__"):
            continue
        module = import_module(found.name)
        yield from _limits(found.name.removeprefix("lastlight_state."), module)
        for name, one in vars(module).items():
            if not name.startswith("__") and getattr(one, "__module__", None) == found.name:
                where = f"{found.name.removeprefix('lastlight_state.')}.{name}"
                yield from (_of_class if inspect.isclass(one) else _of_call)(where, one)


def _limits(where: str, module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield the numbers that a module names, not those that it imports."""
    own = set(_named(ast.parse(Path(str(module.__file__)).read_bytes()).body))
    yield from _literal(where, ((name, value) for name, value in vars(module).items() if name in own))


def _named(lines: list[ast.stmt]) -> Iterator[str]:
    """Yield the names in capitals that these lines give values to, several of one line too, but not a system's."""
    for line in lines:
        if not isinstance(line, ast.Assign | ast.AnnAssign) or _asks_the_system(line):
            continue
        targets = line.targets if isinstance(line, ast.Assign) else [line.target]
        for node in (node for target in targets for node in ast.walk(target)):
            if isinstance(node, ast.Name) and re.fullmatch("_?[A-Z][A-Z_]+", node.id):
                yield node.id


def _asks_the_system(line: ast.stmt) -> bool:
    asked = (node.value for node in ast.walk(line) if isinstance(node, ast.Attribute))
    return any(isinstance(one, ast.Name) and one.id in ("os", "signal", "sqlite3") for one in asked)


def _of_class(where: str, kind: Any) -> Iterator[tuple[str, str]]:
    if dataclasses.is_dataclass(kind):
        yield from _literal(where, ((field.name, field.default) for field in dataclasses.fields(kind)))
    else:
        own_values = ((name, value) for name, value in vars(kind).items() if not name.startswith(("__", "_is_")))
        yield from _literal(where, own_values)
    own = inspect.get_annotations(kind)
    fields = getattr(kind, "model_fields", {})
    yield from _literal(where, ((name, field.default) for name, field in fields.items() if name in own))
    for name, method in vars(kind).items():
        if not name.startswith("__") or (name == "__init__" and not dataclasses.is_dataclass(kind)):
            yield from _of_call(f"{where}.{name}", getattr(method, "__func__", method))


def _of_call(where: str, call: Any) -> Iterator[tuple[str, str]]:
    call = inspect.unwrap(call) if callable(call) else None
    if inspect.isfunction(call):
        given = inspect.signature(call).parameters.values()
        yield from _literal(where, ((one.name, one.default) for one in given))


def _literal(where: str, defaults: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    for name, value in defaults:
        several = value if type(value) is tuple and value else [value]
        if all(type(one) in LITERALS for one in several):
            yield f"{where}({name})", repr(value)


if __name__ == "__main__":
    PAGE.write_text("".join(f"{name} = {value}\n" for name, value in found().items()), encoding="utf-8")
