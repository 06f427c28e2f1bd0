"""Average precision and AUROC over rows, exact and binned."""

import pytest
import sklearn.metrics as reference
import torch
import torchmetrics.functional.classification as other
from hypothesis import given
from hypothesis import strategies as st

from manyhot import SparseLabels
from manyhot.metrics.curves import auroc_score, mean_average_precision_score
from metrics.problems import masked_problems, problems, random_problem

PROBS = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0])


def both_kinds(labels):
    return (labels.sum(dim=0) > 0) & (labels.sum(dim=0) < len(labels))


@pytest.mark.filterwarnings("ignore:No positive class found")
@given(problems(min_rows=2))
def test_average_precision_equals_scikit_learn(problem):
    scores, labels = problem
    for average, theirs in (("macro", "macro"), ("micro", "micro")):
        expected = reference.average_precision_score(labels.numpy(), scores.numpy(), average=theirs)
        ours = mean_average_precision_score(scores, labels, average=average)
        assert ours.item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(problems(min_rows=2))
def test_auroc_equals_scikit_learn_on_labels_that_have_one(problem):
    scores, labels = problem
    ours = auroc_score(scores, labels, average="none")
    kept = both_kinds(labels)
    assert torch.equal(~ours.isnan(), kept)
    for label in kept.nonzero().flatten().tolist():
        expected = reference.roc_auc_score(labels[:, label].numpy(), scores[:, label].numpy())
        assert ours[label].item() == pytest.approx(expected, rel=1e-6)
    if kept.any():
        expected = reference.roc_auc_score(labels[:, kept].numpy(), scores[:, kept].numpy(), average="macro")
        assert auroc_score(scores, labels).item() == pytest.approx(expected, rel=1e-6)
        pooled = reference.roc_auc_score(labels.numpy(), scores.numpy(), average="micro")
        assert auroc_score(scores, labels, average="micro").item() == pytest.approx(pooled, rel=1e-6)


def test_equal_to_torchmetrics_where_every_label_has_both_kinds():
    scores, labels = random_problem(60, 5, 2)
    assert both_kinds(labels).all()
    probs, truth = scores.sigmoid(), labels.long()
    expected = other.multilabel_average_precision(probs, truth, 5).item()
    assert mean_average_precision_score(scores, labels).item() == pytest.approx(expected, rel=1e-5)
    for average in ("macro", "micro"):
        expected = other.multilabel_auroc(probs, truth, 5, average=average).item()
        assert auroc_score(scores, labels, average=average).item() == pytest.approx(expected, rel=1e-5)


@given(problems(elements=PROBS), st.integers(2, 30))
def test_binned_areas_are_the_exact_areas_of_rounded_scores(problem, bins):
    probs, labels = problem
    rounded = (probs * bins).long().clamp(max=bins - 1).float()
    for average in ("macro", "micro", "none"):
        for score in (mean_average_precision_score, auroc_score):
            binned, exact = score(probs, labels, average=average, bins=bins), score(rounded, labels, average=average)
            assert torch.allclose(binned, exact, equal_nan=True, atol=1e-12)


@given(masked_problems(min_rows=2, elements=PROBS))
def test_an_entry_left_out_is_as_if_it_were_not_there(problem):
    probs, labels, where = problem
    spoiled = probs.masked_fill(~where, float("nan"))
    for bins in (None, 8):
        for score in (mean_average_precision_score, auroc_score):
            whole = score(spoiled, labels, where=where, average="none", bins=bins)
            for label in range(probs.shape[1]):
                kept = where[:, label]
                alone = score(probs[kept, label : label + 1], labels[kept, label : label + 1], average="none", bins=bins)
                assert whole[label].item() == pytest.approx(alone.item(), nan_ok=True)


def test_absent_labels_count_as_zero_or_are_left_out():
    scores, labels = torch.tensor([[0.9, 0.1], [0.2, 0.4]]), torch.tensor([[1, 0], [0, 0]])
    assert mean_average_precision_score(scores, labels) == 0.5
    assert mean_average_precision_score(scores, labels, absent="skip") == 1
    assert auroc_score(scores, labels) == 1
    assert auroc_score(scores[:, 1:], labels[:, 1:]).isnan()


@pytest.mark.parametrize("elements", [10, 1 << 20])
def test_chunks_lists_and_half_types_make_no_difference(elements, monkeypatch):
    scores, labels = random_problem(30, 9, dtype=torch.bfloat16)
    whole = mean_average_precision_score(scores.double(), labels, average="none")
    for module in ("blocks", "curves"):
        monkeypatch.setattr(f"manyhot.metrics.{module}.block_elements", lambda _: elements)
    for truth in (labels, SparseLabels.from_dense(labels)):
        assert torch.allclose(mean_average_precision_score(scores, truth, average="none"), whole)


def test_nothing_to_average_is_nan():
    for rows, labels in ((0, 3), (2, 0)):
        empty = torch.zeros(rows, labels)
        assert auroc_score(empty, empty).isnan()
    assert mean_average_precision_score(torch.zeros(2, 0), torch.zeros(2, 0)).isnan()


def test_scores_that_are_no_probabilities_cannot_be_binned():
    with pytest.raises(ValueError, match=r"must be probabilities, in \[0, 1\]; got another number in row 1"):
        auroc_score(torch.tensor([[0.5], [2.0]]), torch.tensor([[1], [0]]), bins=10)
