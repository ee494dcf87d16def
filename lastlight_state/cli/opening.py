"""Opens the database for commands. Commands that only read open it read-only, verify it, and leave no files behind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from lastlight_state.backends import connect, urls
from lastlight_state.backends.base import Backend
from lastlight_state.cli.arguments import Flags
from lastlight_state.cli.output import Call
from lastlight_state.errors import BackendUnavailable, Conflict, InvalidValue, NotFound, StateError
from lastlight_state.keys import prefix_end
from lastlight_state.migrations.verification import verify
from lastlight_state.settings import Settings, load_settings, url_in
from lastlight_state.store import StateStore

# Ids as people type them: complete, as a prefix that only one record has, or ``last`` for the newest.

LAST = "last"
#: Table and key column of each kind whose records have ids, by the word that ``show`` takes.
_KEYS = {
    "run": ("workflow_runs", "id"),
    "execution": ("executions", "id"),
    "approval": ("workflow_approvals", "id"),
    "question": ("human_requests", "id"),
    "messaging": ("messaging_sessions", "id"),
    "session": ("sessions", "id"),
    "cron": ("cron_schedules", "name"),
    "fire": ("cron_fires", "id"),
    "receipt": ("maintenance_receipts", "id"),
    "score": ("scores", "id"),
    "output": ("output_tables", "key"),
}
#: Most candidates that an error names.
_MOST = 5


class RecordId(NamedTuple):
    """A record's kind, as `show` takes it, and its complete id."""

    kind: str
    id: str


def resolve(store: StateStore, text: str, kinds: Collection[str] = tuple(_KEYS)) -> RecordId:
    """Find the record of one of these kinds that a text names: by its id, a prefix of its id, or ``last``.

    A complete id names its record, even if other ids begin with it. Raises `NotFound`, and `Conflict` ``ambiguous_id``
    with the first ids that begin with the text.
    """
    known = [kind for kind in _KEYS if kind in kinds]
    if text == LAST:
        return _newest(store, known)
    found = [RecordId(*row) for row in _ids_with_prefix(store, text, known)]
    whole = [one for one in found if one.id == text]
    if len(whole or found) == 1:
        return (whole or found)[0]
    if not found:
        raise NotFound(" or ".join(known) if len(known) <= 2 else "record", text)
    named = ", ".join(f"{one.kind} {one.id}" for one in found[:_MOST])
    more = " and more" if len(found) > _MOST else ""
    told = f"several records begin with {text!r:.80}: {named}{more}"
    raise Conflict(told, code="ambiguous_id", ids=[one.id for one in found])


def whole(store: StateStore, text: str, kind: str) -> str:
    """Return the complete id of a record of one kind. Returns the text itself if no record matches."""
    try:
        return resolve(store, text, (kind,)).id if kind in _KEYS else text
    except NotFound:
        return text


def _ids_with_prefix(store: StateStore, text: str, kinds: Collection[str]) -> Collection[tuple[str, str]]:
    """Return the first ids of each kind that begin with the text. Reads one short range of each primary key."""
    parts = (
        f"SELECT kind, id FROM (SELECT '{kind}' AS kind, {key} AS id FROM {table}"
        f" WHERE {key} >= :least AND {key} < :end ORDER BY {key} LIMIT {_MOST + 1}) AS of_{kind}"
        for kind in kinds
        for table, key in (_KEYS[kind],)
    )
    sql = " UNION ALL ".join(parts)
    found = store.outputs.query.rows(sql, {"least": text, "end": prefix_end(text)})
    return [(str(kind), str(key)) for kind, key in found.rows]


def _newest(store: StateStore, kinds: Collection[str]) -> RecordId:
    """Return the newest record of a kind. If several kinds are given, return the newest run."""
    kind = "run" if "run" in kinds else next(iter(kinds))
    lists = {
        "run": store.workflows.runs.list,
        "execution": store.workflows.executions.list,
        "approval": store.workflows.approvals.list,
        "question": store.workflows.human_requests.list_pending,
        "messaging": store.messaging.sessions.list,
        "session": store.conversations.sessions.list,
        "fire": store.schedules.fires.list,
        "receipt": store.receipts.list,
    }
    items = lists[kind](limit=1).items if kind in lists else ()  # type: ignore[operator]
    if not items:
        raise NotFound(kind, LAST)
    return RecordId(kind, items[0].id)


