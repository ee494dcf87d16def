"""Repositories: normalise owner and name for storing, and build conditions that find both ways of storing them.

``owner/name`` splits at the first slash; an explicit owner wins over the embedded one; an owner is never guessed from
a trigger id. Rows of other programs may hold ``owner/name`` in the column ``repo``, and are split the same way when
read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Text, case, cast, func, literal_column

from lastlight_state.backends.sql.expressions import before
from lastlight_state.db import valid
from lastlight_state.db.lists.filters import CompoundFilter
from lastlight_state.db.lists.listing import MOST_VALUES
from lastlight_state.db.rows.statements import Row, bind, number
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.schema.indexes import first_chars
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows.tables import RUNS

# The parts of long texts and of large JSON that lists show, short enough for an index.

#: The number of characters of a long text that lists show.
PREVIEW = 500
#: The most characters of JSON that inboxes show; longer JSON is left out.
SHORT = 2_000


def preview(column: ColumnElement[str]) -> ColumnElement[str]:
    """Return the SQL expression for the beginning of a text, cut so short that an index can hold it."""
    return first_chars(column, PREVIEW)


def short(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the expression for a JSON column, NULL if it is longer than `SHORT`, so that an index can hold it."""
    return case((func.length(cast(column, Text)) <= literal_column(str(SHORT)), column))


_LIMITS = limits_of(RUNS)

_SLASH: sa.ColumnElement[str] = sa.literal_column("'/'")


def normalise_repo(owner: str | None, repo: str | None) -> tuple[str | None, str | None]:
    """Return the owner and bare name to store. Blank text becomes None; raises `InvalidValue` for an invalid name."""
    owner, repo = _trim_name("owner", owner), _trim_name("repo", repo)
    if repo is not None and "/" in repo:
        embedded, _, repo = repo.partition("/")
        owner = owner or embedded
    if owner is not None and "/" in owner:
        raise InvalidValue("owner", "must not hold a slash")
    return valid.optional("owner", owner, _LIMITS.owner), valid.optional("repo", repo, _LIMITS.repo)


def split_legacy(owner: str | None, repo: str | None) -> tuple[str | None, str | None]:
    """Split the stored owner and name of any row, also of a row that another program wrote. Never raises."""
    if owner is None and repo is not None and "/" in repo:
        owner, _, repo = repo.partition("/")
    return owner, repo


def _trim_name(where: str, value: str | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidValue(where, f"expected text, got {type(value).__name__}")
    text = value.strip()
    if not text:
        return None
    if text.startswith("/") or text.endswith("/") or "://" in text or any(character.isspace() for character in text):
        raise InvalidValue(where, "must be a repository name, without a slash at either end, a URL, or inner blanks")
    return text


def conditions(table: sa.Table) -> dict[str, sa.ColumnElement[bool]]:
    """Return the conditions on the columns ``owner`` and ``repo``, under the names that `repo_filter` returns."""
    return {"owned_repo": sa.or_(*spellings(table)), "bare_repo": bare(table)}


def spellings(table: sa.Table, at: str = "") -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    """Return the conditions for both ways in which a row may store the repository of the filter ``owned_repo``.

    A row matches one at most. ``at`` is a suffix for the names of the parameters.
    """
    owner, repo = table.c.owner, table.c.repo
    return (
        sa.and_(owner == bind(f"repo_owner{at}", owner), repo == bind(f"repo_name{at}", repo)),
        sa.and_(owner.is_(None), repo == bind(f"qualified{at}", repo)),
    )


def bare(table: sa.Table, parameter: str = "repo_name") -> sa.ColumnElement[bool]:
    """Return the condition ``bare_repo``: the stored name, or its part after the first slash, equals the parameter.

    Case matters.
    """
    owner, repo = table.c.owner, table.c.repo
    name = bind(parameter, repo)
    embedded = sa.func.substr(repo, sa.func.length(before(repo, _SLASH)) + number(2))
    return sa.or_(repo == name, sa.and_(owner.is_(None), embedded == name))


def repo_filter(repo: str) -> dict[str, dict[str, str]]:
    """Return the name of the filter for ``"owner/name"``, or for a bare name of any owner, with its parameters."""
    owner, name = _required_repo(None, repo)
    return {"bare_repo": {"repo_name": name}} if owner is None else _owned_filter(owner, name)


def repos_filter(given: str | Sequence[str]) -> Row:
    """Return the name of the filter for one repository, or for at most 50, with its parameters.

    The filter ``owned_repos`` takes several repositories with owners. ``any_repos`` takes several, at least one of them
    a bare name.
    """
    if isinstance(given, str) or not isinstance(given, Collection):
        return repo_filter(given)
    several = valid.several("repo", given)
    valid.at_most("repo", several, MOST_VALUES)
    found = [repo_filter(repo) for repo in several]
    if found and all(one == found[0] for one in found[1:]):
        return found[0]
    owners = _unique(one["owned_repo"] for one in found if "owned_repo" in one)
    names = _unique(one["bare_repo"] for one in found if "bare_repo" in one)
    if not names:
        return {"owned_repos": owners}
    return {"any_repos": [*owners, *({"bare_name": one["repo_name"]} for one in names)]}


def either_spelling(table: sa.Table) -> CompoundFilter:
    """Return the filter ``owned_repos``, which reads two ranges of an index for each repository."""
    return CompoundFilter(("repo_owner", "repo_name", "qualified"), lambda at: spellings(table, at))


def any_spelling(table: sa.Table) -> CompoundFilter:
    """Return the filter ``any_repos``, which no index can serve because of its bare names."""
    return CompoundFilter(
        ("repo_owner", "repo_name", "qualified", "bare_name"),
        lambda at: (*spellings(table, at), bare(table, f"bare_name{at}")),
        ranges=False,
    )


def _unique(given: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Return the distinct mappings, sorted, so that equal filters produce equal page tokens."""
    return [dict(one) for one in sorted({tuple(sorted(each.items())) for each in given})]


def owner_filter(owner: str | None, name: str | None) -> dict[str, Row]:
    """Return the name of the filter for one repository, with its parameters.

    Without an owner it finds only rows that have no owner.
    """
    return _owned_filter(*_required_repo(owner, name))


def _required_repo(owner: str | None, repo: str | None) -> tuple[str | None, str]:
    owner, name = normalise_repo(owner, repo)
    if name is None:
        raise InvalidValue("repo", "must not be blank")
    return owner, name


def _owned_filter(owner: str | None, name: str) -> dict[str, Row]:
    return {"owned_repo": {"repo_owner": owner, "repo_name": name, "qualified": f"{owner}/{name}" if owner else name}}
