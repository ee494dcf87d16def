"""Applies revisions through Alembic, on a connection that is already in the transaction of the whole upgrade."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from alembic import command, context, op
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlalchemy.engine import Connection, Dialect

from lastlight_state.backends.facts import Entry
from lastlight_state.backends.sql.expressions import column_updates
from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.errors import SchemaMismatch
from lastlight_state.lazy import load
from lastlight_state.locks import RLock
from lastlight_state.migrations import scripts
from lastlight_state.migrations.records import DataStep, MigrationResult
from lastlight_state.migrations.state import SEED_TABLES, unreleased_error, word_for

# Protects the Alembic environment of a host application that calls this library inside its own migrations.


@contextmanager
def environment_kept() -> Iterator[None]:
    """Run a block that may run Alembic, and restore Alembic's former environment afterwards.

    Alembic keeps one environment and one set of operations in module variables. Without this block, a host that calls
    this library from its ``env.py`` or from a revision would lose its own. Other threads wait until the block ends,
    because they would use this environment.
    """
    with _alembic_lock:
        before = [(vars(module), dict(vars(module))) for module in (context, op)]
        try:
            yield
        finally:
            for names, kept in before:
                names.update(kept)


#: Held by the thread that runs Alembic. A revision may run Alembic again.
_alembic_lock = RLock()


def _renew() -> None:
    """Replace the lock in a forked child, because the thread that held it does not exist there."""
    global _alembic_lock  # noqa: PLW0603
    _alembic_lock = RLock()


os.register_at_fork(after_in_child=_renew)

MOST_NAMED = 20
#: The modules that files run by Alembic import, in any thread.
_OF_REVISIONS = ("adoption.existing", "operations", "plain_command")

_log = logging.getLogger("lastlight_state.migrations")


def apply_revisions(connection: Connection, target: str, present: Collection[Entry] = ()) -> MigrationResult:
    """Apply the missing revisions up to ``target``, except for the tables, columns and indexes in ``present``.

    Reads the version again, because the caller read it before it had the lock.
    """
    found = version(connection)
    if found is None:
        refuse_foreign(connection)
    elif found >= target:
        return MigrationResult(word_for(found), found, found, ())
    _upgrade(connection, target, present)
    return MigrationResult(word_for(target), found, target, finish(connection, found, target))


def finish(connection: Connection, found: str | None, reached: str) -> tuple[str, ...]:
    """Complete the revisions after ``found``: copy values to new columns, and report changed rows.

    Return the revisions. The original program's rows have values that belong in columns of the second revision.
    """
    if found == scripts.FIRST < reached:
        for statement in column_updates(connection.dialect.name):
            connection.execute(text(statement))
    applied = tuple(revision for revision in scripts.revisions() if (found or "") < revision <= reached)
    steps = data_steps()
    for revision in applied:
        for step in steps[revision]:
            _report(connection, revision, step)
    return applied


def complete(connection: Connection, target: str, present: Collection[Entry]) -> None:
    """Create the parts of ``target`` that a database without a version lacks, except those in ``present``.

    Then write the version.
    """
    _upgrade(connection, target, present)


def write_version(connection: Connection, revision: str) -> None:
    """Record that the database is at this revision, replacing any earlier record."""
    configured = config()
    configured.attributes["connection"] = connection
    with environment_kept():
        command.stamp(configured, revision, purge=True)


def statements(dialect: Dialect, found: str | None, target: str) -> list[str]:
    """Return the statements of the revisions after ``found`` up to ``target``, in order and with comments."""
    configured, written = config(), _Statements()
    configured.output_buffer = written
    configured.attributes["dialect"] = dialect
    with environment_kept():
        command.upgrade(configured, f"{found or 'base'}:{target}", sql=True)
    return written.kept


class _Statements(io.StringIO):
    """A file object that Alembic writes its script to. It collects the statements one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []

    def write(self, text: str) -> int:
        self.kept += [written] if (written := text.strip()) else []
        return len(text)


def config() -> Config:
    """Return Alembic's configuration. It is made in code and uses no ini file and no working directory."""
    for name in _OF_REVISIONS:
        load(f"lastlight_state.migrations.{name}")
    made = Config()
    made.set_main_option("script_location", str(scripts.folder()).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    return made


def data_steps() -> Mapping[str, tuple[DataStep, ...]]:
    """Return the row changes of each revision, by the revision's name. Imports the files of all revisions."""
    directory = ScriptDirectory.from_config(config())
    return {
        script.revision: tuple(DataStep(**step) for step in getattr(script.module, "data_steps", ()))
        for script in directory.walk_revisions()
    }


def version(connection: Connection) -> str | None:
    """Return the revision of the database, or None if it has no version.

    Raises `SchemaMismatch` for a revision that was never released.
    """
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    heads = context.get_current_heads()
    found = heads[0] if heads else None
    if scripts.was_never_released(found):
        raise unreleased_error(found)
    return found


def refuse_foreign(connection: Connection, migrate: str = "lastlight-state migrate") -> None:
    """Raise `SchemaMismatch` for tables that have our names but no version, because their shape is unknown.

    ``migrate`` is the shell command for this database, if the caller knows it.
    """
    inspector = inspect(connection)
    foreign = [table for table in SEED_TABLES if inspector.has_table(table)]
    if foreign:
        raise SchemaMismatch(
            "there are tables named like ours, but no version of ours beside them; if the original program made them, "
            f"`{migrate}` takes them over:",
            differences=foreign,
        )


def _upgrade(connection: Connection, target: str, present: Collection[Entry]) -> None:
    configured = config()
    configured.attributes.update(connection=connection, present=present)
    with environment_kept():
        command.upgrade(configured, target)


def _report(connection: Connection, revision: str, step: DataStep) -> None:
    changed = connection.execute(text(step.report.format(table=step.table))).scalars().all()
    if changed:
        named = ", ".join(str(key) for key in changed[:MOST_NAMED])
        more = f" and {len(changed) - MOST_NAMED} more" if len(changed) > MOST_NAMED else ""
        _log.warning("revision %s %s: %d of %s: %s%s", revision, step.what, len(changed), step.table, named, more)
