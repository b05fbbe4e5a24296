"""The dashboard in a real browser, over the real server: load, register a query, see it move, remove it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.server.app import make_app
from penstock.server.auth import open_token
from penstock.server.limits import Limits
from penstock.server.serving import Serving
from tests.server.conftest import Shop, eventually
from tests.server.dry import PIPELINE, commit, dry_engine

pytestmark = [pytest.mark.spark, pytest.mark.services]

MARKUP = "<img src=x onerror=alert(1)>"
QUERY = (
    "SELECT o.order_id, p.name FROM orders o, products p "
    f"WHERE o.product_id = p.product_id AND p.name <> '{MARKUP}' MEMORY 16 MB"
)
#: Seconds; the first micro-batch on a busy machine takes its time.
PATIENCE = 180
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --window-size=1280,1600"
)


class Browser:
    """Chromium, as a person uses it: by what is written and by the keyboard."""

    def __init__(self, profile: Path) -> None:
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for flag in (*FLAGS.split(), f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))

    def one(self, css: str) -> Any:
        return self.driver.find_element("css selector", css)

    def text(self, css: str) -> str:
        """What can be read there; nothing if it is not there, or is being drawn anew."""
        return str(self.driver.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", css))

    def sees(self, css: str, words: str) -> None:
        eventually(lambda: words in self.text(css), PATIENCE)

    def type(self, words: str) -> None:
        self.driver.switch_to.active_element.send_keys(words)

    def complaints(self) -> list[str]:
        """What the browser says of scripts that failed and of what the policy refused."""
        return [said["message"] for said in self.driver.get_log("browser") if "favicon" not in said["message"]]


@pytest.fixture
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.driver.quit()


@pytest.fixture
def served(shop: Shop, engines: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """The address of a server, and its token."""
    shop.add("orders")
    token, secret = open_token(shop.base)
    limits = Limits()
    serving = Serving("127.0.0.1", 0, limits)
    serving.start(make_app(engines(shop), token, frozenset({f"127.0.0.1:{serving.port}"}), limits))
    yield f"http://127.0.0.1:{serving.port}/", secret or ""
    serving.stop()


def test_a_query_from_its_first_letter_to_its_end(served, shop, browser):
    from selenium.webdriver.common.keys import Keys

    address, secret = served
    browser.driver.get(address)
    browser.sees("#door", "Token")
    browser.type("another token" + Keys.ENTER)
    browser.sees("#door-fault", "no token, or not the right one")
    browser.complaints()  # of the answer 401
    browser.type(Keys.CONTROL + "a")
    browser.type(secret + Keys.ENTER)
    browser.sees("#link", "live")
    browser.sees("#no-queries", "Nothing is registered")
    browser.sees("#catalogue", "product_id")
    assert secret not in browser.driver.page_source

    # All by keyboard: the first button, then the form.
    browser.one("#add").send_keys(Keys.ENTER)
    browser.type("priced" + Keys.TAB)
    browser.type("SELECT nothing FROM orders" + Keys.TAB + Keys.ENTER)
    browser.sees("#adding-fault", "nothing")
    selected = (
        "return (({value, selectionStart, selectionEnd}) => value.slice(selectionStart, selectionEnd))(arguments[0])"
    )
    assert browser.driver.execute_script(selected, browser.one("#text")) == "nothing"
    browser.complaints()  # of the answer 400
    browser.one("#text").clear()
    browser.one("#text").send_keys(QUERY)
    browser.one("#explain").send_keys(Keys.ENTER)
    browser.sees("#explained", "Shares with no other query")
    browser.one("#adding-form button[value=register]").send_keys(Keys.ENTER)

    browser.sees('[data-query="priced"] .state', "running")
    browser.sees('[data-query="priced"] .facts', "since the start")
    browser.sees('[data-query="priced"] pre', MARKUP)
    assert not browser.driver.find_elements("css selector", "main img")
    browser.sees("[data-group]", "kernel of slot 0")
    before = eventually(lambda: _rows(browser), PATIENCE)
    shop.add("orders", 60)
    eventually(lambda: _rows(browser) > before, PATIENCE)
    browser.sees("[data-group] .panels", "MB of 16 MB")
    labels = browser.driver.execute_script(
        "return [...document.querySelectorAll('[data-group] svg')].map(one => one.getAttribute('aria-label'))"
    )
    assert any(label.startswith("Rows flow from orders") for label in labels)
    assert any(label.startswith("Memory: now") and "the limit is 16 MB" in label for label in labels)

    browser.one('[data-query="priced"] [aria-label="Results of priced"]').send_keys(Keys.ENTER)
    browser.sees("#reading-rows", "order_id")
    browser.type(Keys.ESCAPE)
    browser.one('[data-query="priced"] [aria-label="Pause priced"]').send_keys(Keys.ENTER)
    browser.sees('[data-query="priced"] .state', "paused")

    # Asked first; who only presses Enter keeps it.
    browser.one('[data-query="priced"] [aria-label="Remove priced"]').send_keys(Keys.ENTER)
    browser.type(Keys.ENTER)
    assert browser.text('[data-query="priced"]')
    browser.one('[data-query="priced"] [aria-label="Remove priced"]').send_keys(Keys.ENTER)
    browser.one("#asking-form button[value=yes]").send_keys(Keys.ENTER)
    browser.sees("#no-queries", "Nothing is registered")
    eventually(lambda: not browser.text("[data-group]"), PATIENCE)
    assert browser.complaints() == []

    # This tab knows the token, another does not.
    browser.driver.refresh()
    browser.sees("#link", "live")
    browser.one("#leave").send_keys(Keys.ENTER)
    browser.sees("#door", "Token")
    assert browser.driver.execute_script("return sessionStorage.length") == 0

    # The address that the server prints brings it along, and does not keep it.
    browser.driver.get("about:blank")
    browser.driver.get(f"{address}#token={secret}")
    browser.sees("#link", "live")
    assert browser.driver.current_url == address


def test_long_names_fit_a_phone_and_a_server_that_comes_back_is_found_again(tmp_path, browser):
    name, stream = "q" * 63, "s" * 63
    text = PIPELINE.replace("streams.orders", f"streams.{stream}").replace("note = ", f"{'c' * 200} = ")
    limits = Limits()

    def serve(port: int = 0) -> tuple[Serving, Any]:
        engine = dry_engine(tmp_path, text=text)
        serving = Serving("127.0.0.1", port, limits)
        token = open_token(tmp_path)
        serving.start(make_app(engine, token[0], frozenset({f"127.0.0.1:{serving.port}"}), limits))
        return serving, (engine, token[1])

    serving, (engine, secret) = serve()
    try:
        engine.register(name, f"SELECT order_id AS {'c' * 200} FROM {stream} WHERE {'c' * 200} <> '{'x' * 500}'")
        phone = {"width": 380, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        browser.driver.get(f"http://127.0.0.1:{serving.port}/#token={secret}")
        browser.sees("#groups", stream)
        browser.sees("#catalogue", stream)
        eventually(lambda: engine.status(name)["state"] == "running")
        commit(engine, name, [{"order_id": 2**53 + 1, "quantity": 1, "c" * 200: "y"}])
        browser.one(f'[aria-label="Results of {name}"]').click()
        browser.sees("#reading-rows", str(2**53 + 1))
        browser.sees("#reading-rows caption", "All that are kept")
        browser.one("#reading-close").click()
        browser.one(f'[aria-label="Remove {name}"]').click()
        wide = "return [...document.querySelectorAll('html, dialog[open]')].map(one => one.scrollWidth)"
        assert max(browser.driver.execute_script(wide)) <= 380
        serving.stop()
        engine.stop()
        browser.sees("#link", "what is shown is from then")
        serving, (engine, _) = serve(serving.port)
        browser.sees("#link", "live")
    finally:
        serving.stop()
        engine.stop()


def _rows(browser: Browser) -> int:
    """The results of the query that stand on the page."""
    words = browser.text('[data-query="priced"] .facts').split()
    return int(words[words.index("since") - 1].replace(",", "")) if "since" in words else 0


def test_the_page_has_no_markup_from_data_and_nothing_from_elsewhere():
    folder = Path(make_app.__code__.co_filename).parent / "page"
    for file in folder.iterdir():
        text = file.read_text()
        for word in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", "onclick=", "http://"):
            assert word not in text.replace("http://www.w3.org", ""), f"{file.name}: {word}"
        assert "https://" not in text
