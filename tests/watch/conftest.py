"""A real browser, where there is one."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Debian's Chromium, without a screen."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page_of(chromium: Any) -> Iterator[Callable[..., Any]]:
    """page_of(url, settings of the browser) -> a page; a script that fails fails the test."""
    contexts, faults = [], list[str]()

    def dismissed(dialog: Any) -> None:
        faults.append(dialog.message)
        dialog.dismiss()

    def opened(url: str, **settings: Any) -> Any:
        contexts.append(chromium.new_context(**settings))
        page = contexts[-1].new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "console",
            lambda said: faults.append(said.text) if "Security Policy" in said.text else None,
        )
        page.on("dialog", dismissed)
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not faults
