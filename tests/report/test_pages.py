"""Pages: whole, self-contained, escaped, small, and the same each time."""

import json
import re
from html.parser import HTMLParser

import pytest

from manyhot.decisions.rule import DecisionRule
from manyhot.report.comparison.markdown import compare_markdown
from manyhot.report.comparison.page import compare_page
from manyhot.report.run.markdown import run_markdown
from manyhot.report.run.page import run_page
from report.problems import cells, comparison, judged, run_report

HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "a|b\n# heading\u202e\u2028 <b>",
    "javascript:alert(1)",
    "\x00\ud800 end",
]
VOID = {"meta", "br", "img", "input", "hr", "link"}


class Outline(HTMLParser):
    """Opening and closing tags must match; what points outside is collected."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.ids, self.outside, self.levels, self.scopes = [], {}, [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen[tag] = self.seen.get(tag, 0) + 1
        named = dict(attrs)
        if "id" in named:
            self.ids.append(named["id"])
        for key in ("src", "href", "action", "xlink:href"):
            if key in named and not named[key].startswith(("#", "data:image/png;base64,")):
                self.outside.append(named[key])
        assert not any(key.startswith("on") for key in named), named
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag == "th":
            self.scopes.append(named.get("scope"))
        if tag == "svg" and named.get("role") == "img":
            assert named["aria-label"]
        if tag == "img":
            assert named["alt"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def outline(page):
    seen = Outline()
    seen.feed(page)
    seen.close()
    assert seen.open == []
    return seen


PAGES = {
    "run": lambda: run_page(run_report(), title="A run"),
    "best labels": lambda: run_page(run_report(judged(rule=DecisionRule(top_k=1))), title="A run"),
    "comparison": lambda: compare_page(comparison(), title="A comparison"),
    "one group": lambda: compare_page(comparison(sets=("ants",), seeds=1), title="A comparison"),
}


@pytest.mark.parametrize("make", PAGES.values(), ids=PAGES)
def test_pages_are_whole_semantic_and_ask_for_nothing(make):
    page = make()
    seen = outline(page)
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert seen.outside == []
    assert len(seen.ids) == len(set(seen.ids))
    assert seen.seen["h1"] == 1
    assert all(after <= before + 1 for before, after in zip(seen.levels, seen.levels[1:], strict=False))
    assert set(seen.scopes) <= {"row", "col"}
    assert "http://" not in page
    assert "https://" not in page
    assert "@import" not in page
    assert "url(" not in page


def test_names_and_texts_of_the_data_never_become_markup():
    case = judged(rows=30, labels=5, names=HOSTILE)
    texts = [HOSTILE[row % 5] for row in range(30)]
    report = run_report(case, texts=texts)
    plain = run_page(run_report(judged(rows=30, labels=5, names=["a", "b", "c", "d", "e"]), texts=["t"] * 30), title="t")
    page = run_page(report, title=HOSTILE[0])
    assert outline(page).seen == outline(plain).seen
    assert page.count("<script") == plain.count("<script") == 2
    page.encode()
    told = run_markdown(report, title=HOSTILE[1])
    assert "<script>" not in told.replace("\\<", "")
    told.encode()


def test_names_of_methods_and_groups_never_become_markup():
    report = comparison()
    text = json.dumps(report).replace("ants", "<img src=x onerror=alert(1)>").replace("FOCAL", "</script><b>")
    page = compare_page(json.loads(text), title="t")
    assert outline(page).seen == outline(compare_page(report, title="t")).seen


def test_the_same_results_give_the_same_page_after_a_trip_through_json():
    report = run_report()
    assert run_page(json.loads(json.dumps(report)), title="t") == run_page(report, title="t")
    compared = comparison()
    assert compare_page(json.loads(json.dumps(compared)), title="t") == compare_page(compared, title="t")


def test_a_thousand_labels_stay_below_a_megabyte_and_a_half():
    case = judged(rows=600, labels=1000, names=[f"a label with quite a long name, number {n}" for n in range(1000)])
    assert len(run_page(run_report(case), title="many")) < 1_500_000


def test_the_best_is_marked_only_where_it_is_significant():
    sure = compare_page(comparison(spread=0.001), title="t")
    unsure = compare_page(comparison(spread=0.2), title="t")
    assert sure.count('class="n best"') > 8
    assert 'class="n tied"' not in sure.split("RankLoss")[0]
    assert unsure.count('class="n tied"') > 8
    assert unsure.count('class="n best"') < 8


def test_the_difference_diagram_joins_what_nemenyi_does_not_tell_apart():
    report = comparison()
    for test in (each for rule in report["statistics"]["tests"].values() for each in rule.values() if each and each["nemenyi"]):
        test["nemenyi"]["cliques"] = [["zlpr", "bce"], ["focal"]]
    page = compare_page(report, title="t")
    drawn = re.findall(r'<line[^>]*class="clique"><title>no significant difference: ([^<]*)</title>', page)
    assert set(drawn) == {"ZLPR, BCE"}


def test_markdown_of_a_comparison_marks_and_counts():
    told = compare_markdown(comparison(spread=0.001), title="t")
    assert "## SubACC, the natural decision (more is better)" in told
    assert "(less is better)" in told
    rows = [line for line in told.splitlines() if line.startswith("| ants/linear")]
    assert rows[0].count("**") == 2
    assert "8 / 0 / 0" in told


def test_failed_cells_are_told():
    report = comparison()
    report["failed"] = [{"key": "ants/mlp/bce/0", "error": "out of <memory>"}]
    assert "out of &lt;memory&gt;" in compare_page(report, title="t")
    assert "out of \\<memory\\>" in compare_markdown(report, title="t")


def test_metrics_with_too_few_groups_for_tests_are_still_shown():
    report = comparison(sets=("ants",))
    assert len(cells(sets=("ants",))) == 24
    page = compare_page(report, title="t")
    assert "ants/linear" in page
