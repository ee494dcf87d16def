"""The manifest of a backup: written, read, and compared with the files that it names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from lastlight_state import codec
from lastlight_state.errors import Conflict, NotFound
from lastlight_state.maintenance.backup.records import BackedFile, Manifest

NAME = "manifest.json"
#: The manifest's greatest size.
_MOST_BYTES = 64 * 1024 * 1024
_FORMAT = 1


def described(folder: Path) -> Iterator[BackedFile]:
    """Every file of a backup that has no manifest yet, in the order of their paths."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield _described(folder, path)


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest and bring it to disk, after everything else is there."""
    text = codec.encode("manifest", manifest.model_dump(mode="json"), max_bytes=_MOST_BYTES)
    with (folder / NAME).open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read(folder: Path) -> Manifest:
    """The manifest of a backup. Raises `NotFound`, and `Conflict` ``damaged_backup`` for one that cannot be read."""
    path = folder / NAME
    if not path.is_file():
        raise NotFound("backup", str(folder))
    if path.stat().st_size > _MOST_BYTES:
        raise damaged(NAME, "is too large")
    try:
        found = Manifest.model_validate(codec.decode(path.read_bytes()))
    except ValueError as error:
        raise damaged(NAME, "cannot be read") from error
    if found.format != _FORMAT:
        raise damaged(NAME, f"has the format {found.format}, which this version does not know")
    names = [file.path for file in found.files]
    for name in (found.database, *names):
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts:
            raise damaged(NAME, f"names a file outside the backup: {name!r}")
    if found.database not in names:
        raise damaged(NAME, "does not list its database")
    return found


def compare(folder: Path, manifest: Manifest) -> None:
    """Raise `Conflict` ``damaged_backup`` for the first file that is missing, or is not as it was written."""
    for file in manifest.files:
        path = folder / file.path
        if path.is_symlink() or not path.is_file():
            raise damaged(file.path, "is missing")
        if _described(folder, path) != file:
            raise damaged(file.path, "is not as it was written")


def damaged(path: str, problem: str) -> Conflict:
    """The error for a backup that must not be restored."""
    return Conflict(f"the backup is damaged: {path} {problem}", code="damaged_backup", path=path)


def _described(folder: Path, path: Path) -> BackedFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()
    return BackedFile(path=path.relative_to(folder).as_posix(), size_bytes=size, sha256=digest)
