"""``doctor``: searches for faults in the database and in the files that belong to it.

Never writes, needs no database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from lastlight_state.cli.commands.reencrypt import codec_of
from lastlight_state.cli.exits import NO, STOPPED, Failure
from lastlight_state.cli.opening import read_once
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Screen
from lastlight_state.maintenance import Finding, Report
from lastlight_state.store import StateStore

#: Severities, the worst first.
SEVERITIES = ("error", "warning", "info")
#: Most items of one finding that are named on a terminal.
FEW = 3
#: The reason given for a check that was skipped for lack of time.
_LATE = "the time limit was reached"


@command("doctor")
@click.option("--deep", is_flag=True, help="Read every row and line.")
@click.option("--only", metavar="CHECK", multiple=True, help="Only this check, such as DOC-07; several times.")
@click.option("--skip", metavar="CHECK", multiple=True, help="Not this check; several times.")
@click.option("--strict", is_flag=True, help="Exit code 1 for warnings, too.")
@click.option("--codec", "path", metavar="MODULE:NAME", help="With --deep: open sealed values with this codec.")
@click.option("--time-limit", metavar="SECONDS", type=float, help="Begin no check after this time; exit code 7.")
def run(
    call: Call,
    deep: bool,
    only: Sequence[str],
    skip: Sequence[str],
    strict: bool,
    path: str | None,
    time_limit: float | None,
) -> Answer:
    """Look for faults: schema, integrity, rows that contradict others, stuck work, files, permissions.

    Works on a database in any state, and without one. Errors give exit code 1, and with --strict warnings do too. Each
    check is explained in docs/operations.md.
    """
    sealing = None if path is None else codec_of(path)

    def examine(store: StateStore) -> Report:
        store.backend.sealing = sealing
        return store.maintenance.doctor.examine(deep=deep, only=only or None, skip=skip, time_limit=time_limit)

    report = read_once(call, examine, verified=False)
    return Answer(report.model_dump(), lambda screen: _lines(report, screen), _failure(report, strict))


def _failure(report: Report, strict: bool) -> Failure | None:
    bad = ("error", "warning") if strict else ("error",)
    count = sum(finding.severity in bad for finding in report.findings)
    if count:
        return Failure(NO, "findings", f"{count} findings")
    if any(skipped.reason == _LATE for skipped in report.checks_skipped):
        return Failure(STOPPED, "time_limit", "not every check was made in time")
    return None


def _lines(report: Report, screen: Screen) -> Iterator[Any]:
    """Return the findings, the worst first, followed by the count of each severity."""
    counts = []
    for severity in SEVERITIES:
        found = [finding for finding in report.findings if finding.severity == severity]
        counts += [f"{severity} {len(found)}"] if found else []
        for finding in found:
            yield from _finding_lines(finding, screen)
    for skipped in report.checks_skipped:
        yield f"{skipped.check}  skipped: {skipped.reason}"
    told = f" ({', '.join(counts)})" if counts else ""
    yield f"{len(report.checks_run)} checks, {len(report.findings)} findings{told}"


def _finding_lines(finding: Finding, screen: Screen) -> Iterator[Any]:
    yield screen.heading(f"{finding.check}  {finding.severity}  {finding.subject}")
    yield from screen.indented_lines(finding.message)
    samples = finding.samples if screen.width is None else finding.samples[:FEW]
    more = f" and {finding.count - len(samples)} more" if finding.count > len(samples) else ""
    yield from screen.indented_lines(f"{finding.count}: {', '.join(samples)}{more}")
    if finding.remedy is not None:
        yield f"    run: {finding.remedy}"
