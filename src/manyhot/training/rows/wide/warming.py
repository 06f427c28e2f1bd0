"""Compiles kernels by steps on made-up rows, in a thread, while words are still counted."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace

import numpy as np
import torch

from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.bodies.info import WIDE
from manyhot.training.rows.bodies.registry import get_body, make_body
from manyhot.training.rows.bodies.wide import WideBody
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.wide.fit import ROWS_TOGETHER, WideFit, top_scores
from manyhot.training.run.device import choose_device

# Words of the made-up table, and of a row: few, since kernels do not depend on how many there are.
WORDS, WORDS_A_ROW = 64, 8


# Not a multiple of 16, like most numbers of labels: Triton then compiles the same kernels.
USUAL_LABELS = 9_999
# No daemons: a process that ends while a kernel is compiled would be aborted.
_early: list[threading.Thread] = []


def warm_early(settings: TrainSettings) -> None:
    """Start to compile the kernels of a run before its files are read, if the model is wide."""

    def run() -> None:
        with contextlib.suppress(Exception):
            device = choose_device(settings.device)
            if device.type == "cuda":
                made_up_steps(settings, USUAL_LABELS, device)

    if settings.model != "auto" and get_body(settings.model).fitting == WIDE and not settings.label_shards:
        _early.append(threading.Thread(target=run, name="manyhot-warming-early"))
        _early[-1].start()


class Warming:
    """A thread that takes steps of a wide body on made-up rows. On a CPU there is nothing to compile.

    Args:
        settings: those of the run, with its body.
        num_labels: L.
        device: the device of the run.
    """

    def __init__(self, settings: TrainSettings, num_labels: int, device: torch.device) -> None:
        self.settings, self.num_labels, self.device = settings, num_labels, device
        self.thread: threading.Thread | None = None

    def start(self) -> Warming:
        """Start the thread, for a body whose kernels are worth it."""
        known = self.settings.model != "auto" and get_body(self.settings.model).fitting == WIDE
        if known and self.device.type == "cuda" and not self.settings.label_shards:
            self.thread = threading.Thread(target=self._run, name="manyhot-warming")
            self.thread.start()
        return self

    def wait(self) -> None:
        """Return once the steps are done. Only then may the run draw random numbers that matter."""
        if self.thread is not None:
            self.thread.join()

    def _run(self) -> None:
        while _early:
            _early.pop().join()
        # The run meets the same error and reports it.
        with contextlib.suppress(Exception):
            made_up_steps(self.settings, self.num_labels, self.device)


def made_up_steps(settings: TrainSettings, num_labels: int, device: torch.device) -> int:
    """Train on two batches, the second one smaller, and find the best labels of their rows; returns the number of steps.

    The first step is captured if the steps of the run are. Both batches have a multiple of 16 rows, as those of the run have.
    """
    from scipy import sparse

    entry = get_body(settings.model)
    dropout = (entry.dropout or 0.0) if settings.dropout is None else settings.dropout
    settings = replace(settings, batch_size=settings.batch_size or entry.batch_size, epochs=1, dropout=dropout)
    hidden = settings.hidden or entry.hidden_for(num_labels)
    shape = {"body": entry.name, "width": WORDS, "num_labels": num_labels, "hidden": hidden}
    assert entry.describe is not None
    body = make_body({**shape, "dropout": dropout, **entry.describe(settings, None)}).to(device)
    assert isinstance(body, WideBody)
    rows = settings.batch_size + ROWS_TOGETHER
    offsets = np.arange(rows + 1) * WORDS_A_ROW
    columns = np.arange(offsets[-1]) % WORDS
    matrix = sparse.csr_matrix((np.full(offsets[-1], 0.1, np.float32), columns, offsets), shape=(rows, WORDS))
    labels = SparseLabels(torch.arange(rows) % num_labels, torch.arange(rows + 1), num_labels)
    fit = WideFit(body, TrainingRows(matrix, labels), settings, salt=0, device=device, linear=False)
    fit.start()
    fit.run_epoch(lambda: None)
    top_scores(body, fit.on_device)
    return fit.num_batches
