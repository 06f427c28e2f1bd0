"""Export of a transformers classifier from a manyhot model back to a transformers folder."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from manyhot._files import write_whole
from manyhot.export.huggingface_folder import publish
from manyhot.export.model_card import model_card
from manyhot.export.onnx_file import Parity
from manyhot.integrations.huggingface.bundle import from_manyhot
from manyhot.integrations.huggingface.fold import save_folded
from manyhot.training.rows.bundle import TrainedModel


def export_classifier(trained: TrainedModel, folder: str | Path, *, texts: Sequence[str]) -> Parity:
    """Write a model of ``to_manyhot`` as a folder of its stock class, with the rule folded in, and add a model card.

    Args:
        trained: a model with the body ``classifier``.
        folder: where the files go.
        texts: real texts on which a stock pipeline is compared with the model.

    Returns:
        The result of the comparison.

    Raises:
        ValueError: if the rule cannot be folded, or if a decision differs; nothing is written then.
    """
    network, tokenizer = from_manyhot(trained)
    with tempfile.TemporaryDirectory() as draft:
        save_folded(network, tokenizer, trained.rule, draft, texts=texts, link=trained.link or "hard")
        parity = Parity(len(texts), len(texts) * trained.num_labels, 0, 0.0, None)
        write_whole(Path(draft) / "README.md", model_card(trained, parity, own_code=False).encode())
        publish(Path(draft), Path(folder))
    return parity
