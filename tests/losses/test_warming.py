"""Kernels compiled before the first batch."""

import pytest
import torch

from manyhot import warm_up
from manyhot.losses.catalog import LOSSES


def test_every_loss_can_be_warmed_up_with_every_kind_of_labels_that_it_takes():
    kinds = sum(len({"hard", "soft", "sparse"} & info.label_kinds) for info in LOSSES.values())
    assert warm_up(4, 6, losses=tuple(LOSSES), labels=("hard", "soft", "sparse"), device="cpu") == kinds


def test_sizes_and_types_are_combined():
    assert warm_up((2, 3), (4, 5), dtypes=(torch.float32, torch.bfloat16), device="cpu") == 8


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"losses": "zplr"}, "losses"), ({"labels": "dense"}, "labels"), ({"rows": 0}, "rows"), ({"num_labels": 0}, "num_labels")],
)
def test_what_cannot_be_warmed_up_is_named(wrong, named):
    with pytest.raises(ValueError, match=f"warm_up: `{named}`"):
        warm_up(**({"rows": 2, "num_labels": 3, "device": "cpu"} | wrong))


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["hard", "sparse"])
def test_after_warming_up_no_kernel_is_compiled(dtype, kind, monkeypatch):
    from manyhot import SparseLabels, zlpr_loss
    from manyhot.engines.triton.launch.launcher import Launcher

    warm_up(64, (20, 300), dtypes=dtype, labels=kind)
    compiled = []
    for name in ("_load", "_launch_with_triton"):
        old = getattr(Launcher, name)
        monkeypatch.setattr(Launcher, name, lambda self, *given, old=old: compiled.append(self) or old(self, *given))
    for num_labels in (20, 300):
        for rows in (64, 49):
            logits = torch.randn(rows, num_labels, device="cuda").to(dtype).requires_grad_()
            labels = (torch.rand(rows, num_labels, device="cuda") < 0.1).to(torch.uint8)
            if kind == "hard":
                zlpr_loss(logits, labels).backward()
                continue
            lists = SparseLabels.from_dense(labels)
            for shift in (0, 1):  # lists may begin at any address
                indices = torch.nn.functional.pad(lists.indices, (shift, 0))[shift:]
                zlpr_loss(logits, SparseLabels(indices, lists.offsets, num_labels)).backward()
    assert not compiled
