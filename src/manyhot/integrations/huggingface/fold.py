"""A decision rule or a calibration folded into a classifier's weights, so that stock software makes the same decisions as
manyhot.

A stock multi-label pipeline applies a sigmoid to each logit and a threshold of 0.5, which is a logit of 0. With the threshold
``t`` of each label subtracted from the bias, ``b' = b - t``, that is the rule ``s > t``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyhot._checks import shape_text
from manyhot.decisions import Calibration, DecisionRule, decide
from manyhot.export import fold_link, fold_rule
from manyhot.export.clear_rule import clear_rule

TEXTS_AT_ONCE = 32


def fold_rule_into(model: nn.Module, rule: DecisionRule, link: str | Calibration | None = None) -> None:
    """Subtract the thresholds of ``rule`` from the bias of the model's classifier, in place (``manyhot.export.fold_rule``).

    Afterwards ``logits > 0``, that is ``sigmoid(logits) > 0.5``, is the decision that ``decide(logits, rule)`` made before. The
    model's logits are shifted by the thresholds, so fold only once, after tuning.

    Args:
        model: a ``...ForSequenceClassification`` of transformers, or any module that ends in a ``Linear`` layer with a bias
            and ``config.num_labels`` outputs.
        rule: thresholds only. Limits on the number of labels cannot be folded into weights and raise an error.
        link: its slope scales the scores around the threshold; None uses slope 1.

    Example:
        >>> from types import SimpleNamespace
        >>> model = nn.Sequential(nn.Linear(4, 2))
        >>> model.config = SimpleNamespace(num_labels=2)
        >>> x = torch.randn(8, 4)
        >>> rule = DecisionRule(threshold=(0.25, -0.5))
        >>> before = decide(model(x), rule)
        >>> fold_rule_into(model, rule)
        >>> torch.equal(model(x).sigmoid() > 0.5, before)
        True
    """
    head = classifier_of(model)
    _replace(head, fold_rule(head.weight.detach(), head.bias.detach(), rule, link))


def fold_link_into(model: nn.Module, link: str | Calibration) -> None:
    """Put a link or calibration ``sigma(a s + c)`` into the model's classifier, in place (``manyhot.export.fold_link``).

    Afterwards ``sigmoid(logits)`` is the calibrated probability. A threshold of 0.5 then means "more likely than not"; it is
    not a tuned threshold. To fold a tuned rule, use ``fold_rule_into``.

    Args:
        model: as in ``fold_rule_into``.
        link: ``"hard"``, ``"soft"`` or a calibration that is not isotonic.
    """
    head = classifier_of(model)
    _replace(head, fold_link(head.weight.detach(), head.bias.detach(), link))


def save_folded(
    model: Any, tokenizer: Any, rule: DecisionRule, folder: str | Path, *, texts: Sequence[str], link: str = "hard"
) -> None:
    """Fold ``rule`` into the model; save model and tokenizer if a stock pipeline makes the same decisions on all ``texts``.

    ``problem_type`` is set to multi-label, so that ``pipeline("text-classification", top_k=None)`` applies a sigmoid
    to every logit; the decision is then ``score > 0.5``. The model is changed in place.

    Args:
        model: a ``...ForSequenceClassification``, in evaluation or training mode.
        tokenizer: its tokenizer.
        rule: a rule of thresholds only.
        folder: where ``save_pretrained`` writes.
        texts: real texts on which the pipeline is compared with the rule.
        link: the link of the loss; ``"softmax"`` is an error, because it has no threshold per label.

    Raises:
        ValueError: if a decision differs; nothing is written then.
    """
    if link == "softmax":
        raise ValueError("save_folded: a softmax model decides by argmax, not by a threshold per label.")
    if not texts:
        raise ValueError("save_folded: `texts` must hold rows to compare on; got none.")
    model.eval()
    scores = score_texts(model, tokenizer, texts)
    wanted = decide(scores, rule)
    fold_rule_into(model, clear_rule(rule, [scores]))
    model.config.problem_type = "multi_label_classification"
    got = pipeline_decisions(model, tokenizer, texts)
    differs = (got != wanted).any(dim=1)
    if bool(differs.any()):
        row = int(differs.nonzero()[0])
        raise ValueError(
            f"save_folded: the pipeline decides differently on {int(differs.sum())} of {len(texts)} texts, first on row {row}."
            " Nothing was written. If scores are within rounding error of a threshold, tune it again: tune_rule"
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def score_texts(model: Any, tokenizer: Any, texts: Sequence[str]) -> Tensor:
    """Logits ``[N, L]`` of ``texts``, on the CPU, in float32."""
    found = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        batch = tokenizer(list(texts[start : start + TEXTS_AT_ONCE]), padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            found.append(model(**batch.to(model.device)).logits.float().cpu())
    return torch.cat(found)


def pipeline_decisions(model: Any, tokenizer: Any, texts: Sequence[str]) -> Tensor:
    """bool ``[N, L]``: the decisions of ``pipeline("text-classification")`` at a threshold of 0.5."""
    from transformers import pipeline

    stock: Any = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
    number = {name: int(place) for place, name in model.config.id2label.items()}
    decided = torch.zeros(len(texts), len(number), dtype=torch.bool)
    for row, scores in enumerate(stock(list(texts), truncation=True, batch_size=TEXTS_AT_ONCE)):
        for entry in scores:
            decided[row, number[entry["label"]]] = entry["score"] > 0.5
    return decided


def classifier_of(model: nn.Module) -> nn.Linear:
    """The last ``Linear`` layer with one output per label: where a rule is folded in."""
    num_labels = int(model.config.num_labels)  # type: ignore[union-attr, arg-type]
    heads = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.out_features == num_labels
    ]
    if not heads:
        raise ValueError(f"fold_rule_into: the model has no Linear layer with num_labels = {num_labels} outputs.")
    name, head = heads[-1]
    if head.bias is None:
        raise ValueError(
            f"fold_rule_into: the classifier {name!r}, {shape_text(head.weight.shape)}, has no bias to hold thresholds."
            " Choose an architecture whose classifier has one, or serve the rule beside the model."
        )
    return head


def _replace(head: nn.Linear, folded: tuple[Tensor, Tensor]) -> None:
    with torch.no_grad():
        head.weight.copy_(folded[0])
        head.bias.copy_(folded[1])
