"""A page that merges several ranges of an index. Its SQL is made from the compiled text of one range.

The ranges of a page differ in one value only. SQLAlchemy compiles the first range, with *marks* in place of the words,
the value and the limit. The page repeats this text, with the marks replaced by each range's own values. Compiling every
range would take fifty times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import sqlalchemy as sa

from lastlight_state.backends.base import Backend
from lastlight_state.db.rows.compiled import Compiled
from lastlight_state.db.rows.parameters import Bound, Gather
from lastlight_state.db.rows.statements import quote_word
from lastlight_state.db.schema import columns

#: The character around a mark. No statement contains it.
_EDGE = "\x1e"
#: The name of the limit's mark. No filter has this name.
_LIMIT = "limit of the page"

V = TypeVar("V")


class Leader(NamedTuple):
    """The filter whose values are read as separate index ranges, given by the conditions of its first value.

    ``parameters`` are the names of one value's parameters, without their numeric suffix. ``worded`` means that the
    value is a word of a vocabulary.
    """

    name: str
    conditions: Sequence[sa.ColumnElement[bool]]
    parameters: tuple[str, ...] = ()
    worded: bool = False


def words_of(name: str) -> sa.ColumnElement[str]:
    """Return the mark that stands for words of a vocabulary.

    The words are written into the SQL text, so that a partial index can be used.
    """
    return sa.literal_column(f"{_EDGE}{name}{_EDGE}", columns.Text)


def limit_mark() -> sa.ColumnElement[int]:
    """Return the mark for the limit, which is written into the SQL as `number` writes it."""
    return sa.literal_column(f"{_EDGE}{_LIMIT}{_EDGE}", sa.Integer)


class Form:
    """The SQL text of a page on one backend, with marks.

    Pages made from it differ in words, limit and number of ranges. ``ranges`` are the statements for one value of the
    leader. ``key`` names the columns by which ranges are merged.
    """

    def __init__(
        self,
        ranges: Sequence[sa.Executable],
        leader: Leader | None,
        key: Sequence[str],
        backend: Backend,
        *,
        descending: bool,
    ) -> None:
        compiled = [Compiled(element, backend) for element in ranges]
        quote = backend.dialect.identifier_preparer.quote
        self._leader = leader
        self._shown = ", ".join(map(quote, compiled[0].names))
        self._order = ", ".join(f"{quote(name)} {'DESC' if descending else 'ASC'}" for name in key)
        self._first = compiled[0]
        self._bound = [each.bound for each in compiled]
        self._texts = [self._mark_parameters(each).split(_EDGE) for each in compiled]
        self._gathers: dict[int, Gather] = {}
        self.size = sum(each.size for each in compiled)

    def fill_page(self, words: Mapping[str, Sequence[str]], values: int, limit: int) -> Compiled:
        """Return the page for these words, this number of the leader's values, and this limit."""
        filled = {name: ", ".join(map(quote_word, several)) for name, several in words.items()}
        filled[_LIMIT] = str(int(limit))
        texts = [self._text(at, {**filled, **own}) for at, own in self._each_range(words, values)]
        if len(texts) == 1:
            return self._first.rewritten(texts[0], self._first.parameters)
        shown = f"SELECT {self._shown} FROM"
        merged = " UNION ALL ".join(f"{shown} ({text}) AS anon_{i + 2}" for i, text in enumerate(texts))
        page = f"{shown} ({merged}) AS anon_1 ORDER BY {self._order} LIMIT {int(limit)}"
        return self._first.rewritten(page, self._gather(len(texts) // len(self._texts)))

    def _each_range(self, words: Mapping[str, Sequence[str]], values: int) -> Iterator[tuple[int, Mapping[str, str]]]:
        """Yield each range of the page: the index of its text, and the replacements for the marks of its value."""
        leader, texts = self._leader, range(len(self._texts))
        if leader is not None and leader.worded:
            yield from ((0, {leader.name: quote_word(word)}) for word in words[leader.name])
            return
        template = self._bound[0].template
        for i in range(values):
            own = {f"{name}_0": template % {"name": f"{name}_{i}"} for name in leader.parameters} if leader else {}
            yield from ((at, own) for at in texts)

    def _text(self, at: int, filled: Mapping[str, str]) -> str:
        parts = self._texts[at]
        return "".join(filled[part] if i % 2 else part for i, part in enumerate(parts))

    def _mark_parameters(self, compiled: Compiled) -> str:
        """Return the text of a range in which the named parameters of its value are replaced by marks."""
        bound, text = compiled.bound, compiled.sql
        for name in () if self._leader is None or bound.by_position else self._leader.parameters:
            text = text.replace(bound.template % {"name": f"{name}_0"}, f"{_EDGE}{name}_0{_EDGE}")
        return text

    def _gather(self, values: int) -> Gather:
        """Return the cached function that makes the parameters for this number of values, rounded up by the caller."""
        found = self._gathers.get(values)
        if found is None:
            bound = self._bound_of(values)
            found = self._gathers[values] = bound.gather()
        return found

    def _bound_of(self, values: int) -> Bound:
        own = () if self._leader is None else self._leader.parameters
        names = [{f"{name}_0": f"{name}_{i}" for name in own} for i in range(values)]
        each = [(bound, renamed) for renamed in names for bound in self._bound]
        return self._bound[0]._replace(
            order=tuple(renamed.get(name, name) for bound, renamed in each for name in bound.order),
            types=_rename_keys((bound.types, renamed) for bound, renamed in each),
            converters=_rename_keys((bound.converters, renamed) for bound, renamed in each),
            constants=_rename_keys((bound.constants, renamed) for bound, renamed in each),
        )


def _rename_keys(each: Iterable[tuple[Mapping[str, V], Mapping[str, str]]]) -> dict[str, V]:
    return {renamed.get(name, name): value for found, renamed in each for name, value in found.items()}
