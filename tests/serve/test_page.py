"""The page in a real browser: it shows what the server says, by keyboard too, and asks nobody else."""

import csv
import io
import json
import struct
import time
import zlib

import pytest
import torch

pytest.importorskip("fastapi", reason="the extra `serve` is not installed; make test-production installs it")

from report.conftest import browser  # noqa: F401 - a fixture
from serve.servers import PATIENCE, Server

HOSTILE = "<img src=x onerror='window.hacked=1'> salt </textarea><script>window.hacked=1</script>"


@pytest.fixture(scope="module")
def servers(folders):
    """A server for each kind, started when it is asked for."""
    running = {}

    def of(kind):
        if kind not in running:
            running[kind] = Server(folders[kind])
        return running[kind]

    yield of
    for server in running.values():
        assert server.stop()[0] == 0


@pytest.fixture
def show(browser, servers):  # noqa: F811
    """Open the page of a model; afterwards the console must be empty and nobody else asked."""
    asked = []

    def opened(kind):
        browser.get_log("performance")
        browser.get_log("browser")
        asked.append(f"http://127.0.0.1:{servers(kind).port}/")
        browser.get(asked[-1])
        until(lambda: browser.execute_script("return document.body.dataset.ready") == "yes")
        return browser

    yield opened
    wrong = [entry for entry in browser.get_log("browser") if " 422 " not in entry["message"]]
    assert wrong == []
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [each["params"]["request"]["url"] for each in sent if each["method"] == "Network.requestWillBeSent"]
    assert all(url.startswith((*asked, "data:,", "blob:http://127.0.0.1")) for url in urls), urls
    assert browser.execute_script("return window.hacked") is None


def until(holds):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def text_of(page, name):
    return page.execute_script("return document.getElementById(arguments[0]).textContent", name)


def predict(page, text):
    page.execute_script("document.getElementById('summary').textContent = ''")
    field = page.find_element("id", "text")
    field.clear()
    field.send_keys(text)
    page.find_element("id", "go").click()
    until(lambda: text_of(page, "summary"))


def listed(page):
    rows = page.find_elements("css selector", "#labels li")
    return {row.find_element("tag name", "button").text: row for row in rows}


def test_labels_have_bars_and_the_rule_a_line(show, models):
    page = show("texts")
    text = "salt and bread noise1"
    predict(page, text)
    model = models["texts"]
    wanted = {model.label_names[label] for label in model.predict([text]).lists()[0]}
    rows = listed(page)
    assert {name for name, row in rows.items() if row.get_attribute("class") == "yes"} == wanted
    probs = dict(zip(model.label_names, model.probabilities([text])[0].tolist(), strict=True))
    for name, row in rows.items():
        width = row.find_element("class name", "fill").value_of_css_property("width").removesuffix("px")
        whole = row.find_element("class name", "track").size["width"]
        assert float(width) == pytest.approx(probs[name] * whole, abs=3)
        assert row.find_element("class name", "value").text.startswith(f"{probs[name]:.3f}")
        assert len(row.find_elements("class name", "cut")) == 1


@pytest.mark.parametrize("kind", ["texts", "one threshold"])
def test_the_slider_moves_the_rule_and_the_button_brings_it_back(show, models, kind):
    page = show(kind)
    predict(page, "salt and bread")
    own, start = text_of(page, "summary"), page.find_element("id", "rule").get_attribute("value")
    lines = models[kind].to_probabilities(torch.as_tensor(models[kind].rule.threshold).expand(1, 6))[0]
    line = float(lines[0]) if len(lines.unique()) == 1 else 0.5
    assert int(start) == pytest.approx(1000 * line, abs=1)

    def move(value):
        script = "const s = document.getElementById('rule'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))"
        page.execute_script(script, str(value))

    move(0)
    assert text_of(page, "summary").startswith("6 of 6 labels")
    assert text_of(page, "rule-words") == "probability above 0.000"
    move(1000)
    assert text_of(page, "summary") == "None of 6 labels."
    page.find_element("id", "rule-reset").click()
    assert text_of(page, "summary") == own
    assert text_of(page, "rule-words") == "the model's own rule"
    assert page.find_element("id", "rule").get_attribute("value") == start


