"""Markdown of agents as HTML. Each tag is of the page itself: tags of a text are shown as text, pictures not at all."""

from __future__ import annotations

from markdown_it import MarkdownIt
from markupsafe import Markup

#: The longest text whose Markdown is looked at. A longer one is shown as it is: a hostile one would take seconds.
MOST = 64 * 1024
_WEB = ("http://", "https://")


class _Parser(MarkdownIt):
    """Links go to pages of the web alone."""

    def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
        return url.lower().startswith(_WEB)


_parser = _Parser("commonmark", {"html": False, "breaks": True}).disable("image")


def html(text: str) -> Markup:
    """Return a text of Markdown as HTML. Its headings stand below those of the page, from ``h3`` on, and skip none."""
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
