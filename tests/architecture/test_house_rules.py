"""House rules that no linter knows."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from support.trees import nodes

import lastlight_state
from lastlight_state import StateStore
from lastlight_state.backends.postgres import PostgresBackend
from lastlight_state.backends.sqlite import SqliteBackend
from lastlight_state.db.repository import Repository
from lastlight_state.db.schema.base import RESERVED_NAMES, RESERVED_PREFIXES
from lastlight_state.migrations.metadata import METADATA

PACKAGE = Path(lastlight_state.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "_migrations" not in path.parts)
PRODUCTS = {"sqlite", "postgresql", "postgres"}
TIME_SOURCES = {"now", "utcnow", "today", "time", "time_ns", "uuid1", "uuid4", "uuid7"}

LONGEST_FILE = 360
LONGEST_FUNCTION = 45


def found(rule: Callable[[ast.AST], bool], *, except_in: tuple[str, ...] = ()) -> list[str]:
    """Where in the package something stands that the rule finds."""
    return [
        f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"
        for path in FILES
        if not set(except_in) & set(path.relative_to(PACKAGE).parts)
        for node in nodes(path)
        if rule(node)
    ]


def holds(pattern: str) -> Callable[[ast.AST], bool]:
    def rule(node: ast.AST) -> bool:
        return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(re.search(pattern, node.value))

    return rule


def asks_for_the_product(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        sides: list[ast.AST] = [node.left, *node.comparators]
    elif isinstance(node, ast.Match):
        sides = [case.pattern for case in node.cases]
    else:
        return False
    return any(isinstance(word, ast.Constant) and word.value in PRODUCTS for side in sides for word in ast.walk(side))


def tells_time_or_makes_ids(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    owner = node.func.value
    return node.func.attr in TIME_SOURCES and isinstance(owner, ast.Name) and owner.id in ("datetime", "time", "uuid")


def is_long(node: ast.AST) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    lines = (node.end_lineno or 0) - node.lineno + 1
    return lines - len((ast.get_docstring(node) or "").splitlines()) > LONGEST_FUNCTION


def imports_late(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return any(isinstance(inner, ast.Import | ast.ImportFrom) for inner in ast.walk(node))
    called = node.func if isinstance(node, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name.endswith(("__import__", "find_spec", "import_module"))


def test_what_loads_late_loads_by_lazy() -> None:
    """backends B-190: in one thread at a time, and never in the main one; a program's own module that a command loads
    may want that one."""
    assert found(imports_late, except_in=("lazy.py", "outputs.py", "reencrypt.py")) == []


def test_a_file_is_read_at_one_sitting() -> None:
    """house H-5."""
    sizes = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: size for name, size in sizes.items() if size > LONGEST_FILE} == {}


def test_a_function_fits_half_a_screen() -> None:
    """house H-5: without its docstring."""
    assert [place.splitlines()[0] for place in found(is_long)] == []


def test_nothing_outside_the_backends_asks_which_product_it_is() -> None:
    """house H-3: a difference between databases is a question on `Backend`."""
    assert found(asks_for_the_product, except_in=("backends", "testing")) == []


def test_nothing_outside_the_backends_writes_a_pragma() -> None:
    """house H-3."""
    assert found(holds(r"^\s*PRAGMA\s"), except_in=("backends", "testing")) == []


def test_time_and_ids_come_from_one_place() -> None:
    """house H-1: the only sources, so that tests can hold them still."""
    assert found(tells_time_or_makes_ids, except_in=("testing", "clock.py", "ids.py")) == []


def test_columns_are_named() -> None:
    """house H-6: no ``SELECT *``, because tables grow."""
    assert found(holds(r"\bSELECT \*")) == []


def test_no_group_of_a_pattern_is_possessive() -> None:
    """house H-82: before 3.11.5 Python matches it wrongly where its last round fails half-way."""
    assert found(holds(r"\)(?:[*+?]|\{[0-9,]+\})\+")) == []


def test_every_table_is_named_as_ours() -> None:
    """house H-20: reserved prefixes and names, in one list."""
    assert [
        name for name in METADATA.tables if name not in RESERVED_NAMES and not name.startswith(RESERVED_PREFIXES)
    ] == []


def test_no_vocabulary_is_cast_in_the_database() -> None:
    """house H-21: types and constraints are permanent, words may widen."""
    assert [
        column for table in METADATA.tables.values() for column in table.columns if isinstance(column.type, sa.Enum)
    ] == []


def repositories(store: StateStore) -> Iterator[type[Repository]]:
    """The classes of all repositories that a store offers, found by walking its faces."""
    for name in sorted(set(dir(type(store))) - {"open", "replica"}):
        face = None if name.startswith("_") else getattr(store, name)
        for inner in dir(type(face)):
            repository = None if inner.startswith("_") else getattr(face, inner, None)
            if isinstance(repository, Repository):
                yield type(repository)


def test_every_public_method_of_a_repository_promises_something(state_store: StateStore) -> None:
    """house H-7."""
    silent = {
        f"{kind.__name__}.{name}"
        for kind in repositories(state_store)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and not method.__doc__
    }
    assert silent == set()


def test_the_call_path_is_the_file_path(state_store: StateStore) -> None:
    """house H-2: ``store.workflows.runs`` lives in ``workflows/runs.py`` and says so. Maintenance has rooms between."""
    kinds = set(repositories(state_store))
    assert len(kinds) >= 4
    for kind in kinds:
        path = re.search(r"``store\.([a-z_.]+)``", kind.__doc__ or "")
        assert path, kind
        folder, _, name = path[1].rpartition(".")
        places = {f"lastlight_state.{path[1]}"}
        if folder == "maintenance":
            places |= {f"lastlight_state.maintenance.{room}.{name}" for room in ("chats", "erase", "upkeep")}
        assert kind.__module__ in places


def hidden_methods(kind: type[Any]) -> list[str]:
    """Return the private methods of a class's bases that another base hides by chance."""
    bases = [base for base in kind.__mro__[1:] if base.__module__.startswith("lastlight_state.")]
    return [
        f"{base.__name__}.{name}"
        for at, first in enumerate(bases)
        for base in bases[at + 1 :]
        if not issubclass(first, base)
        for name in vars(first).keys() & vars(base).keys()
        if name.startswith("_") and not name.startswith("__") and callable(vars(base)[name])
    ]


