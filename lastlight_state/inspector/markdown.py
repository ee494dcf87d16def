"""Markdown of agents as HTML: headings, lists, code, emphasis and links. Whatever else it holds is text.

Each text is escaped before a tag is put around it, so that no tag and no attribute is the agent's. Links go to pages
of the web alone, and pictures are not loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

_FENCE = re.compile(r"\s{0,3}(```+|~~~+)\s*[\w+.#-]*\s*\Z")
_HEADING = re.compile(r"\s{0,3}(#{1,6})\s+(.*)\Z")
_ITEM = re.compile(r"\s*(?:[-*+]|(\d{1,9})[.)])\s+(.*)\Z")
_INLINE = re.compile(
    r"(?P<code>`+)(?P<coded>.+?)(?P=code)(?!`)"
    r"|\*\*(?P<strong>[^*\n]{1,200}?)\*\*"
    r"|(?<![\w*])\*(?P<em>[^*\s][^*\n]{0,200}?)\*(?![\w*])"
    r"|\[(?P<name>[^\]\n]{1,200})\]\((?P<url>https?://[^\s()<>\"']{1,2000})\)"
)
#: The level below which headings of a text stand: those of the page are above.
_LEVEL = 3


def html(text: str) -> Markup:
    """Return a text of Markdown as HTML of this module's own tags."""
    return Markup("\n").join(_blocks(text.splitlines()))


def _blocks(lines: list[str]) -> Iterator[Markup]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if fence := _FENCE.match(line):
            end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == fence[1]), len(lines))
            yield Markup("<pre>{}</pre>").format("\n".join(lines[at + 1 : end]))
            at = end + 1
        elif heading := _HEADING.match(line):
            level = min(_LEVEL + len(heading[1]), 6)
            yield Markup("<h{0}>{1}</h{0}>").format(level, _inline(heading[2].rstrip("# ")))
            at += 1
        elif found := _ITEM.match(line):
            kind = "ul" if found[1] is None else "ol"
            end = _end(lines, at)
            yield Markup("<{0}>{1}</{0}>").format(Markup(kind), Markup("").join(_items(lines[at:end])))  # noqa: S704
            at = end
        elif not line.strip():
            at += 1
        else:
            end = next((n for n in range(at, len(lines)) if not _goes_on(lines[n])), len(lines))
            yield Markup("<p>{}</p>").format(Markup("<br>").join(_inline(one) for one in lines[at : max(end, at + 1)]))
            at = max(end, at + 1)


def _goes_on(line: str) -> bool:
    """True if a line belongs to the paragraph before."""
    return bool(line.strip()) and not any(one.match(line) for one in (_FENCE, _HEADING, _ITEM))


def _end(lines: list[str], start: int) -> int:
    """Return where a list ends: at the first line that is neither an item nor the rest of one."""
    at = start
    while at < len(lines) and (_ITEM.match(lines[at]) or (lines[at].startswith(" ") and lines[at].strip())):
        at += 1
    return at


def _items(lines: list[str]) -> Iterator[Markup]:
    items: list[list[str]] = []
    for line in lines:
        if found := _ITEM.match(line):
            items.append([found[2]])
        else:
            items[-1].append(line.strip())
    for item in items:
        yield Markup("<li>{}</li>").format(Markup("<br>").join(map(_inline, item)))


def _inline(text: str) -> Markup:
    found, place = Markup(), 0
    for part in _INLINE.finditer(text):
        found += escape(text[place : part.start()])
        if part["code"]:
            found += Markup("<code>{}</code>").format(part["coded"])
        elif part["strong"]:
            found += Markup("<strong>{}</strong>").format(part["strong"])
        elif part["em"]:
            found += Markup("<em>{}</em>").format(part["em"])
        else:
            found += Markup('<a href="{}" rel="noreferrer noopener nofollow">{}</a>').format(part["url"], part["name"])
        place = part.end()
    return found + escape(text[place:])
