"""Members of the wide body, and means of them, on held-out training rows: ``python -m benchmarks.wide_members --train FILE``.

The defaults of the body are chosen by this. Features are found in, and each member trains on, all rows but ``--held``; the
means are of scores. "Lowered" has biases lowered for frequent labels, by a share that is chosen on the other half of the
held-out rows.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import dropout

from manyhot.data.read import read_examples
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.at_k import precision_at_k
from manyhot.scores.top import TopScores
from manyhot.training.rows.bodies.registry import get_body, make_body
from manyhot.training.rows.choose import starting_scores
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.inputs.device_rows import DeviceRows
from manyhot.training.rows.inputs.texts import TextInputs
from manyhot.training.rows.phases import set_prior
from manyhot.training.rows.rules.fitting import LISTED
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.targets.objective import link_of
from manyhot.training.rows.wide.fit import ROWS_TOGETHER, WideFit
from manyhot.training.rows.wide.frequency import best_share, log_counts

# Members of each kind, and their settings.
KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "hidden 1024": (5, {}),
    "hidden 512, rate 0.04": (3, {"hidden": 512, "learning_rate": 0.04}),
    "rate 0.02": (2, {"learning_rate": 0.02}),
    "rate 0.04": (2, {"learning_rate": 0.04}),
    "dropout 0.3": (1, {"dropout": 0.3}),
    "dropout 0.7": (1, {"dropout": 0.7}),
    "5 epochs": (1, {"epochs": 5}),
    "8 epochs": (2, {"epochs": 8}),
    "ZLPR": (1, {"loss": "zlpr"}),
    "hidden 2048": (1, {"hidden": 2048}),
    **{
        f"hidden {hidden}, {size} rows a step, rate {rate}": (
            count,
            {"hidden": hidden, "batch_size": size, "learning_rate": rate},
        )
        for count, hidden, size, rate in (
            (4, 1024, 2048, 0.02),
            (2, 1024, 2048, 0.03),
            (3, 1024, 1024, 0.015),
            (6, 512, 4096, 0.04),
            (6, 512, 4096, 0.05),
            (5, 512, 2048, 0.03),
        )
    },
    **{f"word dropout {share}": (3, {"word_dropout": share}) for share in (0.1, 0.2, 0.3)},
    "word dropout 0.2, 8 epochs": (3, {"word_dropout": 0.2, "epochs": 8}),
    "word dropout 0.2, rate 0.04": (2, {"word_dropout": 0.2, "learning_rate": 0.04}),
    "word dropout 0.2, dropout 0.3": (2, {"word_dropout": 0.2, "dropout": 0.3}),
    "word dropout 0.3, 10 epochs": (2, {"word_dropout": 0.3, "epochs": 10}),
    "word dropout 0.2, hidden 2048": (1, {"word_dropout": 0.2, "hidden": 2048}),
    "word dropout 0.2, hidden 512, rate 0.04": (3, {"word_dropout": 0.2, "hidden": 512, "learning_rate": 0.04}),
    "hidden 512": (4, {"hidden": 512}),
    "hidden 512, dropout 0.6": (1, {"hidden": 512, "dropout": 0.6}),
    "hidden 1024, dropout 0.6": (2, {"dropout": 0.6}),
    "hidden 1024, dropout 0.7": (4, {"dropout": 0.7}),
    "hidden 1024, dropout 0.7, pairs at random": (2, {"dropout": 0.7, "zeros": (0, 0)}),
    "hidden 1024, dropout 0.7, rate 0.04": (1, {"dropout": 0.7, "learning_rate": 0.04}),
    "hidden 1024, dropout 0.7, 8 epochs": (1, {"dropout": 0.7, "epochs": 8}),
    "hidden 2048, dropout 0.8, rate 0.03": (1, {"hidden": 2048, "dropout": 0.8}),
}
# Means over kinds: so many members of each.
MIXED: list[dict[str, int]] = [
    {"hidden 1024": 3, "hidden 512": 3},
    {"hidden 1024": 3, "ZLPR": 1},
    {"rate 0.02": 1, "hidden 1024": 1, "rate 0.04": 1},
    {"rate 0.04": 2, "hidden 1024": 3},
    {"hidden 1024": 2, "8 epochs": 2},
    {"word dropout 0.2": 3, "word dropout 0.2, hidden 512, rate 0.04": 2},
    {"word dropout 0.1": 2, "word dropout 0.2": 3},
    {"word dropout 0.2, 8 epochs": 3, "word dropout 0.2, hidden 512, rate 0.04": 2},
]
USUAL = {"hidden": 1024, "dropout": 0.5, "epochs": 6, "learning_rate": 0.03, "loss": "decoupled", "batch_size": 4096}


@dataclass
class Study:
    """Rows on the device, and which of them are held out."""

    rows: TrainingRows
    on_device: DeviceRows
    held: np.ndarray[Any, Any]
    picked: np.ndarray[Any, Any]
    truth: SparseLabels
    device: torch.device
    reads: TextInputs

    def member(self, salt: int, **changes: Any) -> tuple[Tensor, float]:
        """The scores of the held-out rows, float16 on the device, and the seconds of training."""
        left_out, own_shape = (
            changes.pop("word_dropout", None),
            {name: changes.pop(name) for name in ("zeros",) if name in changes},
        )
        settings = TrainSettings(**{"model": "wide", "device": str(self.device), **USUAL, **changes})
        entry, own = get_body("wide"), self.rows.take(self.picked, inputs=False)
        torch.manual_seed(salt)
        shape = {"body": entry.name, "width": self.rows.inputs.shape[1], "num_labels": self.truth.num_labels}
        shape |= {"hidden": settings.hidden, "dropout": settings.dropout, **entry.describe(settings, self.reads), **own_shape}  # type: ignore[misc]
        body = make_body(shape)
        set_prior(body, starting_scores(settings, own.targets, None, link=link_of(settings, soft=False)))
        body = body.to(self.device)
        if left_out is not None:
            body.first.register_forward_pre_hook(lambda table, inputs: without_words(inputs[0], left_out, table.training))
        kind = {"on_device": self.on_device, "picked": self.picked}
        fit = WideFit(body, own, settings, salt=salt, device=self.device, linear=False, **kind)
        fit.start()
        begun = time.monotonic()
        for _ in range(settings.epochs or 1):
            fit.run_epoch(lambda: None)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        taken = time.monotonic() - begun
        body.eval()
        with torch.inference_mode():
            weight, bias = body.head.weight, body.head.bias.float()
            parts = [body.first(batch).to(weight.dtype) @ weight.T for batch, *_ in self.on_device.batches(self.held, 1024)]
            scores = torch.cat([(part.float() + bias).half() for part in parts])
        fit.finish()
        return scores, taken

    def figures(self, scores: Tensor) -> str:
        values, indices = (part.cpu() for part in scores.float().topk(LISTED, dim=1))
        top = TopScores(values, indices, self.truth.num_labels)
        logs = log_counts(self.rows.take(self.picked, inputs=False).labels)
        found, moved, shares = _precisions(top, self.truth), [], []
        for half in (0, 1):
            chosen, judged = slice(half, None, 2), slice(1 - half, None, 2)
            shares.append(best_share(top[chosen], self._part(chosen), logs))
            moved.append(_precisions(_lowered(top[judged], shares[-1] * logs), self._part(judged)))
        lowered = [sum(pair) / 2 for pair in zip(*moved, strict=True)]
        return " | ".join(f"{100 * value:.2f}" for value in (*found, *lowered)) + f" | {shares[0]:g}, {shares[1]:g}"

    def _part(self, rows: slice) -> SparseLabels:
        return self.truth[torch.arange(len(self.truth))[rows]]


def study(path: Path, held: int, rows: int | None, device: torch.device, read: TrainSettings) -> Study:
    examples = read_examples(path)
    examples = examples if rows is None else examples[torch.arange(rows)]
    drawn = np.random.default_rng(12345).permutation(len(examples))
    picked = np.sort(drawn[held:])
    # Only words and pairs of the other rows are known, as it is with new texts.
    reads, _ = TextInputs.fit(examples[torch.from_numpy(picked)], read)
    inputs = reads.rows(examples)
    whole, apart = TrainingRows(inputs, examples.labels), np.sort(drawn[:held])
    on_device = DeviceRows(inputs, examples.labels, None, device)
    picked = picked[: len(picked) // ROWS_TOGETHER * ROWS_TOGETHER]
    return Study(whole, on_device, apart, picked, examples.labels[torch.from_numpy(apart)], device, reads)


def _precisions(top: TopScores, truth: SparseLabels) -> list[float]:
    return [float(precision_at_k(top, truth, k=k)) for k in (1, 3, 5)]


def _lowered(top: TopScores, by: Tensor) -> TopScores:
    values, order = (top.values - by[top.indices]).sort(dim=1, descending=True)
    return TopScores(values, top.indices.gather(1, order), top.num_labels)


def without_words(batch: tuple[Tensor, ...], share: float, training: bool) -> tuple[tuple[Tensor, ...]]:
    """A batch without a share of its words, as the arguments of a module."""
    columns, offsets, values = batch
    return ((columns, offsets, dropout(values, share, training)),)


def mean(parts: list[Tensor]) -> Tensor:
    total = parts[0].float()
    for part in parts[1:]:
        total = total + part
    return total / len(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--held", type=int, default=20_000, help="training rows that are held out")
    parser.add_argument("--rows", type=int, help="only so many training rows")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--ngrams", type=int, default=2, help="longest word n-gram")
    parser.add_argument("--min-count", type=int, default=2, help="drop n-grams that occur in fewer rows")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    read = TrainSettings(ngrams=given.ngrams, min_count=given.min_count)
    own = study(given.train, given.held, given.rows, torch.device(given.device), read)
    titles = ["members", "P@1", "P@3", "P@5", "lowered P@1", "P@3", "P@5", "shares", "seconds of training"]
    print("| " + " | ".join(titles) + " |\n|---|" + "--:|" * 8, flush=True)
    found: dict[str, list[Tensor]] = {}
    for kind in given.kinds:
        count, changes = KINDS[kind]
        found[kind], spent = [], 0.0
        for place in range(count):
            scores, taken = own.member(1000 * list(KINDS).index(kind) + place, **dict(changes))
            found[kind].append(scores)
            spent += taken
            print(f"| {place + 1} x {kind} | {own.figures(mean(found[kind]))} | {spent:.1f} |", flush=True)
    for counts in MIXED:
        if all(kind in found for kind in counts):
            parts = [scores for kind, count in counts.items() for scores in found[kind][:count]]
            title = " and ".join(f"{count} x {kind}" for kind, count in counts.items())
            print(f"| {title} | {own.figures(mean(parts))} | |", flush=True)


if __name__ == "__main__":
    main()
