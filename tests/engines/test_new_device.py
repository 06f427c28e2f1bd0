"""An engine for a new device is a module and one entry: what CONTRIBUTING promises is tried with the device "meta"."""

import types

import torch

from manyhot import zlpr_loss
from manyhot.engines import readable, registry
from manyhot.engines.gate import Gate

CALLS = []


def fused(x, terms, form, offset, row_scale, *, whole=False):
    CALLS.append(form)
    return (
        (x.new_empty((), dtype=torch.float32) if whole else x.new_empty(len(x), dtype=torch.float32)),
        torch.empty_like(x),
        None,
    )


def toy_engine():
    return types.SimpleNamespace(
        FINISHES_HALF=False,
        available=lambda device=None: (True, ""),
        supports=lambda x, terms: x.device.type == "meta",
        fused=fused,
        scale_=lambda grad, factor: grad,
    )


def test_scores_on_a_new_device_take_its_engine(monkeypatch):
    entry = registry.ENTRIES[0]._replace(
        name="toy", engine=toy_engine(), device="meta", dispatch_key="Meta", gate=Gate("toy", "toy")
    )
    scores = torch.zeros(3, 5, device="meta", requires_grad=True)
    labels = torch.zeros(3, 5, device="meta", dtype=torch.bool)
    zlpr_loss(scores, labels)
    assert CALLS == []
    monkeypatch.setitem(registry._BY_NAME, "toy", entry)
    monkeypatch.setitem(registry._BY_DEVICE, "meta", entry)
    monkeypatch.setattr(readable, "DEVICES", readable.DEVICES | {"meta"})
    monkeypatch.setattr(readable, "_PLAIN", set())
    zlpr_loss(scores, labels).backward()
    assert CALLS == ["split"]
    assert scores.grad.shape == scores.shape
