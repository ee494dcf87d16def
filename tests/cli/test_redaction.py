from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_plus
from uuid import uuid4

import pytest
from sqlalchemy.engine import make_url
from support.cli.calls import Filled, Said, fill, lastlight_state
from support.each import with_each

from lastlight_state.redaction import Secrets
from lastlight_state.store import StateStore
from lastlight_state.testing.postgres import ThrowawayPostgres, connect

PASSWORD = "a!b@c$d%e*_,/:;=?@[]"
SPELLINGS = {PASSWORD, quote(PASSWORD), quote(PASSWORD, safe=""), quote_plus(PASSWORD)}
#: Roles belong to the server, which other test processes use, too.
ROLE = f"lastlight_reader_{uuid4().hex[:8]}"


@dataclass(frozen=True)
class Reader:
    """The URL of a role that may only SELECT, and has a difficult password; what the database holds."""

    url: str
    ids: Filled


@pytest.fixture
def reader(postgres_server: ThrowawayPostgres) -> Iterator[Reader]:
    with postgres_server.database() as url:
        with StateStore.open(url, migrate=True) as store:
            ids = fill(store)
        with connect(url) as owner:
            owner.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")
            owner.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {ROLE}")
        yield Reader(make_url(url).set(username=ROLE, password=PASSWORD).render_as_string(hide_password=False), ids)
        with connect(url) as owner:
            owner.execute(f"DROP OWNED BY {ROLE}")
            owner.execute(f"DROP ROLE {ROLE}")


def shows_a_password(said: Said) -> bool:
    return any(spelling in said.out + said.err for spelling in SPELLINGS)


def test_commands_that_look_work_for_a_role_that_may_only_select_and_show_no_password(reader: Reader) -> None:
    """maintenance OP-70, OP-73, case 49, case 52."""
    for words in (
        ("check",),
        ("current",),
        ("ls",),
        ("ls", "messaging"),
        ("show", "run", reader.ids.run, "--history"),
        ("stats",),
        ("stats", "--json"),
        ("check", "--json"),
    ):
        said = lastlight_state(*words, "--url", reader.url)
        assert said.code == 0, said
        assert not shows_a_password(said)


def test_what_the_role_may_not_do_is_a_named_error_without_the_password(reader: Reader) -> None:
    """maintenance OP-70, OP-72, case 49, case 52."""
    with connect(reader.url) as raw, pytest.raises(Exception, match="permission denied"):
        raw.execute("DELETE FROM workflow_runs")
    words = ("migrate", "--schema", "another", "--url", reader.url)
    said = lastlight_state(*words, "--json")
    assert said.code == 6
    assert said.answer["error"]["details"]["reason"] == "permission"
    assert not shows_a_password(said)
    assert not shows_a_password(lastlight_state(*words))


def test_no_failure_shows_the_password(tmp_path: Path) -> None:
    """maintenance OP-70, case 49."""
    url = f"postgresql://ana:{quote(PASSWORD, safe='')}@127.0.0.1:1/nowhere"
    file = tmp_path / "url"
    file.write_text(url, encoding="utf-8")
    for words in (
        ("ls", "--url", url),
        ("ls", "--url-file", file),
        ("migrate", "--url", url),
        ("stats", "--url", url),
        ("ls", url),
        (url,),
        ("check", "--url", url.replace("postgresql", "mysql")),
        ("check", "--url", f"ana:{PASSWORD}@host"),
        ("show", "run", url, "--url", url),
    ):
        for flags in ((), ("--json",)):
            said = lastlight_state(*words, *flags)
            assert said.code in (2, 6)
            assert not shows_a_password(said), said


def test_a_password_that_begins_as_another_one_is_hidden_whole() -> None:
    """maintenance OP-70: and one of four characters is long enough to be looked for by itself."""
    for order in (("land", "landing", "lan"), ("landing", "lan", "land")):
        secrets = Secrets()
        for password in order:
            secrets.learn(password)
        assert secrets.redact("landing land lan") == "*** *** lan"


@with_each(
    ("text", "hidden"),
    [
        ("at postgresql://ana:wonderland@host/db now", "at postgresql://ana:***@host/db now"),
        ("postgresql://ana:p@ss@host", "postgresql://ana:***@host"),
        ("postgresql://ana@host", "postgresql://ana@host"),
        ("sqlite:///a@b:c.db", "sqlite:///a@b:c.db"),
        ("two: x://a:b@c and y://d:e@f", "two: x://a:***@c and y://d:***@f"),
        ("the word wonderland by itself", "the word *** by itself"),
        ("written as wonder%20land or wonder+land", "written as *** or ***"),
        ("a short one such as abc stays", "a short one such as abc stays"),
    ],
)
def test_passwords_are_found_by_their_place_and_by_their_text(text: str, hidden: str) -> None:
    """maintenance OP-70."""
    secrets = Secrets()
    for password in ("wonderland", "wonder land", "abc"):
        secrets.learn(password)
    assert secrets.redact(text) == hidden
