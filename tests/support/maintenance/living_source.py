"""A program that goes on with its unit until its input ends. Arguments: kind, folder, and the most items.

It says when it has begun, and at its end how many items there are. Each is written as the programs write it: by a
transaction, an appended line, or a file that takes the place of one.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from support.maintenance import homes, node_databases, state_databases, workflow_databases
from support.maintenance.mailbox_trees import KEY, answer, attach, say
from support.maintenance.named_sources import SOURCES
from support.migrations.eras import CHAT
from support.run_log.logs import RUN, SESSION

from lastlight_state.codec import dump_line


def _say(root: Path, number: int) -> None:
    item = json.dumps({"role": "user", "content": f"said {number}"})
    with closing(sqlite3.connect(root / "agents.db", timeout=60)) as raw, raw:
        statement = "INSERT INTO agent_messages VALUES (NULL, 'user_1', ?, '2026-02-03 12:00:00')"
        raw.execute(statement, [item])


def _order(root: Path, number: int) -> None:
    path, ids = root / "state.db", [f"said {i}" for i in range(number + 1)]
    state_databases.put_message(path, ids[-1], number)
    for one in ("order-s", "order-branch of said"):
        state_databases.put_order(path, one, ids)


def _event(root: Path, number: int) -> None:
    told = {"said": f"said {number}"}
    node_databases.put(root / "smithers.db", "events", run_id="nightly", seq=number, payload_json=told)


def _chat(root: Path, number: int) -> None:
    told = {"role": "user", "content": f"said {number}", "timestamp": "2026-01-02T00:00:00.000Z"}
    workflow_databases.put(root / "theirs.db", "messaging_messages", session_id=CHAT, id=number + 1, **told)


def _line(name: str) -> Callable[[Path, int], None]:
    def append(root: Path, number: int) -> None:
        with (root / name).open("ab") as file:
            file.write(dump_line(homes.said(f"said {number}")))

    return append


def _file(kind: str, name: str) -> Callable[[Path, int], None]:
    def replace(root: Path, number: int) -> None:
        aside = root / "aside"
        aside.mkdir(exist_ok=True)
        SOURCES[kind].write(aside, "said", number + 1)
        (aside / name).replace(root / name)
        shutil.rmtree(aside)

    return replace


def _host(root: Path, number: int) -> None:
    folder = root / KEY[0] / KEY[1]
    attach(folder, f"inbox/m-{number}/a.txt", b"said")
    say(folder, f"m-{number}", 2 * number + 2)
    with closing(sqlite3.connect(folder / "inbound.db", timeout=60)) as raw, raw:
        raw.execute("UPDATE messages_in SET status = 'completed' WHERE seq = ?", [2 * number])


def _agent(root: Path, number: int) -> None:
    folder = root / KEY[0] / KEY[1]
    answer(folder, f"a-{number}", 2 * number + 3)
    with closing(sqlite3.connect(folder / "outbound.db", timeout=60)) as raw, raw:
        statement = "INSERT OR REPLACE INTO processing_ack VALUES ('m-0', 'processing', ?)"
        raw.execute(statement, [f"2026-01-05T10:{number // 60 % 60:02}:{number % 60:02}.000Z"])


#: How the two programs of a mailbox write one more message. It is copied once, and its source is not followed.
MAILBOX: dict[str, Callable[[Path, int], None]] = {"host": _host, "agent": _agent}
#: How one more item is written, by kind.
APPEND: dict[str, Callable[[Path, int], None]] = {
    "openai-agents-db": _say,
    "lionagi-db": _order,
    "lionagi-runs": _file("lionagi-runs", "runs/s/branches/b0.json"),
    "lionagi-teams": _file("lionagi-teams", "teams/dev.json"),
    "smithers-db": _event,
    "lastlight-db": _chat,
    "codelia": _line(f"sessions/2026/02/03/{RUN}.jsonl"),
    "lastlight-logs": _line(f"projects/-app/{SESSION}.jsonl"),
}


def _until_told(told: threading.Event) -> None:
    sys.stdin.read()
    told.set()


def main(kind: str, root: str, most: str, pause: str = "0") -> None:
    """Write items until the input ends, ``most`` at most, with so many seconds between them."""
    append = {**APPEND, **MAILBOX}[kind]
    ended: Any = threading.Event()
    threading.Thread(target=_until_told, args=[ended], daemon=True).start()
    number = 1
    while number < int(most) and not ended.is_set():
        append(Path(root), number)
        number += 1
        if number == 2:
            sys.stdout.write("begun\n")
            sys.stdout.flush()
        ended.wait(float(pause))
    sys.stdout.write(f"{number}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
