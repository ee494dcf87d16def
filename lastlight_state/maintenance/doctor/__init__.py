"""Finds faults in the database and in the files that belong to it, and names remedies. Writes nothing."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Sequence

from lastlight_state import progress
from lastlight_state.db import valid
from lastlight_state.db.repository import Repository
from lastlight_state.maintenance.doctor import contents, contradictions, files, logs, server
from lastlight_state.maintenance.doctor.check import (
    Check,
    CheckContext,
    Finding,
    Report,
    SkippedCheck,
    Snapshot,
    make_finding,
)

#: Every check by its id, in the order in which they run.
CHECKS = {
    check.id: check
    for check in sorted(
        (
            check
            for checks in (
                server.REACH_CHECKS,
                server.CHECKS,
                files.CHECKS,
                server.PERMISSION_CHECKS,
                contradictions.CHECKS,
                logs.CHECKS,
                contents.CHECKS,
            )
            for check in checks
        ),
        key=lambda check: check.id,
    )
}

_ORDER = {"error": 0, "warning": 1, "info": 2}


class Doctor(Repository):
    """Examines the database and its files for faults: ``store.maintenance.doctor``."""

    def examine(
        self,
        *,
        deep: bool = False,
        only: Sequence[str] | None = None,
        skip: Sequence[str] = (),
        time_limit: float | None = None,
    ) -> Report:
        """Run all checks, or ``only`` these, and return their findings. Writes nothing.

        ``deep`` reads every row and line; otherwise, only the ends of the 2,000 line files that were written last are
        read. A check that raises is listed as skipped with the reason, and the other checks still run. After
        ``time_limit`` seconds the remaining checks are skipped. Works on a database in any state, and without one.
        """
        asked = _asked_checks(only, skip)
        valid.flag("deep", deep)
        limit = None if time_limit is None else valid.seconds("time_limit", time_limit)
        look = CheckContext(self._backend, self._settings, self._now(), deep)
        findings: list[Finding] = []
        skipped: list[SkippedCheck] = []
        ran: list[str] = []
        reachable, began = _reachable(look, findings), time.monotonic()
        for at, check in enumerate(asked):
            progress.tell("examining", at, len(asked), unit="checks")
            reason = _reason(check, look, reachable, limit is not None and time.monotonic() - began >= limit)
            reason = reason or self._run(check, look, findings)
            if reason is None:
                ran.append(check.id)
            else:
                skipped.append(SkippedCheck(check=check.id, reason=reason))
        kept = {check.id for check in asked}
        shown = [_with_whole_remedy(finding, look) for finding in findings if finding.check in kept]
        ordered = sorted(shown, key=lambda finding: (_ORDER[finding.severity], finding.check))
        return Report(findings=tuple(ordered), checks_run=tuple(ran), checks_skipped=tuple(skipped))

    def _run(self, check: Check, look: CheckContext, findings: list[Finding]) -> str | None:
        """Run a check and add its findings. Returns the reason if the check failed, else None."""
        work = check.rows
        try:
            if check.id == server.REACH:  # the check was run first
                return None
            if check.files is not None:
                findings += check.files(look)
            elif work is not None:
                findings += self._viewing(lambda unit: list(work(look, Snapshot(unit))))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other checks go on
            if getattr(error, "reason", None) == "not_a_database":  # a damaged page gives this reason, too
                findings.append(make_finding(check.id, "error", "database", str(error), [type(error).__name__]))
            return f"{type(error).__name__}: {error}"
        return None


def _with_whole_remedy(finding: Finding, look: CheckContext) -> Finding:
    """Return the finding, with the name of the examined database added to the command in its remedy.

    A command that repairs files names no database, and a command that makes a backup already names it.
    """
    program, *words = shlex.split(finding.remedy or "-")
    named = "--url" in words or "--url-file" in words or words[:1] == ["backup"]
    if program != "lastlight-state" or named or (words[0] == "repair" and words[1] != "--counters"):
        return finding
    return finding.model_copy(update={"remedy": look.backend.command(*words)})


def _asked_checks(only: Sequence[str] | None, skip: Sequence[str]) -> list[Check]:
    wanted = list(CHECKS) if only is None else [valid.word("only", one, CHECKS) for one in valid.several("only", only)]
    left_out = {valid.word("skip", one, CHECKS) for one in valid.several("skip", skip)}
    return [CHECKS[name] for name in sorted(set(wanted)) if name not in left_out]


def _reachable(look: CheckContext, findings: list[Finding]) -> bool:
    """True if the database can be examined. If not, a finding with the reason is added."""
    looked: Callable[[CheckContext], Iterable[Finding]] | None = CHECKS[server.REACH].files
    try:
        findings += looked(look) if looked is not None else ()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what stands in the way
        findings.append(make_finding(server.REACH, "error", look.backend.location, str(error), [type(error).__name__]))
    return not findings


def _reason(check: Check, look: CheckContext, reachable: bool, late: bool) -> str | None:
    """Return the reason why a check must be skipped, or None if it can run."""
    if check.deep and not look.deep:
        return "only in a deep examination"
    if not reachable and (check.rows is not None or check.id == server.SCHEMA):
        return "the database cannot be read: see DOC-01" if look.backend.exists else "there is no database to look at"
    return "the time limit was reached" if late else None
