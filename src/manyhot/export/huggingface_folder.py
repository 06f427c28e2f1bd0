"""Export of an encoder model to a transformers folder, with the rule folded into the head.

The folder is compared with the model before it is written.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyhot._files import json_bytes, make_folder, write_whole
from manyhot.decisions.rule import decide
from manyhot.export.clear_rule import clear_rule
from manyhot.export.folding import fold_rule
from manyhot.export.graph import check_exportable
from manyhot.export.model_card import model_card
from manyhot.export.onnx_file import Parity
from manyhot.export.vectoriser import reference
from manyhot.training.rows.bodies.encoder import EncoderBody
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.inputs.tokens import TokenInputs, texts_of

CODE = "modeling_manyhot.py"


def export_huggingface(model: TrainedModel, folder: str | Path, *, rows: Any) -> Parity:
    """Write an encoder model as a folder that transformers reads.

    The thresholds are folded into the head, so that ``pipeline("text-classification", folder, trust_remote_code=True,
    top_k=None)`` with a threshold of 0.5 makes the decisions of the rule. No class of transformers takes the mean over
    tokens, so the folder has ``modeling_manyhot.py`` for it; manyhot itself is not needed. The folder is written only if the
    pipeline makes the same decisions on all ``rows``.

    Args:
        model: a model with the body ``encoder``.
        folder: where the files go; ``hf upload NAME FOLDER`` publishes it.
        rows: real texts to compare on.

    Returns:
        The result of the comparison.

    Raises:
        ValueError: for another body, if the rule cannot be folded, or if a decision differs; nothing is written then.
    """
    check_exportable(model)
    body, inputs = model.body, model.inputs
    if not isinstance(body, EncoderBody) or not isinstance(inputs, TokenInputs):
        raise ValueError(
            f"export: a Hugging Face folder holds an encoder; the body is {model.shape['body']!r}. Export to onnx."
        )
    texts = list(texts_of(rows))
    link = model.calibration or model.link
    logits = model.logits(texts)
    folded = fold_rule(body.head.weight.detach(), body.head.bias.detach(), clear_rule(model.rule, [logits]), link)
    with tempfile.TemporaryDirectory() as draft:
        _write(Path(draft), model, body, inputs, folded)
        got = pipeline_scores(draft, texts, model.label_names, max_tokens=inputs.max_tokens) > 0.5
        wanted = decide(logits, model.rule)
        different = int((got != wanted).sum())
        if different:
            raise ValueError(
                f"export: {different} decisions of the pipeline differ on {len(texts)} texts. Nothing was written."
                " If scores are within rounding error of a threshold, tune it again: manyhot tune MODEL FILE"
            )
        parity = Parity(len(texts), wanted.numel(), different, 0.0, None)
        write_whole(Path(draft) / "README.md", model_card(model, parity, own_code=True).encode())
        publish(Path(draft), Path(folder))
    return parity


def publish(draft: Path, folder: Path) -> None:
    """Copy the files of a draft, the configuration last: without it the folder is not a model."""
    make_folder(folder)
    for path in sorted(draft.iterdir(), key=lambda path: path.name == "config.json"):
        if path.is_file():
            write_whole(folder / path.name, path.read_bytes())


def _write(folder: Path, model: TrainedModel, body: EncoderBody, inputs: TokenInputs, folded: tuple[Tensor, Tensor]) -> None:
    from safetensors.torch import save
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    head = nn.Linear(folded[0].shape[1], folded[0].shape[0])
    head.load_state_dict({"weight": folded[0], "bias": folded[1]})
    whole = copy.copy(body)
    whole._modules = {**body._modules, "head": head}
    tensors = {name: each.detach().cpu().contiguous().clone() for name, each in whole.state_dict().items()}
    write_whole(folder / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    names = dict(enumerate(model.label_names))
    config = {
        "model_type": "manyhot",
        "architectures": ["ManyhotForSequenceClassification"],
        "auto_map": {
            "AutoConfig": "modeling_manyhot.ManyhotConfig",
            "AutoModelForSequenceClassification": "modeling_manyhot.ManyhotForSequenceClassification",
        },
        "encoder": model.shape["config"],
        "id2label": {str(number): name for number, name in names.items()},
        "label2id": {name: number for number, name in names.items()},
        "problem_type": "multi_label_classification",
        "pad_token_id": inputs.padding,
    }
    write_whole(folder / "config.json", json_bytes(config))
    write_whole(folder / CODE, reference(CODE).encode())
    backend: Any = Tokenizer.from_str(json.dumps(inputs.tokenizer))
    fast: Any = PreTrainedTokenizerFast
    fast(
        tokenizer_object=backend,
        pad_token=backend.id_to_token(inputs.padding),
        model_max_length=inputs.max_tokens,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)


def pipeline_scores(folder: str | Path, texts: Sequence[str], names: Sequence[str], *, max_tokens: int) -> Tensor:
    """``[N, L]``: the scores of a stock pipeline on a folder."""
    from transformers import pipeline
    from transformers.utils import logging as messages

    logging: Any = messages
    shown = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        stock: Any = pipeline("text-classification", model=str(folder), trust_remote_code=True, top_k=None, device="cpu")
        number = {name: place for place, name in enumerate(names)}
        scores = torch.zeros(len(texts), len(names))
        for row, found in enumerate(stock(list(texts), truncation=True, max_length=max_tokens, batch_size=32)):
            for entry in found:
                scores[row, number[entry["label"]]] = entry["score"]
    finally:
        logging.set_verbosity(shown)
    return scores
