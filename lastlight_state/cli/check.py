"""``check``: whether the schema fits this version, and what ``migrate`` would do. Never writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from lastlight_state.cli import exits
from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call
from lastlight_state.cli.exits import Failure
from lastlight_state.cli.opening import existing, look
from lastlight_state.cli.screen import Screen
from lastlight_state.migrations import Plan, SchemaState
from lastlight_state.migrations import check as plan_of
from lastlight_state.migrations.verify import command
from lastlight_state.store import StateStore

_EXITS = {
    "empty": exits.BEHIND,
    "behind": exits.BEHIND,
    "ahead": exits.AHEAD,
    "incompatible": exits.INCOMPATIBLE,
    "unversioned": exits.NO,
    "foreign": exits.NO,
}
_MEANING = {
    "current": "the schema is current",
    "empty": "nothing is migrated yet",
    "behind": "the schema is behind",
    "ahead": "the schema is newer than this version, which may work on it",
    "incompatible": "the schema is newer than this version, which may not work on it: upgrade lastlight-state",
    "unversioned": "there are tables named like ours, but no version of ours beside them",
    "foreign": "the version table holds no revision of lastlight-state",
}


def run(ctx: typer.Context) -> Answer:
    """Say whether the schema fits this version, and what migrate would do: which revisions, which rows, which lock.

    Exit code 0: it fits. 3: behind. 4: ahead, but this version may work on it. 5: ahead and incompatible, or a copy
    into it is not finished. 1: not a schema of ours. 6: no database.
    """
    call: Call = ctx.obj
    plan, remedy = look(call, _examined, verified=False)
    return Answer(_data(plan), lambda screen: _lines(plan, screen), _failure(plan.state, remedy))


def _examined(store: StateStore) -> tuple[Plan, str]:
    return plan_of(existing(store.backend)), command(store.backend)


def _data(plan: Plan) -> dict[str, Any]:
    return {
        "state": plan.state.state,
        "from": plan.state.revision,
        "to": plan.state.head,
        "revisions": [revision.revision for revision in plan.revisions],
        "plan": plan.revisions,
        "lock": plan.lock,
        "unfinished_copy": plan.state.unfinished_copy,
    }


def _failure(state: SchemaState, remedy: str) -> Failure | None:
    if state.unfinished_copy:
        return Failure(exits.INCOMPATIBLE, "unfinished_copy", "a copy into this database was begun and has not ended")
    if state.state == "current":
        return None
    text = _MEANING[state.state]
    if _EXITS[state.state] == exits.BEHIND:
        text += f"; run: {remedy}"
    return Failure(_EXITS[state.state], state.state, text)


def _lines(plan: Plan, screen: Screen) -> Iterator[Any]:
    state = plan.state
    yield from screen.fields({"state": state.state, "revision": state.revision, "newest": state.head})
    if not plan.revisions:
        return
    yield ""
    yield screen.heading("migrate would apply")
    for revision in plan.revisions:
        yield f"{revision.revision}  {revision.summary}"
        for step in revision.rewrites:
            yield f"      {step.what}: {step.rows} rows of {step.table}, in {step.groups} groups"
    yield f"holding: {plan.lock}"
