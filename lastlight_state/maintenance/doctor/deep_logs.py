"""What a deep examination looks for in logs that can be read: broken rules of run logs, and lost tool results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import get_args

from lastlight_state.agent_log import AgentLog
from lastlight_state.errors import StateError
from lastlight_state.maintenance.doctor.check import Look, every, found
from lastlight_state.maintenance.doctor.records import Finding
from lastlight_state.run_log import Report, RunLog
from lastlight_state.run_log.checks.records import severity_of
from lastlight_state.run_log.reading import DamageReason

LINES = "DOC-11"

#: What is told of every line file: lines that cannot be read.
_TOLD = frozenset(get_args(DamageReason))


def run_logs(look: Look) -> Iterator[Finding]:
    """Run logs that break the rules of their format, and those whose writer died before the end."""
    log = RunLog(look.settings.run_logs)
    broken: list[str] = []
    crashed: list[str] = []
    for entry in every(log.runs.list):
        with suppress(StateError):  # gone meanwhile, or not to be opened: told with the line files
            codes = _broken(log.checks.validate(entry.run_id))
            if codes:
                broken.append(f"{log.root / entry.path}: {', '.join(codes)}")
            if entry.state == "crashed":
                crashed.append(str(log.root / entry.path))
    if broken:
        message = "logs of runs break the rules of their format: `run_log.checks.validate` says where"
        yield found(LINES, "warning", "run logs", message, broken)
    if crashed:
        message = "logs of runs have no run.end, and nobody writes them: `run_log.runs.reopen` continues one"
        yield found(LINES, "info", "run logs", message, crashed)


def tool_results(look: Look) -> Iterator[Finding]:
    """Whole tool results that a log refers to and that are not there, and those that no line refers to."""
    log = AgentLog(look.settings.agent_sessions)
    wrong: dict[str, list[str]] = defaultdict(list)
    for file in every(log.sessions.list):
        with suppress(StateError):
            checked = log.repair.check(file.id, slug=file.slug)
            wrong["missing"] += [f"{file.path} {digest}" for digest in checked.missing_raw]
            wrong["unreferenced"] += [f"{file.path} {digest}" for digest in checked.unreferenced_raw]
    if wrong["missing"]:
        yield found(LINES, "warning", "raw", "whole tool results are not there to which a log refers", wrong["missing"])
    if wrong["unreferenced"]:
        message = "no line refers to these whole tool results: their writer died, or is about to write it"
        yield found(LINES, "info", "raw", message, wrong["unreferenced"])


def _broken(report: Report) -> list[str]:
    """The rules that the log breaks, with how often."""
    broken = (code for code in sorted(report.counts) if severity_of(code) == "error" or code == "event_seq_gap")
    return [f"{code} {report.counts[code]}" for code in broken if code not in _TOLD]
