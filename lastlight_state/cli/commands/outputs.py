"""``outputs``: shows what definitions of output tables would change in a database, and applies it in a deployment."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from lastlight_state.cli.exits import NO, Failure
from lastlight_state.cli.opening import backend_for_call, existing_backend, read_once, settings_of
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.errors import InvalidValue
from lastlight_state.migrations.verification import verify
from lastlight_state.outputs import OutputPlan
from lastlight_state.store import StateStore

ACTIONS = ("plan", "apply")


@command("outputs")
@click.argument("action", metavar="plan|apply")
@click.argument("definitions", metavar="MODULE:NAME")
def run(call: Call, action: str, definitions: str) -> Answer:
    """Create the output tables of a program's models, and add the columns that they lack. Or print the SQL for it.

    MODULE:NAME is a mapping of keys to models, imported from this directory. With plan, missing tables or columns give
    exit code 1. Any change that is not an addition is refused and listed.
    """
    if action not in ACTIONS:
        raise InvalidValue("action", f"{action!r} is not known", permitted=ACTIONS)
    models = models_of(definitions)
    if action == "plan":
        plans = read_once(call, lambda store: [store.outputs.catalog.plan(key, model) for key, model in models.items()])
        missing = [plan for plan in plans if plan.sql or plan.differences]
        failure = Failure(NO, "differences", "output tables differ from their definitions") if missing else None
        return Answer(_data(plans), lambda _: _lines(plans), failure=failure)
    settings = settings_of(call, migrate=True)
    with closing(backend_for_call(call, settings)) as backend:
        verify(existing_backend(backend))
        made = StateStore(backend, settings).outputs.catalog.define_all(models)
    data = {
        "defined": [
            {"key": table.key, "table": table.table_name, "signature": table.signature} for table in made.values()
        ]
    }
    return Answer(data, lambda _: [f"{table.key}  {table.table_name}" for table in made.values()])


def models_of(definitions: str) -> Mapping[str, Any]:
    """Import the mapping that ``package.module:NAME`` names. Raises `InvalidValue` if it does not exist."""
    module, _, name = definitions.partition(":")
    if not module or not name:
        raise InvalidValue("MODULE:NAME", "expected a module, a colon and the name of a mapping of keys to models")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidValue("MODULE:NAME", str(error)) from error
    finally:
        sys.path.remove(str(Path.cwd()))
    if not isinstance(found, Mapping):
        raise InvalidValue("MODULE:NAME", f"expected a mapping of keys to models, got {type(found).__name__}")
    return found


def _data(plans: Sequence[OutputPlan]) -> dict[str, Any]:
    return {"plans": [plan.model_dump() for plan in plans]}


def _lines(plans: Sequence[OutputPlan]) -> Iterator[str]:
    """Yield SQL that can be executed unchanged. Everything that is not SQL is in comments."""
    for plan in plans:
        yield f"-- {plan.key}: {_summary(plan)}"
        yield from (f"-- warning: {warning}" for warning in plan.warnings)
        yield from (f"-- cannot be done: {difference}" for difference in plan.differences)
        yield from (f"{statement};" for statement in plan.sql)


def _summary(plan: OutputPlan) -> str:
    if plan.differences:
        return f"differs from {plan.table_name}"
    if plan.create:
        return f"create {plan.table_name}"
    if plan.add:
        return f"add {', '.join(plan.add)} to {plan.table_name}"
    return "register " + plan.table_name if plan.sql else "nothing to do"
