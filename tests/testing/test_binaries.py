from pathlib import Path

import pytest

from lastlight_state.testing import server
from lastlight_state.testing.server import Binaries, in_wheels, installed_servers


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def server_in(folder: Path, version: str = "17.2") -> Path:
    for name in ("initdb", "postgres"):
        program(folder / name, f"echo '{name} (PostgreSQL) {version}'")
    return folder


def test_programs_on_path_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = server_in(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(folder))
    assert installed_servers()[0] == Binaries(folder)
    assert installed_servers()[0].version() == "17.2"


def test_the_newest_of_the_usual_places_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("9", "18", "15"):
        server_in(tmp_path / version / "bin")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(server, "USUAL_PLACES", (f"{tmp_path}/*/bin",))
    assert [found.folder.parent.name for found in installed_servers()] == ["18", "15", "9"]


def test_a_server_without_initdb_is_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "postgres", "true")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(server, "USUAL_PLACES", ())
    assert installed_servers() == []


def test_a_wheel_is_found_with_the_directory_that_may_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "some_wheel"
    server_in(package / "pginstall18" / "bin")
    (package / "__init__.py").write_text("raise AssertionError('finding must not import')")
    monkeypatch.setattr(server, "WHEEL", "some_wheel")
    monkeypatch.syspath_prepend(tmp_path)
    assert in_wheels() == [Binaries(package / "pginstall18" / "bin", package)]


def test_a_copy_keeps_the_place_of_the_libraries_beside_the_package(tmp_path: Path) -> None:
    package = tmp_path / "site" / "some_wheel"
    found = Binaries(server_in(package / "pginstall18" / "bin"), package)
    (tmp_path / "site" / "some_wheel.libs").mkdir()
    new = tmp_path / "new"
    assert dict(found.copies(new)) == {
        package / "pginstall18": new / "some_wheel" / "pginstall18",
        tmp_path / "site" / "some_wheel.libs": new / "some_wheel.libs",
    }
    assert found.below(new) == Binaries(new / "some_wheel" / "pginstall18" / "bin", new / "some_wheel")


def test_what_cannot_run_says_which_program_and_why(tmp_path: Path) -> None:
    program(tmp_path / "postgres", "echo 'libpq is missing' >&2; exit 1")
    with pytest.raises(OSError, match=r"postgres: libpq is missing"):
        Binaries(tmp_path).version()
