"""Lightning: a callback that tunes the decision rule after validation, and writes it and a report to the trainer's folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_logits
from manyhot._files import json_bytes, write_whole
from manyhot.data.examples import Examples
from manyhot.decisions import DecisionRule, TunedRule, tune_rule
from manyhot.integrations.registry import framework
from manyhot.labels import SparseLabels
from manyhot.losses import get_loss
from manyhot.report.files import write_report
from manyhot.report.run.judged import Judged, Origin
from manyhot.report.run.measure import measure_scores
from manyhot.training.run.versions import versions

lightning: Any = framework("lightning")


class RuleTuning(lightning.Callback):
    """Tune a decision rule on the validation rows of every epoch; keep it in the checkpoint and write it as a file.

    The module's ``validation_step`` returns a dict with ``logits [B, L]`` and ``labels [B, L]`` (and ``where``, if some
    labels are unknown). The rows of all processes are gathered before tuning, so every process has the same rule. After each
    epoch the module logs ``OBJECTIVE/tuned`` (on the rows that it was tuned on) and ``OBJECTIVE/cross-fitted``, the figure to
    compare models by.

    Args:
        objective: what ``manyhot.tune_rule`` tunes for.
        per_label: one threshold per label.
        file: where the rule is written as JSON, under the trainer's root folder; None writes nothing.
        report: a folder under the trainer's root folder for ``report.html``, ``report.md`` and ``report.json`` of the last
            validation; it is written when fitting ends. None writes none. Trackers can log it as an artifact.
        label_names: the names for the report; None uses label numbers.
        loss: a name of ``manyhot.LOSSES``, for the report: it determines the link from scores to probabilities.
        **settings: further settings of ``tune_rule``.

    Attributes:
        rule: the rule of the last validation; ``s > 0`` before the first.
        tuned: the full result of tuning, or None.
    """

    def __init__(
        self,
        objective: str = "micro-F1",
        *,
        per_label: bool = False,
        file: str | None = "rule.json",
        report: str | None = None,
        label_names: Sequence[str] | None = None,
        loss: str = "zlpr",
        **settings: Any,
    ) -> None:
        super().__init__()
        self.objective, self.per_label, self.file, self.settings = objective, per_label, file, settings
        self.report, self.label_names, self.loss = report, label_names, get_loss(loss)
        self.rule = DecisionRule()
        self.tuned: TunedRule | None = None
        self._parts: list[tuple[Tensor, Tensor, Tensor]] = []
        self._judged: Judged | None = None

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Forget the rows of the last validation."""
        del trainer, pl_module
        self._parts = []

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Keep the logits and labels that ``validation_step`` returned."""
        del trainer, pl_module, batch, batch_idx
        if dataloader_idx:
            return
        if not isinstance(outputs, dict) or "logits" not in outputs or "labels" not in outputs:
            raise TypeError(
                "RuleTuning: `validation_step` must return a dict with `logits` and `labels`;"
                f" got {sorted(outputs) if isinstance(outputs, dict) else type(outputs).__name__}."
            )
        check_logits("RuleTuning", outputs["logits"])
        logits, labels = outputs["logits"].detach().float().cpu(), outputs["labels"].detach().cpu()
        if logits.shape != labels.shape:
            raise ValueError(
                f"RuleTuning: `labels` must have the shape of `logits`, {list(logits.shape)}; got {list(labels.shape)}."
            )
        where = outputs.get("where")
        kept = torch.ones_like(logits, dtype=torch.bool) if where is None else where.detach().cpu().expand(logits.shape)
        self._parts.append((logits, labels, kept))

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Tune on all rows, log the result, and write the rule."""
        if trainer.sanity_checking or not self._parts:
            return
        logits, labels, where = (torch.cat(part) for part in zip(*self._parts, strict=True))
        self._parts = []
        if trainer.world_size > 1:
            logits, labels, where = (_gathered(pl_module, part) for part in (logits, labels, where))
        settings = {"per_label": self.per_label, **self.settings}
        self.tuned = tune_rule(logits, labels > 0.5, objective=self.objective, where=where, **settings)
        self.rule = self.tuned.recommended
        if self.report is not None and trainer.is_global_zero:
            self._judged = self._judge(logits, labels > 0.5, where)
        pl_module.log(f"{self.objective}/tuned", self.tuned.value, rank_zero_only=True)
        if self.tuned.cross_fitted is not None:
            pl_module.log(f"{self.objective}/cross-fitted", self.tuned.cross_fitted, rank_zero_only=True)
        if self.file is not None and trainer.is_global_zero:
            path = Path(trainer.default_root_dir) / self.file
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json_bytes({"rule": self.rule.to_json(), "message": self.tuned.message}))

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Write the report of the last validation."""
        if self._judged is None or self.report is None:
            return
        judged, rule = self._judged, self.rule
        about = {
            "body": type(pl_module).__name__,
            "inputs": "the rows of a LightningModule",
            "labels": len(judged.label_names),
            "parameters": sum(each.numel() for each in pl_module.parameters()),
            "loss": self.loss.name,
            "link": judged.link,
            "calibration": None,
            "rule": {name: value for name, value in rule.to_json().items() if name != "threshold"},
            "thresholds": "one per label" if isinstance(rule.threshold, tuple) else rule.threshold,
            "settings": {},
            "chosen": [],
            "tuned": self.tuned.message if self.tuned is not None else None,
            "versions": versions(),
        }
        shown = Examples(judged.labels, judged.label_names, features=judged.all_scores.numpy())
        write_report(measure_scores(about, judged, Origin("validation", shown)), Path(trainer.default_root_dir) / self.report)

    def _judge(self, logits: Tensor, labels: Tensor, where: Tensor) -> Judged:
        names = tuple(self.label_names or map(str, range(logits.shape[1])))
        if len(names) != logits.shape[1]:
            raise ValueError(f"RuleTuning: `label_names` must be one per label, {logits.shape[1]}; got {len(names)}.")
        known = None if bool(where.all()) else where
        return Judged(logits, SparseLabels.from_dense(labels & where), known, self.rule, self.loss.link, None, names)

    def state_dict(self) -> dict[str, Any]:
        """The rule, which Lightning puts into every checkpoint."""
        return {"rule": self.rule.to_json()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The rule of a checkpoint."""
        self.rule = DecisionRule.from_json(state_dict["rule"])


def _gathered(module: Any, part: Tensor) -> Tensor:
    """The rows of all processes, concatenated; processes may have different numbers of rows."""
    counts = module.all_gather(torch.tensor(len(part), device=module.device)).reshape(-1).tolist()
    padded = torch.zeros(max(counts), *part.shape[1:], dtype=part.dtype, device=module.device)
    padded[: len(part)] = part.to(module.device)
    every = module.all_gather(padded)
    return torch.cat([rows[:count] for rows, count in zip(every, counts, strict=True)]).cpu()
