"""n-grams counted on flat arrays are those that scikit-learn counts on strings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from manyhot.train.words import find_runs, number_characters, number_words, word_lists

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
