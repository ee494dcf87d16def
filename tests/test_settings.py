import os
import pickle
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from support.each import with_each

from lastlight_state.errors import BackendUnavailable, InvalidValue
from lastlight_state.files.agent_log import Slug
from lastlight_state.settings import PREFIX, Limits, Settings, load_settings, secret_in
from lastlight_state.store import StateStore


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE_DIR", "SCHEMA"):
        monkeypatch.delenv(name, raising=False)


def test_without_anything_said_the_defaults_hold() -> None:
    """backends B-1."""
    settings = load_settings(None)
    assert (settings.url, settings.schema_name, settings.state_dir) == (None, None, Path("state"))
    assert (settings.read_only, settings.durability, settings.wal_autocheckpoint) == (False, "normal", 1000)
    assert settings.messaging_idle_timeout == timedelta(minutes=30)


def test_an_argument_beats_settings_and_settings_beat_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-1."""
    for name, value in {"URL": "env.db", "SCHEMA": "env", "STATE_DIR": "/env", "DURABILITY": "full"}.items():
        monkeypatch.setenv(PREFIX + name, value)
    given = Settings(url="given.db", schema_name="given", state_dir=Path("/given"), durability="normal")
    assert (given.url, given.schema_name, given.state_dir, given.durability) == (
        "given.db", "given", Path("/given"), "normal",
    )  # fmt: skip
    over = load_settings(given, url="argument.db", schema_name="argument")
    assert (over.url, over.schema_name, over.state_dir, over.durability) == (
        "argument.db", "argument", Path("/given"), "normal",
    )  # fmt: skip
    alone = load_settings(None, state_dir="/argument")
    assert (alone.url, alone.schema_name, alone.state_dir, alone.durability) == (
        "env.db", "env", Path("/argument"), "full",
    )  # fmt: skip


def test_a_service_may_have_a_prefix_or_a_file_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """backends B-1: as of any settings of pydantic."""
    monkeypatch.setenv("MINE_POOL_SIZE", "7")
    (tmp_path / "env").write_text(f"{PREFIX}POOL_SIZE=8\n")
    given: list[dict[str, Any]] = [{}, {"_env_prefix": "MINE_"}, {"_env_file": tmp_path / "env"}]
    assert [Settings(**one).pool_size for one in given] == [5, 7, 8]


def test_settings_are_a_part_of_the_settings_of_a_host() -> None:
    """backends B-1: given as they were made, or as a mapping; anything else is named."""

    class Host(BaseModel):
        state: Settings

    made = Settings(url="state.db", pooler="transaction", lock_timeout=3)
    assert Host(state=made).state == made
    read = Host.model_validate({"state": {"url": "state.db", "pooler": "transaction", "lock_timeout": 3}})
    assert read.state == made
    with pytest.raises(ValidationError, match=r"(?s)state.*instance of Settings"):
        Host.model_validate({"state": "state.db"})


def test_the_schema_goes_by_its_own_name_too() -> None:
    """backends B-1."""
    assert load_settings(None, schema="agents").schema_name == "agents"


def test_what_settings_leave_to_its_default_is_not_read_from_the_environment_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """backends B-1: Settings beat the environment, even one that changed after they were made."""
    made = Settings()
    for name, value in {"URL": "later.db", "SCHEMA": "later", "STATE_DIR": "/later", "POOL_SIZE": "9"}.items():
        monkeypatch.setenv(PREFIX + name, value)
    assert load_settings(made, durability="full") == made.model_copy(update={"durability": "full"})


#: Variables with a value, the attribute that each sets, and what it then is.
VARIABLES: list[tuple[str, str, str, Any]] = [
    ("URL", "postgresql://db/state", "url", "postgresql://db/state"),
    ("URL_FILE", "/run/secrets/url", "url_file", Path("/run/secrets/url")),
    ("SCHEMA", "agents", "schema_name", "agents"),
    ("STATE_DIR", "/var/state", "state_dir", Path("/var/state")),
    ("MIGRATE", "false", "migrate", False),
    ("READ_ONLY", "1", "read_only", True),
    ("DURABILITY", "full", "durability", "full"),
    ("REPLICA", "postgresql://b/x", "replica", "postgresql://b/x"),
    ("MAX_STALENESS", "2.5", "max_staleness", 2.5),
    ("JOURNAL_MODE", "delete", "journal_mode", "delete"),
    ("WAL_AUTOCHECKPOINT", "0", "wal_autocheckpoint", 0),
    ("POOL_SIZE", "20", "pool_size", 20),
    ("ANY_SERVER", "1", "any_server", True),
    ("POOLER", "transaction", "pooler", "transaction"),
    ("STATEMENT_TIMEOUT", "2.5", "statement_timeout", 2.5),
    ("LOCK_TIMEOUT", "1", "lock_timeout", 1.0),
    ("BUSY_TIMEOUT", "0.5", "busy_timeout", 0.5),
    ("QUEUE_TIMEOUT", "2", "queue_timeout", 2.0),
    ("POOL_TIMEOUT", "3", "pool_timeout", 3.0),
    ("SLOW_STATEMENT", "0.5", "slow_statement", 0.5),
    ("RETRY_SECONDS", "1.5", "retry_seconds", 1.5),
    ("LIMITS__SCRATCH", "1000", "limits", Limits(scratch=1000)),
    ("MESSAGING_IDLE_TIMEOUT", "90", "messaging_idle_timeout", timedelta(seconds=90)),
    ("AGENT_LOG_DIR", "/var/log", "agent_log_dir", Path("/var/log")),
    ("RUN_LOG_ROOT", "/var/runs", "run_log_root", Path("/var/runs")),
    ("SESSION_TYPES", '[[["review"], "reviewer"]]', "session_types", ((("review",), "reviewer"),)),
    ("MAILBOX_ROOT", "/var/boxes", "mailbox_root", Path("/var/boxes")),
    ("MAILBOX_MODE", "group", "mailbox_mode", "group"),
    ("MAILBOX_TIMEZONE", "Europe/Paris", "mailbox_timezone", "Europe/Paris"),
    ("LINE_SYNC", "record", "line_sync", "record"),
    ("VECTOR_MEMORY", "0", "vector_memory", 0),
    ("SQLITE_DRIVER", "pysqlite3", "sqlite_driver", "pysqlite3"),
]


@with_each(("name", "text", "attribute", "value"), VARIABLES)
def test_every_setting_has_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, attribute: str, value: object
) -> None:
    """backends B-1."""
    monkeypatch.setenv(PREFIX + name, text)
    assert getattr(Settings(), attribute) == value


def test_the_timeouts_of_a_session_have_no_default_behind_a_pooler(monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-31: such a pooler keeps no settings of a session."""
    assert (Settings().statement_timeout, Settings().lock_timeout) == (60, 10)
    monkeypatch.setenv(PREFIX + "POOLER", "transaction")
    assert (Settings().statement_timeout, Settings().lock_timeout) == (None, None)
    assert (Settings(lock_timeout=3).statement_timeout, Settings(lock_timeout=3).lock_timeout) == (None, 3)


