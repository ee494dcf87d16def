"""Finding, listing and summarising agent sessions by their files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from lastlight_state.agent_log import paths
from lastlight_state.agent_log.records import AgentSessionSummary, SessionFile, SessionPage
from lastlight_state.agent_log.summaries import Summaries
from lastlight_state.agent_log.tree import Found, LogTree
from lastlight_state.db import opaque
from lastlight_state.db.gate import guarded
from lastlight_state.db.valid import page_limit
from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.reprs import shown

ScopeFilter: TypeAlias = Literal["all", "chat", "sandbox"]
_SCOPES = ("all", "chat", "sandbox")
_KIND = "agent_session"


class Sessions:
    """``store.agent_log.sessions``. Nothing but `summary` and `summaries` reads a log."""

    def __init__(self, tree: LogTree, summaries: Summaries) -> None:
        self._tree = tree
        self._summaries = summaries

    @guarded
    def find(self, session_id: str, *, slug: str | None = None) -> SessionFile | None:
        """The session's log, or None. Of several, the one changed last."""
        return next(iter(self.locations(session_id, slug=slug)), None)

    @guarded
    def get(self, session_id: str, *, slug: str | None = None) -> SessionFile:
        """Like `find`; without a log `NotFound`."""
        found = self.find(session_id, slug=slug)
        if found is None:
            raise NotFound(_KIND, session_id)
        return found

    @guarded
    def locations(self, session_id: str, *, slug: str | None = None) -> tuple[SessionFile, ...]:
        """All logs of this id, the one changed last first: an id may be in several project directories.

        Raises `UnsafePath` for an id or slug that cannot name a file.
        """
        paths.readable_id(session_id)
        slugs = self._tree.slugs()[0] if slug is None else [paths.checked_slug(slug)]
        found = (self._tree.find(session_id, name) for name in slugs)
        return tuple(self._tree.file_of(log) for log in sorted(log for log in found if log))

    @guarded
    def list(
        self, *, scope: ScopeFilter = "all", slug: str | None = None, limit: int = 50, page_token: str | None = None
    ) -> SessionPage:
        """A page of session logs, the one changed last first; equal times by slug and id. ``limit``: 1 to 500.

        Logs under ids that this library would not write have ``safe=False``. Entries that cannot be read are counted in
        ``skipped``.
        """
        limit = page_limit(limit)
        if scope not in _SCOPES:
            raise InvalidValue("scope", f"unknown: {shown(scope, 80)}", permitted=_SCOPES)
        asked = [scope, None if slug is None else paths.checked_slug(slug)]
        after = _key_of(asked, page_token)
        slugs, skipped = self._tree.slugs()
        logs: list[Found] = []
        for name in slugs:
            if slug in (None, name) and scope in ("all", paths.scope_of(name)):
                found, unseen = self._tree.logs(name)
                logs += found
                skipped += unseen
        logs.sort()
        if after is not None:
            logs = [log for log in logs if log[:3] > after]
        token = opaque.pack([asked, *logs[limit - 1][:3]]) if len(logs) > limit else None
        items = tuple(self._tree.file_of(log) for log in logs[:limit])
        return SessionPage(items=items, next_page_token=token, skipped=skipped)

    @guarded
    def summary(self, session_id: str, *, slug: str | None = None) -> AgentSessionSummary:
        """The summary of the session. Of a log summarised before, only new lines are read. Raises `NotFound`."""
        return self._summaries.of(self.get(session_id, slug=slug))

    @guarded
    def summaries(self, files: Iterable[SessionFile]) -> tuple[AgentSessionSummary, ...]:
        """The summaries of these sessions, in their order; files that vanished meanwhile are left out."""
        found = (self._summaries.find(log) for log in files)
        return tuple(summary for summary in found if summary)


def _key_of(asked: list[Any], token: str | None) -> tuple[int, str, str] | None:
    if token is None:
        return None
    match opaque.unpack("page_token", token):
        case [found, int(age), str(slug), str(session_id)] if found == asked:
            return age, slug, session_id
    raise InvalidValue("page_token", "made for another list or another filter")
