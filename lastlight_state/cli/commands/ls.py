"""``ls``: lists records of one kind in pages. Never writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from lastlight_state.cli import arguments, opening
from lastlight_state.cli.opening import read_once
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.views import attention, kind as views_kind
from lastlight_state.cli.views.kind import Filters
from lastlight_state.cli.views.kinds import KINDS, PLURALS
from lastlight_state.db import valid
from lastlight_state.db.rows.records import Page
from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore

#: The kind that is listed if only filters are given.
FILTERED = "sessions"


@command("ls")
@click.argument("kind", metavar="[KIND]", required=False, shell_complete=lambda *_: list(KINDS))
@views_kind.LIMIT
@views_kind.STATUS
@click.option("--since", metavar="TIME", help="Started since: 2026-02-03T12:00Z, or 24h ago as 24h.")
@click.option("--project", metavar="NAME", help="Of sessions: only those of this project.")
@click.option("--workflow", metavar="NAME", help="Of runs, claimable or unhealthy too: only those of this workflow.")
@click.option("--repo", metavar="NAME", help="Of runs: only those of this repository, owner/name or a name alone.")
@click.option("--by", metavar="NAME", help="Of runs: only those whose trigger has this actor.")
@click.option("--until", metavar="TIME", help="Of runs: only those started before.")
@click.option("--run", "run_id", metavar="ID", help="Only those of this run.")
@views_kind.PAGE_TOKEN
def run(
    call: Call,
    kind: str | None,
    limit: int,
    status: Sequence[str],
    since: str | None,
    run_id: str | None,
    page_token: str | None,
    **narrower: str | None,
) -> Answer:
    """List records, newest first, a page at a time. Without KIND, list what needs attention.

    KIND is sessions, runs, executions, approvals, questions, queue, claimable, unhealthy, workers, overrides,
    messaging, crons, fires, threads, states, mailboxes, receipts, outputs, cache, sandboxes or scores, or with --run
    also nodes, events, signals, tool-calls, frames or inputs. The singular works too.

    What needs attention is what waits for a person or a worker, unhealthy runs, and what is switched off. A filter
    without KIND applies to sessions.
    """
    if kind is None and not any((status, since, run_id, page_token, *narrower.values())):
        most = valid.page_limit(limit)
        found, named = read_once(call, lambda store: (attention.read_attention(store, most), store.backend.command))
        return Answer(found.data, lambda screen: attention.lines(found, named, screen))
    kind = FILTERED if kind is None else PLURALS.get(kind, kind)
    chosen = KINDS[valid.word("KIND", kind, KINDS)]
    for flag, value in narrower.items():
        if value is not None and flag not in chosen.by:
            raise InvalidValue(f"--{flag}", f"must not be given for {kind}")
    until = arguments.moment(narrower.pop("until"), "--until")
    chosen_since = arguments.moment(since, "--since")
    filters = Filters(
        views_kind.words(status), chosen_since, valid.page_limit(limit), page_token, run_id, until=until, **narrower
    )

    def page_of(store: StateStore) -> Page[Any]:
        if run_id is None:
            return chosen.page(store, filters)
        return chosen.page(store, replace(filters, run_id=opening.whole(store, run_id, "run")))

    return views_kind.answer(chosen, read_once(call, page_of))
