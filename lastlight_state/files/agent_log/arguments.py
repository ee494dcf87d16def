"""Argument groups of the agent log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Self, TypeAlias, get_args, get_type_hints

from lastlight_state.errors import InvalidValue
from lastlight_state.reprs import repr_of

Event: TypeAlias = Mapping[str, Any]
OnError: TypeAlias = Literal["raise", "report"]
#: Session types: texts that must all occur in the first prompt, and the type to assign. The first match wins.
SessionTypes: TypeAlias = Sequence[tuple[Sequence[str], str]]


class Tokens(NamedTuple):
    """Token counts by kind, as providers bill them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_creation: int = 0


NO_TOKENS = Tokens()


@dataclass(frozen=True)
class TranslationOptions:
    """The options for translating events into lines.

    The defaults write the first format; `later` returns the options for newer logs.
    """

    thinking: Literal["drop", "keep"] = "drop"
    results: Literal["snapshot", "finish"] = "snapshot"
    prompt: Literal["session", "first_event"] = "session"
    message_usage: Literal["omit", "write"] = "omit"
    breadcrumbs: Literal["omit", "write"] = "omit"
    orphan_results: Literal["keep", "drop"] = "keep"

    def __post_init__(self) -> None:
        for name, words in get_type_hints(type(self)).items():
            if getattr(self, name) not in get_args(words):
                problem = f"{repr_of(getattr(self, name), 80)} is not in the vocabulary"
                raise InvalidValue(name, problem, permitted=get_args(words))

    @classmethod
    def later(cls) -> Self:
        """Return the options for the format of newer logs."""
        return cls("keep", "finish", "first_event", "write", "write", "drop")


@dataclass(frozen=True)
class Outcome:
    """The outcome of an agent's run.

    ``subtype`` is ``success`` or an ``error_…`` word. ``stop_reason`` is the provider's word. A field that is None is
    taken from the events of the run; without events, totals are 0 and the text is empty. ``error`` is written as a
    separate line.
    """

    subtype: str = "success"
    stop_reason: str | None = None
    result: str | None = None
    turns: int | None = None
    cost_usd: float | Decimal | None = None
    tokens: Tokens | None = None
    duration_ms: int | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        if self.subtype != "success" and not _is_error(self.subtype):
            raise InvalidValue("subtype", f"must be 'success' or an 'error_…' word, got {repr_of(self.subtype, 80)}")


def _is_error(word: Any) -> bool:
    return isinstance(word, str) and word.startswith("error_")


@dataclass(frozen=True)
class CommandRecord:
    """A shell command that ran as a separate phase. ``prompt`` defaults to the command, and both times to now."""

    command: str
    exit_code: int
    stdout: str = ""
    stderr: str = ""
    prompt: str | None = None
    model: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
