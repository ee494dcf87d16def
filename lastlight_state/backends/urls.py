"""What callers may give as a database: nothing, a path, or a URL."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, unquote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from lastlight_state.errors import InvalidValue
from lastlight_state.special_files import mismatch_at

#: True where SQLAlchemy itself decodes the name of a database in a URL: from 2.1 on.
_DECODES = make_url("sqlite:///%41").database == "A"
#: The driver of each database product that is built in.
DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
#: A path that begins as a URL does: ``postgresql//``, ``sqlite:file``, ``file:/path``, ``mysql:/``, ``url=pg://``.
_MISTYPED = re.compile(
    r"\s*(?:(?:sqlite3?|postgres(?:ql)?)(?:\+\w+)?\s*(?::|/{2,}|;)|(?:file|jdbc):|[a-z][a-z0-9+.-]+:/)"
    r"|(?!/|\.{1,2}/).*://",
    re.IGNORECASE | re.DOTALL,
)
#: A colon before an ``@`` makes a login, wherever in the text, unless it begins as only paths do: ``/``, ``./``.
_LOGIN = re.compile(r"(?s)(?!/(?!/)|\.{1,2}/).*:.*@|.*\bpassword\s*=")
_PASSWORD = re.compile(r"(?i)(?:(?<=:)|(?<=%3a))(?:(?!%3a|%40)[^/\\:@])+(?=@|%40)|(?<=\bpassword=)[^\s&]+")
_SECRETS = ("password", "sslpassword")
#: A URL with several hosts, as libpq reads it: its scheme, its login, the hosts, and what follows them.
_SEVERAL_HOSTS = re.compile(r"(?s)(?!(?i:sqlite))([^:/]+://)([^/?]*@)?([^/?@]*,[^/?@]*)(.*)")
_HOST = re.compile(r"(\[[^\[\]]+\]|[^\[\]:]*)(?::(\d*))?")


def parse(text: str | Path) -> URL:
    """Return the URL of a path or URL text. A path means SQLite.

    Raises `InvalidValue` for an empty text, one that is not UTF-8, a URL that does not parse, and a login without a
    scheme (or in libpq's words), which would otherwise become a file whose name is a password.
    """
    if not isinstance(text, str | Path):
        raise InvalidValue("url", f"expected a URL or a path, got {type(text).__name__}")
    if not str(text).strip() or "\0" in str(text):
        raise InvalidValue("url", "expected a URL or a path, got a text that is empty, or not a path")
    try:
        str(text).encode()
    except UnicodeEncodeError:  # also a file name that is not UTF-8, which SQLite cannot open
        raise InvalidValue("url", "must be UTF-8") from None
    if isinstance(text, Path):
        return URL.create("sqlite", database=str(text))
    if not _SCHEME.match(text) or text[:7].lower() == "file://":
        if _LOGIN.match(text):
            raise InvalidValue(
                "url", "must not be a login without a scheme: write postgresql://user:password@host/database"
            )
        if _MISTYPED.match(text):
            raise InvalidValue(
                "url",
                "neither a path nor a URL: write the path itself, sqlite:///path or postgresql://host/database"
                " (a path that looks like a URL begins with ./)",
            )
        return URL.create("sqlite", database=text)
    several = _SEVERAL_HOSTS.fullmatch(text)
    try:
        url = make_url(text) if several is None else _with_hosts(*several.groups(""))
    except (ArgumentError, ValueError):
        raise InvalidValue(
            "url", "expected sqlite:///path or postgresql://host/database: this is not a database URL"
        ) from None
    url = _decoded(url).set(drivername=_spelled(url.drivername))
    if scheme(url) != "sqlite" and text.count("@") > 1:
        raise InvalidValue("url", "more than one '@': percent-encode those of user name and password")
    return url


def _with_hosts(scheme: str, login: str, hosts: str, rest: str) -> URL:
    """Return the URL with its hosts and ports as options, the form of several hosts that SQLAlchemy knows."""
    parts = [_HOST.fullmatch(host) for host in hosts.split(",")]
    url = make_url(f"{scheme}{login}{rest if rest.startswith('/') else '/' + rest}")
    if None in parts or {"host", "port"} & url.query.keys():
        raise ValueError(hosts)
    pairs = [(part[1].strip("[]"), part[2] or "") for part in parts if part is not None]
    ports = ",".join(port for _, port in pairs)
    named = {"host": ",".join(host for host, _ in pairs)}
    return url.update_query_dict(named | ({"port": ports} if ports.strip(",") else {}))


def _decoded(url: URL) -> URL:
    return url if _DECODES or not url.database else url.set(database=unquote(url.database))


def _written(url: URL) -> str:
    """Return the URL as text, which `parse` reads as the same URL, without its password."""
    encoded = url if _DECODES or not url.database else url.set(database=quote(url.database, safe=" +/"))
    return encoded.render_as_string(hide_password=True)


def _spelled(drivername: str) -> str:
    """Return the scheme as SQLAlchemy spells it: small letters, and ``postgresql`` for ``postgres``."""
    name, plus, driver = drivername.lower().partition("+")
    return f"{'postgresql' if name == 'postgres' else name}{plus}{driver}"


def scheme(url: URL) -> str:
    """Return the name of the database product in a URL, without the driver."""
    return url.drivername.partition("+")[0]


def driver(url: URL) -> str:
    """Return the driver that a URL names, or else ours: SQLAlchemy 2.0 has another one for Postgres than 2.1."""
    return url.drivername.partition("+")[2] or DRIVERS.get(scheme(url), "")


def ways_beside(name: str, driver: str) -> str:
    """Return the two ways to use a store beside an asynchronous engine of the caller, for an error."""
    return (
        f"make your own engine with {name}+{driver} and join it by transaction(connection=), "
        "or give a function to store.run(), which has a transaction of its own"
    )


def file_of(text: str) -> Path | None:
    """Return the file that a SQLite URL names; None for the URL of another product."""
    url = parse(text)
    return Path(url.database or "") if scheme(url) == "sqlite" else None


def redacted(text: str | Path) -> str:
    """Return the URL of the text, with every password replaced by asterisks."""
    return masked(shown(parse(text)))


def masked(text: str) -> str:
    """Return the text with asterisks for whatever looks like the password of a login in it."""
    return _PASSWORD.sub("***", text)


def passwords(text: str | None) -> list[str]:
    """Return the passwords in a URL. A text that is no URL has none."""
    if text is None:
        return []
    try:
        url = parse(text)
    except InvalidValue:
        return []
    return [found for found in (url.password, *map(url.query.get, _SECRETS)) if isinstance(found, str)]


def shown(url: URL) -> str:
    """Return the URL as text, with every password replaced by asterisks."""
    hidden = {name: "***" for name in _SECRETS if name in url.query}
    return _written(url.update_query_dict(hidden) if hidden else url)


def command(words: Sequence[str], location: str, named_by: str, schema: str | None) -> str:
    """Return a command of ours on the database at ``location``, to be pasted into a shell as it stands.

    No password is told. Where the URL has one, ``named_by`` gives it to the command, from a file or a variable. Without
    that the command has the URL without its password, which libpq then takes from ``PGPASSWORD`` or its own file.
    """
    url = parse(location)
    hidden = [name for name in _SECRETS if name in url.query]
    bare = URL.create(url.drivername, url.username, None, url.host, url.port, url.database, url.query)
    plain = _written(bare.difference_update_query(hidden))
    secret = url.password is not None or hidden
    given = named_by if named_by and secret else f"--url {shlex.quote(plain if secret else location)}"
    return " ".join((shlex.join(words), given, *(("--schema", shlex.quote(schema)) if schema else ())))


#: Files that libpq opens by a parameter of the URL, and by a variable of the environment.
_FILES = {
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcrl": "PGSSLCRL",
    "passfile": "PGPASSFILE",
    "servicefile": "PGSERVICEFILE",
}


def refuse_special_files(url: URL) -> None:
    """Raise `InvalidValue` for a file of the URL or the environment at which libpq would wait, or never end reading."""
    for name, variable in _FILES.items():
        said = url.query.get(name, os.environ.get(variable, ""))
        for path in (said,) if isinstance(said, str) else said:
            problem = mismatch_at(Path(path)) if path not in ("", os.devnull) else None
            if problem is not None:
                raise InvalidValue("url" if name in url.query else variable, f"{name} {path!r:.200}: {problem}")
