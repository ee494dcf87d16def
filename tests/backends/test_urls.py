import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import assume, given, strategies as st
from support.each import with_each

from lastlight_state.backends import urls
from lastlight_state.errors import InvalidValue

PASSWORD = "a!b@c$d%e*_,/:;=?@[]"
ENCODED = quote(PASSWORD, safe="")
PATH_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).map(lambda text: f"/x/{text}")


@with_each(
    "given",
    [
        "state.db",
        "/var/lib/state.db",
        "dir with blanks/ünï.db",
        "50%20off?.db",
        "a:b.db",
        "./file:/x",
        "/x/a://b",
        "C:/x",
    ],
)
def test_a_path_is_a_sqlite_file_of_exactly_that_name(given: str) -> None:
    """backends B-3: a bare path."""
    for way in (given, Path(given)):
        url = urls.parse(way)
        assert (urls.scheme(url), url.database) == ("sqlite", str(way))


@with_each(
    ("given", "scheme", "database"),
    [
        ("sqlite:///state.db", "sqlite", "state.db"),
        ("sqlite:////var/state.db", "sqlite", "/var/state.db"),
        ("sqlite:///:memory:", "sqlite", ":memory:"),
        ("sqlite:///mails@home/ana@acme.db", "sqlite", "mails@home/ana@acme.db"),
        ("postgres://db/state", "postgresql", "state"),
        ("postgresql://db/state", "postgresql", "state"),
        ("postgresql+psycopg://db/state", "postgresql", "state"),
        ("postgres+psycopg://db/state", "postgresql", "state"),
        ("POSTGRES://db/State", "postgresql", "State"),
        ("PostgreSQL+Psycopg://db/state", "postgresql", "state"),
        ("SQLite:///State.db", "sqlite", "State.db"),
    ],
)
def test_the_accepted_urls(given: str, scheme: str, database: str) -> None:
    """backends B-4."""
    url = urls.parse(given)
    assert (urls.scheme(url), url.database) == (scheme, database)


def test_a_percent_encoded_password_is_decoded_exactly() -> None:
    """backends B-5."""
    url = urls.parse(f"postgresql://ana:{ENCODED}@db:5432/state")
    assert (url.username, url.password, url.host, url.port) == ("ana", PASSWORD, "db", 5432)


@with_each(
    "given",
    [
        "ana:a-secret@db",
        "ana:a-secret@db/state",
        "ana:a/secret@db/state",
        "ana:a@secret@db/state",
        "//ana:a-secret@db/state",
        "postgresql:ana:a-secret@db/state",
        "postgresql:/ana:a-secret@db/state",
        "postgresql//ana:a-secret@db/state",
        "state/postgresql//ana:a-secret@db/state",
        "host=db user=ana password=a-secret dbname=state",
        "host=db password = 'a-secret'",
        f"ana:{PASSWORD}@db/state",
    ],
)
def test_a_login_without_a_scheme_never_becomes_a_file_name(given: str) -> None:
    """backends B-4: such a file's name would be a password."""
    with pytest.raises(InvalidValue, match="postgresql://user:password@host/database") as refused:
        urls.parse(given)
    assert "secret" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


@with_each(
    ("given", "host", "port"),
    [
        ("postgresql://ana:a-secret@a:5432,b:5433/state", "a,b", "5432,5433"),
        ("postgres://a,b.example:5433/state", "a,b.example", ",5433"),
        ("postgresql+psycopg://ana@[::1]:1,[::2]/state", "::1,::2", "1,"),
        ("postgresql://ana@a,b/state", "a,b", None),
    ],
)
def test_several_hosts_are_written_as_libpq_writes_them(given: str, host: str, port: str | None) -> None:
    """backends B-112."""
    for tail in ("", "?target_session_attrs=read-write"):
        url = urls.parse(given + tail)
        assert (url.query.get("host"), url.query.get("port"), url.database) == (host, port, "state")
        assert url.query.get("target_session_attrs") == (tail.partition("=")[2] or None)
        assert "secret" not in urls.redact_url(given + tail)


