"""How near embeddings are to a query: exact scores, greater is nearer.

With numpy, most candidates are left out by scores that are a little off; those that may be among the best are scored
as without it. So both ways find the same, in the same order and with the same scores.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from math import dist, inf, isfinite, sqrt
from operator import mul
from sys import getsizeof
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from lastlight_state.conversations.words import Metric
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue
from lastlight_state.lazy import load

# Embeddings as bytes: little-endian numbers of 32 bits, without a header, on any machine.

WIDTH = 4


def packed(where: str, vector: Any, *, most: int) -> bytes:
    """Return the bytes of a vector: of a sequence of finite numbers, or of a buffer of such bytes.

    NaN, infinities, numbers beyond 32 bits, booleans, an empty vector and an odd number of bytes are `InvalidValue`.
    """
    if isinstance(vector, bytes | bytearray | memoryview):
        data = bytes(vector)
        if not data or len(data) % WIDTH:
            raise InvalidValue(where, f"{len(data)} bytes: expected a multiple of {WIDTH}, and not 0")
        unpacked = unpack(data)
        if not all(map(isfinite, unpacked)):
            raise InvalidValue(where, "expected a finite number, got NaN or infinity")
    else:
        data = _of_numbers(where, vector)
    valid.number(f"{where} dimensions", len(data) // WIDTH, least=1, most=most)
    return data


def unpack(data: bytes) -> tuple[float, ...]:
    """Return the numbers of a stored embedding."""
    return struct.unpack(f"<{len(data) // WIDTH}f", data)


def norm(numbers: Sequence[float]) -> float:
    """Return the length of a vector."""
    return sqrt(sum(map(mul, numbers, numbers)))


def _of_numbers(where: str, vector: Any) -> bytes:
    if isinstance(vector, str) or not isinstance(vector, Sequence):
        raise InvalidValue(where, f"expected a sequence of numbers, got {type(vector).__name__}")
    for i, number in enumerate(vector):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InvalidValue(f"{where}[{i}]", f"expected a number, got {type(number).__name__}")
        if isinstance(number, float) and not isfinite(number):
            raise InvalidValue(f"{where}[{i}]", "expected a finite number, got NaN or infinity")
    try:
        return struct.pack(f"<{len(vector)}f", *vector)
    except (OverflowError, struct.error):  # the second for an integer that no float holds
        raise InvalidValue(where, "must be within the range of 32 bits") from None


#: Far more than numpy's sums are off, in parts of the lengths of the vectors.
_SLACK = 1e-9


class Ordered(Protocol):
    """A key that has an order: an id, or where an item is."""

    def __lt__(self, other: Any, /) -> bool: ...
    def __hash__(self) -> int: ...


K = TypeVar("K", bound=Ordered)


class Candidate(NamedTuple, Generic[K]):
    """A vector to compare, by its id. Its norm is computed where it is not known."""

    key: K
    packed: bytes
    norm: float | None = None


class Query:
    """A vector to which others are compared: by ``cosine``, by ``dot`` product, or by ``l2`` distance, negated."""

    def __init__(self, packed: bytes, metric: Metric) -> None:
        self.packed = packed
        self._metric = metric
        self._numbers = unpack(packed)
        self.norm = norm(self._numbers)

    def scores(self, given: Iterable[Candidate[K]], floor: float, most: int) -> Iterator[tuple[K, float]]:
        """Yield the scores of candidates, the ``most`` best at least, and none below ``floor``.

        Vectors of another length have none, nor under cosine those that are zero, nor those with NaN or infinities.
        """
        candidates = [one for one in given if len(one.packed) == len(self.packed)]
        for one in self._likely(candidates, floor, most):
            score = self._score(one)
            if isfinite(score) and score >= floor:
                yield one.key, score

    def _score(self, one: Candidate[K]) -> float:
        numbers = unpack(one.packed)
        if self._metric == "l2":
            return -dist(self._numbers, numbers)
        dot: float = sum(map(mul, self._numbers, numbers))
        if self._metric == "dot":
            return dot
        lengths = self.norm * (norm(numbers) if one.norm is None else one.norm)
        return dot / lengths if lengths else -inf

    def _likely(self, candidates: Sequence[Candidate[K]], floor: float, most: int) -> Sequence[Candidate[K]]:
        """Return the candidates that may be among the ``most`` best; without numpy all."""
        numpy = numeric_library()
        if numpy is None or len(candidates) <= most:
            return candidates
        rows = numpy.frombuffer(b"".join(one.packed for one in candidates), dtype="<f4")
        rows = rows.reshape(len(candidates), -1).astype("f8")
        with numpy.errstate(all="ignore"):
            scores, off = self._about(numpy, rows, [one.norm for one in candidates])
            sound = numpy.isfinite(scores)
            least = (scores - off)[sound]
            if len(least) > most:
                floor = max(floor, numpy.partition(least, -most)[-most])
            kept = sound & (scores + off >= floor)
        return [candidates[at] for at in numpy.flatnonzero(kept)]

    def _about(self, numpy: Any, rows: Any, norms: list[float | None]) -> tuple[Any, Any]:
        """Return the scores of rows, and how far they may be off."""
        query = numpy.array(self._numbers)
        if self._metric == "l2":
            apart = rows - query
            distances = numpy.sqrt(numpy.einsum("ij,ij->i", apart, apart))
            return -distances, _SLACK * distances
        known = None not in norms
        lengths = numpy.array(norms) if known else numpy.sqrt(numpy.einsum("ij,ij->i", rows, rows))
        lengths = lengths * self.norm
        dots = rows @ query
        return (dots, _SLACK * lengths) if self._metric == "dot" else (dots / lengths, _SLACK)

    def bounds(self, numpy: Any, rows: Any, norms: Any, is_sure: Any) -> tuple[Any, Any]:
        """Return between which scores those of rows of 32 bits are. Nothing is known of rows that are not sure."""
        dots = (rows @ numpy.frombuffer(self.packed, "<f4")).astype("f8")
        lengths = norms * self.norm
        off = (len(self._numbers) + 8) * _UNIT * lengths
        if self._metric == "l2":
            squares = norms * norms + self.norm * self.norm
            apart, off = squares - 2 * dots, 2 * off + _SLACK * squares
            low, high = -numpy.sqrt(apart + off), -numpy.sqrt(numpy.maximum(apart - off, 0))
        elif self._metric == "dot":
            low, high = dots - off, dots + off
        else:
            low, high = (dots - off) / lengths, (dots + off) / lengths
        is_known = is_sure & numpy.isfinite(low) & numpy.isfinite(high)
        if self.norm and not _SHORTEST < self.norm < _LONGEST:
            is_known[:] = False
        return numpy.where(is_known, low, -inf), numpy.where(is_known, high, inf)


class Best(Generic[K]):
    """The best of many scored ids, each once, with its best score. Where scores are equal, the id decides."""

    def __init__(self, most: int, least: float | None) -> None:
        self._most = most
        self._least = -inf if least is None else least
        self._found: list[tuple[float, K]] = []

    def take(self, query: Query, candidates: Iterable[Candidate[K]], *, of_each: int = 1) -> None:
        """Look at some more, in which an id may stand ``of_each`` times."""
        scored = {key: -negated for negated, key in self._found}
        for key, score in query.scores(candidates, self._floor, self._most * of_each):
            if score > scored.get(key, -inf):
                scored[key] = score
        self._found = sorted((-score, key) for key, score in scored.items())[: self._most]

    @property
    def found(self) -> list[tuple[K, float]]:
        """Return ids and scores, the best first."""
        return [(key, -negated) for negated, key in self._found]

    @property
    def _floor(self) -> float:
        """Return the score that a vector must have to be among the best."""
        return max(self._least, -self._found[-1][0]) if len(self._found) == self._most else self._least


#: Parts of the lengths by which one product or sum of 32 bits may be off; twice that, as the order of sums is unknown.
_UNIT = 2.0**-23
#: The lengths of vectors whose products neither vanish nor overflow in 32 bits.
_SHORTEST, _LONGEST = 1e-12, 1e18
#: Of the embeddings that are scored together.
_TOGETHER_BYTES = 4 * 1024 * 1024


class Matrix(Generic[K]):
    """Embeddings of one length, held in memory with their ids and norms. Needs numpy.

    Scores in numbers of 32 bits leave out what is surely not among the best. The others are scored as they are where
    they are read one by one: a search finds the same ids with the same scores.
    """

    def __init__(self, numpy: Any, rows: int, dimensions: int) -> None:
        self._numpy = numpy
        self._rows = numpy.empty((rows, dimensions), "<f4")
        self._norms = numpy.empty(rows, "f8")
        #: Whether the norm is that of the vector, and of a length that 32 bits can multiply.
        self._is_sure = numpy.zeros(rows, "?")
        self._keys: list[K] = []
        self._key_bytes = 0

    @property
    def is_full(self) -> bool:
        """True if there is an embedding in each row."""
        return len(self._keys) == len(self._rows)

    @property
    def size(self) -> int:
        """Return about how many bytes it takes."""
        arrays: int = self._rows.nbytes + self._norms.nbytes + self._is_sure.nbytes
        return arrays + self._key_bytes + 8 * len(self._keys)

    def add(self, candidates: Sequence[Candidate[K]]) -> bool:
        """Put embeddings into the next rows; False, with none of them, where one has another length or no norm."""
        numpy, first = self._numpy, len(self._keys)
        within = slice(first, first + len(candidates))
        if within.stop > len(self._rows) or any(
            one.norm is None or len(one.packed) != WIDTH * self._rows.shape[1] for one in candidates
        ):
            return False
        packed = numpy.frombuffer(b"".join(one.packed for one in candidates), "<f4")
        self._rows[within] = rows = packed.reshape(len(candidates), -1)
        self._norms[within] = norms = numpy.array([one.norm for one in candidates])
        with numpy.errstate(all="ignore"):
            lengths = numpy.sqrt(numpy.einsum("ij,ij->i", rows, rows, dtype="f8"))
            is_true = numpy.abs(norms - lengths) <= _SLACK * lengths
            self._is_sure[within] = is_true & ((norms == 0) | ((norms > _SHORTEST) & (norms < _LONGEST)))
        keys = [one.key for one in candidates]
        self._key_bytes += sum(map(getsizeof, keys))
        self._keys += keys
        return True

    def best(self, query: Query, most: int, least: float | None, among: Any = None) -> list[tuple[K, float]]:
        """Return the ``most`` best ids with their scores, none below ``least``: of all rows, or ``among`` some."""
        found = Best[K](most, least)
        likely = self._likely(query, most, -inf if least is None else least, among)
        together = max(1, _TOGETHER_BYTES // len(query.packed))
        for first in range(0, len(likely), together):
            found.take(query, [self._candidate(at) for at in likely[first : first + together].tolist()])
        return found.found

    def _candidate(self, at: int) -> Candidate[K]:
        return Candidate(self._keys[at], self._rows[at].tobytes(), float(self._norms[at]))

    def _likely(self, query: Query, most: int, floor: float, among: Any) -> Any:
        """Return the rows that may be among the best."""
        numpy = self._numpy
        rows = numpy.arange(len(self._rows)) if among is None else among
        if len(rows) <= most:
            return rows
        with numpy.errstate(all="ignore"):
            lows, highs = query.bounds(numpy, self._rows, self._norms, self._is_sure)
        if among is not None:
            lows, highs = lows[among], highs[among]
        floor = max(floor, float(numpy.partition(lows, -most)[-most]))
        return rows[highs >= floor]


def numeric_library() -> Any:
    """Return numpy, if it is installed, or None."""
    try:
        return load("numpy")
    except ImportError:
        return None
