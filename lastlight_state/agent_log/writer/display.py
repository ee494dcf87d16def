"""The display cap of tool results.

Lengths are in UTF-16 code units, as earlier programs counted, so that a cut text has the same bytes as theirs. The
whole text is stored beside the log.
"""

from __future__ import annotations

from typing import NamedTuple

CAP_UNITS = 65_536
_UNIT_BYTES = 2


class Cut(NamedTuple):
    """The cut text, and the length of the whole in UTF-16 code units."""

    shown: str
    units: int


def cut_for_display(text: str) -> Cut | None:
    """The shown form of a text above the cap, None for one that stays as it is.

    A character beyond U+FFFF counts two and is never split: then one unit fewer is shown.
    """
    if len(text) <= CAP_UNITS // 2 or (len(text) <= CAP_UNITS and text.isascii()):
        return None
    data = text.encode("utf-16-le", "surrogatepass")
    units = len(data) // _UNIT_BYTES
    if units <= CAP_UNITS:
        return None
    kept = CAP_UNITS - (_is_high(data, CAP_UNITS - 1) and _is_low(data, CAP_UNITS))
    shown = data[: kept * _UNIT_BYTES].decode("utf-16-le", "surrogatepass")
    return Cut(f"{shown}\n…[truncated {units - kept} chars]", units)


def _is_high(data: bytes, unit: int) -> bool:
    return 0xD8 <= data[unit * _UNIT_BYTES + 1] <= 0xDB


def _is_low(data: bytes, unit: int) -> bool:
    return 0xDC <= data[unit * _UNIT_BYTES + 1] <= 0xDF
