"""Cost: usage by day, and by workflow, repository, model and more, as charts, tables and CSV."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

from lastlight_state.errors import InvalidValue
from lastlight_state.inspector import pictures
from lastlight_state.inspector.page import Ask, Download, Page, View
from lastlight_state.inspector.rendering import FILTERS
from lastlight_state.workflows import UsageBucket, UsageGroup, UsageTotals
from lastlight_state.workflows.usage import MOST_DAYS, Dimension

page = Page("cost", "Cost", "/cost", "c")

DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
#: The measures that can be drawn, each with the filter that formats an amount.
MEASURES = {"cost_usd": "money", "total_tokens": "number", "executions": "number"}
#: Days that are shown by default.
DAYS = 14


@page.look()
def usage_page(ask: Ask) -> View:
    """Show usage by day and by one dimension."""
    measure, dimension = _word(ask, "measure", tuple(MEASURES)), _word(ask, "by", DIMENSIONS)
    daily, groups = _daily(ask), _groups(ask, dimension)
    named = _group_rows(groups, dimension)
    data = {
        "measure": measure,
        "by": dimension,
        "days": daily,
        "total": _total(daily),
        "groups": named,
        "workflows": _workflows(ask),
    }
    more = {
        "plot": pictures.columns(
            [(f"{day.start:%Y-%m-%d}", _amount(day, measure), _text(day, measure)) for day in daily]
        ),
        "shares": _shares(groups, measure),
        "dimensions": DIMENSIONS,
        "measures": tuple(MEASURES),
        "format": MEASURES[measure],
        "top": _text_of(max((_amount(day, measure) for day in daily), default=0), measure),
    }
    return View("cost.html", data, "Cost", more)


@page.look("/daily.csv")
def daily_csv(ask: Ask) -> Download:
    """Return the table of days as a CSV file."""
    return Download("usage-by-day.csv", _daily(ask))


@page.look("/groups.csv")
def groups_csv(ask: Ask) -> Download:
    """Return the table of the dimension as a CSV file."""
    dimension = _word(ask, "by", DIMENSIONS)
    return Download(f"usage-by-{dimension}.csv", _group_rows(_groups(ask, dimension), dimension))


def _days(ask: Ask) -> int:
    return ask.number("days", DAYS, most=MOST_DAYS)


def _daily(ask: Ask) -> tuple[UsageBucket, ...]:
    filters = {name: ask.text(name) for name in ("workflow", "repo", "model")}
    return ask.store.workflows.usage.daily(_days(ask), **filters)


def _total(daily: tuple[UsageBucket, ...]) -> dict[str, Any]:
    """Return the sums over all days."""
    return {name: sum(getattr(day, name) for day in daily) for name in UsageTotals.model_fields}


def _groups(ask: Ask, dimension: Dimension) -> tuple[UsageGroup, ...]:
    """Return the usage of the same days by one dimension. The filters of the table by day are not applied."""
    today = ask.clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
    return ask.store.workflows.usage.by(dimension, since=today - timedelta(days=_days(ask) - 1))


def _group_rows(groups: tuple[UsageGroup, ...], dimension: Dimension) -> list[dict[str, Any]]:
    """Return the groups as rows. Names of people are put in a field that is hidden as personal data."""
    name = "triggered_by" if dimension == "triggered_by" else "key"
    return [{name: group.key, **group.model_dump(exclude={"key"})} for group in groups]


def _workflows(ask: Ask) -> tuple[str, ...]:
    return ask.store.workflows.lookups.names().items


def _shares(groups: tuple[UsageGroup, ...], measure: str) -> list[float]:
    """Return the length of each group's bar, as a percentage of the greatest."""
    amounts = [_amount(group, measure) for group in groups]
    top = max(amounts, default=0)
    return [round(100 * amount / top, 1) if top else 0.0 for amount in amounts]


def _amount(sums: Any, measure: str) -> float:
    return float(getattr(sums, measure))


def _text(sums: Any, measure: str) -> str:
    return str(FILTERS[MEASURES[measure]](getattr(sums, measure)))


def _text_of(amount: float, measure: str) -> str:
    return str(FILTERS[MEASURES[measure]](amount if measure == "cost_usd" else int(amount)))


def _word(ask: Ask, name: str, words: tuple[Any, ...]) -> Any:
    """Return a query value that must be one of these words. If it is missing, return the first word."""
    found = ask.text(name) or words[0]
    if found not in words:
        raise InvalidValue(name, f"expected one of {', '.join(words)}", permitted=words)
    return found
