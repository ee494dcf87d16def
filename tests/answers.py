"""A way to a Postgres server on which single answers can be lost, after the server has done its work."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg
from sqlalchemy import make_url

Drop = Callable[[str], None]


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
        server = self._reach()
        with client, server:
            threading.Thread(target=self._answers, args=(server, client), daemon=True).start()
            with suppress(OSError):
                while data := client.recv(65536):
                    if self._word is not None and self._word in data:
                        self._word = None
                        self._lose(client, server, data)
                        return
                    server.sendall(data)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)

    def _lose(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        """Break the client's side first, then let the server do its work to the end."""
        client.shutdown(socket.SHUT_RDWR)
        server.sendall(data + b"X\0\0\0\4")
        with suppress(OSError):
            while server.recv(65536):
                pass

    def _reach(self) -> socket.socket:
        parts = psycopg.conninfo.conninfo_to_dict(self._url)
        host, port = str(parts.get("host", "localhost")), int(str(parts.get("port", 5432)))
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server
