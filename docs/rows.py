"""Writes ``rows.py`` of the domains, the `TypedDict` of each table's rows, from the declared models: ``make docs``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import sqlalchemy as sa

from lastlight_state.db.schema import columns
from lastlight_state.db.schema.base import Base
from lastlight_state.db.schema.sealing import plain
from lastlight_state.migrations.metadata import METADATA

ROOT = Path(__file__).parents[1]

#: The domains whose statements say what rows they return.
DOMAINS = "schedules journal outputs receipts workflows".split()

_TYPES = (
    (columns.Timestamp, "datetime"),
    (columns.Json, "Any"),
    (columns.Flag, "bool"),
    (columns.Integer, "int"),
    (columns.Real, "float"),
    (columns.Bytes, "bytes"),
    (columns.Text, "str"),
)


def pages() -> dict[Path, str]:
    """Return the text of each file."""
    named = [(mapper.class_.__module__, mapper.class_) for mapper in Base.registry.mappers]
    found = {}
    for domain in DOMAINS:
        module = f"lastlight_state.{domain}.models"
        models = sorted((model for name, model in named if name == module), key=_position)
        classes = [
            _class(model.__name__.removesuffix("Model"), METADATA.tables[model.__tablename__]) for model in models
        ]
        found[ROOT / "lastlight_state" / domain / "rows.py"] = _page(domain, classes)
    return found


def _position(model: type[Base]) -> int:
    return list(METADATA.tables).index(model.__tablename__)


def _page(domain: str, classes: Iterable[str]) -> str:
    text = "\n\n\n".join(classes)
    imports = ["from datetime import datetime"] if "datetime" in text else []
    imports.append(f"from typing import {'Any, ' if 'Any' in text else ''}TypedDict")
    head = f'"""The rows of the tables of {domain}, written by ``make docs`` from the models. JSON is given as text."""'
    return "\n".join([head, "", "from __future__ import annotations", "", *imports, "", "", text, ""])


def _class(name: str, table: sa.Table) -> str:
    fields = [f"    {column.name}: {_type(column)}" for column in table.columns]
    return "\n".join([f"class {name}Row(TypedDict):", f'    """A row of ``{table.name}``."""', "", *fields])


def _type(column: sa.Column[object]) -> str:
    kind = next(name for of, name in _TYPES if plain(column.type) is of)
    return f"{kind} | None" if column.nullable and kind != "Any" else kind


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text, encoding="utf-8")
