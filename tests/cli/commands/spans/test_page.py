"""The page of highlighted texts: its structure, and what a real browser makes of it."""

import shutil
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhot.cli.commands.spans.page import MOST_TEXTS, marked, span_page

NESTED = "Die Universität Leipzig <i>lehrt</i> & forscht."
SPANS = [("ORG", 4, 23, 2.5), ("LOC", 16, 23, 1.0)]


class Reader(HTMLParser):
    """The text of the elements, with labels left out, and whether all are closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.balanced = [], "", True

    def handle_starttag(self, tag, attrs):  # noqa: ARG002 - the parser's signature
        self.open.append(tag)

    def handle_endtag(self, tag):
        self.balanced = self.balanced and bool(self.open) and self.open.pop() == tag

    def handle_data(self, data):
        if "b" not in self.open:
            self.text += data


@given(
    st.text(st.sampled_from("ab<&\"' \n彭"), min_size=1, max_size=12),
    st.lists(st.tuples(st.sampled_from(["A<", "B"]), st.integers(0, 11), st.integers(1, 12)), max_size=6),
)
def test_any_spans_are_elements_inside_each_other_around_the_same_text(text, drawn):
    spans = sorted({(kind, start, end) for kind, start, end in drawn if start < end <= len(text)})
    reader = Reader()
    page = marked(text, spans, {"A<": 0, "B": 1})
    reader.feed(page)
    reader.close()
    assert reader.text == text
    assert reader.balanced
    assert not reader.open
    assert page.count("<b>") == len(spans)


def test_a_page_with_many_texts_says_how_many_it_shows():
    page = span_page(["a"] * (MOST_TEXTS + 5), [[]] * (MOST_TEXTS + 5), title="many")
    assert page.count("<article>") == MOST_TEXTS
    assert "The first 2,000 of 2,005 texts are shown." in page


def test_the_page_forbids_everything_but_its_own_style():
    found = []

    class Policies(HTMLParser):
        def handle_starttag(self, tag, attrs):
            given = dict(attrs)
            assert tag != "script"
            assert not {"src", "onload", "onerror"} & set(given)
            if tag == "meta" and given.get("http-equiv", "").lower() == "content-security-policy":
                found.append(given["content"])

    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    Policies().feed(span_page([hostile], [[(hostile, 0, 8, 1.0)]], title=hostile))
    assert found == ["default-src 'none'; style-src 'unsafe-inline'"]


@pytest.fixture(scope="module")
def browser():
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("chromium and its driver are not installed")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium drives the browser")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=800,600"):
        options.add_argument(flag)
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


def test_a_browser_draws_inner_spans_inside_outer_ones_in_light_and_dark(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(span_page([NESTED], [SPANS], title="Spans <b>"))
    browser.get(page.as_uri())
    outer, inner = browser.find_elements("css selector", ".text .s")
    assert outer.text.split("\n")[0].startswith("Universität")
    assert inner.rect["x"] >= outer.rect["x"]
    assert inner.rect["x"] + inner.rect["width"] <= outer.rect["x"] + outer.rect["width"]
    assert inner.rect["y"] >= outer.rect["y"]
    assert browser.title == "Spans <b>"
    assert "<i>lehrt</i> &" in browser.find_element("css selector", ".text").text
    width = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    colours = []
    for scheme in ("light", "dark"):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        colours.append([value(browser, "body", "background-color"), value(browser, ".s", "background-color")])
    assert colours[0][0] != colours[1][0]
    assert colours[0][1] != colours[1][1]
    before = value(browser, ".s.t0", "background-color")
    browser.find_element("id", "c0").click()
    assert value(browser, ".s.t0", "background-color") != before
    assert not browser.find_element("css selector", ".s.t0 > b").is_displayed()
    logs = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert logs == []


def value(browser, selector, name):
    return browser.find_element("css selector", selector).value_of_css_property(name)
