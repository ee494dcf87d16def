"""Bundles that somebody has changed: taken apart, and put together again."""

from __future__ import annotations

import hashlib
import json
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: The parts of a bundle by their names, and how each is stored: the manifest is a value.
Parts = dict[str, Any]
Change = Callable[[Parts], object]


def add(name: str, content: bytes = b"{}\n", rows: int | None = None) -> Change:
    """Adds a part that the manifest names rightly."""

    def change(parts: Parts) -> None:
        digest = hashlib.sha256(content).hexdigest()
        told = {"name": name, "rows": rows, "size_bytes": len(content), "sha256": digest}
        kept = [part for part in parts["manifest.json"]["parts"] if part["name"] != name]
        parts["manifest.json"]["parts"] = [*kept, told]
        parts[name] = content

    return change


def tell(**facts: Any) -> Change:
    """Changes the manifest."""
    return lambda parts: parts["manifest.json"].update(facts)


def read(file: Path) -> Parts:
    """The parts of a bundle."""
    with zipfile.ZipFile(file) as packed:
        found: Parts = {name: packed.read(name) for name in packed.namelist()}
    return {**found, "manifest.json": json.loads(found["manifest.json"])}


def write(file: Path, parts: Parts, special: str = "", **attributes: Any) -> None:
    """Write a bundle of these parts. The part ``special`` gets these attributes in the ZIP."""
    with zipfile.ZipFile(file, "w") as packed:
        for name, content in parts.items():
            text = json.dumps(content).encode() if name == "manifest.json" else content
            packed.writestr(info(name, **(attributes if name == special else {})), text)


def info(name: str, **attributes: Any) -> zipfile.ZipInfo:
    """What the ZIP says of a part: a plain file, unless the attributes say otherwise."""
    told = zipfile.ZipInfo(name)
    told.external_attr = (stat.S_IFREG | 0o600) << 16
    for attribute, value in attributes.items():
        setattr(told, attribute, value)
    return told


def change_row(good: Path, bad: Path, table: str, **values: Any) -> None:
    """Write a bundle like the good one, but for columns of a table's first row."""
    parts = read(good)
    name = f"rows/{table}.jsonl"
    first, *others = [json.loads(line) for line in parts[name].splitlines()]
    rows = [{**first, **values}, *others]
    add(name, b"".join(json.dumps(row).encode() + b"\n" for row in rows), len(rows))(parts)
    write(bad, parts)
