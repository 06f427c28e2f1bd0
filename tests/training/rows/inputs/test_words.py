"""n-grams counted on flat arrays are those that scikit-learn counts on strings."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from manyhot.data.examples import Examples
from manyhot.engines.native import words as native
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.inputs import words
from manyhot.training.rows.inputs.texts import LONG_TEXT, TextInputs
from manyhot.training.rows.inputs.word_starts import number_starts
from manyhot.training.rows.inputs.words import (
    LARGEST_TABLE,
    cut_words,
    find_runs,
    number_characters,
    number_words,
    numbered_words,
    positions,
    word_lists,
)
from manyhot.training.rows.settings import TrainSettings

LETTERS = st.text(alphabet="abc ", max_size=12)


def counted(texts, other, *, characters, longest, min_count):
    """``(training counts, other counts)``, columns in the order of the runs' numbers."""
    if characters:
        flat, rows, names = number_characters(texts)
    else:
        flat, rows, names = number_words(word_lists(texts))
    runs = find_runs(flat, rows, names, longest=longest, min_count=min_count, most=10_000)
    again = number_characters(other, runs.number) if characters else number_words(word_lists(other), runs.number)
    return runs.counts(flat, rows, len(texts)), runs.counts(again[0], again[1], len(other))


def columns(matrix):
    return sorted(tuple(column) for column in np.asarray(matrix.todense()).T.astype(int).tolist())


@pytest.mark.parametrize("characters", [False, True])
@given(
    texts=st.lists(LETTERS, min_size=1, max_size=6), other=st.lists(LETTERS, min_size=1, max_size=4), longest=st.integers(1, 3)
)
def test_counts_are_those_of_scikit_learn(characters, texts, other, longest):
    analyser = {"analyzer": "char"} if characters else {"token_pattern": r"\w+|[^\w\s]"}
    padded = [[" ".join(["", *text.split(), ""]) for text in part] if characters else part for part in (texts, other)]
    peer = CountVectorizer(ngram_range=(1, longest), min_df=2, **analyser)
    try:
        wanted = [peer.fit_transform(padded[0]), peer.transform(padded[1])]
    except ValueError:  # nothing is frequent enough
        wanted = [np.zeros((len(texts), 0)), np.zeros((len(other), 0))]
        found = counted(texts, other, characters=characters, longest=longest, min_count=2)
        assert [each.shape for each in found] == [each.shape for each in wanted]
        return
    found = counted(texts, other, characters=characters, longest=longest, min_count=2)
    together = [np.vstack([np.asarray(each.todense()) for each in pair]).astype(int) for pair in (found, wanted)]
    assert sorted(map(tuple, together[0].T.tolist())) == sorted(map(tuple, together[1].T.tolist()))


def test_the_most_frequent_are_kept_with_their_prefixes():
    flat, rows, names = number_words(word_lists(["a b", "a b", "a c", "a c d"]))
    runs = find_runs(flat, rows, names, longest=2, min_count=1, most=3)
    assert columns(runs.counts(flat, rows, 4))[-1] == (1, 1, 1, 1)
    assert len(runs) >= 3


@given(words=st.lists(st.text(alphabet="ab", max_size=7), max_size=8), known=st.lists(st.text(alphabet="ab", max_size=7)))
def test_starts_are_the_first_letters_of_words_that_have_so_many(words, known):
    table, names = number_starts(words)
    assert [[names[n] if n >= 0 else None for n in row] for row in table.tolist()] == [
        [word[:letters] if len(word) >= letters else None for letters in (4, 5)] for word in words
    ]
    again, _ = number_starts(known, {name: place for place, name in enumerate(names)})
    assert [[names[n] if n >= 0 else None for n in row] for row in again.tolist()] == [
        [word[:letters] if word[:letters] in names and len(word) >= letters else None for letters in (4, 5)] for word in known
    ]


