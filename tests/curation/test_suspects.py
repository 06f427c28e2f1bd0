"""Suspects: planted mistakes come first, what is not known is never suspect, corrections are what they say."""

import pytest
import torch

from manyhot.curation.cross_fit import cross_fitted_logits
from manyhot.curation.suspects import corrected_labels, find_suspects, wrong_probabilities
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.settings import TrainSettings
from training.problems import text_examples


def planted(rows=2000, labels=6, share=0.02, *, noise=1.0, seed=0):
    """Scores of a good model, labels of which a share was taken away and as many added, and where that was."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.rand(rows, labels, generator=generator) < 0.2
    logits = 6 * truth.float() - 3 + noise * torch.randn(rows, labels, generator=generator)
    flipped = torch.rand(rows, labels, generator=generator) < torch.where(truth, share, share / 4)
    return logits, SparseLabels.from_dense(truth ^ flipped), flipped


def test_planted_mistakes_come_first_and_the_expected_precision_is_near():
    logits, labels, flipped = planted()
    count = int(flipped.sum())
    found = find_suspects(logits, labels, most=count)
    hits = sum(bool(flipped[each.row, each.label]) for each in found)
    assert hits / count > 0.9
    expected = sum(each.doubt for each in found) / len(found)
    assert expected == pytest.approx(hits / count, abs=0.1)
    assert [each.doubt for each in found] == sorted((each.doubt for each in found), reverse=True)
    given = labels.dense(torch.bool)
    assert all((each.kind == "wrong") == bool(given[each.row, each.label]) for each in found)


def test_without_mistakes_little_is_doubted():
    logits, labels, _ = planted(share=0.0, noise=0.5)
    doubt, _ = wrong_probabilities(logits, labels)
    assert float(doubt.sum()) < 0.002 * doubt.numel()


def test_a_weak_model_is_not_sure_of_its_doubts():
    logits, labels, _ = planted(noise=6.0)
    found = find_suspects(logits, labels, most=100)
    assert sum(each.doubt for each in found) / len(found) < 0.5


def test_of_equal_doubts_the_first_are_listed():
    logits = torch.zeros(60, 3)
    labels = SparseLabels.from_lists([[0, 1]] * 30 + [[2]] * 30, num_labels=3)
    found = [[(each.row, each.label) for each in find_suspects(logits, labels, most=most)] for most in (7, 1000)]
    assert len(found[0]) == 7
    assert found[0] == found[1][:7]


def test_one_kind_alone_can_be_asked_for():
    logits, labels, _ = planted()
    for kind in ("wrong", "missing"):
        assert {each.kind for each in find_suspects(logits, labels, kinds=(kind,))} == {kind}


def test_what_is_not_known_is_never_suspect():
    logits, labels, flipped = planted()
    found = find_suspects(logits, labels, most=5000, where=~flipped)
    assert not any(flipped[each.row, each.label] for each in found)


def test_corrections_put_planted_mistakes_right():
    logits, labels, flipped = planted(noise=0.3)
    found = find_suspects(logits, labels, most=int(flipped.sum()))
    mended = corrected_labels(labels, found).dense(torch.bool)
    truth = labels.dense(torch.bool) ^ flipped
    assert int((mended != truth).sum()) < 0.05 * int(flipped.sum())


def test_cross_fitted_scores_are_of_models_that_did_not_see_the_row():
    examples = text_examples(120)
    lists = examples.labels.lists()
    # A word that is in one row alone: a model that saw the row would know it by heart.
    from dataclasses import replace

    texts = [f"only{row} {text}" for row, text in enumerate(examples.texts)]
    wrong = SparseLabels.from_lists([[0] if row == 7 else own for row, own in enumerate(lists)], num_labels=6)
    settings = TrainSettings(model="linear", epochs=5, min_count=1, threads=1)
    logits = cross_fitted_logits(replace(examples, texts=texts, labels=wrong), settings, folds=3)
    truth = [label in lists[7] for label in range(6)]
    assert (logits[7] > 0).tolist() == truth
    suspects = find_suspects(logits, wrong, most=3)
    assert {each.row for each in suspects if each.doubt > 0.5} <= {7}


def test_shapes_must_fit():
    logits, labels, _ = planted(rows=50)
    with pytest.raises(ValueError, match="`labels` must have the shape of `logits`"):
        find_suspects(logits[:, :5], labels)
