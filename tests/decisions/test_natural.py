"""Natural decisions: every loss names one, and it does what the loss means."""

import pytest
import torch

from manyhot import LOSSES, decide
from manyhot.decisions.natural import NATURAL_DECISIONS, natural_decision


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_names_a_decision_that_exists(name):
    assert LOSSES[name].decision in NATURAL_DECISIONS


@pytest.mark.parametrize("name", LOSSES)
def test_a_decision_has_a_boundary_exactly_where_a_shift_of_all_scores_changes_the_loss(name):
    info = LOSSES[name]
    logits, labels = torch.tensor([[1.0, -0.5, 0.25, -2.0]]).double(), torch.tensor([[1, 0, 0, 0]])
    moved = not torch.isclose(info(logits + 1, labels), info(logits, labels))
    assert moved == natural_decision(info.decision).bounded


def test_rules_follow_the_cardinality_and_the_least_number_of_labels():
    assert natural_decision("top-k").rule(cardinality=2.6).top_k == 3
    assert natural_decision("tuned").rule(cardinality=0.2, min_labels=2).top_k == 2
    assert natural_decision("zero").rule(min_labels=1).min_labels == 1
    assert decide(torch.tensor([[-3.0, -1.0]]), natural_decision("argmax").rule()).tolist() == [[False, True]]
    with pytest.raises(ValueError, match="Did you mean 'argmax'"):
        natural_decision("argmx")
