"""The pages in a real browser: the slider, sorting, search, themes, and nothing in the console or on the network."""

import json

import pytest
import torch

from manyhot.decisions.rule import DecisionRule
from manyhot.metrics.running import Metrics
from manyhot.report.files import write_report
from report.problems import comparison, judged, run_report

HOSTILE = [
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror='window.hacked=1'>",
    "\u202eevil",
    "<b>bold</b>",
    "plain",
]


@pytest.fixture(scope="session")
def case():
    return judged(rows=200, labels=5, names=HOSTILE)


@pytest.fixture(scope="session")
def folder(tmp_path_factory, case):
    folder = tmp_path_factory.mktemp("pages")
    write_report(run_report(case, texts=[HOSTILE[row % 5] for row in range(200)]), folder / "run", title=HOSTILE[0])
    write_report(run_report(case, most=3), folder / "cut", title="cut")
    write_report(run_report(judged(rule=DecisionRule(top_k=2))), folder / "top", title="top")
    write_report(comparison(), folder / "compared", title="compared")
    return folder


@pytest.fixture
def show(browser, folder):
    """Open a page; afterwards its console must be empty and nothing but the page asked for."""

    def opened(name):
        browser.get_log("performance")
        browser.get_log("browser")
        browser.get((folder / name / "report.html").as_uri())
        return browser

    yield opened
    assert browser.get_log("browser") == []
    asked = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [each["params"]["request"]["url"] for each in asked if each["method"] == "Network.requestWillBeSent"]
    assert all(url.startswith((folder.as_uri(), "data:image/png")) for url in urls), urls
    assert browser.execute_script("return window.hacked") is None


def move(page, place):
    """The slider to a position, as a hand would."""
    script = "const s = document.getElementById('slider'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))"
    page.execute_script(script, str(place))


def figures(page):
    names = ("micro-F1", "macro-F1", "micro-precision", "micro-recall", "SubACC", "labels", "empty")
    return {name: page.execute_script(f"return document.getElementById('slider-{name}').textContent") for name in names}


def measured(case, cuts):
    rule = DecisionRule(threshold=tuple(cuts))
    names = ["micro-F1", "macro-F1", "micro-precision", "micro-recall", "SubACC"]
    metrics = Metrics(names, num_labels=case.labels.num_labels, rule=rule)
    metrics.update(case.logits, case.labels)
    return {name: f"{value:.4f}" for name, value in metrics.compute().items()}