@given(keys=st.sets(st.integers(0, 40)), wanted=st.lists(st.integers(-1, 60)), far=st.booleans())
def test_places_are_found_by_table_and_by_bisection_alike(keys, wanted, far):
    rising = sorted(keys) + ([2 * LARGEST_TABLE] if far else [])
    found = positions(np.array(rising, dtype=np.int64), np.array(wanted, dtype=np.int64))
    assert found.tolist() == [rising.index(each) if each in keys else -1 for each in wanted]


def texts(*each):
    return Examples(SparseLabels.from_lists([[0]] * len(each), num_labels=1), ("a",), texts=list(each))


def test_a_form_of_a_word_never_seen_shares_the_start_of_those_seen():
    inputs, rows = TextInputs.fit(texts("tomato pie", "tomato soup", "plum pie"), TrainSettings())
    assert rows.shape == (3, inputs.width)
    new = inputs.rows(["tomatoes"])
    assert new.nnz == 2
    assert (new @ rows.T).toarray()[0, 0] > 0
    whole, _ = TextInputs.fit(texts("tomato pie", "tomato soup", "plum pie"), TrainSettings(word_starts=False))
    assert whole.rows(["tomatoes"]).nnz == 0


def test_training_rows_are_prepared_as_the_same_rows_are_later():
    examples = texts("tomato pie", "tomato soup, hot", "plum pie", "", "hot plums")
    inputs, rows = TextInputs.fit(examples, TrainSettings(ngrams=2, char_ngrams=3))
    again = TextInputs.from_parts(inputs.to_json(), inputs.tensors())
    for other in (inputs.rows(examples), again.rows(examples)):
        np.testing.assert_allclose(other.toarray(), rows.toarray(), rtol=1e-6)


def test_long_texts_are_read_by_whole_words_alone():
    long = " ".join(["tomato"] * LONG_TEXT)
    assert TextInputs.fit(texts(long, long), TrainSettings())[0].width == 1


needs_native = pytest.mark.skipif(not native.available()[0], reason="the native engine is not built")
# Letters, digits, marks and blanks of several scripts; a capital sigma, letters that change their length in lower case, half
# of a surrogate pair, a character beyond the first plane.
HOSTILE = st.text(alphabet="aB1_é,.- \t\nΣ\u03c3İß\u2028\ud800\U0001f600\u0301中", max_size=14)


@needs_native
@given(texts=st.lists(HOSTILE, max_size=7))
def test_the_native_engine_cuts_and_numbers_words_as_the_pattern_does(texts, monkeypatch_module):
    monkeypatch_module.setattr(words, "LEAST_NATIVE", 10**9)
    wanted = numbered_words(texts)
    monkeypatch_module.setattr(words, "LEAST_NATIVE", 0)
    found = numbered_words(texts)
    assert [each.tolist() for each in found[:2]] == [each.tolist() for each in wanted[:2]]
    assert found[2] == wanted[2]


@needs_native
def test_a_text_with_the_end_mark_in_it_is_cut_by_the_pattern(monkeypatch):
    monkeypatch.setattr(words, "LEAST_NATIVE", 0)
    assert native.cut(["a\0b"], words._kind_of) is None
    assert numbered_words(["a\0b", "b"])[2] == ["a", "\0", "b"]


@needs_native
@given(listed=st.lists(st.text(alphabet="abΣ", max_size=7), max_size=9))
def test_the_native_engine_numbers_first_letters_as_python_does(listed, monkeypatch_module):
    monkeypatch_module.setattr(words, "LEAST_NATIVE", 10**9)
    wanted = number_starts(listed)
    monkeypatch_module.setattr(words, "LEAST_NATIVE", 0)
    found = number_starts(listed)
    assert found[0].tolist() == wanted[0].tolist()
    assert found[1] == wanted[1]


@needs_native
@given(rows=st.lists(st.lists(st.integers(-1, 9), max_size=90), min_size=1, max_size=5))
def test_the_native_engine_counts_rows_as_scipy_does(rows, monkeypatch_module):
    flat = np.array([value for row in rows for value in row], dtype=np.int32)
    owners = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    monkeypatch_module.setattr(words, "LEAST_NATIVE", 10**9)
    wanted = words.count_matrix(owners, flat, (len(rows), 10))
    monkeypatch_module.setattr(words, "LEAST_NATIVE", 0)
    found = words.count_matrix(owners, flat, (len(rows), 10))
    assert found.has_canonical_format
    assert [each.tolist() for each in (found.data, found.indices, found.indptr)] == [
        each.tolist() for each in (wanted.data, wanted.indices, wanted.indptr)
    ]


