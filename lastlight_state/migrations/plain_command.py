"""The plain ``alembic`` command on the library's databases. It reports what it did, and has no downgrade.

Read-only commands create nothing. ``stamp`` first compares the schema with the revision. ``check`` and ``revision
--autogenerate`` compare the schema with what the revisions create, because Alembic itself ignores triggers, functions
and parts of indexes.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from alembic import context
from alembic.config import Config
from alembic.operations.ops import CreateIndexOp, ExecuteSQLOp, MigrateOperation
from alembic.util import CommandError
from sqlalchemy.engine import Connection, Dialect

from lastlight_state.backends.base import Backend, Checkout, Mode
from lastlight_state.backends.facts import Catalogue
from lastlight_state.errors import StateError
from lastlight_state.migrations import apply, mending, scripts
from lastlight_state.migrations.adoption import fit
from lastlight_state.migrations.failures import translated_errors
from lastlight_state.migrations.metadata import METADATA, declared_triggers, is_made_on, is_over_expressions
from lastlight_state.migrations.records import SchemaState
from lastlight_state.migrations.state import read_state
from lastlight_state.migrations.verification import mending_of

LOCK_SECONDS = 60.0
NO_WAY_DOWN = (
    "there is no way down: revisions only add, and an older version of the library works on the newer schema; "
    "what must be undone is restored from a backup"
)
#: The functions that Alembic runs for commands that change a database. All others only read.
_UPGRADES, _STAMPS, _MAKES_VERSION_TABLE = "upgrade", "do_stamp", "do_ensure_version"
#: The functions of ``check`` and of ``revision --autogenerate``, and of ``current``.
_COMPARES, _SHOWS = "retrieve_migrations", "display_version"


def command_of(dialect: str) -> str:
    """Return the name of the function that Alembic runs for a command. Raises `CommandError` for ``downgrade``."""
    context.configure(dialect_name=dialect)
    name = getattr(context.get_context().opts.get("fn"), "__name__", "")
    if name == "downgrade":
        raise CommandError(NO_WAY_DOWN)
    return name


def act_in_frame(backend: Backend, config: Config, write: Callable[[Dialect], None]) -> None:
    """Write a script with the effect of `act`: one transaction with the lock and the schema.

    Queries the database for the schema in use. Raises `CommandError` if the database cannot be reached.
    """
    printed, config.output_buffer = config.output_buffer, (written := io.StringIO())
    try:
        write(backend.dialect)
        script = backend.as_script(written.getvalue().strip(), LOCK_SECONDS)
    except StateError as error:
        raise CommandError(str(error)) from error
    finally:
        config.output_buffer = printed
    (printed or sys.stdout).write(script)


def act(backend: Backend, command: str, config: Config, run: Callable[[Connection], None]) -> None:
    """Run Alembic's command in one transaction, with the migration lock if the command changes something.

    Report what it did.
    """
    done: Sequence[str] | None = None
    try:
        if command == _UPGRADES:
            with backend.migration(LOCK_SECONDS) as connection:
                done = _run_upgrade(backend, connection, run)
        elif command == _STAMPS:
            _stamp(backend, run)
        elif command == _MAKES_VERSION_TABLE:
            with backend.migration(LOCK_SECONDS) as connection:
                run(connection)
        else:
            _look(backend, command, config, run)
    except StateError as error:
        raise CommandError(str(error)) from error
    if done is not None:
        _tell(config, backend, done)


def _run_upgrade(backend: Backend, connection: Connection, run: Callable[[Connection], None]) -> tuple[str, ...]:
    """Return a line for each revision that was applied, and for each part that was restored."""
    found = apply.version(connection)
    if found is None:
        apply.refuse_foreign(connection, backend.command("migrate"))
    run(connection)
    reached = apply.version(connection) or ""
    applied = apply.finish(connection, found, reached)
    made = [f"{known.revision}  {known.summary}" for known in scripts.history() if known.revision in applied]
    return (*made, *(f"put back {thing}" for thing in mending.put_back(connection, reached)))


def _tell(config: Config, backend: Backend, done: Sequence[str]) -> None:
    for line in done:
        config.print_stdout(line)
    config.print_stdout(f"{'upgraded' if done else 'nothing to do'}: {backend.location}")


def _stamp(backend: Backend, run: Callable[[Connection], None]) -> None:
    """Record the version that Alembic was given, if the schema equals that revision's schema."""
    if not backend.exists:
        raise CommandError(f"no database at {backend.location}; to make one, run: {backend.command('migrate')}")
    shapes = dict(zip(scripts.revisions(), fit.blueprints(backend, *scripts.revisions()), strict=True))
    with backend.migration(LOCK_SECONDS) as connection:
        run(connection)
        reached = apply.version(connection)
        if reached is not None:
            fit.compare(backend, connection, reached, fit.Blueprint(shapes[reached], shapes[scripts.head()]))


