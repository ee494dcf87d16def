"""The sweep: settles acknowledged messages in the host's file, frees a dead agent's claims, and checks a live agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, TypeAlias

from lastlight_state.clock import aware_utc, iso_text
from lastlight_state.db.rows.statements import Row, Values
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import StateError
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.arguments import DEFAULT_POLICY, StalePolicy
from lastlight_state.files.mailbox.folder import creation
from lastlight_state.files.mailbox.host import series, standing, statements as sql
from lastlight_state.files.mailbox.host.standing import Held, Quiet
from lastlight_state.files.mailbox.models import instant
from lastlight_state.files.mailbox.projections import Ack, Head
from lastlight_state.files.mailbox.records import Claim
from lastlight_state.files.mailbox.reports import AdvanceReport, Assessment, ReleaseReport, SweepReport, SyncReport
from lastlight_state.files.mailbox.shared import messages, queries, words
from lastlight_state.files.mailbox.shared.files import deadline
from lastlight_state.files.mailbox.shared.pair import MailboxPart
from lastlight_state.files.mailbox.shared.queries import BothFiles
from lastlight_state.files.mailbox.shared.words import AcknowledgedAs

_Settling: TypeAlias = tuple[Head, str, str | None]


class HostSweep(MailboxPart):
    """The host's sweep: ``host.sweep``."""

    def sync(self) -> SyncReport:
        """Settle messages that the agent has acknowledged as completed or failed. Recurring ones get a next occurrence.

        Reads first, and takes no write lock if there is nothing to settle. Messages that were acknowledged with an
        unknown word are counted; `release` fails them.
        """
        return self._sync_acks(None)

    def advance(self) -> AdvanceReport:
        """Store the next occurrence of each series whose last one was settled by another program.

        Reports series whose pattern or zone cannot be parsed. They do not delay the others.
        """
        if not self._reading(lambda unit: _stalled_messages(unit, self)):
            return AdvanceReport()
        now = self._now()
        return self._writing(lambda unit: self._advance_series(unit, now))

    def claims(self) -> list[Claim]:
        """Return the messages that the agent has claimed and is working on."""
        return [_claim(head, ack) for head, ack in self._view_both(standing.live_claims)]

    def assess(self, *, agent_started_at: datetime | None, policy: StalePolicy = DEFAULT_POLICY) -> Assessment:
        """Return the advice for the host about the agent. ``agent_started_at`` is None if the agent is not running.

        Only reads. Claims with unreadable times are skipped and reported.
        """
        started = None if agent_started_at is None else aware_utc("agent_started_at", agent_started_at)
        rule, now = queries.policy(policy), self._now()
        found = self._view_both(lambda both: standing.signals(both, now, standing.live_claims(both)))
        return found.assessment(self._pair.place, started, rule, now)

    def release(self, *, reason: str, policy: StalePolicy = DEFAULT_POLICY) -> ReleaseReport:
        """Free the claims of an agent that has stopped: each message is retried later, at most five times in all.

        If the agent acknowledged a message with an unknown word, the message fails, and its error names the word.
        Writes nothing into the agent's file. Repeating the call changes nothing until a message is claimed again.
        """
        text, now = queries.error_text(reason), self._now()
        queries.policy(policy)
        held, strange = self._view_both(lambda both: (standing.live_claims(both), words.unknown_acks(both)))
        held = [found for found in held if found[0].status == "pending"]
        if not held and not strange:
            return ReleaseReport()
        done = self._writing(lambda unit: self._release_claims(unit, held, strange, text, now))
        self._metrics.count("mailbox_retried", done.released)
        return done

    def expire(self, *, policy: StalePolicy = DEFAULT_POLICY) -> int:
        """Settle the oldest pending context messages beyond ``policy.max_context``.

        Returns the number of settled messages.
        """
        rule = queries.policy(policy)
        if rule.max_context is None:
            return 0
        values = {"kept": rule.max_context}
        if not self._reading(lambda unit: unit.readable_rows(sql.EXPIRED, values)[0]):
            return 0
        now = iso_text(self._now())
        return self._writing(lambda unit: _expire_messages(unit, values, now))

    def tidy(self) -> int:
        """Delete folders of attachments that have no message and are older than an hour. Returns their number."""
        found = creation.old_folders(self._pair.place.path, self._now() - standing.LEFT_AFTER)
        if not found:
            return 0
        known = self._reading(lambda unit: messages.HEADS_BY_ID.rows_by_key(unit, found))
        kept = {head.id for head in known}
        return sum(creation.remove_leftover(self._pair.place.path, name) for name in found if name not in kept)

    def run(self, *, agent_started_at: datetime | None, policy: StalePolicy = DEFAULT_POLICY) -> SweepReport:
        """Run all steps of a sweep, and return their results.

        A step that fails is named in ``errors``, and the steps before it are not undone. Unchanged files in which an
        earlier sweep found nothing to do are not opened.
        """
        rule, now = queries.policy(policy), self._now()
        started = None if agent_started_at is None else aware_utc("agent_started_at", agent_started_at)
        with deadline(self._settings):
            return self._quietly(started, rule, now) or self._stepwise(started, policy)

    def _quietly(self, started: datetime | None, policy: StalePolicy, now: datetime) -> SweepReport | None:
        """Return the report of a sweep that need not write, or None if it has something to do or to report."""
        place, look = self._pair.place, self._pair.look(standing.key_of(policy), now)
        found = look.answer
        if found is None:
            try:
                old = creation.old_folders(place.path, now - standing.LEFT_AFTER)
                found = self._viewing(
                    lambda unit: self._beside(unit, lambda both: self._quiet(unit, both, policy, now, old))
                )
            except StateError:  # the step that meets the error reports it
                return None
            if found is None:
                return None
            look.keep(found, found.signals.until)
        return standing.quiet_report(place, found, started, policy, now)

    def _quiet(
        self, unit: Unit, both: BothFiles, policy: StalePolicy, now: datetime, old: Sequence[str]
    ) -> Quiet | None:
        """Return the facts of a snapshot, or None if messages must be settled, stored or expired."""
        settling, strange, ignored = _settlings(both)
        if settling or strange or _stalled_messages(unit, self):
            return None
        if policy.max_context is not None and unit.readable_rows(sql.EXPIRED, {"kept": policy.max_context})[0]:
            return None
        held = standing.live_claims(both)
        return Quiet(
            sync=SyncReport(ignored=ignored),
            holds=any(head.status == "pending" for head, _ in held),
            kept=frozenset(head.id for head in messages.HEADS_BY_ID.rows_by_key(unit, old)) if old else frozenset(),
            signals=standing.signals(both, now, held),
        )

    def _stepwise(self, started: datetime | None, policy: StalePolicy) -> SweepReport:
        place = self._pair.place
        steps: dict[str, Callable[[], Any]] = {"sync": lambda: self._sync_acks(started), "advance": self.advance}
        if started is None:
            steps["release"] = lambda: self.release(reason="the agent is not running", policy=policy)
        steps["expired"] = lambda: self.expire(policy=policy)
        steps["tidied"] = self.tidy
        steps["assessment"] = lambda: self.assess(agent_started_at=started, policy=policy)
        done: Row = {}
        errors = []
        for name, step in steps.items():
            try:
                done[name] = step()
            except StateError as error:
                errors.append(f"{name}: {error}")
                if error.details.get("reason") == "statement_timeout":
                    break  # its time limit is reached
        return SweepReport(group=place.group, session=place.session, errors=tuple(errors), **done)

    def _sync_acks(self, started: datetime | None) -> SyncReport:
        """Settle acknowledged messages. An unknown word from an agent that ran before ``started`` fails the message."""
        found, strange, ignored = self._view_both(_settlings)
        gone = [one for one in strange if started is not None and _is_before(one, started)]
        report = SyncReport(ignored=ignored, unknown=len(strange))
        settling = [*found, *map(_failed_settling, gone)]
        if not settling:
            return report
        now = self._now()
        done = self._writing(lambda unit: self._settle_messages(unit, settling, now))
        return done.model_copy(update={"ignored": ignored, "unknown": len(strange)})

    def _settle_messages(self, unit: Unit, found: list[_Settling], now: datetime) -> SyncReport:
        counts = {"completed": 0, "failed": 0, "successors": 0}
        unreadable: list[str] = []
        for head, status, error in found:
            before = unit.row(sql.HEAD_OF, {"id": head.id})
            if before is None or (before.seq, before.tries) != (head.seq, head.tries):
                continue
            settled = unit.row(sql.SETTLE, _settle_values(head, status, error, now))
            if settled is None:
                continue
            counts[status] += 1
            followed = series.follow(unit, self._pair, settled, now, paused=before.status == "paused")
            counts["successors"] += followed == "stored"
            if followed == "unreadable":
                unreadable.append(settled.id)
        return SyncReport(**counts, unreadable_series=tuple(unreadable))

    def _advance_series(self, unit: Unit, now: datetime) -> AdvanceReport:
        stored, unreadable = 0, []
        for head in _stalled_messages(unit, self):
            settled = unit.row(sql.HEAD_OF, {"id": head.id})
            if settled is None or settled.recurrence is None:
                continue  # followed with another one of its series
            followed = series.follow(unit, self._pair, settled, now)
            stored += followed == "stored"
            if followed == "unreadable":
                unreadable.append(head.id)
        return AdvanceReport(successors=stored, unreadable_series=tuple(unreadable))

    def _release_claims(
        self, unit: Unit, held: list[Held], strange: list[AcknowledgedAs], reason: str, now: datetime
    ) -> ReleaseReport:
        released = exhausted = 0
        unknown = self._settle_messages(unit, [*map(_failed_settling, strange)], now).failed
        for head, ack in held:
            tries, base = head.tries or 0, head.tries_base or 0
            if tries - base >= models.MOST_TRIES:
                exhausted += self._given_up(unit, head, reason, now)
                continue
            claimed_at = instant(ack.status_changed)
            values = {
                "id": head.id,
                "seq": head.seq,
                "seen": head.tries,
                "tries": tries + 1,
                "process_after": iso_text(now + models.FIRST_DELAY * 2 ** (tries - base)),
                "released_at": iso_text(now if claimed_at is None else max(now, claimed_at)),
                "error": reason,
            }
            released += unit.change(sql.RELEASE, values)
        return ReleaseReport(released=released, exhausted=exhausted, unknown=unknown)

    def _given_up(self, unit: Unit, head: Head, reason: str, now: datetime) -> bool:
        """Fail a message that has no tries left, unless it was paused or replaced after it was looked at."""
        before = unit.row(sql.HEAD_OF, {"id": head.id})
        if before is None or (before.seq, before.status) != (head.seq, "pending"):
            return False
        settled = unit.row(sql.SETTLE, {**_settle_values(head, "failed", reason, now), "outcome": models.EXHAUSTED})
        if settled is not None:
            series.follow(unit, self._pair, settled, now)
        return settled is not None


