"""Suspects in a report: planted mistakes are listed by their place in the file."""

import torch

from manyhot.data.examples import Examples
from manyhot.decisions.rule import DecisionRule
from manyhot.labels.sparse import SparseLabels
from manyhot.report.run.judged import Judged, Origin
from manyhot.report.run.markdown import run_markdown
from manyhot.report.run.page import run_page
from manyhot.report.run.suspects import measure_suspects
from report.problems import run_report

NAMES = ("egg", "pan", "bread")


def planted(rows=300):
    """Sure scores; row 5 lacks its label, row 7 has one too many."""
    truth = torch.eye(3).repeat(rows // 3, 1) > 0
    noise = torch.randn(rows, 3, generator=torch.Generator().manual_seed(0))
    given = truth.clone()
    given[5, 2], given[7, 0] = False, True
    labels = SparseLabels.from_dense(given)
    judged = Judged(8 * truth.float() - 4 + noise, labels, None, DecisionRule(), "hard", None, NAMES)
    texts = [f"text {row} <b>" + "x" * 500 for row in range(rows + 10)]
    examples = Examples(SparseLabels.from_lists([[]] * (rows + 10), num_labels=3), NAMES, texts=texts)
    return judged, Origin("held out", examples, torch.arange(10, rows + 10))


def test_planted_mistakes_are_listed_by_their_place_in_the_file():
    found = measure_suspects(*planted())
    told = {(each["row"], each["label"], each["looks"]) for each in found["listed"][:2]}
    assert told == {(16, "bread", "missing"), (18, "egg", "wrong")}
    assert all(each["doubt"] >= 0.25 for each in found["listed"])
    assert len(found["listed"][0]["text"]) < 500


def test_page_and_markdown_list_them_and_escape_their_texts():
    report = {**run_report(), "suspects": measure_suspects(*planted())}
    page, text = run_page(report, title="t"), run_markdown(report, title="t")
    assert 'id="suspects-table"' in page
    assert "text 15 &lt;b&gt;" in page
    assert "| 16 | bread | missing |" in text


def test_a_few_rows_say_nothing_and_unknown_labels_are_never_suspect():
    judged, origin = planted()
    assert measure_suspects(judged.rows(torch.arange(20)), origin) is None
    where = torch.ones(300, 3, dtype=torch.bool)
    where[5] = where[7] = False
    blind = Judged(judged.logits, judged.labels, where, judged.rule, "hard", None, NAMES)
    assert not {16, 18} & {each["row"] for each in measure_suspects(blind, origin)["listed"]}
