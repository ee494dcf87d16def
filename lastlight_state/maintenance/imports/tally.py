"""Counts what an import does, or in a dry run would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from lastlight_state.db.news.listeners import message_of
from lastlight_state.errors import BackendError, ClaimLost, InvalidValue, MisuseError, SchemaError, StateError
from lastlight_state.maintenance.imports.foreign import SourceWritten
from lastlight_state.maintenance.imports.pieces import (
    STORED,
    FailedUnit,
    ImportConflict,
    ImportReport,
    OtherSource,
    Read,
    SourceUnit,
)
from lastlight_state.receipts import Receipt

#: How many failed units a report names at most, and how many conflicts.
NAMED = 500
#: How often a source may be opened that is written again and again.
_OPENINGS = 100

_UNITS, _ROWS, _NOTICED = "units.", "rows.", "noticed."


class Outcome(NamedTuple):
    """The result of a unit: its outcome, rows counted by table, counts for ``noticed``, and differences that stay."""

    outcome: str
    rows: Counter[str]
    noticed: Counter[str]
    kept: Sequence[str] = ()


class Tally:
    """The counts, failures and conflicts of an import so far."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._left: Counter[str] = Counter()  # parts that are not units, since the last opening
        self.failures: list[FailedUnit] = []
        self.conflicts: list[ImportConflict] = []
        self.keys: set[str] = set()
        #: Paths from which the source has moved, as its units show. And how many were known when a unit was refused.
        self.moved: set[str] = set()
        self._refused: dict[str, int] = {}
        #: Whether the source was written while it was read; units read since the last opening; number of openings.
        self.is_disturbed, self._read, self._openings = False, 0, 0

    def add(self, part: SourceUnit, treat: Callable[[Read], Outcome]) -> None:
        """Import a unit by calling ``treat``, and count its outcome. A part that is not a unit is only counted."""
        self.keys.add(part.key)
        if part.read is None:
            name = f"{_NOTICED}{part.key}_left" if part.left else f"{_UNITS}ignored"
            self._left[name] += part.left or 1
            return
        try:
            done = treat(part.read)
            self.counts = self.with_(done)
            named = [ImportConflict(unit=part.key, kept=one) for one in done.kept]
            self.conflicts += named[: NAMED - len(self.conflicts)]
        except (ClaimLost, BackendError, MisuseError, SchemaError):
            raise
        except RecursionError:
            self._fail(part, InvalidValue("unit", "is nested too deeply"))
        except SourceWritten as error:
            self.is_disturbed = self._read > 0 and self.may_open_again
            if self.is_disturbed:  # the unit is read again
                self.keys.discard(part.key)
            else:
                self._fail(part, error)
        except OtherSource as error:
            self._refused[part.key] = len(self.moved)
            self._fail(part, error)
        except (StateError, OSError) as error:
            self._fail(part, error)
        self._read += 1

    def _fail(self, part: SourceUnit, error: Exception) -> None:
        self.counts[f"{_UNITS}failed"] += 1
        if len(self.failures) < NAMED:
            code = getattr(error, "code", "os_error")
            self.failures.append(FailedUnit(unit=part.key, code=code, reason=message_of(error)))

    def takes_back(self) -> bool:
        """Discard refusals of units that came before a later unit showed from where the source has moved.

        Returns True if there are any, because these units must be read again.
        """
        early = {key for key, known in self._refused.items() if known < len(self.moved)}
        self.counts[f"{_UNITS}failed"] -= len(early)
        self.failures = [one for one in self.failures if one.unit not in early]
        self.keys -= early
        self._refused.clear()
        return bool(early)

    @property
    def may_open_again(self) -> bool:
        """True if a source that changed while it was read may be opened once more."""
        return self._openings < _OPENINGS

    def again(self) -> None:
        """Reset the counts that belong to one opening, because the source was opened again."""
        self.is_disturbed, self._read, self._openings = False, 0, self._openings + 1
        self._left.clear()

    def name_unknown(self, names: Iterable[str]) -> None:
        """Record a failure for each name in ``revive`` that is not a unit of the source."""
        for one in names:
            if one not in self.keys:
                problem = InvalidValue("revive", f"expected the name of a unit of this source, got {one!r:.200}")
                self._fail(SourceUnit(one, None), problem)

    @property
    def stored_count(self) -> int:
        """Return how many units were stored, or in a dry run would be stored."""
        return sum(self.counts[_UNITS + outcome] for outcome in STORED)

    def with_(self, done: Outcome) -> Counter[str]:
        """Return the counts with one more outcome added."""
        outcome, rows, noticed, _ = done
        found = {_ROWS + name: n for name, n in rows.items()} | {_NOTICED + name: n for name, n in noticed.items()}
        return self.counts + Counter(found) + Counter({_UNITS + outcome: 1})

    @property
    def whole(self) -> Counter[str]:
        """Return all counts, including those of parts that are not units."""
        return self.counts + self._left

    def report(self, kind: str, receipt: Receipt | None) -> ImportReport:
        """Return the counts, failures and conflicts as a report."""
        units, rows, noticed = (dict(sorted(self._under(name))) for name in (_UNITS, _ROWS, _NOTICED))
        return ImportReport(
            kind=kind,
            units=units,
            rows=rows,
            noticed=noticed,
            failures=tuple(self.failures),
            receipt=receipt,
            conflicts=tuple(self.conflicts),
        )

    def _under(self, prefix: str) -> Iterator[tuple[str, int]]:
        return ((name.removeprefix(prefix), n) for name, n in self.whole.items() if name.startswith(prefix))
