"""The page in a real Chromium, over an API that the tests script."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.runtime.server.web.chat_page import ChatPage
from tests.runtime.server.web.fake_api import RunningApi

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SIZE = {"width": 1280, "height": 800}
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
FOLDER = Path(__file__).parent


class Tab:
    """A tab of a Chromium that is started when it is first asked for."""

    def __init__(self) -> None:
        self._stack, self._page = ExitStack(), None

    def get(self):
        if self._page is None:
            from playwright.sync_api import sync_playwright

            playwright = self._stack.enter_context(sync_playwright())
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            self._stack.callback(browser.close)
            self._page = browser.new_page(viewport=SIZE)
            self._page.set_default_timeout(10_000)
        return self._page

    def close(self) -> None:
        self._page = None
        self._stack.close()


TAB = Tab()


@pytest.fixture(scope="session")
def running_api():
    with RunningApi() as api:
        yield api


@pytest.fixture
def api(running_api):
    running_api.reset()
    yield running_api
    running_api.gate.set()


@pytest.fixture
def tab(api):
    """A tab for the page; a new one for each test would take longer than the test."""
    if CHROMIUM is None:
        pytest.skip(f"no Chromium on the path: looked for {', '.join(NAMES)}")
    return TAB.get()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """While Playwright runs, no other test of this thread could run an event loop."""
    if nextitem is None or FOLDER not in nextitem.path.parents:
        TAB.close()


@pytest.fixture
def open_page(tab, api):
    """Opens the page as if for the first time; at the end nothing may have gone wrong in it."""
    opened = []

    def open_():
        tab.set_viewport_size(SIZE)
        opened.append(ChatPage(tab, api))
        return opened[-1]

    yield open_
    tab.unroute_all()
    tab.evaluate("localStorage.clear(); sessionStorage.clear()")
    for chat in opened:
        chat.close()
    tab.goto("about:blank")


@pytest.fixture
def chat(open_page):
    """The page, just opened."""
    return open_page()
