"""``lastlight-state tenants``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import Said, lastlight_state
from support.tenants import make_tenants

from lastlight_state.testing import ThrowawayPostgres
from lastlight_state.testing.postgres import connect


@pytest.fixture
def url(lastlight_postgres_server: ThrowawayPostgres) -> Iterator[str]:
    with lastlight_postgres_server.database() as made:
        yield made


def test_tenants_from_the_command_line(url: str, tmp_path: Path) -> None:
    """tenants TN-17."""

    def call(*words: object) -> Said:
        return lastlight_state("--url", url, "--state-dir", tmp_path / "state", "tenants", *words)

    assert "(no tenants)" in call().out
    assert "acme is current" in call("create", "acme").out
    make_tenants(url, ["other"])
    listed = call("list", "--sizes", "--json").data["tenants"]
    assert [(one["name"], one["state"]) for one in listed] == [("acme", "current"), ("other", "current")]
    assert "0 migrated, 2 were current, 0 failed" in call("migrate").out
    with connect(url) as driver:
        driver.execute("DROP TABLE other.workflow_runs CASCADE")
    said = call("migrate")
    assert said.code == 1
    assert "1 were current, 1 failed" in said.out
    assert "damaged" in said.out
    assert call("migrate", "--json").answer["error"]["code"] == "failed"
    assert call("export", "acme", "--to", tmp_path / "backup").code == 0
    assert (tmp_path / "backup" / "lastlight.db").exists()
    assert "would erase acme" in call("erase", "acme").out
    assert call("erase", "acme", "--confirm", "other", "--json").error == "invalid_value"
    assert "erased acme" in call("erase", "acme", "--confirm", "acme").out
    assert "acme" not in call().out
    assert call("erase", "acme", "--json").error == "not_found"
    assert call("move", "other", "--to", "host:5432", "--json").error == "not_supported"


@pytest.mark.parametrize(
    "words",
    [
        ("dance",),
        ("create",),
        ("create", "a", "b"),
        ("create", "Upper"),
        ("export", "a"),
        ("move", "a", "--to", "nowhere"),
        ("migrate", "--lock-timeout", "-1"),
        ("migrate", "--workers", "0"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(url: str, words: tuple[Any, ...]) -> None:
    """tenants TN-17."""
    said = lastlight_state("--url", url, "--json", "tenants", *words)
    assert (said.code, said.error) == (2, "invalid_value")


def test_a_file_has_no_tenants(tmp_path: Path) -> None:
    """tenants TN-17."""
    assert lastlight_state("--url", tmp_path / "x.db", "--json", "tenants").error == "not_supported"
    assert not (tmp_path / "x.db").exists()
