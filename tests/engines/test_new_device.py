"""An engine for a new device is a module and one entry: what CONTRIBUTING promises is tried with the device "meta"."""

import torch

from manyhot import zlpr_loss
from manyhot.engines import readable, registry
from manyhot.engines.gate import Gate

CALLS = []


class ToyEngine:
    """As much of an engine as one loss with its gradient needs."""

    FINISHES_HALF = False

    def available(self, _=None):
        return True, ""

    def supports(self, x, _):
        return x.device.type == "meta"

    def fused(self, x, terms, form, *_, whole=False):
        CALLS.append((form, type(terms).__name__))
        return x.new_empty(() if whole else len(x), dtype=torch.float32), torch.empty_like(x), None

    def scale_(self, grad, _):
        return grad


def test_scores_on_a_new_device_take_its_engine(monkeypatch):
    entry = registry.Entry("toy", ToyEngine(), "meta", "Meta", Gate("toy", "meta"))
    scores = torch.zeros(3, 5, device="meta", requires_grad=True)
    labels = torch.zeros(3, 5, device="meta", dtype=torch.bool)
    zlpr_loss(scores, labels)
    assert CALLS == []
    monkeypatch.setitem(registry._BY_NAME, "toy", entry)
    monkeypatch.setitem(registry._BY_DEVICE, "meta", entry)
    monkeypatch.setattr(readable, "DEVICES", readable.DEVICES | {"meta"})
    monkeypatch.setattr(readable, "_PLAIN", set())
    zlpr_loss(scores, labels).backward()
    assert CALLS == [("split", "DenseTerms")]
    assert scores.grad.shape == scores.shape
