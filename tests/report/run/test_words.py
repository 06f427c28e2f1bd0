"""Words of a run's report."""

import pytest

from manyhot.report.run.words import rows_words, setting_words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("/home/me/runs/teacher", "teacher"),
        ("org/encoder", "org/encoder"),
        ("zlpr", "zlpr"),
        (None, "chosen from the data"),
        (0.5, "0.5"),
    ],
)
def test_a_setting_tells_no_folder_of_the_machine(value, words):
    assert setting_words(value) == words


@pytest.mark.parametrize(
    ("why", "stopped"),
    [
        ({"stopping": "early stopping: the epoch with the best AvgPrec on held-out rows is kept"}, True),
        ({"stopping": "all epochs are trained, without early stopping"}, False),
        (None, True),
    ],
)
@pytest.mark.parametrize("what", ["validation", "held out"])
def test_early_stopping_is_named_only_where_it_was_used(what, why, stopped):
    rows = {"what": what, "count": 40, "files": ["a.csv"], "drawn_from": 0, "unknown": 0}
    said = rows_words({"rows": rows, "model": {"why": why}})
    assert ("and early stopping used them: metrics" in said) == stopped
    assert "The decision rule was tuned on them" in said
