"""How near embeddings are to a query: exact scores, greater is nearer.

With numpy, most candidates are left out by scores that are a little off; those that may be among the best are scored
as without it. So both ways find the same, in the same order and with the same scores.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from math import dist, inf, isfinite, sqrt
from operator import mul
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from lastlight_state.conversations.words import Metric
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue
from lastlight_state.lazy import load

# Embeddings as bytes: little-endian numbers of 32 bits, without a header, on any machine.

_WIDTH = 4


def packed(where: str, vector: Any, *, most: int) -> bytes:
    """Return the bytes of a vector: of a sequence of finite numbers, or of a buffer of such bytes.

    NaN, infinities, numbers beyond 32 bits, booleans, an empty vector and an odd number of bytes are `InvalidValue`.
    """
    if isinstance(vector, bytes | bytearray | memoryview):
        data = bytes(vector)
        if not data or len(data) % _WIDTH:
            raise InvalidValue(where, f"{len(data)} bytes: expected a multiple of {_WIDTH}, and not 0")
        unpacked = unpack(data)
        if not all(map(isfinite, unpacked)):
            raise InvalidValue(where, "expected a finite number, got NaN or infinity")
    else:
        data = _of_numbers(where, vector)
    valid.number(f"{where} dimensions", len(data) // _WIDTH, least=1, most=most)
    return data


def unpack(data: bytes) -> tuple[float, ...]:
    """Return the numbers of a stored embedding."""
    return struct.unpack(f"<{len(data) // _WIDTH}f", data)


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
        numpy = _library()
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


def _library() -> Any:
    """numpy, if it is installed."""
    try:
        return load("numpy")
    except ImportError:
        return None
