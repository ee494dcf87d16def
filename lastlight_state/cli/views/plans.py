"""The plan of a migration, as ``check`` and ``migrate --dry-run`` show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lastlight_state.cli.screen import Screen
from lastlight_state.migrations import Adoption, Plan, Rewrite

#: The heading above the differences, by the state of the schema.
_HEADINGS = {"current": "not as revision {} makes it", "empty": "in the way", "behind": "in the way"}


def data_of(plan: Plan, target: str) -> dict[str, Any]:
    """Return the plan as data for programs."""
    return {
        "state": plan.state.state,
        "from": plan.state.revision,
        "to": target,
        "revisions": [revision.revision for revision in plan.revisions],
        "plan": plan.revisions,
        "adoption": plan.adoption,
        "differences": plan.differences,
        "actual": plan.actual,
        "mending": plan.mending,
        "lock": plan.lock,
        "unfinished_copy": plan.state.unfinished_copy,
    }


def lines_of(plan: Plan, screen: Screen, server: str | None = None) -> Iterator[Any]:
    """Yield the plan as lines for people."""
    state = plan.state
    on = {} if server is None else {"server": server}
    yield from screen.fields({"state": state.state, "revision": state.revision, "newest": state.head, **on})
    if plan.differences:
        yield ""
        yield screen.heading(_HEADINGS.get(state.state, "not as the original program makes it").format(state.revision))
        yield from plan.differences
    if plan.mending:
        yield ""
        yield screen.heading("migrate would put back what is lost")
        yield from (f"{statement};" for statement in plan.mending)
    if not plan.revisions and plan.adoption is None:
        return
    yield ""
    yield screen.heading("migrate would apply")
    if plan.adoption is not None:
        yield from _adoption(plan.adoption)
    for revision in plan.revisions:
        yield f"{revision.revision}  {revision.summary}"
        yield from map(_rewrite, revision.rewrites)
    yield f"holding: {plan.lock}"


def _adoption(adoption: Adoption) -> Iterator[str]:
    yield "0001  taken over from the original program, which has made these tables"
    yield from map(_rewrite, adoption.rewrites)
    for kind, names in (("table", adoption.tables), ("column", adoption.columns), ("index", adoption.indexes)):
        for name in names:
            yield f"      makes the {kind} {name}, which is missing"
    for remark in adoption.remarks:
        yield f"      stays as it is: {remark}"


def _rewrite(step: Rewrite) -> str:
    return f"      {step.what}: {step.rows} rows of {step.table}, in {step.groups} groups"
