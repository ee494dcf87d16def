"""Tasks: work for the agent at a given time, once or repeatedly. Tasks are messages of the kind ``task``.

The id of any message in a task's series refers to the only live message of the series. Settled messages never change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lastlight_state import codec, cron
from lastlight_state.clock import iso_text
from lastlight_state.db import valid
from lastlight_state.db.repository import UNSET, UnsetType
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, Values
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue, LostRace, PayloadTooLarge
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.arguments import UNCHANGED, Routing, When, WhenChange
from lastlight_state.files.mailbox.host import statements as sql
from lastlight_state.files.mailbox.host.inbox import HostInbox
from lastlight_state.files.mailbox.models import TASK
from lastlight_state.files.mailbox.records import Task, TaskSummary
from lastlight_state.files.mailbox.shared import queries
from lastlight_state.files.mailbox.shared.pair import MailboxPart
from lastlight_state.ids import new_id


class HostTasks(MailboxPart):
    """The agent's tasks: ``host.tasks``."""

    def create(
        self,
        task_id: str | None = None,
        *,
        prompt: str,
        script: str | None = None,
        when: When,
        routing: Routing | None = None,
    ) -> Task:
        """Store a task.

        A recurring task without ``when.process_after`` first runs at the next match of its pattern. If that time is in
        the past, the task runs at once, and then by its pattern. Raises `AlreadyExists`, and `InvalidValue` for a
        pattern that never matches.
        """
        content: dict[str, Any] = {"prompt": valid.content("prompt", prompt, self._settings.limits.message_content)}
        if script is not None:
            content["script"] = valid.content("script", script, self._settings.limits.message_content)
        made = HostInbox(self._pair).send(
            f"task-{new_id()}" if task_id is None else task_id,
            kind="task",
            content=content,
            routing=routing,
            when=self._first(when),
        )
        return self.get(made.id)

    def update(
        self,
        task_id: str,
        *,
        prompt: str | UnsetType = UNSET,
        script: str | UnsetType | None = UNSET,
        when: WhenChange = UNCHANGED,
    ) -> Task:
        """Change the live message of a task. Arguments that are not given leave their fields unchanged.

        If another program wrote the content, all other members of its object stay byte for byte; a plain text is taken
        as the prompt. Raises `InvalidValue` if no argument is given, and for a task whose content is a list or number;
        `NotFound`; `LostRace` with the last ``status`` of a series that has ended.
        """
        merged = {
            name: valid.content(name, text, self._settings.limits.message_content)
            for name, text in (("prompt", prompt), ("script", script))
            if text is not UNSET and text is not None
        }
        removed = {"script"} if script is None else set()
        change = valid.argument_group("when", when, WhenChange)
        if not merged and not removed and change == UNCHANGED:
            raise InvalidValue("update", "must change something")
        return self._writing(lambda unit: self._update_task(unit, task_id, merged, removed, change))

    def pause(self, task_id: str) -> Task:
        """Pause the task until it is resumed. Pausing again does nothing. Raises as `update`."""
        return self._changed_to(task_id, status="paused")

    def resume(self, task_id: str) -> Task:
        """Let a paused task run. Raises as `update`."""
        return self._changed_to(task_id, status="pending")

    def cancel(self, task_id: str) -> Task:
        """End the task. It never runs again, even if an agent is working on it now. Raises as `update`."""
        ended = {"status": "completed", "recurrence": None, "outcome": models.CANCELLED}
        return self._changed_to(task_id, **ended, settled_at=iso_text(self._now()))

    def get(self, task_id: str) -> Task:
        """Return the live message of the task, or the last one of a series that has ended. Raises `NotFound`."""
        found = self.find(task_id)
        if found is None:
            raise valid.not_found(TASK, task_id)
        return found

    def find(self, task_id: str) -> Task | None:
        """Return the message of the task as `get` does, or None."""
        asked = valid.lookup_text("id", task_id)
        found = self._viewing(lambda unit: _current(unit, asked))
        return None if found is None else Task.of(found)

    def list(self, *, status: str | None = None, limit: int = 50, page_token: str | None = None) -> Page[TaskSummary]:
        """Return a page of the tasks that are pending or paused: one entry for each series, the next due first."""
        given = {"status": None if status is None else valid.word("status", status, models.LIVE)}
        return self._page(sql.LIST_TASKS, given, limit, page_token)

    def _first(self, when: When) -> When:
        given = valid.argument_group("when", when, When)
        if given.recurrence is None or given.process_after is not None:
            return given
        zone = self._settings.mailbox_timezone if given.timezone is None else given.timezone
        return replace(given, process_after=cron.next_after(given.recurrence, zone, self._now()))

    def _changed_to(self, task_id: str, **values: Any) -> Task:
        asked = valid.lookup_text("id", task_id)
        return self._writing(lambda unit: _change(unit, _live(unit, asked), values))

    def _update_task(
        self, unit: Unit, task_id: str, merged: Mapping[str, str], removed: set[str], change: WhenChange
    ) -> Task:
        found = _live(unit, valid.lookup_text("id", task_id))
        values = _times(found, change)
        if merged or removed:
            values["content"] = edit_content(found["content"], dict.fromkeys(removed) | dict(merged))
            size = len(values["content"].encode("utf-8", "surrogatepass"))
            if size > (most := self._settings.limits.message_content):
                raise PayloadTooLarge("content", limit=most, actual=size)
        return _change(unit, found, values)


