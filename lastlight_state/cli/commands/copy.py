"""``copy``: copies everything into another database, and verifies the copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from lastlight_state.backends import urls
from lastlight_state.cli.opening import backend_for_call, existing_backend, other_url, settings_of
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance import CopiedTable, Copy, CopyPlan, CopyReport
from lastlight_state.migrations import verify
from lastlight_state.store import StateStore

TABLES: tuple[Column[CopiedTable], ...] = (
    Column("TABLE", lambda table: table.name),
    Column("ROWS", lambda table: table.rows, right=True),
    Column("DIGEST", lambda table: table.digest[:16]),
)


@command("copy")
@click.option("--to", "target", metavar="URL", help="The database to fill.")
@click.option(
    "--to-file", "target_file", metavar="FILE", type=click.Path(path_type=Path), help="A file that holds that URL."
)
@click.option("--to-schema", "target_schema", metavar="NAME", help="Its schema, on Postgres.")
@click.option("--dry-run", is_flag=True, help="Only read the source, and say what stands in the way.")
@click.option("--migrate-target", is_flag=True, help="Make the schema in an empty target.")
@click.option("--resume", is_flag=True, help="Go on with a copy that was interrupted.")
@click.option("--batch-rows", metavar="N", type=int, default=5_000, show_default=True, help="Rows of one transaction.")
@click.option(
    "--leave-column",
    "leave_columns",
    metavar="TABLE.COLUMN",
    multiple=True,
    help="Leave this column behind, which another program added; several times.",
)
def run(
    call: Call, target: str | None, target_file: Path | None, *, dry_run: bool, migrate_target: bool, **options: Any
) -> Answer:
    """Copy everything into an empty database of the same schema, then read it back and compare every table.

    The source is the database that --url names. It is not written to, and may be in use: a snapshot of it is copied.
    Line files and mailboxes are not copied. Until the copy is finished, the target cannot be opened.
    """
    if options["resume"] and (dry_run or migrate_target or options["leave_columns"]):
        raise InvalidValue("--resume", "must not be given with --dry-run, --migrate-target or --leave-column")
    settings, url = settings_of(call, read_only=True), other_url(call, target, target_file)
    with closing(backend_for_call(call, settings, glance=True)) as backend, StateStore(backend, settings) as store:
        verify(existing_backend(backend))
        call.location = f"{backend.location} to {urls.redact_url(url)}"  # an error may concern either database
        if dry_run:
            leaving = options["leave_columns"]
            plan = store.maintenance.copy.plan(url, schema=options["target_schema"], leave_columns=leaving)
            return Answer({"dry_run": True, **plan.model_dump()}, lambda screen: _plan_lines(plan, screen))
        report = _report(store.maintenance.copy, url, migrate=migrate_target, **options)
    return Answer({"dry_run": False, **report.model_dump()}, lambda screen: _copy_lines(report, screen))


def _report(
    copy: Copy,
    url: str,
    *,
    migrate: bool,
    resume: bool,
    target_schema: str | None,
    leave_columns: Sequence[str],
    **options: Any,
) -> CopyReport:
    options["schema"] = target_schema
    if resume:
        return copy.resume(url, **options)
    return copy.run(url, migrate=migrate, leave_columns=leave_columns, **options)


def _plan_lines(plan: CopyPlan, screen: Screen) -> Iterator[object]:
    yield f"would copy {plan.rows} rows from {plan.source} to {plan.target}"
    yield from screen.table(TABLES, [table for table in plan.tables if table.rows])
    for problem in plan.problems:
        yield f"cannot be copied: {problem}"


def _copy_lines(report: CopyReport, screen: Screen) -> Iterator[object]:
    yield f"copied {report.rows} rows from {report.source} to {report.target}, and compared every table"
    yield from screen.table(TABLES, [table for table in report.tables if table.rows])
    for column in report.left_columns:
        yield f"left behind: {column}"
    for namespace in report.left_indexes:
        yield f"left behind: the index of embeddings of the namespace {namespace!r}, which `vectors.index` makes"
    yield f"receipt {report.receipt_id}; line files and mailboxes are not copied: take their folders along"
