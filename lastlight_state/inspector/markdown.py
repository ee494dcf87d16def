"""Converts agents' Markdown to HTML. HTML tags in the text are shown as text, and images are left out."""

from __future__ import annotations

from markdown_it import MarkdownIt
from markupsafe import Markup

#: Longest text that is parsed as Markdown. A longer one is shown as it is: a hostile text would take seconds.
MOST = 64 * 1024
_WEB = ("http://", "https://")


class _Parser(MarkdownIt):
    """A Markdown parser that allows links to web pages only."""

    def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
        return url.lower().startswith(_WEB)


_parser = _Parser("commonmark", {"html": False, "breaks": True}).disable("image")


def html(text: str) -> Markup:
    """Convert Markdown to HTML. Headings begin at ``h3``, below those of the page, and skip no level."""
    if len(text) > MOST:
        return Markup("<pre>{}</pre>").format(text)
    tokens, level = _parser.parse(text), 2
    for token in tokens:
        if token.type == "heading_open":
            level = min(2 + int(token.tag[1]), level + 1, 6)
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{level}"
        for part in token.children or ():
            if part.type == "link_open":
                part.attrSet("rel", "noreferrer noopener nofollow")
    return Markup(_parser.renderer.render(tokens, _parser.options, {}))  # noqa: S704 - it escapes what is not its own
