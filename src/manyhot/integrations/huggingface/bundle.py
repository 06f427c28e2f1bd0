"""Conversion of a Hugging Face classifier to a manyhot model, for ``evaluate``, ``predict`` and ``report``, and back."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from manyhot.decisions import Calibration, DecisionRule
from manyhot.integrations.registry import framework
from manyhot.losses import get_loss
from manyhot.training.rows.bodies.classifier import ClassifierBody, classifier_shape
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.inputs.tokens import TokenInputs
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.run.versions import versions


def to_manyhot(
    model: Any,
    tokenizer: Any,
    *,
    rule: DecisionRule | None = None,
    calibration: Calibration | None = None,
    loss: str = "zlpr",
    max_tokens: int = 256,
    label_names: Sequence[str] | None = None,
) -> TrainedModel:
    """Convert a trained ``...ForSequenceClassification`` to a ``TrainedModel``; its ``save`` writes a bundle.

    ``manyhot evaluate``, ``manyhot predict`` and ``load_model`` read the bundle. The weights are copied.

    Args:
        model: the classifier; custom code (``trust_remote_code``) is not supported.
        tokenizer: a fast tokenizer.
        rule: how scores become predictions; None is ``s > 0``.
        calibration: fitted probabilities, or None for the link of the loss.
        loss: the name of the loss that the model was trained with; it determines the link from scores to probabilities.
        max_tokens: texts are truncated to this many tokens.
        label_names: one name per label; None takes ``config.id2label``.

    Raises:
        ValueError: for a slow tokenizer, a wrong number of names, or a name that occurs twice.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError("to_manyhot: `tokenizer` must be a fast tokenizer (tokenizer.json); this one has no backend.")
    if tokenizer.pad_token_id is None:
        raise ValueError("to_manyhot: `tokenizer` must have a padding token. Set tokenizer.pad_token.")
    names = tuple(label_names or (model.config.id2label[number] for number in range(model.config.num_labels)))
    if len(names) != model.config.num_labels or len(set(names)) != len(names):
        raise ValueError(f"to_manyhot: `label_names` must be {model.config.num_labels} different names; got {len(names)}.")
    limit = min(max_tokens, int(tokenizer.model_max_length))
    inputs = TokenInputs(json.loads(backend.to_str()), padding=int(tokenizer.pad_token_id), max_tokens=limit)
    shape = classifier_shape(model, padding=inputs.padding, width=inputs.width)
    body = ClassifierBody(copy.deepcopy(model).float(), padding=inputs.padding)
    about = {"architecture": type(model).__name__, "versions": versions()}
    return TrainedModel(
        body,
        shape,
        inputs,
        names,
        TrainSettings(loss=loss),
        link=get_loss(loss).link,
        rule=rule or DecisionRule(),
        calibration=calibration,
        about=about,
    )


def from_manyhot(trained: TrainedModel) -> tuple[Any, Any]:
    """Convert a bundle of ``to_manyhot`` back to ``(model, tokenizer)`` of transformers.

    The weights do not include the rule; ``fold_rule_into(model, trained.rule)`` folds it in. The weights are copied.
    """
    if not isinstance(trained.body, ClassifierBody) or not isinstance(trained.inputs, TokenInputs):
        raise ValueError(
            f"from_manyhot: the body must be a Hugging Face classifier; got {trained.shape['body']!r}, for which"
            " transformers has no class."
        )
    model: Any = copy.deepcopy(trained.body.model)
    model.config.id2label = dict(enumerate(trained.label_names))
    model.config.label2id = {name: number for number, name in enumerate(trained.label_names)}
    model.config.problem_type = "multi_label_classification"
    transformers = framework("huggingface")
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(json.dumps(trained.inputs.tokenizer))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=backend.id_to_token(trained.inputs.padding),
        model_max_length=trained.inputs.max_tokens,
        # The body reads only these two; token types would be a third input.
        model_input_names=["input_ids", "attention_mask"],
    )
    return model, tokenizer
