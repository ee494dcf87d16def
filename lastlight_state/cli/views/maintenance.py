"""Views of maintenance commands: of bundles, counters, emptied texts and timelines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lastlight_state.cli import arguments
from lastlight_state.cli.exits import NO, Failure
from lastlight_state.cli.opening import read_once, writable_store
from lastlight_state.cli.output import Answer, Call
from lastlight_state.cli.screen import GAP, Column, Screen
from lastlight_state.db.lists.pages import pages_of
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance import Bundle, BundlePart, LateCounter, LoadedBundle, RedactPlan, TimelineEntry
from lastlight_state.maintenance.bundles.records import ON_CONFLICT
from lastlight_state.receipts import Receipt
from lastlight_state.store import StateStore

# The work and output of ``repair --counters``.

COUNTS: tuple[Column[tuple[str, int]], ...] = (
    Column("COUNTER", lambda row: row[0]),
    Column("BEHIND", lambda row: row[1], right=True),
)
SAMPLES: tuple[Column[LateCounter], ...] = (
    Column("COUNTER", lambda late: late.counter),
    Column("OF", lambda late: late.key, keep=True),
    Column("IS", lambda late: late.value, right=True),
    Column("MUST BE", lambda late: late.needed, right=True),
)


def raise_counters(call: Call, *, dry_run: bool) -> Answer:
    """Raise the counters that are behind. With ``dry_run``, only list them, and return exit code 1 if there are any."""
    plan = read_once(call, lambda store: store.maintenance.counters.plan())
    data: dict[str, Any] = {"dry_run": dry_run, **plan.model_dump(), "receipt": None}
    if dry_run:
        failure = Failure(NO, "behind", f"{_amount(plan.counts)} behind", {"counts": plan.counts})
        return Answer(data, lambda screen: _counter_lines(screen, plan), failure if plan.counts else None)
    with writable_store(call) as store:
        receipt = store.maintenance.counters.run()
    data |= {"counts": receipt.counts, "receipt": receipt}
    told = f"receipt {receipt.id}: {_amount(receipt.counts)} raised"
    return Answer(data, lambda screen: [told, *screen.table(COUNTS, list(receipt.counts.items()))])


def _counter_lines(screen: Screen, plan: Any) -> Iterator[Any]:
    yield f"{_amount(plan.counts)} behind"
    yield from screen.table(COUNTS, list(plan.counts.items()))
    yield ""
    yield from screen.table(SAMPLES, plan.samples)


def _amount(counts: Mapping[str, int]) -> str:
    many = sum(counts.values())
    return "1 counter" if many == 1 else f"{many} counters"


# Shared by ``redact`` and ``erase``: the plan, the question, the work and its receipt.

ROWS_BY_TABLE: tuple[Column[tuple[str, int]], ...] = (
    Column("TABLE", lambda row: row[0]),
    Column("ROWS", lambda row: row[1], right=True),
)
PROTECTED: tuple[Column[tuple[str, int]], ...] = (
    Column("STAYS BECAUSE", lambda row: row[0]),
    Column("MESSAGES", lambda row: row[1], right=True),
)


def redact_or_erase(
    call: Call,
    plan: Callable[[StateStore], RedactPlan],
    run: Callable[[StateStore], Receipt],
    *,
    dry_run: bool,
    yes: bool,
) -> Answer:
    """Redact or erase after confirmation, and show the result. With ``dry_run``, only show the plan."""
    planned = read_once(call, plan)
    data = {"dry_run": dry_run, **planned.model_dump(), "receipt": None}
    if dry_run:
        return Answer(data, lambda screen: _plan_lines(planned, screen))
    if planned.counts:
        arguments.ask(f"Change or remove {sum(planned.counts.values())} rows?", yes=yes)
    with writable_store(call) as store:
        receipt = run(store)
    data |= {"counts": receipt.counts, "receipt": receipt}
    return Answer(data, lambda screen: _receipt_lines(receipt, planned, screen))


def _plan_lines(plan: RedactPlan, screen: Screen) -> Iterator[Any]:
    yield f"would change {sum(plan.counts.values())} rows, and empty {plan.bytes} bytes"
    yield from _table(screen, ROWS_BY_TABLE, plan.counts)
    yield from _stays(plan, screen)


def _receipt_lines(receipt: Receipt, plan: RedactPlan, screen: Screen) -> Iterator[Any]:
    yield f"receipt {receipt.id}: {receipt.state}"
    yield from _table(screen, ROWS_BY_TABLE, receipt.counts)
    yield from _stays(plan, screen)


def _stays(plan: RedactPlan, screen: Screen) -> Iterator[Any]:
    yield from _table(screen, PROTECTED, plan.protected)
    if sessions := getattr(plan, "agent_sessions", ()):
        yield ""
        yield f"log files are not touched; those of these agent sessions are about the person: {', '.join(sessions)}"


def _table(screen: Screen, columns: tuple[Column[tuple[str, int]], ...], counts: Mapping[str, int]) -> Iterator[Any]:
    if counts:
        yield ""
        yield from screen.table(columns, list(counts.items()))


# The timeline of a run, read in full and drawn line by line.

COLUMNS: tuple[Column[TimelineEntry], ...] = (
    Column("AT", lambda entry: entry.at, keep=True),
    Column("SOURCE", lambda entry: entry.source),
    Column("ACTOR", lambda entry: entry.actor, rank=1),
    Column("WHAT", lambda entry: entry.text, below=True),
)
#: The clock's own time, where it contradicts the order of events.
CLOCK: Column[TimelineEntry] = Column("CLOCK", lambda entry: entry.clock)


def whole(store: StateStore, run_id: str) -> tuple[TimelineEntry, ...]:
    """Return every entry of a run's timeline, oldest first."""
    pages = pages_of(store.maintenance.timeline.list, run_id, limit=500)
    return tuple(entry for page in pages for entry in page.items)


