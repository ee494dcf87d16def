"""The example `tenants` serves the tenants that have something to do."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path

import pytest

from lastlight_state import Tenants
from lastlight_state.workflows import RunOptions, Trigger


def test_one_process_serves_each_tenant_that_has_something_to_do(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """packaging PT-20: a tenant without work gets no worker."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    example = importlib.import_module("tenants")
    tenants = Tenants.open(postgres_url, state_dir=tmp_path)
    served: list[str] = []
    stopping = threading.Event()
    serve = example.serve

    def noted(of: Tenants, name: str) -> None:
        serve(of, name)
        served.append(name)
        stopping.set()

    monkeypatch.setattr(example, "serve", noted)
    for name in ("acme", "globex"):
        tenants.create(name)
    with tenants.store("acme") as store:
        options = RunOptions(status="queued")
        run = store.workflows.runs.create("review", trigger=Trigger("pr-7", type="api"), phase="look", options=options)
    example.serve_all(tenants, stopping)
    with tenants.store("acme") as store:
        assert store.workflows.runs.get(run.id).status == "succeeded"
    assert served == ["acme"]
    tenants.close()
