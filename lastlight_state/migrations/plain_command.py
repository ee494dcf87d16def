"""The plain ``alembic`` command on a database of ours: it says what it did, and knows no way down."""

from __future__ import annotations

from collections.abc import Callable

from alembic import context
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.engine import Connection

from lastlight_state.backends.base import Backend
from lastlight_state.errors import StateError
from lastlight_state.migrations import apply, scripts

LOCK_SECONDS = 60.0
NO_WAY_DOWN = (
    "there is no way down: revisions only add, and an older version of the library works on the newer schema; "
    "what must be undone is restored from a backup"
)


def command_of(dialect: str) -> str:
    """Return the name of the function that Alembic runs for its command. Raises `CommandError` for ``downgrade``."""
    context.configure(dialect_name=dialect)
    name = getattr(context.get_context().opts.get("fn"), "__name__", "")
    if name == "downgrade":
        raise CommandError(NO_WAY_DOWN)
    return name


def act(backend: Backend, command: str, config: Config, run: Callable[[Connection], None]) -> None:
    """Run Alembic's command in one locked transaction, and say after ``upgrade`` what was done."""
    try:
        with backend.migration(LOCK_SECONDS) as connection:
            done = _upgraded(connection, run) if command == "upgrade" else None
            if done is None:
                run(connection)
    except StateError as error:
        raise CommandError(str(error)) from error
    if done is not None:
        _tell(config, backend, done)


def _upgraded(connection: Connection, run: Callable[[Connection], None]) -> tuple[str, ...]:
    """Return the revisions that were applied."""
    found = apply.version(connection)
    if found is None:
        apply.refuse_foreign(connection)
    run(connection)
    return apply.finish(connection, found, apply.version(connection) or "")


def _tell(config: Config, backend: Backend, done: tuple[str, ...]) -> None:
    for known in scripts.history():
        if known.revision in done:
            config.print_stdout(f"{known.revision}  {known.summary}")
    config.print_stdout(f"{'upgraded' if done else 'nothing to do'}: {backend.location}")
