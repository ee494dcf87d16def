"""Takes what the rules of today refuse as text, where the caller asks for it: nothing is altered in silence.

The text stands under ``adapted`` in the ``extra`` of its message, branch or session, by the name of its field; the
field is empty then. Reasons of statuses have no ``extra``: their texts stand in that of the session.

A text that is too large for ``extra`` is cut. NaN within a JSON value becomes that word. A refused id or order fails
its unit all the same.
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
from lastlight_state.conversations.kernel import statuses, storing
from lastlight_state.conversations.sessions import checks as session_checks
from lastlight_state.conversations.tables import MESSAGES
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.imports.drafts import Change, Draft

#: All tables of conversations have the same room for what has no column.
_MOST = limits_of(MESSAGES)

T = TypeVar("T")

#: Where the texts stand in ``extra``, and how a unit counts them.
ADAPTED = "adapted"
#: How a unit counts the texts of which only the beginning is kept, and the bytes for what is written around a text.
CUT, _ROOM = "adapted_cut", 512
#: What stands in a field that must have a value.
_BLANK: dict[str, Any] = {"content": {}, "role": "unknown"}
#: The names of a field, and of the field of that, in what an error names.
_FIELD = re.compile(r"\w+\.(\w+)(?:\.(\w+))?")


def decoded(where: str, text: Any, noticed: Counter[str] | None) -> Any:
    """Return the value of a JSON text.

    With ``noticed``, NaN and numbers beyond all floats are read as texts, and counted.

    Raises `InvalidValue` for any other text.
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
    if not odd:  # refused for what is not JSON by any reading
        raise InvalidValue(where, problem)
    noticed[ADAPTED] += len(odd)
    return value


def as_text(value: Any) -> str:
    """Return a value as a text that can be stored. Raises `InvalidValue` for one with more levels than a line may have.

    How many Python itself could write differs from version to version.
    """
    if codec.is_deeper(value, codec.LINE_DEPTH):
        raise InvalidValue("value", "is nested too deeply")
    text = value if isinstance(value, str) else json.dumps(value, default=repr)
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\u0000")


def with_text(extra: Any, field: str, value: Any, noticed: Counter[str]) -> dict[str, Any]:
    """Return the ``extra`` of what has the field, and the value in it as text, which is counted.

    A text for which ``extra`` has no room is cut: its beginning is kept, and how many bytes there were.
    """
    kept = dict(extra) if isinstance(extra, dict) else {}
    texts = kept.pop(ADAPTED) if isinstance(kept.get(ADAPTED), dict) else {}
    if field == "extra":
        kept, value = {}, kept
    text, room = as_text(value), _MOST.extra - _written({**kept, ADAPTED: texts}) - _ROOM
    noticed[ADAPTED] += 1
    if (cut := _beginning(text, room)) != text:
        noticed[CUT] += 1
        text = f"{cut}… (cut: {len(text.encode())} bytes)"
    return {**kept, ADAPTED: {**texts, field: text}}


def _beginning(text: str, room: int) -> str:
    """Return as much of a text's beginning as JSON writes in so many bytes."""
    data = text.encode()
    size = len(data)
    while size > 0 and (written := _written(text)) > room:
        size = max(0, min(size - 1, size * room // written))
        text = data[:size].decode(errors="ignore")
    return text


def _written(value: Any) -> int:
    """Return how many bytes a value takes in JSON, whatever is in its texts."""
    return len(json.dumps(value, ensure_ascii=False, default=repr).encode("utf-8", "surrogatepass"))


def fitting(draft: Draft, now: datetime) -> Draft:
    """Return the draft with each value that is refused as a text. Raises `InvalidValue` for what has no other place."""
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
        return BranchTree(_fitting(given, check, noticed), [message(some) for some in one.messages])

    draft = _with_fitting_reasons(draft, noticed)
    session = _fitting(draft.tree.session, lambda tried: session_checks.row(tried, now), noticed)
    tree = replace(draft.tree, session=session, branches=[branch(one) for one in draft.tree.branches])
    return replace(draft, tree=tree, loose=tuple(message(one) for one in draft.loose), noticed=noticed)


@dataclass(frozen=True)
class _ReasonWithExtra(Reason):
    """A reason with a place for texts."""

    extra: Any = None


def _with_fitting_reasons(draft: Draft, noticed: Counter[str]) -> Draft:
    """Return the draft with reasons that are not refused. What they lost stands in the ``extra`` of the session."""
    session = draft.tree.session

    def change(where: str, one: Change) -> Change:
        nonlocal session
        given = _ReasonWithExtra(**vars(one.why), extra={ADAPTED: one.texts})
        why = _fitting(given, lambda tried: statuses.reason("reason", tried, one.status), noticed)
        for name, text in why.extra[ADAPTED].items():
            # counted where it was adapted
            session = replace(session, extra=with_text(session.extra, f"{where}.{name}", text, Counter()))
        return replace(one, why=why)

    history = tuple(change(f"history[{i}]", one) for i, one in enumerate(draft.history))
    ends = {name: change(f"branches[{name!r:.80}]", one) for name, one in draft.branch_statuses.items()}
    if history:
        session = replace(session, reason=history[-1].why)
    tree = replace(draft.tree, session=session)
    return replace(draft, tree=tree, history=history, branch_statuses=ends)


def fitting_message(one: NewMessage, now: datetime, noticed: Counter[str]) -> NewMessage:
    """Return the message with each value that is refused as a text. Raises `InvalidValue` for an id."""
    return _fitting(one, lambda tried: storing.draft("message", tried, now), noticed)


def _fitting(one: T, check: Callable[[T], Any], noticed: Counter[str]) -> T:
    """Return the record with each refused field empty, and its value as text in ``extra``."""
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
            one = _emptied(noticed, one, *names)
        else:
            return one


def _emptied(noticed: Counter[str], one: Any, name: str, inner: str | None) -> Any:
    value = getattr(one, name)
    if is_dataclass(value) and inner is not None:
        extra = with_text(one.extra, inner, getattr(value, inner), noticed)
        return replace(one, **{name: replace(value, **{inner: None})}, extra=extra)  # type: ignore[type-var]
    extra = with_text(one.extra, name, value, noticed)
    return replace(one, **{name: _BLANK.get(name), "extra": extra})
