"""The pages in a real browser, where there is one: `make browser` installs it. Elsewhere these tests are skipped."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from inspector.test_pages import ADDRESSES, HOSTILE

from lastlight_state import StateStore
from lastlight_state.inspector import inspector
from lastlight_state.inspector.pages import PAGES
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, RunOptions, Trigger, Usage

webdriver: Any = pytest.importorskip("selenium.webdriver")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="there is no browser; make browser")

#: Where screenshots are written, if anywhere:
#: SCREENSHOTS=docs/guides/inspector make browser ARGS='--quick -k screenshots'
SCREENSHOTS = os.environ.get("SCREENSHOTS")
WIDTHS = (400, 1400)
#: What is wider than the window, but for what scrolls by itself.
WIDER = """
const page = document.documentElement;
if (page.scrollWidth <= arguments[0]) return [];
return [...document.querySelectorAll("body *")]
  .filter((one) => !one.closest(".scroll") && one.getBoundingClientRect().right > page.clientWidth)
  .map((one) => one.outerHTML.slice(0, 200));
"""
#: True if this page is there with its stylesheet, and its script has run.
LOADED = """
const whole = document.readyState === "complete" && document.styleSheets.length === 1;
return whole && location.href.startsWith(arguments[0]);
"""


@pytest.fixture(scope="module")
def axe() -> str:
    """Return the script that looks for what is not accessible."""
    found = find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe is not installed; make browser")
    return Path(found.origin).with_name("axe.min.js").read_text("utf-8")


@pytest.fixture(scope="module", params=("light", "dark"))
def chromium(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return a browser that prefers this scheme of colours."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    scheme = {"name": "prefers-color-scheme", "value": request.param}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kolkata"})
    yield driver
    driver.quit()


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an application on a port of this machine, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def site(filled: StateStore, fresh_database: Database) -> Iterator[str]:
    """Return the address of an inspector over rows of every kind, among them hostile and large ones."""
    w = filled.workflows
    hostile = w.runs.create(
        "<script>alert(1)</script>", trigger=Trigger("t" * 200, type="api", actor="<img src=x onerror=alert(1)>"),
        phase="x" * 128, context={"long": "y" * 100_000}, options=RunOptions(id="h" * 200),
    )  # fmt: skip
    w.approvals.create(hostile.id, Gate("z" * 100, HOSTILE + "w" * 5_000, id="hostile"))
    with served(inspector(filled, acting=True, person="ana", clock=fresh_database.clock)) as address:
        yield address


def sized(chromium: Any, width: int) -> None:
    size = {"width": width, "height": 1_000, "deviceScaleFactor": 1, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something to hold."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def opened(chromium: Any, address: str) -> None:
    """Open a page and wait for its stylesheet and its script: a busy browser may say before that it has a page."""
    chromium.get(address)
    until(lambda: chromium.execute_script(LOADED, address))


def test_every_page_is_whole_and_accessible_at_each_width(chromium: Any, site: str, axe: str) -> None:
    """inspector IN-50: nothing is wider than the window, no script fails or is refused, and axe finds nothing."""
    opened(chromium, site)
    chromium.get_log("browser")
    looked = [address for addresses in ADDRESSES.values() for address in addresses]
    for address in [*looked, f"/runs/{'h' * 200}", "/inbox/gates/hostile", "/login", "/runs/nobody"]:
        for width in WIDTHS:
            sized(chromium, width)
            opened(chromium, site + address)
            assert chromium.execute_script(WIDER, width) == [], address
        chromium.execute_script(axe)
        found = chromium.execute_async_script("axe.run().then(arguments[0])")
        assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == [], address
        logged = [one for one in chromium.get_log("browser") if one["level"] != "DEBUG" and "404" not in one["message"]]
        assert logged == [], address


def test_a_live_page_shows_what_happens(chromium: Any, site: str, filled: StateStore) -> None:
    """inspector IN-20: what was unfolded stays so."""
    opened(chromium, f"{site}/runs/home")
    until(lambda: chromium.find_element("css selector", "[data-live-state]").text == "live")
    folded = "details:not([open]) > summary"
    chromium.execute_script("document.querySelector(arguments[0]).click()", folded)  # else replaced before the click
    count = len(chromium.find_elements("css selector", folded))
    filled.workflows.approvals.create("home", Gate("news", "Is it live?", id="news"))
    until(lambda: "news" in chromium.find_element("css selector", "main").get_property("textContent"))
    assert len(chromium.find_elements("css selector", folded)) == count


def test_times_are_local_and_utc_on_hover(chromium: Any, site: str) -> None:
    """inspector IN-51."""
    opened(chromium, f"{site}/runs")
    shown = chromium.find_element("css selector", "td time")
    # two hours after the others
    assert shown.get_attribute("title") == "2026-02-03 20:04:56, 2026-02-03T14:34:56.789Z UTC"


def test_keys_lead_to_pages_and_filters(chromium: Any, site: str) -> None:
    """inspector IN-51."""
    opened(chromium, site)
    keys = chromium.find_element("css selector", "body").send_keys
    keys("gr")
    until(lambda: chromium.execute_script(LOADED, f"{site}/runs"))
    chromium.find_element("css selector", "body").send_keys("/")
    assert chromium.switch_to.active_element.get_attribute("name") == "find"


def test_a_gate_is_answered_by_a_click(chromium: Any, site: str, filled: StateStore) -> None:
    """inspector IN-30: the browser sends what the checks of forms need."""
    opened(chromium, f"{site}/inbox/gates/open-0")
    chromium.find_element("css selector", "button[value=approved]").click()
    until(lambda: filled.workflows.approvals.get("open-0").status == "approved")


def test_the_switch_hides_personal_data(chromium: Any, site: str) -> None:
    """inspector IN-7."""
    opened(chromium, f"{site}/runs/home")
    chromium.find_element("css selector", "button[name=hide]").click()
    until(lambda: "Show personal data" in chromium.page_source)
    opened(chromium, f"{site}/runs/home")
    assert "(hidden)" in chromium.page_source
    chromium.delete_all_cookies()


@pytest.mark.skipif(SCREENSHOTS is None, reason="no screenshots are wanted")
def test_screenshots_are_taken(chromium: Any, filled: StateStore, fresh_database: Database) -> None:
    """inspector IN-52: one of each page of the navigation, in light colours."""
    if chromium.execute_script("return matchMedia('(prefers-color-scheme: dark)').matches"):
        pytest.skip("once is enough")
    w, clock = filled.workflows, fresh_database.clock
    for day in range(12):
        clock.advance(seconds=86_400)
        for number in range(day % 4 + 1):
            model = ("sonnet", "haiku")[number % 2]
            run = w.runs.create("triage", trigger=Trigger(f"pr-{day}", type="webhook", repo="acme/widgets"), phase="p")
            started = w.executions.start("triage:review", run_id=run.id)
            cost = Decimal(day % 5 + 2) / 10
            used = Usage(model=model, cost_usd=cost, input_tokens=40_000 + 1_000 * day, output_tokens=900)
            clock.advance(seconds=90)
            w.executions.finish(started.id, "succeeded" if number < 3 else "failed", usage=used)
            w.runs.finish(run.id, "succeeded" if number < 3 else "failed")
    filled.mailbox.create("crew", "s-1").inbox.send("m-1", kind="chat", content={"text": "Look at the build."})
    sized(chromium, 1_200)
    with served(inspector(filled, clock=clock)) as address:
        for page in PAGES:
            opened(chromium, address + page.path)
            taken = chromium.execute_cdp_cmd("Page.captureScreenshot", {"format": "webp", "quality": 60})
            Path(f"{SCREENSHOTS}/{page.name}.webp").write_bytes(b64decode(taken["data"]))
