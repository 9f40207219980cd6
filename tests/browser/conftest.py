"""The browser of the tests."""

import shutil
from collections.abc import Iterator

import pytest
from selenium import webdriver


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    words = "--headless=new --no-sandbox --disable-dev-shm-usage --disable-gpu"
    for word in (*words.split(), "--force-prefers-reduced-motion"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()
