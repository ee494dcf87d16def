"""A way to a Postgres server on which single answers can be lost, after the server has done its work."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg
from sqlalchemy import make_url

Drop = Callable[[str], None]
TERMINATE = b"X\0\0\0\4"


@contextmanager
def dropped_answers(url: str) -> Iterator[tuple[str, Drop]]:
    """A URL that leads to the same database, and a function that loses the next answer to a statement with a word.

    The server gets the statement and finishes it; then the connection breaks before the client hears of it.
    """
    way = _Way(url)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=way.accept, args=(listener,), daemon=True).start()
        there = make_url(url).set(host="127.0.0.1", port=listener.getsockname()[1])
        there = there.difference_update_query(["host", "port"]).update_query_dict({"sslmode": "disable"})
        yield there.render_as_string(hide_password=False), way.drop


class _Way:
    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._word: bytes | None = None

    def drop(self, word: str) -> None:
        self._word = word.encode()

    def accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        server, lost = self._reach(), threading.Event()
        answers = threading.Thread(target=_answer, args=(server, client, lost), daemon=True)
        answers.start()
        with client, server, suppress(OSError):
            while data := client.recv(65536):
                if self._word is None or self._word not in data:
                    server.sendall(data)
                    continue
                self._word = None
                lost.set()
                server.sendall(data + TERMINATE)  # the server does its work to the end before it goes
                answers.join()
                return

    def _reach(self) -> socket.socket:
        parts = psycopg.conninfo.conninfo_to_dict(self._url)
        host, port = str(parts.get("host", "localhost")), int(str(parts.get("port", 5432)))
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server


def _answer(server: socket.socket, client: socket.socket, lost: threading.Event) -> None:
    with suppress(OSError):
        while data := server.recv(65536):
            if not lost.is_set():
                client.sendall(data)
