"""Finds tenants with work for a worker. One statement covers many tenants, and reads only indexes of open rows.

Planning a statement costs the server milliseconds per tenant, and running it a tenth of that. So the statements stay
the same from poll to poll, and a new tenant changes only one of them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from zlib import crc32

from lastlight_state.backends.sql.expressions import literal, quote_name
from lastlight_state.errors import StateError

#: Runs statements, and returns their rows and the errors of failed statements.
Ask: TypeAlias = Callable[[Sequence[str]], tuple[list[Any], Mapping[str, StateError]]]

_log = logging.getLogger("lastlight_state.tenants")

#: About how many tenants one statement covers. It locks some forty tables and indexes of each.
TOGETHER = 20

_FREE = "due_at <= %(at)s AND (lease_expires_at IS NULL OR lease_expires_at <= %(at)s)"
#: Subquery for the workflow name of the run that another table's row belongs to.
_OF_RUN = "(SELECT of.workflow_name FROM {{home}}.workflow_runs AS of WHERE of.id = {})"
#: Conditions for due rows, by table. A worker may still find that it cannot take the row.
_DUE = (
    ("workflow_runs", "status = 'queued' AND (wake_at IS NULL OR wake_at <= %(at)s)", "workflow_name"),
    ("workflow_runs", "status = 'paused' AND wake_at <= %(at)s", "workflow_name"),
    ("run_leases", _FREE, "workflow_name"),
    ("workflow_approvals", "status = 'pending' AND expires_at <= %(at)s", _OF_RUN.format("workflow_run_id")),
    ("human_requests", "status = 'pending' AND expires_at <= %(at)s", _OF_RUN.format("run_id")),
    ("cron_schedules", "next_run_at <= %(at)s", "coalesce(target, name)"),
    ("cron_fires", "status = 'running' AND lease_until <= %(at)s", "coalesce(target, cron_name)"),
)


class Looks:
    """Polls tenants for work. It remembers tenants that could not be queried, and queries each of those separately."""

    def __init__(self) -> None:
        self._odd: frozenset[str] = frozenset()

    def due_tenants(
        self, names: Sequence[str], ask: Ask, there: Callable[[], Sequence[str]], *, filtered: bool
    ) -> list[str]:
        """Return those tenants that have due work. A tenant that cannot be queried is left out, and logged once.

        ``there`` returns the tenants that exist now. If no tenant can be queried, one of their errors is raised.
        """
        odd = self._odd.intersection(names)
        alone = {_select(name, filtered): name for name in sorted(odd)}
        together = statements([name for name in names if name not in odd], filtered=filtered)
        rows, failed = ask([*together, *alone])
        errors = {alone[sql]: error for sql, error in failed.items() if sql in alone}
        again = {_select(name, filtered): name for sql in failed for name in together.get(sql, ())}
        if again:
            more, failed = ask(list(again))
            rows += more
            errors |= {again[sql]: error for sql, error in failed.items()}
        if errors:
            left = there()  # a tenant erased meanwhile is no failure
            errors = {name: error for name, error in errors.items() if name in left}
            if len(errors) == len(names):
                raise next(iter(errors.values()))
        for name in errors.keys() - odd:
            _log.warning("the tenant %s is left out of looks for work until it can be asked: %s", name, errors[name])
        self._odd = frozenset(errors) | (self._odd - odd)
        return sorted(str(name) for (name,) in rows)


def statements(names: Sequence[str], *, filtered: bool) -> dict[str, Sequence[str]]:
    """Return statements that select the tenants with work due at ``:at``, and for each the tenants that it covers.

    If ``filtered``, only the workflows in ``:workflows`` count.
    """
    batches: dict[int, list[str]] = defaultdict(list)
    count = 1 << (len(names) // TOGETHER).bit_length()
    for name in names:
        batches[crc32(name.encode()) % count].append(name)
    return {" UNION ALL ".join(_select(name, filtered) for name in sorted(some)): some for some in batches.values()}


def _select(name: str, filtered: bool) -> str:
    return f"SELECT {literal(name)} WHERE {' OR '.join(_conditions(quote_name(name), filtered))}"


def _conditions(home: str, filtered: bool) -> Iterator[str]:
    for table, due, workflow in _DUE:
        also = f" AND {workflow.format(home=home)} = ANY (%(workflows)s::text[])" if filtered else ""
        yield f"EXISTS (SELECT FROM {home}.{table} WHERE {due}{also})"
