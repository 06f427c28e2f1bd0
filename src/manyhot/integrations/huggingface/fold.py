"""A decision rule or a calibration folded into a classifier's weights, so that stock software decides as manyhot does.

A stock multi-label pipeline takes the logistic function of each logit and cuts at 0.5, which is a logit of 0. With the
threshold ``t`` of each label taken off the bias, ``b' = b - t``, that cut is the rule ``s > t``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyhot._checks import shape_text
from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.decide import DecisionRule, decide

# The logit of a label that is never, or always, predicted: a probability of 1e-35 or 1, and no overflow in float32.
CERTAIN = 80.0
TEXTS_AT_ONCE = 32


def fold_rule(model: nn.Module, rule: DecisionRule) -> None:
    """Take the thresholds of ``rule`` off the bias of the model's classifier, in place.

    After it ``logits > 0``, and so ``sigmoid(logits) > 0.5``, says what ``decide(logits, rule)`` said before. ``inf`` as a
    threshold gives a label a probability of next to 0. The model's own logits move by the threshold: fold once, after tuning.

    Args:
        model: a ``...ForSequenceClassification`` of transformers, or any module that ends in a ``Linear`` layer with a bias
            and ``config.num_labels`` outputs.
        rule: thresholds alone. How many labels a row may have cannot be put into weights and is an error.

    Example:
        >>> from types import SimpleNamespace
        >>> model = nn.Sequential(nn.Linear(4, 2))
        >>> model.config = SimpleNamespace(num_labels=2)
        >>> x = torch.randn(8, 4)
        >>> rule = DecisionRule(threshold=(0.25, -0.5))
        >>> before = decide(model(x), rule)
        >>> fold_rule(model, rule)
        >>> torch.equal(model(x).sigmoid() > 0.5, before)
        True
    """
    if rule.top_k is not None or rule.min_labels or rule.max_labels is not None:
        raise ValueError(
            "fold_rule: `rule` must have nothing but thresholds; top_k, min_labels and max_labels compare labels, which a bias"
            " cannot. Tune a rule without them."
        )
    head = classifier_of(model)
    if isinstance(rule.threshold, tuple) and len(rule.threshold) != head.out_features:
        raise ValueError(f"fold_rule: `rule` must have {head.out_features} thresholds; got {len(rule.threshold)}.")
    thresholds = torch.as_tensor(rule.threshold, dtype=torch.float64).expand(head.out_features)
    finite = thresholds.isfinite()
    kept = torch.where(finite, thresholds, 0.0)
    _change(head, slope=finite.double(), shift=torch.where(finite, -kept, -CERTAIN * thresholds.sign()), reset=~finite)


def fold_calibration(model: nn.Module, calibration: Calibration) -> None:
    """Put ``sigma(a s + c)`` into the model's classifier, in place: ``W' = a W``, ``b' = a b + c``.

    After it ``sigmoid(logits)`` are the calibrated probabilities. A cut at 0.5 is then the rule "more likely than not", not
    a tuned threshold; to fold a tuned rule use ``fold_rule``.

    Args:
        model: as in ``fold_rule``.
        calibration: of kind ``"temperature"``, ``"platt"`` or ``"per-label"``; ``"isotonic"`` is not affine and is an error.
    """
    if calibration.kind == "isotonic":
        raise ValueError("fold_calibration: an isotonic calibration is no affine map. Fit 'platt' or 'per-label' instead.")
    head = classifier_of(model)
    if len(calibration.slope) not in (1, head.out_features):
        raise ValueError(
            f"fold_calibration: `calibration` must have one slope or {head.out_features}; got {len(calibration.slope)}."
        )
    slope = calibration.slope.expand(head.out_features)
    none = torch.zeros(head.out_features, dtype=torch.bool)
    _change(head, slope=slope, shift=calibration.intercept.expand(head.out_features), reset=none)


def save_folded(
    model: Any, tokenizer: Any, rule: DecisionRule, folder: str | Path, *, texts: Sequence[str], link: str = "hard"
) -> None:
    """Fold ``rule`` into the model and save model and tokenizer, once a stock pipeline agrees on all ``texts``.

    ``problem_type`` is set to multi-label, so that ``pipeline("text-classification", top_k=None)`` takes the logistic
    function of every logit; ``score > 0.5`` is then the decision. The model is changed in place.

    Args:
        model: a ``...ForSequenceClassification``, in evaluation or training mode.
        tokenizer: its tokenizer.
        rule: thresholds alone.
        folder: where ``save_pretrained`` writes.
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
    wanted = decide(score_texts(model, tokenizer, texts), rule)
    fold_rule(model, rule)
    model.config.problem_type = "multi_label_classification"
    got = pipeline_decisions(model, tokenizer, texts)
    differs = (got != wanted).any(dim=1)
    if bool(differs.any()):
        row = int(differs.nonzero()[0])
        raise ValueError(
            f"save_folded: the pipeline decides otherwise on {int(differs.sum())} of {len(texts)} texts, first on row {row}."
            " Nothing was written. Is a score within rounding of its threshold?"
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
    """bool ``[N, L]``: what ``pipeline("text-classification")`` with a cut at 0.5 says."""
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
        raise ValueError(f"fold_rule: the model has no Linear layer with num_labels = {num_labels} outputs.")
    name, head = heads[-1]
    if head.bias is None:
        raise ValueError(
            f"fold_rule: the classifier {name!r}, {shape_text(head.weight.shape)}, has no bias to take thresholds off."
            " Choose an architecture whose classifier has one, or serve the rule beside the model."
        )
    return head


def _change(head: nn.Linear, *, slope: Tensor, shift: Tensor, reset: Tensor) -> None:
    """``W' = a W`` and ``b' = a b + c`` in float64, rounded once; rows in ``reset`` have the bias ``c`` alone."""
    device = head.weight.device
    slope, shift, reset = slope.to(device), shift.to(device), reset.to(device)
    with torch.no_grad():
        weight, bias = head.weight.double(), head.bias.double()
        head.weight.copy_(torch.where(reset[:, None], 0.0, weight * slope[:, None]))
        head.bias.copy_(torch.where(reset, shift, bias * slope + shift))
