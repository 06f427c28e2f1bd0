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
    """Subtract the thresholds of ``rule`` from the bias of the model's classifier, in place: ``manyhot.export.fold_rule``.

    After it ``logits > 0``, and so ``sigmoid(logits) > 0.5``, says what ``decide(logits, rule)`` said before. The model's own
    logits move by the threshold: fold once, after tuning.

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
    """Put a link or calibration ``sigma(a s + c)`` into the model's classifier, in place: ``manyhot.export.fold_link``.

    After it ``sigmoid(logits)`` are the calibrated probabilities. A threshold of 0.5 then means "more likely than not" and is
    not tuned; to fold a tuned rule use ``fold_rule_into``.

    Args:
        model: as in ``fold_rule_into``.
        link: ``"hard"``, ``"soft"`` or a calibration that is not isotonic.
    """
    head = classifier_of(model)
    _replace(head, fold_link(head.weight.detach(), head.bias.detach(), link))


def save_folded(
    model: Any, tokenizer: Any, rule: DecisionRule, folder: str | Path, *, texts: Sequence[str], link: str = "hard"
) -> None:
    """Fold ``rule`` into the model and save model and tokenizer, once a stock pipeline agrees on all ``texts``.

    ``problem_type`` is set to multi-label, so that ``pipeline("text-classification", top_k=None)`` takes the logistic
    function of every logit; ``score > 0.5`` is then the decision. The model is changed in place.

    Args:
        model: a ``...ForSequenceClassification``, in evaluation or training mode.
        tokenizer: its tokenizer.
        rule: thresholds only. folder: where ``save_pretrained`` writes.
        texts: real rows to compare the pipeline's decisions with the rule's on.
        link: of the loss; ``"softmax"`` is refused, because its labels are not decided one by one.

    Raises:
        ValueError: where one decision differs; nothing is written then.
    """
    if link == "softmax":
        raise ValueError("save_folded: a softmax model decides by argmax; a threshold a label is not its rule.")
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
            f"save_folded: the pipeline decides otherwise on {int(differs.sum())} of {len(texts)} texts, first on row {row}."
            " Nothing was written. Where scores lie within rounding of their threshold, tune it again: tune_rule"
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
            f"fold_rule_into: the classifier {name!r}, {shape_text(head.weight.shape)}, has no bias to take thresholds off."
            " Choose an architecture whose classifier has one, or serve the rule beside the model."
        )
    return head


def _replace(head: nn.Linear, folded: tuple[Tensor, Tensor]) -> None:
    with torch.no_grad():
        head.weight.copy_(folded[0])
        head.bias.copy_(folded[1])
