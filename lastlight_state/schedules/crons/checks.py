"""Checks of what callers say about crons; each returns values as statements name them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict

from lastlight_state import cron
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.repository import UNSET, UnsetType
from lastlight_state.db.statements import Row
from lastlight_state.errors import InvalidValue
from lastlight_state.schedules import checks as shared, words
from lastlight_state.schedules.arguments import CronSpec
from lastlight_state.schedules.tables import SCHEDULES

_MOST = limits_of(SCHEDULES)


class Definition(TypedDict):
    """The columns of a cron's definition."""

    name: str
    pattern: str
    timezone: str
    target_kind: str
    target: str
    catch_up: str
    grace_seconds: int
    overlap: str
    origin: words.Origin
    enabled: bool
    payload: str | None


def definition(name: Any, spec: Any, *, origin: words.Origin, parsed: bool = True) -> Definition:
    """Return the columns of a cron's definition.

    With ``parsed=False`` the pattern is only checked for its length if the extra ``cron`` is not installed. Raises
    `InvalidValue`, `PayloadTooLarge`, and `MisuseError` where the pattern must be parsed without the extra.
    """
    valid.group("spec", spec, CronSpec)
    return {
        "name": shared.name("name", name),
        "pattern": pattern(spec.pattern, spec.timezone, parsed=parsed),
        "timezone": spec.timezone,
        "target_kind": valid.word("target_kind", spec.target_kind, words.TARGET_KINDS),
        "target": valid.identifier("target", spec.target, _MOST.target),
        "catch_up": valid.word("catch_up", spec.catch_up, words.CATCH_UPS),
        "grace_seconds": valid.number("grace_seconds", spec.grace_seconds, most=words.GRACE_SECONDS),
        "overlap": valid.word("overlap", spec.overlap, words.OVERLAPS),
        "origin": origin,
        "enabled": valid.flag("enabled", spec.enabled),
        "payload": shared.payload("payload", spec.payload),
    }


def pattern(given: Any, timezone: Any, *, parsed: bool, where: str = "pattern") -> str:
    """A pattern as it is stored, checked in its time zone; ``parsed`` as in `definition`."""
    valid.identifier("timezone", timezone, _MOST.timezone)
    try:
        text = valid.identifier("pattern", cron.trimmed(given), _MOST.pattern)
        return cron.validate(text, timezone) if parsed or cron.available() else text
    except InvalidValue as error:
        raise InvalidValue(where if error.where == "pattern" else error.where, error.problem) from None


def instant(where: str, given: Any) -> datetime | None:
    """A time, or None for never."""
    return None if given is None else aware_utc(where, given)


def optional_instant(where: str, given: datetime | UnsetType | None) -> datetime | UnsetType | None:
    """A time, None for never, or UNSET."""
    return UNSET if given is UNSET else instant(where, given)


def optional_flag(where: str, given: Any) -> bool | UnsetType:
    """True, False, or UNSET."""
    return UNSET if given is UNSET else valid.flag(where, given)


def definitions(specs: Any) -> dict[str, Definition]:
    """Return the definitions of a configuration, sorted by name. Raises `InvalidValue` naming every wrong cron."""
    if not isinstance(specs, Mapping):
        raise InvalidValue("specs", f"expected a mapping of names to CronSpec, got {type(specs).__name__}")
    found, wrong = {}, {}
    for name, spec in specs.items():
        try:
            found[name] = definition(name, spec, origin="config")
        except InvalidValue as error:
            wrong[str(name)] = str(error)
    if wrong:
        listed = "; ".join(f"{name}: {problem}" for name, problem in sorted(wrong.items()))
        raise InvalidValue("specs", listed, crons=tuple(sorted(wrong)))
    return dict(sorted(found.items()))


def list_filters(enabled: Any, origin: Any, due_before: Any, retired: Any) -> Row:
    """Return the filters of a list of crons."""
    chosen: Row = {}
    if enabled is not None:
        chosen["only_enabled" if valid.flag("enabled", enabled) else "only_disabled"] = {}
    if origin is not None:
        chosen["origin"] = valid.word("origin", origin, words.ORIGINS)
    if due_before is not None:
        chosen["due_before"] = aware_utc("due_before", due_before)
    if retired is not None:
        chosen["only_retired" if valid.flag("retired", retired) else "not_retired"] = {}
    return chosen
