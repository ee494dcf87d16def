"""The recording of public names, and the packages that export them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from support.each import with_each
from support.reference import NAMES, PACKAGES, names

import lastlight_state

FOLDER = Path(lastlight_state.__file__).parent


class Import(NamedTuple):
    """A name that a package imports for type checkers only."""

    home: str
    name: str
    exported: bool


def for_type_checkers(package: ModuleType) -> Iterator[Import]:
    """What stands under ``if TYPE_CHECKING``. ``import X as X`` says that X is exported."""
    for node in ast.parse(inspect.getsource(package)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                assert isinstance(statement, ast.ImportFrom)
                for each in statement.names:
                    yield Import(str(statement.module), each.name, each.asname == each.name)


def stubbed(package: ModuleType) -> set[str]:
    """The classes of the stub that type checkers read instead of the package, if it has one."""
    stub = Path(str(package.__file__)).with_suffix(".pyi")
    body = ast.parse(stub.read_text("utf-8")).body if stub.exists() else []
    return {node.name for node in body if isinstance(node, ast.ClassDef)}


def is_domain(path: Path) -> bool:
    return "public(" in path.read_text("utf-8")


LAZY = sorted(
    {"lastlight_state", "lastlight_state.testing"}
    | {f"lastlight_state.{path.parent.name}" for path in FOLDER.glob("*/__init__.py") if is_domain(path)}
)


def test_the_packages_export_the_names_that_are_recorded_and_no_others() -> None:
    """packaging PT-26."""
    recorded, found = NAMES.read_text("utf-8").splitlines(), names().splitlines()
    gone = [name for name in recorded if name not in found]
    assert not gone, f"the promise that a public name stays is broken by: {gone}"
    assert found == recorded, "run `make record`"


def test_the_names_of_every_domain_are_recorded() -> None:
    """packaging PT-26."""
    assert set(LAZY) <= set(PACKAGES)


@with_each("path", LAZY)
def test_type_checkers_and_programs_find_the_same_names(path: str) -> None:
    """packaging PT-26: what is imported for type checkers is what the package gives when it is asked."""
    package = import_module(path)
    imported = list(for_type_checkers(package))
    for each in imported:
        found = getattr(import_module(each.home), each.name, None) or import_module(f"{each.home}.{each.name}")
        if each.exported or each.name in package.__all__:
            assert getattr(package, each.name) is found, each
    names, public = {each.name for each in imported} | stubbed(package), set(package.__all__)
    defined = {name for name in public if getattr(getattr(package, name), "__module__", None) == path}
    assert public - names - defined == set()
    assert {each.name for each in imported if each.exported} | stubbed(package) <= public


@with_each("path", PACKAGES)
def test_every_public_name_is_there(path: str) -> None:
    """packaging PT-26: and is shown by ``dir``."""
    package = import_module(path)
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    assert set(package.__all__) <= set(dir(package))
