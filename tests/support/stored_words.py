"""Words of no version that are stored all the same: before there were guards, or by a later version that knows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_GUARDS = {
    "sqlite": "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger' AND instr(name, '_word_') > 0",
    "postgresql": (
        "SELECT tgname, tgrelid::regclass::text, pg_get_triggerdef(oid) FROM pg_trigger "
        "WHERE strpos(tgname::text, '_word_') > 0 AND tgrelid::regclass::text !~ '_[0-9]{6}$'"  # no shards of Citus
    ),
}


@contextmanager
def unguarded_words(product: str, execute: Callable[[str], Any]) -> Iterator[None]:
    """A block in which the database takes any word. ``execute`` runs a statement by plain SQL."""
    guards = list(execute(_GUARDS[product]))
    for name, table, _ in guards:
        execute(f"DROP TRIGGER {name}" + (f" ON {table}" if product == "postgresql" else ""))
    yield
    for _, _, made in guards:
        execute(made)
