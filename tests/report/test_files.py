"""Reports on disk: made again from what was saved, and errors that say what is missing."""

import json

import pytest

from manyhot.report.files import ReportError, read_report, write_report
from report.problems import cells, comparison, run_report


def test_a_run_report_is_made_again_byte_by_byte_from_its_json(tmp_path):
    page = write_report(run_report(), tmp_path / "one", title="t")
    again = write_report(read_report(tmp_path / "one"), tmp_path / "two", title="t")
    for name in ("report.html", "report.md", "report.json"):
        assert (page.parent / name).read_bytes() == (again.parent / name).read_bytes()


def test_a_comparison_is_read_from_its_cells_or_its_statistics(tmp_path):
    lines = "".join(json.dumps(cell) + "\n" for cell in cells())
    failed = {
        "key": "ants/mlp/lsep/0",
        "data": "ants",
        "model": "mlp",
        "method": "lsep",
        "seed": 0,
        "title": "LSEP",
        "family": "x",
        "error": "diverged",
    }
    (tmp_path / "cells.jsonl").write_text(lines + json.dumps(failed) + "\n")
    found = read_report(tmp_path)
    assert found["failed"] == [{"key": "ants/mlp/lsep/0", "error": "diverged"}]
    write_report(found, tmp_path / "page")
    assert read_report(tmp_path / "page") == json.loads(json.dumps(found))
    other = tmp_path / "other"
    other.mkdir()
    (other / "statistics.json").write_text(json.dumps(comparison()["statistics"]))
    assert read_report(other)["statistics"]["methods"] == list(comparison()["statistics"]["methods"])


@pytest.mark.parametrize("content", ["{", "[]", '{"format": "other"}', '{"format": "manyhot-report-1", "kind": "x"}'])
def test_what_is_no_report_is_an_error_that_names_the_file(tmp_path, content):
    (tmp_path / "report.json").write_text(content)
    with pytest.raises(ReportError, match=r"report\.json"):
        read_report(tmp_path)


def test_an_empty_folder_says_how_to_get_results(tmp_path):
    with pytest.raises(ReportError, match="manyhot evaluate RUN FILE --report FOLDER"):
        read_report(tmp_path)


def test_the_reference_and_the_order_of_a_comparison_are_kept(tmp_path):
    lines = "".join(json.dumps(cell) + "\n" for cell in cells())
    (tmp_path / "cells.jsonl").write_text(lines)
    saved = {**comparison()["statistics"], "reference": "focal", "methods": ["focal", "dice2", "bce", "zlpr"]}
    (tmp_path / "statistics.json").write_text(json.dumps(saved))
    found = read_report(tmp_path)["statistics"]
    assert found["reference"] == "focal"
    assert found["methods"] == ["focal", "dice2", "bce", "zlpr"]


def test_folders_of_the_files_compared_stay_out_of_the_report(tmp_path):
    (tmp_path / "statistics.json").write_text(json.dumps(comparison()["statistics"]))
    plan = {**comparison()["plan"], "sources": [{"train": ["/secret/ants.arff"]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    page = write_report(read_report(tmp_path), tmp_path / "page")
    assert all("/secret" not in file.read_text() for file in page.parent.iterdir())
