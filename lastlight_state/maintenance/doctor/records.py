"""Records of examinations."""

from __future__ import annotations

from lastlight_state.db.records import Record


class Finding(Record):
    """Something that is wrong, or worth to know.

    ``severity`` is ``error``, ``warning`` or ``info``. ``subject`` is a table, file or setting. ``count`` says how many
    there are (at most 10,000 are counted), ``samples`` names the first 20. ``remedy`` is the command to run, None where
    no command mends it.
    """

    check: str
    severity: str
    subject: str
    message: str
    count: int = 1
    samples: tuple[str, ...] = ()
    remedy: str | None = None


class SkippedCheck(Record):
    """A check that did not run, and why."""

    check: str
    reason: str


class Report(Record):
    """What an examination found, the worst first, which checks ran, and which did not."""

    findings: tuple[Finding, ...]
    checks_run: tuple[str, ...]
    checks_skipped: tuple[SkippedCheck, ...]

    def worst(self) -> str | None:
        """The severity of the worst finding, or None."""
        return self.findings[0].severity if self.findings else None
