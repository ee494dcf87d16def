"""Trees of frames: of one's own, and any that hypothesis can think of."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


def element(tag: str, *children: Any, **props: Any) -> dict[str, Any]:
    """An element of a tree."""
    return {"kind": "element", "tag": tag, "props": props, "children": list(children)}


def text(words: str) -> dict[str, Any]:
    """A text of a tree."""
    return {"kind": "text", "text": words}


_WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
_IDS = st.sampled_from(["a", "b", "c", "d", "e", ""])
_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.0, -0.0, 1.0, 1.5, 1e300]), _WORDS
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3), max_leaves=6
)
_PROPS = st.dictionaries(_WORDS, _VALUES, max_size=2) | st.fixed_dictionaries({"id": _IDS | _SCALARS})
_LEAVES = st.builds(text, _WORDS)
_NODES = st.recursive(
    _LEAVES,
    lambda inner: st.fixed_dictionaries(
        {
            "kind": st.just("element"),
            "tag": st.sampled_from(["a", "b", "läßt", "x y"]),
            "props": _PROPS,
            "children": st.lists(inner, max_size=5),
        }
    ),
    max_leaves=15,
)
#: Any tree.
TREES = st.none() | _NODES