def test_no_part_of_a_backend_hides_a_private_method_of_another_part() -> None:
    """house H-136: a table whose name is a word of SQL could not be copied, because the quoting name was hidden."""
    assert hidden_methods(PostgresBackend) == hidden_methods(SqliteBackend) == []
    first, second = (type(name, (), {"__module__": "lastlight_state.x", "_name": len}) for name in "ab")
    assert hidden_methods(type("Both", (first, second), {})) == ["b._name"]


def names_a_lock_otherwise(node: ast.AST) -> bool:
    """True for a lock that is assigned to a name without the word."""
    if not isinstance(node, ast.Assign) or not re.fullmatch(r"(\w+\.)?R?Lock\(\)", ast.unparse(node.value)):
        return False
    return not all(ast.unparse(name).endswith(("_lock", "_guard", "_mutex")) for name in node.targets)


def test_the_name_of_a_lock_ends_with_the_word() -> None:
    """house H-137: the tests of interruptions know by it the lines that take a lock, and raise nothing there."""
    made_for_others = {"gate", "is_over"}  # a gate that another thread opens
    named = found(names_a_lock_otherwise, except_in=("locks.py",))
    assert [one for one in named if one.split(": ")[1].split(" = ")[0] not in made_for_others] == []


def hides_its_default(node: ast.AST) -> bool:
    """True for a pydantic field whose default has no keyword."""
    return isinstance(node, ast.AnnAssign) and bool(
        node.value and re.match(r"Field\((?!\w+=)", ast.unparse(node.value))
    )


def test_the_default_of_a_setting_is_seen_by_type_checkers() -> None:
    """house H-138: without pydantic's plugin they took a setting for required, and refused ``Settings()``."""
    assert found(hides_its_default) == []
    assert hides_its_default(ast.parse("url: str = Field(None, repr=False)").body[0])


def test_the_rules_find_what_they_look_for() -> None:
    """Each of them must be able to fail."""
    source = """
if dialect.name == "sqlite": driver.execute("PRAGMA x")
match name:
    case "postgresql": pass
datetime.now(UTC); uuid.uuid4(); time.monotonic()
"SELECT * FROM t"
"""
    nodes = list(ast.walk(ast.parse(source)))
    assert sum(map(asks_for_the_product, nodes)) == 2
    assert sum(map(tells_time_or_makes_ids, nodes)) == 2
    assert sum(map(holds(r"\bSELECT \*"), nodes)) == sum(map(holds(r"^\s*PRAGMA\s"), nodes)) == 1
    assert is_long(ast.parse("def f():\n" + "    x\n" * 46).body[0])
    assert not is_long(ast.parse("def f():\n" + "    x\n" * 44).body[0])
