"""``tenants``: lists, creates, migrates, exports, erases and moves the tenants of a Postgres database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from lastlight_state.cli.commands import backup
from lastlight_state.cli.exits import NO, Failure
from lastlight_state.cli.opening import settings_of
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue
from lastlight_state.migrations import MigrationResult
from lastlight_state.migrations.runner import LOCK_SECONDS
from lastlight_state.tenants import ErasedTenant, FailedTenant, MigratedTenants, Tenant, Tenants

ACTS = ("list", "create", "migrate", "export", "erase", "move")
LISTED: tuple[Column[Tenant], ...] = (
    Column("NAME", lambda tenant: tenant.name, keep=True),
    Column("STATE", lambda tenant: tenant.state),
    Column("REVISION", lambda tenant: tenant.revision or "", rank=1, keep=True),
    Column("BYTES", lambda tenant: "" if tenant.size_bytes is None else tenant.size_bytes, right=True),
)
FAILED: tuple[Column[FailedTenant], ...] = (
    Column("NAME", lambda tenant: tenant.name, keep=True),
    Column("CODE", lambda tenant: tenant.code),
    Column("ERROR", lambda tenant: tenant.error, below=True),
)


@command("tenants")
@click.argument("act", metavar="[list|create|migrate|export|erase|move]", required=False, default="list")
@click.argument("names", metavar="[NAME...]", nargs=-1)
@click.option("--sizes", is_flag=True, help="list: how many bytes each has, which reads the disk.")
@click.option("--workers", metavar="N", type=int, default=4, help="migrate: so many at a time.")
@click.option("--lock-timeout", metavar="SECONDS", default=LOCK_SECONDS, help="Wait this long for another migration.")
@click.option("--to", "to", metavar="WHERE", help="export: the new folder. move: the server, as HOST:PORT.")
@click.option("--confirm", metavar="NAME", help="erase: the name once more; without it nothing is erased.")
def run(
    call: Call,
    act: str,
    names: Sequence[str],
    sizes: bool,
    workers: int,
    lock_timeout: float,
    to: str | None,
    confirm: str | None,
) -> Answer:
    """List the tenants of a Postgres database, or create, migrate, export, erase or move some.

    A tenant is a schema of this library. Its name has lower-case letters, digits, underscores and hyphens. migrate
    without names migrates all. If a tenant fails, it is named, the others go on, and the exit code is 1: then run it
    again. erase only shows what would be erased, unless --confirm repeats the name. move works with Citus only.
    """
    valid.word("ACT", act, ACTS)
    if not 0 <= lock_timeout <= 86_400:
        raise InvalidValue("--lock-timeout", "must be between 0 and 86400 seconds")
    with Tenants.open(settings=settings_of(call)) as tenants:
        if act == "list":
            return _list_answer(tenants.list(sizes=sizes), names)
        if act == "migrate":
            return _migration_answer(tenants.migrate(names or None, workers=workers, lock_timeout=lock_timeout))
        name = _only_name(names, act)
        if act == "create":
            return _creation_answer(name, tenants.create(name, lock_timeout=lock_timeout))
        if act == "erase":
            return _erasure_answer(tenants.erase(name, confirm=confirm, lock_timeout=lock_timeout))
        if to is None:
            raise InvalidValue("--to", f"{act} needs it: where to?")
        return _export_tenant(tenants, name, to) if act == "export" else _move_tenant(tenants, name, to)


def _creation_answer(name: str, result: MigrationResult) -> Answer:
    told = f"{name} is {result.state} at {result.to_revision}"
    return Answer({"name": name, "revisions": result.revisions, "to": result.to_revision}, lambda _: [told])


def _export_tenant(tenants: Tenants, name: str, to: str) -> Answer:
    manifest = tenants.export(name, Path(to))
    return Answer({"manifest": manifest}, lambda screen: backup.lines(manifest, screen))


def _move_tenant(tenants: Tenants, name: str, to: str) -> Answer:
    host, _, port = to.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidValue("--to", f"expected HOST:PORT, got {to!r:.80}")
    tenants.move(name, host, int(port))
    return Answer({"name": name, "to": to}, lambda _: [f"{name} is on {to}"])


def _only_name(names: Sequence[str], act: str) -> str:
    if len(names) != 1:
        raise InvalidValue("NAME", f"{act} needs the name of one tenant, got {len(names)}")
    return names[0]


def _list_answer(found: Sequence[Tenant], names: Sequence[str]) -> Answer:
    shown = [tenant for tenant in found if not names or tenant.name in names]
    return Answer({"tenants": shown}, lambda screen: screen.table(LISTED, shown) if shown else ["(no tenants)"])


def _migration_answer(report: MigratedTenants) -> Answer:
    failure = None
    if report.failed:
        failure = Failure(
            NO, "failed", f"{len(report.failed)} tenants could not be migrated: mend them, and run it again"
        )
    data = {"migrated": report.migrated, "current": report.current, "failed": report.failed}
    return Answer(data, lambda screen: _report(report, screen), failure)


def _report(report: MigratedTenants, screen: Screen) -> Iterator[Any]:
    yield f"{len(report.migrated)} migrated, {len(report.current)} were current, {len(report.failed)} failed"
    if report.failed:
        yield ""
        yield from screen.table(FAILED, report.failed)


def _erasure_answer(tenant: ErasedTenant) -> Answer:
    amount = f"{tenant.name}: a schema of {tenant.size_bytes} bytes and {tenant.files} files"
    told = f"erased {amount}" if tenant.erased else f"would erase {amount}; to do it: --confirm {tenant.name}"
    return Answer({"tenant": tenant, "dry_run": not tenant.erased}, lambda _: [told])