def test_words_that_spoke_for_a_label_are_highlighted(show, models):
    page = show("texts")
    text = "some salt, noise1 and an oven"
    predict(page, text)
    listed(page)["salt"].find_element("tag name", "button").click()
    until(lambda: text_of(page, "why-heading") == "Why salt?")
    marked = page.find_elements("css selector", "#why-text .for")
    assert "salt" in [each.text.split()[0] for each in marked]
    label = models["texts"].explain([text], labels=["salt"])[0].labels[0]
    cells = "return [...document.querySelectorAll('#why-table tbody tr')].map(row => row.cells[1].textContent)"
    rows = page.execute_script(cells)
    total = sum(float(value.replace("\u2212", "-")) for value in rows)
    assert total == pytest.approx(label.score, abs=0.02)
    assert page.switch_to.active_element.get_attribute("id") == "why-heading"


def test_everything_works_from_the_keyboard(show):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    page = show("texts")
    page.find_element("id", "text").send_keys("salt", Keys.CONTROL, Keys.ENTER)
    until(lambda: text_of(page, "summary"))
    visited = []
    for _ in range(30):
        ActionChains(page).send_keys(Keys.TAB).perform()
        active = page.switch_to.active_element
        visited.append(active.get_attribute("id") or active.get_attribute("data-label") or active.tag_name)
    assert {"go", "rule", "rule-reset", "salt", "file"} <= set(visited)
    listed(page)["salt"].find_element("tag name", "button").send_keys(Keys.ENTER)
    until(lambda: text_of(page, "why-heading") == "Why salt?")
    before = text_of(page, "rule-words")
    page.find_element("id", "rule").send_keys(Keys.ARROW_RIGHT)
    assert text_of(page, "rule-words") != before


def test_what_helps_screen_readers_is_there(show):
    page = show("texts")
    predict(page, "salt")
    nameless = page.execute_script(
        "return [...document.querySelectorAll('input, textarea, select')].filter("
        "each => !each.labels.length && !each.getAttribute('aria-label')).map(each => each.id)"
    )
    assert nameless == []
    for place in ("status", "summary", "batch-status"):
        assert page.find_element("id", place).get_attribute("role") == "status"
    assert page.find_element("id", "problem").get_attribute("role") == "alert"
    assert page.find_element("id", "rule").get_attribute("aria-valuetext")
    assert page.find_elements("css selector", "html[lang=en] main h2")


def test_markup_in_a_text_stays_text(show):
    page = show("texts")
    predict(page, HOSTILE)
    listed(page)["salt"].find_element("tag name", "button").click()
    until(lambda: text_of(page, "why-heading") == "Why salt?")
    assert page.find_elements("css selector", "#why-text img, #why-text script") == []
    assert "onerror" in page.find_element("id", "why-text").text


def test_spans_are_marked_in_the_text(show, models):
    page = show("spans")
    text = "\U0001f600 Ada met Tom there"
    page.execute_script("document.getElementById('text').value = arguments[0]", text)
    page.find_element("id", "go").click()
    until(lambda: text_of(page, "summary"))
    wanted = models["spans"].predict([text])[0]
    marks = page.execute_script(
        "return [...document.querySelectorAll('#marked mark')].map(each => each.firstChild.textContent)"
    )
    assert marks == [text[span.start : span.end] for span in wanted]
    rows = page.find_elements("css selector", "#spans tbody tr")
    assert len(rows) == len(wanted) > 0
    assert page.find_element("id", "marked").text.replace("PER", "").replace(" ", "") == text.replace(" ", "")


def test_the_slider_shows_spans_below_the_rule_and_fewer_above_it(show):
    page = show("strict spans")
    predict(page, "Ada met Tom there")
    own = len(page.find_elements("css selector", "#spans tbody tr"))
    slide = "const r = document.getElementById('rule'); r.value = arguments[0]; r.dispatchEvent(new Event('input'))"
    page.execute_script(slide, 20)
    more = page.find_elements("css selector", "#spans tbody tr")
    assert len(more) > own > 0
    more[-1].find_element("css selector", "button").click()
    until(lambda: text_of(page, "why-heading").startswith("Why is"))
    page.execute_script(slide, 1000)
    assert text_of(page, "summary") == "No spans."
    page.find_element("id", "rule-reset").click()
    assert len(page.find_elements("css selector", "#spans tbody tr")) == own


