"""The file of a bundle: a ZIP whose bytes depend on nothing but what it holds. Nothing in it is compressed.

A compressor's output differs between its versions; so nothing in a bundle needs more room unpacked than packed.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self

from lastlight_state import codec
from lastlight_state.errors import AlreadyExists
from lastlight_state.jsonl.files import sync_directory, translated
from lastlight_state.maintenance.backup.restoring import refuse_present
from lastlight_state.maintenance.bundles.records import Bundle, BundlePart

MANIFEST = "manifest.json"
FORMAT = 1
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNIX = 3


class Archive:
    """A bundle that is being written, part by part. It must be left before its file is closed."""

    def __init__(self, file: BinaryIO) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
        self.parts: list[BundlePart] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, ValueError):  # where writing fails, this does, too
            self._zip.close()

    def add_lines(self, name: str, lines: Iterable[bytes]) -> None:
        """Add a file of these lines, unless there are none."""
        self._add(name, lines, counted=True)

    def add_bytes(self, name: str, chunks: Iterable[bytes]) -> None:
        """Add a file of these bytes, unless there are none."""
        self._add(name, chunks, counted=False)

    def finish(self, bundle: Bundle) -> None:
        """Add the manifest, last."""
        with self._open(MANIFEST) as part:
            part.write(codec.canonical(bundle.model_dump(mode="json")) + b"\n")
        self._zip.close()

    def _add(self, name: str, chunks: Iterable[bytes], *, counted: bool) -> None:
        coming = iter(chunks)
        chunk = next(coming, None)
        if chunk is None:
            return
        digest, size, count = hashlib.sha256(), 0, 0
        with self._open(name) as part:
            while chunk is not None:
                part.write(chunk)
                digest.update(chunk)
                size, count = size + len(chunk), count + 1
                chunk = next(coming, None)
        rows = count if counted else None
        self.parts.append(BundlePart(name=name, rows=rows, size_bytes=size, sha256=digest.hexdigest()))

    def _open(self, name: str) -> BinaryIO:
        info = zipfile.ZipInfo(name, _EPOCH)
        info.create_system = _UNIX
        info.external_attr = (stat.S_IFREG | 0o600) << 16
        return self._zip.open(info, "w", force_zip64=True)  # type: ignore[return-value]


@contextmanager
def new_file(place: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when it is whole and on disk. Raises `AlreadyExists` if anything is there."""
    with translated(place):
        refuse_present(place)
        made = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
        try:
            with made.open("xb") as file:
                os.fchmod(file.fileno(), 0o600)
                yield file
                file.flush()
                os.fsync(file.fileno())
            link(made, place)
        finally:
            with suppress(FileNotFoundError):
                made.unlink()


def link(made: Path, place: Path) -> None:
    """Give a file its name. Raises `AlreadyExists` where a file has appeared: a rename would replace it."""
    try:
        os.link(made, place)
    except FileExistsError as error:
        raise AlreadyExists("file", str(place)) from error
    sync_directory(place.parent)
