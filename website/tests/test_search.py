"""Someone who searches for a word of their own finds the right page first: the site's own search, in a real browser."""

from urllib.parse import urlsplit

import pytest
from selenium.webdriver.support.ui import WebDriverWait

WANTED = {
    "multilabel_categorical_crossentropy": "/coming-from/bert4keras/",
    "BCEWithLogitsLoss pos_weight": "/coming-from/bce/",
    "BCEWithLogitsLoss": "/coming-from/bce/",
    "circle loss": "/losses/pairwise/",
    "label flipping": "/understand/soft-labels/",
    "bert4keras": "/coming-from/bert4keras/",
    "ManyhotClassifier": "/estimator/",
    "focal loss": "/losses/focal/",
    "asymmetric loss": "/losses/asymmetric/",
    "zlpr_loss": "/api/losses/",
    "install": "/install/",
}
RESULTS = "return [...document.querySelectorAll('a.md-search-result__link')].map((each) => each.href)"


@pytest.fixture(scope="module")
def search(browser, address):
    browser.get(f"{address}/?q=")

    def first_page(query):
        browser.get("about:blank")
        browser.get(f"{address}/")
        box = browser.find_element("css selector", "[data-md-component=search-query]")
        browser.execute_script("document.querySelector('#__search').checked = true; arguments[0].focus()", box)
        box.send_keys(query)
        found = WebDriverWait(browser, 20).until(lambda opened: opened.execute_script(RESULTS))
        return urlsplit(found[0]).path

    return first_page


@pytest.mark.parametrize("query", WANTED)
def test_the_right_page_comes_first(search, query):
    assert search(query) == WANTED[query]
