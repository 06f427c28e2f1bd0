"""Metrics of label sets against scikit-learn, and on the cases a definition must settle."""

import pytest
import sklearn.metrics as reference
import torch
import torchmetrics.functional.classification as other
from hypothesis import given

from manyhot import SparseLabels
from manyhot.metrics import counts
from metrics.problems import masked_problems, problems, random_problem

CLOSE = {"rel": 1e-6, "abs": 1e-9}


def decisions(problem):
    scores, labels = problem
    return scores > 0, labels


@given(problems())
def test_every_metric_of_label_sets_equals_scikit_learn(problem):
    predictions, labels = decisions(problem)
    y, p = labels.numpy(), predictions.numpy().astype(int)
    assert counts.subset_accuracy_score(predictions, labels).item() == pytest.approx(reference.accuracy_score(y, p), **CLOSE)
    assert counts.hamming_error(predictions, labels).item() == pytest.approx(reference.hamming_loss(y, p), **CLOSE)
    for empty in (0.0, 1.0):
        for ours, theirs in ((counts.example_f1_score, reference.f1_score), (counts.jaccard_score, reference.jaccard_score)):
            expected = theirs(y, p, average="samples", zero_division=empty)
            assert ours(predictions, labels, empty=empty).item() == pytest.approx(expected, **CLOSE)
    for ours, theirs in (
        (counts.f1_score, reference.f1_score),
        (counts.precision_score, reference.precision_score),
        (counts.recall_score, reference.recall_score),
    ):
        for average in ("micro", "macro"):
            expected = theirs(y, p, average=average, zero_division=0)
            assert ours(predictions, labels, average=average).item() == pytest.approx(expected, **CLOSE)
        expected = theirs(y, p, average=None, zero_division=0)
        assert ours(predictions, labels, average="none").numpy() == pytest.approx(expected, **CLOSE)


@given(problems())
def test_present_labels_alone_equal_scikit_learn_told_to_look_at_them(problem):
    predictions, labels = decisions(problem)
    present = labels.any(dim=0).nonzero().flatten().tolist()
    ours = counts.f1_score(predictions, labels, average="macro", absent="skip")
    if not present:
        assert ours.isnan()
    else:
        y, p = labels.numpy(), predictions.numpy().astype(int)
        expected = reference.f1_score(y, p, labels=present, average="macro", zero_division=0)
        assert ours.item() == pytest.approx(expected, **CLOSE)


def test_micro_and_macro_and_exact_match_equal_torchmetrics():
    scores, labels = random_problem(40, 6)
    predictions, probs, truth = scores > 0, scores.sigmoid(), labels.long()
    for average in ("micro", "macro"):
        assert counts.f1_score(predictions, labels, average=average).item() == pytest.approx(
            other.multilabel_f1_score(probs, truth, 6, average=average).item(), rel=1e-6
        )
        assert counts.recall_score(predictions, labels, average=average).item() == pytest.approx(
            other.multilabel_recall(probs, truth, 6, average=average).item(), rel=1e-6
        )
    exact = other.multilabel_exact_match(probs, truth, 6).item()
    assert counts.subset_accuracy_score(predictions, labels).item() == pytest.approx(exact, rel=1e-6)


@given(problems())
def test_index_lists_give_what_dense_tensors_give(problem):
    predictions, labels = decisions(problem)
    listed, truth = SparseLabels.from_dense(predictions), SparseLabels.from_dense(labels)
    dense = counts.confusion_counts(predictions, labels)
    for mix in ((listed, truth), (predictions, truth), (listed, labels)):
        for ours, expected in zip(counts.confusion_counts(*mix), dense, strict=True):
            assert torch.equal(ours, expected)
        rows = counts.example_f1_score(*mix, reduction="none")
        assert torch.equal(rows, counts.example_f1_score(predictions, labels, reduction="none"))


@given(masked_problems())
def test_an_entry_left_out_is_as_if_it_were_not_there(problem):
    scores, labels, where = problem
    predictions = scores > 0
    for ours in (counts.subset_accuracy_score, counts.example_f1_score, counts.jaccard_score, counts.label_count_error):
        whole = ours(predictions, labels, where=where, reduction="none")
        for row in range(len(scores)):
            kept = where[row]
            alone = ours(predictions[row : row + 1, kept], labels[row : row + 1, kept])
            assert whole[row].item() == pytest.approx(alone.item())
    confusion = counts.confusion_counts(predictions, labels, where=where)
    for label in range(scores.shape[1]):
        kept = where[:, label]
        alone = counts.confusion_counts(predictions[kept, label : label + 1], labels[kept, label : label + 1])
        assert [part[label].item() for part in confusion] == [part.item() for part in alone]
    wrong = ((predictions != labels.bool()) & where).sum().item()
    if where.any():
        assert counts.hamming_error(predictions, labels, where=where).item() == pytest.approx(wrong / where.sum().item())


