"""``repair``: finds and mends damaged line files without a database, or mends the database's counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from lastlight_state.cli import arguments
from lastlight_state.cli.exits import NO, Failure
from lastlight_state.cli.opening import settings_of, writable_store
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.cli.views.maintenance import raise_counters
from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.errors import InvalidValue, StateError
from lastlight_state.maintenance import LineFileScan, Repair
from lastlight_state.maintenance.upkeep.repair import scans_below
from lastlight_state.receipts import Receipts

FILES: tuple[Column[LineFileScan], ...] = (
    Column("FILE", lambda scan: scan.path, keep=True),
    Column("BYTES", lambda scan: scan.size, right=True),
    Column("DAMAGE", lambda scan: ", ".join(f"{count} {kind}" for kind, count in damage_of(scan))),
)
CLASSES: tuple[Column[dict[str, Any]], ...] = (
    Column("CLASS", lambda row: row["kind"]),
    Column("SECTIONS", lambda row: row["sections"], right=True),
    Column("BYTES", lambda row: row["bytes"], right=True),
)


@dataclass
class ScanResult:
    """The contents of all scanned files by class, the damaged files, and the files that were written."""

    scanned: int = 0
    damaged: list[LineFileScan] = field(default_factory=list)
    sections: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    written: list[Path] = field(default_factory=list)
    receipts: list[str] = field(default_factory=list)
    unread: list[LineFileScan] = field(default_factory=list)

    def add(self, scan: LineFileScan) -> None:
        """Add the result of scanning one file."""
        self.scanned += 1
        self.sections.update(scan.sections)
        self.bytes.update(scan.section_bytes)
        if scan.problem is not None:
            self.unread.append(scan)
        elif not scan.sound:
            self.damaged.append(scan)

    @property
    def classes(self) -> Sequence[dict[str, Any]]:
        """Return the number of sections and bytes of each class."""
        return [
            {"kind": kind, "sections": count, "bytes": self.bytes[kind]} for kind, count in self.sections.most_common()
        ]


@command("repair")
@click.argument("path", metavar="[PATH]", type=click.Path(path_type=Path), required=False)
@click.option("--dry-run", is_flag=True, help="Only say what is damaged.")
@click.option("--seal", is_flag=True, help="End torn tails with a newline.")
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Write clean copies, and what is left out, below DIR."
)
@click.option("--replace", is_flag=True, help="Put clean copies in place; damaged files keep a second name.")
@click.option("--counters", is_flag=True, help="Raise counters of the database that are behind their rows.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before files are replaced.")
def run(
    call: Call,
    path: Path | None,
    *,
    dry_run: bool,
    seal: bool,
    out: Path | None,
    replace: bool,
    counters: bool,
    yes: bool,
) -> Answer:
    """Find damage in line files, and mend it without losing a byte.

    PATH is a line file or a directory. By default, the logs of agents and runs are scanned.

    Without --seal, --out or --replace it only scans. Then, and with --dry-run, damage gives exit code 1. A clean copy
    has every complete record byte for byte. Everything else goes into a file of rejects beside it.

    With --counters it mends the database instead: counters that lag behind the rows they number are raised. No counter
    is lowered, and no row is changed.
    """
    if sum((seal, out is not None, replace, counters)) > 1:
        raise InvalidValue("--seal, --out, --replace, --counters", "give only one at a time")
    if counters:
        if path is not None:
            raise InvalidValue("PATH", "must not be given with --counters: those are in the database")
        return raise_counters(call, dry_run=dry_run)
    roots = settings_of(call).line_directories if path is None else (path,)
    found = ScanResult()
    for scan in scans_below(roots):
        found.add(scan)
    acts = found.damaged and not dry_run and (seal or out is not None or replace)
    if acts and replace:
        arguments.ask(f"Replace {_files(found.damaged)}?", yes=yes)
    if acts:
        _mend(call, found, roots, seal=seal, out=out, replace=replace)
    failure = None
    if found.unread:
        failure = Failure(NO, "unread", f"{_files(found.unread)} could not be read", {"files": len(found.unread)})
    if found.damaged and not acts:
        failure = Failure(NO, "damaged", f"{_files(found.damaged)} damaged", {"files": len(found.damaged)})
    data = {
        "scanned": found.scanned,
        "files": found.damaged,
        "classes": found.classes,
        "written": found.written,
        "receipts": found.receipts,
        "unread": {str(scan.path): scan.problem for scan in found.unread},
    }
    return Answer(data, lambda screen: _lines(found, screen), failure)


def _mend(call: Call, found: ScanResult, roots: Sequence[Path], *, seal: bool, out: Path | None, replace: bool) -> None:
    """Mend each damaged file as requested.

    Each written file is reported at once, and stays even if a later file fails.
    """
    with _receipts(call, replace) as receipts:
        repair = Repair(roots, SYSTEM_CLOCK, receipts)
        for scan in found.damaged:
            if seal:
                written = [scan.path] if repair.seal(scan.path) else []
            else:
                to = None if out is None else out / _name_below(scan.path, roots)
                done = repair.salvage(scan.path, to=to, replace=replace)
                written = [name for name in (done.copy_path, done.rejects, done.damaged) if name is not None]
                found.receipts += [done.receipt_id] if done.receipt_id is not None else []
            for name in written:
                call.output.note(f"wrote {name}")
            found.written += written


@contextmanager
def _receipts(call: Call, wanted: bool) -> Iterator[Receipts | None]:
    """Yield the database's receipts.

    If the database cannot be used, yield None: files are replaced without a receipt.
    """
    with ExitStack() as stack:
        found = None
        if wanted:
            try:
                found = stack.enter_context(writable_store(call)).receipts
            except StateError as error:
                call.output.note(f"no receipt is kept: {error}")
        yield found


def _name_below(path: Path, roots: Sequence[Path]) -> Path:
    """Return a file's path relative to the directory in which the file was found.

    A file named directly keeps its name.
    """
    found = next(root for root in roots if path.is_relative_to(root))
    return Path(path.name) if path == found else path.relative_to(found)


def damage_of(scan: LineFileScan) -> Iterator[tuple[str, int]]:
    """Return the damaged classes of a file, each with its number of sections."""
    return ((kind, count) for kind, count in scan.sections.items() if kind not in ("record", "blank"))


def _files(damaged: Sequence[LineFileScan]) -> str:
    return "1 file" if len(damaged) == 1 else f"{len(damaged)} files"


def _lines(found: ScanResult, screen: Screen) -> Iterator[Any]:
    yield f"{found.scanned} scanned, {len(found.damaged)} damaged"
    for scan in found.unread:
        yield f"not read: {scan.path}: {scan.problem}"
    if found.classes:
        yield ""
        yield from screen.table(CLASSES, found.classes)
    if found.damaged:
        yield ""
        yield from screen.table(FILES, found.damaged)
