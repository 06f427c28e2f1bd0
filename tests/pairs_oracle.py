"""What an engine must give of two predictions at once, asked of the plain form in float64."""

import torch

from kernels_oracle import all_terms, close, moved
from manyhot.losses.forms import split
from manyhot.losses.pairs import jeffreys, left_out_as_zero
from manyhot.losses.sides import Rows, sides_of_rows


def plain_pair(a, b, terms, where, alpha, link):
    values = alpha * jeffreys(*left_out_as_zero(where, a, b), link)
    for x in (a, b) if terms is not None else ():
        values = values + split(*sides_of_rows(Rows(x, terms, x.shape[:1]), None), 0.0) / 2
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


def check_pairs(engine, device, dtype, shapes):
    generator = torch.Generator().manual_seed(0)
    for shape in shapes:
        where = torch.rand(*shape, generator=generator) < 0.6
        for terms in (None, *all_terms(generator, *shape)):
            for spread, link in ((3.0, 1.0), (60.0, 2.0)):
                a, b = ((spread * torch.randn(*shape, generator=generator)).to(dtype) for _ in range(2))
                check_pair(engine, a, b, terms, device, dtype, generator, link, where if terms is None else None)
