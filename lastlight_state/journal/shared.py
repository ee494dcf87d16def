"""Code that all streams of the journal share: counters, numbered repositories, and waiting for new rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.backends.sql.json import member_of
from lastlight_state.db.news.watch import Watch, watch_of
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.statements import Row, Statement, bind, constant, number, statement_of
from lastlight_state.db.rows.writes import Chain, as_list, elements_table, from_head, insert_computed, inserted_row
from lastlight_state.db.runs import of_known_run, refuse_unknown_run
from lastlight_state.db.schema.indexes import AmongFew
from lastlight_state.db.units.scope import Scope, TransactionScope, WriteRunner
from lastlight_state.db.units.unit import Unit, Work
from lastlight_state.errors import Conflict, CorruptData
from lastlight_state.journal.models import SEQUENCES

# Numbers of a run's streams: gap-free, taken from a counter row in the transaction that inserts.
#
# A transaction that raises a counter locks the counter's row until the commit. So within a run the order of commits is
# the order of numbers: a reader that has seen a number can see all before it. A rollback restores the counter.

T = TypeVar("T")


_log = logging.getLogger("lastlight_state.journal")

_c = SEQUENCES.c
_RUN = bind("run_id", _c.run_id)
_TAKEN = bind("taken", _c.next_seq)
#: Error codes of an insert whose number is taken: on SQLite a guard answers before the primary key does.
_TAKEN_ALREADY = ("unique", "refused_by_database")


class Stream:
    """The numbering of a table's rows within each run: the name of its counter, and its statements."""

    def __init__(self, name: str, table: sa.Table, column: str = "seq") -> None:
        self.name = name
        self.table = table
        self._number = table.c[column]
        self._word = constant(name)
        here = (_c.run_id == _RUN, _c.stream == self._word)
        self.next = statement_of(sa.select(_c.next_seq).where(*here))
        self.lock = statement_of(sa.select(_c.next_seq).where(*here).with_for_update())
        self.take = statement_of(self.counter_update(_TAKEN))
        self.begin = statement_of(self.counter_insert(_TAKEN))
        self.raise_to = statement_of(
            sa.update(SEQUENCES).where(*here).values(next_seq=bind("next_seq", _c.next_seq)).returning(_c.next_seq)
        )
        after_last = sa.select(self._number + number(1)).where(table.c.run_id == _RUN)
        self._after_last = after_last.order_by(self._number.desc()).limit(number(1)).scalar_subquery()
        self.mend = statement_of(
            sa.update(SEQUENCES)
            .where(*here, _c.next_seq < self._after_last)
            .values(next_seq=self._after_last)
            .returning(_c.next_seq)
        )
        self.behind = statement_of(sa.select(_c.next_seq).where(*here, _c.next_seq < self._after_last))
        self._prepare_many()

    def _prepare_many(self) -> None:
        """Prepare the statements that lock or raise the counters of several runs at once."""
        wanted = elements_table("runs")
        self.lock_many: Statement[tuple[str, int]] = statement_of(
            sa.select(_c.run_id, _c.next_seq)
            .where(
                AmongFew(_c.run_id, sa.select(member_of(wanted.c.value, "run_id"))),
                _c.stream == self._word,
            )
            .order_by(_c.run_id)
            .with_for_update(),
            tuple,
        )
        last_of = sa.select(self._number + number(1)).where(self.table.c.run_id == member_of(wanted.c.value, "run_id"))
        after_its_last = last_of.order_by(self._number.desc()).limit(number(1)).scalar_subquery()
        missing = sa.select(
            member_of(wanted.c.value, "run_id"), self._word, sa.func.coalesce(after_its_last, number(0))
        ).where(sa.true())
        self.begin_many = statement_of(
            insert(SEQUENCES)
            .from_select(["run_id", "stream", "next_seq"], missing, include_defaults=False)
            .on_conflict_do_nothing()
        )
        self.raise_many = statement_of(
            sa.update(SEQUENCES)
            .where(_c.run_id == member_of(wanted.c.value, "run_id"), _c.stream == self._word)
            .values(next_seq=sa.cast(member_of(wanted.c.value, "next_seq"), _c.next_seq.type))
        )

    def counter_update(self, many: sa.ColumnElement[int]) -> Any:
        """Return an UPDATE that reserves ``many`` numbers and returns the first as ``seq``.

        It returns no row without a counter.
        """
        return (
            sa.update(SEQUENCES)
            .where(_c.run_id == _RUN, _c.stream == self._word)
            .values(next_seq=_c.next_seq + many)
            .returning((_c.next_seq - many).label("seq"))
        )

    def counter_insert(self, many: sa.ColumnElement[int]) -> Any:
        """Return an INSERT of a missing counter that reserves the numbers after those of stored rows."""
        last = sa.select(self._number).where(self.table.c.run_id == _RUN)
        last_seq = last.order_by(self._number.desc()).limit(number(1)).scalar_subquery()
        begun = insert_computed(
            SEQUENCES,
            {
                "run_id": _RUN,
                "stream": self._word,
                "next_seq": sa.func.coalesce(last_seq, number(-1)) + number(1) + many,
            },
        )
        raised = begun.on_conflict_do_update(
            index_elements=[_c.run_id, _c.stream], set_={"next_seq": _c.next_seq + many}
        )
        return raised.returning((_c.next_seq - many).label("seq"))

    def chains(self, names: Sequence[str], returning: Sequence[sa.Column[Any]] = ()) -> tuple[Chain, Chain]:
        """Return the statement chains for `insert_row` and `insert_returning`.

        Each inserts a row of these columns with the next number.

        The first chain needs the run's counter; the second creates a missing counter.
        """
        values = {name: bind(name, self.table.c[name]) for name in names}
        numbered = {"run_id": bind("run_id", self.table.c.run_id), self._number.name: from_head("seq"), **values}
        heads = self.counter_update(number(1)), self.counter_insert(number(1))
        first, second = (Chain(head, into=self.table, values=numbered, returning=tuple(returning)) for head in heads)
        return first, second

    def insert_row(self, unit: Unit, chains: tuple[Chain, Chain], values: Mapping[str, Any]) -> int:
        """Insert one row and return its number, in one round trip except for the run's first row."""
        found = unit.chain(chains[0], values) or unit.chain(chains[1], values)
        return int((found or {})["seq"])

    def insert_returning(self, unit: Unit, chains: tuple[Chain, Chain], values: Mapping[str, Any]) -> Row:
        """Insert one row like `insert_row`; return the columns ``returning`` as they are stored."""
        made = unit.chain(chains[0], values) or unit.chain(chains[1], values)
        return inserted_row(made or {})

    def lock_counter(self, unit: Unit, run_id: str) -> int:
        """Lock the run's counter until this unit ends, and return the run's next number. Creates a missing counter."""
        found = unit.value(self.lock, {"run_id": run_id})
        return int(unit.value(self.begin, {"run_id": run_id, "taken": 0}) if found is None else found)

    def settle(self, unit: Unit, run_id: str) -> None:
        """Raise the run's counter above the last stored number.

        After a row is deleted, its number is then not used again.
        """
        self.lock_counter(unit, run_id)
        unit.value(self.mend, {"run_id": run_id})

    def locked_many(self, unit: Unit, run_ids: Sequence[str]) -> dict[str, int]:
        """Lock the counters of several runs in the order of their ids; return the next number by run id.

        Creates missing counters.
        """
        ordered = sorted(set(run_ids), key=str.encode)
        wanted = {"runs": as_list([{"run_id": run_id} for run_id in ordered])}
        rows = unit.rows(self.lock_many, wanted)
        if len(rows) < len(ordered):
            unit.change(self.begin_many, wanted)
            rows = unit.rows(self.lock_many, wanted)
        return dict(rows)

    def raise_all(self, unit: Unit, next_seqs: Mapping[str, int]) -> None:
        """Set these next numbers in the counters of runs that this unit has locked."""
        wanted = [{"run_id": run_id, "next_seq": next_seq} for run_id, next_seq in next_seqs.items()]
        unit.change(self.raise_many, {"runs": as_list(wanted)})


