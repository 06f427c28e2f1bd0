"""Words of a run's report."""

import pytest

from manyhot.report.run.words import setting_words


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
