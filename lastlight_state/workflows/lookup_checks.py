"""What `lookups` accepts, checked before any statement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from lastlight_state.clock import aware_utc
from lastlight_state.db import checks
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows import run_checks, words
from lastlight_state.workflows.arguments import RunFilter

MOST_COUNTED = 1_000_000
MOST_ANCESTORS = 1_000
_TEXT = 256
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def of_trigger(trigger_id: str, workflow_names: Sequence[str] | None, statuses: Sequence[str] | None) -> dict[str, Any]:
    """The filters of runs of a trigger."""
    given = run_checks.list_filters(statuses, workflow_names, None, None)
    return {"trigger_id": checks.identifier("trigger_id", trigger_id, words.TRIGGER_ID), **given}


def counted(which: RunFilter) -> dict[str, Any]:
    """The filters of a count."""
    checks.group("filter", which, RunFilter)
    given = run_checks.list_filters(which.statuses, which.workflow_names, which.repo, which.since)
    trigger_id = checks.optional("trigger_id", which.trigger_id, words.TRIGGER_ID)
    return {"trigger_id": trigger_id, **given}


def search(text: str, since: datetime) -> dict[str, Any]:
    """The filters of a search: the text as a pattern that means itself, in lower case as far as it is ASCII."""
    text = checks.content("text", text, _TEXT)
    if not text.strip():
        raise InvalidValue("text", "blank")
    for special in ("\\", "%", "_"):
        text = text.replace(special, f"\\{special}")
    return {"since": aware_utc("since", since), "text": {"pattern": f"%{text.translate(_LOWER)}%"}}
