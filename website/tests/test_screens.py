"""Pages fit a wide and a narrow screen, and every picture on them loads."""

import pytest

PAGES = (
    "",
    "install/",
    "which-loss/",
    "losses/zlpr/",
    "coming-from/huggingface/",
    "gallery/",
    "understand/row/",
    "api/losses/",
)
LOOK = """return {
  width: document.documentElement.scrollWidth,
  broken: [...document.images].filter((each) => !each.complete || !each.naturalWidth).map((each) => each.src),
}"""


@pytest.fixture(params=[1400, 400])
def width(request, browser):
    size = {"width": request.param, "height": 1000, "deviceScaleFactor": 1, "mobile": request.param < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    yield request.param
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_pages_fit_the_screen_and_their_pictures_load(browser, address, width):
    for page in PAGES:
        browser.get(f"{address}/{page}")
        found = browser.execute_script(LOOK)
        assert found["width"] <= width, page
        assert not found["broken"], page


def test_all_labels_of_the_row_fit_a_narrow_screen(browser, address, width):
    browser.get(f"{address}/understand/row/")
    script = "return [arguments[0].scrollWidth, arguments[0].clientWidth]"
    inside, shown = browser.execute_script(script, browser.find_element("css selector", ".row-scroll"))
    assert inside <= shown
