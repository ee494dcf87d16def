"""Makes values of modules again in a process that has imported the library, as if a file had another text.

A changed constant is assigned anew, then whatever at the level of modules was made of it.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

from mutants.replacing import Elsewhere


class Use(NamedTuple):
    """Where a module names something: in which of its statements, and in which function, if it is in one's body."""

    module: ModuleType
    statement: ast.stmt
    line: int
    owner: str
    function: str


class Step(NamedTuple):
    """An assignment of a module that is made again."""

    module: ModuleType
    names: tuple[str, ...]
    code: CodeType


class Uses:
    """Where the modules of a package name what other statements of modules have made."""

    def __init__(self, package: str) -> None:
        """Reads the sources of all modules that are imported."""
        self.modules = {
            str(module.__file__): module
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] == package and getattr(module, "__file__", None)
        }
        self._uses: dict[str, list[Use]] = defaultdict(list)
        for file, module in self.modules.items():
            for statement in ast.parse(Path(file).read_text()).body:
                for name, use in _uses(module, statement):
                    self._uses[name].append(use)

    def of(self, module: ModuleType, name: str) -> Iterator[Use]:
        """The uses of what the module calls so."""
        value = vars(module).get(name)
        for use in self._uses[name]:
            seen = vars(use.module)
            if use.owner:
                if seen.get(use.owner) is module or (name.isupper() and use.owner not in seen):  # part.NAME of a loop
                    yield use
            elif use.module is module or (name in seen and seen[name] is value):
                yield use


class Remade:
    """What is to be made again when lines of a file change, and the lines that use it later."""

    def __init__(self, uses: Uses, at_import: Callable[[str, int], bool]) -> None:
        """``at_import``: whether a line of a file runs when its module is imported."""
        self.steps: list[Step] = []
        #: Lines of files that run later and name something that is made again.
        self.used: set[tuple[str, int]] = set()
        self._uses = uses
        self._at_import = at_import
        self._seen: set[tuple[str, str]] = set()

    def assignment(self, file: str, changed: str, lines: range) -> None:
        """The lines of the changed text are of an assignment. Raises `Elsewhere` unless all that it leads to are."""
        statement = next((one for one in ast.parse(changed).body if lines.start <= (one.end_lineno or 0)), None)
        self._again(self._uses.modules[file], statement)

    def function(self, file: str, name: str) -> None:
        """The function was called at import. Raises `Elsewhere` unless what its callers made are assignments."""
        self._made(self._uses.modules[file], name.partition(".")[0])

    def apply(self) -> None:
        """Make them again, and give them to the modules that have imported them."""
        for step in self.steps:
            before = {name: vars(step.module)[name] for name in step.names}
            exec(step.code, vars(step.module))
            for name, old in before.items():
                _hand_over(name, old, vars(step.module)[name])

    def _again(self, module: ModuleType, statement: ast.stmt | None) -> None:
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            raise Elsewhere
        names = tuple(_targets(statement))
        self.steps.append(Step(module, names, compile(ast.Module([statement], []), str(module.__file__), "exec")))
        for name in names:
            self._made(module, name)

    def _made(self, module: ModuleType, name: str) -> None:
        """Make again whatever was made of what the module calls so."""
        if (module.__name__, name) in self._seen:
            return
        self._seen.add((module.__name__, name))
        for use in self._uses.of(module, name):
            place = str(use.module.__file__), use.line
            if use.function:
                self.used.add(place)
                if self._at_import(*place):
                    self._made(use.module, use.function)
            elif not isinstance(use.statement, ast.ImportFrom | ast.Expr):
                self._again(use.module, use.statement)


def _hand_over(name: str, old: object, new: object) -> None:
    plain = isinstance(old, int | float | str | bytes | None)
    for module in list(sys.modules.values()):
        values = getattr(module, "__dict__", {})
        if values.get(name) is old:
            values[name] = new
        if not plain and module.__name__.startswith("lastlight_state"):
            for one in list(values.values()):
                if isinstance(one, type):
                    for key, value in list(vars(one).items()):
                        if value is old:
                            setattr(one, key, new)


def _targets(statement: ast.stmt) -> Iterator[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]  # type: ignore[attr-defined]
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                yield node.id


def _uses(module: ModuleType, statement: ast.stmt) -> Iterator[tuple[str, Use]]:
    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, Use]]:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id, Use(module, statement, node.lineno, "", function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.attr, Use(module, statement, node.lineno, node.value.id, function)
        for field, value in ast.iter_fields(node):
            inside = function
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and field == "body":
                inside = function or node.name
            if field in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child, inside)

    return walk(statement, "")
