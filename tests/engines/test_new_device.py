"""An engine for a new device is a module and one entry: what CONTRIBUTING promises is tried with the device "meta"."""

from types import SimpleNamespace

import pytest
import torch

from manyhot import zlpr_loss
from manyhot.engines import readable, registry
from manyhot.engines.gate import Gate
from manyhot.engines.linear import plain
from manyhot.engines.linear.registry import choose_linear
from manyhot.engines.terms import DenseTerms

CALLS = []


class ToyEngine:
    """As much of an engine as one loss with its gradient needs."""

    FINISHES_HALF = False
    SUMS_OVERLAP = False

    def repeats(self, *_):
        return None

    def available(self, _=None):
        return True, ""

    def supports(self, x, _):
        return x.device.type == "meta"

    def fused(self, x, terms, form, *_, whole=False):
        CALLS.append((form, type(terms).__name__))
        return x.new_empty(() if whole else len(x), dtype=torch.float32), torch.empty_like(x), None

    def scale_(self, grad, _):
        return grad


def enter(monkeypatch, **fields):
    entry = registry.Entry("toy", ToyEngine(), "meta", "Meta", Gate("toy", "meta"), **fields)
    monkeypatch.setitem(registry._BY_NAME, "toy", entry)
    monkeypatch.setitem(registry._BY_DEVICE, "meta", entry)
    monkeypatch.setattr(readable, "DEVICES", readable.DEVICES | {"meta"})
    monkeypatch.setattr(readable, "_PLAIN", set())


@pytest.mark.parametrize("engine", ["auto", "toy"])
def test_linear_scores_on_a_new_device_take_the_module_of_its_entry(monkeypatch, engine):
    hidden, weight = torch.zeros(3, 4, device="meta"), torch.zeros(5, 4, device="meta")
    terms = DenseTerms(torch.zeros(3, 5, device="meta", dtype=torch.bool))
    assert choose_linear("toy", "auto", hidden, weight, None, terms) is plain
    enter(monkeypatch)
    assert choose_linear("toy", engine, hidden, weight, None, terms) is plain
    linear = SimpleNamespace(supports=lambda *_: True)
    enter(monkeypatch, linear=linear)
    assert choose_linear("toy", engine, hidden, weight, None, terms) is linear


def test_scores_on_a_new_device_take_its_engine(monkeypatch):
    scores = torch.zeros(3, 5, device="meta", requires_grad=True)
    labels = torch.zeros(3, 5, device="meta", dtype=torch.bool)
    zlpr_loss(scores, labels)
    assert CALLS == []
    enter(monkeypatch)
    zlpr_loss(scores, labels).backward()
    assert CALLS == [("split", "DenseTerms")]
    assert scores.grad.shape == scores.shape