def test_two_empty_sets_are_equal_and_one_empty_set_shares_nothing():
    nothing, one = torch.tensor([[False, False]]), torch.tensor([[True, False]])
    assert counts.subset_accuracy_score(nothing, nothing) == 1
    assert counts.example_f1_score(nothing, nothing) == 1
    assert counts.example_f1_score(nothing, nothing, empty=0.0) == 0
    assert counts.example_f1_score(one, nothing) == 0
    assert counts.example_f1_score(nothing, one) == 0
    assert counts.jaccard_score(nothing, one) == 0


def test_nothing_true_and_nothing_predicted_is_a_micro_f1_of_zero():
    nothing = torch.zeros(3, 4, dtype=torch.bool)
    assert counts.f1_score(nothing, nothing) == 0
    assert counts.precision_score(nothing, nothing) == 0
    assert counts.recall_score(nothing, nothing) == 0


def test_a_mean_over_no_rows_is_nan_and_no_labels_agree():
    none = torch.zeros(0, 3, dtype=torch.bool)
    assert counts.subset_accuracy_score(none, none).isnan()
    assert counts.hamming_error(none, none).isnan()
    assert counts.confusion_counts(none, none).hits.tolist() == [0, 0, 0]
    unlabelled = torch.zeros(2, 0, dtype=torch.bool)
    assert counts.subset_accuracy_score(unlabelled, unlabelled) == 1
    assert counts.f1_score(unlabelled, unlabelled, average="macro").isnan()


def test_leading_axes_are_rows_and_strides_do_not_matter():
    scores, labels = random_problem(12, 5)
    predictions = scores > 0
    rows = counts.example_f1_score(predictions, labels, reduction="none")
    folded = counts.example_f1_score(predictions.reshape(3, 4, 5), labels.reshape(3, 4, 5), reduction="none")
    assert folded.shape == (3, 4)
    assert torch.equal(folded.flatten(), rows)
    turned = counts.example_f1_score(predictions.t().contiguous().t(), labels.t().contiguous().t(), reduction="none")
    assert torch.equal(turned, rows)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float64])
def test_labels_of_any_number_type_count_alike(dtype):
    scores, labels = random_problem(9, 4)
    expected = counts.confusion_counts(scores > 0, labels)
    for ours, wanted in zip(counts.confusion_counts(scores > 0, labels.to(dtype)), expected, strict=True):
        assert torch.equal(ours, wanted)


def test_soft_labels_are_refused_by_row_unless_left_out():
    predictions = torch.ones(3, 2, dtype=torch.bool)
    labels = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.3, float("nan")]])
    with pytest.raises(ValueError, match="`labels` must be 0 or 1 in every entry; got another value in row 2"):
        counts.f1_score(predictions, labels)
    where = torch.tensor([[True, True], [True, True], [False, False]])
    assert counts.f1_score(predictions, labels, where=where) == pytest.approx(6 / 7)
    soft = SparseLabels.from_lists([[0], [1], []], num_labels=2, values=[[0.5], [1.0], []])
    with pytest.raises(ValueError, match="must be hard"):
        counts.f1_score(predictions, soft)


def test_errors_say_what_was_wanted():
    predictions, labels = torch.ones(3, 2, dtype=torch.bool), torch.ones(3, 2)
    with pytest.raises(ValueError, match=r"`labels` must have the shape of `predictions`, \[3, 2\]; got \[3, 4\]"):
        counts.f1_score(predictions, torch.ones(3, 4))
    with pytest.raises(TypeError, match="`predictions` must be a bool tensor"):
        counts.f1_score(predictions.float(), labels)
    with pytest.raises(ValueError, match="`average` must be one of"):
        counts.f1_score(predictions, labels, average="weighted")
    with pytest.raises(TypeError, match="`labels` must be a tensor or SparseLabels; got list"):
        counts.f1_score(predictions, [[0], [1], []])


def test_blocks_of_rows_add_up_to_the_whole(monkeypatch):
    scores, labels = random_problem(50, 7)
    whole = counts.confusion_counts(scores > 0, labels)
    monkeypatch.setattr("manyhot.metrics.blocks.block_elements", lambda _: 16)
    truth = SparseLabels.from_dense(labels)
    for given_labels in (labels, truth):
        for ours, expected in zip(counts.confusion_counts(scores > 0, given_labels), whole, strict=True):
            assert torch.equal(ours, expected)
