"""``check``: whether the schema fits this version, and what ``migrate`` would do. Never writes."""

from __future__ import annotations

from lastlight_state.cli import exits
from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call, command
from lastlight_state.cli.exits import Failure
from lastlight_state.cli.opening import existing, look
from lastlight_state.cli.views.plans import data_of, lines_of
from lastlight_state.migrations import Plan, check as plan_of
from lastlight_state.migrations.verification import remedy
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
    "unversioned": "there are tables named like ours, but no version of ours beside them; "
    "if they are ours, `lastlight-state stamp --to REVISION` writes it",
    "foreign": "the version in the version table is not a revision of lastlight-state; "
    "if the tables are ours, `lastlight-state stamp --to REVISION` corrects it",
}


@command("check")
def run(call: Call) -> Answer:
    """Say whether the schema fits this version, and what migrate would do: which revisions, which rows, which lock.

    Exit code 0: it fits. 3: behind, or the original program's. 4: ahead, but this version may work on it. 5: ahead and
    incompatible, or a copy into it is not finished. 1: not a schema of ours. 6: no database.
    """
    plan, mending = look(call, _examined, verified=False)
    return Answer(data_of(plan, plan.state.head), lambda screen: lines_of(plan, screen), _failure(plan, mending))


def _examined(store: StateStore) -> tuple[Plan, str]:
    return plan_of(existing(store.backend)), remedy(store.backend)


def _failure(plan: Plan, mending: str) -> Failure | None:
    state = plan.state
    if state.unfinished_copy:
        return Failure(exits.INCOMPATIBLE, "unfinished_copy", "a copy into this database was begun and has not ended")
    if state.state == "current":
        return None
    if plan.adoption is not None:
        return Failure(exits.BEHIND, state.state, f"a database of the original program; run: {mending}")
    text = _MEANING[state.state]
    if _EXITS[state.state] == exits.BEHIND:
        text += f"; run: {mending}"
    return Failure(_EXITS[state.state], state.state, text)
