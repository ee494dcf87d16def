"""A codec of tests, which any program with its key can open: it hides nothing."""

from __future__ import annotations

import os
from typing import Any

from support.checkpoints.steps import step, texts, write

from lastlight_state.conversations import NewMessage
from lastlight_state.testing import Database

SECRET = "a word that nobody may find ✓"


#: What `said` gives of a store that is `filled`.
SAID: list[Any] = [
    {"said": SECRET, "n": [1, None]},
    SECRET.encode(),
    {"a": SECRET * 9 + "!", "b": SECRET},
    SECRET.encode(),
    {"said": SECRET},
    *(f"{SECRET} {n}" for n in range(3)),
]


def filled(store: Any) -> None:
    store.states.put("json", {"said": SECRET, "n": [1, None]})
    store.states.put("bytes", SECRET.encode())
    store.checkpoints.put("t", step(1, {"a": SECRET * 9, "b": SECRET}))
    store.checkpoints.put("t", step(2, {"a": SECRET * 9 + "!"}, versions={"b": "1"}))
    store.checkpoints.put_writes("t", "step-2", "x", [write(0, SECRET)])
    store.conversations.messages.create(NewMessage(id="m", role="user", content={"said": SECRET}))
    for n in range(3):
        store.conversations.messages.create(NewMessage(id=f"m{n}", role="user", content=f"{SECRET} {n}"))


def said(store: Any) -> list[Any]:
    c = store.checkpoints.get("t")
    messages = store.conversations.messages
    return [
        store.states.get("json").value,
        store.states.get("bytes").value,
        texts(c),
        c.writes[0].content.data,
        *(messages.get(one).content for one in ("m", "m0", "m1", "m2")),
    ]


def cells(database: Database) -> str:
    """Everything that stands in the tables of contents, as one text."""
    found = []
    for table in ("states", "checkpoints", "checkpoint_values", "checkpoint_writes", "messages"):
        for row in database.raw().execute(f"SELECT * FROM {table}").fetchall():
            found += [bytes(one) if isinstance(one, bytes | memoryview) else str(one).encode() for one in row]
    return b" ".join(found).decode("utf-8", "replace")


class Xor:
    """Seals with the first of its keys, and opens what any of them sealed."""

    def __init__(self, *keys: int) -> None:
        self.keys = keys
        self.opened = 0

    def encode(self, data: bytes, /) -> tuple[str, bytes]:
        return f"key-{self.keys[0]}", self._turned(self.keys[0], data)

    def decode(self, key_id: str, data: bytes, /) -> bytes:
        self.opened += 1
        key = int(key_id.removeprefix("key-"))
        if key not in self.keys:
            raise KeyError(key_id)
        return self._turned(key, data)

    def _turned(self, key: int, data: bytes) -> bytes:
        return bytes(byte ^ key for byte in data)


class Bound:
    """Seals with an authenticated cipher, bound to the row: what somebody changed or moved is not opened."""

    def __init__(self, *keys: int) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # not in the environments of `.ci/part`

        self._ciphers = {f"aes-{key}": AESGCM(bytes((key,)) * 32) for key in keys}
        self._newest = f"aes-{keys[0]}"

    def encode(self, data: bytes, context: bytes) -> tuple[str, bytes]:
        nonce = os.urandom(12)
        return self._newest, nonce + self._ciphers[self._newest].encrypt(nonce, data, context)

    def decode(self, key_id: str, data: bytes, context: bytes) -> bytes:
        return self._ciphers[key_id].decrypt(data[:12], data[12:], context)


#: For the command line.
FIRST, SECOND = Xor(7), Xor(9, 7)
