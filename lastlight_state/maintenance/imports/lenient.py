"""Stores values that today's checks refuse as text, if the caller permits it. Every such value is counted.

The text is stored under ``adapted`` in the ``extra`` of its message, branch or session, by the name of its field, and
the field itself is left empty. Reasons of statuses have no ``extra``: their texts are stored in the session's
``extra``.

A text that is too large for ``extra`` is cut. NaN within a JSON value becomes the text ``NaN``. A refused id or order
still fails its unit.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from lastlight_state import codec
from lastlight_state.conversations.arguments import BranchTree, NewMessage, Reason
from lastlight_state.conversations.branches import statements
from lastlight_state.conversations.sessions import checks as session_checks
from lastlight_state.conversations.shared import statuses, storing
from lastlight_state.conversations.tables import MESSAGES
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.imports.drafts import Change, Draft

#: All tables of conversations have the same size limits for ``extra``.
_LIMITS = limits_of(MESSAGES)

T = TypeVar("T")

#: The key of the texts in ``extra``, and the name under which a unit counts them.
ADAPTED = "adapted"
#: The name under which a unit counts cut texts, and the bytes reserved for the JSON around a text.
CUT, _ROOM = "adapted_cut", 512
#: The replacements of refused values in fields that must have a value.
_BLANK: dict[str, Any] = {"content": {}, "role": "unknown"}
#: The name of a field, and of an inner field, in the place that an error names.
_FIELD = re.compile(r"\w+\.(\w+)(?:\.(\w+))?")


def decode_json(where: str, text: Any, noticed: Counter[str] | None) -> Any:
    """Return the value of a JSON text.

    With ``noticed``, NaN and numbers too large for a float are read as texts, and counted.

    Raises `InvalidValue` for a text that is not JSON.
    """
    try:
        return codec.decode(text)
    except ValueError as error:
        problem = f"is not JSON: {error}"
    if noticed is None:
        raise InvalidValue(where, problem)
    odd: list[str] = []

    def word(found: str) -> str:
        odd.append(found)
        return found

    def real(found: str) -> float | str:
        return number if math.isfinite(number := float(found)) else word(found)

    try:
        value = json.loads(text, parse_constant=word, parse_float=real)
    except (ValueError, TypeError, RecursionError):
        raise InvalidValue(where, problem) from None
    if not odd:  # refused, but not for NaN or a large number
        raise InvalidValue(where, problem)
    noticed[ADAPTED] += len(odd)
    return value


def as_text(value: Any) -> str:
    """Return a value as text that can be stored. Raises `InvalidValue` if it is nested deeper than a line may be.

    The limit is fixed, because the depth that Python can write differs between its versions.
    """
    if codec.is_deeper(value, codec.LINE_DEPTH):
        raise InvalidValue("value", "is nested too deeply")
    text = value if isinstance(value, str) else json.dumps(value, default=repr)
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\u0000")


def with_text(extra: Any, field: str, value: Any, noticed: Counter[str]) -> dict[str, Any]:
    """Return ``extra`` with the refused value of a field added as text. Counts the value.

    If ``extra`` has no room for the text, the beginning of the text is stored with the number of its bytes.
    """
    kept = dict(extra) if isinstance(extra, dict) else {}
    texts = kept.pop(ADAPTED) if isinstance(kept.get(ADAPTED), dict) else {}
    if field == "extra":
        kept, value = {}, kept
    text, room = as_text(value), _LIMITS.extra - _json_size({**kept, ADAPTED: texts}) - _ROOM
    noticed[ADAPTED] += 1
    if (cut := _cut_text(text, room)) != text:
        noticed[CUT] += 1
        text = f"{cut}… (cut: {len(text.encode())} bytes)"
    return {**kept, ADAPTED: {**texts, field: text}}


def _cut_text(text: str, room: int) -> str:
    """Return the longest beginning of a text that takes at most ``room`` bytes as JSON."""
    data = text.encode()
    size = len(data)
    while size > 0 and (written := _json_size(text)) > room:
        size = max(0, min(size - 1, size * room // written))
        text = data[:size].decode(errors="ignore")
    return text


def _json_size(value: Any) -> int:
    """Return the number of bytes that a value takes as JSON, even if its texts are not valid Unicode."""
    return len(json.dumps(value, ensure_ascii=False, default=repr).encode("utf-8", "surrogatepass"))


def fit_draft(draft: Draft, now: datetime) -> Draft:
    """Return the draft with each refused value stored as text.

    Raises `InvalidValue` if a value cannot be stored as text.
    """
    noticed = Counter(draft.noticed)
    seen: dict[int, NewMessage] = {}

    def message(one: Any) -> Any:
        if not isinstance(one, NewMessage):
            return one
        if id(one) not in seen:
            seen[id(one)] = fitting_message(one, now, noticed)
        return seen[id(one)]

    def branch(one: BranchTree) -> BranchTree:
        given = replace(one.branch, system=message(one.branch.system))
        check = partial(statements.row_of, "-", now=now)
        return BranchTree(_fit_record(given, check, noticed), [message(some) for some in one.messages])

    draft = _with_fitting_reasons(draft, noticed)
    session = _fit_record(draft.tree.session, lambda tried: session_checks.row(tried, now), noticed)
    tree = replace(draft.tree, session=session, branches=[branch(one) for one in draft.tree.branches])
    return replace(draft, tree=tree, loose=tuple(message(one) for one in draft.loose), noticed=noticed)


@dataclass(frozen=True)
class _ReasonWithExtra(Reason):
    """A reason for a status change, with an ``extra`` for the texts of refused values."""

    extra: Any = None


def _with_fitting_reasons(draft: Draft, noticed: Counter[str]) -> Draft:
    """Return the draft with reasons that pass the checks. Refused values are moved to the ``extra`` of the session."""
    session = draft.tree.session

    def change(where: str, one: Change) -> Change:
        nonlocal session
        given = _ReasonWithExtra(**vars(one.why), extra={ADAPTED: one.texts})
        why = _fit_record(given, lambda tried: statuses.reason("reason", tried, one.status), noticed)
        for name, text in why.extra[ADAPTED].items():
            # the text was already counted
            session = replace(session, extra=with_text(session.extra, f"{where}.{name}", text, Counter()))
        return replace(one, why=why)

    history = tuple(change(f"history[{i}]", one) for i, one in enumerate(draft.history))
    ends = {name: change(f"branches[{name!r:.80}]", one) for name, one in draft.branch_statuses.items()}
    if history:
        session = replace(session, reason=history[-1].why)
    tree = replace(draft.tree, session=session)
    return replace(draft, tree=tree, history=history, branch_statuses=ends)


def fitting_message(one: NewMessage, now: datetime, noticed: Counter[str]) -> NewMessage:
    """Return the message with each refused value stored as text. Raises `InvalidValue` for a refused id."""
    return _fit_record(one, lambda tried: storing.draft("message", tried, now), noticed)


def _fit_record(one: T, check: Callable[[T], Any], noticed: Counter[str]) -> T:
    """Return the record with each refused field empty, and the field's value stored as text in ``extra``."""
    tried: set[Any] = set()
    while True:
        try:
            check(one)
        except InvalidValue as error:
            found = _FIELD.match(error.where)
            names = found.groups() if found else (None, None)
            if found is None or names in tried or names[0] in ("id", "system"):
                raise
            tried.add(names)
            one = _empty_field(noticed, one, *names)
        else:
            return one


def _empty_field(noticed: Counter[str], one: Any, name: str, inner: str | None) -> Any:
    value = getattr(one, name)
    if is_dataclass(value) and inner is not None:
        extra = with_text(one.extra, inner, getattr(value, inner), noticed)
        return replace(one, **{name: replace(value, **{inner: None})}, extra=extra)  # type: ignore[type-var]
    extra = with_text(one.extra, name, value, noticed)
    return replace(one, **{name: _BLANK.get(name), "extra": extra})