@pytest.mark.parametrize("name", ["run", "cut"])
def test_the_slider_shows_what_python_measures(show, folder, case, name):
    page = show(name)
    shifts = json.loads((folder / name / "report.json").read_text())["slider"]["shifts"]
    own = torch.tensor(case.rule.threshold, dtype=torch.float64)
    seen = set()
    for place in (0, len(shifts) // 3, len(shifts) // 2, len(shifts) - 5):
        move(page, place)
        shown = figures(page)
        wanted = measured(case, (own + shifts[place]).tolist())
        assert {key: shown[key] for key in wanted} == wanted
        predicted = (case.logits.double() > own + shifts[place]).sum()
        assert shown["labels"] == f"{int(predicted) / 200:.2f}"
        seen.add(shown["micro-F1"])
    assert len(seen) == 4
    page.find_element("id", "slider-reset").click()
    assert figures(page)["macro-F1"] == measured(case, own.tolist())["macro-F1"]
    assert page.find_element("id", "slider-words").text == "the model's own thresholds"


def test_one_label_can_be_moved_alone(show, folder, case):
    page = show("run")
    shifts = json.loads((folder / "run" / "report.json").read_text())["slider"]["shifts"]
    page.execute_script(
        "const w = document.getElementById('slider-label'); w.value = '2'; w.dispatchEvent(new Event('change'))"
    )
    move(page, 3)
    cuts = list(case.rule.threshold)
    cuts[2] += shifts[3]
    shown, wanted = figures(page), measured(case, cuts)
    assert [shown[key] for key in ("micro-F1", "macro-F1")] == [wanted[key] for key in ("micro-F1", "macro-F1")]
    assert shown["SubACC"] == "\u2013"
    assert "precision" in page.find_element("id", "slider-words").text


def test_a_rule_of_the_best_labels_has_a_slider_over_one_threshold(show):
    page = show("top")
    case = judged()
    assert figures(page)["micro-F1"] == measured(case, [0.0] * 5)["micro-F1"]


def column(page, table, place):
    rows = "[...document.querySelectorAll(arguments[0] + ' tbody tr:not([hidden])')]"
    return page.execute_script(f"return {rows}.map(row => row.cells[arguments[1]].textContent)", table, place)


def test_headings_sort_both_ways_and_say_so(show):
    page = show("run")
    before = column(page, "#labels-table", 3)
    heads = page.find_elements("css selector", "#labels-table thead th")
    heads[3].find_element("tag name", "button").click()
    down = column(page, "#labels-table", 3)
    assert heads[3].get_attribute("aria-sort") == "descending"
    heads[3].find_element("tag name", "button").click()
    assert heads[3].get_attribute("aria-sort") == "ascending"
    assert down == sorted(before, key=float, reverse=True)
    assert column(page, "#labels-table", 3) == sorted(before, key=float)
    heads[0].find_element("tag name", "button").click()
    assert heads[3].get_attribute("aria-sort") is None
    assert sorted(column(page, "#labels-table", 0)) == sorted(HOSTILE)


def test_search_finds_text_and_takes_it_as_text(show):
    page = show("run")
    field = page.find_element("css selector", "input[type=search]")
    field.send_keys("<B>")
    assert column(page, "#labels-table", 0) == ["<b>bold</b>"]
    assert page.find_element("id", "labels-found").text == "1 of 5"
    field.clear()
    field.send_keys("nothing like it")
    assert column(page, "#labels-table", 0) == []


@pytest.mark.parametrize("name", ["run", "compared"])
def test_both_themes_and_the_button_between_them(show, name):
    page = show(name)

    def brightness():
        colour = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.strip("rgb()").split(",")[:3]) / 3

    def prefer(scheme):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    prefer("dark")
    assert brightness() < 40
    prefer("light")
    assert brightness() > 230
    page.find_element("id", "theme").click()
    assert brightness() < 40
    page.find_element("id", "theme").click()
    assert brightness() > 230
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    assert brightness() == 255
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.mark.parametrize("name", ["run", "compared"])
@pytest.mark.parametrize("width", [360, 1100])
def test_no_page_is_wider_than_the_window(show, name, width):
    page = show(name)
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_comparison_shows_the_metric_and_the_decision_chosen(show):
    page = show("compared")

    def headings():
        shown = "[...document.querySelectorAll('#metrics [data-panel]')].filter(panel => !panel.hidden)"
        return page.execute_script(f"return {shown}.map(panel => panel.querySelector('h3').textContent)")

    assert headings() == ["SubACC, threshold tuned on validation rows; more is better"]
    script = "const s = document.querySelector(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
    page.execute_script(script, "[data-chooses=metric]", "RankLoss")
    page.execute_script(script, "[data-chooses=rule]", "natural")
    assert headings() == ["RankLoss, the natural decision; less is better"]


def test_the_page_can_be_used_from_the_keyboard(show):
    page = show("run")
    slider = page.find_element("id", "slider")
    before = figures(page)["labels"]
    slider.send_keys("\ue012")
    assert figures(page)["labels"] != before
    assert slider.get_attribute("aria-valuetext")


def test_without_scripts_every_figure_but_the_slider_is_there(browser, folder):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get((folder / "run" / "report.html").as_uri())
        assert len(browser.find_elements("css selector", "#labels-table tbody tr")) == 5
        assert not browser.find_element("id", "slider-panel").is_displayed()
        assert browser.find_element("css selector", "#slider-chart").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
