"""Removes passwords from texts before they are printed."""

from __future__ import annotations

import re
from urllib.parse import quote, quote_plus

HIDDEN = "***"
LEAST_LENGTH = 4

#: Finds a login's password in a URL. Every part has a maximum length: otherwise a long text without spaces took hours.
_LOGIN = re.compile(r"(?P<before>[A-Za-z][A-Za-z0-9+.-]{0,30}://[^/\s:@]{0,300}:)\S{1,1000}(?=@)")


class Secrets:
    """A set of known passwords, which are removed from texts."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def learn(self, password: str) -> None:
        """Add a password, with each of its URL encodings. A very short password is only hidden inside URLs."""
        if len(password) >= LEAST_LENGTH:
            self._known |= {password, quote(password), quote(password, safe=""), quote_plus(password)}

    def redact(self, text: str) -> str:
        """Return the text without known passwords, and without the passwords of URLs in it."""
        for password in sorted(self._known, key=len, reverse=True):
            text = text.replace(password, HIDDEN)
        if "://" not in text:
            return text
        return _LOGIN.sub(rf"\g<before>{HIDDEN}", text)
