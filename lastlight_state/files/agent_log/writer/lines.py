"""Conversion of events to log lines, and the choice of each line's session. Touches no file.

The lines are written to the log of the current session. A ``session`` event sets the current session. If no session is
set, the first event with a session id sets it. Changes can be undone with `restore` until `keep` is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from lastlight_state.clock import Clock
from lastlight_state.files.agent_log import events, paths
from lastlight_state.files.agent_log.arguments import Event, Outcome, TranslationOptions
from lastlight_state.files.agent_log.events import Envelope, Stamp
from lastlight_state.files.agent_log.writer.translate import Mark, Translator

#: The type that is counted for an event without one.
MALFORMED = "(malformed)"


class Pin(NamedTuple):
    """The current session of a writer, and the slug of its directory, which is None until a directory is known."""

    session_id: str
    slug: str | None


#: The lines for one file.
Batch: TypeAlias = list[Envelope]


class _Saved(NamedTuple):
    pin: Pin | None
    translator: Translator
    mark: Mark
    prompted: frozenset[Pin]


class SessionLines:
    """The lines of one writer. ``ignored`` counts events that gave no line, by type."""

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
        """Make all changes so far permanent, so that `restore` does not undo them."""
        if self._passed_over:
            self.ignored.update(self._passed_over)
            self._passed_over.clear()
        self._saved = self._state()

    def restore(self) -> None:
        """Undo all changes since `keep`."""
        self.pin, self._translator, mark, _ = self._saved
        self._translator.back_to(mark)
        self._passed_over.clear()
        self.ask_again()

    def ask_again(self) -> None:
        """Return the prompt again before the next line, if it was returned after `keep` but could not be written."""
        self._prompted = set(self._saved.prompted)

    def take(self, events: Iterable[Any], clock: Clock) -> Iterator[Batch]:
        """Yield the lines of the events, one batch for each file. Raises `UnsafePath`, `ReservedName`.

        While the caller handles a batch, the current session is that of the batch. The next event is read afterwards.
        """
        batch: Batch = []
        for event in events:
            pin = self._pin_for(event)
            if self._is_other(pin):
                yield batch
                batch = []
            self._go_to(pin)
            batch += self._of_event(event, clock.now())
        yield batch

    def _pin_for(self, event: Any) -> Pin | None:
        """Return the session to which the event belongs."""
        if not isinstance(event, Mapping):
            return self.pin
        if event.get("type") != "session":
            told = None if self.pin else events.text(event, "sessionId")
            return Pin(paths.checked_session_id(told), self._given_slug) if told else self.pin
        told = events.text(event, "id")
        if told is None or (self.pin and self.pin.slug is not None and self.pin.session_id == told):
            return self.pin
        return Pin(paths.checked_session_id(told), self._slug_for(event))

    def _is_other(self, pin: Pin | None) -> bool:
        """True if this is a session other than the current one."""
        return self.pin is not None and pin is not None and pin.session_id != self.pin.session_id

    def _go_to(self, pin: Pin | None) -> None:
        """Set the current session for the next lines."""
        if self._is_other(pin):
            self._translator = Translator(self._options, self._model)  # with new totals
        elif pin and self.pin in self._prompted:  # the same session, whose place is now known
            self._prompted.add(pin)
        self.pin = pin

    def fall_back_to(self, session_id: str) -> None:
        """Set the current session if none is set. Raises `UnsafePath`, `ReservedName`."""
        if self.pin is None:
            self.pin = Pin(paths.checked_session_id(session_id), self._given_slug)

    def _of_event(self, event: Any, now: datetime) -> Batch:
        """Return the lines of an event, with the prompt before the first line of the session."""
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
        """Return the lines that are missing at the end of a run, or none if no session is known."""
        if self.pin is None:
            return []
        stamp = Stamp(now, self.pin.session_id)
        return self.after_prompt(self._translator.closing_lines(outcome, stamp, error=error), now)

    def after_prompt(self, lines: list[Envelope], moment: datetime) -> list[Envelope]:
        """Return the lines, preceded by the prompt's line if the prompt is not written yet."""
        prompt = self._prompt_line(moment)
        for line in lines:
            self._translator.record_line(line)
        return prompt + lines

    def unwritten_prompt(self, moment: datetime) -> list[Envelope]:
        """Return the line of the prompt if it is not written yet, and its session and place are known."""
        return self._prompt_line(moment) if self.pin is not None and self.pin.slug is not None else []

    def _prompt_line(self, moment: datetime) -> list[Envelope]:
        """Return the line of the prompt, only once for each session of this writer."""
        if self._prompt is None or self.pin is None or self.pin in self._prompted:
            return []
        self._prompted.add(self.pin)
        line = events.user(self._prompt, Stamp(moment, self.pin.session_id))
        self._translator.record_line(line)
        return [line]

    def _slug_for(self, event: Event) -> str | None:
        cwd = events.text(event, "cwd")
        if self._given_slug is None and cwd is not None:
            return paths.slug_of(paths.Cwd(cwd))
        return self._given_slug or (self.pin.slug if self.pin else None)

    def _state(self) -> _Saved:
        return _Saved(self.pin, self._translator, self._translator.mark(), frozenset(self._prompted))
