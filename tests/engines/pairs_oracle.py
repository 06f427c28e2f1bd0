"""What an engine must give of two predictions at once, asked of the plain form in float64."""

import functools

import torch

from engines.oracle import all_terms, close, moved
from manyhot import prediction_divergence, rdrop_loss, zlpr_loss
from manyhot.engines import ops
from manyhot.engines.terms import DenseTerms
from manyhot.losses.core.layout import Rows
from manyhot.losses.core.logsumexp import sides_of_rows
from manyhot.losses.core.pairs import jeffreys, left_out_as_zero
from manyhot.losses.zlpr import split_form


def plain_pair(a, b, terms, where, alpha, link):
    values = alpha * jeffreys(*left_out_as_zero(where, a, b), link)
    for x in (a, b) if terms is not None else ():
        values = values + split_form(*sides_of_rows(Rows(x, terms, x.shape[:1]), None), 0.0) / 2
    return values


def check_pair(engine, a, b, terms, device, dtype, generator, link=1.0, where=None):
    scale = torch.rand(a.shape[0], generator=generator)
    exact = [x.double().requires_grad_() for x in (a, b)]
    counted = where if terms is None else terms.where
    values = plain_pair(*exact, terms, counted, 1.7, link)
    wanted = torch.autograd.grad(values, exact, scale.double())
    there = None if terms is None else moved(terms, device)
    mask = None if where is None else where.to(device)
    got = engine.rdrop(a.to(device), b.to(device), there, mask, alpha=1.7, link=link, row_scale=scale.to(device))
    close(got[0], values.detach(), torch.float32)
    for part, right in zip(got[1:], wanted, strict=True):
        close(part, right, dtype)


SPREADS_AND_LINKS = ((3.0, 1.0), (60.0, 1.0), (60.0, 2.0))


def check_pairs(engine, device, dtype, shapes, spreads_and_links=SPREADS_AND_LINKS, turn=None):
    """With a ``turn``, every third kind of labels meets a factor of the link: over three turns all of them do."""
    generator = torch.Generator().manual_seed(0)
    for shape in shapes:
        where = torch.rand(*shape, generator=generator) < 0.6
        for kind, terms in enumerate((None, *all_terms(generator, *shape))):
            for spread, link in spreads_and_links:
                if link != 1 and turn is not None and (kind + turn) % 3:
                    continue
                a, b = ((spread * torch.randn(*shape, generator=generator)).to(dtype) for _ in range(2))
                check_pair(engine, a, b, terms, device, dtype, generator, link, where if terms is None else None)


def check_sure_pairs(engine, device, dtype):
    """Labels that are right beyond doubt in both predictions, or in one, add nothing to the losses, but to the divergence."""
    labels = torch.tensor([[1, 0, 1, 0, 1, 0], [1, 1, 0, 0, 1, 0]])
    a = torch.tensor([[100.0, -100.0, 87.5, -87.5, 120.0, -3.0], [60.0, 50.0, -60.0, -50.0, 88.0, -88.0]], dtype=dtype)
    b = torch.tensor([[90.0, -100.0, 2.3, -2.3, -1.0, 1.0], [30.0, 44.0, -30.0, -44.0, 3.0, 2.0]], dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    for terms in (None, DenseTerms(labels), DenseTerms(labels.float()), DenseTerms(labels.float(), None, 2.0, 0.5)):
        for link in (1.0, 2.0):
            for pair in ((a, b), (b, a), (a, a)):
                check_pair(engine, *pair, terms, device, dtype, generator, link)


def pair_problem(device, rows, num_labels, dtype=torch.float32):
    """Two predictions that want gradients, and labels."""
    generator = torch.Generator().manual_seed(rows)
    a, b = (torch.randn(rows, num_labels, generator=generator).to(device, dtype).requires_grad_() for _ in range(2))
    return a, b, (torch.rand(rows, num_labels, generator=generator) < 0.05).to(device)


def check_operator(device, num_labels):
    a, b, labels = pair_problem(device, 4, num_labels)
    inputs = (a.detach(), b.detach(), 2.0, 1.0, None, 0.25)
    torch.library.opcheck(torch.ops.manyhot.rdrop, (*inputs, *ops.pack(DenseTerms(labels))))
    torch.library.opcheck(torch.ops.manyhot.rdrop, (*inputs, None, None, None, None, labels, None, None, 1.0, 1.0, 0.0))


def check_whole_graph(device):
    torch._dynamo.reset()
    loss = functools.partial(rdrop_loss, alpha=2.0, loss=functools.partial(zlpr_loss, smoothing=0.1))
    compiled = torch.compile(lambda a, b, y: loss(2 * a, b, y) + prediction_divergence(a, b), fullgraph=True, dynamic=True)
    for rows in (8, 24):
        a, b, labels = pair_problem(device, rows, 300)
        got = torch.autograd.grad(compiled(a, b, labels), (a, b))
        plain = loss(2 * a, b, labels, engine="torch") + prediction_divergence(a, b, engine="torch")
        torch.testing.assert_close(got, torch.autograd.grad(plain, (a, b)), rtol=1e-4, atol=1e-6)
