"""A SQLite file that cannot be read to its end, though it is small."""

from __future__ import annotations

import os
import sqlite3
import struct
from contextlib import closing
from itertools import pairwise
from pathlib import Path


def endless(file: Path, table: str) -> None:
    """A table and indexes whose pages all point to one page, a dozen floors deep: more entries than one can count."""
    size, floors, children = 4096, 12, 300
    with closing(sqlite3.connect(file)) as connection:
        roots = connection.execute("SELECT type, rootpage FROM sqlite_master WHERE tbl_name = ?", (table,)).fetchall()
    with file.open("r+b") as opened:
        for kind, root in roots:
            interior, leaf, entry = (5, 13, b"\1") if kind == "table" else (2, 10, b"\2\2\x08")
            first = opened.seek(0, os.SEEK_END) // size + 1
            for place, below in pairwise([root, *range(first, first + floors)]):
                cells = (struct.pack(">I", below) + entry) * children
                begin, length = size - len(cells), len(cells) // children
                starts = b"".join(struct.pack(">H", begin + length * number) for number in range(children))
                head = struct.pack(">BHHHBI", interior, 0, children, begin, 0, below)
                opened.seek((place - 1) * size)
                opened.write((head + starts).ljust(begin, b"\0") + cells)
            row = (b"\2\1\2\0" if kind == "table" else entry).ljust(4, b"\0")
            opened.write(struct.pack(">BHHHBH", leaf, 0, 1, size - 4, 0, size - 4).ljust(size - 4, b"\0") + row)
        pages = opened.tell() // size
        opened.seek(28)
        opened.write(struct.pack(">I", pages))
        opened.seek(92)
        opened.write(b"\0" * 4)  # the number of pages is then taken from the size of the file