def test_the_list_above_leaves_no_setting_out() -> None:
    tested = {attribute for _, _, attribute, _ in VARIABLES}
    assert tested == set(Settings.model_fields)


def test_the_state_directory_has_a_second_name_that_gives_way_to_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-1: ``STATE_DIR``."""
    monkeypatch.setenv("STATE_DIR", "/shared")
    assert Settings().state_dir == Path("/shared")
    monkeypatch.setenv(PREFIX + "STATE_DIR", "/own")
    assert Settings().state_dir == Path("/own")


@with_each("name", ["SCHEMA", "SCHEMA_NAME", "URL", "CONTEXT", "SCRATCH", "POOL_SIZE"])
def test_variables_of_other_programs_are_not_ours(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """backends B-1: the environment means ``LASTLIGHT_STATE_<NAME>`` and ``STATE_DIR``."""
    monkeypatch.setenv(name, "7")
    assert Settings() == Settings(url=None, schema_name=None, limits=Limits(), pool_size=5)
    assert Limits().context == 256 * 1024


def test_an_empty_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE_DIR", PREFIX + "URL", PREFIX + "POOL_SIZE"):
        monkeypatch.setenv(name, "")
    assert Settings() == Settings(url=None, state_dir=Path("state"), pool_size=5)


@with_each(
    ("arguments", "where"),
    [
        ({"durability": "sometimes"}, "durability"),
        ({"pool_size": 0}, "pool_size"),
        ({"wal_autocheckpoint": -1}, "wal_autocheckpoint"),
        ({"statement_timeout": 0}, "statement_timeout"),
        ({"limits": {"context": "much"}}, "limits.context"),
        ({"limits": {"contxt": 1}}, "limits.contxt"),
        ({"no_such_setting": 1}, "no_such_setting"),
    ],
)
def test_a_wrong_setting_is_named(arguments: dict[str, Any], where: str) -> None:
    """backends B-2."""
    with pytest.raises(InvalidValue) as refused:
        load_settings(None, **arguments)
    assert refused.value.where == where


HOSTILE = [
    "\0",
    "a\0b",
    "\ud800",
    "",
    "x" * 5000,
    float("nan"),
    float("inf"),
    -1,
    2**70,
    1e300,
    b"\xff",
    {},
    [],
    object(),
]


@with_each("name", Settings.model_fields)
def test_a_hostile_setting_is_refused_by_name_or_works(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-2: never by an error of the driver or of Python."""
    monkeypatch.chdir(tmp_path)
    for value in HOSTILE:
        with suppress(InvalidValue, BackendUnavailable):
            settings = load_settings(None, **{name: value})
            with StateStore.open(settings=settings) as store:
                store.workflows.overrides.put("w", enabled=True)


