"""``usage`` from the command line: what it cost, in words first."""

from __future__ import annotations

from decimal import Decimal

from support.cli.calls import lastlight_state
from support.each import with_each

from lastlight_state import StateStore
from lastlight_state.cli.commands.usage import BY
from lastlight_state.cli.views.money import money
from lastlight_state.testing.databases import Database
from lastlight_state.workflows import Trigger, Usage


def worked(database: Database) -> None:
    """Store two executions of a person and one of nobody."""
    with StateStore.open(database.url) as store:  # at the time of this machine, as the command
        for actor, cost in (("ana", "0.25"), ("ana", "1"), (None, "0.0044")):
            run = store.workflows.runs.create("review", trigger=Trigger("t", type="cli", actor=actor), phase="plan")
            execution = store.workflows.executions.start("review:plan", run_id=run.id)
            usage = Usage(cost_usd=Decimal(cost), input_tokens=12_000, output_tokens=345, model="m")
            store.workflows.executions.finish(execution.id, "succeeded", usage=usage)


def test_the_first_line_says_what_was_spent_since_midnight(database: Database) -> None:
    """maintenance OP-109: and a table says for what."""
    worked(database)
    first, blank, heading, row = lastlight_state("usage", "--url", database.url, "--since", "9w").out.splitlines()
    assert first.startswith("$1.25 for 3 executions and 37,035 tokens since ")
    assert blank == ""
    assert heading.split() == ["WORKFLOW", "COST", "EXECUTIONS", "TOKENS", "IN", "OUT"]
    assert row.split() == ["review", "$1.25", "3", "37,035", "36,000", "1,035"]


def test_each_dimension_has_the_same_total(database: Database) -> None:
    """maintenance OP-109"""
    worked(database)
    for by in (*BY, "day"):
        data = lastlight_state("usage", "--by", by, "--since", "9w", "--url", database.url, "--json").data
        assert Decimal(data["total"]["cost_usd"]) == Decimal("1.2544"), by
        assert sum(Decimal(row["cost_usd"]) for row in data["rows"]) == Decimal("1.2544"), by
        if by == "person":
            assert [row["key"] for row in data["rows"]] == ["ana", None]


def test_nothing_spent_is_said_in_one_line(database: Database) -> None:
    """maintenance OP-109"""
    [line] = lastlight_state("usage", "--url", database.url).out.splitlines()
    assert line.startswith("$0.00 for 0 executions and 0 tokens since ")


@with_each(
    "flags",
    [
        ("--by", "weather"),
        ("--since", "soon"),
        ("--by", "day", "--since", "2020-01-01"),
        ("--since", "2026-02-03T12:00"),
    ],
)
def test_what_makes_no_sense_is_refused(database: Database, flags: tuple[str, ...]) -> None:
    """maintenance OP-74, OP-109"""
    assert lastlight_state("usage", *flags, "--url", database.url).code == 2


@with_each(("amount", "text"), [("0", "$0.00"), ("0.00421", "$0.0042"), ("0.1", "$0.10"), ("1234.5", "$1,234.50")])
def test_an_amount_is_told_to_the_cent_unless_it_is_small(amount: str, text: str) -> None:
    """maintenance OP-109"""
    assert money(Decimal(amount)) == text
