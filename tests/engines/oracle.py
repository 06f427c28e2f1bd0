"""What an engine must give, asked of the plain form in float64 over label kinds, weights, masks and forms."""

import torch

from manyhot import SparseLabels
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.losses.bce import bce_term
from manyhot.losses.catalog import LOSSES  # noqa: F401 - fills FORMS
from manyhot.losses.core.forms import FORMS
from manyhot.losses.core.labelwise import sum_over_labels
from manyhot.losses.core.layout import Rows
from manyhot.losses.core.logsumexp import sides_of_rows
from manyhot.losses.focal import focal_term

KINDS = (("bce", {}), ("focal", {"gamma_pos": 2.0, "gamma_neg": 2.0}))
KINDS += (("asymmetric", {"gamma_pos": 1.0, "gamma_neg": 4.0, "margin": 0.05}),)


def all_terms(generator, rows, num_labels):
    hard = torch.rand(rows, num_labels, generator=generator) < min(0.3, 40 / num_labels)
    soft = torch.rand(rows, num_labels, generator=generator)
    soft[:, 0] = 0
    few = SparseLabels.from_dense(hard)
    valued = SparseLabels.from_dense(soft * hard)
    where = torch.rand(rows, num_labels, generator=generator) < 0.7
    weight = torch.rand(num_labels, generator=generator) + 0.1
    return [
        DenseTerms(hard),
        DenseTerms(hard.long(), where),
        DenseTerms(soft),
        DenseTerms(soft, where, 2.0, weight),
        DenseTerms(hard, None, weight, None, 0.1),
        SparseTerms(few.indices, few.offsets),
        SparseTerms(few.indices, few.offsets, None, where, None, 0.5, 0.1),
        SparseTerms(valued.indices, valued.offsets, valued.values, where),
    ]


def moved(terms, device):
    return type(terms)(*(field.to(device) if isinstance(field, torch.Tensor) else field for field in terms))


def close(got, wanted, dtype):
    slack = {torch.float32: (2e-4, 1e-6), torch.bfloat16: (1e-2, 1e-5), torch.float16: (2e-3, 1e-5)}[dtype]
    torch.testing.assert_close(got.cpu().double(), wanted, rtol=slack[0], atol=slack[1])


def check_engine(engine, device, dtype, shapes):
    generator = torch.Generator().manual_seed(0)
    for rows, num_labels in shapes:
        for terms in all_terms(generator, rows, num_labels):
            for spread in (3.0, 60.0):
                x = (spread * torch.randn(rows, num_labels, generator=generator)).to(dtype)
                check_call(engine, x, terms, device, dtype, generator)


def check_call(engine, x, terms, device, dtype, generator):
    here, there, rows = x.to(device), moved(terms, device), x.shape[0]
    pos, neg = terms.sides(x.double())
    engine_pos, engine_neg = engine.sides(here, there)
    close(engine_pos.value, pos.value, torch.float32)
    close(engine_neg.value, neg.value, torch.float32)
    pulls = torch.rand(2, rows, generator=generator)
    got = engine.gradient(here, there, engine_pos, engine_neg, *(pull.to(device) for pull in pulls))
    close(got, terms.gradient(x.double(), pos, neg, *pulls.double()), dtype)
    offset, scale = torch.randn(rows, generator=generator), torch.rand(rows, generator=generator)
    if getattr(engine, "can_fuse", lambda _: True)(here):
        for form in FORMS:
            exact, c = x.double().requires_grad_(), offset.double().requires_grad_()
            values = FORMS[form](*sides_of_rows(Rows(exact, terms, exact.shape[:1]), None), c)
            (by_offset,) = torch.autograd.grad(values.sum(), c, retain_graph=True)
            (by_x,) = torch.autograd.grad(values, exact, scale.double())
            out = engine.fused(here, there, form, offset.to(device), scale.to(device))
            for part, wanted, kind in zip(
                out, (values.detach(), by_x, by_offset), (torch.float32, dtype, torch.float32), strict=True
            ):
                close(part, wanted, kind)
    for kind, settings in KINDS:
        exact = x.double().requires_grad_()
        term = focal_term(**settings) if settings else bce_term()
        values = sum_over_labels(Rows(exact, terms, exact.shape[:1]), term)
        (by_x,) = torch.autograd.grad(values, exact, scale.double())
        got_values, got_grad = engine.labelwise(here, there, kind, row_scale=scale.to(device), **settings)
        close(got_values, values.detach(), torch.float32)
        close(got_grad, by_x, dtype)
        (by_x,) = torch.autograd.grad(0.3 * sum_over_labels(Rows(exact, terms, exact.shape[:1]), term).sum(), exact)
        whole, got_grad = engine.labelwise(here, there, kind, row_scale=0.3, whole=True, **settings)
        close(whole, 0.3 * values.detach().sum(), torch.float32)
        close(got_grad, by_x, dtype)
