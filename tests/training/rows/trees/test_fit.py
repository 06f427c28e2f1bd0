"""Label trees as a model: from texts or sparse features to predictions, the same for any number of threads and after kills."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from manyhot import SparseLabels, TrainSettings, evaluate, load_model, train
from manyhot.engines.native import tree as native
from manyhot.engines.tree.problem import TreeMemoryError
from manyhot.training.rows.bodies.registry import BODIES
from manyhot.training.run.checkpoint import CheckpointError
from training.problems import feature_examples, same_weights, title_examples

pytestmark = pytest.mark.skipif(not native.available()[0], reason="the native engine was not built")
TREE = TrainSettings(model="tree", threads=1)


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("loss", ["squared_hinge", "zlpr"])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_a_tree_learns_many_labels_and_is_saved(as_sparse, loss, tmp_path):
    examples, test = (title_examples(900, seed=seed, num_labels=150, as_sparse=as_sparse) for seed in (0, 1))
    model = train(examples, replace(TREE, loss=loss), run=tmp_path / "run")
    measured = evaluate(model, test, ["P@1", "micro-F1"])
    assert measured["P@1"] > 0.95
    assert measured["micro-F1"] > 0.7
    again = load_model(tmp_path / "run")
    assert same_weights(again, model)
    assert torch.equal(again.logits(test), model.logits(test))
    assert again.predict(test).lists() == model.predict(test).lists()
    assert again.settings.loss == loss


def test_the_usual_loss_of_a_tree_is_squared_hinge():
    assert TREE.usual_loss == "squared_hinge"
    assert TrainSettings(model="bag").usual_loss == "zlpr"
    with pytest.raises(ValueError, match="`loss` must be squared_hinge or zlpr for the model tree; got 'bce'"):
        train(title_examples(), replace(TREE, loss="bce"))


def test_auto_takes_a_tree_for_very_many_labels_on_a_cpu(monkeypatch):
    examples = title_examples(200)
    assert train(examples, TrainSettings(device="cpu")).shape["body"] == "linear"
    monkeypatch.setitem(BODIES, "tree", replace(BODIES["tree"], automatic_labels=40))
    model = train(examples, TrainSettings(device="cpu"))
    assert (model.shape["body"], model.settings.loss) == ("tree", "squared_hinge")
    for other in (TrainSettings(smoothing=0.1), TrainSettings(loss="bce"), TrainSettings(learning_rate=0.1)):
        assert train(examples, replace(other, device="cpu", epochs=1)).shape["body"] != "tree"


def test_the_number_of_threads_changes_no_bit():
    examples = title_examples(500, num_labels=300)
    assert same_weights(train(examples, TREE), train(examples, replace(TREE, threads=3)))


def test_the_seed_changes_the_trees():
    examples = title_examples(300, num_labels=120)
    assert not same_weights(train(examples, TREE), train(examples, replace(TREE, seed=1)))


def test_a_run_stopped_at_any_block_ends_in_the_same_weights(tmp_path, monkeypatch):
    examples, settings = title_examples(400, num_labels=300), replace(TREE, trees=2, checkpoint_seconds=0.0)
    unbroken = train(examples, settings)
    solve, stopped, left = native.solve, [0], [0]

    def interrupted(problem):
        left[0] -= 1
        if left[0] < 0:
            raise StoppedError
        return solve(problem)

    monkeypatch.setattr(native, "solve", interrupted)
    while True:
        left[0] = 4  # blocks are handed out by fours, and saved after that
        try:
            resumed = train(examples, settings, run=tmp_path / "run", resume=True)
            break
        except StoppedError:
            stopped[0] += 1
            assert stopped[0] < 20
    assert stopped[0] >= 2
    assert same_weights(resumed, unbroken)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    examples, settings = title_examples(300), replace(TREE, checkpoint_seconds=0.0)
    train(examples, settings, run=tmp_path / "run")
    (path,) = (tmp_path / "run" / "checkpoints").glob("tree-0-level-0-part-0.safetensors")
    other = tmp_path / "other"
    train(examples, settings, run=other)
    (other / "model" / "model.json").unlink()
    from manyhot.training.run.checkpoint import Checkpoints

    Checkpoints(other / "checkpoints").save(path.stem, {"features": torch.zeros(3)}, {"part": 0, "passes": 6})
    with pytest.raises(CheckpointError, match="must be one of this run"):
        train(examples, settings, run=other, resume=True)


def test_progress_is_told_level_by_level():
    told = []
    train(title_examples(300, num_labels=300), replace(TREE, trees=2), progress=lambda event: told.append(event.line()))
    assert "tree 1 of 2, level 1 of 2: 1 of 1 blocks" in told
    assert "tree 2 of 2, level 2 of 2: 4 of 4 blocks" in told


def test_a_label_without_a_row_is_told_and_never_predicted():
    examples = title_examples(400)
    names = (*examples.label_names, "never")
    labels = SparseLabels(examples.labels.indices, examples.labels.offsets, len(names))
    told = []
    model = train(type(examples)(labels, names, texts=examples.texts), TREE, progress=lambda event: told.append(event.line()))
    assert "1 labels have no training row: a tree never predicts them" in told
    assert len(names) - 1 not in model.predict(examples.texts).indices.tolist()


def test_what_a_tree_cannot_be_fitted_to_is_refused():
    few = feature_examples(60, as_sparse=True)
    with pytest.raises(ValueError, match=r"`model` tree must have at least 16 labels; got 4\. Choose linear"):
        train(few, TREE)
    dense = title_examples(100, as_sparse=True)
    dense = type(dense)(dense.labels, dense.label_names, features=dense.features.toarray())
    with pytest.raises(ValueError, match="must not be tree for dense features; it reads texts and sparse features"):
        train(dense, TREE)
    examples = title_examples(100)
    soft = SparseLabels(
        examples.labels.indices, examples.labels.offsets, 40, values=torch.full((len(examples.labels.indices),), 0.7)
    )
    with pytest.raises(ValueError, match="must have hard labels"):
        train(type(examples)(soft, examples.label_names, texts=examples.texts), TREE)
    with pytest.raises(ValueError, match="must have all labels known"):
        train(type(examples)(examples.labels, examples.label_names, texts=examples.texts, unknown=not_positive(examples)), TREE)
    with pytest.raises(ValueError, match="`smoothing` must be left out: the body tree on sparse inputs is solved node by node"):
        train(examples, replace(TREE, smoothing=0.1))
    with pytest.raises(ValueError, match=r"`trees` must be left out: .* has no label trees"):
        train(examples, TrainSettings(model="bag", trees=2))


def not_positive(examples):
    """The first label that is not positive in each row, as an unknown one."""
    lists = [[next(label for label in range(40) if label not in own)] for own in examples.labels.lists()]
    return SparseLabels.from_lists(lists, num_labels=40)


def test_without_the_native_engine_the_message_says_so_and_a_saved_tree_still_predicts(monkeypatch):
    examples = title_examples(200)
    model = train(examples, TREE)
    wanted = model.logits(examples)
    monkeypatch.setattr(native, "available", lambda: (False, "it was not built."))
    assert torch.allclose(model.logits(examples), wanted, atol=1e-3)
    with pytest.raises(ValueError, match="`model` must not be tree here, because it needs the native engine"):
        train(examples, TREE)


def test_memory_that_runs_out_is_told_on_the_command_line(monkeypatch, tmp_path, capsys):
    from manyhot.cli.main import main

    def fails(problem):
        raise TreeMemoryError(3 << 30)

    monkeypatch.setattr(native, "solve", fails)
    file = tmp_path / "titles.jsonl"
    import json

    examples = title_examples(100)
    rows = zip(examples.texts, examples.label_sets(), strict=True)
    file.write_text("".join(json.dumps({"text": text, "labels": list(labels)}) + "\n" for text, labels in rows))
    assert main(["train", str(file), "--model", "tree", "--run", str(tmp_path / "run")]) == 1
    told = capsys.readouterr().err
    assert "needs 3.0 GiB at once, and there is not enough memory. Take fewer threads (--threads 1)" in told
    assert "Traceback" not in told


def test_rows_of_any_length_are_brought_to_one():
    examples = title_examples(300, as_sparse=True)
    scaled = type(examples)(examples.labels, examples.label_names, features=examples.features * np.float32(7))
    assert train(examples, TREE).predict(examples).lists() == train(scaled, TREE).predict(scaled).lists()


def test_auto_keeps_a_loss_that_was_asked_for(monkeypatch):
    monkeypatch.setitem(BODIES, "tree", replace(BODIES["tree"], automatic_labels=40))
    examples = title_examples(200)
    asked = train(examples, TrainSettings(device="cpu", loss="zlpr"))
    assert (asked.shape["body"], asked.settings.loss) == ("tree", "zlpr")
    usual = train(examples, TrainSettings(device="cpu"))
    assert (usual.shape["body"], usual.settings.loss) == ("tree", "squared_hinge")