def _look(backend: Backend, command: str, config: Config, run: Callable[[Connection], None]) -> None:
    expected = fit.blueprints(backend, scripts.head())[0] if command == _COMPARES else None
    state = read_state(backend)
    if expected is not None:
        config.attributes["propose"] = partial(_propose, backend.dialect, expected)
    writes = command != _SHOWS and state.revision is None  # Alembic creates its version table even to read
    with backend.scratch() if writes or not backend.exists else _snapshot(backend) as connection:
        if expected is not None and apply.version(connection) == scripts.head():
            _refuse_different(backend, state, backend.shape(connection), expected)
        with warnings.catch_warnings():  # warnings about indexes that are compared here
            warnings.filterwarnings("ignore", ".*expression-based index")
            run(connection)


@contextmanager
def _snapshot(backend: Backend) -> Iterator[Connection]:
    """Lend a read-only connection to the database."""
    with Checkout(Mode.SNAPSHOT, backend) as checkout:
        try:
            with translated_errors(backend):
                backend.enter(checkout)
                connection = backend.connection(checkout)
                connection.begin()
                yield connection
        finally:
            backend.rollback(checkout)


def difference_lines(shape: Catalogue, expected: Catalogue) -> list[str]:
    """Return one line for each object of the expected shape that is missing or different.

    Additional objects are ignored.
    """
    return fit.misfits({entry: text for entry, text in shape.items() if entry in expected}, expected)


def _refuse_different(backend: Backend, state: SchemaState, shape: Catalogue, expected: Catalogue) -> None:
    """Raise `CommandError` if a database differs from its revision.

    A comparison with the models would then mean nothing.
    """
    lines = difference_lines(shape, expected)
    if lines:
        listed = "".join(f"\n- {line}" for line in lines)
        helps = f"; {mending_of(backend, state)}" if state.absent else ""
        raise CommandError(f"the schema is not as revision {scripts.head()} makes it{helps}{listed}")


# Objects that the models declare, no revision makes and Alembic does not compare: triggers, and on SQLite indexes over
# expressions.


def _propose(dialect: Dialect, made: Catalogue, _context: Any, _revision: Any, directives: Sequence[Any]) -> None:
    """Add to Alembic's operations the declared objects that no revision creates yet."""
    directives[0].upgrade_ops.ops.extend(_unmade(dialect, made))


def _unmade(dialect: Dialect, made: Catalogue) -> Iterator[MigrateOperation]:
    for table in () if dialect.supports_identity_columns else METADATA.sorted_tables:  # on SQLite only
        for index in table.indexes:
            sought = is_over_expressions(index) and is_made_on(index, dialect.name)
            if sought and ("index", table.name, str(index.name)) not in made:
                yield CreateIndexOp.from_index(index)
    for table_name, name in declared_triggers(dialect.name):
        if ("trigger", table_name, name) not in made:
            yield ExecuteSQLOp(f"CREATE TRIGGER {name} ON {table_name}: write it as its guard declares it")
