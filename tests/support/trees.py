"""Sources as syntax trees, for tests that read all of them: each file is parsed once for a module of tests."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


@cache
def tree(path: Path) -> ast.Module:
    """Return the tree of a file."""
    return ast.parse(path.read_text("utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file, which one rule after the other looks at."""
    return tuple(ast.walk(tree(path)))


@contextmanager
def reading() -> Iterator[None]:
    """Let go of all trees at the end of the block: every later collection of garbage would look at all their nodes.

    There are no collections in the block, for the same reason.
    """
    gc.disable()
    try:
        yield
    finally:
        tree.cache_clear()
        nodes.cache_clear()
        gc.enable()
