"""Opens writers of agent sessions' logs."""

from __future__ import annotations

from lastlight_state.clock import aware_utc
from lastlight_state.db.gate import check_arguments
from lastlight_state.errors import InvalidValue
from lastlight_state.files.agent_log import paths
from lastlight_state.files.agent_log.arguments import CommandRecord, OnError, TranslationOptions
from lastlight_state.files.agent_log.paths import Place
from lastlight_state.files.agent_log.writer import translate
from lastlight_state.files.agent_log.writer.lines import Pin, SessionLines
from lastlight_state.files.agent_log.writer.session import Files, SessionWriter
from lastlight_state.files.jsonl.writer import SyncWord
from lastlight_state.ids import new_id
from lastlight_state.reprs import repr_of

NO_OPTIONS = TranslationOptions()


class Writer:
    """Writers of logs: ``store.agent_log.writer``."""

    def __init__(self, files: Files) -> None:
        self._files = files

    @check_arguments
    def open(
        self,
        *,
        place: Place | None = None,
        session_id: str | None = None,
        prompt: str | None = None,
        model: str | None = None,
        options: TranslationOptions = NO_OPTIONS,
        sync: SyncWord | None = None,
        on_error: OnError = "raise",
    ) -> SessionWriter:
        """Return a writer for the log of an agent session; a context manager. Creates nothing before the first line.

        The session is ``session_id`` (1 to 200 of ``A-Z a-z 0-9 _ -``), or by default the session that the events name.
        Its directory is ``place``, or by default the one that the ``session`` event names. ``prompt`` is written once,
        before the first line, or when the writer is closed without a line. ``model`` is named in the agent's messages.
        ``sync`` overrides the setting. ``on_error="report"`` logs and counts failures of the file system, for runs that
        must go on without a disk. Raises `UnsafePath` and `ReservedName`.
        """
        if on_error not in ("raise", "report"):
            raise InvalidValue("on_error", f"unknown: {repr_of(on_error, 80)}", permitted=("raise", "report"))
        slug = None if place is None else paths.slug_of(place)
        pin = None if session_id is None else Pin(paths.checked_session_id(session_id), slug)
        lines = SessionLines(options, pin=pin, slug=slug, prompt=prompt, model=model)
        files = self._files if sync is None else self._files._replace(sync=sync)
        return SessionWriter(files, lines, on_error)

    @check_arguments
    def record_command(self, command: CommandRecord, *, place: Place, session_id: str | None = None) -> str:
        """Log a shell command that ran as a separate phase, in one write. Returns the session id of the log.

        The lines are the prompt, the call, the output (standard error after standard output), a text about the outcome,
        and a result of one turn without cost. Errors as in `SessionWriter.feed`.
        """
        session_id = new_id() if session_id is None else session_id
        now = self._files.clock.now()
        finished = now if command.finished_at is None else aware_utc("finished_at", command.finished_at)
        started = finished if command.started_at is None else aware_utc("started_at", command.started_at)
        prompt = command.command if command.prompt is None else command.prompt
        with self.open(place=place, prompt=prompt, model=command.model) as writer:
            writer.feed_many(translate.events_of(command, session_id, new_id(), started, finished))
        return session_id