def lines(entries: Sequence[TimelineEntry], screen: Screen) -> Iterator[Any]:
    """Convert timeline entries to a table.

    On a terminal, return lines with times of day under a heading for each date.
    """
    if screen.width is None:
        disagrees = any(entry.clock is not None for entry in entries)
        yield from screen.table((*COLUMNS, CLOCK) if disagrees else COLUMNS, entries)
        return
    day = ""
    for entry in entries:
        at = entry.at.astimezone() if screen.local else entry.at
        if f"{at:%Y-%m-%d}" != day:
            day = f"{at:%Y-%m-%d}"
            yield screen.heading(day if screen.local else f"{day} UTC")
        by = "" if entry.actor is None else f" (by {entry.actor})"
        clock = "" if entry.clock is None else f" [the clock said {screen.format_value(entry.clock)}]"
        yield from screen.hanging_lines(f"{at:%H:%M:%S}", f"{entry.text}{by}{clock}")


def line(entry: TimelineEntry, screen: Screen) -> str:
    """Return a timeline entry as one line."""
    return GAP.join(screen.format_value(value) for value in (entry.at, entry.source, entry.actor, entry.text))


PARTS: tuple[Column[BundlePart], ...] = (
    Column("PART", lambda part: part.name),
    Column("ROWS", lambda part: "" if part.rows is None else part.rows, right=True),
    Column("BYTES", lambda part: part.size_bytes, right=True),
)
ADDED: tuple[Column[tuple[str, int]], ...] = (
    Column("ADDED", lambda row: row[0]),
    Column("ROWS", lambda row: row[1], right=True),
)


def bundle_lines(bundle: Bundle, screen: Screen) -> Iterator[object]:
    """Return lines that list a bundle's contents."""
    yield f"{bundle.kind} {bundle.id} at {bundle.revision}"
    yield from screen.table(PARTS, bundle.parts)
    if bundle.redacted:
        yield f"without {', '.join(bundle.redacted)}"
    for name, ids in bundle.context.items():
        yield f"{name} that it was forked from: {', '.join(ids)}"


def load_bundle(call: Call, path: Path, terms: dict[str, Any], *, dry_run: bool) -> Answer:
    """Load a bundle. With ``dry_run``, only list what would be added. ``terms`` are the arguments of both calls."""
    if (on_conflict := terms["on_conflict"]) not in ON_CONFLICT:
        raise InvalidValue("--on-conflict", f"{on_conflict!r:.80} is unknown", permitted=tuple(ON_CONFLICT))
    if dry_run:
        found = read_once(call, lambda store: store.maintenance.bundles.plan(path, **terms))
    else:
        with writable_store(call) as store:
            found = store.maintenance.bundles.load(path, **terms)
    record = found.model_dump(exclude={"receipt", "kind"})
    data = {"dry_run": dry_run, "kind": "bundle", "bundle_kind": found.kind, **record, "receipt": found.receipt}
    return Answer(data, lambda screen: _lines(screen, found, dry_run))


def _lines(screen: Screen, found: LoadedBundle, dry_run: bool) -> Iterator[object]:
    if found.receipt is not None:
        yield f"receipt {found.receipt.id}: {found.receipt.state}"
    elif dry_run:
        yield "dry run: nothing is written"
    else:
        yield f"{found.kind} {found.id} is there already"
    if found.rows:
        yield from screen.table(ADDED, list(found.rows.items()))
    yield from found.files
