"""Blocks that end, whatever cuts them short."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from types import FrameType, MethodType
from typing import Any

import pytest
from support.each import with_each
from support.garbage import collect
from support.tracing import traced

from lastlight_state.db.news.renewals import Held, RenewalBlock
from lastlight_state.unwinding import block


@with_each("raised", [None, ValueError("no")])
def test_a_block_that_is_left_by_a_call_ends_as_one_that_is_left_by_a_statement(raised: ValueError | None) -> None:
    """backends B-87: also where nobody keeps the bound method that is called."""
    seen: list[object] = []

    @block
    def noted() -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            seen.append(error)
            raise
        seen.append(None)

    made = noted()
    made.__enter__()
    made.__exit__(None if raised is None else type(raised), raised, None)
    assert seen == [raised]


def test_a_block_lasts_in_a_statement_that_takes_bound_methods_apart() -> None:
    """backends B-87: as statements of CPython do from 3.14 on, which drop the method before the body begins."""
    seen: list[str] = []

    @block
    def noted() -> Iterator[None]:
        try:
            yield
            seen.append("left")
        except GeneratorExit:
            seen.append("ended")

    made = noted()
    leave = vars(type(made))["__exit__"].__get__(made, type(made))
    kept = (leave.__func__, leave.__self__) if isinstance(leave, MethodType) else (leave,)
    del leave
    made.__enter__()
    collect()
    kept[0](*kept[1:], None, None, None)
    assert seen == ["left"]


def test_a_block_ends_with_its_statement_while_the_exception_is_still_looked_at() -> None:
    """backends B-87: also where the exception came in the middle of leaving, and its frames are kept."""
    seen: list[str] = []

    class Cut(Exception):
        pass

    @block
    def noted() -> Iterator[None]:
        try:
            yield
        finally:
            seen.append("over")

    def cut(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_name == "_leave":
            raise Cut
        return cut

    with pytest.raises(Cut) as raised, traced(cut), noted():
        pass
    assert seen == ["over"]
    assert raised.value.__traceback__ is not None


def test_a_block_that_a_stack_enters_ends_with_the_stack() -> None:
    """backends B-87: the stack asks the class how to leave."""
    seen: list[str] = []

    @block
    def noted() -> Iterator[str]:
        yield "in"
        seen.append("out")

    with ExitStack() as stack:
        assert stack.enter_context(noted()) == "in"
        assert seen == []
    assert seen == ["out"]


def test_renewals_end_with_a_block_that_nobody_can_leave_any_more() -> None:
    """backends B-87: at once, and not at the next renewal."""
    renewed = RenewalBlock(Held("claim"), "run 1", timedelta(hours=1), lambda claim: claim)
    leave = renewed.__exit__
    renewed.__enter__()
    assert renewed._thread.is_alive()
    del leave
    collect()
    assert renewed._ended.is_set()
    renewed._thread.join(30)
    assert not renewed._thread.is_alive()
