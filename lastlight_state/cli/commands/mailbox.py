"""``mailbox``: lists, shows, checks, sweeps and prunes the files between hosts and agents. Needs no database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import click

from lastlight_state.cli import arguments
from lastlight_state.cli.exits import NO, Failure
from lastlight_state.cli.opening import settings_of
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.cli.views.kinds import MAILBOXES
from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.db import valid
from lastlight_state.db.rows.records import Page
from lastlight_state.errors import InvalidValue
from lastlight_state.files.mailbox import AgentMailbox, Finding, HostMailbox, Mailboxes, MailboxInfo, PruneReport

FINDINGS: tuple[Column[Finding], ...] = (
    Column("FILE", lambda finding: finding.file),
    Column("MESSAGE", lambda finding: finding.message_id, keep=True),
    Column("PROBLEM", lambda finding: finding.problem, below=True),
)

SIDES = ("host", "agent")
#: Most days that an age may have, so that its date can still be computed.
_MOST_DAYS = 100_000


class Arguments:
    """The parsed arguments of a ``mailbox`` command line."""

    def __init__(self, call: Call, key: str | None, message_id: str | None, options: dict[str, Any]) -> None:
        self.options = options
        self._call = call
        self._key = key
        self._message_id = message_id

    def mailboxes(self, *, read_only: bool = True) -> Mailboxes:
        """Open all mailboxes below the root of the settings."""
        settings = settings_of(self._call, read_only=read_only).anchored()
        return Mailboxes(settings.mailboxes, settings=settings)

    def host(self, *, read_only: bool = True) -> HostMailbox:
        """Open the mailbox that the arguments name. Raises `InvalidValue` if they name none."""
        group, _, session = (self._key or "").partition("/")
        if not session:
            raise InvalidValue("MAILBOX", "must be given: GROUP/SESSION")
        return self.mailboxes(read_only=read_only).host(group, session)

    def agent(self) -> AgentMailbox:
        """Open the agent's side of the mailbox that the arguments name."""
        return AgentMailbox.open(self.host().folder, settings=settings_of(self._call))

    @property
    def message_id(self) -> str:
        """Return the message id from the arguments. Raises `InvalidValue` if there is none."""
        if self._message_id is None:
            raise InvalidValue("MESSAGE", "must be given: the id of a message of the agent")
        return self._message_id


@command("mailbox")
@click.argument("action", metavar="ls|show|verify|sweep|requeue|prune")
@click.argument("key", metavar="[GROUP/SESSION]", required=False)
@click.argument("message_id", metavar="[MESSAGE]", required=False)
@click.option("--limit", metavar="N", default=50, help="With ls: the number of sessions on a page, 1 to 500.")
@click.option("--page-token", metavar="TOKEN", help="With ls: go on where the page before ended.")
@click.option("--side", metavar="SIDE", default="host", help="With prune: whose file, host or agent.")
@click.option("--whole", is_flag=True, help="With prune: all of a session whose agent is gone, whatever its age.")
@click.option("--keep-days", metavar="N", default=30, help="With prune: days that messages are kept after their end.")
@click.option("--dry-run", is_flag=True, help="With prune: only tell what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="With prune: do not ask.")
def run(call: Call, action: str, key: str | None, message_id: str | None, **options: Any) -> Answer:
    """Work on mailboxes: list them, count what waits in one, check it, process its agent's acknowledgements.

    With verify, findings give exit code 1. sweep and requeue write into the host's file. prune deletes old messages
    from one side's file, or with --whole the session's folder. No other action writes.
    """
    work = ACTIONS[valid.word("ACTION", action, ACTIONS)]
    return work(Arguments(call, key, message_id, options))


def _ls(asked: Arguments) -> Answer:
    page = asked.mailboxes().list(limit=asked.options["limit"], page_token=asked.options["page_token"])
    data = {"items": [found.model_dump() for found in page], "next_page_token": page.next_page_token}
    return Answer(data, lambda screen: _page(page, screen))


def _show(asked: Arguments) -> Answer:
    host = asked.host()
    status = host.status().model_dump()
    data = {"mailbox": str(host.folder), "status": status}
    return Answer(data, lambda screen: screen.fields({"mailbox": host.folder, **status}))


def _verify(asked: Arguments) -> Answer:
    found = asked.host().verify()
    failure = Failure(NO, "damaged", f"{len(found)} findings", {}) if found else None
    data = {"findings": [finding.model_dump() for finding in found]}
    return Answer(data, lambda screen: _findings(found, screen), failure)


def _sweep(asked: Arguments) -> Answer:
    sweep = asked.host(read_only=False).sweep
    done = {"sync": sweep.sync().model_dump(), "advance": sweep.advance().model_dump()}
    return Answer(done, lambda screen: screen.fields(done))


def _requeue(asked: Arguments) -> Answer:
    asked.host(read_only=False).outbox.requeue(asked.message_id)
    return Answer({"requeued": asked.message_id}, lambda _: ["is due again"])


def _prune(asked: Arguments) -> Answer:
    prune = _whole(asked) if asked.options["whole"] else _settled_prune(asked)
    report = prune(dry_run=True)
    if (asked.options["whole"] or report.messages or report.receipts) and not asked.options["dry_run"]:
        arguments.ask(f"Remove {_removed_amount(report)}?", yes=asked.options["yes"])
        report = prune(dry_run=False)
    done = "would remove" if asked.options["dry_run"] else "removed"
    return Answer({"pruned": report.model_dump()}, lambda _: [f"{done} {_removed_amount(report)}"])


def _whole(asked: Arguments) -> Callable[..., PruneReport]:
    host = asked.host()
    return partial(asked.mailboxes(read_only=False).prune, host.group, host.session)


def _settled_prune(asked: Arguments) -> Callable[..., PruneReport]:
    days = valid.number("--keep-days", asked.options["keep_days"], most=_MOST_DAYS)
    before = SYSTEM_CLOCK.now() - timedelta(days=days)
    side = valid.word("--side", asked.options["side"], SIDES)
    prune = asked.host(read_only=False).inbox.prune if side == "host" else asked.agent().outbox.prune
    return partial(prune, settled_before=before)


def _removed_amount(report: PruneReport) -> str:
    return f"{report.messages} messages of {report.size_bytes} bytes, and {report.receipts} receipts"


ACTIONS: dict[str, Callable[[Arguments], Answer]] = {
    "ls": _ls,
    "show": _show,
    "verify": _verify,
    "sweep": _sweep,
    "requeue": _requeue,
    "prune": _prune,
}


def _page(page: Page[MailboxInfo], screen: Screen) -> Iterator[Any]:
    if page.items:
        yield from screen.table(MAILBOXES, page.items)
    else:
        yield "(no mailboxes)"
    if page.next_page_token is not None:
        yield f"more: --page-token {page.next_page_token}"


def _findings(found: list[Finding], screen: Screen) -> Iterator[Any]:
    if found:
        yield from screen.table(FINDINGS, found)
    else:
        yield "sound"
