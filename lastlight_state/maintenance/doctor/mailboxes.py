"""What the checks look for in mailboxes: wrong numbers, files that cannot be read, claims of dead agents."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import suppress

from lastlight_state.errors import StateError
from lastlight_state.mailbox import Mailboxes, MailboxInfo
from lastlight_state.mailbox.arguments import DEFAULT_POLICY
from lastlight_state.mailbox.folder import INBOUND_DB
from lastlight_state.mailbox.kernel.files import deadline
from lastlight_state.maintenance.doctor.check import Look, Snapshot, every, found
from lastlight_state.maintenance.doctor.records import Finding

SEQUENCE, STUCK = "DOC-12", "DOC-15"

#: How many mailboxes an examination looks at that is not deep: those whose hosts wrote last.
NEWEST = 200


def numbers(look: Look, _: Snapshot) -> Iterator[Finding]:
    """Mailboxes that break the rules of their numbers and series, or cannot be read."""
    wrong: list[str] = []
    unreadable: list[str] = []
    mailboxes = _opened(look)
    for info in _looked_at(mailboxes, look):
        name = f"{info.group}/{info.session}"
        try:
            with deadline(look.settings):
                told = mailboxes.host(info.group, info.session).verify()
        except StateError as error:
            unreadable.append(f"{name}: {error}"[:300])
        else:
            wrong += [f"{name} {one.file} {one.message_id}: {one.problem}" for one in told]
    if unreadable:
        yield found(SEQUENCE, "error", "mailboxes", "mailboxes cannot be read", unreadable)
    if wrong:
        yield found(SEQUENCE, "error", "mailboxes", "messages break the rules of their mailbox", wrong)


def claims(look: Look, _: Snapshot) -> Iterator[Finding]:
    """Messages that an agent took long ago, without a sign of life since."""
    stuck: list[str] = []
    mailboxes, before = _opened(look), look.now - DEFAULT_POLICY.silent_after
    for info in _looked_at(mailboxes, look):
        if info.heartbeat_at is None or info.heartbeat_at < before:
            with suppress(StateError), deadline(look.settings):  # told with the numbers
                held = mailboxes.host(info.group, info.session).sweep.claims()
                old = [one.message_id for one in held if one.claimed_at is not None and one.claimed_at < before]
                stuck += [f"{info.group}/{info.session} {message_id}" for message_id in old]
    if stuck:
        message = "taken by an agent that gives no sign of life: the host's `sweep` gives them back"
        yield found(STUCK, "warning", "mailboxes", message, stuck)


def _opened(look: Look) -> Mailboxes:
    return Mailboxes(look.settings.mailboxes, settings=look.settings.model_copy(update={"read_only": True}))


def _looked_at(mailboxes: Mailboxes, look: Look) -> list[MailboxInfo]:
    infos = list(every(mailboxes.list))
    return infos if look.deep else heapq.nlargest(NEWEST, infos, key=_written)


def _written(info: MailboxInfo) -> float:
    with suppress(OSError):  # gone meanwhile
        return (info.path / INBOUND_DB).lstat().st_mtime
    return 0.0
