"""Writers of one process that share commits, killed at moments nobody chose, and what they had been promised by then.

``python killed_crowd.py URL ROUNDS SEED`` runs one process of many writing threads after the other, and kills each with
SIGKILL. A thread says each promise on a pipe when its call returns. Prints what was promised, as one JSON line.
"""

import json
import os
import random
import signal
import sys
import threading
import time

from lastlight_state import StateStore
from lastlight_state.messaging import ConversationKey

WRITERS = 24
KEY = ConversationKey("slack", "C", "U")


def write_for_ever(url: str, promises: int) -> None:
    """Write with all threads until the end, which comes from outside."""
    with StateStore.open(url, durability="full") as store:
        session = store.messaging.sessions.resume(KEY).session.id

        def write(writer: int) -> None:
            for number in range(1_000_000):
                text = f"{os.getpid()}-{writer}-{number}"
                store.messaging.messages.append(session, role="user", content=text)
                os.write(promises, f"{text}\n".encode())

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def killed(url: str, seconds: float) -> list[str]:
    """Return what the writers of one round were promised before they were killed."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            write_for_ever(url, write)
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        first = pipe.readline()
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        rest = pipe.read()
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    return (first + rest).decode().splitlines()


def main() -> None:
    url, rounds, chance = sys.argv[1], int(sys.argv[2]), random.Random(sys.argv[3])
    promised = [text for _ in range(rounds) for text in killed(url, chance.uniform(0, 0.2))]
    print(json.dumps(promised))  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
