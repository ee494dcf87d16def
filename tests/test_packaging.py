import importlib.metadata
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import alembic
import pytest
from support.each import with_each

import lastlight_state

ROOT = Path(__file__).parents[1]
EXTRAS = {"psycopg", "cronsim", "tzdata", "jsonschema", "numpy", "opentelemetry", "pytest", "docker", "testcontainers"}
EXTRAS |= {"starlette", "jinja2", "uvicorn"}
FOR_COMMANDS = {"click", "rich"}


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after the statement."""
    code = f"{statement}; import json, sys; print(json.dumps(sorted(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(told.stdout)}


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run([program, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert lastlight_state.__version__ == importlib.metadata.version("lastlight-state")


def test_importing_the_library_imports_no_extra() -> None:
    """inspector IN-16."""
    assert modules_after("import lastlight_state, lastlight_state.testing") & (EXTRAS | FOR_COMMANDS) == set()


def test_the_folder_of_revisions_is_no_package() -> None:
    """migrations MG-1: an ``__init__.py`` there would hide Alembic itself."""
    assert not (ROOT / "alembic" / "__init__.py").exists()


@pytest.mark.slow
@with_each("how", [["-c", "import alembic; print(alembic.__file__)"], ["-m", "alembic", "--version"]])
def test_alembic_is_the_installed_one_even_from_the_root(how: list[str]) -> None:
    """migrations MG-1."""
    told = subprocess.run([sys.executable, *how], cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert alembic.__file__
    assert ROOT / "alembic" not in Path(alembic.__file__).parents
    assert told.stdout.strip() in {
        alembic.__file__,
        f"alembic {alembic.__version__}",
        f"__main__.py {alembic.__version__}",
    }


def test_types_are_shipped() -> None:
    assert (Path(lastlight_state.__file__).parent / "py.typed").exists()


def test_a_wheel_carries_the_templates_and_assets_of_the_inspector(tmp_path: Path) -> None:
    """inspector IN-16."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True)
    [wheel] = tmp_path.glob("*.whl")
    folder = ROOT / "lastlight_state" / "inspector"
    here = {str(path.relative_to(ROOT)) for kind in ("templates", "assets") for path in (folder / kind).iterdir()}
    assert len(here) > 8
    assert here <= set(zipfile.ZipFile(wheel).namelist())


def test_the_description_of_a_wheel_leads_to_no_file_of_the_repository(tmp_path: Path) -> None:
    """packaging PT-41: an index of packages has only the text."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True)
    [wheel] = tmp_path.glob("*.whl")
    [metadata] = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/METADATA")]
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "from lastlight_state import StateStore" in text
    assert re.findall(r"\]\((?!https?://)[^)]*\)", text) == []


def test_the_floors_hold() -> None:
    """Imports go down only, and the domains are independent of one another."""
    found = lint_imports(ROOT)
    assert found.returncode == 0, found.stdout


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A small library of the same shape, under the same contracts but those inside one floor or domain."""
    head, *contracts = (ROOT / "pyproject.toml").read_text().split("[[tool.importlinter.contracts]]")
    inner = re.compile(r'^(containers|modules|source_modules) = \["lastlight_state\.[\w.*]+"\]', re.MULTILINE)
    kept = [contract for contract in contracts if not inner.search(contract)]
    (tmp_path / "pyproject.toml").write_text("[[tool.importlinter.contracts]]".join([head, *kept]))
    for name in ("db", "backends", "journal", "outputs", "maintenance", "testing"):
        (tmp_path / "lastlight_state" / name).mkdir(parents=True)
    for module in (
        *("__init__", "errors", "clock", "ids", "keys", "codec", "store"),
        *("db/__init__", "backends/__init__", "backends/sqlite", "maintenance/__init__", "testing/__init__"),
        *(
            f"{domain}/{part}"
            for domain in ("journal", "outputs")
            for part in ("__init__", "models", "records", "events")
        ),
    ):
        (tmp_path / "lastlight_state" / f"{module}.py").touch()
    add(tmp_path, "backends/sqlite", "import sqlite3")
    add(tmp_path, "journal/events", "from lastlight_state.journal import models, records")
    add(tmp_path, "journal/records", "from lastlight_state.journal import models")
    return tmp_path


def add(house: Path, module: str, statement: str) -> None:
    with (house / "lastlight_state" / f"{module}.py").open("a") as file:
        file.write(statement + "\n")


def test_a_sound_house_passes_the_contracts(house: Path) -> None:
    found = lint_imports(house)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("outputs/events", "from lastlight_state.journal import events"),
        ("outputs/__init__", "import lastlight_state.maintenance"),
        ("backends/sqlite", "import lastlight_state.db"),
        ("errors", "from lastlight_state import store"),
        ("store", "from lastlight_state import testing"),
        ("journal/models", "from lastlight_state.journal import records"),
        ("journal/models", "from lastlight_state.journal.events import x"),
        ("journal/records", "from lastlight_state.journal import events"),
        ("journal/events", "import sqlite3"),
        ("store", "def late():\n    import psycopg"),
        ("helpers", ""),
    ],
)
def test_a_crack_in_the_house_breaks_a_contract(house: Path, module: str, statement: str) -> None:
    add(house, module, statement)
    found = lint_imports(house)
    assert found.returncode == 1, found.stdout
    assert " 1 broken" in found.stdout or " 2 broken" in found.stdout
