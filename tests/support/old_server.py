"""A listener that speaks just enough of Postgres' protocol to say what server it is."""

import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

VERSION = "13.14"


@contextmanager
def old_server(*, answers: bool = True) -> Iterator[str]:
    """The URL of a server of version 13, which answers every query with its version, or hangs up instead."""
    with server_that_says({"server_version": VERSION}, answers=answers) as url:
        yield url


@contextmanager
def server_that_says(said: Mapping[str, str], *, refusal: str = "", answers: bool = True) -> Iterator[str]:
    """The URL of a server that says this of itself when it is connected to, or refuses with these words."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, said, refusal, answers), daemon=True).start()
        yield f"postgresql://ana@127.0.0.1:{listener.getsockname()[1]}/state?sslmode=disable&gssencmode=disable"


def _serve(listener: socket.socket, said: Mapping[str, str], refusal: str, answers: bool) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection, suppress(OSError, EOFError):
                _talk(connection, said, refusal, answers)


def _talk(connection: socket.socket, said: Mapping[str, str], refusal: str, answers: bool) -> None:
    length = struct.unpack("!I", _exactly(connection, 4))[0]
    _exactly(connection, length - 4)
    if refusal:
        connection.sendall(_message(b"E", b"SFATAL\0C08P01\0M" + refusal.encode() + b"\0\0"))
        return
    told = _message(b"R", struct.pack("!I", 0))
    for name, value in {"client_encoding": "UTF8", "standard_conforming_strings": "on", **said}.items():
        told += _message(b"S", name.encode() + b"\0" + value.encode() + b"\0")
    connection.sendall(told + _message(b"K", struct.pack("!II", 1, 1)) + _message(b"Z", b"I"))
    while True:
        kind = _exactly(connection, 1)
        length = struct.unpack("!I", _exactly(connection, 4))[0]
        _exactly(connection, length - 4)
        if kind == b"X" or not answers:
            return
        if kind == b"Q":
            connection.sendall(_answer(f"PostgreSQL {VERSION} on x86_64"))


def _answer(text: str) -> bytes:
    column = b"version\0" + struct.pack("!IHIHIH", 0, 0, 25, 0xFFFF, 0xFFFFFFFF, 0)
    value = struct.pack("!I", len(text)) + text.encode()
    return (
        _message(b"T", struct.pack("!H", 1) + column)
        + _message(b"D", struct.pack("!H", 1) + value)
        + _message(b"C", b"SELECT 1\0")
        + _message(b"Z", b"I")
    )


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _exactly(connection: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        more = connection.recv(size - len(read))
        if not more:
            raise EOFError
        read += more
    return read
