"""What a linear engine must give, asked of dense float64 scores over label kinds, weights, masks, forms and hostile scores."""

import torch

from engines.oracle import all_terms, moved
from manyhot import SparseLabels
from manyhot.engines.linear.problem import LinearProblem
from manyhot.engines.terms import SparseTerms, in_one_part
from manyhot.losses.core.forms import FORMS
from manyhot.losses.core.layout import Rows
from manyhot.losses.core.logsumexp import sides_of_rows
from manyhot.losses.pairwise import pairwise_loss as _registers_joint  # noqa: F401
from manyhot.losses.zlpr import zlpr_loss as _registers_split  # noqa: F401

SLACK = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 5e-3}


def made_up(generator, rows, num_labels, size, *, bias=True, spread=1.0):
    """Hidden, weight and bias."""
    hidden, weight = (torch.randn(n, size, generator=generator) for n in (rows, num_labels))
    return spread * hidden, weight, 2 * torch.randn(num_labels, generator=generator) if bias else None


def kept_sizes(num_labels, chunk):
    """All labels, none, and the first chunk alone."""
    return sorted({0, min(chunk, num_labels), num_labels})


def hostile_problems(generator):
    """``(name, hidden, weight, bias, terms)``: rows without labels, with all of them, masked labels, extreme scores."""
    hidden, weight, bias = made_up(generator, 5, 50, 4)
    lists = SparseLabels.from_lists([[1, 2, 49], [], [30], [16, 17], list(range(50))], num_labels=50)
    terms = SparseTerms(lists.indices, lists.offsets)
    wide = hidden * torch.tensor([1.0, 100.0, 0.0, -100.0, 1.0]).unsqueeze(1)
    masked = bias.index_fill(0, torch.tensor([3, 20, 48]), -torch.inf)
    yield "plain", hidden, weight, bias, terms
    yield "a row of zeros, rows of very large scores", wide, weight, bias, terms
    yield "all scores far below zero", hidden, weight, bias - 200, terms
    yield "all scores far above zero", hidden, weight, bias + 200, terms
    yield "labels masked by a bias of -inf", hidden, weight, masked, terms
    yield "one chunk without a score that counts", hidden, weight, bias.index_fill(0, torch.arange(16), -torch.inf), terms
    yield "a negative beyond doubt", hidden, weight, bias.index_fill(0, torch.tensor([40]), torch.inf), terms
    yield "a weight of zero for negatives", hidden + 90, weight.abs(), bias, terms._replace(neg_weight=0.0)
    for rows, num_labels in ((1, 1), (1, 50), (3, 7)):
        few = all_terms(generator, rows, num_labels)[5]
        yield f"{rows} rows, {num_labels} labels", *made_up(generator, rows, num_labels, 4), few


def close(got, wanted, slack):
    """Relative to the largest, which is what sums of rounded products can promise; infinite and NaN entries are the same."""
    got, wanted = got.double(), wanted.to(got.device).double()
    finite = wanted.isfinite()
    assert torch.equal(finite, got.isfinite())
    scale = wanted[finite].abs().max().item() if finite.any() else 0.0
    torch.testing.assert_close(got[finite], wanted[finite], rtol=slack, atol=slack * max(scale, 1e-6))
    torch.testing.assert_close(got[~finite], wanted[~finite], equal_nan=True)


def check_problem(engine, problem, generator, device="cpu"):
    """Sides and gradients of an engine, and the losses of one that makes them itself. Float64 is computed where the engine is:
    a processor would take longer for it than all kernels take to compile."""
    slack, rows = SLACK[problem.hidden.dtype], problem.num_rows
    parts = (None if part is None else part.to(device) for part in problem[:3])
    problem = LinearProblem(*parts, moved(problem.terms, device), problem.chunk, problem.kept)
    exact = [None if part is None else part.double().requires_grad_() for part in problem[:3]]
    inputs = [part for part in exact if part is not None]
    x = exact[0] @ exact[1].mT + (0 if exact[2] is None else exact[2])
    pos, neg = (side.value for side in sides_of_rows(Rows(x, problem.terms, x.shape[:1]), None))
    needs = (True, True, problem.bias is not None)
    got_pos, got_neg, memory = engine.sums(problem)
    close(got_pos, pos.detach(), slack)
    close(got_neg, neg.detach(), slack)
    pulls = torch.rand(2, rows, generator=generator).to(device)
    wanted = torch.autograd.grad((pos, neg), inputs, tuple(pulls.double()), retain_graph=True)
    got = engine.gradient(problem, memory, tuple(pulls), needs)
    for part, right in zip(got, wanted, strict=False):
        close(part, right, slack)
    if not hasattr(engine, "losses"):
        return
    offset, scale = torch.randn(rows, generator=generator).to(device), torch.rand(rows, generator=generator).to(device) + 0.1
    for form in FORMS:
        moved_offset = offset.double().requires_grad_()
        values = FORMS[form](in_one_part(pos), in_one_part(neg), moved_offset)
        *wanted, by_offset = torch.autograd.grad(values, [*inputs, moved_offset], scale.double(), retain_graph=True)
        got_values, slope, memory = engine.losses(problem, form, offset, scale)
        close(got_values, values.detach(), slack)
        # The slope is the difference of two shares, which may cancel.
        torch.testing.assert_close(slope.double(), by_offset, rtol=slack, atol=slack)
        for _ in range(2):  # what is remembered is not changed
            got = engine.gradient(problem, memory, (torch.ones((), device=device), None), needs)
            for part, right in zip(got, wanted, strict=False):
                close(part, right, slack)
