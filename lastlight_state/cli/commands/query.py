"""``query``: runs one SQL statement that only reads. The database itself refuses to write."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import click

from lastlight_state import codec
from lastlight_state.cli.opening import read_once
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.errors import InvalidValue
from lastlight_state.outputs import QueryRows
from lastlight_state.plain import plain
from lastlight_state.store import StateStore


@command("query")
@click.argument("sql", metavar="SQL")
@click.option("--param", "params", metavar="NAME=VALUE", multiple=True, help="A value for :name, as text; repeatable.")
@click.option("--limit", metavar="N", default=1000, help="The most rows, 1 to 10000.")
@click.option("--timeout", metavar="SECONDS", default=30.0, help="The most seconds.")
@click.option("--explain", is_flag=True, help="Print how the database would find the rows, and run nothing.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@click.option("--jsonl", "as_lines", is_flag=True, help="Print one JSON object for each row.")
def run(
    call: Call,
    sql: str,
    params: Sequence[str],
    limit: int,
    timeout: float,
    explain: bool,
    as_csv: bool,
    as_lines: bool,
) -> Answer:
    """Run one SQL statement that only reads, even in a database that no store would open.

    The database refuses to write. Tables and columns are described in docs/schema.md. If the columns do not fit on a
    terminal, each row is shown as a block of lines.
    """
    if as_csv and as_lines:
        raise InvalidValue("--jsonl", "must not be given with --csv")
    values = dict(map(_parse_param, params))

    def ask(store: StateStore) -> QueryRows:
        if explain:
            return store.outputs.query.explain(sql, values, timeout=timeout)
        return store.outputs.query.rows(sql, values, limit=limit, timeout=timeout)

    found = read_once(call, ask, verified=False)
    if found.truncated:
        call.output.warn(f"only the first {len(found.rows)} rows")
    data = {"columns": found.columns, "rows": found.rows, "truncated": found.truncated}
    return Answer(data, lambda screen: _output_lines(found, screen, as_csv, as_lines))


def _output_lines(found: QueryRows, screen: Screen, as_csv: bool, as_lines: bool) -> Iterator[Any]:
    if as_lines:
        return (codec.encode_sound(plain(dict(zip(found.columns, row, strict=True)))).decode() for row in found.rows)
    return _csv(found) if as_csv else _table(found, screen)


def _parse_param(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidValue("--param", f"expected NAME=VALUE, got {text!r:.80}")
    return name, value


def _table(found: QueryRows, screen: Screen) -> Iterator[Any]:
    columns = [Column(name, itemgetter(at)) for at, name in enumerate(found.columns)]
    yield from screen.table(columns, found.rows)


def _csv(found: QueryRows) -> Iterator[str]:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([found.columns, *found.rows])
    yield text.getvalue().rstrip("\n")
