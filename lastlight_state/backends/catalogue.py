"""What a database itself says about a schema, as entries that can be compared.

Two databases whose catalogues are equal have the same schema, down to the predicates of partial indexes, the direction
of their columns and the text of triggers, which Alembic's own comparison does not see.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Entry = tuple[str, str, str]
"""Kind, table (or the object's own name), and name within it: ``("column", "workflow_runs", "status")``."""

Catalogue = Mapping[Entry, str]
"""Each entry with its definition as text. The entry ``("order", table, "")`` lists the columns as they lie in a row."""


def squeezed(sql: str) -> str:
    """SQL text with its white space made one, so that a line break is no difference."""
    return re.sub(r"\s+", " ", sql).strip().replace("( ", "(").replace(" )", ")")
