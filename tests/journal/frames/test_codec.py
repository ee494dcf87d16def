from __future__ import annotations

import json
from itertools import pairwise, permutations
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings, strategies as st
from support.each import with_each
from support.journal.trees import TREES, element, text

from lastlight_state.errors import InvalidValue, PayloadTooLarge
from lastlight_state.journal.frames import codec
from lastlight_state.journal.frames.codec import render
from lastlight_state.journal.records import FrameDelta


def applied(previous: Any, following: Any) -> str:
    delta = codec.decode_delta(codec.encode_delta(codec.diff(previous, following)))
    return codec.canonical(codec.apply(previous, delta))


def ops(previous: Any, following: Any) -> list[tuple[str, list[Any]]]:
    assert applied(previous, following) == codec.canonical(following)
    return [(op["op"], op["path"]) for op in codec.diff(previous, following).ops]


def siblings(names: str) -> Any:
    return element("list", *(element("item", text(name), id=name) for name in names))


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(TREES, min_size=2, max_size=4))
def test_any_trees_one_after_the_other_are_what_their_changes_make(trees: list[Any]) -> None:
    """journal C-7: no tree, texts and elements among them."""
    for previous, following in pairwise(trees):
        assert applied(previous, following) == codec.canonical(following)
        assert codec.diff(following, following).ops == ()


@pytest.mark.slow
@settings(max_examples=100)
@given(TREES)
def test_any_tree_is_well_formed_xml(tree: Any) -> None:
    """journal R-11."""
    ET.fromstring(render(codec.apply(tree, codec.diff(None, None))))


def test_a_tree_fit_for_xml_is_all_there() -> None:
    """journal R-11."""
    tree = element("plan", element("step", text("a < b & c"), id="s1", note='say "hi"\n'), text("end"), n="1")
    found = ET.fromstring(render(json.loads(codec.canonical(tree))))
    step = found[0]
    assert (found.tag, found.attrib, step.tag, step.text, step.tail) == ("plan", {"n": "1"}, "step", "a < b & c", "end")
    assert step.attrib == {"id": "s1", "note": 'say "hi"\n'}


@with_each(
    ("tag", "name"),
    [("a", "a"), ("xmlish", "_xmlish"), ("XML", "_XML"), ("1a", "_1a"), ("", "_"), ("a b", "a_b"), ("-", "_-")],
)
def test_a_name_that_xml_does_not_allow_is_another(tag: str, name: str) -> None:
    """journal R-11: those that begin with its own name among them."""
    assert render(json.loads(codec.canonical(element(tag)))) == f"<{name}/>"


def test_props_of_one_name_in_xml_are_all_there() -> None:
    """journal R-11."""
    tree = element("a", **{"x y": 1, "x-y": 2, "x\ty": 3, "x:y": 4})
    assert sorted(ET.fromstring(render(tree)).attrib) == ["x-y", "x_y", "x_y_", "x_y__"]


def test_the_canonical_text_has_one_order_of_keys() -> None:
    """journal C-2: and what was left out is empty."""
    tree = {"children": [], "props": {"b": {"z": 1, "a": [1.0]}, "a": "ä"}, "tag": "t", "kind": "element"}
    assert codec.canonical(tree) == '{"kind":"element","tag":"t","props":{"a":"ä","b":{"a":[1.0],"z":1}},"children":[]}'
    assert codec.canonical({"kind": "element", "tag": "t"}) == '{"kind":"element","tag":"t","props":{},"children":[]}'
    assert codec.canonical(None) == "null"


@with_each(
    "tree",
    [
        7,
        "text",
        [],
        {},
        {"kind": "text"},
        {"kind": "words", "text": "a"},
        {"kind": "text", "text": 1},
        {"kind": "text", "text": "a", "id": 1},
        {"kind": "element"},
        {"kind": "element", "tag": "a", "other": 1},
        {"kind": "element", "tag": "a", "props": []},
        {"kind": "element", "tag": "a", "children": {}},
        {"kind": "element", "tag": "a", "children": [None]},
        {"kind": "element", "tag": "a", "props": {"x": float("nan")}},
        {"kind": "element", "tag": "a", "props": {1: 2}},
    ],
)
def test_what_is_no_tree_is_refused(tree: Any) -> None:
    """journal C-1: unknown keys would be lost."""
    with pytest.raises(InvalidValue):
        codec.canonical(tree)