T = TypeVar("T")


def read_once(call: Call, work: Callable[[StateStore], T], *, verified: bool = True) -> T:
    """Call ``work``, a function that only reads, with a read-only store, and return its result.

    A SQLite file that no process uses is read without locks and side files. If a process writes to it meanwhile,
    ``work`` runs again with locks. With ``verified=False`` the database may be in any state, or missing. Raises the
    errors of `verify`, and `BackendUnavailable` for a missing file.
    """
    settings = settings_of(call, read_only=True)
    try:
        with _readable_store(call, settings, verified, glance=True) as store:
            result = work(store)
            if not store.backend.is_disturbed:
                return result
    except _Disturbed:
        pass
    with _readable_store(call, settings, verified, glance=False) as store:
        return work(store)


@contextmanager
def open_readonly(call: Call) -> Iterator[StateStore]:
    """Open a read-only store for the block, on a database that exists and is current."""
    with _readable_store(call, settings_of(call, read_only=True), verified=True, glance=False) as store:
        yield store


@contextmanager
def writable_store(call: Call) -> Iterator[StateStore]:
    """Open a writable store for the block, on a database that exists and is current. Raises as `read_once` does."""
    settings = settings_of(call)
    with closing(backend_for_call(call, settings)) as backend:
        verify(existing_backend(backend))
        with StateStore(backend, settings) as store:
            yield store


def settings_of(call: Call, **more: Any) -> Settings:
    """Return the settings from the flags, the environment and ``more``. Their password is hidden in all further output.

    Raises `InvalidValue` for --url together with --url-file, and for an unreadable file.
    """
    flags = call.flags
    given = {"url": _url(flags), "schema_name": flags.schema, "state_dir": flags.state_dir}
    settings = load_settings(None, **{**given, **more})
    if flags.url_file is not None:
        settings = settings.held_in(flags.url_file, str(settings.url))
    for password in urls.passwords(settings.url):
        call.secrets.learn(password)
    return settings


def other_url(call: Call, url: str | None, file: Path | None) -> str:
    """Return the URL of a second database, from ``--to`` or the file of ``--to-file``. Its password is hidden, too.

    Raises `InvalidValue` if both or neither are given, and for an unreadable file.
    """
    if (url is None) == (file is None):
        raise InvalidValue("--to", "either --to or --to-file must be given")
    found = url_in(file, "--to-file") if file is not None else url or ""
    if not found.strip():
        raise InvalidValue("--to", "must not be empty")
    for password in urls.passwords(found):
        call.secrets.learn(password)
    return found


def backend_for_call(call: Call, settings: Settings, *, glance: bool = False) -> Backend:
    """Return an unconnected backend for these settings.

    Error messages of the command name the backend's location from now on.
    """
    backend = connect(settings, glance=glance)
    call.location = backend.location
    return backend


def existing_backend(backend: Backend) -> Backend:
    """Return the backend unchanged. Raises `BackendUnavailable` if its file does not exist."""
    if not backend.exists:
        raise BackendUnavailable(
            f"no database at {backend.location}; to make one, run: {backend.command('migrate')}", reason="missing"
        )
    return backend


class _Disturbed(Exception):
    """Raised if the data that was read is inconsistent, because another process wrote at the same time."""


@contextmanager
def _readable_store(call: Call, settings: Settings, verified: bool, *, glance: bool) -> Iterator[StateStore]:
    backend = backend_for_call(call, settings, glance=glance)
    store = StateStore(backend, settings)
    try:
        if verified:
            verify(existing_backend(backend))
        yield store
    except StateError as error:
        if backend.is_disturbed:
            raise _Disturbed from error
        raise
    finally:
        store.close()


def _url(flags: Flags) -> str | None:
    if flags.url is not None and not flags.url.strip():
        raise InvalidValue("--url", "must not be empty")  # "$UNSET" must not mean the default database
    if flags.url_file is None:
        return flags.url
    if flags.url is not None:
        raise InvalidValue("--url-file", "must not be given together with --url")
    return url_in(flags.url_file, "--url-file")