@with_each("hosts", ["a:x,b", "a,b:1:2", "[::1,b", "a,b/state?host=c"])
def test_several_hosts_that_cannot_be_read_are_refused(hosts: str) -> None:
    """backends B-112."""
    with pytest.raises(InvalidValue, match="this is not a database URL"):
        urls.parse(f"postgresql://ana:a-secret@{hosts}")


@with_each("given", ["", "   ", "a\0b", Path("a\0b")])
def test_what_names_nothing_is_refused(given: str | Path) -> None:
    with pytest.raises(InvalidValue, match="a text that is empty, or not a path"):
        urls.parse(given)


@with_each(
    "given",
    [
        "post-gres://ana:a-secret@db/s",
        "postgresql://ana:a-secret@db:port/state",
        f"postgresql://ana:{PASSWORD}@db/state",
        "postgresql://ana:a@secret@db/state",
    ],
)
def test_a_url_that_does_not_parse_is_refused_without_repeating_it(given: str) -> None:
    """backends B-5: passwords in no text."""
    with pytest.raises(InvalidValue) as refused:
        urls.parse(given)
    assert "secret" not in str(refused.value)
    assert "a!b" not in str(refused.value)
    assert refused.value.__cause__ is None


@with_each(
    "given",
    [
        "postgresql://ana:a-secret@db/state",
        f"postgresql://ana:{quote('a-secret@/' + PASSWORD, safe='')}@db/state",
        "postgresql://ana@db/state?password=a-secret",
        "postgresql://db/state?sslpassword=a-secret&sslmode=require",
        "mysql://ana:a-secret@db/state",
    ],
)
def test_a_url_is_shown_without_its_passwords(given: str) -> None:
    """backends B-5."""
    shown = urls.redact_url(given)
    assert "secret" not in shown
    assert "@db/" in shown or "://db/" in shown


@given(path=PATH_TEXTS)
def test_the_url_of_a_file_that_is_shown_leads_back_to_the_file(path: str) -> None:
    """Commands that errors suggest carry it, unless a part of the path looks like a login, which is masked."""
    assume(not re.search(":.*@", path, re.DOTALL))
    assert urls.parse(urls.redact_url(Path(path))).database == str(Path(path))


@with_each(
    "given",
    [
        "postgresql//db/state",
        "postgres:/db/state",
        "sqlite:state.db",
        "sqlite3:state.db",
        "POSTGRESQL//db/s",
        "file:/x/y.db",
        "file:y.db",
        "FILE:///x/y.db",
        "file://localhost/x/y.db?mode=ro",
        "jdbc:postgresql://db/state",
        "mysql:/db/state",
        "DATABASE_URL=postgres://db/state",
        "'postgres://db/state'",
        " postgres://db/state",
    ],
)
def test_a_mistyped_url_does_not_become_a_file(given: str) -> None:
    """backends B-4."""
    with pytest.raises(InvalidValue, match="neither a path nor a URL"):
        urls.parse(given)


@with_each("given", ["/x/ana:a-secret@db/state.db", "./ana:a-secret@db", "sqlite:////x/ana:a-secret@db"])
def test_what_looks_like_a_login_is_masked_in_a_path_too(given: str) -> None:
    """backends B-5: passwords in no text."""
    assert "secret" not in urls.redact_url(given)
    assert "***" in urls.redact_url(given)


def test_what_is_neither_a_text_nor_a_path_is_refused() -> None:
    """backends B-86."""
    wrong: Any = 5
    with pytest.raises(InvalidValue, match="expected a URL or a path, got int"):
        urls.parse(wrong)


@with_each("given", ["a\ud800", "sqlite:////tmp/\udcff.db", "postgresql://h/\ud800", Path("/tmp/\udcff")])
def test_what_is_not_utf_8_is_refused(given: str | Path) -> None:
    """backends B-86."""
    with pytest.raises(InvalidValue, match="must be UTF-8"):
        urls.parse(given)
