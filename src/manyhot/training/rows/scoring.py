"""Scoring with a trained model: scores, lazy or not, top lists, predictions, probabilities and propensities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from manyhot._checks import check_at_least
from manyhot.data.examples import Examples
from manyhot.data.mapped.rows import BLOCK_ROWS, MappedMatrix, MappedTexts, block_places
from manyhot.data.reading import Reading
from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.links import probabilities
from manyhot.decisions.rule import DecisionRule, decide_sparse
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.at_k import LEAST_ROWS, label_propensities
from manyhot.scores.linear import LinearScores
from manyhot.scores.top import TopScores
from manyhot.training.rows.bodies.registry import get_body
from manyhot.training.rows.inputs.features import FeatureInputs
from manyhot.training.rows.inputs.registry import Inputs
from manyhot.training.rows.inputs.row_batches import SparseRows, take_rows
from manyhot.training.rows.settings import TrainSettings


class ScoringModel:
    """A body with its inputs, rule and link; ``TrainedModel`` says what each is."""

    body: nn.Module
    shape: dict[str, Any]
    inputs: Inputs
    label_names: tuple[str, ...]
    settings: TrainSettings
    link: str | None
    rule: DecisionRule
    calibration: Calibration | None
    about: dict[str, Any]
    reading: Reading
    label_counts: Tensor | None

    @property
    def num_labels(self) -> int:
        """L."""
        return len(self.label_names)

    @property
    def device(self) -> torch.device:
        """Where the body is."""
        return next(self.body.parameters()).device

    @property
    def lazy(self) -> bool:
        """Whether its scores are lazy: the scores of all labels are computed only on request."""
        return get_body(self.shape["body"]).lazy

    def iter_logits(self, inputs: Any, *, batch_size: int = 1024) -> Iterator[Tensor]:
        """Logits ``[B, L]`` batch by batch, on the CPU.

        Args:
            inputs: ``Examples``, or texts, features ``[N, F]`` or images ``[N, C, H, W]`` as the model reads them.
            batch_size: rows of a batch.
        """
        for scores in self.iter_scores(inputs, batch_size=batch_size):
            if isinstance(scores, Tensor):
                yield scores
            else:
                with torch.inference_mode():
                    dense = scores.dense().float().cpu()
                yield dense

    def top_k(self, inputs: Any, k: int, *, batch_size: int = 1024) -> TopScores:
        """The ``k`` best labels of each row, on the CPU; no table of rows times labels is kept.

        Args:
            inputs: what ``predict`` takes.
            k: how many.
            batch_size: rows of a batch.
        """
        k = min(k, self.num_labels)
        values, indices, sums = [torch.zeros(0, k)], [torch.zeros(0, k, dtype=torch.int64)], [torch.zeros(0)]
        for scores in self.iter_scores(inputs, batch_size=batch_size):
            with torch.inference_mode():
                if isinstance(scores, Tensor):
                    top = TopScores.from_dense(scores, k=k)
                else:
                    top = scores.top(k, log_sums=self.rule.softmax)
                values.append(top.values.float().cpu())
                indices.append(top.indices.cpu())
                sums += [] if top.log_sums is None else [top.log_sums.float().cpu()]
        listed = torch.cat(values), torch.cat(indices), self.num_labels
        return TopScores(*listed, torch.cat(sums) if self.lazy and self.rule.softmax else None)

    def iter_scores(self, inputs: Any, *, batch_size: int = 1024) -> Iterator[Tensor | LinearScores]:
        """Scores ``[B, L]`` batch by batch: logits on the CPU, or for ``lazy`` models lazy scores on the model's device.

        The arguments are those of ``iter_logits``.
        """
        check_at_least("TrainedModel.iter_logits", "batch_size", batch_size, 1)
        if isinstance(inputs, Examples) and isinstance(self.inputs, FeatureInputs) and inputs.features is not None:
            self.reading.check_features(inputs, self.inputs.names, sparse=self.inputs.sparse)
        device = next(self.body.parameters()).device
        for block in _blocks(inputs):
            rows = self.inputs.rows(block)
            for start in range(0, rows.shape[0], batch_size):
                batch = take_rows(rows, slice(start, min(start + batch_size, rows.shape[0])))
                with torch.inference_mode():
                    moved = batch.to_device(device) if isinstance(batch, SparseRows) else batch.to(device)
                    scores = self.body(moved)
                    found = scores.float().cpu() if isinstance(scores, Tensor) else scores
                yield found

    def logits(self, inputs: Any, *, batch_size: int = 1024) -> Tensor:
        """Logits ``[N, L]`` of all rows."""
        parts = list(self.iter_logits(inputs, batch_size=batch_size))
        return torch.cat(parts) if parts else torch.zeros(0, self.num_labels)

    def predict(self, inputs: Any, *, rule: DecisionRule | None = None, batch_size: int = 1024) -> SparseLabels:
        """The predictions of the model's rule, or of another one: hard labels ``[N, L]``."""
        parts = [
            decide_sparse(scores, rule or self.rule).to("cpu") for scores in self.iter_scores(inputs, batch_size=batch_size)
        ]
        return SparseLabels.collate(parts) if parts else SparseLabels.from_lists([], num_labels=self.num_labels)

    def probabilities(self, inputs: Any, *, batch_size: int = 1024) -> Tensor:
        """Probabilities ``[N, L]``, by the calibration if there is one, otherwise by the link."""
        return self.to_probabilities(self.logits(inputs, batch_size=batch_size))

    def to_probabilities(self, logits: Tensor) -> Tensor:
        """Turn logits of this model into probabilities."""
        if self.calibration is None and self.link is None:
            raise ValueError(
                f"TrainedModel: the scores of loss {self.settings.loss!r} only rank; train with `calibrate` for probabilities."
            )
        return probabilities(logits, self.calibration or self.link or "hard")

    @property
    def has_propensities(self) -> bool:
        """Whether ``propensities`` is available: it needs label counts of 3 or more training rows."""
        return self.label_counts is not None and self.about.get("rows", 0) >= LEAST_ROWS

    def propensities(self, *, a: float = 0.55, b: float = 1.5) -> Tensor:
        """The propensity of each label, float64 ``[L]``, from its count in the training rows; see PSP@k.

        Args:
            a: how fast the propensity rises with the count; see ``label_propensities``.
            b: added to every count.
        """
        if self.label_counts is None:
            raise ValueError(
                "PSP@k needs the number of training rows with each label, and this model was saved without these counts."
                " Train it again, or leave PSP@k out."
            )
        if not self.has_propensities:
            raise ValueError(
                f"PSP@k needs a model of at least {LEAST_ROWS} training rows; this one has {self.about.get('rows', 0)}."
                " Leave PSP@k out."
            )
        return label_propensities(self.label_counts, self.about["rows"], a=a, b=b)


@torch.inference_mode()
def scores_at(scores: Tensor | LinearScores, rows: Tensor, columns: Tensor) -> Tensor:
    """float32 ``[N]`` on the CPU: the scores of some entries; with lazy scores nothing else is computed."""
    if isinstance(scores, Tensor):
        return scores[rows, columns]
    rows, columns = rows.to(scores.device), columns.to(scores.device)
    hidden, weight = scores.hidden[rows].float(), scores.weight[columns].float()
    found = (hidden * weight).sum(dim=-1)
    return (found if scores.bias is None else found + scores.bias[columns]).cpu()


def _blocks(inputs: Any) -> Iterator[Any]:
    """All rows at once, or the rows of packed files block by block."""
    if not isinstance(inputs, Examples) or not isinstance(inputs.texts or inputs.features, (MappedTexts, MappedMatrix)):
        yield inputs
        return
    yield from (inputs[first:last] for first, last in block_places(len(inputs), BLOCK_ROWS))