def _live(both: BothFiles) -> Iterator[Head]:
    """Return all messages that are not settled."""
    return chain(
        messages.triggers(both), messages.context(both), messages.paused_messages(both), messages.unknown(both)
    )


def _settlings(both: BothFiles) -> tuple[list[_Settling], list[AcknowledgedAs], int]:
    """Return the messages to settle, those with unknown words, and how many acknowledgements have no message."""
    heads = list(_live(both))
    found = messages.acks_by_id(both, heads)
    settlings = [
        (head, status, ack.error if status == "failed" else None)
        for head in heads
        if (ack := found.get(head.id)) is not None and (status := messages.settles(ack, head)) is not None
    ]
    return settlings, words.unknown_acks(both), _unknown(both)


def _unknown(both: BothFiles) -> int:
    """Return how many acknowledgements, of at most 500, name no message."""
    ids = [message_id for (message_id,) in both.rows(messages.SETTLING)]
    return len(ids) - len(both.rows_by_key(messages.HEADS_BY_ID, ids))


def _failed_settling(found: AcknowledgedAs) -> _Settling:
    return found.head, "failed", found.error


def _is_before(found: AcknowledgedAs, started: datetime) -> bool:
    """Return whether the acknowledgement is older than the agent that runs now."""
    moment = instant(found.ack.status_changed)
    return moment is not None and moment < started


