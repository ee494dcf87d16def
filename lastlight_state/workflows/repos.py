"""Conditions on rows that belong to a repository, also where another program stored ``owner/name`` as one text.

One rule for what a repository is called: an owner and a bare name.

Pure. A slash splits at the first one; an owner given explicitly wins over the embedded one. The owner is never
guessed from a trigger id.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.backends.sql.scalars import before
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows.words import OWNER, REPO


def normalised(owner: str | None, repo: str | None) -> tuple[str | None, str | None]:
    """Owner and bare repository as they are stored. Blank is absent; raises `InvalidValue` for what is no name."""
    owner, repo = _trimmed("owner", owner), _trimmed("repo", repo)
    if repo is not None and "/" in repo:
        embedded, _, repo = repo.partition("/")
        owner = owner or embedded
    if owner is not None and "/" in owner:
        raise InvalidValue("owner", "a slash in an owner")
    return valid.optional("owner", owner, OWNER), valid.optional("repo", repo, REPO)


def split_legacy(owner: str | None, repo: str | None) -> tuple[str | None, str | None]:
    """The same split for what another program stored; nothing is refused."""
    if owner is None and repo is not None and "/" in repo:
        owner, _, repo = repo.partition("/")
    return owner, repo


def _trimmed(where: str, value: str | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidValue(where, f"text is needed, not {type(value).__name__}")
    text = value.strip()
    if not text:
        return None
    if text.startswith("/") or text.endswith("/") or "://" in text or any(character.isspace() for character in text):
        raise InvalidValue(where, "not a repository name: a leading or trailing slash, a URL, or blanks inside")
    return text


_SLASH: sa.ColumnElement[str] = sa.literal_column("'/'")


def conditions(table: sa.Table) -> dict[str, sa.ColumnElement[bool]]:
    """The conditions of a table with the columns ``owner`` and ``repo``, named as `asked` names them."""
    return {"owned_repo": sa.or_(*spellings(table)), "bare_repo": bare(table)}


def spellings(table: sa.Table) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    """The two ways in which rows spell the one repository of ``owned_repo``; each row has one of them."""
    owner, repo = table.c.owner, table.c.repo
    return (
        sa.and_(owner == _given("repo_owner", owner), repo == _given("repo_name", repo)),
        sa.and_(owner.is_(None), repo == _given("qualified", repo)),
    )


def bare(table: sa.Table) -> sa.ColumnElement[bool]:
    """The condition ``bare_repo``: by name, which in one text stands behind its first slash. Case matters."""
    owner, repo = table.c.owner, table.c.repo
    name = _given("repo_name", repo)
    embedded = sa.func.substr(repo, sa.func.length(before(repo, _SLASH)) + sa.literal_column("2"))
    return sa.or_(repo == name, sa.and_(owner.is_(None), embedded == name))


def _given(name: str, column: sa.Column[Any]) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=column.type)


def asked(repo: str) -> dict[str, dict[str, str]]:
    """The condition and its parameters: ``"owner/name"`` is one repository, a bare name is that of any owner."""
    owner, name = normalised(None, repo)
    if name is None:
        raise InvalidValue("repo", "blank")
    if owner is not None:
        return owned(owner, name)
    return {"bare_repo": {"repo_name": name}}


def owned(owner: str | None, name: str | None) -> dict[str, dict[str, Any]]:
    """The condition and its parameters for one repository; without an owner, for rows that tell none."""
    owner, name = normalised(owner, name)
    if name is None:
        raise InvalidValue("repo", "blank")
    return {"owned_repo": {"repo_owner": owner, "repo_name": name, "qualified": f"{owner}/{name}" if owner else name}}
