"""Bundles that are read: nothing in one is believed before all of it was looked at.

A bundle may come from anywhere. Names are checked against the few that a bundle has, sizes against the size of the
file, and digests before a row of it reaches a database or a byte of it a directory.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from lastlight_state import codec
from lastlight_state.errors import Conflict, NewerSchema, NotFound
from lastlight_state.jsonl.files import translated
from lastlight_state.maintenance.bundles.archive import FORMAT, MANIFEST
from lastlight_state.maintenance.bundles.records import KINDS, ROWS, Bundle, BundlePart

_LOG = re.compile(
    r"logs/(?:agent-sessions/projects/[^/]+/[^/]+(?:/(?:raw|subagents)/[^/]+)?|sessions/\d{4}/\d\d/\d\d/[^/]+)"
)
#: The greatest size of a manifest, and of one line.
_MANIFEST_BYTES, LINE_BYTES = 64 * 1024 * 1024, 256 * 1024 * 1024
_CHUNK = 1024 * 1024
_NEVER = re.compile(r"[\x00-\x1f\\]")


class OpenBundle:
    """A bundle whose parts are as its manifest says."""

    def __init__(self, packed: zipfile.ZipFile, bundle: Bundle) -> None:
        self._packed = packed
        self.bundle = bundle
        #: The parts with rows, by table, and those that are logs.
        self.tables = bundle.tables
        self.logs = [part for part in bundle.parts if part.rows is None]

    def chunks(self, part: BundlePart) -> Iterator[bytes]:
        """The bytes of a part."""
        return _chunks(self._packed, part.name)

    def lines(self, part: BundlePart) -> Iterator[bytes]:
        """The lines of a part."""
        with self._packed.open(part.name) as stream:
            while line := stream.readline(LINE_BYTES):
                yield line


@contextmanager
def opened(path: Path) -> Iterator[OpenBundle]:
    """The bundle, verified. Raises `NotFound`, `NewerSchema`, and `Conflict` ``damaged_bundle``."""
    with translated(path), _file(path) as file:
        packed, bundle = _verified(file, path.name)
        try:
            with packed:
                yield OpenBundle(packed, bundle)
        except (zipfile.BadZipFile, EOFError) as error:  # changed since it was verified
            raise damaged(path.name, f"cannot be read: {error}") from error


def is_bundle(path: Path) -> bool:
    """Whether a file looks like a bundle."""
    return path.is_file() and zipfile.is_zipfile(path)


def damaged(part: str, problem: str) -> Conflict:
    """The error for a bundle that must not be loaded."""
    return Conflict(f"the bundle is damaged: {part[:200]!r} {problem}", code="damaged_bundle", part=part[:200])


@contextmanager
def _file(path: Path) -> Iterator[BinaryIO]:
    if not path.is_file():
        raise NotFound("bundle", str(path))
    with path.open("rb") as file:
        yield file


def _verified(file: BinaryIO, name: str) -> tuple[zipfile.ZipFile, Bundle]:
    """The ZIP and its manifest, after everything was compared. ValueError is a name that is no UTF-8."""
    try:
        packed = zipfile.ZipFile(file)
        sizes = _sizes(packed, os.fstat(file.fileno()).st_size)
        bundle = _manifest(packed, sizes)
        _compare(packed, bundle, sizes)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError) as error:
        raise damaged(name, f"cannot be read: {error}") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # which is an offset before the beginning of the file
            raise
        raise damaged(name, "cannot be read: a part lies outside of the file") from error
    return packed, bundle


def _sizes(packed: zipfile.ZipFile, most: int) -> dict[str, int]:
    """The size of each file inside. Nothing is compressed, so all of them together are smaller than the bundle."""
    found: dict[str, int] = {}
    for info in packed.infolist():
        if not _is_named(info.filename) or info.orig_filename != info.filename:
            raise damaged(info.filename, "is not a name of a bundle")
        if info.filename in found:
            raise damaged(info.filename, "is there twice")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
            raise damaged(info.filename, "is compressed or encrypted")
        if not stat.S_ISREG(info.external_attr >> 16):
            raise damaged(info.filename, "is not a plain file")
        found[info.filename] = info.file_size
    if sum(found.values()) > most:
        raise damaged(MANIFEST, "parts are larger than their file")
    return found


def _is_named(name: str) -> bool:
    if name == MANIFEST or ROWS.fullmatch(name):
        return True
    steps = name.split("/")
    return _LOG.fullmatch(name) is not None and not _NEVER.search(name) and not {".", ".."}.intersection(steps)


def _manifest(packed: zipfile.ZipFile, sizes: dict[str, int]) -> Bundle:
    if MANIFEST not in sizes or sizes[MANIFEST] > _MANIFEST_BYTES:
        raise damaged(MANIFEST, "is missing or too large")
    try:
        told = codec.decode(packed.read(MANIFEST))
        found = told["format"]
        if type(found) is int and found > FORMAT:
            raise NewerSchema(found=f"format {found}", head=f"format {FORMAT}", min_reader="", what="the bundle")
        bundle = Bundle.model_validate(told)
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(MANIFEST, "cannot be read") from error
    if bundle.format != FORMAT or bundle.kind not in KINDS:
        raise damaged(MANIFEST, "has an unknown format or kind")
    return bundle


def _compare(packed: zipfile.ZipFile, bundle: Bundle, sizes: dict[str, int]) -> None:
    """Raise for a part that the manifest does not have, or has otherwise."""
    names = [part.name for part in bundle.parts]
    if sorted(names) != sorted(sizes.keys() - {MANIFEST}):
        raise damaged(MANIFEST, "does not name the parts that are there")
    for part in bundle.parts:
        digest, count = hashlib.sha256(), 0
        for chunk in _chunks(packed, part.name):
            digest.update(chunk)
            count += chunk.count(b"\n")
        rows = count if ROWS.fullmatch(part.name) else None
        if (sizes[part.name], digest.hexdigest(), rows) != (part.size_bytes, part.sha256, part.rows):
            raise damaged(part.name, "is not as it was written")


def _chunks(packed: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    with packed.open(name) as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk
