"""Whether ``make record`` is due: whether what it wrote is still what it would write."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support import reference
from support.migrations import golden
from support.migrations.releases import HISTORY, released

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Options
from lastlight_state.migrations import drift, scripts
from lastlight_state.migrations.adoption.fit import blueprints

ROOT = Path(__file__).parents[3]
DUE = "`make record` is due: {files} would be written anew"


@cache
def late_schema() -> str | None:
    """Return the golden database of the newest revision on SQLite where it is not what the revision makes, or None.

    The shapes and the other golden databases are written with it, so tests that read any of them wait for it.
    """
    return next(_late_dumps(scripts.revisions()[-1:]), None)


def wait(item: pytest.Item) -> None:
    """Skip a test with the mark ``recorded`` where `make record` is due: one other test says so, and is red."""
    if item.get_closest_marker("recorded") is not None and (file := late_schema()) is not None:
        pytest.skip(DUE.format(files=file))


def late() -> list[str]:
    """Return all recordings of SQLite, and texts about the schema, that are not what would be written now."""
    found = [*_late_dumps(scripts.revisions())]
    backend = open_backend(":memory:", Options())
    shape = scripts.folder() / "shapes" / "sqlite.txt"
    made = "\n".join([*drift.lines_of(backend, blueprints(backend, *scripts.revisions())), ""])
    backend.close()
    found += _late(shape, made)
    return [*found, *_late(reference.SCHEMA, reference.schema())]


def _late_dumps(revisions: tuple[str, ...]) -> Iterator[str]:
    backend = open_backend(":memory:", Options())
    frozen = released(HISTORY.read_text("utf-8"))
    for revision in revisions:
        file = golden.FOLDER / backend.name / f"{revision}.sql"
        if not (file.is_file() and revision in frozen):
            yield from _late(file, golden.dump(backend, revision))
    backend.close()


def _late(file: Path, expected: str) -> Iterator[str]:
    if not file.is_file() or file.read_text("utf-8") != expected:
        yield str(file.relative_to(ROOT))
