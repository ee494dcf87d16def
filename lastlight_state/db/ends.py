"""How a unit ends: its commit, what its error says, and what waited for its commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from lastlight_state.backends.base import Checkout
from lastlight_state.db.unit import Unit
from lastlight_state.errors import BackendUnavailable, MisuseError, StateError
from lastlight_state.metrics import Metrics

_log = logging.getLogger("lastlight_state.db")


def end_reading(checkout: Checkout) -> None:
    """End the transaction of a unit that only read. If the connection was lost, nothing else was."""
    if checkout.undone:  # by a session of the caller's
        return
    try:
        checkout.backend.commit(checkout)
    except BackendUnavailable:
        checkout.broken = True


def complete(unit: Unit) -> None:
    """Commit a block's transaction, or end one that only read."""
    if unit.checkout.mode.writes:
        refuse_dead(unit)
        unit.backend.commit(unit.checkout)
    else:
        end_reading(unit.checkout)


def labelled(error: BaseException, label: str | None) -> None:
    """Name the transaction in the text of one of our errors, and in a note of any other exception."""
    said = f"in the transaction {label!r}"
    if label is None or said in str(error) or said in getattr(error, "__notes__", ()):
        return
    if isinstance(error, StateError):
        error.args = (f"{error} ({said})",)
    else:
        error.add_note(said)


def refuse_dead(unit: Unit) -> None:
    """Raise for a transaction that ended or failed before its block did: what follows would not be part of it."""
    if unit.checkout.undone:
        raise MisuseError("this transaction was rolled back inside its block, and nothing of it can be committed")
    if unit.checkout.gone or not unit.backend.alive(unit.checkout):
        raise MisuseError("this transaction failed or was ended inside its block: nothing more of it can be committed")


def run_hooks(hooks: Sequence[Callable[[], object]], metrics: Metrics, label: str | None = None) -> None:
    """Run what waited for the commit, in order. An exception is logged and counted: the commit stands."""
    for hook in hooks:
        try:
            hook()
        except Exception:  # noqa: BLE001 - the commit stands
            metrics.count("failed_hooks", label=label)
            _log.exception("an after-commit hook failed%s", f" of the transaction {label!r}" if label else "")
