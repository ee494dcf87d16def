"""Which statements would begin or end a transaction."""

from __future__ import annotations

import re

_HINT = re.compile(r"\b(?:commit|rollback|end|abort|begin|start|prepare)\b", re.IGNORECASE)
#: Comments, texts and quoted names, in which a semicolon or a word means nothing.
_OPAQUE = re.compile(
    r"""--[^\n]*|/\*.*?\*/|[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\1\$""", re.DOTALL
)
_ENDING = re.compile(
    r"\W*(COMMIT|END|ABORT|BEGIN|START\s+TRANSACTION|PREPARE\s+TRANSACTION"
    r"|ROLLBACK(?!\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b))\b",
    re.IGNORECASE,
)
_BODY = re.compile(r"\bBEGIN\b", re.IGNORECASE)


def ending_word(sql: str) -> str | None:
    """The words, such as COMMIT, by which the text would begin or end a transaction; None where it would do neither.

    Savepoints do neither. An END after a BEGIN in the text is that of a trigger's or a function's body.
    """
    if not _HINT.search(sql):
        return None
    in_body = False
    for statement in _OPAQUE.sub(" ", sql).split(";"):
        found = _ENDING.match(statement)
        if found and not (in_body and found[1].upper() == "END"):
            return " ".join(found[1].upper().split())
        in_body = in_body or bool(_BODY.search(statement))
    return None
