"""How commands reach the database. Those that look open it for reading only, verify it, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from lastlight_state.backends import urls
from lastlight_state.backends.base import Backend
from lastlight_state.cli.call import Call
from lastlight_state.cli.flags import Flags
from lastlight_state.errors import BackendUnavailable, InvalidValue, StateError
from lastlight_state.migrations.verification import verify
from lastlight_state.settings import Settings, load_settings
from lastlight_state.store import StateStore, connect

T = TypeVar("T")


def look(call: Call, work: Callable[[StateStore], T], *, verified: bool = True) -> T:
    """The result of ``work``, which only reads, on a store that only reads.

    A file that nobody uses is read without locks and side files; if somebody wrote meanwhile, ``work`` is done again in
    the ordinary way. Without ``verified`` the database may be in any state, or not be there. Raises what `verify`
    raises, and `BackendUnavailable` for a missing file.
    """
    settings = settings_of(call, read_only=True)
    try:
        with _looking(call, settings, verified, glance=True) as store:
            result = work(store)
            if not store.backend.disturbed:
                return result
    except _Disturbed:
        pass
    with _looking(call, settings, verified, glance=False) as store:
        return work(store)


def settings_of(call: Call, **more: Any) -> Settings:
    """The settings of the flags, the environment and ``more``. Their password is from now on kept out of the output.

    Raises `InvalidValue` for both ways of giving a URL at once, and for a file of one that cannot be read.
    """
    flags = call.flags
    given = {"url": _url(flags), "schema_name": flags.schema, "state_dir": flags.state_dir}
    settings = load_settings(None, **{**given, **more})
    for password in _passwords(settings.url):
        call.secrets.learn(password)
    return settings


def connected(call: Call, settings: Settings, *, glance: bool = False) -> Backend:
    """The backend of these settings, not yet connected. Failures from now on say where it is."""
    backend = connect(settings, glance=glance)
    call.location = backend.location
    return backend


def existing(backend: Backend) -> Backend:
    """The backend, whose database exists. Raises `BackendUnavailable` for a file that is not there."""
    if not backend.exists:
        raise BackendUnavailable(
            f"no database at {backend.location}; `lastlight-state migrate` makes one", reason="missing"
        )
    return backend


class _Disturbed(Exception):
    """What was read makes no sense, because somebody wrote at the same time."""


@contextmanager
def _looking(call: Call, settings: Settings, verified: bool, *, glance: bool) -> Iterator[StateStore]:
    backend = connected(call, settings, glance=glance)
    store = StateStore(backend, settings)
    try:
        if verified:
            verify(existing(backend))
        yield store
    except StateError as error:
        if backend.disturbed:
            raise _Disturbed from error
        raise
    finally:
        store.close()


def _url(flags: Flags) -> str | None:
    if flags.url is not None and not flags.url.strip():
        raise InvalidValue("--url", "empty")  # a variable that is not set must not mean the default database
    if flags.url_file is None:
        return flags.url
    if flags.url is not None:
        raise InvalidValue("--url-file", "given together with --url")
    try:
        url = flags.url_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise InvalidValue("--url-file", f"{flags.url_file}: {reason}") from error
    if not url:
        raise InvalidValue("--url-file", f"{flags.url_file}: empty")
    return url


def _passwords(url: str | None) -> list[str]:
    if url is None:
        return []
    try:
        parsed = urls.parse(url)
    except InvalidValue:
        return []
    return [found for found in (parsed.password, parsed.query.get("password")) if isinstance(found, str)]
