"""Everything a ``Trainer`` needs for multi-label training, in one call, with a check of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from manyhot.decisions import DecisionRule
from manyhot.integrations.huggingface.collate import MultiLabelCollator
from manyhot.integrations.huggingface.loss import TrainerLoss
from manyhot.integrations.huggingface.metrics import TrainerMetrics
from manyhot.integrations.registry import framework

transformers = framework("huggingface")


class TrainerChecks(transformers.TrainerCallback):
    """Stops a ``Trainer`` before its first step if an argument would silently do the wrong thing."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Check the arguments and the model's configuration."""
        del state, control
        if args.label_smoothing_factor:
            raise ValueError(
                "TrainerChecks: the Trainer ignores `label_smoothing_factor` when it has a loss function."
                f" Write TrainerLoss(smoothing={args.label_smoothing_factor}) instead."
            )
        if args.n_gpu > 1:
            raise ValueError(
                "TrainerChecks: several GPUs in one process are not supported. Start one process per GPU with torchrun."
            )
        config = getattr(others.get("model"), "config", None)
        kind = getattr(config, "problem_type", None)
        if kind not in (None, "multi_label_classification"):
            raise ValueError(
                f"TrainerChecks: the model's problem_type must be 'multi_label_classification'; got {kind!r}, for which a"
                " pipeline applies a softmax over the labels."
            )
        if config is not None and kind is None:
            config.problem_type = "multi_label_classification"


def trainer_parts(
    tokenizer: Any,
    *,
    label_names: Sequence[str],
    loss: str = "zlpr",
    metrics: Sequence[str] = ("micro-F1", "macro-F1"),
    rule: DecisionRule | None = None,
    width: int | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The arguments of ``Trainer`` that make it multi-label: ``Trainer(model, args, **trainer_parts(...))``.

    Args:
        tokenizer: for the collator, and saved with the model.
        label_names: one name per label.
        loss: a name of ``manyhot.LOSSES``.
        metrics: names of ``manyhot.METRICS``, measured with ``rule``.
        rule: how scores become decisions in the metrics; None is ``s > 0``.
        width: the width of label lists; see ``MultiLabelCollator``.
        **options: options of the loss.

    Returns:
        ``compute_loss_func``, ``data_collator``, ``compute_metrics``, ``preprocess_logits_for_metrics``,
        ``processing_class`` and ``callbacks``.
    """
    kind = "dense" if width is None else "lists"
    measured = TrainerMetrics(metrics, num_labels=len(label_names), rule=rule, labels=kind)
    return {
        "compute_loss_func": TrainerLoss(loss, labels=kind, **options),
        "data_collator": MultiLabelCollator(tokenizer, label_names=label_names, width=width),
        "compute_metrics": measured.compute_metrics,
        "preprocess_logits_for_metrics": measured.preprocess_logits_for_metrics,
        "processing_class": tokenizer,
        "callbacks": [TrainerChecks()],
    }
