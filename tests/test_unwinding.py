"""Blocks that end, whatever cuts them short."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lastlight_state.unwinding import block


@pytest.mark.parametrize("raised", [None, ValueError("no")])
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
