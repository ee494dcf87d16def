"""Exact similarity scores between embeddings and a query vector. A higher score means nearer.

If numpy is installed, approximate scores first exclude most candidates. The remaining candidates are scored exactly as
without numpy. So results, order and scores are the same with and without numpy.
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

# The binary form of embeddings: little-endian 32-bit floats without a header, on every machine.

WIDTH = 4


def pack_vector(where: str, vector: Any, *, most: int) -> bytes:
    """Convert a vector to bytes. The vector is a sequence of finite numbers, or a buffer that already has these bytes.

    Raises `InvalidValue` for NaN, infinities, numbers beyond 32-bit floats, booleans, an empty vector, more than
    ``most`` numbers, and bytes whose length is no multiple of 4.
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
    """Convert the bytes of a stored embedding to a tuple of floats."""
    return struct.unpack(f"<{len(data) // WIDTH}f", data)


def pack(numbers: Sequence[float]) -> bytes:
    """Return the bytes of the numbers that `unpack` returned."""
    return struct.pack(f"<{len(numbers)}f", *numbers)


def norm(numbers: Sequence[float]) -> float:
    """Return the Euclidean length (norm) of a vector."""
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
    except (OverflowError, struct.error):  # struct.error: an integer that no float can hold
        raise InvalidValue(where, "must be within the range of 32 bits") from None


#: Upper bound of the error of numpy's sums, relative to the lengths of the vectors. Far above the real error.
_SLACK = 1e-9


class Ordered(Protocol):
    """A hashable key that can be sorted: an id, or the position of an item."""

    def __lt__(self, other: Any, /) -> bool: ...
    def __hash__(self) -> int: ...


K = TypeVar("K", bound=Ordered)


class Candidate(NamedTuple, Generic[K]):
    """A vector to compare with a query: its id, its bytes, and its norm.

    If the norm is None, it is computed when needed.
    """

    key: K
    packed: bytes
    norm: float | None = None


class Query:
    """A query vector with its metric: ``cosine``, ``dot`` product, or negated ``l2`` distance."""

    def __init__(self, packed: bytes, metric: Metric) -> None:
        self.packed = packed
        self.metric = metric
        self._numbers = unpack(packed)
        self.norm = norm(self._numbers)

    def scores(self, given: Iterable[Candidate[K]], floor: float, most: int) -> Iterator[tuple[K, float]]:
        """Yield ids and scores of candidates: at least the ``most`` best ones, and none with a score below ``floor``.

        Vectors of another length and vectors with NaN or infinities are left out; with the cosine metric, zero vectors
        are, too.
        """
        candidates = [one for one in given if len(one.packed) == len(self.packed)]
        for one in self._likely(candidates, floor, most):
            score = self._score(one)
            if isfinite(score) and score >= floor:
                yield one.key, score

    def _score(self, one: Candidate[K]) -> float:
        numbers = unpack(one.packed)
        if self.metric == "l2":
            return -dist(self._numbers, numbers)
        dot: float = sum(map(mul, self._numbers, numbers))
        if self.metric == "dot":
            return dot
        lengths = self.norm * (norm(numbers) if one.norm is None else one.norm)
        return dot / lengths if lengths else -inf

    def _likely(self, candidates: Sequence[Candidate[K]], floor: float, most: int) -> Sequence[Candidate[K]]:
        """Return the candidates that may be among the ``most`` best. Without numpy, return all candidates."""
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
        """Return approximate scores of the rows, and upper bounds of the errors of these scores.

        ``norms`` may contain None.
        """
        query = numpy.array(self._numbers)
        if self.metric == "l2":
            apart = rows - query
            distances = numpy.sqrt(numpy.einsum("ij,ij->i", apart, apart))
            return -distances, _SLACK * distances
        known = None not in norms
        lengths = numpy.array(norms) if known else numpy.sqrt(numpy.einsum("ij,ij->i", rows, rows))
        lengths = lengths * self.norm
        dots = rows @ query
        return (dots, _SLACK * lengths) if self.metric == "dot" else (dots / lengths, _SLACK)

    def bounds(self, numpy: Any, rows: Any, norms: Any, is_sure: Any) -> tuple[Any, Any]:
        """Return a lower and an upper bound for the score of each 32-bit row.

        The bounds of a row whose ``is_sure`` is False are minus and plus infinity.
        """
        dots = (rows @ numpy.frombuffer(self.packed, "<f4")).astype("f8")
        lengths = norms * self.norm
        off = (len(self._numbers) + 8) * _UNIT * lengths
        if self.metric == "l2":
            squares = norms * norms + self.norm * self.norm
            apart, off = squares - 2 * dots, 2 * off + _SLACK * squares
            low, high = -numpy.sqrt(apart + off), -numpy.sqrt(numpy.maximum(apart - off, 0))
        elif self.metric == "dot":
            low, high = dots - off, dots + off
        else:
            low, high = (dots - off) / lengths, (dots + off) / lengths
        is_known = is_sure & numpy.isfinite(low) & numpy.isfinite(high)
        if self.norm and not _SHORTEST < self.norm < _LONGEST:
            is_known[:] = False
        return numpy.where(is_known, low, -inf), numpy.where(is_known, high, inf)


