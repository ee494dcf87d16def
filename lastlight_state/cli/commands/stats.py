"""``stats``: counts and measures everything stored. Never writes, and needs no database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from lastlight_state.cli.opening import read_once
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.maintenance import Stats, StatusCount, TableStats
from lastlight_state.plain import plain

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

TABLES: tuple[Column[TableStats], ...] = (
    Column("TABLE", lambda table: table.name),
    Column("ROWS", lambda table: f"~{table.rows}" if table.estimated else table.rows, right=True),
    Column("BYTES", lambda table: size(table.bytes), right=True),
)
STATUSES: tuple[Column[tuple[str, StatusCount]], ...] = (
    Column("TABLE", lambda row: row[0]),
    Column("STATUS", lambda row: row[1].status),
    Column("ROWS", lambda row: row[1].rows, right=True),
)
COUNTS: tuple[Column[tuple[str, int]], ...] = (
    Column("WHICH", lambda row: row[0]),
    Column("MESSAGES", lambda row: row[1], right=True),
)


@command("stats")
@click.option("--estimate", is_flag=True, help="Take the planner's row counts where the database has some.")
def run(call: Call, estimate: bool) -> Answer:
    """Count and measure everything: database, tables, statuses, messages, line files, settings.

    Works on a database in any state of its schema. Without a database it says so, and all sizes are 0.
    """
    stats = read_once(call, lambda store: store.maintenance.stats.collect(exact=not estimate), verified=False)
    return Answer(plain(stats), lambda screen: _lines(stats, screen))


def size(count: int | None) -> str | None:
    """Return a number of bytes with a suitable unit."""
    if count is None:
        return None
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def _lines(stats: Stats, screen: Screen) -> Iterator[Any]:
    if not stats.exists:
        yield f"no database at {stats.location}"
    yield from screen.fields(_overview(stats, screen))
    if stats.tables:
        yield from _section(screen, "tables", screen.table(TABLES, stats.tables))
    counted = [(table, count) for table, counts in stats.statuses.items() for count in counts]
    if counted:
        yield from _section(screen, "statuses", screen.table(STATUSES, counted))
    if stats.messages.oldest is not None:
        messages = [(f"role {role}", count) for role, count in stats.messages.by_role.items()]
        messages += [(f"age in days {age}", count) for age, count in stats.messages.by_age.items()]
        yield from _section(screen, "messages", screen.table(COUNTS, messages))
    if stats.settings:
        yield from _section(screen, "settings", screen.fields(dict(stats.settings)))


def _section(screen: Screen, title: str, lines: Iterator[Any]) -> Iterator[Any]:
    yield ""
    yield screen.heading(title)
    yield from lines


def _overview(stats: Stats, screen: Screen) -> dict[str, Any]:
    files = stats.line_files
    return {
        "database": stats.location,
        "version": stats.version,
        "schema": f"{stats.schema_state.revision or '-'} ({stats.schema_state.state})",
        "size": size(stats.size_bytes),
        "wal": size(stats.wal_bytes),
        "reclaimable": size(stats.free_bytes),
        "line files": f"{files.files}, {size(files.bytes)}, newest {screen.format_value(files.newest)}",
    }