def test_a_tree_has_limits() -> None:
    """journal J-3: of bytes and of levels."""
    deep: Any = text("x")
    for _ in range(119):
        deep = element("a", deep)
    assert applied(None, deep) == codec.canonical(deep)
    with pytest.raises(InvalidValue):
        codec.canonical(element("a", deep))
    with pytest.raises(PayloadTooLarge):
        codec.canonical(text("x" * 4 * 1024 * 1024))


def nested(levels: int, wrap: Any) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


@with_each("wrap", [lambda value: [value], lambda value: {"x": value}], ids=["lists", "objects"])
@with_each("above", [0, 3])
def test_what_an_element_holds_has_as_many_levels_as_elements_in_its_place(wrap: Any, above: int) -> None:
    """journal J-3: lists and objects of a prop count with the elements above them."""

    def tree(levels: int) -> Any:
        found = element("a", x=nested(levels, wrap))
        for _ in range(above):
            found = element("a", found)
        return found

    assert codec.canonical(tree(118 - above))
    with pytest.raises(InvalidValue, match="nested deeper"):
        codec.canonical(tree(119 - above))


def test_values_that_python_takes_for_equal_are_changes() -> None:
    """journal C-3."""
    values = [1, True, 1.0, "1", None, 0, False, 0.0, -0.0]
    for before in values:
        for after in values:
            changed = bool(ops(element("a", x=before), element("a", x=after)))
            assert changed == (repr(before) != repr(after))


def test_moved_siblings_are_removed_and_inserted_and_no_other_is_touched() -> None:
    """journal C-6."""
    children = ["children"]
    assert ops(siblings("abc"), siblings("acb")) in (
        [("remove", [*children, 1]), ("insert", [*children, 2])],
        [("insert", [*children, 1]), ("remove", [*children, 3])],
    )
    assert len(ops(siblings("abcde"), siblings("bcdea"))) == 2
    assert ops(siblings("bcd"), siblings("abcd")) == [("insert", [*children, 0])]
    assert ops(siblings("abcd"), siblings("abd")) == [("remove", [*children, 2])]
    for before, after in (
        ("abcde", "ace"),
        ("ace", "abcde"),
        ("xabcdy", "yadx"),
        ("abcdef", "fedcba"),
        ("abc", "xyz"),
        ("aabbc", "abcab"),
        ("", "abc"),
        ("abc", ""),
    ):
        found = ops(siblings(before), siblings(after))
        assert all(op != "set" for op, _ in found if before != "aabbc")


def test_a_value_of_another_kind_is_set_as_a_whole() -> None:
    """journal C-4: a list, an object or neither."""
    values = [[1], {"a": 1}, 1, "a", [[1]]]
    for before in values:
        for after in values:
            changed = ops(element("a", x=before), element("a", x=after))
            both = isinstance(before, list) and isinstance(after, list)
            assert both or changed == ([] if before is after else [("set", ["props", "x"])])


def test_a_child_without_an_id_is_not_the_one_with_an_id_in_its_place() -> None:
    """journal C-5."""
    plain, named = element("list", element("i", n=1)), element("list", element("i", id="a", n=1))
    for before, after in ((plain, named), (named, plain)):
        assert ops(before, after) == [("remove", ["children", 0]), ("insert", ["children", 0])]


@with_each("none", ["", 7, None, ["a"]])
def test_what_is_no_text_or_empty_is_no_id(none: Any) -> None:
    """journal C-5: such an element is known by its place, and named by none."""
    before, after = (element("list", element("i", id=none, n=n), element("i", id="b")) for n in (1, 2))
    assert codec.diff(before, after).ops == ({"op": "set", "path": ["children", 0, "props", "n"], "value": 2},)
    moved = [element("list", *children) for children in permutations([element("i", id=none, n=1), element("i", n=5)])]
    assert all(len(path) > 2 for _, path in ops(*moved))


