"""The pictures of the page of ``manyhot serve`` in docs/serve.md: labels, spans, and the dark theme.

    python website/serve_pictures.py --labels RUN --spans RUN

The first run is one of reuters21578, the second one of spans. Needs the extra ``serve``, selenium, chromium and chromedriver.
"""

from __future__ import annotations

import argparse
import base64
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH = 900
NEWS = (
    "The central bank said it would cut its discount rate to three pct in order to curb the rise of the currency against the"
    " dollar.\nDealers said wheat and corn exports would also suffer, and crude oil prices fell."
)
TWEET = "Taylor Swift plays in Paris on Friday , and Justin Bieber flies to London . RT if you love them !"


def browser() -> Any:
    """Chromium without a window."""
    from selenium.webdriver import Chrome
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-prefers-reduced-motion"):
        options.add_argument(argument)
    return Chrome(options=options, service=Service(shutil.which("chromedriver")))


def until(holds: Callable[[], Any]) -> None:
    """Wait for the page."""
    deadline = time.monotonic() + 120
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError("the page does not answer")
        time.sleep(0.1)


def serve(run: Path) -> tuple[subprocess.Popen[str], str]:
    """A server, and its address once it answers."""
    from urllib.request import urlopen

    words = [sys.executable, "-m", "manyhot.cli", "serve", str(run), "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found = re.search(r"http://127\.0\.0\.1:\d+", process.stderr.readline())
    assert found

    def answers() -> bool:
        try:
            return bool(urlopen(f"{found[0]}/health").status == 200)
        except OSError:
            return False

    until(answers)
    return process, found[0]


def ask(page: Any, text: str) -> None:
    """Type a text, and wait for its prediction."""
    page.execute_script("document.getElementById('summary').textContent = ''")
    page.execute_script("document.getElementById('text').value = arguments[0]", text)
    page.find_element("id", "go").click()
    until(lambda: page.find_element("id", "summary").text)


def explain(page: Any, button: str) -> None:
    """Click a label or span, and wait for its explanation."""
    page.find_element("css selector", button).click()
    until(lambda: page.find_element("id", "why").is_displayed())


def photograph(page: Any, name: str) -> None:
    """The whole page as a picture."""
    page.execute_script("document.activeElement.blur()")
    height = page.execute_script("return document.documentElement.scrollHeight")
    metrics = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    taken = page.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})["data"]
    (IMAGES / f"{name}.png").write_bytes(base64.b64decode(taken))


def opened(page: Any, address: str, scheme: str = "light") -> None:
    """The page of a server in a theme."""
    metrics = {"width": WIDTH, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    page.get(address)
    until(lambda: page.execute_script("return document.body.dataset.ready") == "yes")


def main() -> None:
    """Take the three pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--spans", type=Path, required=True)
    given = parser.parse_args()
    page = browser()
    try:
        process, address = serve(given.labels)
        opened(page, address)
        ask(page, NEWS)
        explain(page, "#labels button")
        photograph(page, "serve-labels")
        opened(page, address, "dark")
        ask(page, NEWS)
        move = "const s = document.getElementById('rule'); s.value = 80; s.dispatchEvent(new Event('input'))"
        page.execute_script(move)
        photograph(page, "serve-dark")
        process.terminate()
        process.wait()
        process, address = serve(given.spans)
        opened(page, address)
        ask(page, TWEET)
        explain(page, "#spans button")
        photograph(page, "serve-spans")
        process.terminate()
        process.wait()
    finally:
        page.quit()


if __name__ == "__main__":
    main()
