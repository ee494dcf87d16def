"""``import``: imports other programs' files, unit by unit."""  # noqa: N999 - its command has this name

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from lastlight_state.cli.exits import NO, Failure
from lastlight_state.cli.opening import read_once, writable_store
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.cli.views import maintenance
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance import FailedUnit, ImportReport
from lastlight_state.maintenance.bundles.archive import is_bundle
from lastlight_state.maintenance.imports.kinds import KINDS
from lastlight_state.maintenance.imports.pieces import ImportConflict

#: The kind of a bundle, which this program itself has written.
BUNDLE = "bundle"
COUNTS: tuple[Column[tuple[str, int]], ...] = (
    Column("WHAT", lambda row: row[0]),
    Column("COUNT", lambda row: row[1], right=True),
)
FAILED: tuple[Column[FailedUnit], ...] = (
    Column("FAILED", lambda one: one.unit, keep=True),
    Column("CODE", lambda one: one.code),
    Column("REASON", lambda one: one.reason, below=True),
)
KEPT: tuple[Column[ImportConflict], ...] = (
    Column("UNIT", lambda one: one.unit, keep=True),
    Column("KEPT AS IT IS HERE", lambda one: one.kept),
)


@command("import")
@click.argument("path", metavar="PATH_OR_URL")
@click.option("--kind", metavar="WORD", help="What is there; without it, the path is looked at.")
@click.option("--scope", metavar="NAME", help="What the names of this source begin with here, apart from others.")
@click.option("--revive", is_flag=True, help="Also what was removed here since an earlier import.")
@click.option("--revive-unit", metavar="UNIT", multiple=True, help="The same of this unit; may be given again.")
@click.option("--lenient", is_flag=True, help="Keep values that are refused as text, instead of failing their unit.")
@click.option("--limit", metavar="N", type=int, help="Stop after this many units were stored.")
@click.option("--on-conflict", metavar="WORD", help="Of a bundle: refuse, skip what differs, or new_ids.")
@click.option("--allow-redacted", is_flag=True, help="Also a bundle from which something was left out.")
@click.option("--allow-unknown-words", is_flag=True, help="Of a bundle: also with statuses that are not known here.")
@click.option("--dry-run", is_flag=True, help="Only say what would be imported.")
def run(call: Call, path: str, kind: Any, *, dry_run: bool, **terms: Any) -> Answer:
    """Import what another program wrote: run folders, databases, teams, logs or mailboxes. Or load a bundle.

    The source is only read. Each run, session or team is imported whole or not at all. If one fails, it is named, and
    the others go on. Repeating the command imports only what is new.
    """
    if kind is not None and kind not in (*KINDS, BUNDLE):
        raise InvalidValue("--kind", f"{kind!r:.80} is not a kind of source", permitted=(*KINDS, BUNDLE))
    is_ours = kind == BUNDLE or (kind is None and is_bundle(Path(path)))
    ours = {name: terms.pop(name) for name in ("on_conflict", "allow_redacted", "allow_unknown_words")}
    _refuse_unfit(is_ours, terms, ours)
    if is_ours:
        ours["on_conflict"] = ours["on_conflict"] or "refuse"
        return maintenance.load_bundle(call, Path(path), ours, dry_run=dry_run)
    terms["kind"] = kind
    if named := terms.pop("revive_unit"):
        terms["revive"] = terms["revive"] or named
    if dry_run:
        report = read_once(call, lambda store: store.maintenance.imports.plan(path, **terms))
    else:
        with writable_store(call) as store:
            report = store.maintenance.imports.run(path, **terms)
    data = {"dry_run": dry_run, **report.model_dump(exclude={"receipt"}), "receipt": report.receipt}
    return Answer(data, lambda screen: _lines(screen, report), _failure(report))


def _refuse_unfit(is_ours: bool, terms: dict[str, Any], ours: dict[str, Any]) -> None:
    """Raise an error for a flag that does not apply to this kind of source."""
    if is_ours and (given := next((name for name, value in terms.items() if value), None)):
        raise InvalidValue(f"--{given.replace('_', '-')}", "must not be given with a bundle")
    if not is_ours and (given := next((name for name, value in ours.items() if value not in (None, False)), None)):
        raise InvalidValue(f"--{given.replace('_', '-')}", "must not be given without a bundle")


def _failure(report: ImportReport) -> Failure | None:
    failed = report.units.get("failed", 0)
    return Failure(NO, "units_failed", f"{failed} units failed") if failed else None


def _lines(screen: Screen, report: ImportReport) -> Iterator[Any]:
    receipt = report.receipt
    yield f"receipt {receipt.id}: {receipt.state}" if receipt else "dry run: nothing is written"
    counts = {**report.units, **report.rows, **report.noticed}
    if counts:
        yield from screen.table(COUNTS, list(counts.items()))
    if report.failures:
        yield ""
        yield from screen.table(FAILED, report.failures)
    if report.conflicts:
        yield ""
        yield from screen.table(KEPT, report.conflicts)
