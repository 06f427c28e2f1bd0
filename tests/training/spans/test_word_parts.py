"""Parts of words as features, and a head that reads the vectors of the tokens too."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from manyhot.data.spans.examples import SpanExamples, TextSpan
from manyhot.training.spans.bundle import load_span_model
from manyhot.training.spans.inputs import EDGE, LETTERS, REMEMBERED, UNKNOWN, VocabularyInputs, word_parts
from manyhot.training.spans.rows import StoredRows
from manyhot.training.spans.scoring import score_spans
from manyhot.training.spans.session import FEW_SPANS, resolved
from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.tokens import split_text
from manyhot.training.spans.train import train_spans
from training.spans.problems import SMALL, chinese, people

QUICK = SpanSettings(**SMALL, epochs=8, patience=0)


def fitted(texts, **changes):
    return VocabularyInputs.fit(texts, [split_text(text, "words") for text in texts], "words", SpanSettings(**changes))


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("Oslo", ["|o", "o|", "|os", "lo|", "|Xx|"]),
        ("A", ["|a", "a|", "|a", "a|", "|X|"]),
        ("iPhone7", ["|i", "7|", "|ip", "e7|", "|xXx0|"]),
        ("--", ["|-", "-|", "|--", "--|", "|-|"]),
        ("", ["|", "|", "|", "|", "||"]),
        ("a1" * 9, ["|a", "1|", "|a1", "a1|", "|x0x0x0x0|"]),
    ],
)
def test_parts_are_prefixes_suffixes_and_the_pattern(word, wanted):
    assert [part.replace(EDGE, "|") for part in word_parts(word, 2)] == wanted


def test_an_unknown_word_shares_the_parts_of_known_ones():
    inputs = fitted(["in Hamburg", "in Freiburg", "in Coburg"] * 2)
    (row,), letters = inputs.encode("Marburg", [(0, 7)])
    parts = row[1:-1].reshape(-1)
    assert row[0] == UNKNOWN
    assert [parts[1], parts[3], parts[5]] == inputs.tables[1].numbers(["g" + EDGE, "rg" + EDGE, "urg" + EDGE])
    assert parts[-1] == inputs.tables[1].number[f"{EDGE}Xx{EDGE}"]
    assert letters.shape == (1, LETTERS)


def test_encoding_is_the_same_when_words_are_remembered_and_when_they_are_forgotten(monkeypatch):
    texts = people(6).texts
    inputs, again = fitted(texts), fitted(texts)
    first = [inputs.encode(text, inputs.offsets(text)) for text in texts]
    monkeypatch.setattr("manyhot.training.spans.inputs.REMEMBERED", 1)
    for (features, letters), text in zip(first, texts, strict=True):
        for other in (inputs.encode(text, inputs.offsets(text)), again.encode(text, again.offsets(text))):
            assert np.array_equal(features, other[0])
            assert np.array_equal(letters, other[1])
    assert len(again._known) < 20 < REMEMBERED


@pytest.mark.parametrize("affixes", [0, 3])
def test_a_text_without_words_has_no_rows(affixes):
    features, letters = fitted(["in Hamburg"] * 2, affixes=affixes).encode("", [])
    assert features.shape == (0, 2 + (2 * affixes + 1 if affixes else 0))
    assert letters.shape == (0, LETTERS)


def places(names, rows=120):
    """Places that only their ending shows, each written once; other words end differently."""
    draw = np.random.default_rng(0)
    texts, spans = [], []
    for row in range(rows):
        stem = "".join(draw.choice(list("aeioklmnprst"), 4))
        word = f"{stem}{names[row % 2]}"
        texts.append(f"we saw {word} there")
        spans.append([TextSpan("LOC", 7, 7 + len(word))] if row % 2 else [])
    return SpanExamples(texts, spans)


def test_endings_decide_words_that_were_never_seen():
    model = train_spans(places(("tion", "burg")), replace(QUICK, epochs=12))
    new = places(("tion", "burg"), 160)[list(range(120, 160))]
    assert score_spans(model, new).f1() > 0.9


@pytest.mark.parametrize("changes", [{"skip": True}, {"skip": False}, {"affixes": 0}, {"affixes": 2, "skip": True}], ids=str)
@pytest.mark.parametrize("texts", [people, chinese])
def test_models_are_read_back_as_they_were(texts, changes, tmp_path):
    if texts is chinese and "affixes" in changes:
        changes = {"skip": changes.get("skip")}
    model = train_spans(texts(), replace(QUICK, **changes))
    model.save(tmp_path)
    again = load_span_model(tmp_path)
    assert (again.settings.skip, again.settings.affixes) == (model.settings.skip, model.settings.affixes)
    assert again.predict(texts(9, seed=3).texts) == model.predict(texts(9, seed=3).texts)
    assert score_spans(again, texts(30, seed=1)).f1() > 0.9


def test_the_head_of_few_spans_reads_the_vectors():
    few = people(20)
    many = SpanExamples(["Ada"] * FEW_SPANS, [[TextSpan("PER", 0, 3)]] * FEW_SPANS)
    assert [resolved(SpanSettings(), texts).skip for texts in (few, many)] == [True, False]
    assert [resolved(SpanSettings(skip=wish), few).skip for wish in (True, False)] == [True, False]
    assert resolved(SpanSettings(body="transformer"), few).skip is False
    widths = [train_spans(few, replace(QUICK, epochs=1, skip=skip)).network.encoder for skip in (True, False)]
    assert [each.width - each.states for each in widths] == [widths[0].vectors.width, 0]


def test_vectors_and_states_stand_side_by_side():
    model = train_spans(people(20), replace(QUICK, epochs=1))
    rows = model.windows(people(3, seed=5)).rows
    batch = StoredRows(rows, num_types=3, device=torch.device("cpu")).batch(np.arange(3))
    encoder = model.network.encoder
    with torch.inference_mode():
        whole, vectors = encoder(batch), encoder.vectors(batch.features, batch.letters)
    assert torch.equal(whole[..., encoder.states :], vectors)


@pytest.mark.parametrize(
    ("texts", "changes", "said"),
    [
        (chinese(20), {"affixes": 2}, "`affixes` must be left out: only words have affixes"),
        (people(20), {"skip": True, "body": "transformer"}, "`skip` must be left out: it is for a BiLSTM"),
        (people(20), {"skip": False, "body": "transformer"}, "`skip` must be left out: it is for a BiLSTM"),
    ],
)
def test_settings_without_effect_are_refused(texts, changes, said):
    with pytest.raises(ValueError, match=said):
        train_spans(texts, replace(QUICK, **changes))


@pytest.mark.parametrize("affixes", [-1, 11, 2.5, True])
def test_affixes_are_a_small_whole_number(affixes):
    with pytest.raises(ValueError, match="`affixes` must be a whole number >= 0 and <= 10"):
        SpanSettings(affixes=affixes)
