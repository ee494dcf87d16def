"""``retry``: restarts failed runs, by their ids or by a filter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from lastlight_state.cli import arguments, opening
from lastlight_state.cli.arguments import BY, YES, acting_person
from lastlight_state.cli.exits import Failure, failure_of
from lastlight_state.cli.opening import read_once, writable_store
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.errors import Conflict, InvalidValue, NotFound
from lastlight_state.store import StateStore
from lastlight_state.workflows import WorkflowRun

RUNS: tuple[Column[dict[str, Any]], ...] = (
    Column("RUN", lambda run: run["id"], keep=True),
    Column("WORKFLOW", lambda run: run["workflow_name"], rank=1),
    Column("ERROR", lambda run: run["problem"] or run["error"], below=True),
)
#: Runs that one query reads.
_PAGE = 500


@command("retry")
@click.argument("run_ids", metavar="[ID]...", nargs=-1)
@click.option("--workflow", metavar="NAME", help="All failed runs of this workflow.")
@click.option("--repo", metavar="NAME", help="All failed runs of this repository, owner/name or a name alone.")
@click.option("--since", metavar="TIME", help="All failed runs that started since: 2026-02-03, or 24h ago as 24h.")
@click.option("--until", metavar="TIME", help="All failed runs that started before.")
@click.option("--dry-run", is_flag=True, help="Only say which runs would begin again.")
@BY
@click.option("--reason", metavar="TEXT", help="Why; by default that it was done from the command line.")
@YES
def run(
    call: Call,
    run_ids: Sequence[str],
    dry_run: bool,
    by: str | None,
    reason: str | None,
    yes: bool,
    **filters: str | None,
) -> Answer:
    """Restart failed runs: those with these ids, or all that a filter selects.

    What a run has finished is kept, so that its worker continues from there. A run at its limit of restarts, or with a
    workflow that is switched off, stays unchanged and is named. More than one run is restarted only after confirmation.
    """
    given = {name: value for name, value in filters.items() if value is not None}
    if bool(run_ids) is bool(given):
        raise InvalidValue("ID", "expected ids of runs, or a filter: --workflow, --repo, --since or --until")
    found = read_once(call, lambda store: _named_runs(store, run_ids) if run_ids else _failed_runs(store, given))
    data: dict[str, Any] = {"dry_run": dry_run, "retried": [], "left": []}
    if dry_run:
        data["retried"] = found
        return Answer(data, lambda screen: _lines(screen, f"would retry {_count_text(len(found))}", found))
    if len(found) > 1:
        arguments.ask(f"Retry {_count_text(len(found))}?", yes=yes)
    failure: Failure | None = None
    with writable_store(call) as store:
        for each in found:
            try:
                store.workflows.runs.restart(
                    each["id"], by=acting_person(by), reason=reason or "retried from the command line"
                )
            except (Conflict, NotFound) as error:  # it was changed meanwhile, or is at its limit
                failure = failure or failure_of(error)
                data["left"].append({**each, "problem": str(error)})
            else:
                data["retried"].append(each)
    left = f", left {len(data['left'])}" if data["left"] else ""
    told = f"retried {_count_text(len(data['retried']))}{left}"
    return Answer(data, lambda screen: _lines(screen, told, data["left"]), failure)


def _named_runs(store: StateStore, run_ids: Sequence[str]) -> list[dict[str, Any]]:
    return [_row(store.workflows.runs.get(opening.whole(store, run_id, "run"))) for run_id in dict.fromkeys(run_ids)]


def _failed_runs(store: StateStore, given: dict[str, str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    token: str | None = None
    while True:
        page = store.workflows.runs.list(
            statuses=["failed"],
            workflow_names=[given["workflow"]] if "workflow" in given else None,
            repo=given.get("repo"),
            since=arguments.moment(given.get("since"), "--since"),
            until=arguments.moment(given.get("until"), "--until"),
            limit=_PAGE,
            page_token=token,
        )
        rows += [_row(store.workflows.runs.get(found.id)) for found in page.items]
        token = page.next_page_token
        if token is None:
            return rows


def _row(found: WorkflowRun) -> dict[str, Any]:
    return {"id": found.id, "workflow_name": found.workflow_name, "error": found.error, "problem": None}


def _count_text(number: int) -> str:
    return f"{number} run{'' if number == 1 else 's'}"


def _lines(screen: Screen, told: str, rows: Sequence[dict[str, Any]]) -> Iterator[Any]:
    yield told
    if rows:
        yield from screen.table(RUNS, rows)