@needs_native
def test_very_many_different_words_are_numbered():
    listed = [f"w{number}" for number in range(200_000)]
    flat, _, names = numbered_words([" ".join(listed[at : at + 500]) for at in range(0, 200_000, 500)] * 2)
    assert names == listed
    assert flat.tolist() == [*range(200_000)] * 2


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@needs_native
@pytest.mark.parametrize("most", [6, 30, 1000])
@pytest.mark.parametrize("ngrams", [1, 2])
@pytest.mark.parametrize("starts", [True, False])
def test_the_native_engine_gives_the_rows_of_the_plain_way(starts, ngrams, most, monkeypatch):
    draw = np.random.default_rng(0)
    words = ["tomato", "tomatoes", "Pie", "of", "x", "salt,", "SALT", "peppers", "pepper"]
    texts = [" ".join(draw.choice(words, size=draw.integers(0, 9))) for _ in range(700)]
    examples = Examples(SparseLabels.from_lists([[0]] * 700, num_labels=1), ("a",), texts=texts)
    settings = TrainSettings(min_count=3, max_features=most, word_starts=starts, ngrams=ngrams)
    monkeypatch.setattr("manyhot.training.rows.inputs.words.ROWS_A_THREAD", 100)
    fast, rows = TextInputs.fit(examples, settings)
    assert len(fast.words.keys) == ngrams
    assert ngrams == 1 or most < 30 or len(fast.words.keys[1])
    others = [text + " unseen pie" for text in texts[::-1]]
    later = fast.rows(others)
    monkeypatch.setattr("manyhot.training.rows.inputs.texts.CutTexts.of", lambda _: None)
    plain, wanted = TextInputs.fit(examples, settings)
    assert fast.to_json() == plain.to_json()
    for name, each in plain.tensors().items():
        assert torch.equal(fast.tensors()[name], each)
    for found, own in ((rows, wanted), (later, plain.rows(others))):
        assert found.indices.tolist() == own.indices.tolist()
        assert found.indptr.tolist() == own.indptr.tolist()
        assert found.data == pytest.approx(own.data)


@needs_native
@given(rows=st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=30), parts=st.integers(1, 3))
def test_pairs_are_those_of_neighbouring_words_and_counted_once_a_row(rows, parts):
    words = np.asarray([word for row in rows for word in row], np.int32)
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    places = np.asarray([0, 1, -1, 2, 3, 4], np.int32)
    numbers = np.full(len(words), -7, np.int64)
    found = [native.pairs(words, offsets, places, numbers, part, parts) for part in range(parts)]
    counts = {key: count for keys, own in found for key, count in zip(keys.tolist(), own.tolist(), strict=True)}
    pairs = [{(a, b) for a, b in pairwise(row) if 2 not in (a, b)} for row in rows]
    assert counts == Counter(int(places[a]) * 6 + b for own in pairs for a, b in own)
    at = 0
    for row in rows:
        for place in range(len(row)):
            pair = row[place : place + 2]
            if len(pair) < 2 or 2 in pair:
                assert numbers[at] == -7
            else:
                number, part = divmod(int(numbers[at]), parts)
                assert found[part][0][number] == places[pair[0]] * 6 + pair[1]
            at += 1


@needs_native
def test_very_many_different_pairs_are_numbered():
    texts = [f"a{number} b{number} c" for number in range(60_000)] * 2
    flat, offsets, _ = cut_words(texts)
    numbers = np.empty(len(flat), np.int64)
    keys, counts = native.pairs(flat, offsets, np.arange(int(flat.max()) + 1, dtype=np.int32), numbers, 0, 1)
    assert len(np.unique(keys)) == len(keys) == 120_000
    assert counts.tolist() == [2] * 120_000
