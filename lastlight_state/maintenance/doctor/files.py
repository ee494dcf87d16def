"""DOC-04 and DOC-11: the file system, and line files."""

from __future__ import annotations

import os
import shlex
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import get_args

from lastlight_state.errors import StateError
from lastlight_state.files.agent_log import AgentLog
from lastlight_state.files.run_log import Report, RunLog
from lastlight_state.files.run_log.checks.findings import severity_of
from lastlight_state.files.run_log.reading import DamageReason
from lastlight_state.maintenance.doctor.check import Check, CheckContext, Finding, every, make_finding
from lastlight_state.maintenance.upkeep.repair import scans_below
from lastlight_state.special_files import open_binary

# Deep checks of readable logs: broken rules of run logs, and missing tool results.

DEEP_LOG_LINES = "DOC-11"

#: Rules about unreadable lines, which are reported for every line file.
_TOLD = frozenset(get_args(DamageReason))


def run_logs(look: CheckContext) -> Iterator[Finding]:
    """Find run logs that break the rules of their format, and run logs whose writer died before the end."""
    log = RunLog(look.settings.run_logs)
    broken: list[str] = []
    crashed: list[str] = []
    for entry in every(log.runs.list):
        with suppress(StateError):  # vanished, or unreadable: reported with the line files
            codes = _broken_rules(log.checks.validate(entry.run_id))
            if codes:
                broken.append(f"{log.root / entry.path}: {', '.join(codes)}")
            if entry.state == "crashed":
                crashed.append(str(log.root / entry.path))
    if broken:
        message = "logs of runs break the rules of their format: `run_log.checks.validate` says where"
        yield make_finding(DEEP_LOG_LINES, "warning", "run logs", message, broken)
    if crashed:
        message = "logs of runs have no run.end, and nobody writes them: `run_log.runs.reopen` continues one"
        yield make_finding(DEEP_LOG_LINES, "info", "run logs", message, crashed)


def tool_results(look: CheckContext) -> Iterator[Finding]:
    """Find complete tool results that are missing although a log refers to them, and others that no line refers to."""
    log = AgentLog(look.settings.agent_sessions)
    wrong: dict[str, list[str]] = defaultdict(list)
    for file in every(log.sessions.list):
        with suppress(StateError):
            checked = log.repair.check(file.id, slug=file.slug)
            wrong["missing"] += [f"{file.path} {digest}" for digest in checked.missing_raw]
            wrong["unreferenced"] += [f"{file.path} {digest}" for digest in checked.unreferenced_raw]
    if wrong["missing"]:
        yield make_finding(
            DEEP_LOG_LINES, "warning", "raw", "whole tool results are not there to which a log refers", wrong["missing"]
        )
    if wrong["unreferenced"]:
        message = "no line refers to these whole tool results: their writer died, or is about to write it"
        yield make_finding(DEEP_LOG_LINES, "info", "raw", message, wrong["unreferenced"])


def _broken_rules(report: Report) -> list[str]:
    """Return the rules that the log violates, each with its number of violations."""
    broken = (code for code in sorted(report.counts) if severity_of(code) == "error" or code == "event_seq_gap")
    return [f"{code} {report.counts[code]}" for code in broken if code not in _TOLD]


SPACE, LINES = "DOC-04", "DOC-11"

#: How many line files are examined without ``deep``: those written last.
NEWEST = 2_000
#: The command that only opens the database for writing, which mends such a file.
_OPENED = "lastlight-state checkpoint"
_LEFT = (
    "a writer died and left this beside the database, which is whole only together with it: move, copy or delete"
    " neither alone; opening the database for writing recovers it"
)
_FOREIGN_LOG = (
    "a write-ahead log lies beside a file that has none: it is another file's, and SQLite would read it instead of this"
    " one's pages; before anybody opens the file for writing, move the log away, or put its own file back"
)


def _place(look: CheckContext) -> Iterator[Finding]:
    """Find faults of the place where the database file is stored, and faults of the files next to it."""
    yield from _room(look)
    place = look.backend.place()
    if place is None:
        return
    if place.left:
        yield make_finding(SPACE, "warning", "database", _LEFT, map(str, place.left), _OPENED)
    logs = [str(path) for path in place.unfit if path.name.endswith("-wal") and path.stat().st_size]
    if logs:
        yield make_finding(SPACE, "error", "database", _FOREIGN_LOG, logs)
    elif place.unfit:
        message = "side files of a write-ahead log lie beside a file that has none; they are empty of rows"
        yield make_finding(SPACE, "info", "database", message, map(str, place.unfit))
    if place.is_remote and place.in_wal_mode:
        message = (
            f"the file has a write-ahead log and lies on {place.file_system}, where machines do not see each other's"
            " index of it: let one machine use it alone, or bring it into rollback mode"
        )
        yield make_finding(SPACE, "warning", "database", message, [str(look.backend.files[0])], _OPENED)


def _room(look: CheckContext) -> Iterator[Finding]:
    there = [path for path in look.backend.files if path.exists()]
    if not there:
        return
    size = sum(path.stat().st_size for path in there)
    free = shutil.disk_usage(there[0]).free
    if free < size:
        message = f"{free} bytes are free, less than the {size} of the database and its log"
        yield make_finding(SPACE, "warning", str(there[0].parent), message, [str(there[0])])


def _lines(look: CheckContext) -> Iterator[Finding]:
    temporary = [str(path) for path in _below(look, ".tmp")]
    if temporary:
        yield make_finding(LINES, "info", "line files", "temporary files were left behind", temporary)
    if not look.deep:
        torn = [str(path) for path in line_files(look) if _is_torn(path)]
        if torn:
            message = "the last line has no end: its writer is at work, or has died"
            yield make_finding(
                LINES,
                "warning",
                "line files",
                message,
                torn,
                shlex.join(["lastlight-state", "repair", torn[0], "--seal"]),
            )
        return
    roots = [root for root in look.settings.line_directories if root.exists()]
    damaged = [str(scan.path) for scan in (scans_below(roots) if roots else ()) if not scan.sound]
    if damaged:
        remedy = shlex.join(["lastlight-state", "repair", damaged[0]])
        yield make_finding(LINES, "warning", "line files", "lines cannot be read", damaged, remedy)
    yield from run_logs(look)
    yield from tool_results(look)


def line_files(look: CheckContext) -> list[Path]:
    """Return the line files that were written last, or in a deep examination all line files."""
    aged: list[tuple[float, Path]] = []
    for path in _below(look, ".jsonl"):
        with suppress(OSError):  # vanished meanwhile
            aged.append((path.lstat().st_mtime, path))
    return [path for _, path in sorted(aged, reverse=True)[: None if look.deep else NEWEST]]


def _below(look: CheckContext, ending: str) -> Iterable[Path]:
    for root in look.settings.line_directories:
        for folder, _, names in os.walk(root):
            yield from (Path(folder, name) for name in names if name.endswith(ending))


def _is_torn(path: Path) -> bool:
    """True if the file ends in the middle of a line. False for a link, and for an empty or missing file."""
    with suppress(OSError):  # also for an empty file
        if not path.is_symlink():
            with open_binary(path) as file:
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
    return False


CHECKS = (Check(SPACE, files=_place), Check(LINES, files=_lines))