def _settle_values(head: Head, status: str, error: str | None, now: datetime) -> Values:
    return {
        "id": head.id,
        "tries": head.tries,
        "status": status,
        "settled_at": iso_text(now),
        "outcome": status,
        "error": error,
    }


def _stalled_messages(unit: Unit, room: MailboxPart) -> list[Head]:
    """Return settled messages that recur, apart from those that had failed before the file was adopted."""
    after: str | None = ""
    stalled: list[Head] = []
    while found := unit.readable_rows(sql.RECURRING_SETTLED, {"after": after})[0]:
        stalled += found
        after = found[-1].series_id
    if not any(head.status == "failed" for head in stalled):
        return stalled
    adopted = queries.number(unit, room._pair.declared, "adopted_seq")
    return [head for head in stalled if head.status != "failed" or (head.seq or 0) > adopted]


def _expire_messages(unit: Unit, values: Values, now: str) -> int:
    expired = {"status": "completed", "settled_at": now, "outcome": models.EXPIRED, "error": None}
    rows = unit.readable_rows(sql.EXPIRED, values)[0]
    return sum(unit.row(sql.SETTLE, {"id": key, "tries": tries, **expired}) is not None for key, tries in rows)


def _claim(head: Head, ack: Ack) -> Claim:
    return Claim(
        message_id=head.id,
        seq=head.seq,
        status=str(head.status),
        claimed_at=instant(ack.status_changed),
        claimed_by=ack.claimed_by,
        tries=head.tries or 0,
    )
