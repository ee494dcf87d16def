"""Writes and reads the files of bundles. A bundle is verified completely before any part of it is used.

A bundle may come from anywhere. Names are checked against the few names that a bundle may have, and sizes against the
size of the file. Digests are checked before a row reaches a database or a byte reaches a directory.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self

from lastlight_state import codec
from lastlight_state.errors import AlreadyExists, Conflict, NewerSchema, NotFound
from lastlight_state.files.jsonl.files import sync_directory, translate_errors
from lastlight_state.maintenance.backup.restoring import refuse_present
from lastlight_state.maintenance.bundles.records import KINDS, ROWS, Bundle, BundlePart
from lastlight_state.special_files import open_binary

# The file of a bundle is a ZIP whose bytes depend only on its contents. It is not compressed: a compressor's output
# differs between its versions. So no bundle needs more space unpacked than packed.

MANIFEST = "manifest.json"
FORMAT = 1
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNIX = 3


class Archive:
    """A bundle that is being written, part by part. Leave its ``with`` block before closing its file."""

    def __init__(self, file: BinaryIO) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
        self.parts: list[BundlePart] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, ValueError):  # closing fails if writing has failed
            self._zip.close()

    def add_lines(self, name: str, lines: Iterable[bytes]) -> None:
        """Add a part that consists of these lines. Adds nothing without lines."""
        self._add(name, lines, counted=True)

    def add_bytes(self, name: str, chunks: Iterable[bytes]) -> None:
        """Add a part that consists of these bytes. Adds nothing without bytes."""
        self._add(name, chunks, counted=False)

    def finish(self, bundle: Bundle) -> None:
        """Add the manifest as the last part."""
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
    """Yield a file that gets its name after it is complete and on disk. Raises `AlreadyExists` if the name is taken."""
    with translate_errors(place):
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
    """Link a file to its name. Raises `AlreadyExists` if the name is taken; a rename would replace the other file."""
    try:
        os.link(made, place)
    except FileExistsError as error:
        raise AlreadyExists("file", str(place)) from error
    sync_directory(place.parent)


_LOG = re.compile(
    r"logs/(?:agent-sessions/projects/[^/]+/[^/]+(?:/(?:raw|subagents)/[^/]+)?|sessions/\d{4}/\d\d/\d\d/[^/]+)"
)
#: The largest size of a manifest, and of one line, in bytes.
_MANIFEST_BYTES, LINE_BYTES = 64 * 1024 * 1024, 256 * 1024 * 1024
_CHUNK = 1024 * 1024
_NEVER = re.compile(r"[\x00-\x1f\\]")


class OpenBundle:
    """An open bundle, whose parts were verified against its manifest."""

    def __init__(self, packed: zipfile.ZipFile, bundle: Bundle) -> None:
        self._packed = packed
        self.bundle = bundle
        #: The parts with rows, by table, and the parts that are logs.
        self.tables = bundle.tables
        self.logs = [part for part in bundle.parts if part.rows is None]

    def chunks(self, part: BundlePart) -> Iterator[bytes]:
        """Yield the bytes of a part, in blocks."""
        return _chunks(self._packed, part.name)

    def lines(self, part: BundlePart) -> Iterator[bytes]:
        """Yield the lines of a part."""
        with self._packed.open(part.name) as stream:
            while line := stream.readline(LINE_BYTES):
                yield line


@contextmanager
def open_bundle(path: Path) -> Iterator[OpenBundle]:
    """Open a bundle and verify it. Raises `NotFound`, `NewerSchema`, and `Conflict` ``damaged_bundle``."""
    with translate_errors(path), _file(path) as file:
        packed, bundle = _verify_archive(file, path.name)
        try:
            with packed:
                yield OpenBundle(packed, bundle)
        except (zipfile.BadZipFile, EOFError) as error:  # changed since it was verified
            raise damaged_bundle(path.name, f"cannot be read: {error}") from error


def is_bundle(path: Path) -> bool:
    """True if a file looks like a bundle."""
    try:
        with open_binary(path) as file:
            return zipfile.is_zipfile(file)
    except (OSError, ValueError):
        return False


def damaged_bundle(part: str, problem: str) -> Conflict:
    """Return the error for a bundle that must not be loaded."""
    return Conflict(f"the bundle is damaged: {part[:200]!r} {problem}", code="damaged_bundle", part=part[:200])


@contextmanager
def _file(path: Path) -> Iterator[BinaryIO]:
    try:
        file = open_binary(path)
    except FileNotFoundError as error:
        raise NotFound("bundle", str(path)) from error
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTDIR, errno.ELOOP):
            raise
        raise NotFound("bundle", str(path), reason=error.strerror) from error
    except ValueError as error:  # the path has a NUL character
        raise NotFound("bundle", str(path), reason=str(error)) from error
    with file:
        yield file


def _verify_archive(file: BinaryIO, name: str) -> tuple[zipfile.ZipFile, Bundle]:
    """Return the verified ZIP and its manifest.

    A ValueError means a name that is not UTF-8.
    """
    try:
        packed = zipfile.ZipFile(file)
        sizes = _sizes(packed, os.fstat(file.fileno()).st_size)
        bundle = _manifest(packed, sizes)
        _compare(packed, bundle, sizes)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError) as error:
        raise damaged_bundle(name, f"cannot be read: {error}") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: an offset before the beginning of the file
            raise
        raise damaged_bundle(name, "cannot be read: a part lies outside of the file") from error
    return packed, bundle


def _sizes(packed: zipfile.ZipFile, most: int) -> dict[str, int]:
    """Return the size of each file in the ZIP.

    Nothing in a bundle is compressed, so the sum of the sizes must not exceed the size of the bundle.
    """
    found: dict[str, int] = {}
    for info in packed.infolist():
        if not _is_named(info.filename) or info.orig_filename != info.filename:
            raise damaged_bundle(info.filename, "is not a name of a bundle")
        if info.filename in found:
            raise damaged_bundle(info.filename, "is there twice")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
            raise damaged_bundle(info.filename, "is compressed or encrypted")
        if not stat.S_ISREG(info.external_attr >> 16):
            raise damaged_bundle(info.filename, "is not a plain file")
        found[info.filename] = info.file_size
    if sum(found.values()) > most:
        raise damaged_bundle(MANIFEST, "parts are larger than their file")
    return found


def _is_named(name: str) -> bool:
    if name == MANIFEST or ROWS.fullmatch(name):
        return True
    steps = name.split("/")
    return _LOG.fullmatch(name) is not None and not _NEVER.search(name) and not {".", ".."}.intersection(steps)


def _manifest(packed: zipfile.ZipFile, sizes: dict[str, int]) -> Bundle:
    if MANIFEST not in sizes or sizes[MANIFEST] > _MANIFEST_BYTES:
        raise damaged_bundle(MANIFEST, "is missing or too large")
    try:
        told = codec.decode(packed.read(MANIFEST))
        found = told["format"]
        if type(found) is int and found > FORMAT:
            raise NewerSchema(found=f"format {found}", head=f"format {FORMAT}", min_reader="", what="the bundle")
        bundle = Bundle.model_validate(told)
    except (ValueError, KeyError, TypeError) as error:
        raise damaged_bundle(MANIFEST, "cannot be read") from error
    if bundle.format != FORMAT or bundle.kind not in KINDS:
        raise damaged_bundle(MANIFEST, "has an unknown format or kind")
    return bundle


def _compare(packed: zipfile.ZipFile, bundle: Bundle, sizes: dict[str, int]) -> None:
    """Raise `Conflict` ``damaged_bundle`` if a part is missing, not in the manifest, or different from the manifest."""
    names = [part.name for part in bundle.parts]
    if sorted(names) != sorted(sizes.keys() - {MANIFEST}):
        raise damaged_bundle(MANIFEST, "does not name the parts that are there")
    for part in bundle.parts:
        digest, count = hashlib.sha256(), 0
        for chunk in _chunks(packed, part.name):
            digest.update(chunk)
            count += chunk.count(b"\n")
        rows = count if ROWS.fullmatch(part.name) else None
        if (sizes[part.name], digest.hexdigest(), rows) != (part.size_bytes, part.sha256, part.rows):
            raise damaged_bundle(part.name, "is not as it was written")


def _chunks(packed: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    with packed.open(name) as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk
