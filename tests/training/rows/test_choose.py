"""What is chosen where the settings leave it open."""

import pytest

from manyhot.training.rows.choose import resolved
from manyhot.training.rows.settings import TrainSettings
from training.problems import feature_examples, text_examples


@pytest.mark.parametrize(
    ("examples", "given", "weight"),
    [
        (text_examples(20), {}, 6.0),
        (text_examples(20), {"loss": "bce"}, None),
        (text_examples(20), {"pos_weight": 2.0}, 2.0),
        (text_examples(20), {"tune": "none"}, "auto"),
        (text_examples(20), {"tune": "none", "loss": "bce"}, None),
        (text_examples(20), {"tune": "none", "learn_threshold": True}, None),
        (feature_examples(20, as_sparse=True), {}, None),
        (feature_examples(20, as_sparse=True), {"tune": "none"}, "auto"),
        (feature_examples(20), {}, None),
        (feature_examples(20), {"tune": "none"}, "auto"),
    ],
)
def test_positives_weigh_more_in_texts_and_where_no_rule_is_tuned(examples, given, weight):
    assert resolved(TrainSettings(**given), examples).pos_weight == weight
