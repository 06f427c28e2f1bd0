"""Label sets as classes."""

import pytest
import torch

from manyhot.labels.powerset import LabelSets, decided_scores
from manyhot.labels.sparse import SparseLabels


def rows(seed=0, num=200, labels=9):
    return SparseLabels.from_dense(torch.rand(num, labels, generator=torch.Generator().manual_seed(seed)) < 0.2)


def test_every_row_is_of_the_class_of_its_set_and_a_new_set_of_none():
    seen, others = rows(), rows(1)
    sets = LabelSets.of(seen)
    members = [tuple(row.nonzero().flatten().tolist()) for row in sets.members]
    assert len(set(members)) == len(members)
    known = {each: place for place, each in enumerate(members)}
    for labels in (seen, others):
        assert sets.classes(labels).tolist() == [known.get(tuple(row), -1) for row in labels.lists()]
    assert -1 in sets.classes(others).tolist()
    assert -1 not in sets.classes(seen).tolist()


def test_a_score_above_zero_is_a_label_of_the_most_probable_set():
    sets = LabelSets.of(rows())
    logits = torch.randn(300, len(sets), generator=torch.Generator().manual_seed(2))
    scores = decided_scores(logits, sets.members)
    assert torch.equal(scores > 0, sets.chosen(logits) > 0)
    assert not torch.equal(sets.label_scores(logits) > 0, sets.chosen(logits) > 0)
    agrees = (sets.label_scores(logits) > 0) == (sets.chosen(logits) > 0)
    assert torch.equal(scores[agrees], sets.label_scores(logits)[agrees])


def test_a_set_given_twice_is_refused():
    with pytest.raises(ValueError, match="distinct"):
        LabelSets(torch.tensor([[1, 0], [1, 0]]))


def test_label_sets_give_back_their_labels_and_their_odds():
    labels = SparseLabels.from_lists([[0, 2], [], [0, 2], [1, 2]], num_labels=3)
    sets = LabelSets.of(labels[:3])
    classes = sets.classes(labels)
    assert (len(sets), int(classes[3])) == (2, -1)
    sure = torch.nn.functional.one_hot(classes[:3], 2).float() * 30
    assert (sets.chosen(sure) == labels[:3].dense(torch.float32)).all()
    logits = torch.tensor([[0.3, -0.8]])
    torch.testing.assert_close(sets.label_scores(logits)[0, 0].sigmoid(), logits.softmax(-1)[0, int(classes[0])])
