"""The report of a run on spans: what is measured, and the page and Markdown made from it."""

import html
import json
import re

import pytest

from manyhot.data.spans.examples import Fragmented, SpanExamples, TextSpan
from manyhot.report.files import read_report, write_report
from manyhot.report.spans.measure import measure_spans
from manyhot.report.spans.page import span_run_page
from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.train import train_spans
from training.spans.problems import SMALL, people


@pytest.fixture(scope="module")
def model():
    return train_spans(people(), SpanSettings(**SMALL, epochs=6))


def spoiled(count=20):
    """Texts with spans that no model finds: a blank at the end, an unknown type, half a word and one in pieces."""
    whole = people(count, seed=3)
    spans = [list(row) for row in whole.spans]
    spans[0] = [TextSpan("PER", 0, 8), TextSpan("DOG", 0, 3), TextSpan("PER", 1, 3)]
    fragmented = [[] for _ in whole.texts]
    fragmented[1] = [Fragmented("PER", ((0, 1), (2, 3)))]
    return SpanExamples(whole.texts, spans, None, [f"<b>{row}</b>" for row in range(count)], fragmented)


@pytest.fixture(scope="module")
def report(model):
    return measure_spans(model, spoiled(), what="test", files=["test.jsonl"])


def test_figures_are_those_of_evaluate(report, model):
    from manyhot.cli.commands.spans.scores import span_scores

    scored = span_scores(model, spoiled())
    assert {each["name"]: each["value"] for each in report["metrics"]} == scored.figures()
    assert report["errors"] == scored.to_json()["errors"]
    assert report["unseen"] == {"DOG": 1}
    assert report["unaligned"]["count"] == 3
    assert report["worst"][0]["row"] == 1
    assert {each["type"] for each in report["worst"][0]["missed"]} >= {"PER", "DOG"}


def test_the_sweep_has_the_figures_of_the_models_own_threshold(report, model):
    sweep = report["thresholds"]
    near = min(range(len(sweep["threshold"])), key=lambda place: abs(sweep["threshold"][place] - sweep["own"]))
    figures = {each["name"]: each["value"] for each in report["metrics"]}
    assert sweep["F1"][near] == pytest.approx(figures["F1"], abs=0.05)
    assert sweep["recall"] == sorted(sweep["recall"], reverse=True)


def test_a_page_is_whole_asks_for_nothing_and_takes_no_markup_from_data(report):
    page = span_run_page(report, title="<script>x</script>")
    assert page.startswith("<!doctype html>")
    assert "default-src 'none'" in html.unescape(page)
    assert "<b>" not in page
    assert "<script>x" not in page
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", page)
    for part in ("Summary", "Types", "Mistakes", "Threshold", "Worst texts", "Settings and versions"):
        assert part in page


def test_a_report_is_made_again_byte_by_byte_from_its_json(report, tmp_path):
    write_report(report, tmp_path / "one", title="t")
    write_report(read_report(tmp_path / "one"), tmp_path / "two", title="t")
    for name in ("report.html", "report.md", "report.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    json.loads((tmp_path / "one" / "report.json").read_text())


def test_texts_without_an_error_make_a_page_too(model):
    perfect = SpanExamples(
        ["Kim rief die Uni Bonn."], [[TextSpan(*span[:3]) for span in model.predict(["Kim rief die Uni Bonn."])[0]]]
    )
    assert "Summary" in span_run_page(measure_spans(model, perfect, what="held out"), title="t")
    assert "Summary" in span_run_page(measure_spans(model, SpanExamples(["nichts"], [[]]), what="validation"), title="t")
