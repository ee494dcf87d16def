"""The kinds of changes that are drawn: what each makes of a node of the library's source."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeGuard

#: Calls that tidy up or make a change last.
TIDIES = ("sync", "close", "unlink", "release", "leave", "rollback", "remove", "truncate", "cancel", "unregister")
OPPOSITE = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
NEXT = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")}


#: Options that change nothing in a sound program, or nothing but its speed.
UNSEEN = ("strict", "defer_build", "stacklevel")
#: Errors beside which nothing else is raised in their place.
ALONE = ("ImportError", "ModuleNotFoundError", "UnicodeEncodeError", "UnicodeDecodeError")


class Edit(NamedTuple):
    """The text from ``start`` to ``end``, in bytes, becomes ``new``."""

    start: int
    end: int
    new: str


class Source:
    """A file's text, and where its nodes stand."""

    def __init__(self, file: Path) -> None:
        """Reads and parses it."""
        self.text = file.read_bytes()
        self.tree = ast.parse(self.text)
        self._lines = [0]
        for line in self.text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        """The node's first byte."""
        return self._lines[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        """The byte behind the node."""
        return self._lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def of(self, node: ast.expr | ast.stmt) -> str:
        """The node's text."""
        return self.text[self.start(node) : self.end(node)].decode()

    def edit(self, node: ast.expr | ast.stmt, new: str) -> Edit:
        """The node becomes ``new``."""
        return Edit(self.start(node), self.end(node), new)

    def nodes(self, top: ast.AST | None = None) -> Iterator[ast.AST]:
        """Every node whose change can be seen: no annotation, no decorator, no representation."""
        for field, value in ast.iter_fields(top or self.tree):
            if field in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for node in value if isinstance(value, list) else [value]:
                if isinstance(node, ast.AST) and not _is_said_only(node):
                    yield node
                    yield from self.nodes(node)


def _is_said_only(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name in ("__repr__", "__str__")
    if isinstance(node, ast.Expr):
        return ast.unparse(node).startswith("_log.")
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _is_call(node: ast.AST) -> TypeGuard[ast.Expr]:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)


def conditions(source: Source, node: ast.AST) -> Iterator[Edit]:
    """A condition of a statement or of an ``and`` is dropped."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("where", "and_"):
        for arg in node.args:
            rest = [source.of(other) for other in node.args if other is not arg]
            if rest:
                yield source.edit(node, f"{source.of(node.func)}({', '.join(rest)})")
            elif node.func.attr == "where":
                yield source.edit(node, source.of(node.func.value))
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for value in node.values:
            rest = [f"({source.of(other)})" for other in node.values if other is not value]
            yield source.edit(node, f"({' and '.join(rest)})")
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and len(node.value.elts) > 1:
        for one in node.value.elts:
            if any(isinstance(part, ast.Compare) for part in ast.walk(one)):
                rest = [source.of(other) for other in node.value.elts if other is not one]
                yield source.edit(node.value, f"({', '.join(rest)},)")


def locks(source: Source, node: ast.AST) -> Iterator[Edit]:
    """A lock is not taken."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "with_for_update":
        yield source.edit(node, source.of(node.func.value))
    if _is_call(node) and "lock" in source.of(node).split("(")[0]:
        yield source.edit(node, "pass")
    if isinstance(node, ast.With | ast.AsyncWith) and len(node.items) == 1 and node.items[0].optional_vars is None:
        held = node.items[0].context_expr
        if re.search(r"lock|_guard|mutex", source.of(held), re.IGNORECASE):
            yield Edit(source.start(node), source.end(held), "if True")


def cleanups(source: Source, node: ast.AST) -> Iterator[Edit]:
    """What tidies up, at the end or after a failure, is not done; or a write is not made to last."""
    after = node.finalbody if isinstance(node, ast.Try) else node.body if isinstance(node, ast.ExceptHandler) else []
    for line in after:
        if isinstance(line, ast.Expr):
            yield source.edit(line, "pass")
    if _is_call(node) and any(word in source.of(node).split("(")[0].rpartition(".")[2] for word in TIDIES):
        yield source.edit(node, "pass")


def bounds(source: Source, node: ast.AST) -> Iterator[Edit]:
    """A bound moves by one, or belongs to the other side."""
    if isinstance(node, ast.Compare):
        yield from _operators(source, node, NEXT)
    if isinstance(node, ast.Compare | ast.BinOp | ast.Slice):
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.Constant) and type(part.value) is int:
                yield source.edit(part, str(part.value + 1))


def inversions(source: Source, node: ast.AST) -> Iterator[Edit]:
    """A comparison or a test says the opposite."""
    if isinstance(node, ast.Compare):
        yield from _operators(source, node, OPPOSITE)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield source.edit(node, f"({source.of(node.operand)})")
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield source.edit(node.test, f"not ({source.of(node.test)})")


def _operators(source: Source, node: ast.Compare, table: dict[type[ast.cmpop], tuple[str, str]]) -> Iterator[Edit]:
    left = node.left
    for operator, right in zip(node.ops, node.comparators, strict=True):
        if type(operator) in table:
            old, new = table[type(operator)]
            start, end = source.end(left), source.start(right)
            yield Edit(start, end, source.text[start:end].decode().replace(old, new, 1))
        left = right


def defaults(source: Source, node: ast.AST) -> Iterator[Edit]:
    """A default, a limit or an option has another value."""
    given: list[ast.expr | None] = []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        given = [*node.args.defaults, *node.args.kw_defaults]
    elif isinstance(node, ast.Call):
        given = [keyword.value for keyword in node.keywords if keyword.arg not in UNSEEN]
    elif isinstance(node, ast.Assign | ast.AnnAssign) and re.match(r"_?[A-Z]{2}|\w+: (int|bool)", source.of(node)):
        given = [node.value]
    for value in given:
        if isinstance(value, ast.Constant) and isinstance(value.value, bool):
            yield source.edit(value, str(not value.value))
        elif isinstance(value, ast.Constant) and isinstance(value.value, int | float):
            yield source.edit(value, str(value.value * 2 or 1))


def statements(source: Source, node: ast.AST) -> Iterator[Edit]:
    """A call, an early return, a refusal or a change of a value is left out."""
    if _is_call(node):
        yield source.edit(node, "pass")
    if isinstance(node, ast.Raise | ast.AugAssign):
        yield source.edit(node, "pass")
    if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return):
        yield source.edit(node.body[-1], "pass")


def handlers(source: Source, node: ast.AST) -> Iterator[Edit]:
    """An ``except`` catches more, or less."""
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        if isinstance(node.type, ast.Tuple):
            for one in node.type.elts:
                rest = [source.of(other) for other in node.type.elts if other is not one]
                yield source.edit(node.type, f"({', '.join(rest)},)")
        else:
            yield source.edit(node.type, "()")
        if source.of(node.type) not in ("Exception", "BaseException", *ALONE):
            yield source.edit(node.type, "Exception")


KINDS: tuple[Callable[[Source, ast.AST], Iterator[Edit]], ...] = (
    conditions,
    locks,
    cleanups,
    bounds,
    inversions,
    defaults,
    statements,
    handlers,
)