class Numbered(Repository):
    """A repository whose rows a `Stream` numbers within each run."""

    _stream: Stream

    def _append(self, run_id: str, run: WriteRunner, work: Work[T], *, repeatable: bool = False) -> T:
        """Return ``run(work)``, where ``run`` is for example ``self._writing``. Raises `NotFound` for an unknown run.

        A counter that was edited by hand may be behind the numbers in its table. Then the counter is raised, and the
        write is repeated. Inside a caller's transaction the write cannot be repeated, and raises `CorruptData`.
        """
        try:
            return run(work, repeatable=repeatable)
        except Conflict as error:
            refuse_unknown_run(run_id, error)
            if error.code not in _TAKEN_ALREADY or not self._is_behind(run_id):
                raise
            if isinstance(self._scope, TransactionScope):
                problem = "is behind the table"
                raise CorruptData(SEQUENCES.name, (run_id, self._stream.name), "next_seq", problem=problem) from error
        raised = self._once(lambda unit: unit.value(self._stream.mend, {"run_id": run_id}), repeatable=True)
        _log.warning(
            "the counter %r of run %r was behind its table and now stands at %s", self._stream.name, run_id, raised
        )
        return of_known_run(run_id, lambda: run(work, repeatable=repeatable))

    def _is_behind(self, run_id: str) -> bool:
        return self._value(self._stream.behind, {"run_id": run_id}) is not None


# Waiting for new rows of runs: one query reads the counters of all runs for which callers in the store wait.

#: A run id and the name of a stream, or a run id and `END`.
Key = tuple[str, str]
#: A function that returns by run id whether each of the given runs has ended. It leaves out unknown runs.
Ended = Callable[[Collection[str]], Mapping[str, bool]]
#: Stands in place of a stream's name for the end of the run. Its value is 1 if the run has ended, else 0.
END = "end"

_wanted = elements_table("runs")
COUNTERS: Statement[tuple[str, str, int]] = statement_of(
    sa.select(SEQUENCES.c.run_id, SEQUENCES.c.stream, SEQUENCES.c.next_seq).where(
        AmongFew(SEQUENCES.c.run_id, sa.select(member_of(_wanted.c.value, "run_id")))
    ),
    tuple,
)


def watch_for(scope: Scope, ended: Ended | None = None) -> Watch[Key]:
    """Return the store's watch over the counters of runs and, if ``ended`` is given, over the ends of runs.

    Each poll reads the ends first. So when a caller is notified that a run has ended, all rows committed before are
    readable.
    """

    def read(keys: Collection[Key]) -> dict[Key, int]:
        ends = _ends(ended, [run_id for run_id, stream in keys if stream == END])
        runs = sorted({run_id for run_id, _ in keys})
        values = {"runs": as_list([{"run_id": run_id} for run_id in runs])}
        rows = scope.read(lambda unit: unit.rows(COUNTERS, values))
        return {**ends, **{(run_id, stream): next_seq for run_id, stream, next_seq in rows}}

    return watch_of(scope, "counters" if ended is None else "counters and ends", read)


def _ends(ended: Ended | None, run_ids: list[str]) -> dict[Key, int]:
    """Return 1 for each run that has ended, else 0. A run that no longer exists counts as ended."""
    if ended is None or not run_ids:
        return {}
    found = ended(sorted(run_ids))
    return {(run_id, END): int(found.get(run_id, True)) for run_id in run_ids}
