"""Settings of spans that a run cannot use: refused, or said in one line."""

from dataclasses import replace

import pytest

from manyhot.data.files.problems import DataError
from manyhot.data.spans.jsonl import write_span_examples
from manyhot.data.spans.read import read_span_examples
from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.train import train_spans
from training.spans.problems import SMALL, joined, people


@pytest.mark.parametrize(
    ("texts", "changes", "said"),
    [
        (people(40), {"max_tokens": 500}, "`max_tokens` 500 has no effect"),
        (people(40), {"overlap": 3}, "`overlap` 3 has no effect in training"),
        (people(40), {"overlap": 40}, "neighbours share 16 tokens"),
        (joined(people(40), 8), {"max_tokens": 40, "overlap": 10}, None),
        (people(40), {}, None),
    ],
)
def test_settings_of_windows_that_do_nothing_are_said(texts, changes, said):
    told = []
    train_spans(texts, replace(SpanSettings(**SMALL), epochs=1, **changes), progress=told.append)
    lines = [
        event.message
        for event in told
        if event.kind == "note" and ("max_tokens" in event.message or "overlap" in event.message)
    ]
    assert (said is None and not lines) or any(said in line for line in lines)


def test_an_event_file_without_a_folder_is_refused():
    with pytest.raises(ValueError, match="`tensorboard` must go with `run`"):
        train_spans(people(20), replace(SpanSettings(**SMALL), tensorboard=True))


@pytest.mark.parametrize("option", [{"scheme": "iob2"}, {"tag_columns": 1}])
def test_options_of_conll_are_refused_for_other_files(tmp_path, option):
    write_span_examples(people(4), tmp_path / "a.jsonl")
    with pytest.raises(DataError, match=r"read as span-jsonl.*is for CoNLL"):
        read_span_examples(tmp_path / "a.jsonl", **option)
