"""Training with very many labels: rows on the device, top lists to tune on, and a model that is saved, loaded and resumed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot.data.examples import Examples
from manyhot.decisions.rule import DecisionRule, decide_sparse
from manyhot.decisions.top_lists import decide_top
from manyhot.decisions.tuning.top_cut import tune_top
from manyhot.engines import registry
from manyhot.evaluation import evaluate
from manyhot.labels.sparse import SparseLabels
from manyhot.predictor import predict_rows
from manyhot.report.run.judged import Judged
from manyhot.scores.top import TopScores
from manyhot.training.rows import choose
from manyhot.training.rows.bodies.registry import get_body
from manyhot.training.rows.bodies.word_table import WordTable
from manyhot.training.rows.bundle import load_model
from manyhot.training.rows.inputs import fixed_batches, texts
from manyhot.training.rows.inputs.device_rows import DeviceRows
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from manyhot.training.rows.wide import fit as wide_fit
from manyhot.training.rows.wide.captured_step import CapturedStep
from manyhot.training.rows.wide.warming import Warming, made_up_steps

WIDE = TrainSettings(model="wide", loss="zlpr", learning_rate=0.1, hidden=16, epochs=6, batch_size=32, threads=1, dropout=0.1)


def titles(rows=300, labels=40, seed=0):
    """Each label is a word; rows name one to three of them among others."""
    draw = np.random.default_rng(seed)
    sets = [sorted(draw.choice(labels, size=draw.integers(1, 4), replace=False).tolist()) for _ in range(rows)]
    texts = [" ".join([*(f"topic{label}" for label in row), f"filler{draw.integers(20)}"]) for row in sets]
    names = tuple(f"label {place}" for place in range(labels))
    return Examples(SparseLabels.from_lists(sets, num_labels=labels), names, texts=texts)


@pytest.fixture(scope="module")
def found():
    kept = {}
    model = train(titles(), WIDE, held_out=lambda _, tuning: kept.update(tuning=tuning))
    return model, kept["tuning"]


def test_batches_on_a_device_are_the_rows_in_the_order_asked_for():
    from scipy import sparse

    matrix = sparse.random(11, 7, density=0.4, format="csr", dtype=np.float32, random_state=0)
    labels = SparseLabels.from_lists([[row % 5] if row % 3 else [] for row in range(11)], num_labels=5)
    weight, order = torch.arange(11.0), np.random.default_rng(0).permutation(11)
    rows = DeviceRows(matrix, labels, weight, torch.device("cpu"))
    assert len(rows) == 11
    for start in (0, 2):
        parts = list(rows.batches(order, 3, start))
        assert sum(len(listed) for _, listed, _ in parts) == 11 - 3 * start
        for place, (inputs, listed, own) in enumerate(parts, start=start):
            picked = order[place * 3 : place * 3 + 3]
            wanted = matrix[picked]
            assert inputs.columns.tolist() == wanted.indices.tolist()
            assert inputs.offsets.tolist() == wanted.indptr.tolist()
            assert inputs.values.tolist() == wanted.data.tolist()
            assert listed.lists() == labels[torch.from_numpy(picked)].lists()
            assert own.tolist() == weight[picked].tolist()


def test_it_learns_and_tunes_one_threshold_on_top_lists(found):
    model, tuning = found
    assert isinstance(tuning.logits, TopScores)
    assert len(tuning.labels) == len(tuning.rows) == 30
    assert model.rule.max_labels == 40  # fewer labels than are listed otherwise
    scores = evaluate(model, titles(seed=1))
    assert scores["P@1"] > 0.9
    assert scores["micro-F1"] > 0.8


def test_predictions_top_lists_and_logits_agree(found, tmp_path):
    model, test = found[0], titles(seed=1)
    logits = model.logits(test)
    top = model.top_k(test, 3, batch_size=64)
    torch.testing.assert_close(top.values, logits.topk(3).values)
    assert evaluate(logits, test, ["micro-F1", "P@3", "AvgPrec"], rule=model.rule) == pytest.approx(
        evaluate(model, test, ["micro-F1", "P@3", "AvgPrec"])
    )
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert torch.equal(again.logits(test), logits)
    assert again.predict(test).lists() == model.predict(test).lists()
    rows = list(predict_rows(again, test.texts, DecisionRule(top_k=2), scores=True, probabilities=True))
    best = logits.topk(2)
    assert [[int(name.split()[1]) for name in row.labels] for row in rows] == best.indices.tolist()
    assert torch.tensor([row.scores for row in rows]) == pytest.approx(best.values, abs=1e-4)
    assert torch.tensor([row.probabilities for row in rows]) == pytest.approx(best.values.sigmoid(), abs=1e-4)
    assert again.explain(test.texts[:1])[0].labels


def test_a_killed_run_goes_on_to_the_same_model(tmp_path):
    whole = train(titles(), WIDE, run=tmp_path / "whole")

    class KilledError(Exception):
        pass

    def kill(event):
        if event.kind == "epoch" and event.epoch == 3:
            raise KilledError

    settings = replace(WIDE, checkpoint_seconds=0.0)
    for fit in range(3):
        with pytest.raises(KilledError):
            train(titles(), settings, run=tmp_path / "killed", resume=fit > 0, progress=kill)
    resumed = train(titles(), settings, run=tmp_path / "killed", resume=True)
    for name, each in whole.body.state_dict().items():
        assert torch.equal(resumed.body.state_dict()[name], each), name


@pytest.mark.parametrize(
    ("words", "many", "given", "ngrams"),
    [(1, 299, None, 2), (1, 300, None, 1), (1, 299, 1, 1), (250, 299, None, 1), (250, 299, 2, 2)],
)
def test_many_short_texts_are_read_with_pairs_of_words_by_default(words, many, given, ngrams, monkeypatch):
    monkeypatch.setattr(texts, "MANY_TEXTS", many)
    short = titles()
    examples = Examples(short.labels, short.label_names, texts=[" ".join([text, *["filler"] * words]) for text in short.texts])
    model = train(examples, replace(WIDE, epochs=1, members=1, ngrams=given))
    assert (model.settings.ngrams, len(model.inputs.words.keys)) == (ngrams, ngrams)


def test_validation_rows_are_listed_by_the_whole_model():
    kept = {}
    model = train(titles(), WIDE, validation=titles(seed=1), held_out=lambda _, tuning: kept.update(tuning=tuning))
    torch.testing.assert_close(kept["tuning"].logits.values, model.logits(titles(seed=1)).topk(40).values)


@pytest.mark.parametrize(("given", "count"), [(None, get_body("wide").members.fits), (2, 2), (1, 1)])
def test_the_model_is_the_mean_of_as_many_members_as_were_asked_for(given, count):
    model = train(titles(rows=60), replace(WIDE, epochs=1, members=given))
    assert model.body.head.hidden_size == count * 16
    assert model.settings.members == count
    assert model.about["why"]["fits"].startswith(f"the mean of {count}," if count > 1 else "one")
    assert model.about["why"]["rule"].startswith("one threshold, the best for micro-F1")


def test_it_is_chosen_for_very_many_labels_on_a_gpu_alone(monkeypatch):
    examples = titles(rows=30, labels=40)
    labels = SparseLabels(examples.labels.indices, examples.labels.offsets, 9000)
    many = Examples(labels, tuple(map(str, range(9000))), texts=examples.texts)

    def chosen(settings, own=many, device="cuda"):
        monkeypatch.setattr(choose, "choose_device", lambda _: torch.device(device))
        found = choose.with_body(settings, own)
        return found.model, found.usual_loss

    assert chosen(TrainSettings()) == ("wide", "decoupled")
    assert chosen(TrainSettings(loss="zlpr")) == ("wide", "zlpr")
    assert chosen(TrainSettings(tune="micro-F1")) == ("wide", "zlpr")
    assert chosen(TrainSettings(), device="cpu")[0] != "wide"
    assert chosen(TrainSettings(), own=examples)[0] == "auto"
    assert chosen(TrainSettings(loss="bce")) == ("auto", "bce")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"loss": "bce"}, "`loss` must be changed for the body wide: bce needs the scores of all labels at once"),
        ({"mixup": 0.5}, "`mixup` must be changed"),
        ({"flip": 0.1}, "`flip` must be changed"),
        ({"strategy": "lp", "loss": "auto"}, "`(loss|strategy)` must be changed"),
        ({"calibrate": "platt"}, "`calibrate` must be changed"),
        ({"pos_weight": "auto", "tune": "none"}, "`pos_weight` must be changed"),
        ({"per_label": False}, "`per_label` must be left out"),
        ({"weight_decay": 0.5}, "`weight_decay` must be left out"),
    ],
)
def test_what_lazy_scores_cannot_honour_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        train(titles(), replace(WIDE, **change))


@pytest.mark.parametrize(
    "change",
    [{"smoothing": 0.1}, {"loss": "tlpr"}, {"loss": "pairwise"}, {"propensity_weights": True}, {"tune": "none"}],
    ids=str,
)
def test_losses_of_the_family_train_it(change):
    scores = evaluate(train(titles(), replace(WIDE, **change)), titles(seed=1))
    assert scores["P@1"] > 0.5


@pytest.mark.parametrize(
    ("change", "goal"), [({"tune": "macro-F1"}, "macro-F1"), ({"metric": "SubACC"}, "SubACC"), ({"metric": "MLC-F1"}, "MLC-F1")]
)
def test_its_threshold_is_tuned_for_the_metric_that_was_asked_for(change, goal):
    model = train(titles(), replace(WIDE, **change))
    assert f"the best for {goal} " in model.about["why"]["rule"]
    assert f"best for {goal} (" in model.about["tuned"]


def test_the_usual_loss_is_decoupled_softmax_and_predicts_the_best_labels(tmp_path):
    assert TrainSettings(model="wide").usual_loss == "decoupled"
    assert TrainSettings(model="wide", tune="micro-F1").usual_loss == "zlpr"
    model = train(titles(), replace(WIDE, loss="decoupled"), run=tmp_path / "run")
    measured = evaluate(model, titles(seed=1), ["P@1", "micro-F1"])
    assert measured["P@1"] > 0.95
    assert measured["micro-F1"] > 0.7
    again = load_model(tmp_path / "run")
    assert again.predict(titles(seed=1)).lists() == model.predict(titles(seed=1)).lists()


def test_a_loss_that_only_ranks_gets_a_rule_for_the_softmax_of_a_row(tmp_path):
    kept = {}
    model = train(titles(), replace(WIDE, loss="decoupled"), held_out=lambda _, tuning: kept.update(tuning=tuning))
    top, labels = kept["tuning"].logits, kept["tuning"].labels
    values = {softmax: tune_top(top, labels, rule=DecisionRule(softmax=softmax))[1] for softmax in (False, True)}
    assert model.rule.softmax == (values[True] >= values[False])
    rule = replace(model.rule, threshold=-1.5, softmax=True)
    model.rule, test = rule, titles(seed=1)
    wanted = decide_sparse(model.logits(test), rule)
    assert model.predict(test).lists() == wanted.lists()
    assert decide_top(model.top_k(test, 40), rule).lists() == wanted.lists()
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert again.rule == rule
    judged = Judged.by_model(again, again.top_k(test, 40), test.labels, None)
    assert judged.predictions.lists() == wanted.lists()
    assert evaluate(again, test, ["micro-F1"]) == pytest.approx(evaluate(model.logits(test), test, ["micro-F1"], rule=rule))


def test_a_large_table_is_kept_in_8_bits_and_scores_as_before(monkeypatch, tmp_path):
    whole = train(titles(), WIDE)
    monkeypatch.setattr("manyhot.training.rows.bodies.wide.LARGEST_FLOAT32_TABLE", 0)
    model = train(titles(), WIDE)
    assert model.body.first.weight.dtype == torch.int8
    test = titles(seed=1)
    torch.testing.assert_close(model.logits(test), whole.logits(test), rtol=2e-2, atol=5e-2)
    model.save(tmp_path)
    assert torch.equal(load_model(tmp_path).logits(test), model.logits(test))
    again = load_model(tmp_path)
    (found,) = again.explain(test.texts[:1])
    assert found.labels[0].score == pytest.approx(float(again.logits(test.texts[:1]).max()), abs=1e-4)
    words = model.label_words(labels=["label 3"], most=1)
    assert words[0].speak_for[0][0] == "topic3"


def test_a_table_in_float16_of_an_earlier_model_is_read(tmp_path):
    model = train(titles(), WIDE)
    with torch.device("meta"):
        older = WordTable(*model.body.first.weight.shape, moves=False, dtype=torch.float16)
    older.hold([model.body.first.weight])
    model.body.first, model.shape["table"] = older, "float16"
    older.rate = torch.zeros(())
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert again.body.first.weight.dtype == torch.float16
    assert torch.equal(again.logits(titles(seed=1)), model.logits(titles(seed=1)))


def test_steps_on_made_up_rows_go_through_every_part_of_a_step():
    settings = replace(WIDE, loss="decoupled", batch_size=64)
    before = torch.get_rng_state()
    assert made_up_steps(settings, 40, torch.device("cpu")) == 2
    torch.set_rng_state(before)
    assert Warming(settings, 40, torch.device("cpu")).start().thread is None  # nothing is compiled on a CPU


FIXED = """
import sys
sys.path.insert(0, sys.argv[1])
from training.rows.wide.test_fit import check_fixed_batches
check_fixed_batches(sys.argv[2])
print("checked")
"""


class DirectStep:
    """A captured step without a graph."""

    taken = 0

    def __init__(self, body, step):
        del body
        self.step = step

    def __call__(self):
        DirectStep.taken += 1
        return self.step()


def check_fixed_batches(loss):
    """Steps on batches in fixed memory, some of which have no room for them, are the plain ones; in Triton's interpreter."""
    # The native engine of the CPU counts every label that it is given.
    registry._BY_DEVICE["cpu"] = registry._BY_NAME["triton"]
    examples, weight = titles(rows=20, labels=12), torch.linspace(0.5, 2.0, 20)
    settings = replace(WIDE, loss=loss, epochs=1, batch_size=8, hidden=4, dropout=0.0, members=3)
    wide_fit.can_capture = lambda _: False
    wanted = train(examples, settings, sample_weight=weight)
    wide_fit.can_capture, wide_fit.CapturedStep = lambda _: True, DirectStep
    fixed_batches.ROOM_UNIT = 1
    for deviations, fewest, most in ((6.0, 6, 6), (0.0, 1, 5)):
        fixed_batches.DEVIATIONS, DirectStep.taken = deviations, 0
        found = train(examples, settings, sample_weight=weight)
        assert fewest <= DirectStep.taken <= most, DirectStep.taken
        for name, each in wanted.body.state_dict().items():
            torch.testing.assert_close(found.body.state_dict()[name], each, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("loss", [pytest.param("zlpr", marks=pytest.mark.slow), "decoupled"])
def test_batches_in_fixed_memory_give_the_same_model(loss):
    check_interpreted(FIXED, loss)


@pytest.mark.gpu
@pytest.mark.parametrize("loss", ["zlpr", "decoupled"])
def test_captured_steps_give_the_model_of_plain_ones(monkeypatch, loss):
    settings = replace(WIDE, loss=loss, epochs=3, device="cuda")
    captured = []
    found = train(titles(), settings)
    monkeypatch.setattr(CapturedStep, "__call__", lambda self: captured.append(self) or self.step())
    _same_tables(found, train(titles(), settings))
    assert captured
    monkeypatch.setattr(wide_fit, "can_capture", lambda _: False)
    _same_tables(found, train(titles(), settings))


def _same_tables(found, wanted):
    for name, each in wanted.body.state_dict().items():
        assert torch.equal(found.body.state_dict()[name], each), name


@pytest.mark.gpu
def test_a_step_that_cannot_be_captured_is_made_in_the_plain_way(monkeypatch):
    settings = replace(WIDE, epochs=2, device="cuda")
    wanted = train(titles(), settings)

    def refuse(*_, **__):
        raise RuntimeError("no graphs here")

    monkeypatch.setattr(torch.cuda, "graph", refuse)
    with pytest.warns(RuntimeWarning, match="could not be captured"):
        found = train(titles(), settings)
    _same_tables(found, wanted)


@pytest.mark.slow
@pytest.mark.gpu
def test_a_killed_run_on_a_gpu_goes_on_to_the_same_model(tmp_path):
    settings = replace(WIDE, loss="decoupled", device="cuda")
    whole = train(titles(), settings, run=tmp_path / "whole")

    class KilledError(Exception):
        pass

    def kill(event):
        if event.kind == "epoch" and event.epoch == 3:
            raise KilledError

    often = replace(settings, checkpoint_seconds=0.0)
    for fit in range(3):
        with pytest.raises(KilledError):
            train(titles(), often, run=tmp_path / "killed", resume=fit > 0, progress=kill)
    _same_tables(train(titles(), often, run=tmp_path / "killed", resume=True), whole)
