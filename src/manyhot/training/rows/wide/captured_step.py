"""A training step of a wide body as one CUDA graph: one launch instead of about ninety, so the host is not the bottleneck."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from manyhot.engines.triton.linear import table, updates
from manyhot.training.rows.bodies.wide import WideBody


def can_capture(body: WideBody) -> bool:
    """Whether steps can be captured: the kernels read the learning rates on the device, and labels are not sharded."""
    head = body.head
    return head.weight.is_cuda and head.mesh is None and table.serves(body.first.weight) and updates.serves(head.weight)


class CapturedStep:
    """A step that is captured at the first call and replayed from then on.

    Args:
        body: the body that the step updates.
        step: takes a step on a batch at a fixed address; returns the loss, on the device.
    """

    def __init__(self, body: WideBody, step: Callable[[], Tensor]) -> None:
        self.body, self.step = body, step
        self.graph: torch.cuda.CUDAGraph | None = None
        self.value: Tensor | None = None

    def __call__(self) -> Tensor | None:
        """The loss before the step, which the next step overwrites; None if the step cannot be captured."""
        if self.graph is None:
            try:
                self._capture()
            except RuntimeError as error:
                _leave_capture(self.body.first.weight.device)
                why = str(error).splitlines()[0]
                message = f"train: the training step could not be captured in a CUDA graph and runs slower: {why}"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
                return None
        assert self.graph is not None
        self.graph.replay()
        return self.value

    def _capture(self) -> None:
        """Capture after a warm-up step that compiles kernels and changes nothing: rates are 0, and buffers are restored."""
        body, device = self.body, self.body.first.weight.device
        rates = [each.clone() for each in (body.first.rate, body.head.rate)]
        kept = {name: each.clone() for name, each in body.named_buffers()}
        random = torch.cuda.get_rng_state(device)
        current, aside = torch.cuda.current_stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        body.first.rate.zero_()
        body.head.rate.zero_()
        aside.wait_stream(current)
        try:
            with torch.cuda.stream(aside):
                self.step()
        finally:
            current.wait_stream(aside)
            for name, each in body.named_buffers():
                each.copy_(kept[name])
            for each, rate in zip((body.first.rate, body.head.rate), rates, strict=True):
                each.copy_(rate)
            torch.cuda.set_rng_state(random, device)
        graph = torch.cuda.CUDAGraph()
        with _without_collection(), torch.cuda.graph(graph):
            self.value = self.step()
        self.graph = graph


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Collect garbage now, and none in the block: freeing the graph of an earlier fit would invalidate the capture."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _leave_capture(device: torch.device) -> None:
    """Give the random generator of the device a copy of its state: after a failed capture, the state itself refuses to draw."""
    generator = torch.cuda.default_generators[device.index or 0]
    with contextlib.suppress(RuntimeError):
        generator.graphsafe_set_state(generator.clone_state())
