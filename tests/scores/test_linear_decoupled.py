"""Decoupled softmax of linear scores: what it is of the dense tensor, with gradients, and with updates inside backward."""

import pytest
import torch
from torch.autograd import gradcheck

from manyhot import LinearHead, LinearScores, SpanScores, SparseLabels, decoupled_softmax_loss
from manyhot.engines.linear import plain
from manyhot.engines.native import linear as native_linear

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def head(seed=0, rows=5, size=4, num_labels=23, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((rows, size), (num_labels, size), (num_labels,))
    parts = [torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]
    labels = torch.rand(rows, num_labels, generator=generator) < 0.2
    labels[0] = False
    return parts, labels


@pytest.mark.parametrize("chunk_size", [1, 7, None])
@pytest.mark.parametrize("kind", ["hard", "soft", "sparse", "soft sparse"])
@pytest.mark.parametrize("masked", [False, True])
def test_values_and_gradients_are_those_of_the_dense_tensor(chunk_size, kind, masked):
    parts, labels = head()
    generator = torch.Generator().manual_seed(1)
    if "soft" in kind:
        labels = labels * torch.rand(labels.shape, generator=generator, dtype=torch.float64)
    settings = {"where": torch.rand(labels.shape, generator=generator) < 0.7} if masked else {}
    settings |= {"scale": 1.5, "sample_weight": torch.rand(5, generator=generator, dtype=torch.float64)}
    given = SparseLabels.from_dense(labels) if "sparse" in kind else labels
    lazy = decoupled_softmax_loss(LinearScores(*parts, chunk_size=chunk_size), given, **settings)
    dense = decoupled_softmax_loss(LinearScores(*parts).dense(), labels, **settings)
    torch.testing.assert_close(lazy, dense)
    torch.testing.assert_close(torch.autograd.grad(lazy, parts), torch.autograd.grad(dense, parts))


@pytest.mark.parametrize("score", [torch.inf, -torch.inf, torch.nan])
def test_an_excluded_label_does_not_count_whatever_its_score(score):
    (hidden, weight, bias), labels = head()
    labels[2, 7] = True
    with torch.no_grad():
        bias[7] = score
    where = torch.arange(labels.shape[1]) != 7
    kept = where.nonzero().squeeze(1)
    lazy = decoupled_softmax_loss(LinearScores(hidden, weight, bias), SparseLabels.from_dense(labels), where=where)
    alone = decoupled_softmax_loss(LinearScores(hidden, weight[kept], bias[kept]).dense(), labels[:, kept])
    torch.testing.assert_close(lazy, alone)
    torch.testing.assert_close(torch.autograd.grad(lazy, hidden), torch.autograd.grad(alone, hidden))


def test_gradients_agree_with_finite_differences():
    parts, labels = head(rows=3, size=3, num_labels=6)
    sparse = SparseLabels.from_dense(labels)
    assert gradcheck(lambda h, w, b: decoupled_softmax_loss(LinearScores(h, w, b, chunk_size=2), sparse), parts)


@pytest.mark.skipif(not native_linear.available()[0], reason="the native engine is not built")
def test_the_native_engine_gives_what_the_plain_one_gives(monkeypatch):
    parts, labels = head(rows=6, num_labels=500, dtype=torch.float32)
    sparse = SparseLabels.from_dense(labels)

    def result():
        return torch.autograd.grad(decoupled_softmax_loss(LinearScores(*parts), sparse), parts)

    found = result()
    monkeypatch.setattr("manyhot.scores.linear.choose_linear", lambda *_: plain)
    torch.testing.assert_close(found, result())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("update", ["sgd", "adagrad"])
def test_fifty_steps_with_fused_updates_are_those_of_dense_training(update, device):
    torch.manual_seed(0)
    fused = LinearHead(6, 40, update=update, lr=0.2, chunk_size=11).to(device)
    weight, bias = fused.weight.detach().double().clone(), fused.bias.detach().double().clone()
    squares, bias_squares = torch.zeros(40, dtype=torch.float64).to(device), torch.zeros(40, dtype=torch.float64).to(device)
    generator = torch.Generator().manual_seed(3)
    for _ in range(50):
        hidden = torch.randn(8, 6, generator=generator).to(device).requires_grad_()
        labels = (torch.rand(8, 40, generator=generator) < 0.1).to(device)
        decoupled_softmax_loss(fused(hidden), SparseLabels.from_dense(labels)).backward()
        exact = [hidden.detach().double().requires_grad_(), weight.requires_grad_(), bias.requires_grad_()]
        wanted = torch.autograd.grad(decoupled_softmax_loss(torch.nn.functional.linear(*exact), labels), exact)
        torch.testing.assert_close(hidden.grad.double(), wanted[0], rtol=2e-4, atol=2e-5)
        step, bias_step = wanted[1], wanted[2]
        if update == "adagrad":
            squares += step.square().mean(dim=1)
            bias_squares += bias_step.square()
            step, bias_step = step / (squares.sqrt() + 1e-8)[:, None], bias_step / (bias_squares.sqrt() + 1e-8)
        weight, bias = weight.detach() - 0.2 * step, bias.detach() - 0.2 * bias_step
    torch.testing.assert_close(fused.weight.detach().double(), weight, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(fused.bias.detach().double(), bias, rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_cuda_engine_is_near_the_dense_tensor(dtype):
    parts, labels = head(rows=64, size=32, num_labels=9000, dtype=torch.float32)
    sparse = SparseLabels.from_dense(labels).to("cuda")
    moved = [part.detach().to("cuda", dtype if part.ndim > 1 else torch.float32).requires_grad_() for part in parts]
    exact = [part.detach().double().requires_grad_() for part in moved]
    lazy = decoupled_softmax_loss(LinearScores(*moved), sparse)
    dense = decoupled_softmax_loss(torch.nn.functional.linear(*exact), labels.cuda())
    # Scores up to 33 are rounded to bfloat16, which moves e^s by up to 6 %. In float64, rounded scores alone move the gradients
    # of weight and hidden by 1.9 % and that of the bias by 2.1 %; rounding the gradient of the scores adds 0.1 %.
    bound = 1e-4 if dtype == torch.float32 else 4e-2
    torch.testing.assert_close(lazy.double(), dense, rtol=bound, atol=bound)
    for found, wanted in zip(torch.autograd.grad(lazy, moved), torch.autograd.grad(dense, exact), strict=True):
        assert float((found.double() - wanted).abs().max() / wanted.abs().max()) < bound


def test_what_lazy_scores_cannot_honour_is_refused():
    parts, labels = head()
    with pytest.raises(ValueError, match="`smoothing` must be 0 for lazy scores"):
        decoupled_softmax_loss(LinearScores(*parts), labels, smoothing=0.1)
    spans = SpanScores(torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4))
    with pytest.raises(TypeError, match=r"must be a tensor or LinearScores; got SpanScores. Call .dense\(\)"):
        decoupled_softmax_loss(spans, labels)
