"""Defines an output in processes of their own, all let go together: ``python definer.py URL MEMBERS SHAPES DIE_AT``.

``SHAPES`` is a comma-separated list of fields; process n defines ``summary`` and field n of it (modulo their number).
With ``DIE_AT`` each kills itself as by ``kill -9`` when it is about to execute that many statements of text. Prints one
JSON line: for each process the signature that it got, the text of an error, or None for one that was killed.
"""

import json
import os
import signal
import sys
from itertools import count
from typing import Any

from pydantic import create_model
from support.loading import load

from lastlight_state import StateStore
from lastlight_state.db.unit import Unit


def define(url: str, field: str, die_at: int) -> str:
    """What the process says in the end."""
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
    plain, seen = Unit.plain, count(1)

    def counted(unit: Unit, sql: str) -> None:
        if next(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        plain(unit, sql)

    Unit.plain = counted  # type: ignore[method-assign, assignment]


def main() -> None:
    url, members, shapes, die_at = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(","), int(sys.argv[4])
    load("db", "backends", "outputs")
    wait, release = os.pipe()
    hearing = []
    for n in range(members):
        hear, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(release)
            os.read(wait, 1)
            os.write(tell, json.dumps(define(url, shapes[n % len(shapes)], die_at)).encode())
            os._exit(0)
        os.close(tell)
        hearing.append((pid, os.fdopen(hear)))
    os.close(wait)
    os.close(release)
    told = []
    for pid, pipe in hearing:
        words = pipe.read()
        os.waitpid(pid, 0)
        told.append(json.loads(words) if words else None)
    print(json.dumps(told))  # noqa: T201 - its output is what it is for


if __name__ == "__main__":
    main()
