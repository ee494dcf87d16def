"""Copies everything into an empty database, SQLite or Postgres, and verifies the copy.

A copy is a series of short transactions into the target, read from one snapshot of the source. The target cannot be
opened until the copy has ended, so that nobody works on partial data. An interrupted copy can be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, cast

from lastlight_state import progress
from lastlight_state.backends.base import Mode
from lastlight_state.db import reconcile, valid
from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.units.scope import StoreScope, TransactionScope
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, NotFound
from lastlight_state.maintenance.copy import contents, tables as copy_tables, transfer as targets
from lastlight_state.maintenance.copy.contents import MOST_NAMED, forms, key_text
from lastlight_state.maintenance.copy.tables import CopiedTable, CopyPlan, CopyProgress, CopyReport, Subject, subjects
from lastlight_state.maintenance.copy.transfer import Place, Transfer, make_tables, numbers, output_tables
from lastlight_state.maintenance.shared import jobs
from lastlight_state.migrations import read_state, verify
from lastlight_state.receipts import Receipt, Receipts

# Finds the rows that differ between two tables, by reading both in the order of their keys.

Form = tuple[list[Any], bytes | str]


def differing_keys(source: Unit, target: Unit, subject: Subject, *, without: str) -> list[str]:
    """Return the first keys of rows that differ, or that only one of the databases has.

    The row with the key ``without`` is ignored.
    """
    found: list[str] = []
    for key in _compare_forms(forms(source, subject), forms(target, subject)):
        if key != [without]:
            found.append(key_text(key))
        if len(found) == MOST_NAMED:
            break
    return found


def _compare_forms(mine: Iterator[Form], theirs: Iterator[Form]) -> Iterator[list[Any]]:
    left, right = next(mine, None), next(theirs, None)
    while left is not None and right is not None:
        if left != right:
            yield min(left[0], right[0])
        step = left[0], right[0]
        if step[0] <= step[1]:
            left = next(mine, None)
        if step[1] <= step[0]:
            right = next(theirs, None)
    for rest in (left, right):
        if rest is not None:
            yield rest[0]
    for key, _ in chain(mine, theirs):
        yield key


#: The largest number of rows in a batch.
MOST_ROWS = 100_000

OnProgress = Callable[[CopyProgress], object]


class Copy(Repository):
    """Copies everything into another database: ``store.maintenance.copy``."""

    def plan(
        self, target: str | Path, *, schema: str | None = None, leave_columns: Collection[str] | None = ()
    ) -> CopyPlan:
        """Return what `run` would copy: row count and digest of every table, and rows that the target cannot hold.

        Reads the whole source in one snapshot, and writes nothing to either side. Raises `Conflict`
        ``target_not_empty`` naming every table of the target that has rows, ``target_differs`` for output tables that
        were left in it with other columns, and `InvalidValue` if both are the same database.
        """
        with self._target(target, schema, read_only=True) as context, self._source() as source:
            backend = context.scope.backend
            if not targets.is_empty(backend):
                targets.prepare(source.backend, backend, migrated=False)
                context.scope.view(lambda unit: _refuse(source, unit))
            return self._plan_copy(source, context, None, leave_columns)[0]

    def run(
        self,
        target: str | Path,
        *,
        schema: str | None = None,
        migrate: bool = False,
        batch_rows: int = 5_000,
        leave_columns: Collection[str] | None = (),
        on_progress: OnProgress | None = None,
        actor: str | None = None,
    ) -> CopyReport:
        """Copy everything into an empty database of the same schema, then read it again and compare.

        ``target`` is a URL or path, and ``schema`` a schema of Postgres; ``migrate`` creates the library's tables in an
        empty database. The source may be written meanwhile, because one snapshot of it is copied. A batch has at most
        ``batch_rows`` rows and about 8 MiB. ``on_progress`` is called after each batch.

        ``leave_columns`` names columns, as ``table.column``, that other programs added to tables of this library and
        that are not copied. Every such column that has values must be named, unless ``leave_columns`` is None, which
        leaves out all; the report lists them. Raises the errors of `plan`, `Conflict` ``cannot_be_copied`` with the
        problems before the first write, and `Conflict` ``copies_differ``, after which the target stays unfinished.
        """
        return self._run_copy(
            target, schema, batch_rows, on_progress, migrate=migrate, actor=actor, leave_columns=leave_columns
        )

    def resume(
        self,
        target: str | Path,
        *,
        schema: str | None = None,
        batch_rows: int = 5_000,
        on_progress: OnProgress | None = None,
    ) -> CopyReport:
        """Continue an interrupted copy after its last batch, and compare everything.

        After a process was killed, its copy can be taken over at once on the same machine. On another machine, the copy
        must first have made no progress for ten minutes; until then this raises `Conflict` ``already_running``. Raises
        `NotFound` if no copy is unfinished, and `Conflict` ``copies_differ`` if the source was changed meanwhile: then
        begin again with an empty target.
        """
        return self._run_copy(target, schema, batch_rows, on_progress, resumed=True)

    def _run_copy(
        self,
        target: str | Path,
        schema: str | None,
        batch_rows: int,
        on_progress: OnProgress | None,
        *,
        migrate: bool = False,
        resumed: bool = False,
        actor: str | None = None,
        leave_columns: Collection[str] | None = (),
    ) -> CopyReport:
        valid.flag("migrate", migrate)
        most = valid.number("batch_rows", batch_rows, least=1, most=MOST_ROWS)
        tell = _teller(on_progress)
        with self._target(target, schema, read_only=False) as context, self._source() as source:
            backend, receipts = context.scope.backend, Receipts(context)
            unfinished = _unfinished_copy(source, context) if resumed else None
            makes = migrate and targets.is_empty(backend)
            if makes:
                verify(source.backend)
            elif unfinished is None:
                targets.prepare(source.backend, backend, migrated=False)
                context.scope.view(lambda unit: _refuse(source, unit))
            leaving = leave_columns if unfinished is None else receipts.get(unfinished).policy["left_columns"]
            plan, copied, given = self._plan_copy(source, context, tell, leaving)
            _refuse_problems(plan)
            if makes:
                targets.prepare(source.backend, backend, migrated=True)
            if unfinished is None:
                receipt = context.scope.write(lambda unit: _begin_receipt(source, context, unit, plan, actor))
            else:
                receipt = receipts.resume(unfinished, owner=jobs.owner())
            transfer = Transfer(source, context, receipt, most, given)
            with jobs.interruptible(
                receipts, lambda: transfer.receipt, again="`copy.resume`, or the command with --resume"
            ):
                _transfer(transfer, context, copied, plan, tell)
                _compare(source, context, copied, plan, transfer.receipt.id, tell)
                self._refuse_disturbed()
                receipts.finish(transfer.receipt)
            context.scope.read(lambda unit: _analyze(unit, copied))
            return CopyReport(receipt_id=receipt.id, **plan.shared_fields())

    def _plan_copy(
        self, source: Unit, context: Context, tell: OnProgress | None, leave_columns: Collection[str] | None
    ) -> tuple[CopyPlan, list[Subject], dict[str, int | None]]:
        """Return the plan, the tables in order, and the last generated number of each table.

        The last number is unknown if the database role has no right to read it.
        """
        copied, problems = _copied_tables(source)
        left = copy_tables.filled_columns(source, [one.table for one in copied if not one.is_output])
        problems += _column_problems(left, leave_columns)
        given = numbers(source, copied)
        target = context.scope.backend
        judge = (
            contents.not_for_postgres
            if source.backend.large_values_in_rows and not target.large_values_in_rows
            else None
        )
        tables: list[CopiedTable] = []
        for subject in copied:
            found = contents.content(source, subject, judge)
            tables.append(found.result())
            problems += found.problems
            if tell is not None:
                tell(CopyProgress(phase="planned", table=subject.name, rows=found.rows, total=None))
        plan = CopyPlan(
            source=source.backend.location,
            target=target.location,
            revision=read_state(source.backend).revision or "",
            tables=tuple(tables),
            left_columns=tuple(left),
            left_indexes=tuple(_indexed_namespaces(source)),
            problems=tuple(problems),
        )
        return plan, copied, given

    def _refuse_disturbed(self) -> None:
        if self._backend.is_disturbed:
            raise Conflict("another process wrote to the source meanwhile: stop it, and resume", code="source_changed")

    @contextmanager
    def _target(self, target: str | Path, schema: str | None, *, read_only: bool) -> Iterator[Context]:
        with targets.open_context(target, schema, self._settings, self._clock, read_only=read_only) as context:
            yield context

    @contextmanager
    def _source(self) -> Iterator[Unit]:
        """Yield a unit that reads one snapshot of this database."""
        scope = cast("StoreScope", self._scope)  # maintenance does not run in transactions of callers
        with scope.open_unit(Mode.SNAPSHOT) as unit:
            yield unit
            self._backend.commit(unit)


def _refuse_problems(plan: CopyPlan) -> None:
    if plan.problems:
        raise Conflict(
            f"{len(plan.problems)} things cannot be copied, the first: {plan.problems[0]}",
            code="cannot_be_copied",
            problems=list(plan.problems),
        )


def _refuse(source: Unit, target: Unit) -> None:
    targets.refuse_same(source, target)
    outputs = output_tables(source)
    targets.refuse_filled(target, subjects(outputs))
    targets.refuse_other_outputs(target, outputs)


def _copied_tables(source: Unit) -> tuple[list[Subject], list[str]]:
    """Return the tables to copy, and the problems with output tables whose unknown columns a copy would lose."""
    outputs = {str(table.name): table for table in output_tables(source)}
    there = reconcile.present(source, outputs)
    problems = [
        f"{name} is in the registry of output tables, and is not there" for name in outputs if name not in there
    ]
    problems += [
        f"{name}.{column} is not a column that this library knows"
        for name, found in there.items()
        for column in found.columns
        if column not in outputs[name].columns
    ]
    return subjects(table for name, table in outputs.items() if name in there), problems


def _indexed_namespaces(source: Unit) -> list[str]:
    """Return the namespaces of vectors that have an index of embeddings, which the target gets on request alone."""
    indexes = source.backend.vector_indexes(source)
    return sorted(one.namespace for one in indexes if one.namespace is not None and one.state != "unused")


def _column_problems(left: Sequence[str], named: Collection[str] | None) -> list[str]:
    """Return a problem for each column that would not be copied and is not named. None permits all columns."""
    permitted = left if named is None else valid.several("leave_columns", named)
    return [
        f"{column} is not a column that this library knows, and would stay behind: name it among those to leave"
        for column in left
        if column not in permitted
    ]


def _begin_receipt(source: Unit, context: Context, unit: Unit, plan: CopyPlan, actor: str | None) -> Receipt:
    """Create the receipt of a copy in the target, which must still be empty.

    From then on nobody can open the target.
    """
    _refuse(source, unit)
    policy = {"source": plan.source, "revision": plan.revision, "left_columns": list(plan.left_columns)}
    receipts = Receipts(context.within(TransactionScope(unit, context.scope.metrics)))
    return receipts.begin("copy", policy=policy, owner=jobs.owner(), actor=actor)


def _unfinished_copy(source: Unit, context: Context) -> str:
    """Return the id of the receipt of an unfinished copy. Raises `NotFound` if there is none."""
    backend = context.scope.backend
    if not targets.is_empty(backend):
        targets.refuse_unlike(source.backend, backend)
        for state in targets.UNFINISHED:
            for receipt in Receipts(context).list(kind="copy", state=state, limit=1).items:
                return receipt.id
    raise NotFound("unfinished copy", backend.location)


def _teller(on_progress: OnProgress | None) -> OnProgress:
    """Return a callback that reports each batch, to the caller and to listeners of progress."""

    def tell(told: CopyProgress) -> None:
        progress.tell(f"{told.phase} {told.table}", told.rows, told.total)
        if on_progress is not None:
            on_progress(told)

    return tell


def _transfer(transfer: Transfer, context: Context, copied: list[Subject], plan: CopyPlan, tell: OnProgress) -> None:
    context.scope.write(lambda unit: make_tables(unit, [one.table for one in copied if one.is_output]))
    places = transfer.places()
    for subject, table in zip(copied, plan.tables, strict=True):
        place = places.get(subject.name) or Place()
        for rows in () if place.done else transfer.copy(subject, place):
            tell(CopyProgress(phase="copied", table=subject.name, rows=rows, total=table.rows))


def _compare(source: Unit, context: Context, copied: list[Subject], plan: CopyPlan, own: str, tell: OnProgress) -> None:
    """Read the target again. Raises `Conflict` with the keys of rows that differ from the source."""
    differences: dict[str, list[str]] = {}

    def compare(unit: Unit) -> Mapping[str, list[str]]:
        for subject, table in zip(copied, plan.tables, strict=True):
            found = contents.content(unit, subject, without=own).result()
            tell(CopyProgress(phase="verified", table=subject.name, rows=found.rows, total=table.rows))
            if found != table:
                differences[subject.name] = differing_keys(source, unit, subject, without=own)
        return differences

    if context.scope.view(compare):
        told = "; ".join(f"{name}: {', '.join(keys[:3])}" for name, keys in differences.items())
        raise Conflict(f"the copy differs from its source: {told}", code="copies_differ", differences=differences)


def _analyze(unit: Unit, copied: list[Subject]) -> None:
    unit.backend.analyze(unit, [subject.name for subject in copied])
