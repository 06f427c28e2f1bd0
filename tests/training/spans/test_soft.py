"""Training on soft labels of spans: the loss is that of the family, and its probabilities give the labels back."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from manyhot.data.spans.examples import SpanExamples, TextSpan
from manyhot.scores.spans import SpanScores
from manyhot.training.spans.bundle import load_span_model
from manyhot.training.spans.inputs import Encoded
from manyhot.training.spans.network import SpanObjective
from manyhot.training.spans.rows import StoredRows
from manyhot.training.spans.scoring import score_spans
from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.train import train_spans
from training.spans.problems import SMALL, people

NAMES = ("Ada", "Bob", "Eve", "Kim")


def unsure(rows=64):
    """Annotators who do not agree: a first name is a person for 70 in 100 of them, with its surname for 30."""
    texts, spans = [], []
    for row in range(rows):
        texts.append(f"{NAMES[row % 4]} Lovelace schrieb es.")
        spans.append([TextSpan("PER", 0, 12), TextSpan("PER", 0, 3)])
    return SpanExamples(texts, spans, values=[[0.3, 0.7]] * rows)


def stored(random):
    """Windows of 3, 1 and 4 tokens with soft spans of two types."""
    rows = []
    for size in (3, 1, 4):
        cells = [(kind, i, j) for kind in range(2) for i in range(size) for j in range(i, size) if random.random() < 0.5]
        values = random.random(len(cells)).astype(np.float32)
        features, letters = np.zeros((size, 1), dtype=np.int32), np.zeros((size, 0), dtype=np.int32)
        rows.append(Encoded(features, letters, np.array(cells, dtype=np.int64).reshape(-1, 3), values))
    return StoredRows(rows, num_types=2, device=torch.device("cpu"))


class Parts(torch.nn.Module):
    """A network whose scores are parameters, so that gradients can be compared."""

    def __init__(self, sizes, generator):
        super().__init__()
        rows, types, tokens, width = sizes
        made = {"q": (rows, tokens, width), "k": (rows, tokens, width), "u": (rows, types, tokens), "v": (rows, types, tokens)}
        for name, shape in made.items():
            setattr(self, name, torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64) * 2))

    def forward(self, batch):
        return SpanScores(self.q, self.k, self.u, self.v, lengths=batch.lengths)


def written_out(scores, batch, loss):
    """The loss cell by cell, as the formulas are."""
    dense, labels = scores.dense(), batch.labels.dense(torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for row, size in enumerate(batch.sizes.tolist()):
        for kind in range(2):
            cells = [(i, j) for i in range(size) for j in range(i, size)]
            s = torch.stack([dense[row, kind, i, j] for i, j in cells])
            t = torch.stack([labels[row, kind, i, j] for i, j in cells])
            if loss == "zlpr":
                total = total + (1 + (t * (-s).exp()).sum()).log() + (1 + ((1 - t) * s.exp()).sum()).log()
            else:
                total = total - (t * torch.sigmoid(s).log() + (1 - t) * torch.sigmoid(-s).log()).sum()
    return total / (len(batch.sizes) * 2)


@pytest.mark.parametrize("loss", ["zlpr", "bce"])
@pytest.mark.parametrize("seed", range(4))
def test_the_loss_on_soft_spans_is_its_formula_in_float64(loss, seed):
    rows = stored(np.random.default_rng(seed))
    batch = rows.batch(np.array([2, 0, 1]))
    assert batch.labels.values is not None
    network = Parts((3, 2, 4, 6), torch.Generator().manual_seed(seed))
    value = SpanObjective(loss, 0.0)(network, batch)
    found = torch.autograd.grad(value, list(network.parameters()))
    wanted_value = written_out(network(batch), batch, loss)
    wanted = torch.autograd.grad(wanted_value, list(network.parameters()))
    assert value.item() == pytest.approx(wanted_value.item(), rel=1e-12)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


def test_a_batch_has_the_soft_labels_of_its_rows_in_their_order():
    rows = stored(np.random.default_rng(0))
    whole, turned = rows.batch(np.array([0, 1, 2])).labels.dense(), rows.batch(np.array([2, 1, 0])).labels.dense()
    torch.testing.assert_close(whole.flip(0), turned)


def test_probabilities_of_a_model_of_soft_spans_give_the_labels_back(tmp_path):
    settings = replace(SpanSettings(**SMALL), epochs=40, dropout=0.0, word_dropout=0.0, threshold=-4.0)
    settings = replace(settings, decode="all", validation=0.0)
    model = train_spans(unsure(), settings)
    assert model.link == model.describe()["link"] == "soft"
    for loaded in (model, _saved(model, tmp_path)):
        found = {(span.start, span.end): span for span in loaded.predict(["Kim Lovelace schrieb es."])[0]}
        assert found[0, 3].probability == pytest.approx(0.7, abs=0.05)
        assert found[0, 12].probability == pytest.approx(0.3, abs=0.05)


def _saved(model, folder):
    model.save(folder)
    return load_span_model(folder)


def test_decisions_and_metrics_count_a_soft_label_above_one_half():
    examples = unsure()
    model = train_spans(examples, replace(SpanSettings(**SMALL), epochs=20, dropout=0.0, word_dropout=0.0))
    # Of two spans that overlap the likelier one alone is true: the set is flat.
    assert model.settings.decode == "flat"
    assert [(span.start, span.end) for span in model.predict(["Eve Lovelace schrieb es."])[0]] == [(0, 3)]
    counts = score_spans(model, examples).counts()
    assert (counts.gold, counts.hits) == (64, 64)


def test_labels_of_one_train_as_hard_ones_do():
    hard = people(40)
    settings = replace(SpanSettings(**SMALL), epochs=2)
    soft = SpanExamples(hard.texts, hard.spans, values=[[1.0] * len(row) for row in hard.spans])
    one, two = train_spans(hard, settings), train_spans(soft, settings)
    for name, weight in one.network.state_dict().items():
        torch.testing.assert_close(weight, two.network.state_dict()[name], rtol=1e-4, atol=1e-5)