class Best(Generic[K]):
    """Collects the best of many scored ids. Each id is kept once, with its best score; equal scores sort by id."""

    def __init__(self, most: int, least: float | None) -> None:
        self._most = most
        self._least = -inf if least is None else least
        self._found: list[tuple[float, K]] = []

    def take(self, query: Query, candidates: Iterable[Candidate[K]], *, of_each: int = 1) -> None:
        """Score more candidates and keep the best. The same id may occur up to ``of_each`` times among them."""
        scored = {key: -negated for negated, key in self._found}
        for key, score in query.scores(candidates, self._floor, self._most * of_each):
            if score > scored.get(key, -inf):
                scored[key] = score
        self._found = sorted((-score, key) for key, score in scored.items())[: self._most]

    @property
    def scored_keys(self) -> list[tuple[K, float]]:
        """Return the kept ids with their scores, best first."""
        return [(key, -negated) for negated, key in self._found]

    @property
    def _floor(self) -> float:
        """Return the least score that another vector needs in order to be kept."""
        return max(self._least, -self._found[-1][0]) if len(self._found) == self._most else self._least


#: Relative error bound of one 32-bit product or sum, doubled because the order of summation is unknown.
_UNIT = 2.0**-23
#: The least and greatest vector length whose products neither underflow nor overflow in 32 bits.
_SHORTEST, _LONGEST = 1e-12, 1e18
#: Most bytes of embeddings that are scored in one batch.
_TOGETHER_BYTES = 4 * 1024 * 1024


class Matrix(Generic[K]):
    """Embeddings of one length, kept in memory with their ids and norms. Needs numpy.

    Approximate 32-bit scores exclude rows that are surely not among the best. The remaining rows are scored exactly, so
    a search finds the same ids and scores as a search that reads rows from the database.
    """

    def __init__(self, numpy: Any, rows: int, dimensions: int) -> None:
        self._numpy = numpy
        self._rows = numpy.empty((rows, dimensions), "<f4")
        self._norms = numpy.empty(rows, "f8")
        #: True for a row whose stored norm is right, and whose length can be multiplied in 32 bits.
        self._is_sure = numpy.zeros(rows, "?")
        self._keys: list[K] = []
        self._key_bytes = 0

    @property
    def is_full(self) -> bool:
        """True if every row has an embedding."""
        return len(self._keys) == len(self._rows)

    @property
    def size(self) -> int:
        """Return the approximate memory size of the matrix in bytes."""
        arrays: int = self._rows.nbytes + self._norms.nbytes + self._is_sure.nbytes
        return arrays + self._key_bytes + 8 * len(self._keys)

    def add(self, candidates: Sequence[Candidate[K]]) -> bool:
        """Store embeddings in the next free rows, and return True.

        If an embedding has another length or no norm, or if there are too few free rows, store none and return False.
        """
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
        """Return the ids of the ``most`` best rows with their scores, none below ``least``.

        ``among`` is an array of the rows to search (None: all rows).
        """
        found = Best[K](most, least)
        likely = self._likely(query, most, -inf if least is None else least, among)
        together = max(1, _TOGETHER_BYTES // len(query.packed))
        for first in range(0, len(likely), together):
            found.take(query, [self._candidate(at) for at in likely[first : first + together].tolist()])
        return found.scored_keys

    def _candidate(self, at: int) -> Candidate[K]:
        return Candidate(self._keys[at], self._rows[at].tobytes(), float(self._norms[at]))

    def _likely(self, query: Query, most: int, floor: float, among: Any) -> Any:
        """Return the numbers of the rows that may be among the ``most`` best."""
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
    """Return the numpy module, or None if it is not installed."""
    try:
        return load("numpy")
    except ImportError:
        return None
