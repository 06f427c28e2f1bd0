"""What goes wrong is counted row by row."""

import torch

from manyhot.data.examples import Examples
from manyhot.decisions.rule import DecisionRule
from manyhot.labels.sparse import SparseLabels
from manyhot.report.parts.thumbnails import thumbnail
from manyhot.report.run.judged import Judged, Origin
from manyhot.report.run.mistakes import measure_counts, measure_missed, measure_worst
from report.problems import judged, origin

NAMES = ("egg", "pan", "bread")


def small():
    """Row 0 misses egg and pan; row 1 misses both and says bread; row 2 is right; row 3 says bread wrongly."""
    logits = torch.tensor([[-1.0, -2.0, -1.0], [-1.0, -1.0, 3.0], [1.0, -1.0, -1.0], [-1.0, -1.0, 0.5]])
    labels = SparseLabels.from_lists([[0, 1], [0, 1], [0], []], num_labels=3)
    return Judged(logits, labels, None, DecisionRule(), "hard", None, NAMES)


def test_sizes_of_label_sets():
    assert measure_counts(small()) == {"true": [1, 1, 2], "predicted": [1, 3, 0]}


def test_labels_missed_together_and_instead():
    found = measure_missed(small())
    assert found["labels"] == ["egg", "pan"]
    assert found["together"] == [[2, 2], [2, 2]]
    assert found["pairs"] == [{"labels": ["egg", "pan"], "rows": 2}]
    assert found["instead"] == [
        {"missed": "egg", "predicted": "bread", "rows": 1},
        {"missed": "pan", "predicted": "bread", "rows": 1},
    ]


def test_nothing_missed_is_no_table():
    case = Judged(
        torch.tensor([[1.0]]), SparseLabels.from_lists([[0]], num_labels=1), None, DecisionRule(), "hard", None, ("a",)
    )
    assert measure_missed(case) == {"labels": [], "together": [], "pairs": [], "instead": []}
    assert measure_worst(case, origin(case)) == []


def test_the_worst_row_is_the_one_farthest_off_and_right_rows_are_left_out():
    case = small()
    worst = measure_worst(case, origin(case))
    assert [each["row"] for each in worst] == [2, 1, 4]
    assert worst[0]["far"] == 5.0
    assert [each["label"] for each in worst[0]["wrong"]] == ["bread"]
    assert [each["label"] for each in worst[0]["missed"]] == ["egg", "pan"]


def test_rows_held_out_are_named_by_their_place_in_the_file_and_long_texts_are_cut():
    case = small()
    texts = [f"row {row} " + "x" * 1000 for row in range(10)]
    examples = Examples(SparseLabels.from_lists([[]] * 10, num_labels=3), NAMES, texts=texts)
    worst = measure_worst(case, Origin("held out", examples, torch.tensor([7, 5, 3, 1])))
    assert worst[0]["row"] == 6
    assert worst[0]["text"].startswith("row 5 ")
    assert len(worst[0]["text"]) == 401


def test_labels_that_are_never_predicted_and_infinite_scores_leave_finite_distances():
    case = judged(rule=DecisionRule(threshold=(float("inf"), 0.0, 0.0, 0.0, -float("inf"))))
    logits = case.logits.clone()
    logits[0] = -float("inf")
    worst = measure_worst(Judged(logits, case.labels, None, case.rule, "hard", None, case.label_names), origin(case))
    assert all(each["far"] is not None and each["far"] < 1e6 for each in worst)


def test_pictures_of_one_and_three_channels_are_png_and_others_are_none():
    assert thumbnail(torch.rand(1, 28, 56)).startswith("data:image/png;base64,")
    assert thumbnail(torch.rand(3, 400, 10)).startswith("data:image/png;base64,")
    assert len(thumbnail(torch.zeros(1, 4, 4))) < 200
    assert thumbnail(torch.rand(2, 8, 8)) is None