@with_each("schema", ["x\0y", "", "\ud800", "x" * 64, "ü" * 32])
def test_a_schema_that_no_database_can_have_is_refused_by_name(schema: str) -> None:
    """backends B-2: before anything is sent."""
    with pytest.raises(InvalidValue, match="schema"):
        StateStore.open("postgresql://nobody@127.0.0.1:1/none", schema=schema)


@with_each(("name", "where"), [("POOL_SIZE", "pool_size"), ("SESSION_TYPES", "session_types")])
def test_a_wrong_variable_is_named_and_not_repeated(monkeypatch: pytest.MonkeyPatch, name: str, where: str) -> None:
    """house H-53: no error text carries what may be a secret."""
    monkeypatch.setenv(PREFIX + name, "{secret")
    with pytest.raises(InvalidValue) as refused:
        load_settings(None)
    assert where in str(refused.value)
    assert "secret" not in str(refused.value)


def test_settings_show_no_url_because_it_may_hold_a_password() -> None:
    """backends B-2: passwords in no text."""
    settings = Settings(url="postgresql://ana:a-secret@db/state")
    assert "secret" not in repr(settings) + str(settings)
    assert pickle.loads(pickle.dumps(settings)).url == settings.url


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file with a URL, as a secret is mounted: with a line end."""
    file = tmp_path / "url"
    file.write_text("postgresql://ana:swordfish@db/state\n", encoding="utf-8")
    return file


def test_a_file_holds_the_url(monkeypatch: pytest.MonkeyPatch, secret: Path) -> None:
    """backends B-89."""
    monkeypatch.setenv(PREFIX + "URL_FILE", str(secret))
    assert load_settings(None).url == "postgresql://ana:swordfish@db/state"
    given = load_settings(Settings(url_file=secret))
    assert (given.url, given.url_file) == ("postgresql://ana:swordfish@db/state", None)
    assert "swordfish" not in repr(given)


def test_an_argument_that_names_the_database_leaves_no_other_name_of_it(
    monkeypatch: pytest.MonkeyPatch, secret: Path
) -> None:
    """backends B-89: a URL beats a file of a weaker source, and a file beats a URL."""
    for name, text, arguments, url in (
        ("URL_FILE", "/nowhere", {"url": "mine.db"}, "mine.db"),
        ("URL", "theirs.db", {"url_file": secret}, "postgresql://ana:swordfish@db/state"),
    ):
        with monkeypatch.context() as environment:
            environment.setenv(PREFIX + name, text)
            assert load_settings(None, **arguments).url == url
    assert load_settings(Settings(url_file=Path("/nowhere")), url="mine.db").url == "mine.db"
    assert load_settings(Settings(url="theirs.db"), url_file=secret).url == "postgresql://ana:swordfish@db/state"
    assert load_settings(Settings(url="mine.db"), durability="full").url == "mine.db"


def test_a_url_and_a_file_together_are_refused_with_both_names(monkeypatch: pytest.MonkeyPatch, secret: Path) -> None:
    """backends B-89, house H-53: no error text carries what may be a secret."""
    url = secret.read_text(encoding="utf-8").strip()
    with pytest.raises(InvalidValue, match=r"url and url_file .* LASTLIGHT_STATE_URL and LASTLIGHT_STATE_URL_FILE"):
        load_settings(None, url=url, url_file=secret)
    monkeypatch.setenv(PREFIX + "URL", url)
    monkeypatch.setenv(PREFIX + "URL_FILE", str(secret))
    with pytest.raises(InvalidValue, match="url and url_file") as refused:
        load_settings(None)
    with pytest.raises(ValueError, match="url and url_file") as unloaded:
        Settings()
    assert "swordfish" not in str(refused.value) + str(unloaded.value)


@with_each(
    ("content", "says"),
    [
        (None, "No such file or directory"),
        (b" \n", "expected one line with a URL, got none"),
        (b"postgresql://ana:swordfish@db/state\nsqlite:///other.db", "expected one line with a URL, got 2"),
        (b"postgresql://ana:swordfish\xff@db/state", "not UTF-8 text"),
    ],
)
def test_a_file_without_one_url_is_named_and_not_shown(tmp_path: Path, content: bytes | None, says: str) -> None:
    """backends B-89, house H-53."""
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidValue) as refused:
        load_settings(None, url_file=file)
    assert str(refused.value) == f"url_file: {file}: {says}"


def test_the_agents_event_logs_lie_beside_the_database_unless_said_otherwise() -> None:
    """agent-log: the directory."""
    assert Settings(state_dir=Path("/s")).agent_sessions == Path("/s/agent-sessions")
    assert Settings(agent_log_dir=Path("/logs")).agent_sessions == Path("/logs")


def test_a_relative_state_directory_means_the_same_after_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-1: paths are made absolute when the store opens."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(home)
    with StateStore.open(state_dir="state") as store:
        monkeypatch.chdir(elsewhere)
        with store.agent_log.writer.open(place=Slug("p"), session_id="s", prompt="hello") as writer:
            writer.feed({"type": "session", "id": "s"})
        assert store.settings.state_dir == home / "state"
    assert (home / "state/agent-sessions/projects/p/s.jsonl").exists()
    assert list(elsewhere.iterdir()) == []


def test_a_variable_that_is_no_setting_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """maintenance OP-98: an argument of `load_settings` for a base reads no environment, and warns of nothing."""
    monkeypatch.setenv("LASTLIGHT_STATE_UURL", "a.db")
    monkeypatch.setenv("LASTLIGHT_STATE_LIMITS__CONTEXT", "1000")
    base = load_settings(None)
    load_settings(None)
    load_settings(base)
    told = "the environment variable LASTLIGHT_STATE_UURL is no setting, and nothing reads it"
    assert caplog.messages == [f"{told}: did you mean LASTLIGHT_STATE_URL?"]


@with_each("kind", ["fifo", "directory", "device"])
def test_a_file_with_a_secret_is_a_regular_file(tmp_path: Path, kind: str) -> None:
    """backends B-186: a FIFO that nobody writes would be read for ever."""
    path = Path("/dev/zero") if kind == "device" else tmp_path / "secret"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    with pytest.raises(InvalidValue, match=r"expected a regular file|Is a directory"):
        StateStore.open(url_file=path)
    with pytest.raises(InvalidValue, match="--token-file"):
        secret_in(path, "--token-file")
