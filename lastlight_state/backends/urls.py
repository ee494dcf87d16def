"""The ways in which callers may name a database: no name at all, a path, or a URL."""

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

#: True if SQLAlchemy itself decodes the database name in a URL, as it does from 2.1 on.
_DECODES = make_url("sqlite:///%41").database == "A"
#: The driver of each built-in database product.
DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
#: A path that looks like a malformed URL: ``postgresql//``, ``sqlite:file``, ``file:/path``, ``mysql:/``,
#: ``url=pg://``.
_MISTYPED = re.compile(
    r"\s*(?:(?:sqlite3?|postgres(?:ql)?)(?:\+\w+)?\s*(?::|/{2,}|;)|(?:file|jdbc):|[a-z][a-z0-9+.-]+:/)"
    r"|(?!/|\.{1,2}/).*://",
    re.IGNORECASE | re.DOTALL,
)
#: A login: a colon before an ``@``, anywhere in the text. Texts that begin like a path (``/``, ``./``) are excepted.
_LOGIN = re.compile(r"(?s)(?!/(?!/)|\.{1,2}/).*:.*@|.*\bpassword\s*=")
_PASSWORD = re.compile(r"(?i)(?:(?<=:)|(?<=%3a))(?:(?!%3a|%40)[^/\\:@])+(?=@|%40)|(?<=\bpassword=)[^\s&]+")
_SECRETS = ("password", "sslpassword")
#: A URL with several hosts, as libpq reads it: scheme, login, hosts, and the rest.
_SEVERAL_HOSTS = re.compile(r"(?s)(?!(?i:sqlite))([^:/]+://)([^/?]*@)?([^/?@]*,[^/?@]*)(.*)")
_HOST = re.compile(r"(\[[^\[\]]+\]|[^\[\]:]*)(?::(\d*))?")


def parse(text: str | Path) -> URL:
    """Parse a text that is a URL or a path. A path means SQLite.

    Raises `InvalidValue` for an empty text, a text that is not UTF-8, and a URL that does not parse. Also raises it for
    a login without a scheme (or in libpq's own words), which would otherwise become a file whose name contains a
    password.
    """
    if not isinstance(text, str | Path):
        raise InvalidValue("url", f"expected a URL or a path, got {type(text).__name__}")
    if not str(text).strip() or "\0" in str(text):
        raise InvalidValue("url", "expected a URL or a path, got a text that is empty, or not a path")
    try:
        str(text).encode()
    except UnicodeEncodeError:  # or a file name that is not UTF-8, which SQLite cannot open
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
    url = _decode_database(url).set(drivername=_spell_scheme(url.drivername))
    if scheme(url) != "sqlite" and text.count("@") > 1:
        raise InvalidValue("url", "more than one '@': percent-encode those of user name and password")
    return url


def _with_hosts(scheme: str, login: str, hosts: str, rest: str) -> URL:
    """Move the URL's hosts and ports into its options, which is how SQLAlchemy writes several hosts."""
    parts = [_HOST.fullmatch(host) for host in hosts.split(",")]
    url = make_url(f"{scheme}{login}{rest if rest.startswith('/') else '/' + rest}")
    if None in parts or {"host", "port"} & url.query.keys():
        raise ValueError(hosts)
    pairs = [(part[1].strip("[]"), part[2] or "") for part in parts if part is not None]
    ports = ",".join(port for _, port in pairs)
    named = {"host": ",".join(host for host, _ in pairs)}
    return url.update_query_dict(named | ({"port": ports} if ports.strip(",") else {}))


def _decode_database(url: URL) -> URL:
    return url if _DECODES or not url.database else url.set(database=unquote(url.database))


def _text_without_password(url: URL) -> str:
    """Return the URL as text without its password. `parse` reads the text back as the same URL."""
    encoded = url if _DECODES or not url.database else url.set(database=quote(url.database, safe=" +/"))
    return encoded.render_as_string(hide_password=True)


def _spell_scheme(drivername: str) -> str:
    """Return the scheme as SQLAlchemy writes it: in lower case, and ``postgresql`` for ``postgres``."""
    name, plus, driver = drivername.lower().partition("+")
    return f"{'postgresql' if name == 'postgres' else name}{plus}{driver}"


def scheme(url: URL) -> str:
    """Return the name of the database product in a URL, without the driver."""
    return url.drivername.partition("+")[0]


def driver(url: URL) -> str:
    """Return the driver that a URL names.

    Without one, return this library's, because SQLAlchemy's default for Postgres changed with 2.1.
    """
    return url.drivername.partition("+")[2] or DRIVERS.get(scheme(url), "")


def ways_beside(name: str, driver: str) -> str:
    """Describe, for an error message, the two ways to use a store together with a caller's asynchronous engine."""
    return (
        f"make your own engine with {name}+{driver} and join it by transaction(connection=), "
        "or give a function to store.run(), which has a transaction of its own"
    )


def file_of(text: str) -> Path | None:
    """Return the file that a SQLite URL names. Return None for another product's URL."""
    url = parse(text)
    return Path(url.database or "") if scheme(url) == "sqlite" else None


def redact_url(text: str | Path) -> str:
    """Return the text's URL with every password replaced by asterisks."""
    return mask_passwords(masked_url(parse(text)))


def mask_passwords(text: str) -> str:
    """Return the text with asterisks for everything that looks like a login's password."""
    return _PASSWORD.sub("***", text)


def passwords(text: str | None) -> list[str]:
    """Return the passwords in a URL. Return none for a text that is not a URL."""
    if text is None:
        return []
    try:
        url = parse(text)
    except InvalidValue:
        return []
    return [found for found in (url.password, *map(url.query.get, _SECRETS)) if isinstance(found, str)]


def masked_url(url: URL) -> str:
    """Return the URL as text, with every password replaced by asterisks."""
    hidden = {name: "***" for name in _SECRETS if name in url.query}
    return _text_without_password(url.update_query_dict(hidden) if hidden else url)


def command(words: Sequence[str], location: str, named_by: str, schema: str | None) -> str:
    """Return a shell command of this library for the database at ``location``, which can be pasted.

    The command shows no password. If the URL has one, the command reads the URL from ``named_by``, a file or a
    variable. Without ``named_by``, the command has the URL without its password. libpq then takes the password from
    ``PGPASSWORD`` or its own file.
    """
    url = parse(location)
    hidden = [name for name in _SECRETS if name in url.query]
    bare = URL.create(url.drivername, url.username, None, url.host, url.port, url.database, url.query)
    plain = _text_without_password(bare.difference_update_query(hidden))
    secret = url.password is not None or hidden
    given = named_by if named_by and secret else f"--url {shlex.quote(plain if secret else location)}"
    return " ".join((shlex.join(words), given, *(("--schema", shlex.quote(schema)) if schema else ())))


#: Files that libpq opens, by the URL's parameter and by the environment variable that names them.
_FILES = {
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcrl": "PGSSLCRL",
    "passfile": "PGPASSFILE",
    "servicefile": "PGSERVICEFILE",
}


def refuse_special_files(url: URL) -> None:
    """Raise `InvalidValue` if URL or environment name a file that libpq would never finish reading: a FIFO."""
    for name, variable in _FILES.items():
        said = url.query.get(name, os.environ.get(variable, ""))
        for path in (said,) if isinstance(said, str) else said:
            problem = mismatch_at(Path(path)) if path not in ("", os.devnull) else None
            if problem is not None:
                raise InvalidValue("url" if name in url.query else variable, f"{name} {path!r:.200}: {problem}")
