"""Every error that this library raises on purpose.

::

    StateError
    ├── NotFound                       no object of that kind has that key
    ├── Conflict                       a valid request that the stored state no longer allows
    │   ├── AlreadyExists              the id or key is taken
    │   ├── LostRace                   another caller changed the row first
    │   ├── AlreadyAnswered            the question already has its only answer; the error carries it
    │   ├── ClaimLost                  the given claim is no longer the run's claim
    │   └── StaleVersion               the expected version, state or digest is not the stored one
    ├── InvalidValue                   a word, size or shape that may not be stored
    │   ├── PayloadTooLarge            beyond a documented limit
    │   ├── ReservedName               a name that the library keeps for itself
    │   └── UnsafePath                 a name that would leave its directory
    ├── SchemaError
    │   ├── NotMigrated                the database is behind; the error names the command
    │   ├── NewerSchema                the database is ahead of this library, which cannot read it
    │   └── SchemaMismatch             tables or definitions differ from those of the revision
    ├── CorruptData                    a stored value cannot be trusted; the library does not guess
    │   ├── FrameChainBroken           a frame cannot be rebuilt; the error says which, and why
    │   └── SealedValue                a codec sealed the stored value, and no present codec opens it
    ├── UnsavedEvents                  events in a queue that were not stored; the error returns them
    ├── BackendError                   the database or file system failed; ``__cause__`` is its own error
    │   ├── BackendBusy                still locked after every retry
    │   ├── BackendUnavailable         unreachable, full, or lost during the call
    │   └── NotSupported               this database lacks that feature
    └── MisuseError                    a call in the wrong place, or a missing extra
        ├── NestedTransaction
        ├── ReadOnlyTransaction
        └── StoreClosed

Each error survives pickling, has a stable ``code`` for programs, and its facts as attributes. No error text
carries a password or the content of a payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from lastlight_state.reprs import indented_lines, repr_of

Of = Literal["run", "fire", "agent", "receipt", "session", "delivery"]


class StateError(Exception):
    """The base of all errors of this library."""

    code: str = "state_error"

    def __init__(self, message: str = "", /, *, code: str | None = None, **facts: Any) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.__dict__.update(facts)

    @property
    def details(self) -> dict[str, Any]:
        """Return the facts of the error as a dict by name, without ``code``."""
        return {name: value for name, value in self.__dict__.items() if name != "code" and not name.startswith("_")}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(kind: type[StateError], args: tuple[Any, ...], facts: dict[str, Any]) -> StateError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class NotFound(StateError):
    """No ``kind`` has the key ``key``."""

    code = "not_found"
    kind: str
    key: Any
    reason: str | None

    def __init__(self, kind: str, key: Any, *, reason: str | None = None) -> None:
        text = f"no {kind} {repr_of(key)}" + (f": {reason}" if reason else "")
        super().__init__(text, kind=kind, key=key, reason=reason)


class Conflict(StateError):
    """A valid request that the stored state does not allow. ``code`` names the violated rule."""

    code = "conflict"


class AlreadyExists(Conflict):
    """An object of ``kind`` with the key ``key`` already exists."""

    code = "already_exists"
    kind: str
    key: Any

    def __init__(self, kind: str, key: Any, *, problem: str = "already exists", **facts: Any) -> None:
        super().__init__(f"{kind} {repr_of(key)} {problem}", kind=kind, key=key, **facts)


class LostRace(Conflict):
    """Another caller changed the row before this call could."""

    code = "lost_race"


class AlreadyAnswered(Conflict):
    """The question has already been answered. ``winner`` is the record with that answer."""

    code = "already_answered"
    winner: Any

    def __init__(self, kind: str, key: Any, *, winner: Any) -> None:
        super().__init__(f"{kind} {repr_of(key)} is already answered", kind=kind, key=key, winner=winner)


class ClaimLost(Conflict):
    """A write whose claim does not hold the run, or a write without a claim while the run is held. Nothing is written.
    With ``kind`` ``fire``, ``agent``, ``receipt``, ``session`` or ``delivery``, the id has that name, not ``run_id``.
    """

    code = "claim_lost"
    kind: str
    run_id: str
    fire_id: str
    presented: int | None
    current_epoch: int
    held_by: str | None
    status: str

    def __init__(
        self, key: str, *, presented: int | None, current_epoch: int, held_by: str | None, status: str, kind: Of = "run"
    ) -> None:
        given = f", not at {repr_of(presented, 80)}" if presented is not None else ", and no claim was given"
        at = "" if kind in ("session", "delivery") else f" at epoch {current_epoch}{given}"
        text = f"{kind} {repr_of(key)} is {status} and held by {held_by!r}{at}"
        held: dict[str, Any] = {"held_by": held_by, "status": status, f"{kind}_id": key}
        super().__init__(text, kind=kind, presented=presented, current_epoch=current_epoch, **held)


class StaleVersion(Conflict):
    """The stored state ``found`` differs from the state ``expected``, which the caller expected."""

    code = "stale_version"
    expected: Any
    found: Any

    def __init__(self, kind: str, key: Any, *, expected: Any, found: Any) -> None:
        text = f"{kind} {repr_of(key)}: expected {repr_of(expected)}, found {repr_of(found)}"
        super().__init__(text, kind=kind, key=key, expected=expected, found=found)


class InvalidValue(StateError):
    """The value of ``where`` may not be stored. ``problem`` states why."""

    code = "invalid_value"
    where: str
    problem: str

    def __init__(self, where: str, problem: str, *, permitted: Sequence[Any] | None = None, **facts: Any) -> None:
        text = f"{where}: {problem}"
        if permitted is not None:
            text += f" (permitted: {', '.join(str(word) for word in permitted)})"
            facts["permitted"] = tuple(permitted)
        super().__init__(text, where=where, problem=problem, **facts)


class PayloadTooLarge(InvalidValue):
    """The value of ``where`` has ``actual`` bytes (or entries), which is more than its ``limit``."""

    code = "payload_too_large"
    limit: int
    actual: int

    def __init__(self, where: str, *, limit: int, actual: int, unit: str = "bytes", hint: str | None = None) -> None:
        problem = f"{actual} {unit}, more than the limit of {limit}" + (f"; {hint}" if hint else "")
        super().__init__(where, problem, limit=limit, actual=actual)


class ReservedName(InvalidValue):
    """A name that only the library itself may use."""

    code = "reserved_name"


class UnsafePath(InvalidValue):
    """A name that would lead out of its directory, or that is not a safe file name."""

    code = "unsafe_path"


class SchemaError(StateError):
    """The library cannot work with the schema of the database."""

    code = "schema"


class NotMigrated(SchemaError):
    """The schema is older than needed (``found`` is None if there is none). ``command`` upgrades it.

    If only output tables or their columns are missing, ``missing`` lists them.
    """

    code = "not_migrated"
    found: str | None
    head: str
    command: str
    missing: tuple[str, ...]

    def __init__(self, *, found: str | None, head: str, command: str, missing: Sequence[str] = ()) -> None:
        state = f"at revision {found}" if found else "not migrated"
        text = f"the database is {state}, this library needs {head}; run: {command}"
        if missing:
            lines = indented_lines(missing)
            text = f"the database lacks what is defined, and this store may not add it; run: {command}{lines}"
        super().__init__(text, found=found, head=head, command=command, missing=tuple(missing))


class NewerSchema(SchemaError):
    """The schema was made by a newer library, and this version may not read it. Files have schema versions, too."""

    code = "newer_schema"
    found: str
    head: str
    min_reader: str

    def __init__(self, *, found: str, head: str, min_reader: str, what: str | None = None) -> None:
        asks = f"the database is at revision {found} and asks for a library that knows {min_reader}"
        text = asks if what is None else f"{what} has the schema version {found}"
        text += f"; this one knows {head}: upgrade lastlight-state"
        super().__init__(text, found=found, head=head, min_reader=min_reader)


class SchemaMismatch(SchemaError):
    """The schema differs from its revision; ``differences`` lists the differences.

    Codes: ``damaged``, ``collision`` (other tables have our names), ``unfinished_copy``, ``unreleased``.
    """

    code = "schema_mismatch"
    differences: tuple[Any, ...]

    def __init__(self, message: str, *, differences: Sequence[object] = (), code: str | None = None) -> None:
        super().__init__(message + indented_lines(differences), code=code, differences=tuple(differences))


class CorruptData(StateError):
    """The stored value of ``column`` cannot be read. The library does not replace it by a guess."""

    code = "corrupt_data"
    table: str
    key: Any
    column: str

    def __init__(self, table: str, key: Any, column: str, *, problem: str = "cannot be read") -> None:
        super().__init__(f"{table}.{column} of {repr_of(key)} {problem}", table=table, key=key, column=column)


class FrameChainBroken(CorruptData):
    """The frame cannot be rebuilt as it was stored. ``frame_no`` is the number of the damaged row.

    ``reason`` is ``no_anchor``, ``missing_frame``, ``bad_delta``, ``hash_mismatch`` or ``unreadable``.
    """

    code = "frame_chain_broken"
    run_id: str
    frame_no: int
    reason: str

    def __init__(self, run_id: str, frame_no: int, reason: str) -> None:
        super().__init__("run_frames", (run_id, frame_no), "body", problem=f"does not rebuild the frame: {reason}")
        self.run_id, self.frame_no, self.reason = run_id, frame_no, reason


class UnsavedEvents(StateError):
    """Queued events are not stored: ``failures`` were given up, each with its error; ``waiting`` are still queued."""

    code = "unsaved_events"
    failures: tuple[tuple[Any, Exception], ...]
    waiting: tuple[Any, ...]
    listener_errors: tuple[Exception, ...]


class SealedValue(CorruptData):
    """The stored value of ``column`` cannot be opened: the right codec is missing, or this version cannot open it.

    ``key_id`` is the id of its key. It is empty if the value is not sealed and the store refuses such values.
    """

    code = "sealed_value"
    key_id: str

    def __init__(self, problem: str, *, key_id: str, table: str = "", key: Any = None, column: str = "") -> None:
        super().__init__(table, key, column, problem=problem)
        self.key_id = key_id
        self._problem = problem

    def of(self, table: str, key: Any, column: str) -> SealedValue:
        """Return the error with the location of the value, which the converter did not know."""
        return type(self)(self._problem, key_id=self.key_id, table=table, key=key, column=column)


class BackendError(StateError):
    """The database or file system raised ``__cause__``. ``outcome``: ``"none"`` (nothing written) or ``"unknown"``."""

    code = "backend"
    outcome: str = "none"


class BackendBusy(BackendError):
    """Other connections held the locks for longer than all retries lasted."""

    code = "backend_busy"


class BackendUnavailable(BackendError):
    """The database cannot be reached, is full, or was lost during the call."""

    code = "backend_unavailable"

    def __init__(self, message: str, *, outcome: str = "none", **facts: Any) -> None:
        super().__init__(message, outcome=outcome, **facts)


class NotSupported(BackendError):
    """This database, or this version of it, does not support the call."""

    code = "not_supported"


class MisuseError(StateError):
    """A call that is not allowed here, or that needs an extra which is not installed."""

    code = "misuse"

    @classmethod
    def missing_extra(cls, extra: str, *, what: str) -> Self:
        """Return the error for a feature whose optional library is not installed."""
        return cls(f"{what} needs an optional library: pip install 'lastlight-state[{extra}]'", extra=extra)


class NestedTransaction(MisuseError):
    """A transaction or a call on the store was begun inside a transaction of the same thread or task."""

    code = "nested_transaction"


class ReadOnlyTransaction(MisuseError):
    """A write was tried through a store, view or transaction that may only read."""

    code = "read_only"


class StoreClosed(MisuseError):
    """The store (or log writer) was closed before this call."""

    code = "store_closed"
