"""What a reader's browser does with the site."""

import json
from urllib.parse import urlsplit


def requests_of(browser):
    """The addresses that the browser asked for since the last look."""
    found = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            found.append(message["params"]["request"]["url"])
    return found


def test_reading_asks_no_other_machine(browser, address):
    for page in ("", "losses/", "api/losses/", "spans/", "changelog/"):
        browser.get(f"{address}/{page}")
    asked = [url for url in requests_of(browser) if url.startswith("http")]
    assert asked
    assert {urlsplit(url).hostname for url in asked} == {"127.0.0.1"}
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_dark_and_light_can_be_chosen(browser, address):
    browser.get(f"{address}/")
    schemes = {each.get_attribute("data-md-color-scheme") for each in browser.find_elements("css selector", "[name=__palette]")}
    assert schemes == {"default", "slate"}
