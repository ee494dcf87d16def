"""Which tenants have something to do for a worker: one statement for many, which reads only indexes of what is open.

A server plans a statement about tables of many tenants in milliseconds for each of them, and runs it in a tenth of
one. So the statements stay the same from look to look, and a new tenant changes one of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from zlib import crc32

from lastlight_state.backends.sql.expressions import literal, quoted

#: About so many tenants are asked about by one statement, which locks some forty tables and indexes of each.
TOGETHER = 20

_FREE = "due_at <= %(at)s AND (lease_expires_at IS NULL OR lease_expires_at <= %(at)s)"
#: What is open and due, by table: a worker may find that it is not for it.
_DUE = (
    ("workflow_runs", "status = 'queued' AND (wake_at IS NULL OR wake_at <= %(at)s)", "workflow_name"),
    ("workflow_runs", "status = 'paused' AND wake_at <= %(at)s", "workflow_name"),
    ("run_leases", _FREE, "workflow_name"),
    ("workflow_approvals", "status = 'pending' AND expires_at <= %(at)s", None),
    ("human_requests", "status = 'pending' AND expires_at <= %(at)s", None),
    ("cron_schedules", "next_run_at <= %(at)s", "coalesce(target, name)"),
    ("cron_fires", "status = 'running' AND lease_until <= %(at)s", None),
)


def statements(names: Sequence[str], *, filtered: bool) -> list[str]:
    """Return statements that give the names of the tenants with something due at ``:at``.

    ``filtered``: only of the workflows ``:workflows``, where the row says of which one it is.
    """
    batches: dict[int, list[str]] = defaultdict(list)
    count = 1 << (len(names) // TOGETHER).bit_length()
    for name in names:
        batches[crc32(name.encode()) % count].append(name)
    return [" UNION ALL ".join(_select(name, filtered) for name in sorted(batch)) for batch in batches.values()]


def _select(name: str, filtered: bool) -> str:
    return f"SELECT {literal(name)} WHERE {' OR '.join(_conditions(quoted(name), filtered))}"


def _conditions(home: str, filtered: bool) -> Iterator[str]:
    for table, due, workflow in _DUE:
        also = f" AND {workflow} = ANY (%(workflows)s::text[])" if filtered and workflow else ""
        yield f"EXISTS (SELECT FROM {home}.{table} WHERE {due}{also})"
