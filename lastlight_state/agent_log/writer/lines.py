"""SessionLines: which session an event belongs to, and which lines it becomes there. Pure.

The id that is pinned decides the file. A ``session`` event pins one, else the first event that tells its session does.
What a call changed here can be taken back with `restore` until `keep` is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from lastlight_state.agent_log import envelopes, events, paths
from lastlight_state.agent_log.arguments import Event, Outcome, TranslationOptions
from lastlight_state.agent_log.envelopes import Envelope, Stamp
from lastlight_state.agent_log.writer.translate import Mark, Translator

MALFORMED = "(malformed)"


class Pin(NamedTuple):
    """The session that lines go to. Its slug is None until a place is known."""

    session_id: str
    slug: str | None


class _Saved(NamedTuple):
    pin: Pin | None
    translator: Translator
    mark: Mark
    prompted: frozenset[Pin]


class SessionLines:
    """The lines of one writer. ``ignored`` counts events without a line: unknown types, and malformed events."""

    def __init__(
        self, options: TranslationOptions, *, pin: Pin | None, slug: str | None, prompt: str | None, model: str | None
    ) -> None:
        self.pin = pin
        self.ignored: Counter[str] = Counter()
        self._options = options
        self._given_slug = slug
        self._prompt = prompt
        self._model = model
        self._translator = Translator(options, model)
        self._prompted: set[Pin] = set()
        self._passed_over: list[str] = []
        self._saved = self._state()

    def keep(self) -> None:
        """What was changed so far stays."""
        self.ignored.update(self._passed_over)
        self._passed_over.clear()
        self._saved = self._state()

    def restore(self) -> None:
        """Take back what was changed since `keep`."""
        self.pin, self._translator, mark, _ = self._saved
        self._translator.back_to(mark)
        self._passed_over.clear()
        self.ask_again()

    def ask_again(self) -> None:
        """Let a prompt that was given out since `keep` precede the next line once more: it was not written."""
        self._prompted = set(self._saved.prompted)

    def pin_for(self, event: Any) -> Pin | None:
        """The session that the event belongs to. Raises `UnsafePath`, `ReservedName`."""
        if not isinstance(event, Mapping):
            return self.pin
        if event.get("type") != "session":
            told = None if self.pin else events.text(event, "sessionId")
            return Pin(paths.checked_session_id(told), self._given_slug) if told else self.pin
        told = events.text(event, "id")
        if told is None or (self.pin and self.pin.slug is not None and self.pin.session_id == told):
            return self.pin
        return Pin(paths.checked_session_id(told), self._slug_for(event))

    def goes_elsewhere(self, pin: Pin | None) -> bool:
        """Whether that is another session than the one whose lines were last."""
        return self.pin is not None and pin is not None and pin.session_id != self.pin.session_id

    def go_to(self, pin: Pin | None) -> None:
        """Let the next lines be that session's."""
        if self.goes_elsewhere(pin):
            self._translator = Translator(self._options, self._model)  # its totals are its own
        elif pin and self.pin in self._prompted:  # the same session, whose place is known now
            self._prompted.add(pin)
        self.pin = pin

    def fall_back_to(self, session_id: str) -> None:
        """Pin this session if none is. Raises `UnsafePath`, `ReservedName`."""
        if self.pin is None:
            self.pin = Pin(paths.checked_session_id(session_id), self._given_slug)

    def of_event(self, event: Any, now: datetime) -> list[Envelope]:
        """The lines of an event, the prompt before the first."""
        kind = events.text(event, "type") if isinstance(event, Mapping) else None
        if kind is None or self.pin is None:
            self._passed_over.append(kind or MALFORMED)
            return []
        own_id = events.text(event, "sessionId")
        stamp = Stamp(events.moment_of(event, now), own_id or self.pin.session_id)
        self._translator.begin(stamp.moment)
        if kind == "session":
            return self._prompt_line(stamp.moment) if self._options.prompt == "session" else []
        lines = self._translator.translate(event, stamp)
        if lines is None:
            self._passed_over.append(kind)
        if lines or (own_id and self._options.prompt == "first_event"):
            return self.after_prompt(lines or [], stamp.moment)
        return []

    def of_end(self, outcome: Outcome, now: datetime, *, error: str | None = None) -> list[Envelope]:
        """The lines that close the run and are not there yet. None without a session."""
        if self.pin is None:
            return []
        stamp = Stamp(now, self.pin.session_id)
        return self.after_prompt(self._translator.closing(outcome, stamp, error=error), now)

    def after_prompt(self, lines: list[Envelope], moment: datetime) -> list[Envelope]:
        """The lines, with the prompt before them if it is still to come."""
        prompt = self._prompt_line(moment)
        for line in lines:
            self._translator.written(line)
        return prompt + lines

    def _prompt_line(self, moment: datetime) -> list[Envelope]:
        """The prompt, once for each session of this writer."""
        if self._prompt is None or self.pin is None or self.pin in self._prompted:
            return []
        self._prompted.add(self.pin)
        line = envelopes.user(self._prompt, Stamp(moment, self.pin.session_id))
        self._translator.written(line)
        return [line]

    def _slug_for(self, event: Event) -> str | None:
        cwd = events.text(event, "cwd")
        if self._given_slug is None and cwd is not None:
            return paths.slug_of(paths.Cwd(cwd))
        return self._given_slug or (self.pin.slug if self.pin else None)

    def _state(self) -> _Saved:
        return _Saved(self.pin, self._translator, self._translator.mark(), frozenset(self._prompted))
