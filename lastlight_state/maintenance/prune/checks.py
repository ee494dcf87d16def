"""Checks the policy of a prune, and converts it to the form in which its receipt stores it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lastlight_state.clock import iso_text
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue
from lastlight_state.files.jsonl.files import is_directory, translate_errors
from lastlight_state.maintenance.prune.archiving import BUNDLES
from lastlight_state.maintenance.prune.arguments import WITH_LOGS, PrunePolicy
from lastlight_state.maintenance.prune.files import FILES, Tree
from lastlight_state.maintenance.prune.kinds import KINDS, Kind
from lastlight_state.maintenance.prune.sweeps import SWEEPS, orphans
from lastlight_state.maintenance.prune.sweeps.sweep import Sweep
from lastlight_state.settings import Settings
from lastlight_state.special_files import DIRECTORY, mismatch_at

#: The most ids that a policy names.
MOST_KEYS = 500
#: The limits of a policy: days, records to keep, rows of a batch.
MOST_DAYS, MOST_KEPT, MOST_ROWS = 36_500, 10_000_000, 1_000_000
#: The most bytes of the path of an archive.
MOST_PATH = 4_000

#: The least days that some kinds keep, whatever the policy says.
LEAST_DAYS = {orphans.ORPHANS.name: orphans.LEAST_DAYS}

Terms = dict[str, Any]

#: All kinds that a policy may name.
ALL: Mapping[str, Kind | Sweep | type[Tree]] = {**KINDS, **SWEEPS, **FILES}


def terms(policy: PrunePolicy, now: datetime, settings: Settings) -> Terms:
    """Check the policy, and return it in the form in which a receipt stores it."""
    valid.argument_group("policy", policy, PrunePolicy)
    kind = ALL[valid.word("kind", policy.kind, ALL)]
    days = kind.keep_days if policy.keep_days is None else policy.keep_days
    days = max(valid.number("keep_days", days, most=MOST_DAYS), LEAST_DAYS.get(policy.kind, 0))
    limit(policy.time_limit)
    return {
        "kind": policy.kind,
        "keep_days": days,
        "keep_n": _kept_count(kind, policy.keep_n),
        "ids": _keys(policy.ids),
        "batch_rows": valid.number("batch_rows", policy.batch_rows, least=1, most=MOST_ROWS),
        "cutoff": iso_text(now - timedelta(days=days)),
        "archive": None if policy.archive is None else _folder(policy.kind, policy.archive),
        "with_logs": _with_logs(policy, settings),
    }


def _kept_count(kind: Kind | Sweep | type[Tree], given: Any) -> int:
    """Return how many of the newest records must be kept."""
    if kind.keep_n is None and given:
        raise InvalidValue("keep_n", f"must be 0: {kind.name} go by their age alone")
    return valid.number("keep_n", kind.keep_n or 0 if given is None else given, most=MOST_KEPT)


def _folder(kind: str, folder: Any) -> str:
    """Return the folder into which bundles are written.

    The folder must exist. If its disk is not mounted, a new folder would be created on another disk.
    """
    if kind not in BUNDLES:
        raise InvalidValue("archive", f"there are bundles of {' and '.join(BUNDLES)}, not of {kind}")
    if not isinstance(folder, str | Path):
        raise InvalidValue("archive", f"expected a path, got {type(folder).__name__}")
    valid.identifier("archive", str(folder), MOST_PATH)
    place = Path(folder).absolute()
    try:
        is_there = is_directory(place)
    except OSError as error:
        raise InvalidValue("archive", f"{str(place)!r:.200} cannot be looked at: {error.strerror}") from error
    if not is_there:
        problem = mismatch_at(place, DIRECTORY) or "is not a directory"
        raise InvalidValue("archive", f"{str(place)!r:.200}: {problem}")
    return str(place)


def _with_logs(policy: PrunePolicy, settings: Settings) -> bool:
    """True if logs must be removed, too. Their folder must exist: a machine without the logs would archive none."""
    if valid.word("with_logs", policy.with_logs, WITH_LOGS) == "no":
        return False
    if policy.archive is None:
        raise InvalidValue("with_logs", "only logs that were archived are removed: give archive, too")
    refuse_without_logs(settings)
    return True


def refuse_without_logs(settings: Settings) -> None:
    """Raise `InvalidValue` if the folder of agents' logs is missing, `BackendUnavailable` if it is unreadable."""
    with translate_errors(settings.agent_sessions):
        is_there = is_directory(settings.agent_sessions)
    if not is_there:
        raise InvalidValue("with_logs", f"no agents' logs are on this machine: no folder {settings.agent_sessions}")


def _keys(ids: Any) -> list[str] | None:
    if ids is None:
        return None
    valid.at_most("ids", keys := valid.several("ids", ids), MOST_KEYS)
    return sorted({valid.lookup_text("ids", key) for key in keys})


def refuse_missing(record: str, keys: Iterable[str], known: Collection[str]) -> None:
    """Raise `NotFound` for the first key that is not in ``known``."""
    for key in keys:
        if key not in known:
            raise valid.not_found(record, key)


def limit(seconds: Any) -> None:
    """Raise `InvalidValue` for a time limit that is not a number of seconds."""
    if seconds is not None:
        valid.seconds("time_limit", seconds)
