"""Hierarchies: closed predictions, clear errors, metrics that know what lies above."""

import gzip
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyhot.data.read import read_examples
from manyhot.decisions.hierarchy import Hierarchy
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.counts import f1_score

NAMES = tuple("abcdefg")
# g has two parents, a is a root of all but e.
PAIRS = [("b", "a"), ("c", "a"), ("d", "b"), ("f", "e"), ("g", "c"), ("g", "f")]


def labels(*rows):
    return SparseLabels.from_lists([[NAMES.index(name) for name in row] for row in rows], num_labels=7)


def words(found):
    return ["".join(NAMES[label] for label in row) for row in found.lists()]


def test_upwards_everything_above_comes_in_by_every_parent():
    assert words(Hierarchy(NAMES, PAIRS).close(labels("g", "d", "e", ""))) == ["acefg", "abd", "e", ""]


def test_downwards_a_label_stays_only_with_one_of_its_parents():
    assert words(Hierarchy(NAMES, PAIRS).close(labels("g", "efg", "abd", "ad", "cg", "aefg"), "down")) == [
        "",
        "efg",
        "abd",
        "a",
        "",
        "aefg",
    ]


@given(
    pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12),
    rows=st.lists(st.sets(st.integers(0, 6)), max_size=5),
)
def test_closed_predictions_stay_closed_and_never_leave_a_child_alone(pairs, rows):
    # A parent has a lower number, so that there is no cycle.
    tree = Hierarchy(NAMES, [(NAMES[max(pair)], NAMES[min(pair)]) for pair in pairs if pair[0] != pair[1]])
    given_labels = SparseLabels.from_lists([sorted(row) for row in rows], num_labels=7)
    for mode, grows in (("up", True), ("down", False)):
        closed = tree.close(given_labels, mode)
        assert tree.close(closed, mode).lists() == closed.lists()
        for before, after in zip(given_labels.lists(), closed.lists(), strict=True):
            assert set(before) <= set(after) if grows else set(after) <= set(before)
            for label in after:
                assert not tree.parents[label] or set(after) & set(tree.parents[label])


def test_closed_scores_give_closed_predictions_at_any_threshold():
    tree = Hierarchy(NAMES, PAIRS)
    logits = torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    closed = tree.close_scores(logits)
    assert bool((closed >= logits).all())
    for threshold in (-1.0, 0.0, 0.7):
        found = SparseLabels.from_dense(closed > threshold)
        assert tree.close(found).lists() == found.lists()
        assert tree.close(SparseLabels.from_dense(logits > threshold)).lists() == found.lists()


def test_without_parents_the_metrics_are_micro_f1():
    generator = torch.Generator().manual_seed(1)
    truth, said = (torch.rand(60, 7, generator=generator) < 0.3 for _ in range(2))
    found = Hierarchy(NAMES, []).metrics(SparseLabels.from_dense(said), SparseLabels.from_dense(truth))
    assert found["h-F1"] == pytest.approx(float(f1_score(said, truth, average="micro")))
    assert found["broken-rows"] == 0


def test_metrics_by_hand():
    tree = Hierarchy(NAMES, PAIRS)
    # Truth g: acefg; said d: abd. Hits: a. Truth b: ab; said b: ab.
    found = tree.metrics(labels("d", "ab"), labels("g", "b"))
    assert found["h-precision"] == pytest.approx(3 / 5)
    assert found["h-recall"] == pytest.approx(3 / 7)
    assert found["broken-rows"] == 0.5


def test_a_cycle_is_printed():
    with pytest.raises(ValueError, match="no cycle; got 'b' -> 'a' -> 'd' -> 'b'"):
        Hierarchy(NAMES, [*PAIRS, ("a", "d")])
    with pytest.raises(ValueError, match="no cycle; got 'a' -> 'a'"):
        Hierarchy(NAMES, [("a", "a")])


def test_a_long_chain_is_no_deep_recursion():
    names = [str(number) for number in range(5000)]
    tree = Hierarchy(names, [(str(number), str(number - 1)) for number in range(1, 5000)])
    assert len(tree.ancestors[-1]) == 4999


def test_unknown_labels_are_an_error_or_passed_through():
    pairs = [("b", "middle"), ("middle", "a"), ("c", "stranger")]
    with pytest.raises(ValueError, match="must name labels of the model; got 'middle'"):
        Hierarchy(NAMES, pairs)
    tree = Hierarchy(NAMES, pairs, ignore_unknown=True)
    assert words(tree.close(labels("b", "c"))) == ["ab", "c"]
    assert words(tree.close(labels("b", "ab", "c"), "down")) == ["", "ab", "c"]


def test_files_are_read_and_their_lines_named(tmp_path):
    path = tmp_path / "parents.tsv"
    path.write_text("# label\tparent\nb\ta\n\nc\ta\n")
    assert Hierarchy.read(path, NAMES).parents[1:3] == [[0], [0]]
    path.write_text("b\ta\nc a\n")
    with pytest.raises(ValueError, match=r"parents.tsv, line 2: must be a label, a tab and its parent; got 1 fields"):
        Hierarchy.read(path, NAMES)
    path.write_text("b\tx\n")
    with pytest.raises(ValueError, match=r"parents.tsv: `parents` must name labels of the model; got 'x'"):
        Hierarchy.read(path, NAMES)


def test_widths_and_modes_are_checked():
    tree = Hierarchy(NAMES, PAIRS)
    with pytest.raises(ValueError, match="must have 7 columns, one per label name; got 3"):
        tree.close(SparseLabels.from_lists([[0]], num_labels=3))
    with pytest.raises(ValueError, match="`mode` must be one of 'up', 'down'"):
        tree.close(labels("a"), "sideways")


def test_the_parents_of_eurovoc_have_no_cycle_and_rows_leave_them_out(data_folder):
    folder = data_folder / "eurlex57k"
    with gzip.open(folder / "EURLEX57K.json.gz", "rt", encoding="utf-8") as file:
        concepts = json.load(file)
    pairs = [(name, parent) for name, told in concepts.items() for parent in told["parents"]]
    examples = read_examples(folder / "dev.jsonl.xz")
    tree = Hierarchy(examples.label_names, pairs, ignore_unknown=True)
    closed = tree.close(examples.labels)
    assert tree.close(closed).lists() == closed.lists()
    found = tree.metrics(examples.labels, examples.labels)
    assert found["h-F1"] == 1
    # EuroVoc rows carry the most special concepts alone.
    assert found["broken-rows"] > 0.9
    assert tree.metrics(closed, examples.labels)["broken-rows"] == 0