def _current(unit: Unit, task_id: str) -> Row | None:
    """Return the live message of the series that this id belongs to, else its last one."""
    row = unit.row(sql.GET_ROW, {"id": task_id})
    if row is not None and row["kind"] != "task":
        return None
    series = {"series_id": task_id if row is None else row["series_id"] or task_id}
    found = unit.row(sql.LIVE_OF_SERIES, series) or unit.row(sql.LAST_OF_SERIES, series)
    return found if found is not None and found["kind"] == "task" else None


def _live(unit: Unit, task_id: str) -> Row:
    found = _current(unit, task_id)
    if found is None:
        raise valid.not_found(TASK, task_id)
    if found["status"] not in models.LIVE:
        raise LostRace(f"task {task_id!r} has ended: {found['status']}", status=found["status"])
    return found


def _change(unit: Unit, found: Row, values: Values) -> Task:
    names = ("status", "content", "process_after", "recurrence", "timezone", "outcome", "settled_at")
    row = {name: values.get(name, found[name]) for name in names} | dict(values)
    changed = unit.row(sql.CHANGE_TASK, {"id": found["id"], **row})
    assert changed is not None  # noqa: S101 - found under the same lock
    return changed


def _times(found: Row, change: WhenChange) -> Row:
    values: Row = {}
    if change.process_after is not UNSET:
        values["process_after"] = queries.time_text("when.process_after", change.process_after)
    if change.timezone is not UNSET:
        values["timezone"] = change.timezone
    if change.recurrence is not UNSET:
        values["recurrence"] = change.recurrence
    pattern = values.get("recurrence", found["recurrence"])
    if ("recurrence" in values or "timezone" in values) and pattern is not None:
        values["recurrence"] = cron.validate(pattern, values.get("timezone", found["timezone"]) or "UTC")
    elif values.get("timezone") is not None:
        cron.validate("@daily", values["timezone"])
    return values


_SCAN = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\n\r]*")


def edit_content(text: str, change: Mapping[str, str | None]) -> str:
    """Return a task's content with these members of its object set, or removed if their value is None.

    All other members stay byte for byte. Content that is not JSON, or is a JSON text, becomes the prompt.
    """
    members = _members(text)
    parts = [spelled for name, spelled in members if name not in change]
    parts += [f"{_json_text(name)}:{_json_text(value)}" for name, value in change.items() if value is not None]
    return "{" + ",".join(parts) + "}"


def _json_text(text: str) -> str:
    return codec.encode_sound(text).decode()


def _members(text: str) -> list[tuple[str, str]]:
    """Return the names of an object's members, each with the JSON text of the whole member."""
    content: Any = None
    try:
        content, end = _SCAN.raw_decode(text, _after_blanks(text, 0))
        is_json = _after_blanks(text, end) == len(text)
    except ValueError:
        is_json = False
    except RecursionError:
        raise InvalidValue("content", "the task's content is nested too deep to be merged with") from None
    if not is_json and text[:1] in tuple('{["'):
        raise InvalidValue("content", "the task's content is not an object: it is damaged JSON")
    if not is_json or isinstance(content, str):
        prompt = text if not is_json else content
        return [("prompt", f'"prompt":{json.dumps(prompt, ensure_ascii=False)}')]
    if not isinstance(content, dict):
        raise InvalidValue("content", "the task's content is not an object: it cannot be merged with")
    found: list[tuple[str, str]] = []
    at = _after_blanks(text, text.index("{") + 1)
    while text[at] != "}":
        name, end = _SCAN.raw_decode(text, at)
        colon = _after_blanks(text, end)
        _, behind = _SCAN.raw_decode(text, start := _after_blanks(text, colon + 1))
        found.append((name, f"{text[at:end]}:{text[start:behind]}"))
        at = _after_blanks(text, behind)
        at = _after_blanks(text, at + 1) if text[at] == "," else at
    return found


def _after_blanks(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()
