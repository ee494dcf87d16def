"""Rendering of data: JSON types without secrets, templates that escape their output, and the templates' filters."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any
from urllib.parse import quote, unquote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lastlight_state import codec
from lastlight_state.clock import ago, iso_time
from lastlight_state.inspector import markdown
from lastlight_state.inspector.entries import brief
from lastlight_state.plain import plain, printable, printable_json
from lastlight_state.redaction import Secrets
from lastlight_state.workflows.sentences import reason_text

#: Shown in place of personal data.
HIDDEN = "(hidden)"
#: Fields that name a person.
NAMES = frozenset(
    "acked_by actor answered_by by cancel_requested_by consumed_by created_by display_name member owner_user person "
    "received_by recipient requested_by responded_by sender taken_by triggered_by updated_by user user_id user_name "
    "username".split()
)
#: Fields that hold text a person wrote, or was asked.
WRITINGS = frozenset(
    "action answer arguments artifact_contract artifact_verification body cancel_reason changes checkpoint "
    "chunk_metadata closed_reason config content context cursor data detail details embedding error error_detail "
    "evidence expected extra first_prompt given hold_reason input input_preview label last_assistant_text messages "
    "meta metadata node_metadata note options output payload policy prompt raw reason reason_summary reasoning request "
    "response schema scratch script snippet story summary task_index text title tree xml".split()
)
PERSONAL = NAMES | WRITINGS
#: Most characters of an id that a list shows.
SHORT_ID = 13
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def redact_data(data: Any, secrets: Secrets, *, hidden: Collection[str] = ()) -> Any:
    """Convert data to JSON types without secrets. Values of the fields in ``hidden`` are replaced by `HIDDEN`."""
    return _redact_value(plain(data), secrets, hidden)


def json_text(data: Any) -> bytes:
    """Encode as JSON the data that `redact_data` returned."""
    return printable_json(codec.dump_line(data)[:-1].decode("utf-8", "backslashreplace")).encode() + b"\n"


def csv_text(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Encode as CSV, with a header, the rows that `redact_data` returned.

    A text that could be a formula is prefixed by ``'``.
    """
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(rows[0] if rows else ())
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return written.getvalue().encode("utf-8", "backslashreplace")


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
    return codec.encode_sound(value).decode() if isinstance(value, dict | list) else value


def _redact_value(value: Any, secrets: Secrets, hidden: Collection[str]) -> Any:
    if isinstance(value, str):
        return secrets.redact(value)
    if isinstance(value, Mapping):
        return {secrets.redact(str(key)): _field(str(key), part, secrets, hidden) for key, part in value.items()}
    if isinstance(value, list):
        return [_redact_value(part, secrets, hidden) for part in value]
    return value


def _field(name: str, value: Any, secrets: Secrets, hidden: Collection[str]) -> Any:
    if name in hidden and value not in (None, "", [], {}):
        return HIDDEN
    return _redact_value(value, secrets, hidden)


class _Templates(Environment):
    """Templates in which ``data.items`` is the value under the key "items", not the dict's method."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


@cache
def environment() -> Environment:
    """Return the template environment. Its output is escaped, and control characters are made visible."""
    made = _Templates(
        loader=PackageLoader("lastlight_state.inspector"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    return made


def _harmless(value: Any) -> Any:
    """Return a text with control characters made visible, except tabs and line ends. None becomes an empty text."""
    if value is None:
        return ""
    if type(value) is not str:
        return value
    if value.isprintable():
        return value
    lines = value.replace("\r\n", "\n").split("\n")
    shown = "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)
    return shown.encode("utf-8", "backslashreplace").decode()


def _name_or_key(name: str | None, key: str) -> str:
    """Return the name for a key. If the name is missing or hidden, return the key."""
    return key if name in (None, "", HIDDEN) else str(name)


def _short(text: str) -> str:
    return text if len(text) <= SHORT_ID + 3 else f"{text[:SHORT_ID]}…"


def _time(text: str | None) -> Markup | str:
    """Return a time as an HTML element: text and tooltip in UTC, which a script converts to local time."""
    if text is None:
        return ""
    shown = f"{text[:10]} {text[11:19]}"
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(text, text, shown)


def _age(text: str | None, now: str) -> Markup | str:
    """Return the age of a time as an HTML element, with the time as its tooltip."""
    if text is None:
        return ""
    shown = ago(iso_time(text), iso_time(now))
    return Markup('<time datetime="{}" title="{} UTC" data-age>{}</time>').format(text, text, shown)


_CELL = re.compile(r"<tr\b|<td(?=[ >])")


def _label_cells(rows: Markup, heads: Sequence[str]) -> Markup:
    """Add the column's heading to each cell of a table's rows, for narrow screens.

    Stored text in the rows is escaped already, so that every HTML tag found comes from a template.
    """
    place = 0

    def label(found: re.Match[str]) -> str:
        nonlocal place
        if found[0] == "<tr":
            place = 0
            return found[0]
        head = escape(heads[place].lstrip("#")) if place < len(heads) else ""
        place += 1
        return f'<td data-head="{head}"'

    return Markup(_CELL.sub(label, rows))  # noqa: S704 rows are markup already, and heads are escaped


def _number(value: Any) -> str:
    if isinstance(value, str):  # a hidden value
        return value
    return "" if value is None else f"{value:,}".replace(",", "\u202f")


def _size(count: int | None) -> str:
    if count is None:
        return ""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def _money(text: Any) -> str:
    """Return an amount of US dollars with two decimals. Amounts below one cent keep all their digits."""
    if text in (None, HIDDEN):
        return ""
    amount = Decimal(str(text))
    return f"${amount:,.2f}" if amount == 0 or abs(amount) >= Decimal("0.01") else f"${amount.normalize():f}"


def _duration(milliseconds: int | None) -> str:
    if milliseconds is None:
        return ""
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _markdown(text: str) -> Markup | str:
    """Convert Markdown to HTML, with control characters made visible."""
    return text if text == HIDDEN else markdown.html(_harmless(text))


def _pretty(value: Any) -> str:
    """Return a value as indented JSON, and a text unchanged."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def segment(text: Any) -> str:
    """Encode a text as one segment of a path: each character but letters and digits is ``~`` and two hex digits.

    Percent encoding would be decoded on the way to the application, and a slash or two dots would change the path.
    """
    quoted = quote(str(text), safe="", errors="replace").replace("~", "%7E").replace("%", "~")
    return quoted if quoted.strip(".") else quoted.replace(".", "~2E")


def of_segment(part: str) -> str:
    """Decode a segment of a path."""
    return unquote(part.replace("~", "%"))


def _query(values: Mapping[str, Any]) -> str:
    """Encode values as the query string of an address. Empty values are left out."""
    return urlencode({name: value for name, value in values.items() if value not in (None, "", [])}, doseq=True)


FILTERS: dict[str, Callable[..., Any]] = {
    "age": _age,
    "brief": brief,
    "markdown": _markdown,
    "duration": _duration,
    "labelled": _label_cells,
    "money": _money,
    "named": _name_or_key,
    "number": _number,
    "pretty": _pretty,
    "query": _query,
    "reason": reason_text,
    "segment": segment,
    "short": _short,
    "size": _size,
    "time": _time,
}