def test_a_text_in_the_place_of_an_element_is_set_as_a_whole() -> None:
    """journal C-4: not key by key."""
    assert ops(element("list", element("item")), element("list", text("a"))) == [("set", ["children", 0])]


def test_what_changed_inside_a_moved_neighbourhood_is_found_by_its_id() -> None:
    """journal C-4, C-5, C-6: an op names the nearest element that has an id."""
    before = element("list", element("i", id="a", n=1), element("i", id="b", n=1, old=2))
    after = element("list", element("i", id="new"), element("i", id="a", n=1), element("i", id="b", n=2, more=3))
    found = codec.diff(before, after).ops
    assert [(op["op"], op["path"], op["nodeId"]) for op in found] == [
        ("insert", ["children", 0], "new"),
        ("set", ["children", 2, "props", "more"], "b"),
        ("set", ["children", 2, "props", "n"], "b"),
        ("remove", ["children", 2, "props", "old"], "b"),
    ]


@with_each(
    "delta",
    [
        "{",
        "[]",
        '{"ops":[]}',
        '{"version":2,"ops":[]}',
        '{"version":true,"ops":[]}',
        '{"version":1,"ops":{}}',
        '{"version":1,"ops":[],"more":1}',
        '{"version":1,"ops":[1]}',
        '{"version":1,"ops":[{"op":"move","path":[]}]}',
        '{"version":1,"ops":[{"op":"set","path":["tag"]}]}',
        '{"version":1,"ops":[{"op":"remove","path":["tag"],"value":1}]}',
        '{"version":1,"ops":[{"op":"set","path":"tag","value":1}]}',
        '{"version":1,"ops":[{"op":"set","path":[true],"value":1}]}',
        '{"version":1,"ops":[{"op":"set","path":["tag","x"],"value":1}]}',
        '{"version":1,"ops":[{"op":"set","path":[0],"value":1}]}',
        '{"version":1,"ops":[{"op":"set","path":["children","x"],"value":1}]}',
        '{"version":1,"ops":[{"op":"set","path":["children",1],"value":{"kind":"text","text":""}}]}',
        '{"version":1,"ops":[{"op":"insert","path":["children",-1],"value":{"kind":"text","text":""}}]}',
        '{"version":1,"ops":[{"op":"insert","path":["children",2],"value":{"kind":"text","text":""}}]}',
        '{"version":1,"ops":[{"op":"insert","path":["props","x"],"value":1}]}',
        '{"version":1,"ops":[{"op":"remove","path":["props","x"]}]}',
        '{"version":1,"ops":[{"op":"remove","path":["children",1]}]}',
        '{"version":1,"ops":[{"op":"remove","path":[]}]}',
        '{"version":1,"ops":[{"op":"set","path":[],"value":7}]}',
        '{"version":1,"ops":[{"op":"set","path":["tag"],"value":7}]}',
    ],
)
def test_a_delta_that_does_not_fit_is_refused(delta: str) -> None:
    """journal C-8."""
    with pytest.raises(InvalidValue):
        codec.apply(element("a", text("x")), codec.decode_delta(delta))


@with_each(
    "path",
    [
        [0], ["props", 0], ["tag", "a", "b"], ["tag", 0, "b"], ["props", "n", "x"], ["props", "x", "y"],
        ["props", "l", "one", "x"], ["props", "l", 0, "x"], ["props", "l", 1, "x"], ["children", "0"], ["children", -1],
        ["children", 0, 0, "x"],
    ],
)  # fmt: skip
def test_a_change_of_a_place_that_is_not_there_is_refused_as_one(path: list[Any]) -> None:
    """journal C-8: of an object by a number, of a list by a text, and inside what is neither."""
    tree = element("a", text("x"), n=1, l=["one"])
    with pytest.raises(InvalidValue, match="delta: "):
        codec.apply(tree, FrameDelta(ops=({"op": "set", "path": path, "value": 1},)))