def test_a_span_is_explained_by_its_words(show, models):
    page = show("spans")
    text = "Ada met Tom there"
    predict(page, text)
    span = models["spans"].predict([text])[0][0]
    page.find_element("css selector", "#spans button").click()
    until(lambda: text_of(page, "why-heading") == f"Why is \u201c{text[span.start : span.end]}\u201d marked as {span.type}?")
    assert "is unexplained" in text_of(page, "why-words")
    assert page.find_elements("css selector", "#why-text .for")


def test_a_row_of_features_is_typed_in(show, models):
    page = show("features")
    assert "8 numbers" in text_of(page, "text-hint")
    predict(page, "0.5, ?, -1, 2, 0, 1, 0.25, -0.5")
    assert len(listed(page)) == 4
    next(iter(listed(page).values())).find_element("tag name", "button").click()
    until(lambda: "is unexplained" in text_of(page, "why-words"))
    page.find_element("id", "text").send_keys(" x")
    page.find_element("id", "go").click()
    until(lambda: "is not a number" in text_of(page, "problem"))


def png(pixels):
    """A small RGB picture as a file."""
    height, width = len(pixels), len(pixels[0])
    lines = b"".join(b"\x00" + bytes(part for pixel in line for part in pixel) for line in pixels)

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def test_a_picture_with_other_channels_is_refused_in_words(show, tmp_path):
    page = show("images")
    path = tmp_path / "dot.png"
    path.write_bytes(png([[(0, 0, 0)] * 8 for _ in range(8)]))
    page.find_element("id", "picture").send_keys(str(path))
    until(lambda: page.find_element("id", "canvas").is_displayed())
    page.find_element("id", "go").click()
    until(lambda: "reads 2 channels" in text_of(page, "problem"))


FILES = {
    "rows.jsonl": "".join(json.dumps({"text": text}) + "\n" for text in ("salt", 'a "quoted", oven', "")),
    "rows.csv": 'id,text\n1,salt\n2,"a ""quoted"", oven"\n3,\n',
    "rows.txt": 'salt\na "quoted", oven\n\n',
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_rows_is_answered_and_can_be_downloaded(show, models, tmp_path, name):
    page = show("texts")
    path = tmp_path / name
    path.write_text(FILES[name])
    page.find_element("id", "file").send_keys(str(path))
    until(lambda: page.find_element("id", "downloads").is_displayed())
    assert text_of(page, "batch-status") == "3 of 3 rows"
    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    for link in ("download-jsonl", "download-csv"):
        page.find_element("id", link).click()
    until(lambda: all((tmp_path / f"predictions.{kind}").exists() for kind in ("jsonl", "csv")))
    model = models["texts"]
    wanted = [{model.label_names[n] for n in labels} for labels in model.predict(["salt", 'a "quoted", oven', ""]).lists()]
    lines = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert [set(line["labels"]) for line in lines] == wanted
    table = list(csv.DictReader(io.StringIO((tmp_path / "predictions.csv").read_text())))
    assert [set(filter(None, row["labels"].split("|"))) for row in table] == wanted


def test_many_rows_are_sent_in_parts(show, tmp_path):
    page = show("texts")
    path = tmp_path / "many.txt"
    path.write_text("salt and bread\n" * 700)
    page.find_element("id", "file").send_keys(str(path))
    until(lambda: text_of(page, "batch-status") == "700 of 700 rows")


def test_what_is_wrong_with_a_file_is_said(show, tmp_path):
    page = show("texts")
    path = tmp_path / "broken.jsonl"
    path.write_text('{"text": ')
    page.find_element("id", "file").send_keys(str(path))
    until(lambda: text_of(page, "problem").startswith("broken.jsonl:"))


def test_both_themes_and_the_button_between_them(show):
    page = show("texts")

    def brightness():
        colour = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.strip("rgb()").split(",")[:3]) / 3

    def prefer(scheme):
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    prefer("dark")
    assert brightness() < 40
    prefer("light")
    assert brightness() > 230
    page.find_element("id", "theme").click()
    assert brightness() < 40
    page.find_element("id", "theme").click()
    assert brightness() > 230
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.mark.parametrize("width", [360, 1100])
def test_the_page_is_not_wider_than_the_window(show, width):
    page = show("texts")
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    predict(page, "salt " + "x" * 300)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
