"""One rule for what a repository is called: an owner and a bare name.

Pure. A slash splits at the first one; an owner given explicitly wins over the embedded one. The owner is never
guessed from a trigger id.
"""

from __future__ import annotations

from lastlight_state.db import checks
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
    return checks.optional("owner", owner, OWNER), checks.optional("repo", repo, REPO)


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
