"""A tree as XML text, for reading: what XML cannot carry is replaced. Pure."""

from __future__ import annotations

import re
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from lastlight_state import codec

_UNFIT = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_NO_BEGINNING = re.compile(r"[^A-Za-z_]")


def render(tree: Any) -> str:
    """The tree as well-formed XML. No tree is ``<null/>``, a text alone ``<text>…</text>``."""
    if tree is None:
        return "<null/>"
    return _rendered(tree) if tree["kind"] == "element" else f"<text>{_text(tree['text'])}</text>"


def _rendered(node: Any) -> str:
    if node["kind"] == "text":
        return _text(node["text"])
    tag = _name(node["tag"])
    attributes: dict[str, str] = {}
    for key, value in node["props"].items():
        name = _name(key)
        while name in attributes:
            name += "_"
        attributes[name] = quoteattr(_fit(value if isinstance(value, str) else codec.encode_sound(value).decode()))
    listed = "".join(f" {name}={value}" for name, value in attributes.items())
    children = "".join(map(_rendered, node["children"]))
    return f"<{tag}{listed}>{children}</{tag}>" if children else f"<{tag}{listed}/>"


def _text(text: str) -> str:
    return escape(_fit(text), {"\r": "&#13;"})


def _fit(text: str) -> str:
    return _UNFIT.sub("\ufffd", text)


def _name(name: str) -> str:
    fit = _NAME.sub("_", name)
    return f"_{fit}" if not fit or _NO_BEGINNING.match(fit) or fit[:3].lower() == "xml" else fit
