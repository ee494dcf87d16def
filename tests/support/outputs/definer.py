"""Defines an output in a process of its own."""

from __future__ import annotations

import os
import signal
from itertools import count
from typing import Any

from pydantic import create_model

from lastlight_state import StateStore
from lastlight_state.db.units.unit import Unit


def define(url: str, field: str, die_at: int = 0) -> str:
    """Define ``summary`` and that field; the signature, or the text of an error.

    With ``die_at`` the process is killed as by ``kill -9`` when it is about to execute that many statements of text.
    """
    if die_at:
        _die_at(die_at)
    fields: dict[str, Any] = {"summary": (str, ...), **({field: (int | None, None)} if field else {})}
    model = create_model("Report", **fields)
    with StateStore.open(url, migrate=True) as store:
        try:
            return store.outputs.define("report", model).signature
        except Exception as error:  # noqa: BLE001 - told to the test
            return f"{type(error).__name__}: {error}"


def _die_at(number: int) -> None:
    plain, seen = Unit.control, count(1)

    def counted(unit: Unit, sql: str) -> None:
        if next(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        plain(unit, sql)

    Unit.control = counted  # type: ignore[method-assign, assignment]
